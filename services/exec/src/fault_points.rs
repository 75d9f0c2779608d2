//! Where the fault suite may end the exec worker or a wrapper.

postern_kit::fault_points! {
    /// A worker is about to open its spool.
    OPEN_BEFORE = "exec.open.before";
    /// A worker has opened its spool.
    OPEN_AFTER = "exec.open.after";
    /// A start has come.
    START_BEFORE = "exec.start.before";
    /// The spool directory is about to be claimed.
    CLAIM_BEFORE = "exec.claim.before";
    /// The spool directory is claimed.
    CLAIM_AFTER = "exec.claim.after";
    /// A wrapper has the order.
    ORDER_AFTER = "exec.order.after";
    /// The thread that carries the command has it.
    HANDED_OVER = "exec.handed-over";
    /// The shell runs; that is about to be noted.
    LAUNCHED_BEFORE = "exec.launched.before";
    /// It is noted that the shell runs.
    LAUNCHED_AFTER = "exec.launched.after";
    /// The start is about to be answered.
    START_AFTER = "exec.start.after";
    /// The end of a command is about to be noted.
    END_BEFORE = "exec.end.before";
    /// The end of a command is noted.
    END_AFTER = "exec.end.after";
    /// An input is about to be noted.
    INPUT_BEFORE = "exec.input.before";
    /// An input is noted and not typed.
    INPUT_NOTED = "exec.input.noted";
    /// An input is typed and not noted so.
    INPUT_TYPED = "exec.input.typed";
    /// An input is noted as typed.
    INPUT_AFTER = "exec.input.after";
    /// A stop has come.
    STOP_BEFORE = "exec.stop.before";
    /// A stop is noted and not ordered.
    STOP_NOTED = "exec.stop.noted";
    /// A stop is ordered.
    STOP_ORDERED = "exec.stop.ordered";
    /// A stop is done and not answered.
    STOP_AFTER = "exec.stop.after";
    /// What became of an effect is about to be looked into.
    INSPECT_BEFORE = "exec.inspect.before";
    /// A start that never was is about to be ruled out.
    TOMBSTONE_BEFORE = "exec.tombstone.before";
    /// A start that never was is ruled out.
    TOMBSTONE_AFTER = "exec.tombstone.after";
    /// A wrapper has started the shell and has told nobody.
    WRAPPER_STARTED = "exec.wrapper.started";
    /// The shell has ended and the wrapper has told nobody.
    WRAPPER_ENDED = "exec.wrapper.ended";
}
