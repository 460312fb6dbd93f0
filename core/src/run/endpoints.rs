//! Which RPC endpoint is asked: the one that answered last, until it fails. And what is known of each.

use alloy_sol_types::SolCall;

use super::RunError;
use crate::{abi::IMulticall3::getChainIdCall, lens::Method};

/// What a host knows of its RPC endpoints and keeps from one run to the next: plain data, no URLs. Endpoints go by
/// their place in the operator's list, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// One for each endpoint; there is at least one.
    traits: Vec<Traits>,
    preferred: usize,
    /// The endpoint that was preferred before the last switch.
    before: usize,
    /// The chain that all of them have to be on.
    chain_id: Option<u64>,
}

/// What a node has turned out not to take. Each of it is found out once, and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    /// Takes no block hash as a parameter (EIP-1898).
    pub(super) by_number: bool,
    /// How it walks agents.
    pub(super) method: Method,
    /// JSON-RPC requests it takes in one batch.
    pub(super) requests_per_batch: usize,
}

impl Default for Traits {
    fn default() -> Self {
        Self { by_number: false, method: Method::default(), requests_per_batch: usize::MAX }
    }
}

impl Traits {
    fn merge(&mut self, other: Self) {
        self.by_number |= other.by_number;
        self.method = self.method.max(other.method);
        self.requests_per_batch = self.requests_per_batch.min(other.requests_per_batch);
    }
}

impl Endpoints {
    /// `count` endpoints (at least one) of which nothing is known, all on the chain `chain_id`; `None` is any chain, which is
    /// good for a single endpoint only: of several, two might be on different ones.
    pub fn new(count: usize, chain_id: Option<u64>) -> Self {
        Self { traits: vec![Traits::default(); count.max(1)], preferred: 0, before: 0, chain_id }
    }

    /// The endpoint to ask first: the one that answered last.
    pub const fn preferred(&self) -> usize {
        self.preferred
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.traits.len()
    }

    /// Whether an endpoint takes no block hashes.
    pub(super) fn takes_numbers_only(&self, endpoint: usize) -> bool {
        self.traits.get(endpoint).is_some_and(|traits| traits.by_number)
    }

    /// Takes over what a run has learned by its last reply: a switch to another endpoint, unless another run has switched
    /// meanwhile, and what nodes do not take.
    pub fn learn(&mut self, run: &Self) {
        if self.preferred == run.before {
            self.preferred = run.preferred;
            self.before = run.before;
        }
        for (known, learned) in self.traits.iter_mut().zip(&run.traits) {
            known.merge(*learned);
        }
    }
}

/// How one run uses the endpoints: whose turn it is, and what went wrong with whom.
#[derive(Debug)]
pub(super) struct Rotation {
    known: Endpoints,
    standing: Vec<Standing>,
    trouble: Option<Trouble>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    faults: u32,
    /// Not asked again in this run.
    out: bool,
}

#[derive(Debug)]
struct Trouble {
    endpoint: usize,
    error: RunError,
    lasting: bool,
}

impl Rotation {
    pub(super) fn new(mut known: Endpoints) -> Self {
        // What is remembered of a longer list may be beyond this one.
        known.preferred = known.preferred.min(known.traits.len().saturating_sub(1));
        known.before = known.preferred;
        Self { standing: vec![Standing::default(); known.traits.len()], known, trouble: None }
    }

    pub(super) const fn known(&self) -> &Endpoints {
        &self.known
    }

    /// Whose turn it is.
    pub(super) const fn current(&self) -> usize {
        self.known.preferred
    }

    /// What is known of the current endpoint.
    pub(super) fn traits(&self) -> Traits {
        self.known.traits.get(self.current()).copied().unwrap_or_default()
    }

    /// The current endpoint has turned out not to take something.
    pub(super) fn learn(&mut self, change: impl FnOnce(&mut Traits)) {
        let current = self.current();
        if let Some(traits) = self.known.traits.get_mut(current) {
            change(traits);
        }
    }

    /// How many others there are to turn to.
    pub(super) const fn others(&self) -> u32 {
        self.known.traits.len().saturating_sub(1) as u32
    }

    /// Counts a fault against the current endpoint and turns to the one with the fewest, in the list's order. A
    /// lasting fault rules the endpoint out; false where none is left.
    pub(super) fn fault(&mut self, error: RunError, lasting: bool) -> bool {
        let endpoint = self.current();
        self.note(error, lasting);
        if let Some(standing) = self.standing.get_mut(endpoint) {
            standing.faults += 1;
            standing.out |= lasting;
        }
        self.turn(endpoint + 1)
    }

    /// Remembers what is wrong with the current endpoint, for the error to end with.
    pub(super) fn note(&mut self, error: RunError, lasting: bool) {
        if lasting || !self.trouble.as_ref().is_some_and(|trouble| trouble.lasting) {
            self.trouble = Some(Trouble { endpoint: self.current(), error, lasting });
        }
    }

    /// The current endpoint lacks a block. Another may have it; but what has failed is not better than what lags.
    pub(super) fn lacks_block(&mut self) {
        let endpoint = self.current();
        if let Some(standing) = self.standing.get_mut(endpoint) {
            standing.faults += 1;
        }
        self.turn(endpoint);
    }

    /// The endpoint with the fewest faults; of several, the first from `start` on.
    fn turn(&mut self, start: usize) -> bool {
        let count = self.known.traits.len();
        let best = (start..start + count)
            .map(|place| place % count)
            .filter_map(|place| Some((place, self.standing.get(place).filter(|standing| !standing.out)?)))
            .min_by_key(|(_, standing)| standing.faults)
            .map(|(place, _)| place);
        if let Some(best) = best.filter(|best| *best != self.known.preferred) {
            self.known.before = self.known.preferred;
            self.known.preferred = best;
        }
        best.is_some()
    }

    /// Compares the chain id the current endpoint told with the one it has to be.
    ///
    /// # Errors
    ///
    /// [`RunError::WrongChain`], or [`RunError::MulticallLacks`] where it told none and it matters.
    pub(super) fn check_chain(&self, told: Option<u64>) -> Result<(), RunError> {
        match (self.known.chain_id, told) {
            (None, _) => Ok(()),
            (Some(expected), Some(found)) if found == expected => Ok(()),
            (Some(expected), Some(found)) => Err(RunError::WrongChain { found, expected }),
            (Some(_), None) => Err(RunError::MulticallLacks { function: getChainIdCall::SIGNATURE }),
        }
    }

    /// The error to end with: the only endpoint's own, or of several the trouble that tells most; `None` where nothing
    /// went wrong.
    pub(super) fn conclude(&mut self) -> Option<RunError> {
        let Trouble { endpoint, error, .. } = self.trouble.take()?;
        let count = self.known.traits.len();
        if count == 1 {
            return Some(error);
        }
        let tried = self.standing.iter().filter(|standing| standing.faults > 0).count();
        Some(RunError::Unanswered { tried, count, position: endpoint + 1, error: Box::new(error) })
    }
}
