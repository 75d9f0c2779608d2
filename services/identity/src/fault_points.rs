//! Where the fault suite may end whoever has the pins and sessions.

postern_kit::fault_points! {
    /// A pin is about to be set or checked.
    PIN_BEFORE = "identity.pin.before";
    /// The pin is durable.
    PIN_AFTER = "identity.pin.after";
    /// A call's workspace is about to be compared.
    WORKSPACE_BEFORE = "identity.workspace.before";
    /// The workspace is the pinned one; the intention is about to be compared.
    INTENTION_BEFORE = "identity.intention.before";
    /// The intention is the pinned one; the session is about to be admitted.
    SESSION_BEFORE = "identity.session.before";
    /// The session is durable.
    SESSION_AFTER = "identity.session.after";
    /// The first organization and the admin token are about to be made.
    BOOTSTRAP_BEFORE = "identity.bootstrap.before";
    /// They are durable, and nobody has the token's secret.
    BOOTSTRAP_AFTER = "identity.bootstrap.after";
    /// A launch is about to be made.
    LAUNCH_BEFORE = "identity.launch.before";
    /// A launch is durable.
    LAUNCH_AFTER = "identity.launch.after";
}
