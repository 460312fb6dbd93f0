//! What a query sees: the answers known so far, and a note of what it asked for in vain.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use alloy_primitives::{Address, Bytes};
use alloy_sol_types::SolCall;

use super::{
    block::Header,
    error::{QueryError, RunError},
    logs::{Blocks, EventLog, FoundLogs, LogWalk, LogsQuery, NoLogs},
    proof::{Proof, ProofKey, Wanted},
    rows::Rows,
    walk::{Walk, WalkKey},
};
use crate::eth::{
    abi,
    as_of::{AsOf, BlockId},
    multicall::Call,
    rpc::revert::Revert,
};

/// A question as a pure function over the answers known so far.
pub trait Query {
    /// What it comes to.
    type Output;
    /// What it can end with instead.
    type Error: From<QueryError>;

    /// Reads the calls it needs from `view`. A call whose answer is not known yet is noted there, and the
    /// function ends with [`Halt::Need`]; it will be called again once there are more answers. Calls that do not
    /// depend on one another are best all read before the first `?`: then they share a round trip.
    ///
    /// # Errors
    ///
    /// [`Halt`]: an answer is missing, or the question ends with an error.
    fn resolve(&self, view: &View) -> Result<Self::Output, Halt<Self::Error>>;

    /// The block it is about, if not the newest. All reads go there, and the run ends with [`QueryError::BlockNotAvailable`] where no
    /// endpoint has its state.
    fn block(&self) -> Option<BlockId> {
        None
    }

    /// Whether the first round's answers are all it ever needs, as a rule. Such a run asks for no block header in its
    /// first round.
    fn is_one_round(&self) -> bool {
        false
    }
}

/// Why a query does not go on.
#[derive(Debug)]
pub enum Halt<E = QueryError> {
    /// An answer is missing; the [`View`] knows which.
    Need(Need),
    /// The error to answer with.
    Error(E),
}

/// An answer is missing. Only a view can make one.
#[derive(Debug)]
pub struct Need(());

impl<E> From<Need> for Halt<E> {
    fn from(need: Need) -> Self {
        Self::Need(need)
    }
}

impl From<QueryError> for Halt {
    fn from(error: QueryError) -> Self {
        Self::Error(error)
    }
}

impl From<RunError> for Halt {
    fn from(error: RunError) -> Self {
        Self::Error(error.into())
    }
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Returned(Bytes),
    Reverted(Revert),
    /// It takes more gas than the node has for a call, or its answer is larger than this run takes.
    TooHeavy,
}

pub(super) type Answers = BTreeMap<Call, Outcome>;

/// The answers known so far, all of one block.
#[derive(Debug, Default)]
pub struct View {
    pub(super) answers: Answers,
    pub(super) walks: BTreeMap<WalkKey, Walk>,
    pub(super) block: Option<Header>,
    missing: RefCell<Missing>,
    /// The block of the answers, once known.
    pub(super) as_of: Option<AsOf>,
    /// The block the query is about, if not the newest.
    pub(super) asked: Option<BlockId>,
    /// It is a block that was asked for, and the node calls it final.
    pub(super) is_final: bool,
    pub(super) proofs: Vec<(ProofKey, Proof)>,
    /// Headers and logs of other blocks of the chain.
    pub(super) blocks: Blocks,
    /// A proof that is being asked for.
    pub(super) wanted_proof: Option<Wanted>,
}

/// What was asked for in vain.
#[derive(Debug, Default)]
pub(super) struct Missing {
    pub(super) header: bool,
    /// By height, each with whether the node may lack it.
    pub(super) headers: BTreeMap<u64, bool>,
    pub(super) logs: Vec<LogsQuery>,
    pub(super) calls: BTreeSet<Call>,
    /// Each with the last agent's id, where that is known.
    pub(super) walks: BTreeMap<WalkKey, Option<u64>>,
    /// Which block the answers are of.
    pub(super) as_of: bool,
    pub(super) proof: Option<ProofKey>,
}

impl View {
    /// A view of which nothing is known, for a query about that block.
    pub(super) fn about(asked: Option<BlockId>) -> Self {
        Self { asked, ..Self::default() }
    }

    /// The decoded return value of a contract read.
    ///
    /// # Errors
    ///
    /// [`Halt::Need`] where the answer is not known yet; otherwise [`QueryError::Reverted`], [`QueryError::TooHeavy`], or that there is
    /// no contract or no valid answer.
    pub fn call<C: SolCall>(&self, target: Address, call: &C) -> Result<C::Return, Halt> {
        let call = Call { target, data: call.abi_encode().into() };
        match self.answers.get(&call) {
            Some(Outcome::Returned(data)) if data.is_empty() => Err(match self.asked {
                // Before the registry was deployed there is nothing to ask.
                Some(block) => QueryError::BlockNotAvailable(block).into(),
                None => RunError::NoContract(target).into(),
            }),
            Some(Outcome::Returned(data)) => abi::decode_returns::<C>(data)
                .map_err(|_| RunError::BadReturn { function: C::SIGNATURE }.into()),
            Some(Outcome::Reverted(revert)) => {
                Err(QueryError::Reverted { function: C::SIGNATURE, revert: revert.clone() }.into())
            }
            Some(Outcome::TooHeavy) => Err(QueryError::TooHeavy { function: C::SIGNATURE }.into()),
            None => {
                self.missing.borrow_mut().calls.insert(call);
                Err(Need(()).into())
            }
        }
    }

    /// The outcomes of several reads of one contract, in order; all of them are noted before any is missed.
    ///
    /// # Errors
    ///
    /// [`Need`] where one of them is not known yet.
    pub fn calls<C: SolCall>(
        &self,
        target: Address,
        calls: impl IntoIterator<Item = C>,
    ) -> Result<Vec<Result<C::Return, QueryError>>, Need> {
        let outcomes: Vec<_> = calls.into_iter().map(|call| self.call(target, &call)).collect();
        let known = |outcome| match outcome {
            Ok(value) => Ok(Ok(value)),
            Err(Halt::Error(error)) => Ok(Err(error)),
            Err(Halt::Need(need)) => Err(need),
        };
        outcomes.into_iter().map(known).collect()
    }

    /// The header of the block that all answers are of; not for a query of [one round](Query::is_one_round).
    ///
    /// # Errors
    ///
    /// [`Need`] where it is not known yet.
    pub(crate) fn header(&self) -> Result<Header, Need> {
        self.block.ok_or_else(|| {
            self.missing.borrow_mut().header = true;
            Need(())
        })
    }

    /// The rows of consecutive agents up to `last`; `None` is as many as one call of the node holds.
    ///
    /// # Errors
    ///
    /// [`Need`] where they are not all known yet.
    pub(crate) fn rows(&self, key: WalkKey, last: Option<u64>) -> Result<&Arc<Rows>, Need> {
        self.walks.get(&key).and_then(|walk| walk.rows(last)).ok_or_else(|| {
            self.missing.borrow_mut().walks.insert(key, last);
            Need(())
        })
    }

    /// The block all answers are of. The replies tell it; only where they do not is its header asked for.
    ///
    /// # Errors
    ///
    /// [`Need`] where it is not known yet.
    pub fn as_of(&self) -> Result<AsOf, Need> {
        self.as_of.ok_or_else(|| {
            self.missing.borrow_mut().as_of = true;
            Need(())
        })
    }

    /// Whether the block was asked for by number or hash, and is final: what was read at it stays as it is.
    pub const fn is_final(&self) -> bool {
        self.is_final
    }

    /// The proof of slots at the block of all answers.
    ///
    /// # Errors
    ///
    /// [`Need`] where it is not known yet.
    pub(crate) fn proof(&self, key: &ProofKey) -> Result<&Proof, Need> {
        let known = self.proofs.iter().find(|(known, _)| known == key);
        known.map(|(_, proof)| proof).ok_or_else(|| {
            self.missing.borrow_mut().proof = Some(key.clone());
            Need(())
        })
    }

    /// The header at a height of the pinned block's chain.
    ///
    /// # Errors
    ///
    /// [`Need`] where it is not known yet.
    pub(crate) fn header_at(&self, number: u64) -> Result<Header, Need> {
        self.blocks.headers.get(&number).copied().flatten().ok_or_else(|| self.miss_header(number, false))
    }

    /// The same, and `None` where the node has the pinned block and has pruned this one.
    ///
    /// # Errors
    ///
    /// [`Need`] where it is not known yet.
    pub(crate) fn header_if_kept(&self, number: u64) -> Result<Option<Header>, Need> {
        self.blocks.headers.get(&number).copied().ok_or_else(|| self.miss_header(number, true))
    }

    fn miss_header(&self, number: u64, may_lack: bool) -> Need {
        self.missing.borrow_mut().headers.insert(number, may_lack);
        Need(())
    }

    /// Logs of the pinned block's chain, or why there are none.
    ///
    /// # Errors
    ///
    /// [`Need`] where they are not all known yet.
    pub(crate) fn logs(&self, query: &LogsQuery) -> Result<Result<&FoundLogs, NoLogs>, Need> {
        self.blocks.walk(query).and_then(LogWalk::outcome).ok_or_else(|| {
            self.missing.borrow_mut().logs.push(query.clone());
            Need(())
        })
    }

    /// As many of these logs as are known without a gap, and the first block that is not.
    pub(crate) fn settled_logs(&self, query: &LogsQuery) -> (Vec<&EventLog>, Option<u64>) {
        match self.blocks.walk(query).map(LogWalk::settled) {
            Some((logs, open)) => (logs.collect(), open),
            None => (Vec::new(), Some(query.from)),
        }
    }

    /// What was missed since the last time.
    pub(super) fn missing(&mut self) -> Missing {
        self.missing.take()
    }

    /// Forgets what was read, as it is not of the block that the run reads.
    pub(super) fn forget(&mut self) {
        self.answers.clear();
        self.walks.clear();
        self.proofs.clear();
        self.blocks = Blocks::default();
        self.wanted_proof = None;
    }
}
