//! Histories of a fleet of which one daemon drains.

use relayer_daemon::daemon::lifecycle::drained;

use super::fleet::{PAIR, drain, holder};
use super::ops::Op::*;
use super::*;

/// Posts the signer's next request to this daemon.
async fn request_at(simulation: &mut Simulation, index: usize, signer: u8) {
    simulation.turn.store(index, Ordering::Relaxed);
    simulation.play([Request(signer)]).await;
}

/// Posts the first signer's request with this nonce to this daemon.
async fn post_at(simulation: &mut Simulation, index: usize, nonce: u8) {
    simulation.turn.store(index, Ordering::Relaxed);
    simulation.post(body(0, U256::from(nonce), 0, 100_000)).await;
}

/// The other one is without an account until the drain has ended.
#[test]
fn a_daemon_that_drains_hands_over_what_waits_for_a_relay_of_a_daemon_that_cannot_send_it() {
    let ended = run(PAIR, async |simulation| {
        simulation.play([Wait(150)]).await;
        let holder = holder(simulation, 0);
        post_at(simulation, holder, 1).await;
        let draining = drain(simulation, holder);
        post_at(simulation, 1 - holder, 0).await;
        assert_eq!(simulation.requests.len(), 2);
        simulation.play([Wait(200)]).await;
        assert!(draining.inflight.run_here().is_empty(), "each waits for the other one");
        assert_eq!(simulation.told.lock().unwrap().len(), 0, "dropped");
        simulation.play([Kill(holder as u8), Wait(300), Mine(8), Wait(60), Mine(8), Wait(60)]).await;
    });
    assert_eq!(ended.executed(), 2);
}

/// The other daemon has no account, or an empty one.
#[test]
fn a_daemon_that_has_nothing_to_send_from_keeps_what_it_accepts_until_the_account_of_one_that_drains_comes() {
    for accounts in [1, 2] {
        let ended = run(Setup { accounts, ..PAIR }, async |simulation| {
            simulation.play([Wait(150)]).await;
            let holder = holder(simulation, 0);
            if accounts == 2 {
                // Balances are read at the end of a wait.
                simulation.play([Empty(1, true), Wait(60), Wait(60)]).await;
            }
            drain(simulation, holder);
            simulation.play([Wait(60)]).await;
            let other = Arc::clone(&simulation.lives[1 - holder].as_ref().unwrap().relayer);
            assert!(other.accounts.check().is_ok(), "no order was given, and funds are there");
            request_at(simulation, 1 - holder, 0).await;
            assert_eq!(simulation.requests.len(), 1, "refused");
            simulation.play([Wait(200)]).await;
            assert_eq!(simulation.told.lock().unwrap().len(), 0, "dropped");
            simulation.play([Kill(holder as u8), Wait(300), Mine(8), Wait(60)]).await;
            assert_eq!(simulation.executed(), 1);
        });
        assert_eq!(ended.given::<1>(), [1]);
    }
}

/// It hands its relay over while the other one still counts as living, though it has died, and stays for it.
#[test]
fn a_daemon_that_drains_finishes_what_it_has_handed_over_where_the_other_one_has_died() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        let began = Instant::now();
        simulation.play([Wait(150), NoNonces(true)]).await;
        post_at(simulation, 1, 0).await;
        post_at(simulation, 0, 1).await;
        assert_eq!(simulation.requests.len(), 2);
        // The second relay looks for the first one every ten seconds, and a lease is as long.
        simulation.play([Wait(50)]).await;
        simulation.kill_one(1);
        let draining = drain(simulation, 0);
        let end = tokio::spawn(drained(Arc::clone(&draining), began));
        // Nothing is played: it would start the other one again.
        sleep(Duration::from_secs(6)).await;
        assert!(draining.inflight.run_here().is_empty(), "not handed over");
        simulation.world.faults().no_nonces = false;
        sleep(Duration::from_secs(30)).await;
        assert!(!end.is_finished(), "no daemon has them");
        for _ in 0..4 {
            simulation.world.chain().mine(8);
            sleep(Duration::from_secs(10)).await;
        }
        assert_eq!(simulation.executed(), 2);
        assert!(end.is_finished());
    });
    assert_eq!(ended.executed(), 2);
}
