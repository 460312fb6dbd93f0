//! Histories of a fleet: daemons that share a store and its accounts, and the clock of that store.

use relayer_daemon::outcome::Failure;

use super::ops::Op::*;
use super::*;

/// How exactly the clock is set: leases end within seconds.
const TICK: Duration = Duration::from_millis(250);

const PAIR: Setup = Setup { daemons: 2, ..SINGLE };

/// Has the clock run with the runtime's paused time.
pub(super) fn tick(clock: Arc<AtomicI64>) {
    let started = Instant::now();
    tokio::spawn(async move {
        loop {
            sleep(TICK).await;
            clock.store(started.elapsed().as_millis() as i64, Ordering::Relaxed);
        }
    });
}

fn holder(simulation: &Simulation) -> u8 {
    let holder = simulation.world.holder(simulation.account(0)).expect("no daemon has the account");
    let place = simulation.lives.iter().flatten().position(|life| life.daemon.as_ref() == Some(&holder));
    place.expect("a daemon that is gone has the account") as u8
}

/// Requests of all signers, after one of the daemons has got the account.
fn accepted() -> Vec<Op> {
    [vec![Wait(30)], requests()].concat()
}

const MINED: [Op; 4] = [Mine(8), Wait(30), Mine(8), Wait(30)];

fn assert_all_executed(simulation: &Simulation) {
    assert_eq!(simulation.executed(), usize::from(SIGNERS));
}

#[test]
fn clients_of_a_relay_that_runs_here_hear_that_another_daemon_has_ended_it() {
    let test = async |simulation: &mut Simulation| {
        // Without a nonce each relay waits at the daemon that has the account.
        simulation.play([Wait(30), NoNonces(true)]).await;
        simulation.play(requests()).await;
        let ids: Vec<B256> = simulation.requests.keys().copied().collect();
        assert!(ids.iter().all(|id| simulation.is_waited_for(*id)), "each relay waits");
        let outcome = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::NetworkFeesTooHigh) };
        for id in &ids {
            simulation.store.finish_unsent(*id, &outcome, 0).unwrap();
        }
        simulation.play([Wait(30)]).await;
        assert!(!ids.iter().any(|id| simulation.is_waited_for(*id)), "a client waits for ever");
    };
    simulate(PAIR, test).unwrap();
}

#[test]
fn a_daemon_that_cannot_renew_its_lease_sends_nothing_more_and_another_takes_its_relays_over() {
    for fault in [|daemon| Cut(daemon, true), Kill as fn(u8) -> Op] {
        let test = async |simulation: &mut Simulation| {
            simulation.play(accepted()).await;
            let before = holder(simulation);
            // Blocks come only after the account has passed on: what is in flight passes on with it.
            simulation.play([fault(before), Wait(150)]).await;
            let after = holder(simulation);
            if matches!(fault(before), Cut(..)) {
                assert_ne!(after, before, "no other daemon took the account within 15 seconds");
            }
            simulation.play(MINED).await;
            assert_all_executed(simulation);
        };
        simulate(PAIR, test).unwrap();
    }
}

#[test]
fn a_daemon_that_stood_still_sends_nothing_more_and_learns_what_the_others_have_done() {
    let test = async |simulation: &mut Simulation| {
        simulation.play(accepted()).await;
        let stopped = holder(simulation);
        simulation.play([Pause(stopped, true), Wait(150)]).await;
        assert_ne!(holder(simulation), stopped, "no other daemon took the account within 15 seconds");
        simulation.play(MINED).await;
        assert_all_executed(simulation);
        let sends = simulation.world.chain().sends;
        simulation.play([Pause(stopped, false), Wait(50)]).await;
        assert_eq!(simulation.world.chain().sends, sends, "sent without the account");
        assert!(simulation.is_quiet(), "it waits for relays that have ended");
    };
    simulate(PAIR, test).unwrap();
}

#[test]
fn wherever_on_a_relays_way_a_daemon_stands_still_the_relay_is_executed_once() {
    const STEP: u64 = 15;
    for moments in 0..40 {
        let test = async |simulation: &mut Simulation| {
            simulation.play([Wait(30), Latency(40)]).await;
            let stopped = holder(simulation);
            simulation.play([Request(0)]).await;
            sleep(Duration::from_millis(moments * STEP)).await;
            simulation.pause(usize::from(stopped), true);
            // Others take the account, finish the relay, and give the next nonce to another one.
            simulation.play([Latency(0), Wait(150), Mine(8), Wait(20)]).await;
            simulation.play([Request(1), Request(1), Wait(20), Mine(8)]).await;
            simulation.play([Pause(stopped, false), Wait(30)]).await;
        };
        let ended = simulate(Setup { seed: moments + 1, ..PAIR }, test).unwrap();
        let requests = ended.requests.len();
        assert_eq!(ended.executed(), requests, "stopped after {moments} moments");
        assert_eq!(ended.mined(), requests as u64, "{moments} moments: not one transaction each");
    }
}

/// Two nonces of one relay, of accounts of two daemons: the first was cancelled, the client sent the request
/// again, and a reorg undid the cancellation.
#[test]
fn a_relay_that_was_cancelled_sent_again_and_reopened_by_a_reorganisation_ends() {
    let begin = [Request(3), Foreign(0), Wait(72), Latency(142), Pause(2, false), Wait(159), Rejecting(true)];
    let cancelled = [Request(3), Request(0), Mine(2), Wait(741), Wait(129), Bypass(2), Kill(1), Mine(3)];
    let again = [Request(2), Wait(196), Lose(Lost::Answer), Request(1), HangUp(0, 3), FailingReads(8)];
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
    let test = async |simulation: &mut Simulation| {
        simulation.play([Wait(150), RequestUntil(0, 250), Wait(10), Mine(5), Wait(20)]).await;
        assert_eq!(simulation.executed(), 1);
        let payer = if simulation.given() == [1] { 0 } else { 1 };
        // The other request comes to the second daemon, and then to the first one, which runs the first relay.
        simulation.play([NoNonces(true), Reorganise(1, true), Request(0), Repeat(0)]).await;
        assert_eq!(simulation.requests.len(), 2);
        simulation.play([Wait(50), Foreign(payer), Wait(600), NoNonces(false)]).await;
    };
    let ended = simulate(Setup { accounts: 2, ..PAIR }, test).unwrap();
    assert_eq!(ended.executed(), 1, "one of them is carried out");
}

#[test]
fn of_two_requests_with_one_nonce_one_is_sent_though_a_dropped_one_came_again_while_the_other_was_checked() {
    let empty = |empty| [Empty(0, empty), Empty(1, empty), Wait(20)];
    let test = async |simulation: &mut Simulation| {
        simulation.play(empty(true)).await;
        simulation.play([Request(0), Wait(20)]).await;
        assert!(simulation.is_quiet(), "not dropped for want of funds");
        simulation.play(empty(false)).await;
        // While the second daemon checks the other request, the dropped one comes to the first again.
        simulation.play([Latency(200), RequestUntil(0, 250), RepeatEarlier(0, 1)]).await;
        assert_eq!(simulation.requests.len(), 2);
        simulation.play([Wait(50), Mine(8), Wait(50)]).await;
    };
    let ended = simulate(Setup { accounts: 2, ..PAIR }, test).unwrap();
    assert_eq!((ended.executed(), ended.given::<2>().iter().sum::<u64>()), (1, 1), "both were sent");
}
