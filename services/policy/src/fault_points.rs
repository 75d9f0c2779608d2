//! Where the fault suite may end whoever decides over permission.

postern_kit::fault_points! {
    /// A call's tool is about to be looked up.
    TOOL_BEFORE = "policy.tool.before";
    /// The tool exists; its arguments are about to be checked.
    ARGUMENTS_BEFORE = "policy.arguments.before";
    /// The arguments meet the schema; the rules are about to be asked.
    PERMISSION_BEFORE = "policy.permission.before";
    /// The rules have decided.
    PERMISSION_AFTER = "policy.permission.after";
}
