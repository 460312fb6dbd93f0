//! The newest block that an instance has seen. Blocks far beyond it cannot exist, and are not requested.

use crate::eth::timestamp::Timestamp;

/// Number of blocks above the newest one seen that are requested in any case.
const MARGIN: u64 = 10_000;
/// An upper bound on the blocks that a chain makes in a second.
const BLOCKS_PER_SECOND: u64 = 100;

/// The newest block seen so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewestBlock {
    seen: Option<(u64, Timestamp)>,
}

impl NewestBlock {
    /// Records the number of a block that existed at `now`.
    pub fn see(&mut self, number: u64, now: Timestamp) {
        if self.seen.is_none_or(|(seen, _)| seen <= number) {
            self.seen = Some((number, now));
        }
    }

    /// Returns whether a block of this number may exist at `now`. True if no block was seen yet.
    pub fn may_have(&self, number: u64, now: Timestamp) -> bool {
        self.seen.is_none_or(|(seen, at)| {
            let seconds = now.seconds_rounded_up().saturating_sub(at.seconds());
            number <= seen.saturating_add(MARGIN).saturating_add(seconds.saturating_mul(BLOCKS_PER_SECOND))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_far_beyond_the_newest_one_seen_cannot_exist() {
        let at = Timestamp::from_seconds;
        let mut newest = NewestBlock::default();
        assert!(newest.may_have(u64::MAX, at(100)), "none was seen yet");
        newest.see(500, at(100));
        // An older block changes nothing.
        newest.see(400, at(900));
        for (number, seconds, expected) in [
            (0, 100, true),
            (10_500, 100, true),
            (10_501, 100, false),
            (10_600, 101, true),
            (10_601, 101, false),
            (u64::MAX, 1_000_000, false),
            (10_500, 0, true),
        ] {
            assert_eq!(newest.may_have(number, at(seconds)), expected, "{number} at {seconds}");
        }
        newest.see(20_000, at(110));
        assert!(newest.may_have(30_000, at(110)));
    }
}
