//! A relay that runs through the pipeline twice at the same time.
//!
//! A daemon of a fleet looks for relays that no daemon runs, and then takes them. One that it admits between
//! the two is taken as well: it is started again while it runs. Either run may end it.

use alloy::primitives::B256;
use relayer_daemon::outcome::{ErrorCode, RelayOutcome};

use super::{Simulation, ops::Op, runtime};

fn only(simulation: &Simulation) -> B256 {
    *simulation.requests.keys().next().unwrap()
}

#[test]
fn no_client_waits_for_ever_where_one_run_drops_a_relay_that_another_has_started_again() {
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        // One run finds no funds, and drops the relay.
        for op in [Op::Empty(0, true), Op::Wait(10), Op::Request(0), Op::Wait(20)] {
            simulation.apply(op).await;
        }
        let id = only(&simulation);
        let outcome = |simulation: &Simulation| simulation.store.relay(id).unwrap().unwrap().outcome;
        let dropped = outcome(&simulation);
        assert!(
            matches!(&dropped, Some(RelayOutcome::Dropped { failure }) if failure.code == ErrorCode::RelayerBalanceTooLow),
            "{dropped:?}"
        );
        // The other one was started before that, and finds some: it comes as far as the sender.
        simulation.apply(Op::Empty(0, false)).await;
        simulation.apply(Op::Wait(10)).await;
        simulation.run_again(id);
        assert!(simulation.is_waited_for(id), "the run has not begun");
        simulation.apply(Op::Wait(20)).await;
        assert!(!simulation.is_waited_for(id), "what comes after it waits for ever");
        assert_eq!(outcome(&simulation), dropped, "what the client was told stands");
        assert_eq!(simulation.nonces_given(0), 0, "a relay that has ended was sent");
        // The signer goes on.
        for op in [Op::Request(0), Op::Wait(20), Op::Mine(8), Op::Wait(20)] {
            simulation.apply(op).await;
        }
        assert!(simulation.is_quiet());
        assert_eq!(simulation.nonces_given(0), 1);
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}
