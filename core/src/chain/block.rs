//! Which block a run reads at.
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
//! A query about a certain block begins in Asked instead, and comes back there where the others come back to Newest: reads go to
//! that block, its header comes along, and with it the number of the newest block that is final. There is no stepping back.
//!
//! Unpinned reads go to the newest block, and each reply says by its [`Marker`](super::marker::Marker) which block that was:
//! only replies of one block are kept. Pinned reads go to the header's hash (EIP-1898), or to its number where the node
//! takes no hashes; then, too, the markers have to agree.

use alloy_primitives::B256;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::marker::Marker;
use crate::{
    eth::as_of::{AsOf, BlockId},
    eth::timestamp::Timestamp,
};

/// How much older than the pinned block the next one has to be: machines behind one URL are seconds apart, whatever that
/// is in blocks.
const SECONDS_BACK: u64 = 4;

/// How much older it may be than a block that was fresh and still count as that. A chain that makes blocks on demand may have none
/// for days, and its last block but one is not what anybody asked about.
const MOST_SECONDS_BACK: u64 = 60;

/// Blocks between the pinned one and those asked about when stepping back, the most useful first: on a chain of 12 seconds
/// a block 2 are enough, on one of 200 milliseconds it takes 32.
const DISTANCES: [u64; 4] = [32, 2, 8, 128];

/// As much of a block header as pinning needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its height.
    #[serde(deserialize_with = "quantity")]
    pub number: u64,
    /// Its hash.
    #[serde(deserialize_with = "hash")]
    pub hash: B256,
    /// The hash of the block before.
    #[serde(deserialize_with = "hash")]
    pub parent_hash: B256,
    /// Unix seconds; several blocks may share one.
    #[serde(default, deserialize_with = "quantity")]
    pub timestamp: u64,
}

impl Header {
    /// Whether it is the one asked for.
    pub(super) fn is_of(&self, of: HeaderOf) -> bool {
        match of {
            HeaderOf::Block(BlockId::Number(number)) => self.number == number,
            HeaderOf::Block(BlockId::Hash(hash)) => self.hash == hash,
            HeaderOf::Newest | HeaderOf::Finalized => true,
        }
    }
}

/// The state of a run's block; its transitions are the methods that take `&mut self`.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadBlock {
    /// The newest. `read` is what the answers so far say of their block.
    Newest {
        read: Option<Marker>,
    },
    /// A certain block, whose header is not known yet.
    Asked(BlockId),
    Pinned(Pin),
    /// Headers older than the pin are asked for.
    SteppingBack {
        from: Pin,
    },
}

/// A header to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderOf {
    /// The newest block's.
    Newest,
    /// A certain block's.
    Block(BlockId),
    /// The newest final block's. A node that knows no such thing leaves it out.
    Finalized,
}

/// A block that all further reads go to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    pub(super) header: Header,
    /// The endpoint that named it.
    pub(super) source: usize,
    /// Whether its chain is known to be the right one: a header does not tell.
    pub(super) checked: bool,
    /// It was stepped back to from a newer one that was fresh, and need not be as fresh.
    pub(super) is_older: bool,
}

impl ReadBlock {
    pub(super) const fn pin(&self) -> Option<&Pin> {
        match self {
            Self::Pinned(pin) => Some(pin),
            Self::Newest { .. } | Self::Asked(_) | Self::SteppingBack { .. } => None,
        }
    }

    /// A block that was fresh when `endpoint` named it.
    pub(super) const fn pinned(header: Header, endpoint: usize) -> Self {
        Self::Pinned(Pin { header, source: endpoint, checked: false, is_older: true })
    }

    /// The parent hash that replies have to name in their markers; `None` is that of the first reply.
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

    /// The block that is read, as far as it is known.
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

    /// Where a run begins: at the block it is about, or at the newest.
    pub(super) const fn begin(asked: Option<BlockId>) -> Self {
        match asked {
            Some(block) => Self::Asked(block),
            None => Self::Newest { read: None },
        }
    }

    /// Whether its header is as good as its answers: nothing is pinned yet.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Newest { .. } | Self::Asked(_))
    }

    /// The first reply of the newest block names which one that is.
    pub(super) const fn set_read(&mut self, found: Option<Marker>) {
        if let Self::Newest { read: read @ None } = self {
            *read = found;
        }
    }

    /// A reply at the pinned block came from the right chain.
    pub(super) const fn check(&mut self) {
        if let Self::Pinned(pin) = self {
            pin.checked = true;
        }
    }

    /// Pins the newest block, or the one asked about, as `endpoint` names it. True where the answers so far are of another block.
    pub(super) fn pin_to(&mut self, header: Header, endpoint: usize, checked: bool) -> bool {
        if !self.is_open() {
            return false;
        }
        let (parent, is_older) = (self.parent(), matches!(self, Self::Asked(_)));
        *self = Self::Pinned(Pin { header, source: endpoint, checked, is_older });
        parent != Some(header.parent_hash)
    }

    /// The pinned block is not to be had where it came from: an older one.
    pub(super) const fn step_back(&mut self) {
        if let Self::Pinned(pin) = *self {
            *self = Self::SteppingBack { from: pin };
        }
    }

    /// Pins one of these headers: the youngest that is seconds older than the pin, but not minutes; else the oldest of those
    /// that are not minutes older; else the youngest whose timestamp is at least `oldest`. False where there is none below the pin.
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
        *self = Self::Pinned(Pin { header: *header, source: endpoint, checked: from.checked, is_older });
        true
    }

    /// The headers that are asked for, in at most `room` requests.
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

/// A JSON-RPC quantity.
fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.strip_prefix("0x").ok_or_else(|| D::Error::custom("no 0x"))?;
    u64::from_str_radix(digits, 16).map_err(D::Error::custom)
}

/// A 32-byte hash.
fn hash<'de, D: Deserializer<'de>>(deserializer: D) -> Result<B256, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(number: u64, timestamp: u64) -> Header {
        Header { number, timestamp, hash: B256::with_last_byte(number as u8), parent_hash: B256::ZERO }
    }

    /// The number stepped back to from block 1,000 of a chain with a block every so many milliseconds.
    fn stepped_back(milliseconds: u64, room: usize) -> u64 {
        stepped_back_over(|number| number * milliseconds / 1_000, room, 0).unwrap()
    }

    /// The same where a block's number says when it was made, and blocks have to be no older than `oldest` to be the newest.
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
        assert_eq!(
            stepped_back_over(resumed_at(1_000), 4, DAYS),
            None,
            "and those are too old for an answer"
        );
    }
}
