//! Histories of a fleet: daemons that share a store and its accounts, and the clock of that store.

use relayer_daemon::sender::carrier::Carrier;

use super::ops::Op::*;
use super::*;

/// Interval at which the clock is set: leases end within seconds.
const TICK: Duration = Duration::from_millis(250);

pub(super) const PAIR: Setup = Setup { daemons: 2, ..SINGLE };

/// Has the clock run with the runtime's paused time.
pub(super) fn tick(clock: Arc<AtomicI64>) {
    let (started, first) = (Instant::now(), clock.load(Ordering::Relaxed));
    tokio::spawn(async move {
        loop {
            sleep(TICK).await;
            clock.store(first + started.elapsed().as_millis() as i64, Ordering::Relaxed);
        }
    });
}

fn carries(relayer: &Relayer<ModelNode>) -> bool {
    relayer.accounts.carrier() == Carrier::Here
}

/// Two nonces of one relay, of accounts of two daemons: the first was cancelled, the client sent the request
/// again, and a reorg undid the cancellation.
#[test]
fn a_relay_that_was_cancelled_sent_again_and_reopened_by_a_reorganisation_ends() {
    let begin = [Request(3), Foreign(0), Wait(72), Latency(142), Pause(2, false), Wait(159), Rejecting(true)];
    let cancelled = [Request(3), Request(0), Mine(2), Wait(741), Wait(129), Bypass(2), Kill(1), Mine(3)];
    let again = [Request(2), Wait(196), Lose(LostSend::Answer), Request(1), HangUp(0, 3), FailingReads(8)];
    let undone = [Reorganise(2, false), Wait(164), Cut(1, false), Kill(0), Request(2), Mine(1), Request(0)];
    let more = [HangUp(0, 2), Request(1), Wait(143), Request(2), Request(0), Wait(122), Wait(186)];
    let ops = [&begin[..], &cancelled, &again, &undone, &more].concat();
    for seed in [18_059_147_964_371_844_599, 16, 1, 2, 3] {
        history(Setup { accounts: 3, seed, ..PAIR }, &ops, |_| {});
    }
}

/// The one that came first was executed, and is in flight again after a reorg undid that; the other one was
/// accepted meanwhile. The two daemons see them arrive in different orders.
#[test]
fn two_relays_with_one_nonce_at_two_daemons_do_not_wait_for_one_another() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), RequestUntil(0, 250), Wait(10), Mine(5), Wait(20)]).await;
        assert_eq!(simulation.executed(), 1);
        let payer = if simulation.given() == [1] { 0 } else { 1 };
        // The other request comes to the second daemon, and then to the first one, which runs the first
        // relay.
        simulation.play([NoNonces(true), Reorganise(1, true), Request(0), Repeat(0)]).await;
        assert_eq!(simulation.requests.len(), 2);
        simulation.play([Wait(50), Foreign(payer), Wait(600), NoNonces(false)]).await;
    });
    assert_eq!(ended.executed(), 1, "one of them is carried out");
}

#[test]
fn of_two_requests_with_one_nonce_one_is_sent_though_a_dropped_one_came_again_while_the_other_was_checked() {
    let empty = |empty| [Empty(0, empty), Empty(1, empty), Wait(60)];
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150)]).await;
        simulation.play(empty(true)).await;
        simulation.play([Request(0), Wait(20)]).await;
        assert!(simulation.is_quiet(), "not dropped for want of funds");
        simulation.play(empty(false)).await;
        // While the second daemon checks the other request, the dropped one comes to the first again.
        simulation.play([Latency(200), RequestUntil(0, 250), RepeatEarlier(0, 1)]).await;
        assert_eq!(simulation.requests.len(), 2);
        simulation.play([Wait(50), Mine(8), Wait(50)]).await;
    });
    assert_eq!((ended.executed(), ended.given::<2>().iter().sum::<u64>()), (1, 1), "both were sent");
}

/// Returns five minutes without an answer: longer than a relay has patience.
fn outage() -> Vec<Op> {
    [&[FailingReads(255), Wait(50)].repeat(60)[..], &[FailingReads(0)]].concat()
}

/// No account is left to send it from, and the account that was given up has it in the pool.
#[test]
fn a_relay_of_an_abandoned_account_is_not_called_dropped_while_its_transaction_may_be_mined() {
    for (is_foreign, deadline, meanwhile) in [
        (false, None, vec![Wait(600)]),
        (true, None, vec![Wait(600)]),
        // After that time, each of these may last as long as if it had come first.
        (false, None, vec![Wait(7_000), LateReceipts(90)]),
        (false, None, [&[Wait(7_000)][..], &outage()].concat()),
        (false, Some(250), vec![Wait(7_500)]),
    ] {
        println!("{is_foreign} {deadline:?} {meanwhile:?}");
        let request = |signer| deadline.map_or(Request(signer), |seconds| RequestUntil(signer, seconds));
        run(Setup { accounts: 2, ..PAIR }, async |simulation| {
            simulation.play([Wait(150), Unwilling(true), request(0), request(1), Wait(20)]).await;
            assert_eq!(simulation.given(), [1, 1]);
            simulation.play([Empty(0, true), Wait(10), Abandon(1), Kill(0), Kill(1)]).await;
            simulation.play([Wait(20), Repeat(0), Repeat(1)]).await;
            simulation.play(meanwhile).await;
            assert_eq!(simulation.told.lock().unwrap().len(), 0, "an end that may not be the end");
            let next = if is_foreign { Foreign(1) } else { Mine(8) };
            // A late receipt is charged at the next lookup, which comes after as long again.
            simulation.play([Unwilling(false), Ignored(0, true), next, Wait(9_000)]).await;
            let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
            match &told[..] {
                [RelayOutcome::Dropped { failure }] if is_foreign => {
                    assert_eq!(failure.code, ErrorCode::RelayerBalanceTooLow);
                }
                [RelayOutcome::Executed { .. }] if !is_foreign => {}
                _ => panic!("{told:?}"),
            }
        });
    }
}

/// The other account's transaction of the same relay reverts in the same block, and is settled first.
#[test]
fn a_relay_that_its_abandoned_account_executed_is_not_called_superseded() {
    let begin = [Wait(190), Request(2), Wait(114), Request(3), Wait(277), Pause(0, true)];
    for seed in 0..12 {
        let setup = Setup { accounts: 3, seed, ..PAIR };
        history(setup, [&begin[..], &[Abandon(2), Wait(96), Pause(1, false)]].concat(), |_| {});
    }
}

/// The other account's transaction reverts as a whole, and leaves the request to be used.
#[test]
fn a_relay_that_reverted_is_not_called_so_while_its_abandoned_account_may_execute_it() {
    let later = [&[Wait(7_000)][..], &outage()].concat();
    for (is_foreign, meanwhile) in [(false, vec![Wait(300)]), (true, vec![Wait(300)]), (false, later)] {
        let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
            simulation.play([Wait(150), Unwilling(true), Request(0), Request(1), Wait(20)]).await;
            assert_eq!(simulation.given(), [1, 1]);
            let restarted = [Abandon(1), Kill(0), Kill(1), Wait(20), Repeat(0), Repeat(1), Wait(300)];
            simulation.play(restarted).await;
            assert_eq!(simulation.given(), [2, 1], "the other account does not send it");
            // Both of the other account's.
            simulation.play([Ignored(1, true), Revert, Revert, Unwilling(false), Mine(8)]).await;
            simulation.play(meanwhile).await;
            assert_eq!(simulation.told.lock().unwrap().len(), 1, "an end that may not be the end");
            let next = if is_foreign { Foreign(1) } else { Mine(8) };
            simulation.play([Ignored(1, false), next, Wait(1_200)]).await;
            let told = simulation.told.lock().unwrap();
            assert_eq!(told.len(), 2);
            let refused = |outcome: &&RelayOutcome| {
                outcome.parts().1.is_some_and(|failure| failure.code == ErrorCode::ForwarderRefused)
            };
            assert_eq!(told.values().filter(refused).count(), if is_foreign { 2 } else { 1 });
        });
        assert_eq!(ended.executed(), usize::from(!is_foreign));
    }
}

/// Another transaction executes the request, and is undone by a reorganisation, while the transaction of an
/// abandoned account may still execute it.
#[test]
fn a_relay_that_another_transaction_was_before_runs_again_where_that_is_undone() {
    let abandoned = [OldViews(115), Request(1), Wait(107), Abandon(0), Foreign(0), HangUp(0, 5)];
    let goes_on = [Pause(2, true), RequestUntil(3, 94), Wait(84), Wait(98), WrongCount(0), Foreign(0)];
    let elsewhere = [Bypass(2), OldViews(101), Pause(2, false), DiskFull(false), Abandon(0), Wait(113)];
    let bypassed = [Wait(2857), Abandon(2), Rejecting(true), RequestUntil(3, 102), LateReceipts(111)];
    let undone = [HangUp(3, 3), Bypass(3), Wait(2), Cut(0, false), Mine(3), Wait(458), Pause(1, true)];
    let again = [Mine(2), Bypass(0), Wait(14), Wait(153), BaseFee(111), Cut(2, true)];
    let more = [Lose(LostSend::Answer), Cut(2, false), Abandon(2), Wait(12), Reorganise(3, true)];
    let most = [Mine(1), Pause(1, false), Pause(2, false), Kill(0), Request(0), Request(1)];
    let last = [Request(1), Lag, Request(1), Repeat(1), BaseFee(400), Lose(LostSend::Transaction)];
    let end = [Wait(125), Cut(0, false), HangUp(2, 3)];
    let ops = [&abandoned[..], &goes_on, &elsewhere, &bypassed, &undone, &again, &more, &most, &last, &end]
        .concat();
    let setup = Setup { accounts: 3, seed: 15_942_750_329_577_152_074, ..PAIR };
    // Without that it went wrong every other time.
    for _ in 0..3 {
        history(setup, &ops, |_| {});
    }
}

/// The failover has lost that the relay was signed for, and no node has what was signed.
#[test]
fn a_relay_whose_nonce_another_one_gets_after_a_failover_runs_again() {
    let signed =
        [Wait(150), NoNonces(true), Request(0), Wait(5), Lag, Lose(LostSend::Transaction), NoNonces(false)];
    for seed in 0..8 {
        run(Setup { seed, ..PAIR }, async |simulation| {
            simulation.play(signed).await;
            let relay = simulation.only();
            while simulation.given() == [0] {
                simulation.play([Wait(1)]).await;
            }
            simulation.play([Failover, Request(1), Request(2), Wait(300), Mine(8), Wait(300)]).await;
            assert!(simulation.is_executed(relay), "nothing runs it");
        });
    }
}

/// The lag is shorter than a beat, so that no daemon notices the failover by its lease.
#[test]
fn a_nonce_whose_end_a_failover_has_lost_is_settled_again() {
    let silent = [Wait(100), Request(0), NoNonces(false), Lag, SilentEndpoint(false), Mine(1), Foreign(0)];
    let taken = [Repeat(0), Request(0), Request(0), Mine(1), Lag, Foreign(0), Request(0)];
    for seed in 0..40 {
        for ops in [silent, taken] {
            history(Setup { seed, ..PAIR }, [&ops[..], &[Failover]].concat(), |_| {});
        }
    }
}

/// A failover to a replica that lags behind, of relays that had come this far when it got its last write.
#[test]
fn what_a_failover_has_lost_ends_and_holds_up_nothing_that_is_posted_later() {
    for (accounts, lost) in [
        // Accepted by one daemon, and followed by the other.
        (2, vec![NoNonces(true), Lag, Request(0), Repeat(0), Wait(5), Failover, NoNonces(false)]),
        // Accepted, also by a daemon without an account, which hands it over.
        (1, vec![NoNonces(true), Lag, Request(0), Failover, NoNonces(false)]),
        (1, vec![NoNonces(true), Repeat(1), Lag, Request(0), Failover, NoNonces(false)]),
        // In the pool, and executed while nothing of that reached the replica.
        (2, vec![Request(0), Wait(10), Lag, Mine(5), Wait(60), Failover]),
        // Given a nonce meanwhile.
        (2, vec![NoNonces(true), Request(0), Wait(5), Lag, NoNonces(false), Wait(60), Failover]),
    ] {
        println!("{lost:?}");
        run(Setup { accounts, ..PAIR }, async |simulation| {
            simulation.play([Wait(150)]).await;
            simulation.play(lost).await;
            simulation.play([Wait(100), Mine(8), Wait(100), Mine(8), Wait(100)]).await;
            assert!(simulation.is_quiet(), "something is waited for");
            simulation.play([Request(1), Wait(20), Mine(8), Wait(50)]).await;
            assert!(simulation.executed() > 0);
        });
    }
    // Before either daemon has an account.
    let lost = [Request(0), Request(2), Lag, Request(0), Request(0), Failover];
    history(Setup { seed: 12_543, ..PAIR }, lost, |_| {});
}

/// Relays come to the daemon of the account that gets none, and to the other one.
#[test]
fn a_relay_at_a_daemon_with_an_empty_or_delegated_account_is_sent_by_another_daemon() {
    for is_delegated in [false, true] {
        let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
            simulation.play([Wait(150)]).await;
            let account = simulation.account(0);
            let senders = simulation.living().flat_map(|life| life.relayer.accounts.senders());
            let senders: Vec<_> = senders.filter(|sender| sender.account() == account).collect();
            assert_eq!(senders.len(), 1);
            if is_delegated {
                senders[0].saw_code(true);
            } else {
                simulation.play([Empty(0, true)]).await;
            }
            simulation.play([Wait(60), Request(0), Request(1), Wait(60), Mine(8), Wait(60)]).await;
            assert_eq!((simulation.requests.len(), simulation.given::<2>()), (2, [0, 2]));
            assert!(simulation.living().all(|life| life.relayer.accounts.check().is_ok()));
        });
        assert_eq!(ended.executed(), 2);
    }
}

#[test]
fn a_relay_at_a_daemon_with_a_stuck_account_is_sent_by_another_daemon() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Ignored(0, true), Request(0), Request(1), Wait(20), Mine(8)]).await;
        assert_eq!(simulation.given(), [1, 1]);
        simulation.play([Wait(1_300), Request(2), Request(3), Wait(60)]).await;
        assert_eq!(simulation.given(), [1, 3], "behind the stuck one");
    });
}

/// The account holds enough not to count as empty, and for other relays.
#[test]
fn a_relay_that_a_daemons_account_cannot_pay_for_is_sent_by_another_daemon_and_refused_where_none_can() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150)]).await;
        let accounts = [0, 1].map(|index| simulation.account(index));
        simulation.world.chain().balances.insert(accounts[0], 1_500_000 * GWEI);
        let dear = [DearRequest(0), DearRequest(1)];
        simulation.play([&[Wait(60)][..], &dear, &[Wait(60), Mine(8), Wait(60)]].concat()).await;
        assert_eq!((simulation.given(), simulation.executed()), ([0, 2], 2));

        simulation.world.chain().balances.insert(accounts[1], 1_500_000 * GWEI);
        simulation.play([&[Wait(900)][..], &dear, &[Wait(150)]].concat()).await;
        let told = simulation.told.lock().unwrap().clone();
        let refused = |outcome: &&RelayOutcome| {
            outcome.parts().1.is_some_and(|failure| failure.code == ErrorCode::RelayerBalanceTooLow)
        };
        assert_eq!((told.len(), told.values().filter(refused).count()), (4, 2), "{told:?}");
        assert!(simulation.living().all(|life| life.relayer.accounts.check().is_ok()), "others are refused");
        simulation.play([Request(2), Request(3), Wait(60), Mine(8), Wait(60)]).await;
        simulation.world.chain().balances.clear();
    });
    assert_eq!(ended.executed(), 4, "both accounts pay for less");
}

/// The other account is on its way to another daemon.
#[test]
fn a_relay_that_a_daemons_account_cannot_pay_for_waits_for_the_account_of_a_daemon_that_died() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        let poor = simulation.account(0);
        simulation.world.chain().balances.insert(poor, 1_500_000 * GWEI);
        simulation.play([Wait(150)]).await;
        let holder = holder(simulation, 1);
        simulation.play([NoNonces(true), DearRequest(0), Wait(5)]).await;
        simulation.play([Kill(holder as u8), NoNonces(false), Wait(300), Mine(8), Wait(50)]).await;
        assert!(simulation.is_executed(simulation.only()), "no account holds enough meanwhile");
        simulation.world.chain().balances.clear();
    });
}

/// Returns the index of the daemon that has this account.
pub(super) fn holder(simulation: &Simulation, account: u8) -> usize {
    let account = simulation.account(account);
    let holds = |life: &Life| life.relayer.accounts.addresses().contains(&account);
    simulation.living().position(holds).unwrap()
}

/// Has the daemon drain, as SIGUSR1 does; it does not end.
pub(super) fn drain(simulation: &Simulation, index: usize) -> Arc<Relayer<ModelNode>> {
    let life = simulation.lives[index].as_ref().unwrap();
    life.draining.send_replace(true);
    Arc::clone(&life.relayer)
}

/// The draining daemon takes no relays of others, so these need not wait for its better account.
#[test]
fn a_daemon_with_a_stuck_account_sends_its_relays_itself_while_the_other_one_drains() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Ignored(1, true), Request(0), Request(1), Wait(20), Mine(8)]).await;
        assert_eq!(simulation.given(), [1, 1]);
        simulation.play([Wait(1_300)]).await;
        let draining = drain(simulation, holder(simulation, 0));
        assert!(carries(&draining));
        simulation.play([Wait(30), Request(2), Request(3), Wait(60)]).await;
        assert_eq!(
            (simulation.requests.len(), simulation.given()),
            (3, [1, 2]),
            "handed over, and not taken"
        );
        assert!(carries(&draining), "what it has itself");
    });
}

/// By then the account is followed for what it has mined before.
#[test]
fn what_is_given_up_of_an_account_without_its_key_is_charged_where_it_is_mined() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Request(0), Request(1), Wait(20), Mine(8), Wait(20)]).await;
        let left_open = [Ignored(1, true), Request(2), Request(3), Wait(20), Mine(8), Wait(20)];
        simulation.play(left_open).await;
        assert_eq!((simulation.given(), simulation.executed()), ([2, 2], 3));
        simulation.kill();
        simulation.keys.remove(1);
        // They start after the first one.
        simulation.play([Wait(10), Wait(400), NoNonces(true), Abandon(1)]).await;
        let lost = |simulation: &Simulation| simulation.store.lost(simulation.account(1)).unwrap();
        assert_eq!(lost(simulation), [1]);
        simulation.play([Ignored(1, false), Mine(8), Wait(400)]).await;
        assert_eq!(lost(simulation), [0; 0], "mined, and not settled");
    });
    assert_eq!(ended.executed(), 4);
}

/// No account is recovered meanwhile.
#[test]
fn a_relay_that_no_daemon_carries_ends_by_its_deadline() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        // Each recovery fails.
        simulation.play([Wait(150), FailingReads(255), Kill(0), Kill(1), Wait(150)]).await;
        simulation.play([RequestUntil(0, 20), Wait(300)]).await;
        assert!(!simulation.living().any(|life| carries(&life.relayer)));
        let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
        let [RelayOutcome::Dropped { failure }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(failure.code, ErrorCode::DeadlinePassed);
    });
}

#[test]
fn requests_are_refused_where_an_account_on_its_way_to_another_daemon_is_empty_like_all_others() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Unwilling(true)]).await;
        // Of two accounts a daemon keeps the first one.
        let moving = u8::from(simulation.account(0) < simulation.account(1));
        let joins = holder(simulation, moving) as u8;
        simulation.play([Cut(joins, true), Wait(300)]).await;
        // To both daemons.
        simulation.play([Request(0), Request(1), Request(2), Request(3), Wait(20)]).await;
        assert_eq!(simulation.given(), [1, 1]);
        simulation.play([Cut(joins, false), Wait(60), Empty(0, true), Empty(1, true)]).await;
        // Balances are read at the end of a wait.
        simulation.play([Wait(10), Wait(60)]).await;
        let moves = |life: &Life| life.relayer.accounts.senders().iter().any(|it| it.lease().is_ending());
        assert!(simulation.living().any(moves));
        let codes = simulation.living().map(|life| life.relayer.accounts.check().map_err(|why| why.code));
        let codes: Vec<_> = codes.collect();
        assert_eq!(codes, [Err(ErrorCode::RelayerBalanceTooLow); 2]);
    });
}

/// This holds for a relay that waits for the one before it, too.
#[test]
fn a_daemon_that_drains_while_every_account_is_cordoned_keeps_no_relays_and_the_other_one_waits_with_them() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), NoNonces(true)]).await;
        simulation.play([Request(0), Request(1), Request(0), Request(1), Wait(10)]).await;
        let kept = |relayer: &Relayer<ModelNode>| relayer.inflight.run_here().len();
        let relayers: Vec<_> = simulation.living().map(|life| Arc::clone(&life.relayer)).collect();
        assert_eq!([kept(&relayers[0]), kept(&relayers[1])], [2, 2]);
        simulation.cordon(&[0, 1], true);
        simulation.play([Wait(60)]).await;
        drain(simulation, 0);
        simulation.play([Wait(200)]).await;
        assert_eq!([kept(&relayers[0]), kept(&relayers[1])], [0, 4]);
        assert_eq!(simulation.told.lock().unwrap().len(), 0, "dropped");
        simulation.cordon(&[0, 1], false);
        simulation.play([NoNonces(false), Wait(300), Mine(8), Wait(60), Mine(8), Wait(60)]).await;
    });
    assert_eq!(ended.executed(), 4);
}

#[test]
fn the_account_of_a_daemon_that_died_is_waited_for_where_all_others_are_empty() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Empty(0, true), Wait(60)]).await;
        let holder = holder(simulation, 1);
        simulation.play([NoNonces(true), Request(0), Wait(5)]).await;
        simulation.play([Kill(holder as u8), NoNonces(false), Wait(300), Mine(8), Wait(50)]).await;
        assert!(simulation.is_executed(simulation.only()), "no account holds enough meanwhile");
    });
}

/// This holds for relays of a daemon that died, too.
#[test]
fn a_fleet_with_every_account_cordoned_keeps_accepted_relays_until_their_deadline_and_refuses_new_ones() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), NoNonces(true), Request(0), RequestUntil(1, 60), Wait(10)]).await;
        simulation.cordon(&[0, 1], true);
        simulation.play([Kill(0), Wait(200), Request(2), Request(3), Wait(5)]).await;
        assert_eq!(simulation.requests.len(), 2, "a new one was accepted");
        assert_eq!(simulation.told.lock().unwrap().len(), 0, "one that was accepted has ended");
        simulation.play([Wait(600)]).await;
        let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
        let [RelayOutcome::Dropped { failure }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(failure.code, ErrorCode::DeadlinePassed);
        simulation.cordon(&[1], false);
        simulation.play([NoNonces(false), Wait(150), Mine(8), Wait(60)]).await;
        assert_eq!((simulation.executed(), simulation.given::<2>()), (1, [0, 1]));
    });
}

/// The store is as after a failover that lost the hand-over.
#[test]
fn a_relay_that_a_daemon_without_an_account_has_by_the_store_is_sent_by_another() {
    run(PAIR, async |simulation| {
        simulation.play([Wait(150), NoNonces(true), Request(0), Wait(5)]).await;
        let idle = simulation.living().find(|life| !carries(&life.relayer)).unwrap();
        let idle = idle.relayer.store.daemon().unwrap().0.clone();
        simulation.database.run(&format!("UPDATE relays SET holder = '{idle}'"));
        simulation.play([NoNonces(false), Wait(100), Mine(8), Wait(50)]).await;
        assert!(simulation.is_executed(simulation.only()));
    });
}

/// Has the daemon's lease end, and the other one take the account.
async fn lose_lease(simulation: &mut Simulation, index: u8) {
    simulation.play([Cut(index, true), Wait(300), Cut(index, false), Wait(50)]).await;
}

#[test]
fn a_balance_that_is_read_late_is_not_told_of_an_account_that_another_daemon_has() {
    run(PAIR, async |simulation| {
        simulation.play([Wait(150)]).await;
        let holder = simulation.living().position(|life| carries(&life.relayer)).unwrap();
        let relayer = Arc::clone(&simulation.lives[holder].as_ref().unwrap().relayer);
        let sender = relayer.accounts.senders().remove(0);
        let balance = simulation.world.balance(sender.account());
        let series = format!("relayer_balance_wei{{account=\"{}\"}}", sender.account());
        let is_told = || relayer.metrics.render().contains(&series);
        sender.saw_balance(balance);
        assert!(is_told());
        lose_lease(simulation, holder as u8).await;
        assert!(!carries(&relayer) && !is_told());
        sender.saw_balance(balance);
        assert!(!is_told());
    });
}

#[test]
fn an_account_that_another_daemon_took_before_it_was_recovered_is_in_no_metric() {
    run(PAIR, async |simulation| {
        // Each recovery fails.
        simulation.play([Wait(150), FailingReads(255), Kill(0), Kill(1), Wait(300)]).await;
        let relayers: Vec<_> = simulation.living().map(|life| Arc::clone(&life.relayer)).collect();
        let series = format!("relayer_sender_rounds_total{{account=\"{}\"}}", simulation.account(0));
        let is_told = |index: usize| relayers[index].metrics.render().contains(&series);
        let holder = usize::from(is_told(1));
        assert!(is_told(holder) && !relayers.iter().any(|relayer| carries(relayer)));
        lose_lease(simulation, holder as u8).await;
        assert!(!is_told(holder) && is_told(1 - holder));
    });
}
