//! Which RPC endpoint is asked: the one that answered last, until it fails. And what is known of each.
//!
//! A host keeps [`Endpoints`] from one run to the next. Each run works on a copy; what it finds out goes back as an [`Update`], so
//! that runs which overlap do not overwrite one another's findings.

use alloy_sol_types::SolCall;

use super::error::RunError;
use crate::{chain::lens::Method, eth::abi::IMulticall3::getChainIdCall};

/// What a host knows of its RPC endpoints and keeps from one run to the next: plain data, no URLs. Endpoints go by
/// their place in the operator's list, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// One for each endpoint; there is at least one.
    traits: Vec<Traits>,
    preferred: usize,
    /// The endpoint that was preferred at the last update.
    published: usize,
    /// The chain that all of them have to be on.
    chain_id: Option<u64>,
}

/// What a run has found out since its last update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    traits: Vec<Traits>,
    /// The endpoint it left, and the one it asks instead.
    switch: Option<(usize, usize)>,
}

/// What a node does not accept. Each limit is found out once, and stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traits {
    /// It accepts no block hash as a parameter (EIP-1898).
    pub(super) by_number: bool,
    /// How it walks agents.
    pub(super) method: Method,
    /// JSON-RPC requests it accepts in one batch.
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
        Self { traits: vec![Traits::default(); count.max(1)], preferred: 0, published: 0, chain_id }
    }

    /// The endpoint to ask first: the one that answered last.
    pub const fn preferred(&self) -> usize {
        self.preferred
    }

    /// The copy that a run begins with: it has found out nothing yet.
    #[must_use]
    pub(crate) fn begin(self) -> Self {
        Self { published: self.preferred, ..self }
    }

    /// What this copy has found out since the last update. A switch is in one update only: repeated, it would undo what other
    /// runs have switched meanwhile.
    pub(crate) fn update(&mut self) -> Update {
        let left = std::mem::replace(&mut self.published, self.preferred);
        let switch = (left != self.preferred).then_some((left, self.preferred));
        Update { traits: self.traits.clone(), switch }
    }

    /// Whether an endpoint accepts no block hashes.
    pub(super) fn takes_numbers_only(&self, endpoint: usize) -> bool {
        self.traits.get(endpoint).is_some_and(|traits| traits.by_number)
    }

    /// Merges what a run has found out. Its switch to another endpoint counts unless a different run has switched meanwhile:
    /// then the endpoint that it left is no longer the preferred one.
    pub fn merge(&mut self, update: &Update) {
        if let Some((left, preferred)) = update.switch
            && self.preferred == left
        {
            self.preferred = preferred;
        }
        for (known, found) in self.traits.iter_mut().zip(&update.traits) {
            known.merge(*found);
        }
    }
}

/// How one run uses the endpoints: which one it asks, and what failed at each.
#[derive(Debug)]
pub(super) struct Rotation {
    known: Endpoints,
    standing: Vec<Standing>,
    last_fault: Option<Fault>,
    /// Those whose answers were too large, in the order in which they were asked, until it is all of them.
    oversized: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    faults: u32,
    /// Not asked again in this run.
    out: bool,
}

#[derive(Debug)]
struct Fault {
    endpoint: usize,
    error: RunError,
    lasting: bool,
}

impl Rotation {
    pub(super) fn new(mut known: Endpoints) -> Self {
        // What is remembered of a longer list may be beyond this one.
        known.preferred = known.preferred.min(known.traits.len().saturating_sub(1));
        let standing = vec![Standing::default(); known.traits.len()];
        Self { standing, known: known.begin(), last_fault: None, oversized: Vec::new() }
    }

    pub(super) const fn known(&self) -> &Endpoints {
        &self.known
    }

    /// See [`Endpoints::update`].
    pub(super) fn update(&mut self) -> Update {
        self.known.update()
    }

    /// The endpoint to ask.
    pub(super) const fn current(&self) -> usize {
        self.known.preferred
    }

    /// What is known of the current endpoint.
    pub(super) fn traits(&self) -> Traits {
        self.known.traits.get(self.current()).copied().unwrap_or_default()
    }

    /// Notes what the current endpoint does not accept.
    pub(super) fn update_traits(&mut self, change: impl FnOnce(&mut Traits)) {
        let current = self.current();
        if let Some(traits) = self.known.traits.get_mut(current) {
            change(traits);
        }
    }

    /// How many others there are to switch to.
    pub(super) const fn others(&self) -> u32 {
        self.known.traits.len().saturating_sub(1) as u32
    }

    /// Counts a fault against the current endpoint and switches to the one with the fewest, in the list's order. A
    /// lasting fault rules the endpoint out; false where none is left.
    pub(super) fn fault(&mut self, error: RunError, lasting: bool) -> bool {
        let endpoint = self.current();
        self.note(error, lasting);
        if let Some(standing) = self.standing.get_mut(endpoint) {
            standing.faults += 1;
            standing.out |= lasting;
        }
        self.switch(endpoint + 1)
    }

    /// Remembers what is wrong with the current endpoint, for the error to end with.
    pub(super) fn note(&mut self, error: RunError, lasting: bool) {
        if lasting || !self.last_fault.as_ref().is_some_and(|fault| fault.lasting) {
            self.last_fault = Some(Fault { endpoint: self.current(), error, lasting });
        }
    }

    /// The current endpoint lacks a block. Another may have it; but what has failed is not better than what lags.
    pub(super) fn lacks_block(&mut self) {
        let endpoint = self.current();
        if let Some(standing) = self.standing.get_mut(endpoint) {
            standing.faults += 1;
        }
        self.switch(endpoint);
    }

    /// The current endpoint's answer is too large. Another one may give a smaller one: true where it is asked next. Where all say
    /// the same, what was asked for is that large, and the endpoint that was asked first goes on.
    pub(super) fn try_another_size(&mut self) -> bool {
        let endpoint = self.current();
        if let Some(standing) = self.standing.get_mut(endpoint) {
            standing.faults += 1;
        }
        self.oversized.push(endpoint);
        let other = self.best(endpoint + 1, &self.oversized);
        let first = self.oversized.first().copied();
        self.known.preferred = other.or(first).unwrap_or(endpoint);
        if other.is_none() {
            self.oversized.clear();
        }
        other.is_some()
    }

    /// Switches to the [best](Self::best) endpoint. False where none is left.
    fn switch(&mut self, start: usize) -> bool {
        let best = self.best(start, &[]);
        if let Some(best) = best {
            self.known.preferred = best;
        }
        best.is_some()
    }

    /// The endpoint with the fewest faults, of those not ruled out and not among `but`; of several, the first from `start` on.
    fn best(&self, start: usize, but: &[usize]) -> Option<usize> {
        let count = self.known.traits.len();
        (start..start + count)
            .map(|place| place % count)
            .filter(|place| !but.contains(place))
            .filter_map(|place| Some((place, self.standing.get(place).filter(|standing| !standing.out)?)))
            .min_by_key(|(_, standing)| standing.faults)
            .map(|(place, _)| place)
    }

    /// Compares the chain id that the current endpoint gave with the one it has to be on.
    ///
    /// # Errors
    ///
    /// [`RunError::WrongChain`], or [`RunError::MulticallLacks`] where it gave none and it matters.
    pub(super) fn check_chain(&self, found: Option<u64>) -> Result<(), RunError> {
        match (self.known.chain_id, found) {
            (None, _) => Ok(()),
            (Some(expected), Some(found)) if found == expected => Ok(()),
            (Some(expected), Some(found)) => Err(RunError::WrongChain { found, expected }),
            (Some(_), None) => Err(RunError::MulticallLacks { function: getChainIdCall::SIGNATURE }),
        }
    }

    /// The error to end with: the only endpoint's own, or of several the last lasting one, or else the last; `None` where
    /// nothing failed.
    pub(super) fn conclude(&mut self) -> Option<RunError> {
        let Fault { endpoint, error, .. } = self.last_fault.take()?;
        let count = self.known.traits.len();
        if count == 1 {
            return Some(error);
        }
        let tried = self.standing.iter().filter(|standing| standing.faults > 0).count();
        Some(RunError::Unanswered { tried, count, position: endpoint + 1, error: Box::new(error) })
    }
}
