//! The gas limit of the outer transaction, so that the inner call really gets the gas it was signed for.
//!
//! With too low a limit the forwarder's check or the 63/64 rule (EIP-150) fails the call, and the relayer
//! pays for nothing. Unused gas is not paid, so the overheads are rounded up.

pub mod fees;

/// Gas of a transaction before its first instruction.
const TRANSACTION: u64 = 21_000;
/// Calldata, per token: a zero byte is one token, any other is four (EIP-2028, EIP-7623).
const TOKEN: u64 = 4;
/// The least that calldata may cost, per token (EIP-7623).
const FLOOR_PER_TOKEN: u64 = 10;
/// The forwarder's overhead: signature check, nonce write, cold accounts, event, its own reserve (40,000).
const FORWARDER: u64 = 95_000;
/// The forwarder's hashing and copying of calldata, per byte.
const FORWARDER_PER_BYTE: u64 = 3;

/// Returns the gas limit of the no-op that fills a nonce, a transfer of 0 to the own account, for a node's
/// estimate of `estimated`. Most chains take 21,000. Where it is more, as on Arbitrum, it moves with the
/// price of L1's data, so twice as much is allowed.
pub const fn no_op_limit(estimated: u64) -> u64 {
    if estimated <= TRANSACTION { TRANSACTION } else { estimated.saturating_mul(2) }
}

/// The least gas of any relay, outer transaction included: a budget with less left is spent.
pub const CHEAPEST_RELAY: u64 = 60_000;

/// Margin on the gas that a simulation used: until the relay is mined, state may change and warm slots cool.
const SIMULATION_MARGIN: u64 = 20_000;

/// Returns the gas to expect of a relay after a simulation that used `used`: a quarter more, plus a constant.
/// The transaction's limit stays `limit`, because the forwarder insists on all the gas that was signed for.
pub fn expected(used: u64, limit: u64) -> u64 {
    used.saturating_add(used / 4).saturating_add(SIMULATION_MARGIN).min(limit)
}

/// Returns the least gas that a relay with this calldata can use.
pub fn least(calldata: &[u8]) -> u64 {
    limit(calldata, 0).saturating_sub(FORWARDER / 2)
}

/// Returns the gas limit for `execute` with this calldata and an inner call limited to `inner_gas`.
pub fn limit(calldata: &[u8], inner_gas: u64) -> u64 {
    let length = calldata.len() as u64;
    let zeros = calldata.iter().filter(|byte| **byte == 0).count() as u64;
    let tokens = zeros.saturating_add(length.saturating_sub(zeros).saturating_mul(4));

    let inner = inner_gas.saturating_mul(64).div_ceil(63);
    let execution = inner.saturating_add(FORWARDER).saturating_add(length.saturating_mul(FORWARDER_PER_BYTE));
    let standard = tokens.saturating_mul(TOKEN).saturating_add(execution);
    TRANSACTION.saturating_add(standard.max(tokens.saturating_mul(FLOOR_PER_TOKEN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calldata_is_charged_by_kind_of_byte_down_to_the_floor_and_a_no_op_has_the_gas_of_a_transfer() {
        let none = limit(&[], 0);
        assert_eq!(none, TRANSACTION + FORWARDER);
        assert_eq!(limit(&[0], 0) - none, 4 + FORWARDER_PER_BYTE);
        assert_eq!(limit(&[1], 0) - none, 16 + FORWARDER_PER_BYTE);
        assert_eq!(limit(&vec![1; 60_000], 0), TRANSACTION + 60_000 * 40, "the floor");
        assert_eq!([0, 21_000, 21_001, 330_000].map(no_op_limit), [21_000, 21_000, 42_002, 660_000]);
        // What is expected never exceeds the limit.
        assert_eq!((expected(200_000, 2_000_000), expected(200_000, 230_000)), (270_000, 230_000));
        assert!(least(&[1; 700]) < limit(&[1; 700], 0));
    }

    proptest! {
        /// After the forwarder's share at least 64/63 of what the inner call needs is left.
        #[test]
        fn the_inner_call_gets_its_gas(calldata in prop::collection::vec(any::<u8>(), 0..2_000), inner in 0_u64..30_000_000) {
            let spent: u64 = TRANSACTION + calldata.iter().map(|b| if *b == 0 { 4 } else { 16 }).sum::<u64>();
            let available = limit(&calldata, inner) - spent - FORWARDER;
            prop_assert!(available - available / 64 >= inner);
        }
    }
}
