//! Histories of a fleet: daemons that share a store and its accounts, and the clock of that store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use alloy::primitives::B256;
use relayer_daemon::outcome::{ErrorCode, Failure, RelayOutcome};
use tokio::time::{Instant, sleep};

use super::{SIGNERS, Simulation, node::Lost, ops::Op, runtime};

/// How exactly the clock is set: leases end within seconds.
const TICK: Duration = Duration::from_millis(250);

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

/// The daemon that holds the first account.
fn holder(simulation: &Simulation) -> u8 {
    let holder = simulation.world.holder(simulation.account(0)).expect("no daemon has the account");
    let place = simulation.lives.iter().flatten().position(|life| life.daemon.as_ref() == Some(&holder));
    place.expect("a daemon that is gone has the account") as u8
}

async fn apply(simulation: &mut Simulation, ops: &[Op]) {
    for op in ops {
        simulation.apply(*op).await;
    }
}

fn executed(simulation: &Simulation) -> usize {
    let outcome = |id| simulation.store.relay(id).unwrap().unwrap().outcome;
    let executed = |id: &&_| matches!(outcome(**id), Some(RelayOutcome::Executed { .. }));
    simulation.requests.keys().filter(executed).count()
}

/// One request of each signer, to one daemon after the other.
fn requests() -> Vec<Op> {
    (0..SIGNERS).flat_map(|index| [Op::Request(index), Op::Wait(5)]).collect()
}

#[test]
fn a_daemon_without_an_account_accepts_requests_and_another_sends_them() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, 7).await;
        apply(&mut simulation, &[Op::Wait(30)]).await;
        apply(&mut simulation, &requests()).await;
        assert_eq!(simulation.requests.len(), usize::from(SIGNERS), "each daemon took some");
        apply(&mut simulation, &[Op::Wait(30), Op::Mine(8), Op::Wait(30), Op::Mine(8), Op::Wait(30)]).await;
        assert_eq!(executed(&simulation), usize::from(SIGNERS));
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn clients_of_a_relay_that_runs_here_hear_that_another_daemon_has_ended_it() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, 7).await;
        // Without a nonce each relay waits at the daemon that has the account.
        apply(&mut simulation, &[Op::Wait(30), Op::NoNonces(true)]).await;
        apply(&mut simulation, &requests()).await;
        let ids: Vec<B256> = simulation.requests.keys().copied().collect();
        assert!(ids.iter().all(|id| simulation.is_waited_for(*id)), "each relay waits");
        let outcome = RelayOutcome::Dropped { failure: Failure::of(ErrorCode::NetworkFeesTooHigh) };
        for id in &ids {
            simulation.store.finish_unsent(*id, &outcome, 0).unwrap();
        }
        apply(&mut simulation, &[Op::Wait(30)]).await;
        assert!(!ids.iter().any(|id| simulation.is_waited_for(*id)), "a client waits for ever");
    });
}

#[test]
fn a_daemon_that_cannot_renew_its_lease_sends_nothing_more_and_another_takes_its_relays_over() {
    for fault in [Op::Cut as fn(u8, bool) -> Op, |daemon, _| Op::Kill(daemon)] {
        runtime().block_on(async {
            let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, 7).await;
            apply(&mut simulation, &[Op::Wait(30)]).await;
            apply(&mut simulation, &requests()).await;
            let before = holder(&simulation);
            // Blocks come only after the account has passed on: what is in flight passes on with it.
            apply(&mut simulation, &[fault(before, true), Op::Wait(150)]).await;
            let epoch_holder = simulation.world.holder(simulation.account(0));
            assert!(epoch_holder.is_some(), "no daemon took the account within 15 seconds");
            if matches!(fault(before, true), Op::Cut(..)) {
                assert_ne!(holder(&simulation), before);
            }
            apply(&mut simulation, &[Op::Mine(8), Op::Wait(30), Op::Mine(8), Op::Wait(30)]).await;
            assert_eq!(executed(&simulation), usize::from(SIGNERS));
            simulation.settle_down().await;
            simulation.check().unwrap();
        });
    }
}

#[test]
fn a_daemon_that_stood_still_sends_nothing_more_and_learns_what_the_others_have_done() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, 7).await;
        apply(&mut simulation, &[Op::Wait(30)]).await;
        apply(&mut simulation, &requests()).await;
        let stopped = holder(&simulation);
        apply(&mut simulation, &[Op::Pause(stopped, true), Op::Wait(150)]).await;
        assert_ne!(holder(&simulation), stopped, "no other daemon took the account within 15 seconds");
        apply(&mut simulation, &[Op::Mine(8), Op::Wait(30), Op::Mine(8), Op::Wait(30)]).await;
        assert_eq!(executed(&simulation), usize::from(SIGNERS));
        let sends = simulation.world.chain().sends;
        apply(&mut simulation, &[Op::Pause(stopped, false), Op::Wait(50)]).await;
        assert_eq!(simulation.world.chain().sends, sends, "sent without the account");
        assert!(simulation.is_quiet(), "it waits for relays that have ended");
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn what_a_daemon_sends_late_because_it_stood_still_right_before_is_known_to_the_accounts_next_holder() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, 7).await;
        apply(&mut simulation, &[Op::Wait(30)]).await;
        let stopped = holder(&simulation);
        // Its calls take so long that it can be stopped between the journal and the node.
        apply(&mut simulation, &[Op::Latency(200), Op::Request(0), Op::Request(1)]).await;
        while simulation.nonces_given(0) == 0 {
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(simulation.world.chain().sends, 0);
        simulation.pause(usize::from(stopped), true);
        apply(&mut simulation, &[Op::Latency(0), Op::Wait(150)]).await;
        assert_ne!(holder(&simulation), stopped);
        let sends = simulation.world.chain().sends;
        assert!(sends > 0, "the next holder has not sent what was journalled");
        apply(&mut simulation, &[Op::Mine(8), Op::Wait(30), Op::Pause(stopped, false), Op::Wait(30)]).await;
        assert!(simulation.world.chain().sends > sends, "nothing came late");
        simulation.settle_down().await;
        simulation.check().unwrap();
        assert_eq!(executed(&simulation), 2);
        assert_eq!(simulation.world.chain().now().mined(simulation.account(0)), 2, "each once");
    });
}

#[test]
fn wherever_on_a_relays_way_a_daemon_stands_still_the_relay_is_executed_once() {
    const STEP: u64 = 15;
    for moments in 0..40 {
        runtime().block_on(async {
            let mut simulation = Simulation::with_daemons(2, 1, u128::MAX, moments + 1).await;
            apply(&mut simulation, &[Op::Wait(30), Op::Latency(40)]).await;
            let stopped = holder(&simulation);
            apply(&mut simulation, &[Op::Request(0)]).await;
            sleep(Duration::from_millis(moments * STEP)).await;
            simulation.pause(usize::from(stopped), true);
            // Others take the account, finish the relay, and give the next nonce to another one.
            apply(&mut simulation, &[Op::Latency(0), Op::Wait(150), Op::Mine(8), Op::Wait(20)]).await;
            apply(&mut simulation, &[Op::Request(1), Op::Request(1), Op::Wait(20), Op::Mine(8)]).await;
            apply(&mut simulation, &[Op::Pause(stopped, false), Op::Wait(30)]).await;
            simulation.settle_down().await;
            simulation.check().unwrap();
            let requests = simulation.requests.len();
            assert_eq!(executed(&simulation), requests, "stopped after {moments} moments");
            let mined = simulation.world.chain().now().mined(simulation.account(0));
            assert_eq!(mined, requests as u64, "stopped after {moments} moments: not one transaction each");
        });
    }
}

/// Two nonces of one relay, of accounts of two daemons: the first was cancelled, the client sent the request
/// again, and a reorg undid the cancellation.
#[test]
fn a_relay_that_was_cancelled_sent_again_and_reopened_by_a_reorganisation_ends() {
    use Op::{Cut, Foreign, HangUp, Kill, Latency, Mine, Pause, Rejecting, Reorganise, Request, Wait};
    let begin = [Request(3), Foreign(0), Wait(72), Latency(142), Pause(2, false), Wait(159), Rejecting(true)];
    let cancelled = [Request(3), Request(0), Mine(2), Wait(741), Wait(129), Op::Bypass(2), Kill(1), Mine(3)];
    let again =
        [Request(2), Wait(196), Op::Lose(Lost::Answer), Request(1), HangUp(0, 3), Op::FailingReads(8)];
    let undone = [Reorganise(2, false), Wait(164), Cut(1, false), Kill(0), Request(2), Mine(1), Request(0)];
    let more = [HangUp(0, 2), Request(1), Wait(143), Request(2), Request(0), Wait(122), Wait(186)];
    for seed in [18_059_147_964_371_844_599, 16, 1, 2, 3] {
        runtime().block_on(async {
            let mut simulation = Simulation::with_daemons(2, 3, u128::MAX, seed).await;
            apply(&mut simulation, &[&begin[..], &cancelled, &again, &undone, &more].concat()).await;
            simulation.settle_down().await;
            simulation.check().unwrap();
        });
    }
}

/// The one that came first was executed, and is in flight again after a reorg undid that; the other one was
/// accepted meanwhile. The two daemons see them arrive in different orders.
#[test]
fn two_relays_with_one_nonce_at_two_daemons_do_not_wait_for_one_another() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 2, u128::MAX, 7).await;
        let executed_first =
            [Op::Wait(150), Op::RequestUntil(0, 250), Op::Wait(10), Op::Mine(5), Op::Wait(20)];
        apply(&mut simulation, &executed_first).await;
        assert_eq!(executed(&simulation), 1);
        let payer = if simulation.nonces_given(0) == 1 { 0 } else { 1 };
        // The other request comes to the second daemon, and then to the first one, which runs the first relay.
        let undone = [Op::NoNonces(true), Op::Reorganise(1, true), Op::Request(0), Op::Repeat(0)];
        apply(&mut simulation, &undone).await;
        assert_eq!(simulation.requests.len(), 2);
        apply(&mut simulation, &[Op::Wait(50), Op::Foreign(payer), Op::Wait(600), Op::NoNonces(false)]).await;
        simulation.settle_down().await;
        simulation.check().unwrap();
        assert_eq!(executed(&simulation), 1, "one of them is carried out");
    });
}

#[test]
fn of_two_requests_with_one_nonce_one_is_sent_though_a_dropped_one_came_again_while_the_other_was_checked() {
    runtime().block_on(async {
        let mut simulation = Simulation::with_daemons(2, 2, u128::MAX, 7).await;
        let empty = |empty| [Op::Empty(0, empty), Op::Empty(1, empty), Op::Wait(20)];
        apply(&mut simulation, &empty(true)).await;
        apply(&mut simulation, &[Op::Request(0), Op::Wait(20)]).await;
        assert!(simulation.is_quiet(), "not dropped for want of funds");
        apply(&mut simulation, &empty(false)).await;
        // While the second daemon checks the other request, the dropped one comes to the first again.
        apply(&mut simulation, &[Op::Latency(200), Op::RequestUntil(0, 250), Op::RepeatEarlier(0, 1)]).await;
        assert_eq!(simulation.requests.len(), 2);
        apply(&mut simulation, &[Op::Wait(50), Op::Mine(8), Op::Wait(50)]).await;
        simulation.settle_down().await;
        simulation.check().unwrap();
        assert_eq!(executed(&simulation), 1);
        assert_eq!(simulation.nonces_given(0) + simulation.nonces_given(1), 1, "both were sent");
    });
}
