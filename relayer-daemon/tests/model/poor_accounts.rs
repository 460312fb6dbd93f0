//! Histories of a fleet with an account that pays for some relays and not for others.

use super::fleet::PAIR;
use super::ops::Op::*;
use super::*;

/// Posts a request that one daemon's account cannot pay for, while the other one's is stuck.
async fn request_beside_a_stuck_account(simulation: &mut Simulation) {
    simulation.play([Wait(150), Ignored(1, true), Request(0), Request(1), Wait(20), Mine(8)]).await;
    assert_eq!(simulation.given(), [1, 1]);
    let poor = simulation.account(0);
    simulation.world.chain().balances.insert(poor, 1_500_000 * GWEI);
    // Balances are read at the end of a wait.
    simulation.play([Wait(1_300), Wait(60), DearRequest(2)]).await;
    assert_eq!(simulation.requests.len(), 3);
}

#[test]
fn a_relay_that_only_a_stuck_account_of_another_daemon_can_pay_for_waits_for_that() {
    let ended = run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        request_beside_a_stuck_account(simulation).await;
        simulation.play([Wait(300)]).await;
        assert_eq!(simulation.told.lock().unwrap().len(), 1, "dropped");
        // Cheap ones do not go behind what is stuck.
        simulation.play([Request(3), Wait(60)]).await;
        assert_eq!(simulation.given(), [2, 1]);
        simulation.play([Ignored(1, false), Mine(8), Wait(300), Mine(8), Wait(60)]).await;
        assert_eq!((simulation.given(), simulation.executed()), ([2, 2], 4));
        simulation.world.chain().balances.clear();
    });
    assert_eq!(ended.executed(), 4);
}

#[test]
fn a_relay_that_no_account_comes_to_pay_for_is_dropped_when_the_daemons_patience_ends() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        request_beside_a_stuck_account(simulation).await;
        simulation.play([Wait(1_000)]).await;
        assert_eq!(simulation.told.lock().unwrap().len(), 1, "dropped");
        simulation.play([Wait(700)]).await;
        let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
        let refused = |outcome: &&RelayOutcome| {
            outcome.parts().1.is_some_and(|failure| failure.code == ErrorCode::RelayerBalanceTooLow)
        };
        assert_eq!((told.len(), told.iter().filter(refused).count()), (2, 1), "{told:?}");
        simulation.world.chain().balances.clear();
    });
}
