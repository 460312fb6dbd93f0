//! What relays wait for and what they do not: a request waits for the one before it, and none waits for receipts.
//! A nonce that somebody else took is counted.

use std::{net::Ipv4Addr, time::Duration};

use alloy::primitives::U256;
use relayer_daemon::outcome::RelayOutcome;
use tokio::time::sleep;

use super::{
    SIGNERS, Simulation,
    ops::Op,
    requests::{body, identify},
    runtime,
};
use crate::history;

#[test]
fn a_nonce_that_a_foreign_transaction_took_is_counted_and_its_relay_gets_another() {
    runtime().block_on(async {
        let mut simulation = Simulation::new(u128::MAX, 7).await;
        let ops = [Op::Request(0), Op::Wait(10), Op::Foreign(0), Op::Wait(600), Op::Mine(5), Op::Wait(20)];
        for op in ops {
            simulation.apply(op).await;
        }
        let id = *simulation.requests.keys().next().unwrap();
        assert_eq!(simulation.store.relay(id).unwrap().unwrap().hashes.len(), 2, "one for each nonce");
        let metrics = simulation.living().next().unwrap().relayer.metrics.render();
        let counted = format!("relayer_foreign_nonces_total{{account=\"{}\"}} 1", simulation.account(0));
        assert!(metrics.lines().any(|line| line == counted), "{metrics}");
        simulation.settle_down().await;
        simulation.check().unwrap();
    });
}

#[test]
fn receipts_that_do_not_come_keep_no_relay_from_being_sent() {
    let mut ops = vec![Op::LateReceipts(250)];
    ops.extend((0..SIGNERS).map(Op::Request));
    ops.extend([Op::Wait(10), Op::Mine(3), Op::Wait(30)]);
    history(u128::MAX, &ops, |simulation| {
        assert_eq!(simulation.nonces_given(0), u64::from(SIGNERS), "the count alone makes room in the pool");
    });
}

#[test]
fn a_signers_requests_that_arrive_in_the_wrong_order_are_carried_out_in_the_right_one() {
    runtime().block_on(async {
        let simulation = Simulation::new(u128::MAX, 7).await;
        let bodies: Vec<_> = (0..4_u8).map(|nonce| body(0, U256::from(nonce), 0)).collect();
        for body in bodies.iter().rev() {
            let relayer = &simulation.living().next().unwrap().relayer;
            relayer.accept(body, Ipv4Addr::LOCALHOST.into(), None).await.unwrap();
        }
        for _ in 0..8 {
            sleep(Duration::from_secs(1)).await;
            simulation.world.chain().mine(8);
        }
        for body in &bodies {
            let outcome = simulation.store.relay(identify(body).0).unwrap().unwrap().outcome;
            assert!(matches!(outcome, Some(RelayOutcome::Executed { .. })), "{outcome:?}");
        }
    });
}
