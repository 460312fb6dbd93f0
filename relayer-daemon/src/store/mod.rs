//! What must survive a kill at any moment: relays, nonces with their signed transactions, and the budget.
//!
//! [`Store`] has the operations, each of them atomic; [`sqlite`] is the engine. Every signed transaction, replacements
//! included, is written before it is sent, and the budget changes together with the relay that uses it. The pipeline
//! and the sender make the decisions.

pub mod files;
pub mod retention;
pub mod sqlite;
mod transaction;

use std::{net::IpAddr, sync::Arc};

use alloy::primitives::{Address, B256, Bytes, U256};
use thiserror::Error;

pub use retention::Retention;
pub use sqlite::SqliteStore;
pub use transaction::{NonceAssignment, RelayTerms, SignedTransaction, TransactionPurpose};

use crate::{
    budget::{
        Budget,
        share::{Allowance, Denial},
    },
    outcome::RelayOutcome,
};

/// The store failed: nothing may be sent until it works again.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The engine failed: disk full, file locked, no permission.
    #[error("journal: {0}")]
    Engine(String),
    /// A value that this program never writes.
    #[error("journal: column {0} holds a value that was never written there")]
    Corrupt(&'static str),
    /// The subject of the operation is not stored.
    #[error("journal: {0} is not there")]
    Missing(&'static str),
    /// It was written for another chain or forwarder.
    #[error("journal belongs to another {0}: give this one a data directory of its own")]
    Foreign(&'static str),
    /// The file has another format.
    #[error(
        "journal {file} has schema version {found}, this program reads {known} only: \
         move the file away or set another data directory"
    )]
    Format {
        /// The file.
        file: String,
        /// The file's version.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// It was opened for reading only.
    #[error("journal was opened for reading only")]
    ReadOnly,
    /// The commit failed.
    #[error("journal: not committed")]
    NotCommitted,
    /// The writing task died.
    #[error("journal: a write was interrupted")]
    Interrupted,
}

/// The owner of a store: a chain and a forwarder. The key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// Hash of the chain's block 0, since two local chains may share an id. `None` where the node has pruned it, which
    /// matches any: a chain old enough to be pruned has a unique id.
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
    /// The client, as limits count clients: an IPv4 address or an IPv6 /64. `None` where it is not known.
    pub client: Option<IpAddr>,
}

/// The result of accepting a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The relay is stored and pending.
    Pending,
    /// It was carried out before; nothing changed.
    Finished(RelayOutcome),
}

/// What is known of a relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayRecord {
    /// `None` while pending.
    pub outcome: Option<RelayOutcome>,
    /// Every transaction tried for it, oldest first.
    pub hashes: Vec<B256>,
}

/// What a relay is expected to cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedCost {
    /// The total, wei: gas at its fees, and the L1 data fee.
    pub wei: u128,
    /// The gas it is expected to use, margin included.
    pub gas: u64,
    /// The L1 data fee within the total, wei.
    pub l1_fee_wei: u128,
    /// A no-op at the same fees, wei, which must fit beside it: relays that wait for a gap never reserve what filling
    /// the gap needs.
    pub no_op_wei: u128,
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Why it was denied, if so.
    pub denial: Option<Denial>,
    /// The budget afterwards.
    pub budget: Budget,
}

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

/// Where a transaction was mined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inclusion {
    /// The transaction.
    pub tx_hash: B256,
    /// The block it was seen in.
    pub block_number: u64,
}

/// A nonce that was mined by one of our transactions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinedNonce {
    /// The nonce with all that was signed for it.
    pub assignment: NonceAssignment,
    /// The mined transaction and its block.
    pub inclusion: Inclusion,
}

/// What a mined nonce cost, and how its relay ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The nonce, as the sender knows it.
    pub assignment: NonceAssignment,
    /// The mined transaction and its block.
    pub inclusion: Inclusion,
    /// The price paid, wei.
    pub paid_wei: u128,
    /// How the nonce's relay ended; `None` for a gap.
    pub outcome: Option<RelayOutcome>,
}

/// The operations of a store. Each is atomic, and durable when it returns. They block: async code uses `run`. Times are
/// unix seconds. `account` is the paying address; each has its own nonces.
///
/// # Errors
/// [`StoreError`] from every operation, which then has changed nothing.
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// Confirms that `identity` owns this store, or nothing owns it yet. Fails with [`StoreError::Foreign`].
    fn verify(&self, identity: &Identity) -> Result<(), StoreError>;

    /// Makes `identity` the owner of this store for good. Fails with [`StoreError::Foreign`].
    fn bind(&self, identity: &Identity) -> Result<(), StoreError>;

    /// A write without effect, to learn whether writing works.
    fn probe(&self) -> Result<(), StoreError>;

    /// Writes an accepted relay. A dropped one starts afresh; one that was carried out stays as it is.
    fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, StoreError>;

    /// Replaces the reservation of a relay in flight if the budget allows the difference. Returns whether it does.
    fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError>;

    /// Whether the budget and the shares of the request's parties would allow `wei` more.
    fn affordable(
        &self,
        signer: Address,
        client: Option<IpAddr>,
        wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError>;

    /// Replaces the reservation of a pending relay if the budget and the shares of its signer, client and network allow
    /// that.
    fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError>;

    /// Ends a pending relay for which nothing was mined, and gives its reservation back. A relay that has ended by the
    /// late receipt of a nonce given up as lost stays as it is.
    fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError>;

    /// What is known of a relay.
    fn relay(&self, id: B256) -> Result<Option<RelayRecord>, StoreError>;

    /// A relay as it was accepted, to run it again.
    fn accepted(&self, id: B256) -> Result<Option<NewRelay>, StoreError>;

    /// Pending relays without a nonce in flight: the daemon died between accepting and signing. Gives their reservations
    /// back; they must run through the pipeline again.
    fn unsent(&self, now: u64) -> Result<Vec<NewRelay>, StoreError>;

    /// The budget as it stands at `now`.
    fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget, StoreError>;

    /// When the oldest pending relay was accepted.
    fn oldest_pending(&self) -> Result<Option<u64>, StoreError>;

    /// One small step of pruning: relays without any transaction go a day after their end; others are archived, and
    /// later deleted, as `retention` says. [`Store::relay`] and [`Store::accept`] know archived relays; their nonces are
    /// gone, except the newest of each account. Returns the number of pruned rows; 0 means that nothing is due.
    fn prune(&self, retention: &Retention, now: u64) -> Result<usize, StoreError>;

    /// The highest nonce deleted with its archived relay: no nonce up to it is a gap.
    fn archived_nonce(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. It must return
    /// before any of them is sent; if it fails, none of them may be sent.
    fn record(&self, account: Address, transactions: &[NewTransaction], now: u64) -> Result<(), StoreError>;

    /// Writes a no-op that fills a gap, and may cost `extra_wei` more than the gap's earlier no-ops, if the budget allows
    /// that. Returns whether it does; if not, nothing is written.
    fn record_gap(
        &self,
        account: Address,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError>;

    /// One more than the highest nonce ever assigned; `None` if none was.
    fn next_nonce(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// The nonces not seen mined, lowest first.
    fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>, StoreError>;

    /// The accounts with nonces not seen mined.
    fn accounts_with_open_nonces(&self) -> Result<Vec<Address>, StoreError>;

    /// Everything ever signed for a nonce.
    fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment, StoreError>;

    /// A nonce that was seen mined; `None` if it was not, or a reorg undid it.
    fn mined(&self, account: Address, nonce: u64) -> Result<Option<MinedNonce>, StoreError>;

    /// The nonces seen mined since `since`, lowest first.
    fn mined_since(&self, account: Address, since: u64) -> Result<Vec<u64>, StoreError>;

    /// The newest nonces given up as lost, a bounded number: their receipts may be late.
    fn lost(&self, account: Address) -> Result<Vec<u64>, StoreError>;

    /// The highest nonce seen mined.
    fn highest_mined(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// Settles a nonce mined by our transaction: ends its relay, and charges the budget the price paid in place of the
    /// reservation. A nonce or relay that is missing (lost by a disk or a backup) is written anew from the settlement,
    /// and the log says so.
    fn settle(&self, account: Address, settlement: &Settlement, now: u64) -> Result<(), StoreError>;

    /// Reopens a mined nonce that a reorg undid: its relay is pending again, and its expected cost above what it was
    /// charged is reserved, even beyond the limit, because it cannot be called back. A relay that another nonce of its
    /// own has executed stays as it is. Returns whether the nonce's relay is pending now.
    fn reopen(&self, account: Address, nonce: u64, expected_wei: u128) -> Result<bool, StoreError>;

    /// Marks a nonce as used by a foreign transaction: ours can never be mined.
    fn lose(&self, account: Address, nonce: u64) -> Result<(), StoreError>;

    /// Whether all nonces from `from` to below `to` are ours, which explains the account's pending transactions.
    fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool, StoreError>;
}

impl dyn Store {
    /// Runs a closure on the store without blocking the async runtime.
    ///
    /// # Errors
    /// The closure's, or [`StoreError::Interrupted`].
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&*store)).await.map_err(|_| StoreError::Interrupted)?
    }
}
