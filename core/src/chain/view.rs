//! View of a query: the results known so far. Reads without a result are recorded for the engine.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use alloy_primitives::{Address, B256, Bytes};
use alloy_sol_types::SolCall;

use super::{
    block::Header,
    error::{QueryError, RunError},
    logs::{Blocks, EventLog, FoundLogs, LogWalk, LogsQuery, NoLogs},
    proof::{PendingProof, Proof, ProofKey},
    rows::Rows,
    walk::{AgentWalk, WalkKey},
};
use crate::eth::{
    abi,
    as_of::{AsOf, BlockId},
    multicall::Call,
    rpc::revert::Revert,
};

/// A question as a pure function of the results known so far.
pub trait Query {
    /// The answer.
    type Output;
    /// The error it can end with.
    type Error: From<QueryError>;

    /// Reads what it needs from `view`. A read without a result yet is recorded there and returns
    /// [`Halt::Need`]; the function is called again with more results. Independent reads should all precede
    /// the first `?`, so that they share a round trip.
    ///
    /// # Errors
    ///
    /// [`Halt`]: a result is missing, or the query ends with an error.
    fn resolve(&self, view: &View) -> Result<Self::Output, Halt<Self::Error>>;

    /// Returns the block the query is about; `None` is the newest. All reads go there, and the run ends with
    /// [`QueryError::BlockNotAvailable`] if no endpoint has its state.
    fn block(&self) -> Option<BlockId> {
        None
    }

    /// Returns whether the first round usually suffices. Such a run requests no header in its first round.
    fn is_one_round(&self) -> bool {
        false
    }

    /// Returns whether the query reads headers or logs of blocks beside its own.
    fn reads_other_blocks(&self) -> bool {
        false
    }

    /// Returns whether the query reads storage proofs.
    fn reads_proofs(&self) -> bool {
        false
    }
}

/// Reason why a query does not continue.
#[derive(Debug)]
pub enum Halt<E = QueryError> {
    /// A result is missing; the [`View`] has recorded which.
    Need(Need),
    /// The query ends with this error.
    Error(E),
}

/// A result is missing. Only a view can create it.
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

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    Returned(Bytes),
    Reverted(Revert),
    /// The call exceeds the node's gas, or its return data the size cap.
    TooHeavy,
}

pub(super) type CallResults = BTreeMap<Call, CallResult>;

/// The results known so far, all of one block.
#[derive(Debug, Default)]
pub struct View {
    pub(super) answers: CallResults,
    pub(super) walks: BTreeMap<WalkKey, AgentWalk>,
    pub(super) block: Option<Header>,
    missing: RefCell<MissingReads>,
    /// The block of the results, once known.
    pub(super) as_of: Option<AsOf>,
    /// The block the query is about, if not the newest.
    pub(super) asked: Option<BlockId>,
    /// The block was asked for and is final.
    pub(super) is_final: bool,
    /// Proofs by key; `None` if the node serves none.
    pub(super) proofs: Vec<(ProofKey, Option<Proof>)>,
    /// Headers and logs of other blocks of the chain.
    pub(super) blocks: Blocks,
    /// The proof being requested.
    pub(super) pending_proof: Option<PendingProof>,
}

/// Reads without a result.
#[derive(Debug, Default)]
pub(super) struct MissingReads {
    pub(super) header: bool,
    /// Heights of headers, each with whether the node may lack the header.
    pub(super) headers: BTreeMap<u64, bool>,
    pub(super) logs: Vec<LogsQuery>,
    /// Contracts and heights of storage roots.
    pub(super) roots: BTreeSet<(Address, u64)>,
    pub(super) calls: BTreeSet<Call>,
    /// Walks, each with its last agent's id if known.
    pub(super) walks: BTreeMap<WalkKey, Option<u64>>,
    pub(super) as_of: bool,
    pub(super) proof: Option<ProofKey>,
    /// A proof that does not verify, and the reason.
    pub(super) refused_proof: Option<(ProofKey, String)>,
}

impl View {
    /// Creates an empty view for a query about the block `asked`.
    pub(super) fn about(asked: Option<BlockId>) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Returns the decoded return value of a contract read.
    ///
    /// # Errors
    ///
    /// [`Halt::Need`] if the result is not known yet; [`QueryError::Reverted`], [`QueryError::TooHeavy`], or
    /// an error that there is no contract or no valid return data.
    pub fn call<C: SolCall>(&self, target: Address, call: &C) -> Result<C::Return, Halt> {
        self.read::<C>(Call { target, data: call.abi_encode().into(), code: None })
    }

    /// Returns the decoded return value of a read, as [`call`](Self::call) does.
    pub(super) fn read<C: SolCall>(&self, call: Call) -> Result<C::Return, Halt> {
        match self.answers.get(&call) {
            Some(CallResult::Returned(data)) if data.is_empty() => Err(match self.asked {
                // The registry was deployed later.
                Some(block) => QueryError::BlockNotAvailable(block).into(),
                None => RunError::NoContract(call.target).into(),
            }),
            Some(CallResult::Returned(data)) => abi::decode_returns::<C>(data)
                .map_err(|_| RunError::BadReturn { function: C::SIGNATURE }.into()),
            Some(CallResult::Reverted(revert)) => {
                Err(QueryError::Reverted { function: C::SIGNATURE, revert: revert.clone() }.into())
            }
            Some(CallResult::TooHeavy) => Err(QueryError::TooHeavy { function: C::SIGNATURE }.into()),
            None => Err(self.miss(|missing| missing.calls.insert(call)).into()),
        }
    }

    /// Returns the results of several reads of one contract, in order. All unknown reads are recorded.
    ///
    /// # Errors
    ///
    /// [`Need`] if one of them is not known yet.
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

    /// Returns the header of the results' block; not for a query of [one round](Query::is_one_round).
    pub(crate) fn header(&self) -> Result<Header, Need> {
        self.block.ok_or_else(|| self.miss(|missing| missing.header = true))
    }

    /// Returns the rows of agents up to `last`; `None` reads as many as one call of the node holds.
    pub(crate) fn rows(&self, key: WalkKey, last: Option<u64>) -> Result<&Arc<Rows>, Need> {
        self.walks
            .get(&key)
            .and_then(|walk| walk.rows(last))
            .ok_or_else(|| self.miss(|missing| missing.walks.insert(key, last)))
    }

    /// Returns the block of all results. Its header is requested only if the replies do not name it.
    ///
    /// # Errors
    ///
    /// [`Need`] if it is not known yet.
    pub fn as_of(&self) -> Result<AsOf, Need> {
        self.as_of.ok_or_else(|| self.miss(|missing| missing.as_of = true))
    }

    /// Returns whether the block was asked for by number or hash and is final: results at it never change.
    pub const fn is_final(&self) -> bool {
        self.is_final
    }

    /// Returns the proof of slots at the block of all results; `None` if the node serves no proofs, which
    /// ends a run that requests [`ProofParts::Evidence`](super::ProofParts::Evidence).
    pub(crate) fn proof(&self, key: &ProofKey) -> Result<Option<&Proof>, Need> {
        let known = self.proofs.iter().find(|(known, _)| Proof::answers(known, key));
        known
            .map(|(_, proof)| proof.as_ref())
            .ok_or_else(|| self.miss(|missing| missing.proof = Some(key.clone())))
    }

    /// Reports that the proof of this key does not verify, for this reason: its endpoint is ruled out, and
    /// another one is asked for the proof.
    pub(crate) fn refuse_proof(&self, key: &ProofKey, reason: String) -> Need {
        self.miss(|missing| missing.refused_proof = Some((key.clone(), reason)))
    }

    /// Returns the root of a contract's storage at a height of the pinned block's chain; `None` if the node
    /// has pruned it.
    pub(crate) fn storage_root_at(&self, contract: Address, number: u64) -> Result<Option<B256>, Need> {
        let key = (contract, number);
        let known = self.blocks.roots.get(&key).copied();
        known.ok_or_else(|| self.miss(|missing| missing.roots.insert(key)))
    }

    /// Returns the header at a height of the pinned block's chain.
    pub(crate) fn header_at(&self, number: u64) -> Result<Header, Need> {
        self.blocks.headers.get(&number).copied().flatten().ok_or_else(|| self.miss_header(number, false))
    }

    /// Returns the header at a height of the pinned block's chain; `None` if the node has pruned it.
    pub(crate) fn header_if_kept(&self, number: u64) -> Result<Option<Header>, Need> {
        self.blocks.headers.get(&number).copied().ok_or_else(|| self.miss_header(number, true))
    }

    fn miss_header(&self, number: u64, may_lack: bool) -> Need {
        self.miss(|missing| missing.headers.insert(number, may_lack))
    }

    fn miss<T>(&self, note: impl FnOnce(&mut MissingReads) -> T) -> Need {
        note(&mut self.missing.borrow_mut());
        Need(())
    }

    /// Returns logs of the pinned block's chain, or the reason why there are none.
    pub(crate) fn logs(&self, query: &LogsQuery) -> Result<Result<&FoundLogs, NoLogs>, Need> {
        self.blocks
            .walk(query)
            .and_then(LogWalk::outcome)
            .ok_or_else(|| self.miss(|missing| missing.logs.push(query.clone())))
    }

    /// Returns the logs known without a gap, and the first block that is not known.
    pub(crate) fn settled_logs(&self, query: &LogsQuery) -> (Vec<&EventLog>, Option<u64>) {
        match self.blocks.walk(query).map(LogWalk::settled) {
            Some((logs, open)) => (logs.collect(), open),
            None => (Vec::new(), Some(query.from)),
        }
    }

    /// Takes the reads missed since the last call.
    pub(super) fn missing(&mut self) -> MissingReads {
        self.missing.take()
    }

    /// Drops all results, because they are of another block than the run's.
    pub(super) fn forget(&mut self) {
        self.answers.clear();
        self.walks.clear();
        self.proofs.clear();
        self.blocks = Blocks::default();
        self.pending_proof = None;
    }
}
