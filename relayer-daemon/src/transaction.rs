//! The transactions of the account that pays, in the terms that the sender and the store share: what was signed, for
//! which nonce, and for which relay.

use alloy::primitives::{Address, B256, Bytes, U256};

use crate::fees::Fees;

/// Why a transaction exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Executes a relay.
    Relay,
    /// A no-op in place of a relay that somebody else has executed.
    Superseded,
    /// A no-op in place of a relay whose deadline passed.
    Expired,
    /// A no-op in place of a transaction that every node called invalid.
    Rejected,
    /// A no-op that fills a gap in front of our transactions.
    Gap,
}

impl Purpose {
    /// Every purpose.
    pub const ALL: [Self; 5] = [Self::Relay, Self::Superseded, Self::Expired, Self::Rejected, Self::Gap];

    /// Its name in the store and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relay => "relay",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Gap => "gap",
        }
    }

    /// The purpose of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.name() == name)
    }
}

/// A signed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTransaction {
    /// Its hash.
    pub hash: B256,
    /// The bytes that go to the network, EIP-2718.
    pub raw: Bytes,
    /// What it offers.
    pub fees: Fees,
    /// Its gas limit.
    pub gas_limit: u64,
    /// What it is for.
    pub purpose: Purpose,
}

impl SignedTransaction {
    /// The most that it can cost on the chain itself, wei; an L1 data fee comes on top.
    #[must_use]
    pub const fn worst_case(&self) -> u128 {
        self.fees.worst_case(self.gas_limit)
    }
}

/// What must be known of a relay to look after its transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayTerms {
    /// The EIP-712 digest of the request.
    pub id: B256,
    /// `request.from`.
    pub signer: Address,
    /// `request.nonce`.
    pub forward_nonce: U256,
    /// `request.deadline`, unix seconds, 0 for none.
    pub deadline: u64,
    /// What the L1 data fee may come to, wei; 0 on chains without one.
    pub l1_fee_wei: u128,
}

/// A nonce of the account, what it was assigned for, and all that was signed for it.
///
/// An assigned nonce ends only by being mined: by a transaction of its relay, by a no-op of ours, or by a
/// transaction of somebody else who holds the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NonceAssignment {
    /// The nonce.
    pub nonce: u64,
    /// The relay it was assigned for; `None` for a gap.
    pub relay: Option<RelayTerms>,
    /// What was signed for it, oldest first.
    pub transactions: Vec<SignedTransaction>,
}

impl NonceAssignment {
    /// The transaction that counts now.
    #[must_use]
    pub fn latest(&self) -> Option<&SignedTransaction> {
        self.transactions.last()
    }
}
