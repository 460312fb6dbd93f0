// The operator's orders: each in force once, for all daemons, and journalled.

use super::{Journal, SharedStore};
use crate::prelude::*;
use relayer_daemon::outcome::ErrorCode::Cancelled;
use relayer_daemon::store::control::{DaemonReport, Effect, ExportFormat, ExportedRelay, Order};
use relayer_daemon::store::{DaemonId, Payer, Retention, Sendable};

const ALICE: &str = "alice (uid 7) at db1";

fn order(store: &Store, order: Order) -> Effect {
    store.order(order, ALICE).unwrap()
}

#[test]
fn an_order_is_in_force_until_its_opposite_a_second_one_changes_nothing_and_each_is_journalled() {
    let journal = Journal::new();
    let (account, other) = (ACCOUNT, Address::repeat_byte(7));
    let store = journal.open();
    assert_eq!(store.orders().unwrap(), Default::default());
    for (given, effect) in [
        (Order::Resume, Effect::Already),
        (Order::Pause, Effect::Done),
        (Order::Pause, Effect::Already),
        (Order::Cordon { account }, Effect::Done),
        (Order::Cordon { account }, Effect::Already),
        (Order::Cordon { account: other }, Effect::Done),
        (Order::Uncordon { account: other }, Effect::Done),
        (Order::Uncordon { account: other }, Effect::Already),
        (Order::Reload, Effect::Number(1)),
        (Order::Reload, Effect::Number(2)),
        (Order::Abandon { account }, Effect::Already),
        (Order::Keys, Effect::Done),
        (Order::Export { since: 5, format: ExportFormat::Csv }, Effect::Done),
    ] {
        assert_eq!(order(&store, given), effect, "{given:?}");
    }
    drop(store);
    let store = journal.open();
    let orders = store.orders().unwrap();
    let now = orders.paused_since.unwrap();
    assert_eq!((orders.cordoned.into_keys().collect(), orders.reload), (vec![account], 2));
    let operations = store.operations(now - 60).unwrap();
    let lines: Vec<String> =
        operations.iter().map(|it| format!("{} {}: {}", it.command, it.argument, it.result)).collect();
    assert_eq!((lines.len(), lines[1].as_str(), lines[2].as_str()), (13, "pause : done", "pause : already"));
    assert_eq!(lines[3], format!("cordon {account}: done"));
    assert!(operations.iter().all(|it| it.operator == ALICE && it.at >= now - 60));
    assert_eq!(store.last_operation().unwrap().unwrap().argument, "5");
    assert_eq!(order(&store, Order::Resume), Effect::Done);
    assert_eq!(store.orders().unwrap().paused_since, None);
}

#[test]
fn a_cancelled_relay_gets_no_nonce_and_is_not_accepted_again_and_one_that_was_sent_or_executed_says_so() {
    let store = Journal::fresh();
    (1..=3).for_each(|number| drop(store.accept(&relay(number), NOW).unwrap()));
    let cancel = |number| order(&store, Order::Cancel { relay: id(number) });
    assert_eq!(cancel(9), Effect::Unknown);
    assert_eq!((cancel(1), cancel(1)), (Effect::Cancelled, Effect::Already));
    let ended = dropped(Cancelled);
    assert_eq!(outcome(&store, 1), Some(ended.clone()));
    assert_eq!(store.sendable(ACCOUNT, &[id(1)]).unwrap().0, [(id(1), Sendable::Ended(ended.clone()))]);
    let refused = store.record(ACCOUNT, &[signed(0, Some(1), 0xa)], NOW);
    assert_eq!(refused, Err(StoreError::HeldElsewhere), "checked before it was cancelled, and signed after");
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Finished(ended));

    sign(&store, 0, Some(2), transaction(0xb, Relay));
    assert_eq!((cancel(2), cancel(2)), (Effect::Replacing, Effect::Already));
    assert_eq!(outcome(&store, 2), None, "the chain decides");
    assert!(store.orders().unwrap().cancelled.contains(&id(2)));
    settle(&store, 0, 0xb, 1, Some(executed(0xb)));
    assert_eq!(cancel(2), Effect::Ended(executed(0xb)));
}

#[test]
fn an_account_is_abandoned_once_it_is_cordoned_or_no_daemon_holds_it_and_its_relays_go_to_others() {
    let shared = SharedStore::new();
    let [one, two] = ["one", "two"].map(|id| shared.store.of_daemon(DaemonId(id.into())));
    let held = one.beat(&[ACCOUNT], false, None).unwrap().held;
    let payer: Payer = held[0].payer;
    one.accept(&relay(1), NOW).unwrap();
    one.record(payer, &[signed(0, Some(1), 0xa)], NOW).unwrap();
    let account = ACCOUNT;
    assert_eq!(order(&two, Order::Abandon { account }), Effect::Held);
    let record = &two.account_records().unwrap()[0];
    assert_eq!((record.account, record.holder.clone(), record.open_nonces), (account, Some(DaemonId("one".into())), 1));
    order(&two, Order::Cordon { account });
    assert_eq!(order(&two, Order::Abandon { account }), Effect::GivenUp(1));
    assert_eq!(one.lose(payer, 0, NOW), Err(StoreError::Fenced), "nothing goes on under the lease as it was");
    assert_eq!(one.beat(&[ACCOUNT], false, None).unwrap().held[0].payer, Payer { epoch: Some(3), ..payer });
    assert_eq!(order(&two, Order::Abandon { account }), Effect::Already);
    assert_eq!(two.sendable(ACCOUNT, &[id(1)]).unwrap().0, [(id(1), Sendable::Yes)]);
    let room = relayer_daemon::store::fleet::Room { places: 9, per_signer: 9, ..Default::default() };
    let claimed = two.claim(Default::default(), room, NOW).unwrap();
    assert_eq!(claimed.iter().map(|relay| relay.id).collect::<Vec<_>>(), [id(1)]);
}

#[test]
fn a_relay_that_loses_its_nonce_after_it_was_cancelled_gets_no_other() {
    let (shared, account) = (SharedStore::new(), ACCOUNT);
    let store = shared.store.of_daemon(DaemonId("one".into()));
    let payer = || store.beat(&[account], false, None).unwrap().held[0].payer;
    let first = payer();
    store.accept(&relay(1), NOW).unwrap();
    store.record(first, &[signed(0, Some(1), 0xa)], NOW).unwrap();
    assert_eq!(order(&store, Order::Cancel { relay: id(1) }), Effect::Replacing);
    let no_op = signed(0, Some(1), 0xb);
    assert_eq!(store.record_replacement(first, id(1), &no_op, 1, 1_000, NOW), Ok(true));
    order(&store, Order::Cordon { account });
    assert_eq!(order(&store, Order::Abandon { account }), Effect::GivenUp(1));
    let room = relayer_daemon::store::fleet::Room { places: 9, per_signer: 9, ..Default::default() };
    assert_eq!(store.claim(Default::default(), room, NOW).unwrap(), [relay(1)]);
    assert_eq!(store.record(payer(), &[signed(1, Some(1), 0xc)], NOW), Err(StoreError::HeldElsewhere));
}

#[test]
fn a_cancelled_relay_that_has_ended_stays_marked_for_a_day() {
    let shared = SharedStore::new();
    let store = shared.store.of_daemon(DaemonId("one".into()));
    let payer = store.beat(&[ACCOUNT], false, None).unwrap().held[0].payer;
    (1..=2).for_each(|number| drop(store.accept(&relay(number), NOW).unwrap()));
    store.record(payer, &[signed(0, Some(2), 0xa)], NOW).unwrap();
    for (number, effect) in [(1, Effect::Cancelled), (2, Effect::Replacing)] {
        assert_eq!(order(&store, Order::Cancel { relay: id(number) }), effect);
    }
    for (seconds, marked) in [(DAY - 60, [true, true]), (120, [false, true])] {
        shared.pass(std::time::Duration::from_secs(seconds));
        store.prune(&Retention::of_days(30), NOW).unwrap();
        let cancelled = store.orders().unwrap().cancelled;
        assert_eq!([1, 2].map(|number| cancelled.contains(&id(number))), marked, "{seconds}");
    }
}

#[test]
fn daemons_say_what_they_have_in_force() {
    let store = Journal::fresh();
    let report = |daemon: &str, policy: &str| DaemonReport {
        daemon: daemon.to_owned(),
        host: "db1".to_owned(),
        policy: policy.to_owned(),
        ..DaemonReport::default()
    };
    let said = |store: &Store| {
        store.reports().unwrap().into_iter().map(|it| (it.daemon, it.policy)).collect::<Vec<_>>()
    };
    for policy in ["old", "new"] {
        store.report(&report("a", policy)).unwrap();
        store.report(&report("b", "new")).unwrap();
    }
    assert_eq!(said(&store), [("a", "new"), ("b", "new")].map(|(id, policy)| (id.to_owned(), policy.to_owned())));
    store.withdraw_report("a").unwrap();
    assert_eq!(said(&store).len(), 1);
}

#[test]
fn relays_that_have_ended_are_written_out_once_each_with_what_they_cost() {
    let store = Journal::fresh();
    (1..=3).for_each(|number| drop(store.accept(&relay(number), NOW).unwrap()));
    sign(&store, 0, Some(1), transaction(0xa, Relay));
    settle(&store, 0, 0xa, 250, Some(executed(0xa)));
    store.finish_unsent(id(2), &dropped(RpcTimeout), NOW + 5).unwrap();
    let all = store.ended_relays(0, None).unwrap();
    let [first, second] = &all[..] else { panic!("{all:?}") };
    let expected = ExportedRelay {
        relay: id(1),
        key: None,
        signer: relay(1).signer,
        account: Some(ACCOUNT),
        tx_hash: Some(id(0xa)),
        gas_used: Some(21_000),
        paid_wei: 250,
        accepted_at: NOW,
        ended_at: NOW,
        outcome: "executed".to_owned(),
        code: None,
    };
    assert_eq!(first, &expected);
    assert_eq!((second.outcome.as_str(), second.code.as_deref()), ("dropped", Some("RPC_TIMEOUT")));
    assert_eq!(store.ended_relays(NOW + 1, None).unwrap(), std::slice::from_ref(second));
    assert_eq!(store.ended_relays(0, Some((NOW, id(1)))).unwrap(), std::slice::from_ref(second));
    assert_eq!(store.ended_relays(0, Some((NOW + 5, id(2)))).unwrap(), []);
    assert_eq!(first.csv().split(',').count(), ExportedRelay::CSV_HEADER.split(',').count());
    assert!(serde_json::to_string(first).unwrap().contains(r#""paidWei":"250""#));
}
