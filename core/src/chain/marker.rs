//! The block that a reply was read at: its parent, chain and age. An `aggregate3` chunk starts with calls for
//! it, and the lens puts it at the head of its answer, so that it costs no request of its own.

use alloy_primitives::{Address, B256, U256};
use alloy_sol_types::SolCall;

use crate::{
    eth::abi::IMulticall3::{
        getBlockNumberCall, getChainIdCall, getCurrentBlockTimestampCall, getLastBlockHashCall,
    },
    eth::as_of::AsOf,
    eth::multicall::{Call, CallOutcome},
    eth::timestamp::Timestamp,
};

/// A reply's block. A field is `None` if Multicall3 did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marker {
    /// The parent's hash. At a single endpoint, blocks with one parent count as one block.
    pub(crate) parent: Option<B256>,
    pub(crate) chain_id: Option<u64>,
    /// The block's timestamp in unix seconds.
    pub(crate) seconds: Option<u64>,
    /// The block's number; the lens does not include it.
    pub(crate) number: Option<u64>,
}

impl Marker {
    /// Returns the calls that start a chunk.
    pub(super) fn calls(multicall3: Address) -> [Call; 4] {
        [
            getLastBlockHashCall {}.abi_encode(),
            getChainIdCall {}.abi_encode(),
            getCurrentBlockTimestampCall {}.abi_encode(),
            getBlockNumberCall {}.abi_encode(),
        ]
        .map(|data| Call { target: multicall3, data: data.into(), code: None })
    }

    /// Takes the results of [`calls`](Self::calls) off the head of a chunk's.
    pub(super) fn take(outcomes: &mut impl Iterator<Item = CallOutcome>) -> Self {
        let mut word = || match outcomes.next() {
            Some(CallOutcome::Returned(word)) => B256::try_from(word.as_ref()).ok(),
            _ => None,
        };
        let (parent, chain_id, seconds, block) = (word(), word(), word(), word());
        let number = |word: B256| u64::try_from(U256::from_be_bytes(word.0)).ok();
        Self {
            parent,
            chain_id: chain_id.and_then(number),
            seconds: seconds.and_then(number),
            number: block.and_then(number),
        }
    }

    /// Drops the fields that are of another chain's blocks, where contracts see those.
    pub(super) const fn without_block(self) -> Self {
        Self { parent: None, number: None, ..self }
    }

    /// Returns the block, if all fields are known.
    pub(super) fn as_of(&self) -> Option<AsOf> {
        Some(AsOf {
            block_number: self.number?,
            block_timestamp: Timestamp::from_seconds(self.seconds?),
            parent_hash: self.parent?,
        })
    }
}
