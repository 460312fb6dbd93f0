//! Periodic checks for readiness and metrics: chain, balance, store, sender.
//!
//! An idle daemon makes a constant number of RPC calls: two here and one in the sender every 15 seconds, and
//! one more for each endpoint if there are several.

use std::{sync::Arc, time::Duration};

use tokio::time::interval;

use crate::{
    budget::WINDOW_SECONDS,
    chain::ChainNode as _,
    gas,
    http::readiness::RelayerReadiness,
    process::shutdown::{ShutdownSignal, stopped},
    relay::{MINIMUM_BALANCE_WEI, Relayer},
};

/// The time between two rounds.
pub const ROUND: Duration = Duration::from_secs(15);
/// Rounds between two prunings of the rate limits' maps, which a flood of addresses fills fast.
const FORGET_ROUNDS: u64 = 4;

/// Runs until shutdown.
pub async fn run(relayer: Arc<Relayer>, readiness: RelayerReadiness, mut stop: ShutdownSignal) {
    let mut rounds = interval(ROUND);
    for round in 0_u64.. {
        tokio::select! {
            _ = rounds.tick() => {}
            () = stopped(&mut stop) => return,
        }
        look(&relayer, &readiness).await;
        if round % FORGET_ROUNDS == 0 {
            relayer.limits.forget_idle();
        }
    }
}

/// One round: reads the chain, and reports its state and the daemon's to the readiness probe.
async fn look(relayer: &Relayer, readiness: &RelayerReadiness) {
    let chain = &relayer.chain;
    chain.rpc.prefer_freshest().await;
    match tokio::try_join!(chain.header("latest"), chain.balance()) {
        Ok((header, balance)) => {
            relayer.saw_balance(balance);
            readiness.chain_answered(balance >= MINIMUM_BALANCE_WEI);
            if let Some(header) = header {
                relayer.clock.saw_chain(header.timestamp.to());
                if let Some(number) = header.number {
                    relayer.metrics.head_block.set(number.to());
                }
                let base_fee = header.base_fee_per_gas.map_or(0, |fee| fee.saturating_to());
                readiness.budget_spent(budget_spent(relayer, base_fee).await);
            }
        }
        Err(error) => tracing::warn!(%error, "the chain does not answer"),
    }
    readiness.sender_rounds(relayer.metrics.sender_rounds.get());
    let written = relayer.store.run(|store| store.probe()).await;
    if let Err(error) = &written {
        tracing::error!(%error, "journal cannot be written");
    }
    readiness.store(written.is_ok());
}

/// Seconds until the budget is fresh, if less is left than the cheapest relay costs at this base fee.
/// Reservations do not count: they may be given back.
async fn budget_spent(relayer: &Relayer, base_fee: u128) -> Option<u64> {
    let (limit, now) = (relayer.spending.daily_wei, relayer.clock.now());
    let budget = relayer.store.run(move |store| store.budget(limit, now)).await.ok()?;
    let left = limit.saturating_sub(budget.window.settled_wei);
    let spent = left < u128::from(gas::CHEAPEST_RELAY).saturating_mul(base_fee.max(1));
    spent.then(|| budget.resets_at().map_or(WINDOW_SECONDS, |reset| reset.saturating_sub(now)).max(1))
}
