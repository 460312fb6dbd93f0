//! Histories of relays with a transaction that was given up, at endpoints that answer only in part.

use super::fleet::PAIR;
use super::ops::Op::*;
use super::*;

/// No endpoint that answers has the receipt.
#[test]
fn a_relay_that_its_abandoned_account_executed_is_not_called_dropped_while_an_endpoint_is_silent() {
    run(Setup { accounts: 2, ..PAIR }, async |simulation| {
        simulation.play([Wait(150), Unwilling(true), Request(0), Request(1), Wait(20)]).await;
        simulation.play([Empty(0, true), Wait(10), Abandon(1), Kill(0), Kill(1)]).await;
        simulation.play([Wait(20), Repeat(0), Repeat(1), Wait(600), LateReceipts(255)]).await;
        // Later than any that all endpoints deny is waited for.
        simulation.world.faults().late_receipts = Duration::from_secs(1_500);
        let mined = [SilentEndpoint(true), Unwilling(false), Ignored(0, true), Mine(8), Wait(7_000)];
        simulation.play(mined).await;
        assert_eq!(simulation.told.lock().unwrap().len(), 0, "an end that may not be the end");
        simulation.play([LateReceipts(0), SilentEndpoint(false), Wait(9_000)]).await;
        let told: Vec<_> = simulation.told.lock().unwrap().values().cloned().collect();
        assert!(matches!(told[..], [RelayOutcome::Executed { .. }]), "{told:?}");
    });
}
