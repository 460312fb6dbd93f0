//! What a query sees: the answers known so far, and a note of what it asked for in vain.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use core::cell::RefCell;

use alloy_primitives::{Address, Bytes};
use alloy_sol_types::SolCall;

use super::RunError;
use crate::{multicall::Call, rpc::revert::Revert};

/// A question as a pure function over the answers known so far.
pub trait Query {
    /// What the question comes to.
    type Output;

    /// Reads the calls it needs from `view`. A call whose answer is not known yet is noted there, and the
    /// function ends with [`Need`]; it will be called again once there are more answers. Calls that do not
    /// depend on one another are best all read before the first `?`: then they share a round trip.
    ///
    /// # Errors
    ///
    /// [`Need`], and nothing else: what can go wrong is part of the output.
    fn resolve(&self, view: &View) -> Result<Self::Output, Need>;

    /// Whether the first round's answers are all it ever needs. Such a run never asks for a block header.
    fn is_one_round(&self) -> bool {
        false
    }
}

/// An answer is missing; the [`View`] knows which. Only a view can make one.
#[derive(Debug)]
pub struct Need(());

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Returned(Bytes),
    Reverted(Revert),
}

pub(super) type Answers = BTreeMap<Call, Answer>;

/// The answers known so far, all of one block.
#[derive(Debug, Default)]
pub struct View {
    pub(super) answers: Answers,
    missing: RefCell<BTreeSet<Call>>,
    broken: RefCell<Option<RunError>>,
}

impl View {
    /// The answer to a contract read: its decoded return value, or its revert.
    ///
    /// # Errors
    ///
    /// [`Need`] where the answer is not known yet, or is none that the function could give; the run then
    /// ends with a [`RunError`].
    pub fn call<C: SolCall>(&self, target: Address, call: &C) -> Result<Result<C::Return, Revert>, Need> {
        let call = Call { target, data: call.abi_encode().into() };
        match self.answers.get(&call) {
            Some(Answer::Returned(data)) if data.is_empty() => Err(self.broken(RunError::NoContract(target))),
            Some(Answer::Returned(data)) => match C::abi_decode_returns(data) {
                Ok(value) => Ok(Ok(value)),
                Err(_) => Err(self.broken(RunError::BadReturn { function: C::SIGNATURE })),
            },
            Some(Answer::Reverted(revert)) => Ok(Err(revert.clone())),
            None => {
                self.missing.borrow_mut().insert(call);
                Err(Need(()))
            }
        }
    }

    /// The answers to several reads of one contract, in order; all of them are noted before any is missed.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub fn calls<C: SolCall>(
        &self,
        target: Address,
        calls: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Result<C::Return, Revert>>, Need> {
        let answers: Vec<_> = calls.into_iter().map(|call| self.call(target, &call)).collect();
        answers.into_iter().collect()
    }

    /// The calls that were missed since the last time; an error where there are none to ask.
    pub(super) fn needed(&mut self, _: Need) -> Result<BTreeSet<Call>, RunError> {
        let missing = self.missing.take();
        match self.broken.take() {
            Some(error) => Err(error),
            None if missing.is_empty() => Err(RunError::Stalled),
            None => Ok(missing),
        }
    }

    fn broken(&self, error: RunError) -> Need {
        self.broken.replace(Some(error));
        Need(())
    }
}
