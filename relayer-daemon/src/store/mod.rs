//! What the daemon must still know after it was killed at any moment: relays, nonces with their signed
//! transactions, and the budget.
//!
//! [`Store`] has the operations, each one whole or not at all; [`sqlite`] is the engine. A signed transaction is
//! written before any byte of it goes to the network, replacements too, and the budget changes together with the
//! relay that uses it. What to do with all this is decided by the pipeline and the sender.

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

/// Something is wrong with the store: nothing may be sent until that is mended.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The engine failed: disk full, file locked, no permission.
    #[error("journal: {0}")]
    Engine(String),
    /// A value that this program never writes.
    #[error("journal: column {0} holds a value that was never written there")]
    Corrupt(&'static str),
    /// What the operation is about is not there.
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
    /// The disk did not take it.
    #[error("journal: not committed")]
    NotCommitted,
    /// The task that was writing died.
    #[error("journal: a write was interrupted")]
    Interrupted,
}

/// Whose store it is. A store never follows its owner to another chain; the key may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// Hash of the chain's block 0: two local chains share an id. `None` where the node has pruned it, which matches
    /// any: chains old enough to be pruned have ids of their own.
    pub genesis: Option<B256>,
    /// The forwarder whose requests are relayed: their digests are the relays' ids.
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
    /// The call of `execute(request, signature)`: all that is needed to start over.
    pub calldata: Bytes,
    /// Who sent it, as limits count clients: an IPv4 address or an IPv6 /64. `None` where that is not known.
    pub client: Option<IpAddr>,
}

/// What acceptance found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The relay is stored and pending.
    Pending,
    /// It was carried out before; nothing was changed.
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
    /// All together, wei: gas at its fees, and the L1 data fee.
    pub wei: u128,
    /// The gas it is expected to use, margin included.
    pub gas: u64,
    /// The L1 data fee in it, wei.
    pub l1_fee_wei: u128,
    /// What has to fit beside it, wei: a no-op at the same fees. What fills a gap is never kept waiting by the reservations
    /// of those who wait for it.
    pub no_op_wei: u128,
}

/// What became of an attempt to reserve something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Why it was denied, if so.
    pub denial: Option<Denial>,
    /// The budget afterwards.
    pub budget: Budget,
}

/// A transaction that is signed and not yet sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTransaction {
    /// Its nonce.
    pub nonce: u64,
    /// The relay that the nonce is for; `None` for a gap.
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
    /// What was mined, and where.
    pub inclusion: Inclusion,
}

/// What mining a nonce meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The nonce, as the sender knows it.
    pub assignment: NonceAssignment,
    /// What was mined, and where.
    pub inclusion: Inclusion,
    /// What was really paid, wei.
    pub paid_wei: u128,
    /// How the nonce's relay ended; `None` for a gap.
    pub outcome: Option<RelayOutcome>,
}

/// The operations of a store. Each is atomic, and durable when it returns. They block: async code goes through
/// `run`. Times are unix seconds. `account` is the address that pays: nonces are counted for each by itself.
///
/// # Errors
/// Every operation returns [`StoreError`]; then it has changed nothing.
pub trait Store: std::fmt::Debug + Send + Sync + 'static {
    /// Confirms that this is the store of `identity`, or nobody's yet. Fails with [`StoreError::Foreign`].
    fn verify(&self, identity: &Identity) -> Result<(), StoreError>;

    /// Makes this the store of `identity`, for good. Fails with [`StoreError::Foreign`].
    fn bind(&self, identity: &Identity) -> Result<(), StoreError>;

    /// Writes something that changes nothing, to learn whether writing works.
    fn probe(&self) -> Result<(), StoreError>;

    /// Writes an accepted relay. One that was dropped starts afresh; one that was carried out stays as it is.
    fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, StoreError>;

    /// Sets what a relay in flight may cost, in place of what was reserved for it before, if the budget allows the
    /// difference. Returns whether it does.
    fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError>;

    /// Whether the budget and the shares of all who answer for a request would allow `wei` more.
    fn affordable(
        &self,
        signer: Address,
        client: Option<IpAddr>,
        wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError>;

    /// Sets what a pending relay may cost, in place of what was reserved for it before, if the budget and the shares
    /// of its signer, client and network allow that.
    fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError>;

    /// Ends a pending relay for which nothing was mined, and gives its reservation back. One that has ended, since the
    /// receipt of a nonce taken for lost turned up, stays as it is.
    fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError>;

    /// What is known of a relay.
    fn relay(&self, id: B256) -> Result<Option<RelayRecord>, StoreError>;

    /// A relay as it was accepted, to start over with.
    fn accepted(&self, id: B256) -> Result<Option<NewRelay>, StoreError>;

    /// Relays that are pending and have no nonce in flight: accepted, but the daemon died before signing for them.
    /// What was reserved for them is given back; they are to run through the pipeline again.
    fn unsent(&self, now: u64) -> Result<Vec<NewRelay>, StoreError>;

    /// The budget as it stands at `now`.
    fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget, StoreError>;

    /// When the oldest pending relay was accepted.
    fn oldest_pending(&self) -> Result<Option<u64>, StoreError>;

    /// One small step of forgetting: relays that never came to a transaction go a day after their end; others are
    /// archived, and later forgotten, as `retention` says. [`Store::relay`] and [`Store::accept`] know archived ones;
    /// the nonces of those are gone, except the newest of each account. Returns how many rows it took; 0 means that
    /// nothing is due.
    fn prune(&self, retention: &Retention, now: u64) -> Result<usize, StoreError>;

    /// The highest nonce that was mined and is gone since its relay was archived: what is not above it is no gap.
    fn archived_nonce(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// Writes signed transactions, and with a nonce's first one its assignment: all of them or none. Must return
    /// before any byte of them goes to the network; where it fails, none of them may be sent.
    fn record(&self, account: Address, transactions: &[NewTransaction], now: u64) -> Result<(), StoreError>;

    /// The same for a no-op that fills a gap, which may cost `extra_wei` more than what is recorded of that, if the budget allows it.
    /// Returns whether it does; where not, nothing is written.
    fn record_gap(
        &self,
        account: Address,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError>;

    /// One more than the highest nonce ever given away; `None` if none was.
    fn next_nonce(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// The nonces that were not seen mined, lowest first.
    fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>, StoreError>;

    /// The accounts that have nonces not seen mined.
    fn accounts_with_open_nonces(&self) -> Result<Vec<Address>, StoreError>;

    /// Everything ever signed for a nonce, whatever became of it.
    fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment, StoreError>;

    /// A nonce that was seen mined; `None` if it was not, or was undone since.
    fn mined(&self, account: Address, nonce: u64) -> Result<Option<MinedNonce>, StoreError>;

    /// The nonces seen mined since `since`, lowest first.
    fn mined_since(&self, account: Address, since: u64) -> Result<Vec<u64>, StoreError>;

    /// The newest nonces that were given up as lost, a bounded number: their receipts may turn up after all.
    fn lost(&self, account: Address) -> Result<Vec<u64>, StoreError>;

    /// The highest nonce seen mined by us.
    fn highest_mined(&self, account: Address) -> Result<Option<u64>, StoreError>;

    /// A nonce was mined by one of ours: ends its relay and charges the budget what was really paid, in place of
    /// what was reserved. A nonce or relay that is not stored (a disk or a backup has lost it) is written anew from
    /// the settlement, and the log says so.
    fn settle(&self, account: Address, settlement: &Settlement, now: u64) -> Result<(), StoreError>;

    /// A reorganisation took a mined nonce back: it is open again, its relay pending, and what it may still cost
    /// above what it was charged is reserved, even beyond the limit: it cannot be called back. A relay that another
    /// nonce of its own has executed stays as it is. Returns whether the nonce's relay is pending now.
    fn reopen(&self, account: Address, nonce: u64, expected_wei: u128) -> Result<bool, StoreError>;

    /// Somebody else's transaction was mined with this nonce: ours can never be.
    fn lose(&self, account: Address, nonce: u64) -> Result<(), StoreError>;

    /// Whether the nonces from `from` to below `to` are all ours: what explains pending transactions of the account.
    fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool, StoreError>;
}

impl dyn Store {
    /// Runs a closure on the store without holding up the async runtime.
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
