//! Relays, transactions and outcomes that the suites share, each known by a number.

use alloy::primitives::keccak256;
use relayer_daemon::outcome::ErrorCode;
use relayer_daemon::store::TransactionPurpose;

use crate::prelude::*;

pub(crate) const NOW: u64 = 1_700_000_000;
pub(crate) const DAY: u64 = 24 * 60 * 60;
/// The account that pays.
pub(crate) const ACCOUNT: Address = Address::repeat_byte(0xaa);

pub(crate) fn id(number: u64) -> B256 {
    keccak256(number.to_be_bytes())
}

/// Returns the block with this number, of the branch that stays.
pub(crate) fn at(number: u64) -> BlockId {
    BlockId { number, hash: id(number) }
}

pub(crate) fn relay(number: u64) -> NewRelay {
    NewRelay {
        id: id(number),
        signer: Address::from_word(id(number)),
        forward_nonce: U256::MAX,
        deadline: u64::from(u32::MAX),
        calldata: number.to_be_bytes().into(),
        client: None,
    }
}

pub(crate) fn transaction(number: u64, purpose: TransactionPurpose) -> SignedTransaction {
    let fees = Fees { max_fee: u128::MAX, tip: 1 };
    SignedTransaction {
        hash: id(number),
        raw: number.to_be_bytes().into(),
        fees,
        gas_limit: u64::MAX,
        purpose,
    }
}

/// Returns a transaction that may cost this much.
pub(crate) fn costing(wei: u64, number: u64) -> SignedTransaction {
    SignedTransaction { fees: Fees { max_fee: 1, tip: 1 }, gas_limit: wei, ..transaction(number, Relay) }
}

/// Returns a relay's transaction, or a gap's, with its nonce.
pub(crate) fn signed(nonce: u64, relay: Option<u64>, number: u64) -> NewTransaction {
    NewTransaction { nonce, relay: relay.map(id), transaction: transaction(number, Relay) }
}

pub(crate) fn sign(store: &Store, nonce: u64, relay: Option<u64>, transaction: SignedTransaction) {
    store.record(ACCOUNT, &[NewTransaction { nonce, relay: relay.map(id), transaction }], NOW).unwrap();
}

pub(crate) fn executed(number: u64) -> RelayOutcome {
    let mined = MinedTransaction { tx_hash: id(number), block_number: 9, gas_used: 21_000 };
    RelayOutcome::Executed { mined, agent_id: Some(U256::from(number)) }
}

pub(crate) fn dropped(code: ErrorCode) -> RelayOutcome {
    RelayOutcome::Dropped { failure: Failure::of(code) }
}

/// Returns a nonce's settlement by the transaction with this number, in block 9 for 1 wei.
pub(crate) fn settlement(
    store: &Store,
    account: Address,
    nonce: u64,
    number: u64,
    outcome: Option<RelayOutcome>,
) -> Settlement {
    Settlement {
        assignment: store.assignment(account, nonce).unwrap(),
        inclusion: Inclusion { tx_hash: id(number), block: at(9) },
        paid_wei: 1,
        outcome,
    }
}

/// Records that the transaction with this number used a nonce of the account; returns the end of its relay.
pub(crate) fn settle(
    store: &Store,
    nonce: u64,
    number: u64,
    paid_wei: u128,
    outcome: Option<RelayOutcome>,
) -> Option<RelayOutcome> {
    let settlement = Settlement { paid_wei, ..settlement(store, ACCOUNT, nonce, number, outcome) };
    store.settle(ACCOUNT, &settlement, NOW).unwrap()
}

pub(crate) fn outcome(store: &Store, number: u64) -> Option<RelayOutcome> {
    store.relay(id(number)).unwrap().unwrap().outcome
}
