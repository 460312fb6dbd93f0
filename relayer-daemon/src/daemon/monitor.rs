//! Periodic checks for readiness and metrics: chain, balance, store, sender.
//!
//! An idle daemon makes a constant number of RPC calls: one here, one here and one in its sender for each
//! account every 15 seconds, and one more for each endpoint if there are several.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::time::interval;

use crate::{
    chain::ChainNode as _,
    gas,
    http::readiness::RelayerReadiness,
    outcome::Failure,
    process::shutdown::{ShutdownSignal, unless_stopped},
    relay::Relayer,
};

/// The time between two rounds.
pub const ROUND: Duration = Duration::from_secs(15);
/// Rounds between two prunings of the rate limits' maps, which a flood of addresses fills fast.
const FORGET_ROUNDS: u64 = 4;
/// Rounds between two looks for code at the accounts: five minutes. The checks at the start were the first.
const CODE_ROUNDS: u64 = 20;

/// Runs until shutdown.
pub async fn run(relayer: Arc<Relayer>, readiness: RelayerReadiness, mut stop: ShutdownSignal) {
    let mut rounds = interval(ROUND);
    for round in 0_u64.. {
        if unless_stopped(&mut stop, rounds.tick()).await.is_none() {
            return;
        }
        look(&relayer, &readiness).await;
        if round % CODE_ROUNDS == CODE_ROUNDS - 1 {
            look_for_code(&relayer).await;
        }
        if round % FORGET_ROUNDS == 0 {
            relayer.limits.forget_idle();
        }
    }
}

/// Runs one round: reads the chain, and reports its state and the daemon's to the readiness probe.
async fn look(relayer: &Relayer, readiness: &RelayerReadiness) {
    let chain = &relayer.chain;
    chain.rpc.prefer_freshest().await;
    let (header, ()) = tokio::join!(chain.header("latest"), look_at_balances(relayer));
    match header {
        Ok(header) => {
            readiness.chain_answered();
            if let Some(header) = header {
                relayer.clock.saw_chain(header.timestamp.to());
                if let Some(number) = header.number {
                    relayer.metrics.head_block.set(number.to());
                }
                let base_fee = header.base_fee_per_gas.map_or(0, |fee| fee.saturating_to());
                readiness.budget_spent(is_budget_spent(relayer, base_fee).await);
            }
        }
        Err(error) => tracing::warn!(%error, "the chain does not answer"),
    }
    readiness.accounts(relayer.accounts.check());
    let accounts = relayer.accounts.addresses();
    if accounts.is_empty() {
        // In a fleet others send what this daemon accepts.
        readiness.no_sender();
    } else {
        readiness.sender_rounds(relayer.metrics.all_sender_rounds(&accounts));
    }
    let written = relayer.store.run(|store| store.probe()).await;
    if let Err(error) = &written {
        tracing::error!(%error, "journal cannot be written");
    }
    readiness.store(written.map_err(Failure::from));
}

/// Reads each account's balance. One that is not read keeps the last one.
async fn look_at_balances(relayer: &Relayer) {
    let reads = relayer.accounts.senders().into_iter().map(|sender| async move {
        match relayer.chain.balance(sender.account()).await {
            Ok(balance) => sender.saw_balance(balance),
            Err(error) => tracing::warn!(account = %sender.account(), %error, "no balance"),
        }
    });
    join_all(reads).await;
}

/// Reads whether an account has got code since the start.
async fn look_for_code(relayer: &Relayer) {
    for sender in relayer.accounts.senders() {
        match relayer.chain.has_code(sender.account()).await {
            Ok(has_code) => sender.saw_code(has_code),
            Err(error) => tracing::warn!(account = %sender.account(), %error, "no code read"),
        }
    }
}

/// Returns whether less is left of the budget than the cheapest relay costs at this base fee. Reservations do
/// not count: they may be given back.
async fn is_budget_spent(relayer: &Relayer, base_fee: u128) -> bool {
    let (limit, now) = (relayer.terms.spending.daily_wei, relayer.clock.now());
    let Ok(budget) = relayer.store.run(move |store| store.budget(limit, now)).await else { return false };
    let left = limit.saturating_sub(budget.window.settled_wei);
    left < u128::from(gas::CHEAPEST_RELAY).saturating_mul(base_fee.max(1))
}
