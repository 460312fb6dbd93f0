//! Which RPC endpoint is asked: the one that answered last, until it fails. And the chain they all have to be on.

use alloc::{boxed::Box, vec, vec::Vec};

use alloy_sol_types::SolCall;

use super::RunError;
use crate::abi::IMulticall3::getChainIdCall;

/// What a host knows of its RPC endpoints and keeps from one run to the next: plain data, no URLs. Endpoints go by
/// their place in the operator's list, from 0.
///
/// All of them have to be on one chain: the operator's, or else the one the first endpoint told first. While the
/// first has told none, the chain another told holds; it ends when the first speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    count: usize,
    preferred: usize,
    chain: ChainId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChainId {
    Unknown,
    /// Told by another endpoint than the first.
    Provisional(u64),
    /// Told by the first, or set by the operator.
    Certain(u64),
}

impl Endpoints {
    /// `count` endpoints (at least one) of which nothing is known; `chain_id` is the operator's, if set.
    pub fn new(count: usize, chain_id: Option<u64>) -> Self {
        let chain = chain_id.map_or(ChainId::Unknown, ChainId::Certain);
        Self { count: count.max(1), preferred: 0, chain }
    }

    /// The endpoint to ask first: the one that answered last.
    pub const fn preferred(&self) -> usize {
        self.preferred
    }

    /// Takes over what a run has learned, which may have begun before others that have ended.
    pub fn learn(&mut self, later: &Self) {
        self.preferred = later.preferred;
        if !matches!(self.chain, ChainId::Certain(_)) && later.chain != ChainId::Unknown {
            self.chain = later.chain;
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
        known.preferred = known.preferred.min(known.count - 1);
        Self { standing: vec![Standing::default(); known.count], known, trouble: None }
    }

    pub(super) const fn known(&self) -> &Endpoints {
        &self.known
    }

    /// Whose turn it is.
    pub(super) const fn current(&self) -> usize {
        self.known.preferred
    }

    /// How many others there are to turn to.
    pub(super) const fn others(&self) -> u32 {
        self.known.count.saturating_sub(1) as u32
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
        let count = self.known.count;
        let best = (start..start + count)
            .map(|place| place % count)
            .filter_map(|place| Some((place, self.standing.get(place).filter(|standing| !standing.out)?)))
            .min_by_key(|(_, standing)| standing.faults)
            .map(|(place, _)| place);
        if let Some(best) = best {
            self.known.preferred = best;
        }
        best.is_some()
    }

    /// Compares the chain id the current endpoint told with the one it has to be; true where the answers read so far
    /// turn out to be another chain's.
    ///
    /// # Errors
    ///
    /// [`RunError::WrongChain`], or [`RunError::MulticallLacks`] where it told none and it matters.
    pub(super) fn check_chain(&mut self, told: Option<u64>) -> Result<bool, RunError> {
        let first = self.current() == 0;
        let Some(found) = told else {
            let matters = self.known.count > 1 || self.known.chain != ChainId::Unknown;
            let lacks = RunError::MulticallLacks { function: getChainIdCall::SIGNATURE };
            return if matters { Err(lacks) } else { Ok(false) };
        };
        let expected = match self.known.chain {
            ChainId::Certain(expected) => expected,
            ChainId::Provisional(expected) if !first => expected,
            before => {
                self.known.chain = if first { ChainId::Certain(found) } else { ChainId::Provisional(found) };
                return Ok(matches!(before, ChainId::Provisional(other) if other != found));
            }
        };
        if found == expected { Ok(false) } else { Err(RunError::WrongChain { found, expected }) }
    }

    /// The error to end with: the only endpoint's own, or of several the trouble that tells most; `None` where nothing
    /// went wrong.
    pub(super) fn conclude(&mut self) -> Option<RunError> {
        let Trouble { endpoint, error, .. } = self.trouble.take()?;
        if self.known.count == 1 {
            return Some(error);
        }
        let tried = self.standing.iter().filter(|standing| standing.faults > 0).count();
        let (count, position) = (self.known.count, endpoint + 1);
        Some(RunError::Unanswered { tried, count, position, error: Box::new(error) })
    }
}
