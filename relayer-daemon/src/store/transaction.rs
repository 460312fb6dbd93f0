//! The paying account's transactions: what was signed, for which nonce and which relay.

use alloy::{
    consensus::{Transaction as _, TxEnvelope},
    eips::eip2718::{Decodable2718, Eip2718Error},
    primitives::{Address, B256, Bytes, U256},
};
use strum::{EnumString, IntoStaticStr};

use crate::gas::fees::Fees;

/// The purpose of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum TransactionPurpose {
    /// Executes a relay.
    Relay,
    /// A no-op in place of a relay that another account has executed.
    Superseded,
    /// A no-op in place of a relay with a passed deadline.
    Expired,
    /// A no-op in place of a transaction that every node called invalid.
    Rejected,
    /// A no-op in place of a relay that the operator has cancelled.
    Cancelled,
    /// A no-op that fills a nonce gap below our transactions.
    Gap,
}

impl TransactionPurpose {
    /// Returns its name in the store and in metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// A signed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTransaction {
    /// Its hash.
    pub hash: B256,
    /// The raw bytes, EIP-2718.
    pub raw: Bytes,
    /// Its fees.
    pub fees: Fees,
    /// Its gas limit.
    pub gas_limit: u64,
    /// Its purpose.
    pub purpose: TransactionPurpose,
}

impl SignedTransaction {
    /// Returns its calldata.
    ///
    /// # Errors
    /// If the bytes are not a transaction.
    pub fn calldata(&self) -> Result<Bytes, Eip2718Error> {
        Ok(TxEnvelope::decode_2718_exact(&self.raw)?.input().clone())
    }
}

/// The terms of a relay that the sender needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RelayTerms {
    /// The EIP-712 digest of the request.
    pub id: B256,
    /// `request.from`.
    pub signer: Address,
    /// `request.nonce`.
    pub forward_nonce: U256,
    /// `request.deadline`, unix seconds, 0 for none.
    pub deadline: u64,
    /// The highest L1 data fee to expect, wei; 0 on chains without one.
    pub l1_fee_wei: u128,
    /// The gas it is expected to use, margin included; `None` if only its gas limit is known.
    pub expected_gas: Option<u64>,
    /// True if it came without an API key.
    pub without_key: bool,
}

/// A nonce of the account, its relay, and all that was signed for it.
///
/// An assigned nonce ends only by being mined: by a transaction of its relay, by our no-op, or by a foreign
/// transaction signed with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonceAssignment {
    /// The nonce.
    pub nonce: u64,
    /// Its relay; `None` for a gap.
    pub relay: Option<RelayTerms>,
    /// Its signed transactions, oldest first.
    pub transactions: Vec<SignedTransaction>,
}

impl NonceAssignment {
    /// Returns its latest transaction.
    pub fn latest(&self) -> Option<&SignedTransaction> {
        self.transactions.last()
    }

    /// Returns the highest expected cost, wei, whichever of its transactions is mined: the relay's expected
    /// gas at the fees of each. A replacement transaction makes the same call, so the first one's expected
    /// gas holds for all of them.
    pub fn expected_wei(&self) -> u128 {
        let expected_gas = self.relay.and_then(|relay| relay.expected_gas).unwrap_or(u64::MAX);
        let cost = |signed: &SignedTransaction| signed.fees.worst_case(expected_gas.min(signed.gas_limit));
        let dearest = self.transactions.iter().map(cost).max().unwrap_or_default();
        dearest.saturating_add(self.relay.map_or(0, |relay| relay.l1_fee_wei))
    }
}

/// A nonce that may still end a pending relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsettled {
    /// A nonce in flight.
    InFlight,
    /// A nonce that was given up, and none in flight.
    GivenUp,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GWEI: u128 = 1_000_000_000;

    fn signed(max_fee: u128, gas_limit: u64, purpose: TransactionPurpose) -> SignedTransaction {
        let fees = Fees { max_fee, tip: GWEI };
        SignedTransaction { hash: B256::ZERO, raw: Bytes::new(), fees, gas_limit, purpose }
    }

    fn assignment(expected_gas: Option<u64>) -> NonceAssignment {
        let relay = RelayTerms { l1_fee_wei: 7, expected_gas, ..RelayTerms::default() };
        let transactions = vec![
            signed(2 * GWEI, 2_000_000, TransactionPurpose::Relay),
            signed(4 * GWEI, 2_000_000, TransactionPurpose::Relay),
            signed(9 * GWEI, 21_000, TransactionPurpose::Expired),
        ];
        NonceAssignment { nonce: 7, relay: Some(relay), transactions }
    }

    #[test]
    fn the_dearest_transaction_counts_by_the_gas_that_is_expected() {
        // The no-op uses all of its gas; the gas limit counts where no more is known.
        for (expected, wei) in
            [(Some(100_000), 400_000 * GWEI), (Some(30_000), 189_000 * GWEI), (None, 8_000_000 * GWEI)]
        {
            assert_eq!(assignment(expected).expected_wei(), wei + 7);
        }
        let gap = NonceAssignment { relay: None, ..assignment(None) };
        assert_eq!(gap.expected_wei(), 8_000_000 * GWEI);
    }
}
