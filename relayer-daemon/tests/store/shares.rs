// Shares of a relay's parties in the budget: its signer, its client, and the client's network.

use super::Journal;
use crate::prelude::*;
use relayer_daemon::budget::WINDOW_SECONDS;
use relayer_daemon::budget::share::{Denial, PartyKind};
use relayer_daemon::store::TransactionPurpose::Superseded;

pub(super) const LIMIT: u128 = 1_000;
const SHARES: Shares = Shares { signer: 20, without_key: 100, client: 40, network: 60 };
pub(super) const ALLOWANCE: Allowance = Allowance { limit_wei: LIMIT, shares: SHARES };

fn from(number: u64, signer: u8, client: &str) -> NewRelay {
    let client = Some(client.parse().unwrap());
    NewRelay { signer: Address::repeat_byte(signer), client, ..relay(number) }
}

/// Reserves for a relay. Returns the denial, if there is one.
pub(super) fn reserve(store: &Store, relay: &NewRelay, wei: u128) -> Option<Denial> {
    store.accept(relay, NOW).unwrap();
    let cost = ExpectedCost { wei, gas: 1, l1_fee_wei: 0, least_wei: wei, no_op_wei: 0 };
    store.reserve_share(relay.id, &cost, &ALLOWANCE, NOW).unwrap().denial
}

#[test]
fn a_signer_a_client_and_a_network_have_a_share_each_and_a_relay_counts_for_its_last_sender() {
    let store = Journal::fresh();
    for (number, signer, client, wei, denial) in [
        (1, 1, "2001:db8:1:1::", 200, None),
        (2, 1, "192.0.2.1", 1, Some(Denial::Reserved(Some(PartyKind::Signer)))),
        (3, 3, "2001:db8:1:1::", 200, None),
        (4, 4, "2001:db8:1:1::", 1, Some(Denial::Reserved(Some(PartyKind::Client)))),
        (5, 5, "2001:db8:1:2::", 200, None),
        (6, 6, "2001:db8:1:3::", 1, Some(Denial::Reserved(Some(PartyKind::Network)))),
        (7, 7, "2001:db8:2:3::", 200, None),
        // Its own reservation is no obstacle.
        (1, 1, "2001:db8:1:1::", 200, None),
        (8, 8, "192.0.2.1", 201, Some(Denial::Reserved(None))),
    ] {
        assert_eq!(reserve(&store, &from(number, signer, client), wei), denial, "{number}");
    }

    let store = Journal::fresh();
    assert_eq!(reserve(&store, &from(1, 1, "192.0.2.1"), 400), None);
    let again = from(2, 2, "192.0.2.1");
    assert_eq!(reserve(&store, &again, 1), Some(Denial::Reserved(Some(PartyKind::Client))));
    store.finish_unsent(id(2), &dropped(RpcTimeout), NOW).unwrap();
    assert_eq!(reserve(&store, &from(2, 2, "198.51.100.1"), 1), None);
    assert_eq!(store.accepted(id(2)).unwrap().unwrap().client, Some("198.51.100.1".parse().unwrap()));
}

#[test]
fn what_is_paid_uses_up_the_share_of_a_network_whatever_signers_and_clients_it_has() {
    let store = Journal::fresh();
    for number in 1..=3 {
        let relay = from(number, number as u8, &format!("2001:db8:1:{number}::"));
        assert_eq!(reserve(&store, &relay, 200), None);
        sign(&store, number, Some(number), transaction(number, Relay));
        settle(&store, number, number, 200, Some(executed(number)));
    }
    let next = from(4, 4, "2001:db8:1:4::");
    assert_eq!(reserve(&store, &next, 1), Some(Denial::Spent(Some(PartyKind::Network))));
}

#[test]
fn a_reverted_or_overtaken_relay_costs_its_signer_what_was_paid_and_a_new_window_forgets_it() {
    let store = Journal::fresh();
    assert_eq!(reserve(&store, &from(1, 1, "192.0.2.1"), 150), None);
    sign(&store, 0, Some(1), transaction(0xa, Superseded));
    settle(&store, 0, 0xa, 150, Some(dropped(InvalidSignatureOrNonce)));
    let next = from(2, 1, "198.51.100.1");
    assert_eq!(reserve(&store, &next, 51), Some(Denial::Spent(Some(PartyKind::Signer))));
    assert_eq!(reserve(&store, &next, 50), None);
    assert!(store.reserve(id(2), 0, LIMIT, NOW).unwrap());

    let tomorrow = NOW + WINDOW_SECONDS;
    let affordable = |wei, now| store.look_up(&next, wei, wei, &ALLOWANCE, now).unwrap().1;
    assert_eq!(affordable(51, tomorrow - 1).denial, Some(Denial::Spent(Some(PartyKind::Signer))));
    assert_eq!(affordable(51, tomorrow).denial, None);
    // Signed for yesterday, mined today, and dearer than all of yesterday.
    assert_eq!(reserve(&store, &next, 50), None);
    sign(&store, 1, Some(2), transaction(0xb, Relay));
    let mined = Settlement { paid_wei: 160, ..settlement(&store, ACCOUNT, 1, 0xb, Some(executed(0xb))) };
    store.settle(ACCOUNT, &mined, tomorrow).unwrap();
    let forty = affordable(40, tomorrow);
    assert_eq!((forty.denial, forty.budget.window.settled_wei), (None, 160), "yesterday's 150 are forgotten");
    assert_eq!(affordable(51, tomorrow).denial, Some(Denial::Spent(Some(PartyKind::Signer))));
}
