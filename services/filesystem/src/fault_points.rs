//! Where the fault suite may end whoever changes files.

postern_kit::fault_points! {
    /// A change is about to be looked at.
    PLAN_BEFORE = "files.plan.before";
    /// What it would do is known.
    PLAN_AFTER = "files.plan.after";
    /// The target is locked and the receipt admitted.
    ADMITTED = "files.admitted";
    /// There is an empty file to stage the content in.
    STAGED = "files.staged";
    /// The content is staged, not synced.
    WRITTEN = "files.written";
    /// The staged content is durable.
    SYNCED = "files.synced";
    /// The bytes before a change are about to be kept.
    KEPT_BEFORE = "files.kept.before";
    /// The bytes before a change are kept, durably.
    KEPT_AFTER = "files.kept.after";
    /// The directories that were missing are there.
    PARENTS = "files.parents";
    /// A new file is about to get its name.
    LINK_BEFORE = "files.link.before";
    /// A new file has its name.
    LINK_AFTER = "files.link.after";
    /// What will replace a file stands beside it.
    NAMED = "files.named";
    /// It has replaced the file.
    RENAME_AFTER = "files.rename.after";
    /// A file is about to be deleted.
    DELETE_BEFORE = "files.delete.before";
    /// A file is deleted.
    DELETE_AFTER = "files.delete.after";
    /// The directory is synced; nobody is answered.
    DURABLE = "files.durable";
    /// What files that are taken back shall be stands beside them.
    RESTORE_STAGED = "files.restore.staged";
    /// It is durable, and a file is about to be taken back.
    RESTORE_BEFORE_EACH = "files.restore.before-each";
    /// Every file is taken back.
    RESTORE_AFTER = "files.restore.after";
    /// That is durable; nobody is answered.
    RESTORE_DURABLE = "files.restore.durable";
    /// What a change left is about to be looked at.
    INSPECT_BEFORE = "files.inspect.before";
    /// What a change left is known.
    INSPECT_AFTER = "files.inspect.after";
}
