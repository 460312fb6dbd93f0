//! The events of agents' liable wallets that an index has seen: beyond the record, they tie a wallet to an
//! agent.
//!
//! A row keeps the time at which its liable wallet last attested or reported revenue, and the block from
//! which on the agent's events were seen. The absence of events is known only if the agent's registration was
//! listed, and events of each later block were requested: [`ListedBlocks`] has that range for all rows. Rows
//! that were read from state, or changed without an event, know nothing of earlier events.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use super::store::StoreError;
use crate::{
    chain::logs::{Announced, EventKind},
    liability::WalletEvents,
};

/// The row of an agent before it is read again.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowBefore {
    pub(super) events: SeenEvents,
    /// The registration is the same: by the same creator for the same liable wallet.
    pub(super) is_same_registration: bool,
    pub(super) is_same_record: bool,
}

/// Bytes of the packed form.
pub(super) const PACKED_BYTES: usize = 25;

/// The seen events of one agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SeenEvents {
    /// Times of the liable wallet's last event and of the one before, in unix seconds; 0 for none.
    pub(crate) last: u64,
    pub(super) before: u64,
    /// Height of the block from which on all events were seen; 0 if that is not known.
    pub(super) since: u64,
    /// The agent's registration was listed in that block.
    pub(super) is_from_registration: bool,
}

impl SeenEvents {
    /// Returns the height of the agent's registration, if all events since were listed; else 0.
    pub(crate) const fn registered_in(self) -> u64 {
        if self.is_from_registration { self.since } else { 0 }
    }

    /// Packs the fields; `None` if nothing is known.
    pub(super) fn pack(self) -> Option<[u8; PACKED_BYTES]> {
        let mut packed = [u8::from(self.is_from_registration); PACKED_BYTES];
        let numbers = [self.last, self.before, self.since].into_iter().flat_map(u64::to_be_bytes);
        packed.iter_mut().zip(numbers).for_each(|(byte, packed)| *byte = packed);
        (self != Self::default()).then_some(packed)
    }

    pub(super) fn unpack(packed: Option<Vec<u8>>) -> Result<Self, StoreError> {
        let Some(packed) = packed else { return Ok(Self::default()) };
        let numbers: [u8; PACKED_BYTES] = packed.try_into().map_err(|_| StoreError::corrupt())?;
        let number = |place: usize| {
            let bytes = numbers.iter().skip(8 * place).take(8);
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        let is_from_registration = numbers.last() == Some(&1);
        Ok(Self { last: number(0), before: number(1), since: number(2), is_from_registration })
    }

    fn add(&mut self, seconds: u64) {
        if seconds > self.last {
            self.before = std::mem::replace(&mut self.last, seconds);
        } else if seconds < self.last {
            self.before = self.before.max(seconds);
        }
    }

    /// Forgets events of the blocks after this one, which a reorg has undone.
    fn undo(&mut self, (number, seconds): (u64, u64), at: u64) {
        if self.since > number {
            (self.since, self.is_from_registration) = (0, false);
        }
        if self.last >= seconds {
            // Within one second, the event may also be of an earlier block.
            let is_certain = self.last > seconds && self.before < seconds;
            (self.last, self.before) = (Some(self.before).filter(|last| *last < seconds).unwrap_or(0), 0);
            if !is_certain {
                self.miss(at);
            }
        }
    }

    /// Notes that events before that height are unknown.
    const fn miss(&mut self, at: u64) {
        (self.since, self.is_from_registration) = (at, false);
    }
}

/// Returns the liable wallet's events by a row's fields and the height after which events were listed.
pub(crate) fn wallet_events(last: u64, registered_in: u64, listed_after: Option<u64>) -> WalletEvents {
    let is_complete = listed_after.is_some_and(|after| registered_in > after);
    WalletEvents { last: Some(last).filter(|last| *last > 0), is_complete }
}

/// The blocks of which events were listed without a gap: those after `after`, up to `to`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedBlocks {
    after: u64,
    to: u64,
}

impl ListedBlocks {
    /// Begins anew at this height, at which all agents were read.
    pub(super) const fn begin(&mut self, height: u64) {
        (self.after, self.to) = (height, height);
    }

    /// Adds the blocks `from` to `to`, of which events were listed.
    pub(super) fn list(&mut self, from: u64, to: u64) {
        let before = from.saturating_sub(1);
        // Blocks that a reorg has undone are listed again.
        self.after = if before <= self.to { self.after.min(before) } else { before };
        self.to = to;
    }

    /// Adds the blocks from one height to another, in which nothing happened.
    pub(super) const fn skip(&mut self, from: u64, to: u64) {
        if self.to >= from {
            self.to = to;
        }
    }

    /// Returns the height after which events were listed up to `height`.
    pub(super) fn after(self, height: u64) -> Option<u64> {
        (self.to >= height).then_some(self.after)
    }
}

/// The listed events of one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AgentEvents {
    /// The height of the block with its registration.
    registered_in: Option<u64>,
    /// Attestations and reports by the wallet that made them; some times are unknown.
    made: BTreeMap<Address, Vec<Option<u64>>>,
}

/// The listed events that change rows.
#[derive(Clone, Debug, Default)]
pub(super) struct ListedEvents {
    of_agents: BTreeMap<u64, AgentEvents>,
    /// Agents with an event that was not listed before.
    changed: BTreeSet<u64>,
    /// The height and time of the last canonical block, if a reorg replaced later ones.
    undone_since: Option<(u64, u64)>,
    /// All agents are read from state.
    is_fill: bool,
    /// All agents are compared: the rows may be of blocks that a reorg has undone.
    is_comparison: bool,
}

impl ListedEvents {
    /// Creates the events of a fill: all agents are read from state, and no event is known.
    pub(super) fn of_fill() -> Self {
        Self { is_fill: true, ..Self::default() }
    }

    /// Returns whether all agents are read from state, and no event is known.
    pub(super) const fn is_fill(&self) -> bool {
        self.is_fill
    }

    /// Creates the events of a comparison: these agents had events, which are listed later.
    pub(super) fn later_of(changed: BTreeSet<u64>) -> Self {
        Self { changed, is_comparison: true, ..Self::default() }
    }

    /// Collects the events of blocks up to the height `to`.
    pub(super) fn of(
        events: &[Announced],
        changed: BTreeSet<u64>,
        to: u64,
        undone_since: Option<(u64, u64)>,
    ) -> Self {
        let mut of_agents = BTreeMap::<u64, AgentEvents>::new();
        for event in events.iter().filter(|event| event.number <= to) {
            let Some(id) = event.agent else { continue };
            let agent = of_agents.entry(id).or_default();
            match event.kind {
                EventKind::Registered if event.number > 0 => {
                    agent.registered_in = agent.registered_in.max(Some(event.number));
                }
                EventKind::Made { by, seconds } => agent.made.entry(by).or_default().push(seconds),
                _ => {}
            }
        }
        Self { of_agents, changed, undone_since, ..Self::default() }
    }

    /// Sets whether the events belong to a comparison of all agents.
    pub(super) fn of_comparison(self, is_comparison: bool) -> Self {
        Self { is_comparison, ..self }
    }

    /// Returns the seen events of an agent that is read at the height `at`.
    pub(super) fn seen(&self, id: u64, liable: Address, before: Option<RowBefore>, at: u64) -> SeenEvents {
        let listed = self.of_agents.get(&id);
        let mut seen = match before.filter(|before| before.is_same_registration) {
            Some(before) if !self.is_fill => before.events,
            _ => SeenEvents::default(),
        };
        match (self.undone_since, before) {
            (_, Some(before)) if self.is_comparison && !before.is_same_record => {
                seen = SeenEvents { since: at, ..SeenEvents::default() };
            }
            (Some(undone_since), _) => seen.undo(undone_since, at),
            // It changed without an event.
            (None, Some(before)) if !self.changed.contains(&id) && !before.is_same_record => {
                seen.miss(at);
            }
            (None, _) => {}
        }
        let Some(AgentEvents { registered_in, made }) = listed else { return seen };
        // Listing the same events again does not reveal those that a node has left out once.
        if let Some(number) = registered_in.filter(|number| *number >= seen.since) {
            (seen.since, seen.is_from_registration) = (number, true);
        }
        for seconds in made.get(&liable).into_iter().flatten() {
            match seconds {
                Some(seconds) => seen.add(*seconds),
                None => seen.miss(at),
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_listed_without_a_gap_or_from_the_gap_on() {
        let mut listed = ListedBlocks::default();
        assert_eq!((listed.after(1), listed.after(0)), (None, Some(0)));
        listed.begin(10);
        for (from, to, after) in
            [(11, 12, 10), (9, 14, 8), (15, 16, 8), (18, 20, 17), (21, 30, 17), (16, 25, 15), (26, 26, 15)]
        {
            listed.list(from, to);
            assert_eq!((listed.after(to), listed.after(to + 1)), (Some(after), None), "{from} to {to}");
        }
        listed.skip(27, 40);
        assert_eq!(listed.after(27), None);
        listed.skip(26, 40);
        assert_eq!(listed.after(40), Some(15));
    }

    #[test]
    fn a_reorg_takes_events_back_to_the_one_before_or_to_what_is_not_known() {
        let seen = |last, before, since| SeenEvents { last, before, since, is_from_registration: true };
        let unknown = |last| SeenEvents { last, since: 9, ..SeenEvents::default() };
        for (before, after) in [
            (seen(40, 30, 4), seen(40, 30, 4)),
            (seen(60, 30, 4), seen(30, 0, 4)),
            (seen(60, 0, 4), seen(0, 0, 4)),
            (seen(60, 55, 4), unknown(0)),
            (seen(50, 30, 4), unknown(30)),
            (seen(60, 50, 4), unknown(0)),
            (seen(0, 0, 6), SeenEvents::default()),
        ] {
            let mut undone = before;
            undone.undo((5, 50), 9);
            assert_eq!(undone, after, "{before:?}");
        }
    }
}
