//! Where the fault suite may end the edge: before and after each step of CONTRACT.md, section 2.

postern_kit::fault_points! {
    /// A call frame has come.
    SHAPE_BEFORE = "edge.shape.before";
    /// Its shape is right.
    SHAPE_AFTER = "edge.shape.after";
    /// It has a place among the calls in flight.
    CONSULT_BEFORE = "edge.consult.before";
    /// Identity and policy have told what they think of it.
    CONSULT_AFTER = "edge.consult.after";
    /// It is of the pinned workspace, intention and an admitted session.
    PIN_AFTER = "edge.pin.after";
    /// Nobody else runs it.
    CLAIM_AFTER = "edge.claim.after";
    /// It may be begun.
    PLAN_BEFORE = "edge.plan.before";
    /// What it would change is known.
    PLAN_AFTER = "edge.plan.after";
    /// The ledger is about to be asked for the receipt.
    BEGIN_BEFORE = "edge.begin.before";
    /// The receipt is durable.
    BEGIN_AFTER = "edge.begin.after";
    /// The owner still wishes it.
    MAY_START_AFTER = "edge.may-start.after";
    /// The service is about to be asked for the effect.
    EFFECT_BEFORE = "edge.effect.before";
    /// The service has answered.
    EFFECT_AFTER = "edge.effect.after";
    /// The result is about to be recorded.
    COMPLETE_BEFORE = "edge.complete.before";
    /// The result is durable.
    COMPLETE_AFTER = "edge.complete.after";
    /// The result frame is about to be handed to the writer.
    ANSWER_BEFORE = "edge.answer.before";
    /// The result frame is about to be written.
    SEND_BEFORE = "edge.send.before";
    /// The result frame is written.
    SEND_AFTER = "edge.send.after";
    /// The receipt awaits the owner.
    OWNER_ASKED = "edge.owner.asked";
    /// The owner has decided.
    OWNER_DECIDED = "edge.owner.decided";
    /// An approved call is about to be noted as executing.
    OWNER_START_BEFORE = "edge.owner.start.before";
    /// An approved call is noted as executing.
    OWNER_START_AFTER = "edge.owner.start.after";
    /// A receipt is about to be given up.
    ABANDON_BEFORE = "edge.abandon.before";
    /// A receipt is given up.
    ABANDON_AFTER = "edge.abandon.after";
    /// What became of an effect is about to be looked into.
    INSPECT_BEFORE = "edge.inspect.before";
    /// What became of an effect is known.
    INSPECT_AFTER = "edge.inspect.after";
    /// An undo can be carried out; there is no receipt of it.
    UNDO_BEFORE = "edge.undo.before";
    /// The receipt of an undo is durable.
    UNDO_BEGUN = "edge.undo.begun";
    /// An undo is carried out, or is known not to be; its end is about to be recorded.
    UNDO_DONE = "edge.undo.done";
    /// An undo that an earlier run began is about to be gone on with.
    UNDO_RESUMED = "edge.undo.resumed";
}
