//! The time up to which the rows lack nothing, apart from the storage root that was seen at their block.
//!
//! The rows go from block to block in steps. A step is complete if a proof shows that the events told all of
//! it. Events of any other step may still be late. They are requested again once the step's last block is
//! older than events may be late, by the delays seen so far; until then the rows may lack them. Later steps
//! do not prolong that time, because each proof starts from the root that was seen before.
//!
//! ```text
//!   steps    proved   |  by events alone  |  proved  |  proved
//!            ---------+-------------------+----------+--------->
//!   complete_to       ^ until the step's events have been asked for again; then here ^
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::checkpoint::Checkpoint;

/// Maximum separate steps; later ones are merged into the last.
const STEPS: usize = 16;
/// Minimum and maximum seconds for which events may be late, and the minimum while little has been seen.
const LATE_MIN_SECONDS: u64 = 6;
const LATE_MAX_SECONDS: u64 = 40;
const LATE_AT_FIRST_SECONDS: u64 = 20;
/// Steps after which enough has been seen.
const WATCHED: u32 = 30;

/// The time up to which the rows lack nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Coverage {
    /// Unix milliseconds by the host's clock; 0 if there is no such time.
    complete_to: u64,
    /// Steps by events alone, the oldest first.
    steps: Vec<CoverageStep>,
}

/// Lateness of events, a property of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Lateness {
    /// The longest time, in seconds.
    seconds: u64,
    /// Steps so far, up to [`WATCHED`].
    watched: u32,
}

/// A step that no proof covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CoverageStep {
    /// The height of the block before it.
    from: u64,
    /// Its last block's time, unix seconds.
    seconds: u64,
    /// Time at which the block before it was the newest, in unix milliseconds.
    since: u64,
}

impl Coverage {
    /// Begins with all agents read at a block that was the newest at `read_at` (unix milliseconds).
    pub(super) const fn begun(read_at: u64) -> Self {
        Self { complete_to: read_at, steps: Vec::new() }
    }

    /// Advances the rows from a block, which was the newest at `since`, to another one, which was the newest
    /// at `read_at` (unix milliseconds). Events were requested from the height `asked_from` on, if at all.
    pub(super) fn advance(
        &mut self,
        (from, since): (u64, u64),
        (to, read_at): (&Checkpoint, u64),
        is_proved: bool,
        asked_from: Option<u64>,
        lateness: &mut Lateness,
    ) {
        let late = lateness.may_be_seconds();
        let is_told = |step: &CoverageStep| {
            step.seconds.saturating_add(late) <= to.seconds
                && asked_from.is_some_and(|first| first <= step.from.saturating_add(1))
        };
        let told = self.steps.iter().take_while(|step| is_told(step)).count();
        self.steps.drain(..told);
        if !is_proved {
            let step = CoverageStep { from, seconds: to.seconds, since: since.min(read_at) };
            let is_full = self.steps.len() >= STEPS;
            match self.steps.last_mut() {
                Some(last) if is_full => last.seconds = to.seconds,
                _ => self.steps.push(step),
            }
        }
        lateness.watched = lateness.watched.saturating_add(1).min(WATCHED);
        self.complete_to = self.steps.first().map_or(read_at, |step| step.since);
    }

    /// Returns the unix milliseconds up to which the rows lack nothing; `None` before there is such a time.
    pub(super) fn complete_to(&self) -> Option<u64> {
        Some(self.complete_to).filter(|time| *time > 0)
    }

    /// Returns the block time, in unix seconds, from which on events of the oldest step are requested again.
    pub(super) fn asks_again_at(&self, lateness: Lateness) -> Option<u64> {
        self.steps.first().map(|step| step.seconds.saturating_add(lateness.may_be_seconds()))
    }

    /// Returns the height of the first block that may have late events.
    pub(super) fn first_late(&self) -> Option<u64> {
        self.steps.first().map(|step| step.from.saturating_add(1))
    }

    /// Returns whether events of earlier steps may be late.
    pub(super) fn is_open(&self) -> bool {
        !self.steps.is_empty()
    }
}

impl Lateness {
    /// Returns whether an event has been late.
    pub(super) const fn is_known(self) -> bool {
        self.seconds > 0
    }

    /// Notes the heights of events that are listed now, and were not when events up to the height `asked_to`
    /// were requested. `block_millis` is the time between two blocks.
    pub(super) fn note(&mut self, late: &BTreeSet<u64>, asked_to: u64, block_millis: u64) {
        let Some(first) = late.first() else { return };
        let blocks = asked_to.saturating_sub(*first).saturating_add(1);
        let seconds = blocks.saturating_mul(block_millis).div_ceil(1_000);
        self.seconds = self.seconds.max(seconds);
    }

    fn may_be_seconds(self) -> u64 {
        let least = if self.watched < WATCHED { LATE_AT_FIRST_SECONDS } else { LATE_MIN_SECONDS };
        self.seconds.saturating_mul(2).clamp(least, LATE_MAX_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy_primitives::B256;

    fn block(number: u64) -> Checkpoint {
        Checkpoint { number, hash: B256::ZERO, seconds: number * 2, parent: B256::ZERO }
    }

    /// Advances by a step over blocks of 2 s, and returns the block up to which the rows lack nothing.
    fn step(
        (coverage, lateness): (&mut Coverage, &mut Lateness),
        (from, to): (u64, u64),
        is_proved: bool,
    ) -> u64 {
        let asked_from = Some(coverage.first_late().unwrap_or(from + 1));
        coverage.advance((from, from * 2_000), (&block(to), to * 2_000), is_proved, asked_from, lateness);
        coverage.complete_to / 2_000
    }

    #[test]
    fn a_step_by_events_alone_is_complete_once_they_are_asked_for_again_and_later_ones_do_not_prolong_it() {
        let (mut coverage, mut lateness) = (Coverage::begun(100 * 2_000), Lateness::default());
        let expected = [
            ((100, 105), true, 105),
            ((105, 110), false, 105),
            ((110, 115), true, 105),
            ((115, 119), true, 105),
            ((119, 120), true, 120),
            ((120, 125), false, 120),
            ((125, 130), false, 120),
            ((130, 135), true, 125),
            ((135, 140), true, 140),
        ];
        for (blocks, is_proved, complete_to) in expected {
            assert_eq!(step((&mut coverage, &mut lateness), blocks, is_proved), complete_to, "{blocks:?}");
        }
        // A step without events completes no earlier one.
        step((&mut coverage, &mut lateness), (140, 141), false);
        coverage.advance((141, 282_000), (&block(200), 400_000), true, None, &mut lateness);
        assert_eq!(coverage.complete_to, 280_000);
    }

    #[test]
    fn events_may_be_late_for_twice_the_longest_time_seen() {
        let (mut coverage, mut lateness) = (Coverage::begun(1), Lateness::default());
        assert_eq!(lateness.may_be_seconds(), 20);
        for number in 0..40 {
            step((&mut coverage, &mut lateness), (number, number + 1), true);
        }
        assert_eq!(lateness.may_be_seconds(), 6);
        for (late, asked_to, expected) in [(50, 50, 6), (48, 51, 16), (40, 51, 40), (51, 51, 40)] {
            lateness.note(&BTreeSet::from([late]), asked_to, 2_000);
            assert_eq!(lateness.may_be_seconds(), expected, "{late} of {asked_to}");
        }
    }
}
