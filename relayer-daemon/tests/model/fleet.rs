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

use super::{SIGNERS, Simulation, ops::Op, runtime};

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
