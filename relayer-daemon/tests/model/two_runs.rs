//! A relay that runs through the pipeline twice at the same time.
//!
//! A daemon of a fleet looks for relays that no daemon runs, and then takes them. One that it admits between
//! the two is taken as well: it is started again while it runs. Either run may end it.

use relayer_daemon::outcome::{ErrorCode, RelayOutcome};

use super::{
    SINGLE, Simulation,
    ops::Op::{Empty, Mine, Request, Wait},
    simulate,
};

#[test]
fn no_client_waits_for_ever_where_one_run_drops_a_relay_that_another_has_started_again() {
    let test = async |simulation: &mut Simulation| {
        // One run finds no funds, and drops the relay.
        simulation.play([Empty(0, true), Wait(10), Request(0), Wait(20)]).await;
        let id = simulation.only();
        let dropped = simulation.record(id).outcome;
        let Some(RelayOutcome::Dropped { failure }) = &dropped else { panic!("{dropped:?}") };
        assert_eq!(failure.code, ErrorCode::RelayerBalanceTooLow);
        // The other one was started before that, and finds some: it comes as far as the sender.
        simulation.play([Empty(0, false), Wait(10)]).await;
        simulation.run_again(id);
        assert!(simulation.is_waited_for(id), "the run has not begun");
        simulation.play([Wait(20)]).await;
        assert!(!simulation.is_waited_for(id), "what comes after it waits for ever");
        assert_eq!(simulation.record(id).outcome, dropped, "what the client was told stands");
        assert_eq!(simulation.given(), [0], "a relay that has ended was sent");
        // The signer goes on.
        simulation.play([Request(0), Wait(20), Mine(8), Wait(20)]).await;
        assert!(simulation.is_quiet());
        assert_eq!(simulation.given(), [1]);
    };
    simulate(SINGLE, test).unwrap();
}
