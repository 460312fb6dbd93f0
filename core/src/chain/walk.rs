//! Walks over many agents: the next span to read, and its size. The agents have consecutive ids, or those of
//! a list, in which they are numbered from 1 on.
//!
//! ```text
//!            probe           end known          a span ends early: the rest, in parallel
//! first span ------> rows -------------> spans -------------------------------------> rows
//!                                          |  an agent exceeds its share of a call's gas
//!                                          `------------------------> that agent alone
//! ```
//!
//! The first span probes how many agents fit a call of this node. An agent that is unreadable even alone
//! stays marked as unreadable.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    chain::lens::{Detail, LensTarget, Slice, Span},
    chain::rows::Rows,
    registry::row::Row,
};

/// Identifies a walk: the arguments of [`View::rows`](super::View::rows) except the last agent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WalkKey {
    pub(crate) registry: alloy_primitives::Address,
    pub(crate) first: u64,
    pub(crate) detail: Detail,
    /// The ids of the agents with the numbers 1, 2, 3 ...; `None` if each agent's number is its id.
    pub(crate) listed: Option<Arc<[u64]>>,
}

impl WalkKey {
    /// Returns the lens's arguments for a span.
    pub(super) fn subject(&self, span: Span) -> LensTarget<'_> {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let listed = self.listed.as_deref().map(|ids| {
            let (first, count) = (place(span.first.saturating_sub(1)), place(span.count));
            let rest = ids.get(first..).unwrap_or_default();
            rest.get(..count).unwrap_or(rest)
        });
        LensTarget { registry: self.registry, detail: self.detail, listed }
    }

    /// Returns the ids of a span's agents.
    pub(super) fn ids(&self, span: Span) -> Vec<u64> {
        match self.subject(span).listed {
            Some(listed) => listed.to_vec(),
            None => (span.first..).take(usize::try_from(span.count).unwrap_or(usize::MAX)).collect(),
        }
    }
}

/// The smallest span to plan; where fewer agents fit, the lens stops early.
const FEWEST: u64 = 128;
/// Agents read alone in one walk. Further ones count as unreadable.
const MOST_ALONE: usize = 1_024;

#[derive(Debug)]
pub(super) struct AgentWalk {
    rows: Arc<Rows>,
    first: u64,
    /// The first agent without a planned span.
    next: u64,
    /// The last agent to read, once known.
    last: Option<u64>,
    /// The first span was answered.
    probed: bool,
    pending: VecDeque<Span>,
    /// Agents per planned span.
    piece: u64,
    alone: usize,
    answered: usize,
}

impl AgentWalk {
    pub(super) fn new(first: u64, piece: u64) -> Self {
        let mut walk = Self {
            rows: Arc::new(Rows::starting_at(first)),
            first,
            next: first,
            last: None,
            probed: false,
            pending: VecDeque::new(),
            piece,
            alone: 0,
            answered: 0,
        };
        walk.probe();
        walk
    }

    fn probe(&mut self) {
        self.pending.push_back(Span { first: self.first, count: self.piece });
    }

    /// Returns the rows once all up to `last` are read; `None` accepts what the first span returned.
    pub(super) fn rows(&self, last: Option<u64>) -> Option<&Arc<Rows>> {
        let done = self.probed && self.pending.is_empty() && (last.is_none() || self.last == last);
        done.then_some(&self.rows)
    }

    /// Plans the spans up to `last`.
    pub(super) fn extend_to(&mut self, last: u64) {
        if self.last == Some(last) {
            return;
        }
        self.last = Some(last);
        Arc::make_mut(&mut self.rows).end_at(last);
        self.pending.retain(|span| span.first <= last);
        for span in &mut self.pending {
            span.count = span.count.min(last - span.first + 1);
        }
        if self.probed && self.next <= last {
            let count = last - self.next + 1;
            self.plan(Span { first: self.next, count }, self.piece);
            self.next = last + 1;
        }
    }

    /// Splits a span into spans of nearly equal size, none larger than `most`.
    fn plan(&mut self, span: Span, most: u64) {
        let pieces = span.count.div_ceil(most.max(1)).max(1);
        let (size, larger) = (span.count / pieces, span.count % pieces);
        let mut first = span.first;
        for index in 0..pieces {
            let count = size + u64::from(index < larger);
            self.pending.push_back(Span { first, count });
            first += count;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns the number of answered spans.
    pub(super) const fn answered(&self) -> usize {
        self.answered
    }

    /// Takes the next span to read, of at most `most` agents.
    pub(super) fn take(&mut self, most: u64) -> Option<Span> {
        let span = self.pending.pop_front()?;
        if span.count <= most {
            return Some(span);
        }
        // While the end is unknown the probe is cut short, and the agents after it are planned later.
        if self.probed {
            self.pending.push_front(Span { first: span.first + most, count: span.count - most });
        }
        Some(Span { count: most, ..span })
    }

    /// Queues a span again that has no result.
    pub(super) fn give_back(&mut self, span: Span) {
        self.pending.push_back(span);
    }

    /// Adds a span's result.
    pub(super) fn fold(&mut self, span: Span, mut slice: Slice) {
        let count = usize::try_from(span.count).unwrap_or(usize::MAX);
        slice.rows.truncate(count);
        slice.full.truncate(count);
        let done = slice.rows.len() as u64;
        self.answered += 1;
        if span.count > 1 {
            for (id, row) in (span.first..).zip(&slice.rows) {
                if row.record_is_readable() && row.history_is_readable {
                    continue;
                }
                if self.alone < MOST_ALONE && self.last.is_none_or(|last| id <= last) {
                    self.alone += 1;
                    self.pending.push_back(Span { first: id, count: 1 });
                }
            }
        }
        Arc::make_mut(&mut self.rows).fold(span.first, slice);
        if !self.probed {
            self.probed = true;
            self.next = span.first + done;
            if done < span.count {
                self.piece = (done * 7 / 8).max(FEWEST).min(self.piece);
            }
            if let Some(last) = self.last.take() {
                self.extend_to(last);
            }
            return;
        }
        let rest = Span { first: span.first + done, count: span.count - done };
        // An empty result lies beyond the last agent.
        if rest.count > 0 && done > 0 {
            // In parallel, so that many agents that need much gas delay the others only briefly.
            self.plan(rest, done.max(rest.count.div_ceil(4)));
        }
    }

    /// Splits a span that the node cannot execute, or marks a single agent unreadable.
    pub(super) fn refuse(&mut self, span: Span) {
        if span.count > 1 && self.probed {
            self.plan(span, span.count.div_ceil(4));
        } else if span.count > 1 {
            self.pending.push_back(Span { count: span.count.div_ceil(4), ..span });
        } else {
            let slice = Slice { rows: vec![Row::UNREADABLE], ..Slice::default() };
            self.fold(span, slice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const READ: Row = Row { status: 0, history_is_readable: true, ..Row::UNREADABLE };

    /// Answers as a node with room for `gas` agents in a call, some readable only alone, some not at all.
    fn answer(span: Span, total: u64, gas: u64, heavy: &[u64], unreadable: &[u64]) -> Slice {
        let mut slice = Slice::default();
        let mut left = gas;
        for id in span.first..(span.first + span.count).min(total + 1) {
            let (heavy, unreadable) = (heavy.contains(&id), unreadable.contains(&id));
            let cost = if heavy || unreadable { (gas / 4).max(1) } else { 1 };
            if cost > left && id > span.first {
                break;
            }
            left = left.saturating_sub(cost);
            let readable = !unreadable && (!heavy || span.count == 1);
            slice.rows.push(if readable { READ } else { Row::UNREADABLE });
            slice.reports += u64::from(readable);
        }
        slice
    }

    proptest! {
        #[test]
        fn every_agent_is_read_once_and_only_the_unreadable_are_not(
            total in 0u64..3_000,
            gas in 1u64..800,
            heavy in prop::collection::vec(1u64..3_000, 0..40),
            unreadable in prop::collection::vec(1u64..3_000, 0..10),
            most in 1u64..900,
            lost in prop::collection::vec(any::<bool>(), 0..20),
        ) {
            let mut walk = AgentWalk::new(1, 1_200);
            let mut lost = lost.into_iter();
            let mut rounds = 0;
            for last in [None, Some(total)] {
                if let Some(last) = last {
                    walk.extend_to(last);
                }
                while walk.rows(last).is_none() {
                    rounds += 1;
                    prop_assert!(rounds < 10_000);
                    let spans: Vec<Span> = std::iter::from_fn(|| walk.take(most)).collect();
                    prop_assert!(!spans.is_empty());
                    for span in spans {
                        prop_assert!(span.count <= most);
                        if lost.next() == Some(true) {
                            walk.give_back(span);
                        } else {
                            walk.fold(span, answer(span, total, gas, &heavy, &unreadable));
                        }
                    }
                }
            }
            let rows = walk.rows(Some(total)).unwrap();
            prop_assert_eq!(rows.len() as u64, total);
            let expected = (1..=total).filter(|id| unreadable.contains(id)).count() as u64;
            prop_assert_eq!(rows.iter().filter(|(_, row)| !row.record_is_readable()).count() as u64, expected);
            prop_assert!(rows.iter().all(|(_, row)| !row.is_unread()));
            prop_assert_eq!(rows.revenue.total_reports, total - expected);
        }
    }

    #[test]
    fn a_span_of_a_list_has_the_ids_in_its_places() {
        let registry = alloy_primitives::Address::ZERO;
        let consecutive = WalkKey { registry, first: 1, detail: Detail::Full, listed: None };
        let listed = WalkKey { listed: Some([30, 10, 20].into()), ..consecutive.clone() };
        for (first, count, ids) in [(1, 2, &[30, 10][..]), (2, 9, &[10, 20]), (4, 1, &[]), (9, 1, &[])] {
            let span = Span { first, count };
            assert_eq!(listed.subject(span).listed, Some(ids));
            assert_eq!(listed.ids(span), ids);
        }
        let span = Span { first: 5, count: 2 };
        assert_eq!((consecutive.subject(span).listed, consecutive.ids(span)), (None, vec![5, 6]));
    }

    #[test]
    fn a_hundred_heavy_agents_in_a_row_hold_nobody_up_for_long() {
        let heavy: Vec<u64> = (1..=100).collect();
        let mut walk = AgentWalk::new(1, 1_200);
        walk.extend_to(1_000);
        let mut rounds = 0;
        while walk.rows(Some(1_000)).is_none() {
            rounds += 1;
            let spans: Vec<Span> = std::iter::from_fn(|| walk.take(u64::MAX)).collect();
            spans.into_iter().for_each(|span| walk.fold(span, answer(span, 1_000, 260, &heavy, &[])));
        }
        assert!(rounds <= 8, "{rounds}");
    }
}
