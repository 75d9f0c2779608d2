//! Where the fault suite may end the host: around its journal and around what it sends and answers.

postern_kit::fault_points! {
    /// A call is about to be journalled.
    JOURNAL_BEFORE = "host.journal.before";
    /// A call is journalled.
    JOURNAL_AFTER = "host.journal.after";
    /// A call frame is about to be written.
    SEND_BEFORE = "host.send.before";
    /// A call frame is written.
    SEND_AFTER = "host.send.after";
    /// A result frame has come.
    RESULT_BEFORE = "host.result.before";
    /// The agent is about to be answered.
    ANSWER_BEFORE = "host.answer.before";
    /// An answer is about to be kept in the journal.
    KEEP_BEFORE = "host.keep.before";
    /// An answer is kept in the journal.
    KEEP_AFTER = "host.keep.after";
}
