//! Multicall3: many calls in one `eth_call`, which all read the same block in one round trip.

use alloy_primitives::{Address, Bytes};
use alloy_sol_types::SolCall;

use crate::{
    eth::abi::{self, IMulticall3},
    eth::rpc::revert::Revert,
};

/// The address of Multicall3 on almost every chain.
pub const CANONICAL_ADDRESS: Address =
    alloy_primitives::address!("0xcA11bde05977b3631167028862bE2a173976CA11");

/// One contract read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The contract.
    pub target: Address,
    /// Selector and arguments.
    pub data: Bytes,
    /// Runtime bytecode of a target that is not deployed, as hexadecimal digits. It serves the whole
    /// `aggregate3` with this call, as Multicall3 does.
    pub code: Option<&'static str>,
}

impl Call {
    /// Returns the bytes of this call in `aggregate3`'s calldata: offset, four words of frame, padded data.
    pub fn packed_size(&self) -> usize {
        32 * 5 + self.data.len().next_multiple_of(32)
    }
}

/// The outcome of one call of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Its return data. Empty where the target has no code.
    Returned(Bytes),
    /// It reverted with data.
    Reverted(Revert),
    /// It failed without data: out of gas, or a revert without a reason. Only a separate call tells the two
    /// apart.
    Ambiguous,
}

/// Encodes the calldata of `aggregate3` for `calls`, each allowed to fail.
pub fn pack<'a>(calls: impl IntoIterator<Item = &'a Call>) -> Bytes {
    let calls = calls
        .into_iter()
        .map(|call| IMulticall3::Call3 {
            target: call.target,
            allowFailure: true,
            callData: call.data.clone(),
        })
        .collect();
    IMulticall3::aggregate3Call { calls }.abi_encode().into()
}

/// Decodes the outcomes in `aggregate3`'s return data, in the order of the calls; `None` for other data.
pub fn unpack(data: &[u8]) -> Option<Vec<CallOutcome>> {
    let results = abi::decode_returns::<IMulticall3::aggregate3Call>(data).ok()?;
    let outcome = |result: IMulticall3::Result| match (result.success, result.returnData) {
        (true, data) => CallOutcome::Returned(data),
        (false, data) if data.is_empty() => CallOutcome::Ambiguous,
        (false, data) => CallOutcome::Reverted(Revert::from_data(&data)),
    };
    Some(results.into_iter().map(outcome).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packed_size_is_what_packing_takes(lengths in prop::collection::vec(0usize..200, 0..20)) {
            let calls: Vec<Call> = lengths
                .iter()
                .map(|length| Call { target: Address::ZERO, data: vec![7; *length].into(), code: None })
                .collect();
            let frame = pack(&[]).len();
            let size: usize = calls.iter().map(Call::packed_size).sum();
            prop_assert_eq!(pack(&calls).len(), frame + size);
        }
    }
}
