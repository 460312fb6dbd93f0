//! What every unpinned chunk tells of the block it was read in, by calls to Multicall3 at its head: of which block,
//! of which chain, how old. It costs no request of its own.

use alloy_primitives::{Address, B256, U256};
use alloy_sol_types::SolCall;

use crate::{
    abi::IMulticall3::{getChainIdCall, getCurrentBlockTimestampCall, getLastBlockHashCall},
    multicall::{Call, CallOutcome},
};

/// What a chunk told; `None` is what Multicall3 gave no answer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tag {
    /// The hash of the block before: blocks with one parent are one block, as far as a single endpoint is concerned.
    pub(super) parent: Option<B256>,
    pub(super) chain_id: Option<u64>,
    /// The block's timestamp, unix seconds.
    pub(super) seconds: Option<u64>,
}

impl Tag {
    /// The calls to put before a chunk's own.
    pub(super) fn calls(multicall3: Address) -> [Call; 3] {
        [
            getLastBlockHashCall {}.abi_encode(),
            getChainIdCall {}.abi_encode(),
            getCurrentBlockTimestampCall {}.abi_encode(),
        ]
        .map(|data| Call { target: multicall3, data: data.into() })
    }

    /// Takes the outcomes of [`calls`](Self::calls) off the head of a chunk's.
    pub(super) fn take(outcomes: &mut impl Iterator<Item = CallOutcome>) -> Self {
        let mut word = || match outcomes.next() {
            Some(CallOutcome::Returned(word)) => B256::try_from(word.as_ref()).ok(),
            _ => None,
        };
        let (parent, chain_id, seconds) = (word(), word(), word());
        let number = |word: B256| u64::try_from(U256::from_be_bytes(word.0)).ok();
        Self { parent, chain_id: chain_id.and_then(number), seconds: seconds.and_then(number) }
    }
}
