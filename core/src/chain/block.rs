//! The block that a run reads at.
//!
//! ```text
//!                     a header came along
//!   Newest --------------------------------> Pinned <------------------+
//!     ^  ^                                     | |                     |
//!     |  |   the pin is worth nothing at       | | the node that named | a header that is seconds
//!     |  |   the endpoint switched to          | | it does not have it | older than the pin
//!     |  +-------------------------------------+ v                     |
//!     |                                       SteppingBack ------------+
//!     +----------------------------------------- |
//!        another endpoint is asked
//! ```
//!
//! A query about a certain block starts in Asked and returns there where others return to Newest: reads go to
//! that block, and its header and the newest finalized block's number arrive with them. It never steps back.
//!
//! Unpinned reads go to the newest block. Each reply names its block by a [`Marker`](super::marker::Marker),
//! and only replies of one block are kept. Pinned reads go to the header's hash (EIP-1898), or to its number
//! if the node accepts no hashes; the markers have to agree with the header, too, and by number a header
//! comes with each batch. A reply pinned by hash that is of another block rules the endpoint out: it ignores
//! the block parameter.

use alloy_primitives::B256;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::marker::Marker;
use crate::{
    eth::as_of::{AsOf, BlockId},
    eth::spelled,
    eth::timestamp::Timestamp,
};

/// Minimum seconds between the pinned block and the one stepped back to: nodes behind one URL lag by seconds,
/// independent of the block time.
const SECONDS_BACK: u64 = 4;

/// Maximum seconds between a fresh block and the one stepped back to, for it to still count as fresh. A chain
/// that makes blocks on demand may pause for days, and its last block but one is then far too old.
const MOST_SECONDS_BACK: u64 = 60;

/// Distances in blocks to try when stepping back, the most useful first. On a chain with 12-second blocks 2
/// blocks are enough; with 200-millisecond blocks it takes 32.
const DISTANCES: [u64; 4] = [32, 2, 8, 128];

/// The part of a block header that pinning needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Height of the block.
    #[serde(deserialize_with = "quantity")]
    pub number: u64,
    /// Hash of the block.
    #[serde(deserialize_with = "hash")]
    pub hash: B256,
    /// Hash of the parent block.
    #[serde(deserialize_with = "hash")]
    pub parent_hash: B256,
    /// Timestamp in unix seconds; several blocks may share one.
    #[serde(default, deserialize_with = "quantity")]
    pub timestamp: u64,
}

impl Header {
    /// Returns whether the marker is of this block; `None` if it does not tell.
    pub(super) fn is_of_marker(&self, marker: &Marker) -> Option<bool> {
        match (marker.parent, marker.seconds) {
            (Some(parent), _) => Some(parent == self.parent_hash),
            (None, Some(seconds)) => Some(seconds == self.timestamp),
            (None, None) => None,
        }
    }

    /// Returns whether contracts at the marker's block see the numbers of their own chain; `None` if it does
    /// not tell. A marker of about the same time as this header has a number nearby, unless the number is
    /// another chain's.
    pub(super) fn is_seen_by_contracts(&self, marker: &Marker) -> Option<bool> {
        const NEARBY_BLOCKS: u64 = 1_024;
        const NEARBY_SECONDS: u64 = 60;
        let (parent, number, seconds) = (marker.parent?, marker.number?, marker.seconds?);
        if parent == self.parent_hash {
            return Some(true);
        }
        let is_elsewhere = number.abs_diff(self.number) > NEARBY_BLOCKS
            && seconds.abs_diff(self.timestamp) <= NEARBY_SECONDS;
        is_elsewhere.then_some(false)
    }

    /// Returns whether this is the header asked for.
    pub(super) fn is_of(&self, of: HeaderOf) -> bool {
        match of {
            HeaderOf::Block(BlockId::Number(number)) => self.number == number,
            HeaderOf::Block(BlockId::Hash(hash)) => self.hash == hash,
            HeaderOf::Newest | HeaderOf::Finalized => true,
        }
    }
}

/// The state of a run's block. Its transitions are the methods that take `&mut self`.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadBlock {
    /// The newest block. `read` is the marker of the results so far.
    Newest {
        read: Option<Marker>,
    },
    /// A certain block, its header still unknown.
    Asked(BlockId),
    Pinned(Pin),
    /// Headers older than the pin are asked for.
    SteppingBack {
        from: Pin,
    },
}

/// A header to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderOf {
    /// The newest block's header.
    Newest,
    /// A certain block's header.
    Block(BlockId),
    /// The newest finalized block's header. A node without finality omits it.
    Finalized,
}

/// The block that all further reads go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    pub(super) header: Header,
    /// The endpoint that named the block.
    pub(super) source: usize,
    /// A reply at this block came from the expected chain: a header alone does not show that.
    pub(super) checked: bool,
    /// Exempt from the freshness check: asked for, fresh when named, or stepped back to from a fresh block.
    pub(super) is_older: bool,
    /// It is the canonical block of its number.
    pub(super) is_canonical: bool,
}

impl ReadBlock {
    pub(super) const fn pin(&self) -> Option<&Pin> {
        match self {
            Self::Pinned(pin) => Some(pin),
            Self::Newest { .. } | Self::Asked(_) | Self::SteppingBack { .. } => None,
        }
    }

    /// Pins a block that was fresh when `endpoint` named it.
    pub(super) const fn pinned(header: Header, endpoint: usize) -> Self {
        Self::Pinned(Pin { header, source: endpoint, checked: false, is_older: true, is_canonical: false })
    }

    /// Returns the parent hash that markers have to match; `None` accepts that of the first reply.
    pub(super) const fn parent(&self) -> Option<B256> {
        match self {
            Self::Newest { read } => match read {
                Some(marker) => marker.parent,
                None => None,
            },
            Self::Asked(_) => None,
            Self::Pinned(pin) | Self::SteppingBack { from: pin } => Some(pin.header.parent_hash),
        }
    }

    pub(super) fn as_of(&self) -> Option<AsOf> {
        match self {
            Self::Newest { read } => read.as_ref().and_then(Marker::as_of),
            Self::Pinned(Pin { header, .. }) => Some(AsOf {
                block_number: header.number,
                block_timestamp: Timestamp::from_seconds(header.timestamp),
                parent_hash: header.parent_hash,
            }),
            Self::Asked(_) | Self::SteppingBack { .. } => None,
        }
    }

    /// Returns the initial state: the block asked about, or the newest.
    pub(super) const fn begin(asked: Option<BlockId>) -> Self {
        match asked {
            Some(block) => Self::Asked(block),
            None => Self::Newest { read: None },
        }
    }

    /// Returns whether nothing is pinned yet: the next header pins.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Newest { .. } | Self::Asked(_))
    }

    /// Sets the newest block's marker from the first reply.
    pub(super) const fn set_read(&mut self, found: Option<Marker>) {
        if let Self::Newest { read: read @ None } = self {
            *read = found;
        }
    }

    /// Records that the pinned block is the canonical one of its number.
    pub(super) const fn confirm(&mut self) {
        if let Self::Pinned(pin) = self {
            pin.is_canonical = true;
        }
    }

    /// Records that a reply at the pinned block came from the expected chain.
    pub(super) const fn check(&mut self) {
        if let Self::Pinned(pin) = self {
            pin.checked = true;
        }
    }

    /// Pins the newest block, or the one asked about, as named by `endpoint`. True if the results so far are
    /// of another block.
    pub(super) fn pin_to(&mut self, header: Header, endpoint: usize, checked: bool) -> bool {
        if !self.is_open() {
            return false;
        }
        let (parent, is_older) = (self.parent(), matches!(self, Self::Asked(_)));
        *self = Self::Pinned(Pin { header, source: endpoint, checked, is_older, is_canonical: false });
        parent != Some(header.parent_hash)
    }

    /// Steps back: the endpoint that named the pinned block does not have it.
    pub(super) const fn step_back(&mut self) {
        if let Self::Pinned(pin) = *self {
            *self = Self::SteppingBack { from: pin };
        }
    }

    /// Pins the youngest header that is at least [`SECONDS_BACK`] older and within [`MOST_SECONDS_BACK`],
    /// else the oldest within it, else the youngest not before `oldest`. False if none is below the pin.
    pub(super) fn pin_to_older(&mut self, headers: &[Header], endpoint: usize, oldest: u64) -> bool {
        let Self::SteppingBack { from } = *self else { return false };
        let age = |header: &Header| from.header.timestamp.saturating_sub(header.timestamp);
        let older = headers.iter().filter(|header| header.number < from.header.number);
        let recent = older.clone().filter(|header| age(header) <= MOST_SECONDS_BACK);
        let enough = recent.clone().filter(|header| age(header) >= SECONDS_BACK);
        let Some(header) = enough
            .max_by_key(|header| header.number)
            .or_else(|| recent.min_by_key(|header| header.number))
            .or_else(|| older.filter(|header| header.timestamp >= oldest).max_by_key(|header| header.number))
        else {
            return false;
        };
        let is_older = from.checked || from.is_older;
        let (header, checked) = (*header, from.checked);
        *self = Self::Pinned(Pin { header, source: endpoint, checked, is_older, is_canonical: false });
        true
    }

    /// Returns the headers to request, at most `room`.
    pub(super) fn headers(&self, room: usize) -> Vec<HeaderOf> {
        match self {
            Self::Newest { .. } => vec![HeaderOf::Newest],
            Self::Asked(block) => {
                [HeaderOf::Block(*block), HeaderOf::Finalized].into_iter().take(room.max(1)).collect()
            }
            Self::Pinned(_) => Vec::new(),
            Self::SteppingBack { from } => {
                let number = |distance: &u64| from.header.number.checked_sub(*distance);
                let numbers = DISTANCES.iter().take(room.max(1)).filter_map(number);
                numbers.map(|number| HeaderOf::Block(BlockId::Number(number))).collect()
            }
        }
    }
}

fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    spelled::quantity(&String::deserialize(deserializer)?).ok_or_else(|| D::Error::custom("no quantity"))
}

fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<B256, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64, timestamp: u64) -> Header {
        Header { number, timestamp, hash: B256::with_last_byte(number as u8), parent_hash: B256::ZERO }
    }

    /// Returns the number stepped back to from block 1,000 of a chain with this block time.
    fn stepped_back(milliseconds: u64, room: usize) -> u64 {
        stepped_back_over(|number| number * milliseconds / 1_000, room, 0).unwrap()
    }

    /// Returns the number stepped back to with timestamps by block number, none acceptable below `oldest`.
    fn stepped_back_over(seconds: impl Fn(u64) -> u64, room: usize, oldest: u64) -> Option<u64> {
        let at = |number: u64| header(number, seconds(number));
        let mut block = ReadBlock::Newest { read: None };
        block.pin_to(at(1_000), 0, true);
        block.step_back();
        let number = |header| match header {
            HeaderOf::Block(BlockId::Number(number)) => Some(number),
            _ => None,
        };
        let headers: Vec<Header> = block.headers(room).into_iter().filter_map(number).map(at).collect();
        block.pin_to_older(&headers, 0, oldest).then(|| block.pin().unwrap().header.number)
    }

    #[test]
    fn stepping_back_is_measured_in_seconds() {
        assert_eq!(stepped_back(12_000, 4), 998);
        assert_eq!(stepped_back(2_000, 4), 998);
        assert_eq!(stepped_back(1_000, 4), 992);
        assert_eq!(stepped_back(200, 4), 968, "6 seconds, where 2 blocks were less than one");
        assert_eq!(stepped_back(50, 4), 872);
        assert_eq!(stepped_back(200, 1), 968, "a node that takes one request at a time");
    }

    #[test]
    fn stepping_back_does_not_leap_over_a_gap_of_days() {
        const DAYS: u64 = 1_000_000;
        let resumed_at = |first: u64| move |number: u64| if number < first { 0 } else { DAYS + number / 5 };
        assert_eq!(stepped_back_over(resumed_at(960), 4, 0), Some(968));
        assert_eq!(stepped_back_over(resumed_at(980), 4, 0), Some(992), "the oldest since the chain went on");
        assert_eq!(stepped_back_over(resumed_at(1_000), 4, 0), Some(998), "none but those before");
        let found = stepped_back_over(resumed_at(1_000), 4, DAYS);
        assert_eq!(found, None, "and those are too old for an answer");
    }
}
