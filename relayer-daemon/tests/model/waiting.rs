//! The waits of relays: a request waits for the one before it, and none waits for receipts. A nonce that
//! another transaction took is counted.

use super::ops::Op::*;
use super::*;

#[test]
fn a_nonce_that_a_foreign_transaction_took_is_counted_and_its_relay_gets_another() {
    history(SINGLE, [Request(0), Wait(10), Foreign(0), Wait(600), Mine(5), Wait(20)], |simulation| {
        assert_eq!(simulation.tries(), [2], "one for each nonce");
        let metrics = simulation.living().next().unwrap().relayer.metrics.render();
        let counted = format!("relayer_foreign_nonces_total{{account=\"{}\"}} 1", simulation.account(0));
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
    });
}

#[test]
fn a_cancelled_relay_that_loses_its_nonce_to_a_foreign_transaction_is_not_sent_with_another() {
    run(SINGLE, async |simulation| {
        simulation.play([Request(0), Wait(10)]).await;
        let relay = simulation.only();
        simulation.store.order(Order::Cancel { relay }, "model").unwrap();
        simulation.follow_orders();
        simulation.play([Foreign(0), Wait(600), Mine(5), Wait(20)]).await;
        let outcome = simulation.record(relay).outcome;
        let Some(RelayOutcome::Dropped { failure }) = &outcome else { panic!("{outcome:?}") };
        assert_eq!((failure.code, simulation.given::<1>()), (ErrorCode::Cancelled, [1]));
    });
}

#[test]
fn receipts_that_do_not_come_keep_no_relay_from_being_sent() {
    let mut ops = vec![LateReceipts(250)];
    ops.extend((0..SIGNERS).map(Request));
    ops.extend([Wait(10), Mine(3), Wait(30)]);
    history(SINGLE, ops, |simulation| {
        assert_eq!(simulation.given(), [u64::from(SIGNERS)], "the count alone makes room in the pool");
    });
}

/// A daemon of a fleet takes relays that no daemon runs, also one that it admits meanwhile: it runs twice.
#[test]
fn no_client_waits_for_ever_where_one_run_drops_a_relay_that_another_has_started_again() {
    run(SINGLE, async |simulation| {
        // One run finds no funds, and drops the relay.
        simulation.play([Empty(0, true), Wait(10), Request(0), Wait(20)]).await;
        let id = simulation.only();
        let dropped = simulation.record(id).outcome;
        let Some(RelayOutcome::Dropped { failure }) = &dropped else { panic!("{dropped:?}") };
        assert_eq!(failure.code, ErrorCode::RelayerBalanceTooLow);
        // The other one was started before that, and finds some: it comes as far as the sender.
        simulation.play([Empty(0, false), Wait(10)]).await;
        let relay = simulation.store.accepted(id).unwrap().unwrap();
        simulation.living().for_each(|life| life.relayer.resume(relay.clone()));
        assert!(simulation.is_waited_for(id), "the run has not begun");
        simulation.play([Wait(20)]).await;
        assert!(!simulation.is_waited_for(id), "what comes after it waits for ever");
        assert_eq!(simulation.record(id).outcome, dropped, "what the client was told stands");
        assert_eq!(simulation.given(), [0], "a relay that has ended was sent");
        // The signer goes on.
        simulation.play([Request(0), Wait(20), Mine(8), Wait(20)]).await;
        assert!(simulation.is_quiet());
        assert_eq!(simulation.given(), [1]);
    });
}

/// The store is as after a failover of the database that lost commits.
#[test]
fn a_relay_that_the_store_has_lost_ends_and_holds_up_no_other() {
    run(SINGLE, async |simulation| {
        simulation.play([NoNonces(true), Request(0), Wait(20)]).await;
        let (id, store, now) = (simulation.only(), Arc::clone(&simulation.store), simulation.clock.now());
        let dropped = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::RpcTimeout) };
        store.finish_unsent(id, &dropped, now).unwrap();
        assert_eq!(store.prune(&Retention::of_days(30), now + 2 * 24 * 60 * 60).unwrap(), 1);
        assert_eq!(store.relay(id).unwrap(), None);
        simulation.requests.clear();
        simulation.play([NoNonces(false), Wait(100)]).await;
        assert!(!simulation.is_waited_for(id), "what comes after it waits for ever");
        simulation.play([Request(0), Wait(20), Mine(8), Wait(20)]).await;
        assert!(simulation.is_executed(simulation.only()));
    });
}

/// The receipt comes after all endpoints have said for so long that there is none that the nonce counts as
/// another's.
#[test]
fn what_a_client_was_told_of_a_late_receipt_stands_though_the_signer_uses_the_request_elsewhere() {
    let ops = [Revert, RequestUntil(2, 1), LateReceipts(50), Mine(1), Wait(450), Bypass(2)];
    let setup = Setup { seed: 10_522_758_738_198_858_196, ..SINGLE };
    history(setup, ops, |simulation| {
        let told = simulation.told.lock().unwrap().values().next().cloned();
        let Some(RelayOutcome::Dropped { failure }) = told else { panic!("{told:?}") };
        assert_eq!(failure.code, ErrorCode::DeadlinePassed);
    });
}

#[test]
fn failures_that_are_over_do_not_count_when_a_later_one_is_met() {
    run(SINGLE, async |simulation| {
        let full = [Unwilling(true), Request(1), Wait(5), Request(2), Wait(5), Request(3), Wait(20)];
        simulation.play(full).await;
        let before: BTreeSet<B256> = simulation.requests.keys().copied().collect();
        simulation.play([FailingReads(20), Request(0), Wait(600), FailingReads(0), Wait(1_300)]).await;
        let relay = *simulation.requests.keys().find(|id| !before.contains(*id)).unwrap();
        simulation.play([FailingReads(20), Wait(200), FailingReads(0)]).await;
        assert!(simulation.is_waited_for(relay), "{:?}", simulation.record(relay).outcome);
        // The first three make room.
        let mined = [Wait(200), Mine(8), Wait(200), Mine(8), Wait(200)];
        simulation.play([&[Unwilling(false)][..], &mined].concat()).await;
        assert!(simulation.is_executed(relay));
    });
}

/// The database is away from the moment at which the nonce is reopened until it was sent.
#[test]
fn an_undone_nonce_is_looked_up_once_though_the_store_fails_after_it_is_reopened() {
    let views = |is_away: bool| {
        let count = AtomicUsize::new(0);
        run(SINGLE, async |simulation| {
            simulation.play([Request(0), Wait(10), Mine(5), Wait(20), Reorganise(1, true)]).await;
            let relay = simulation.only();
            if is_away {
                simulation.writes_left.store(1, Ordering::Relaxed);
                simulation.until(|simulation| simulation.writes_left.load(Ordering::Relaxed) == 0).await;
                simulation.play([Wait(20)]).await;
                simulation.writes_left.store(usize::MAX, Ordering::Relaxed);
            } else {
                simulation.until(|simulation| simulation.record(relay).outcome.is_none()).await;
                simulation.play([Wait(20)]).await;
            }
            let so_far = simulation.world.account_views.load(Ordering::Relaxed);
            simulation.play([Wait(300)]).await;
            let now = simulation.world.account_views.load(Ordering::Relaxed);
            count.store(now - so_far, Ordering::Relaxed);
            assert_eq!(simulation.record(relay).outcome, None);
            assert_eq!(simulation.world.chain().pool(), 1, "not sent again");
        });
        count.into_inner()
    };
    let (usual, away) = (views(false), views(true));
    assert!(away <= usual + 2, "{away} views of the account instead of {usual}");
}
