//! Relays as pipeline and sender leave them, with calldata and transactions of real size.

use std::ops::Range;

use alloy::primitives::Bytes;
use alloy::primitives::aliases::U48;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall as _;
use futures_util::FutureExt as _;
use registry_core::eth::abi::{ForwardRequest, IForwarder};
use relayer_daemon::sender::signing::Wallet;

use crate::prelude::*;

/// The newest nonces, which stay whole.
pub(crate) const NEWEST: u64 = 256;

/// A registration with a name, a link and a short description: its calldata and its transaction.
pub(crate) struct Registration(Bytes, SignedTransaction);

impl Registration {
    pub(crate) fn new() -> Self {
        let req = ForwardRequest {
            from: Address::repeat_byte(0x11),
            to: Address::repeat_byte(0x22),
            value: U256::ZERO,
            gas: U256::from(400_000),
            nonce: U256::from(3),
            deadline: U48::from(NOW),
            data: vec![0x5a; 4 + 9 * 32].into(),
        };
        let calldata =
            Bytes::from(IForwarder::executeCall { req, signature: vec![0x7b; 65].into() }.abi_encode());
        let wallet = Wallet::new(PrivateKeySigner::random(), 84_532, Address::repeat_byte(0x33));
        let fees = Fees { max_fee: 3_000_000_000, tip: 1_000_000 };
        // A local key signs at once.
        let signed = wallet.relay(1_000_000, calldata.clone(), 600_000, fees).now_or_never();
        Self(calldata, signed.unwrap().unwrap())
    }

    pub(crate) fn relay(&self, number: u64) -> NewRelay {
        let client = Some("2001:db8:1:1::".parse().unwrap());
        let forward_nonce = U256::from(number);
        NewRelay { forward_nonce, deadline: NOW + DAY, calldata: self.0.clone(), client, ..relay(number) }
    }

    /// Records the transaction with this number as signed for a nonce.
    pub(crate) fn sign(&self, store: &Store, nonce: u64, relay: Option<u64>, number: u64) {
        let transaction = SignedTransaction { hash: id(number), ..self.1.clone() };
        sign(store, nonce, relay, transaction);
    }

    /// Accepts, reserves, signs, and settles a relay at `now`, as pipeline and sender do.
    fn carry_out(&self, store: &Store, number: u64, now: u64) {
        let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
        let allowance = Allowance { limit_wei: u128::MAX / 2, shares };
        assert_eq!(store.accept(&self.relay(number), now).unwrap(), Accepted::Pending);
        let wei = 1_000_000_000_000_000;
        let cost = ExpectedCost { wei, gas: 270_000, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
        store.reserve_share(id(number), &cost, &allowance, now).unwrap();
        self.sign(store, number, Some(number), number);
        settle(store, number, number, Some(executed(number)), now);
    }
}

pub(crate) fn settle(store: &Store, nonce: u64, number: u64, outcome: Option<RelayOutcome>, now: u64) {
    let inclusion = Inclusion { tx_hash: id(number), block: at(30_000_000 + number) };
    let mined = settlement(store, ACCOUNT, nonce, number, outcome);
    store.settle(ACCOUNT, &Settlement { inclusion, paid_wei: 271_828_182_845, ..mined }, now).unwrap();
}

pub(crate) fn carry_out(store: &Store, numbers: Range<u64>, now: u64) {
    let registration = Registration::new();
    numbers.for_each(|number| registration.carry_out(store, number, now));
}

/// Carries out many relays at `now`, side by side, so that they share commits.
pub(crate) fn carry_out_side_by_side(store: &Store, numbers: &Range<u64>, now: u64) {
    let registration = Registration::new();
    thread::scope(|threads| {
        for first in 0..64 {
            let (registration, numbers) = (&registration, numbers.clone());
            threads.spawn(move || {
                numbers.skip(first).step_by(64).for_each(|number| registration.carry_out(store, number, now));
            });
        }
    });
}
