//! The layers that every call passes, from the outside in. Their order is CONTRACT.md, section 2, and it is the security
//! argument: it is written once, in [`Stack::new`], and each layer hands inward a type that only it can make, so that no
//! layer can be left out or put elsewhere without the compiler saying so.

mod consult;
mod in_flight;
mod judge;
mod layer;
mod pin;
mod receipt;
mod replay;
mod sessions;
mod trace;

use std::fmt;

use postern_kit::{Clock, task::Tasks};
use tower::{ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

use crate::{
    call::Call, clients::Clients, config::Config, control::Control, owner_tools::OwnerTools,
    reply::Reply, tools::Tools,
};
use layer::stage;

pub(crate) use receipt::{Held, Ledger, Permit};

/// The stack of one edge. Clones stand for the same stack.
#[derive(Clone)]
pub(crate) struct Stack(BoxCloneSyncService<Call, Reply, postern_kit::Failure>);

impl fmt::Debug for Stack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Stack")
    }
}

impl Stack {
    pub(crate) fn new(
        config: &Config,
        clients: Clients,
        control: Control,
        clock: Clock,
        tasks: &Tasks,
    ) -> Self {
        let judge = judge::Judge::new(config, &clients, control.clone());
        let owner_tools = OwnerTools::start(
            &config.tools,
            &clients,
            config.tls.as_ref(),
            &control,
            tasks,
        );
        control.set_owner_tools(owner_tools.clone());
        let tools = Tools::new(config, clients.clone(), control.clone(), owner_tools);
        let ledger = receipt::Ledger::new(config, &clients, &control);
        let inbox = receipt::Inbox::new(config, ledger.clone(), control.clone(), clock.clone());
        let admission = sessions::Admission::new(config, &clients, ledger.clone(), inbox.clone());
        let stack = ServiceBuilder::new()
            // Outermost, so that whatever happens further in (a refusal, a panic) is traced and becomes an answer.
            .layer(stage(trace::Trace))
            // Before any work is done for a call: what is over the bound costs nothing and leaves nothing.
            .layer(stage(in_flight::InFlight::new(control, clock)))
            // Asks at once what the next layers judge one by one, since waiting for each in turn would cost a hop each.
            // Nothing that it asks for has an effect, but that a new session may wait for the owner to let it in.
            .layer(stage(consult::Consult::new(
                admission,
                judge.clone(),
                ledger.clone(),
            )))
            // Before receipts: a call of another workspace, intention or session must learn nothing of them.
            .layer(stage(pin::Pin::new(ledger)))
            // Before tool, arguments and permission: what was answered once is answered the same, whatever has changed.
            .layer(stage(replay::Replay::new()))
            // Around the effect: nothing further in happens without a durable receipt or the owner's word.
            .layer(stage(receipt::Receipts::new(
                config,
                inbox,
                judge,
                tools.clone(),
                tasks,
            )))
            .service(tools);
        Self(BoxCloneSyncService::new(stack))
    }

    /// Answers one call.
    pub(crate) async fn answer(&self, call: Call) -> Reply {
        self.0
            .clone()
            .oneshot(call)
            .await
            .unwrap_or_else(|failure| Reply::failure(&failure))
    }
}
