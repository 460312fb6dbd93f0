// The cost of a relay: the messages to the database, and those of them that are waited for.

use super::Postgres;
use crate::prelude::*;
use relayer_daemon::outcome::{BlockHeads, Finality};
use relayer_daemon::store::{DaemonId, NonceAssignment, Payer, RelayTerms};
/// Runs a step of all relays at the same time, as of relays that have come together.
fn together(relays: std::ops::Range<u64>, step: impl Fn(u64) + Sync) {
    thread::scope(|scope| relays.for_each(|number| drop(scope.spawn({ let step = &step; move || step(number) }))));
}

/// `cargo all-test --test store messages -- --nocapture` prints the numbers.
#[test]
fn a_relay_of_a_fleet_takes_few_messages_to_the_database() {
    const RELAYS: u64 = 40;
    let server = Postgres::start(&["fsync=off"]);
    let (url, passed) = server.behind_a_network(&server.schema(), Duration::from_millis(1));
    let store = Store::connect(&url).unwrap().of_daemon(DaemonId("a".into()));
    store.beat(&[ACCOUNT], false, None).unwrap();
    let payer = Payer { account: ACCOUNT, epoch: Some(1) };
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: u128::MAX / 2, shares };
    let cost = ExpectedCost { wei: 9, gas: 9, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    let request = |number| NewRelay { client: Some("192.0.2.1".parse().unwrap()), ..relay(number) };
    let carry_out = |relays: std::ops::Range<u64>| {
        together(relays.clone(), |number| {
            let relay = request(number);
            store.charge_rate("ip 192.0.2.1".to_owned(), 1_000_000).unwrap().unwrap();
            assert_eq!(store.look_up(&relay, 1, 1, &allowance, NOW).unwrap().0, None);
            store.charge_rate(format!("signer {}", relay.signer), 10).unwrap().unwrap();
            assert_eq!(store.accept(&relay, NOW).unwrap(), Accepted::Pending);
            store.ahead_of(&relay).unwrap();
            assert_eq!(store.reserve_share(relay.id, &cost, &allowance, NOW).unwrap().denial, None);
        });
        let ids: Vec<B256> = relays.clone().map(id).collect();
        let first = store.sendable(ACCOUNT, &ids).unwrap().1.unwrap_or_default();
        let sent: Vec<NewTransaction> =
            relays.clone().zip(first..).map(|(number, nonce)| signed(nonce, Some(number), number)).collect();
        store.record(payer, &sent, NOW).unwrap();
        together(relays.clone(), |number| {
            let terms = RelayTerms { id: id(number), signer: relay(number).signer, ..RelayTerms::default() };
            let nonce = first + number - relays.start;
            let transactions = vec![transaction(number, Relay)];
            let assignment = NonceAssignment { nonce, relay: Some(terms), transactions };
            let inclusion = Inclusion { tx_hash: id(number), block: at(9) };
            let mined = Settlement { assignment, inclusion, paid_wei: 1, outcome: Some(executed(number)) };
            assert!(store.settle(payer, &mined, NOW).unwrap().is_some());
        });
    };
    let mut next = 0;
    for (group, most, most_waits) in [(1, 14.0, 10.0), (8, 12.0, 8.0)] {
        let mut of_one_group = || {
            let before = passed.counts();
            carry_out(next..next + group);
            next += group;
            let after = passed.counts();
            [0, 1].map(|index| (after[index] - before[index]) as f64 / group as f64)
        };
        // Each connection prepares its statements once.
        for _ in 0..RELAYS / group {
            of_one_group();
        }
        let counted: Vec<[f64; 2]> = (0..RELAYS / group).map(|_| of_one_group()).collect();
        // The median: on a busy machine a statement may be answered before the next one, which does not
        // wait for it, has come to the proxy, and then counts as one that waited.
        let [messages, waits] = [0, 1].map(|index| {
            let mut each: Vec<f64> = counted.iter().map(|counts| counts[index]).collect();
            each.sort_by(f64::total_cmp);
            each[each.len() / 2]
        });
        println!("{group} at a time: {messages:.1} messages a relay, {waits:.1} of them waited for");
        assert!(messages <= most && waits <= most_waits, "{group}: {messages} messages, {waits} waits");
    }
}

#[test]
fn blocks_become_final_in_as_many_messages_however_many_they_are() {
    let server = Postgres::start(&["fsync=off"]);
    let (url, passed) = server.behind_a_network(&server.schema(), Duration::ZERO);
    let store = Store::connect(&url).unwrap().of_daemon(DaemonId("a".into()));
    store.beat(&[ACCOUNT], false, None).unwrap();
    let payer = Payer { account: ACCOUNT, epoch: Some(1) };
    let heads = BlockHeads { safe: 200, finalized: 100, seconds: 0 };
    // The last ones become safe.
    let counts = [50..51, 51..52, 52..84, 101..102, 102..134].map(|numbers: std::ops::Range<u64>| {
        for number in numbers.clone() {
            store.accept(&relay(number), NOW).unwrap();
            store.record(payer, &[signed(number, Some(number), number)], NOW).unwrap();
            let inclusion = Inclusion { tx_hash: id(number), block: at(number) };
            let mined = settlement(&store, ACCOUNT, number, number, Some(executed(number)));
            store.settle(payer, &Settlement { inclusion, ..mined }, NOW).unwrap().unwrap();
        }
        let before = passed.counts()[0];
        let blocks = store.unchecked_blocks(ACCOUNT, 64).unwrap();
        assert_eq!(blocks, numbers.clone().map(at).collect::<Vec<_>>());
        store.checked(payer, &blocks).unwrap();
        assert_eq!(store.promotable(ACCOUNT, &heads, NOW, 64).unwrap(), blocks);
        store.promote(payer, &heads, &blocks, NOW).unwrap();
        assert_eq!(store.promotable(ACCOUNT, &heads, NOW, 64).unwrap(), []);
        let messages = passed.counts()[0] - before;
        let expected = if numbers.start > 100 { Finality::Safe } else { Finality::Finalized };
        for number in numbers {
            assert_eq!(store.relay(id(number)).unwrap().unwrap().finality, Some(expected));
        }
        messages
    });
    // The first ones prepare the connections' statements.
    assert_eq!(counts[1..3], [counts[1]; 2], "{counts:?}");
    assert_eq!(counts[3..], [counts[3]; 2], "{counts:?}");
}
