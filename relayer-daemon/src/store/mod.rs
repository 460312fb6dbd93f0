//! The state that survives a kill at any moment: relays, nonces with their signed transactions, and the
//! budget.
//!
//! [`Store`] has the operations, each of them atomic, over SQLite or, for several daemons, Postgres. Every
//! signed transaction, replacements included, is written before it is sent, and the budget changes together
//! with the relay that uses it. The pipeline and the sender make the decisions.

mod account_state;
pub mod control;
pub mod events;
pub mod files;
pub mod fleet;
pub mod migration;
pub mod retention;
mod sql;
pub mod stats;
mod transaction;

use std::net::IpAddr;

use alloy::primitives::{Address, B256, Bytes, U256};
use thiserror::Error;

pub use account_state::AccountState;
pub use fleet::{DaemonId, Payer};
pub use retention::Retention;
pub use sql::{Store, StoreFaults};
pub use transaction::{NonceAssignment, RelayTerms, SignedTransaction, TransactionPurpose, Unsettled};

use crate::{
    budget::{Budget, share::Denial},
    outcome::{ErrorCode, Failure, Finality, RelayOutcome},
};

/// The store failed: nothing may be sent until it works again.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The engine failed: disk full, file locked, no permission.
    #[error("journal: {0}")]
    Engine(String),
    /// The database does not answer.
    #[error("journal: the database does not answer: {0}")]
    Unreachable(String),
    /// Another write held a row for too long: nothing was written.
    #[error("journal: another write held a row for too long")]
    Locked,
    /// Another daemon of the fleet has the account by now.
    #[error("journal: another daemon holds the account")]
    Fenced,
    /// Another daemon of the fleet runs the relay, or may take it.
    #[error("journal: another daemon runs the relay")]
    HeldElsewhere,
    /// A value that this program never writes.
    #[error("journal: column {0} holds a value that was never written there")]
    Corrupt(&'static str),
    /// The subject of the operation is not stored.
    #[error("journal: {0} is not there")]
    Missing(&'static str),
    /// A relay was given a nonce while another one of its nonces is in flight, or one of another request with
    /// its signer and forwarder nonce, or while that request has used the forwarder nonce.
    #[error("journal: the relay, or another with its forwarder nonce, has a nonce in flight")]
    InFlight,
    /// Another request has used the relay's forwarder nonce.
    #[error("journal: another request has used the relay's forwarder nonce")]
    NonceUsed,
    /// The journal was written for another chain or forwarder.
    #[error("journal belongs to another {0}: give this one a data directory of its own")]
    Foreign(&'static str),
    /// The file has another format.
    #[error(
        "journal {file} has schema version {found}, this program reads {oldest} to {known}: \
         move the file away or set another data directory"
    )]
    Format {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The oldest version that this program reads.
        oldest: u32,
        /// The version that this program writes.
        known: u32,
    },
    /// The journal has an older format, which daemons may be using.
    #[error("journal {file} has schema version {found}, this program writes {known}: start the daemon first")]
    Older {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The version that this program writes.
        known: u32,
    },
    /// The journal was opened for reading only.
    #[error("journal was opened for reading only")]
    ReadOnly,
    /// The commit failed.
    #[error("journal: not committed")]
    NotCommitted,
    /// The writing task died.
    #[error("journal: a write was interrupted")]
    Interrupted,
}

/// Result of a store operation.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::of(match error {
            StoreError::Unreachable(_)
            | StoreError::Locked
            | StoreError::Fenced
            | StoreError::HeldElsewhere => ErrorCode::StoreUnavailable,
            StoreError::NonceUsed => ErrorCode::InvalidSignatureOrNonce,
            _ => ErrorCode::JournalFailed,
        })
    }
}

/// The owner of a store: a chain and a forwarder. The key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// Hash of the chain's block 0, since two local chains may share an id. `None` where the node has pruned
    /// it, which matches any: a chain old enough to be pruned has a unique id.
    pub genesis: Option<B256>,
    /// The forwarder: the digests of its requests are the relays' ids.
    pub forwarder: Address,
}

/// A relay as it is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRelay {
    /// The EIP-712 digest.
    pub id: B256,
    /// `request.from`.
    pub signer: Address,
    /// `request.nonce`.
    pub forward_nonce: U256,
    /// `request.deadline`, unix seconds, 0 for none.
    pub deadline: u64,
    /// The call of `execute(request, signature)`: enough to run the relay again.
    pub calldata: Bytes,
    /// The client, as limits count clients: an IPv4 address or an IPv6 /64. `None` where it is not known, and
    /// a day after the relay's end.
    pub client: Option<IpAddr>,
}

/// The result of accepting a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The relay is stored and pending.
    Pending,
    /// The relay has ended for good, with this outcome; nothing changed.
    Finished(RelayOutcome),
    /// Another daemon of the fleet runs the pending relay, or may take it; nothing changed.
    Elsewhere,
}

/// The API key that sponsors a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sponsorship {
    /// The key's name.
    pub key: String,
    /// The most gas that the relay may use.
    pub gas: u64,
    /// The key's gas of the day; `None` for no limit.
    pub gas_per_day: Option<u64>,
    /// True if a webhook is told of the relay's changes.
    pub is_told: bool,
}

/// The result of accepting a relay that a key sponsors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sponsored {
    /// The key has enough gas.
    Accepted(Accepted),
    /// The key's gas of the day does not cover the relay; nothing changed. Holds the longest wait, seconds.
    Exhausted(u64),
}

/// The record of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRecord {
    /// `None` while pending.
    pub outcome: Option<RelayOutcome>,
    /// The finality of the transaction that ended it; `None` if none did.
    pub finality: Option<Finality>,
    /// Every transaction tried for it, oldest first.
    pub hashes: Vec<B256>,
}

/// The expected cost of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedCost {
    /// The total, wei: gas at its fees, and the L1 data fee.
    pub wei: u128,
    /// The gas it is expected to use, margin included.
    pub gas: u64,
    /// The L1 data fee within the total, wei.
    pub l1_fee_wei: u128,
    /// The cost of the cheapest relay at the same fees, wei.
    pub least_wei: u128,
    /// The cost of a no-op at the same fees, wei, which must fit beside the relay: relays that wait for a gap
    /// never reserve what filling the gap needs.
    pub no_op_wei: u128,
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// The reason why it was denied, if so.
    pub denial: Option<Denial>,
    /// The budget afterwards.
    pub budget: Budget,
}

/// Eligibility of a relay for a nonce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sendable {
    /// The relay waits for a nonce.
    Yes,
    /// The relay has a nonce in flight.
    InFlight,
    /// The relay has ended.
    Ended(RelayOutcome),
    /// Another request has the relay's forwarder nonce, or the relay is not stored any more.
    NotNext,
}

/// Relays with their eligibility for a nonce, and the nonce after an account's highest; `None` without one.
pub type SendableRelays = (Vec<(B256, Sendable)>, Option<u64>);

/// A signed transaction that is not sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTransaction {
    /// Its nonce.
    pub nonce: u64,
    /// The nonce's relay; `None` for a gap.
    pub relay: Option<B256>,
    /// The transaction.
    pub transaction: SignedTransaction,
}

/// The block that mined a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    /// The transaction.
    pub tx_hash: B256,
    /// The block it was seen in.
    pub block: BlockId,
}

/// A block of one branch of the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
}

/// A nonce that was mined by one of our transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinedNonce {
    /// The nonce with all that was signed for it.
    pub assignment: NonceAssignment,
    /// The mined transaction and its block.
    pub inclusion: Inclusion,
}

/// The cost of a mined nonce, and the end of its relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The nonce, as the sender knows it.
    pub assignment: NonceAssignment,
    /// The mined transaction and its block.
    pub inclusion: Inclusion,
    /// The price paid, wei.
    pub paid_wei: u128,
    /// The outcome of the nonce's relay; `None` for a gap.
    pub outcome: Option<RelayOutcome>,
}
