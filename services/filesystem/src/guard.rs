//! Which effects may still happen: each receipt once, and none of an incarnation that was succeeded.
//!
//! An effect holds the gate open from before it is admitted until it is over. Raising the incarnation needs the gate
//! to itself. So once it is raised, every older effect either has happened or is refused.
//!
//! All of this is in memory. A filesystem service that starts anew has forgotten the fence and the receipts; what then
//! still holds is that no request reaches it which was sent to the process before it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use postern_kit::Failure;
use postern_types::{Id, ReceiptId};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::{jobs::hold, recent::Recent, refusal};

/// Receipts remembered at least; at most twice as many, some 40 bytes each.
const RECEIPTS: usize = 32_768;
/// Workspaces whose incarnation is remembered. One project has few; none is forgotten while the process lives, since that
/// would lift its fence.
const WORKSPACES: usize = 1024;

/// The durable receipt under which an effect happens.
#[derive(Clone, Debug)]
pub(crate) struct Receipt {
    pub(crate) workspace: Id,
    pub(crate) id: ReceiptId,
    pub(crate) incarnation: u64,
}

/// Knows what was acted on.
#[derive(Debug)]
pub(crate) struct Guard {
    state: Mutex<State>,
    gate: Arc<RwLock<()>>,
}

#[derive(Debug)]
struct State {
    incarnations: HashMap<Id, u64>,
    acted_on: Recent<ReceiptId, Acted>,
}

/// What is known of a receipt that was acted on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Acted {
    /// Its effect is under way or over, or was ruled out.
    Closed,
    /// Its effect has happened, and the file system failed to say that it will last.
    NotDurable,
}

/// Leave to go through the gate.
pub(crate) type Pass = OwnedRwLockReadGuard<()>;

/// An effect that may happen. If it is dropped without [`Admission::done`], the receipt may be used again.
#[derive(Debug)]
pub(crate) struct Admission {
    guard: Arc<Guard>,
    receipt: ReceiptId,
    done: bool,
}

impl Guard {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                incarnations: HashMap::new(),
                acted_on: Recent::new(RECEIPTS),
            }),
            gate: Arc::new(RwLock::new(())),
        }
    }

    /// Goes through the gate; an effect keeps the pass until it is over.
    pub(crate) async fn pass(&self) -> Pass {
        Arc::clone(&self.gate).read_owned().await
    }

    /// Admits an effect that has passed the gate.
    pub(crate) fn admit(
        self: &Arc<Self>,
        receipt: &Receipt,
        _pass: &Pass,
    ) -> Result<Admission, Failure> {
        let mut state = hold(&self.state);
        state.raise(receipt)?;
        if state.acted_on.get(&receipt.id).is_some() {
            return Err(refusal::acted_before());
        }
        state.acted_on.insert(receipt.id, Acted::Closed);
        Ok(Admission {
            guard: Arc::clone(self),
            receipt: receipt.id,
            done: false,
        })
    }

    /// Admits an effect that was begun before under this receipt, and that looks for itself at what of it has happened.
    pub(crate) fn resume(
        self: &Arc<Self>,
        receipt: &Receipt,
        _pass: &Pass,
    ) -> Result<Admission, Failure> {
        let mut state = hold(&self.state);
        state.raise(receipt)?;
        if state.acted_on.get(&receipt.id) == Some(&Acted::NotDurable) {
            // A later sync may succeed because the system has given up on what it could not write.
            return Err(refusal::not_durable("."));
        }
        state.acted_on.insert(receipt.id, Acted::Closed);
        Ok(Admission {
            guard: Arc::clone(self),
            receipt: receipt.id,
            // Whatever comes of it, the receipt is not for a first time any more.
            done: true,
        })
    }

    /// Lets nothing of an older incarnation and nothing of this receipt happen any more, and waits until what was under way
    /// is over: a request that was delayed on its way must not act after its outcome was told. Tells whether what this receipt
    /// did may be looked at: not when it happened and the file system failed to make it last.
    pub(crate) async fn fence(&self, receipt: &Receipt) -> Result<bool, Failure> {
        let _alone = self.gate.write().await;
        let mut state = hold(&self.state);
        state.raise(receipt)?;
        if state.acted_on.get(&receipt.id) == Some(&Acted::NotDurable) {
            return Ok(false);
        }
        state.acted_on.insert(receipt.id, Acted::Closed);
        Ok(true)
    }
}

impl State {
    fn raise(&mut self, receipt: &Receipt) -> Result<(), Failure> {
        if !self.incarnations.contains_key(&receipt.workspace)
            && self.incarnations.len() >= WORKSPACES
        {
            return Err(refusal::busy(
                "This project serves too many workspaces at once.",
            ));
        }
        let highest = self
            .incarnations
            .entry(receipt.workspace.clone())
            .or_default();
        if receipt.incarnation < *highest {
            return Err(refusal::fenced());
        }
        *highest = receipt.incarnation;
        Ok(())
    }
}

impl Admission {
    /// The effect has happened, and is durable or not.
    pub(crate) fn done(&mut self, durable: bool) {
        self.done = true;
        if !durable {
            let mut state = hold(&self.guard.state);
            state.acted_on.insert(self.receipt, Acted::NotDurable);
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if !self.done {
            hold(&self.guard.state).acted_on.remove(&self.receipt);
        }
    }
}

#[cfg(test)]
mod tests {
    use postern_types::ErrorCode;
    use pretty_assertions::assert_eq;

    use super::*;

    fn receipt(incarnation: u64) -> Receipt {
        Receipt {
            workspace: "w".parse().expect("id"),
            id: ReceiptId::generate(),
            incarnation,
        }
    }

    #[tokio::test]
    async fn a_receipt_is_acted_on_once() {
        let guard = Arc::new(Guard::new());
        let receipt = receipt(1);
        let pass = guard.pass().await;
        let refused = guard.admit(&receipt, &pass).expect("admitted");
        let meanwhile = guard.admit(&receipt, &pass).expect_err("under way");
        assert_eq!(meanwhile, refusal::acted_before());
        drop(refused);
        let mut done = guard.admit(&receipt, &pass).expect("nothing had happened");
        done.done(true);
        drop(done);
        let again = guard.admit(&receipt, &pass).expect_err("done");
        assert_eq!(again.code, ErrorCode::Uncertain);
    }

    #[tokio::test]
    async fn what_did_not_become_durable_is_not_gone_on_with() {
        let guard = Arc::new(Guard::new());
        let receipt = receipt(1);
        let pass = guard.pass().await;
        guard.admit(&receipt, &pass).expect("admitted").done(false);
        let resumed = guard.resume(&receipt, &pass).expect_err("uncertain");
        assert_eq!(resumed.code, ErrorCode::Uncertain);
    }

    #[tokio::test]
    async fn the_fence_waits_for_what_is_under_way_and_refuses_what_is_late() {
        let guard = Arc::new(Guard::new());
        let old = receipt(1);
        let pass = guard.pass().await;
        let admission = guard.admit(&old, &pass).expect("admitted");
        let new = receipt(2);
        {
            let fence = guard.fence(&new);
            tokio::pin!(fence);
            let early = tokio::time::timeout(std::time::Duration::ZERO, fence.as_mut()).await;
            assert!(early.is_err(), "an older effect is under way");
            drop((admission, pass));
            assert!(fence.await.expect("fenced"));
        }
        let pass = guard.pass().await;
        let late = guard.admit(&receipt(1), &pass).expect_err("late");
        assert_eq!(late.code, ErrorCode::NotApplied);
        assert!(guard.admit(&receipt(2), &pass).is_ok());
        let told = guard.admit(&new, &pass).expect_err("its outcome was told");
        assert_eq!(told, refusal::acted_before());
        drop(pass);
        assert_eq!(
            guard.fence(&receipt(1)).await.expect_err("old").code,
            ErrorCode::NotApplied
        );
    }
}
