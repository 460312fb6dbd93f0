//! Carries out orders: in a running daemon, or in the command itself on the store.

use std::{sync::Arc, time::Duration};

use alloy::primitives::Address;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::{
    outcome::RelayOutcome,
    relay::Relayer,
    sender::health::AccountState,
    store::{
        Store, StoreError,
        control::{DaemonReport, Effect, Order},
    },
};

/// Time that an order to reload waits for the daemons.
const RELOADED_WITHIN: Duration = Duration::from_secs(8);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct OrderAnswer {
    /// False if it was refused.
    pub ok: bool,
    /// True if nothing had to be changed.
    pub already: bool,
    /// The answer for people; for a refusal, the argument and the rule.
    pub text: String,
    /// The answer for programs.
    pub details: Value,
}

impl OrderAnswer {
    fn done(text: impl Into<String>) -> Self {
        Self { ok: true, already: false, text: text.into(), details: Value::Null }
    }

    fn already(text: impl Into<String>) -> Self {
        Self { already: true, ..Self::done(text) }
    }

    fn refused(text: impl Into<String>) -> Self {
        Self { ok: false, ..Self::done(text) }
    }

    fn of(effect: &Effect, done: impl Into<String>, already: impl Into<String>) -> Self {
        if *effect == Effect::Already { Self::already(already) } else { Self::done(done) }
    }
}

#[derive(Debug)]
pub(super) struct OrderExecutor {
    pub(super) store: Arc<Store>,
    /// The running daemon, if this is one, and the notification that has it read its orders.
    pub(super) daemon: Option<(Arc<Relayer>, Arc<Notify>)>,
}

impl OrderExecutor {
    /// Carries out an order.
    ///
    /// # Errors
    /// Errors of the store; nothing has changed then.
    pub(super) async fn carry_out(&self, order: Order, operator: String) -> Result<OrderAnswer, StoreError> {
        if let Order::Cordon { account } = order
            && let Some(known) = self.known_accounts().await?
            && !known.contains(&account)
        {
            let text = format!("ACCOUNT: {account} is no account of this relayer; `ctl keys` lists them");
            return Ok(OrderAnswer::refused(text));
        }
        if let (Order::Abandon { account }, Some((relayer, _))) = (order, &self.daemon)
            && relayer.configured.contains(&account)
            && !self.store.is_shared()
        {
            return Ok(OrderAnswer::refused(format!(
                "ACCOUNT: a daemon holds {account}: take its key out of the settings and restart it first"
            )));
        }
        let before = if order == Order::Reload { self.reports().await? } else { Vec::new() };
        let effect = self.store.run(move |store| store.order(order, &operator)).await?;
        if let Some((_, wake)) = &self.daemon {
            wake.notify_one();
        }
        Ok(match order {
            Order::Pause => OrderAnswer::of(
                &effect,
                "intake is paused: new requests get 503 INTAKE_PAUSED, and relays in hand go on",
                "intake is already paused",
            ),
            Order::Resume => OrderAnswer::of(&effect, "intake is open", "intake is already open"),
            Order::Cordon { account } => OrderAnswer::of(
                &effect,
                format!("{account} is cordoned: it gets no more relays, and ends those that it has sent"),
                format!("{account} is already cordoned"),
            ),
            Order::Uncordon { account } => OrderAnswer::of(
                &effect,
                format!("{account} gets relays again"),
                format!("{account} is already uncordoned"),
            ),
            Order::Cancel { relay } => match effect {
                Effect::Cancelled => {
                    OrderAnswer::done(format!("{relay} is cancelled: nothing of it was sent"))
                }
                Effect::Replacing => OrderAnswer::done(format!(
                    "{relay} was sent: a no-op is to take its nonce; GET /relay/{relay} says which one was mined"
                )),
                Effect::Ended(outcome) => OrderAnswer::refused(format!("RELAY: {relay} {}", ended(&outcome))),
                Effect::Unknown => OrderAnswer::refused(format!("RELAY: {relay} is not in the journal")),
                _ => OrderAnswer::already(format!("{relay} is already cancelled")),
            },
            Order::Abandon { account } => match effect {
                Effect::Held => OrderAnswer::refused(format!(
                    "ACCOUNT: a daemon holds {account}, and may send with it: cordon it first"
                )),
                Effect::GivenUp(nonces) => OrderAnswer {
                    details: json!({ "nonces": nonces }),
                    ..OrderAnswer::done(format!(
                        "{nonces} nonces are given up; their relays go to other accounts"
                    ))
                },
                _ => OrderAnswer {
                    details: json!({ "nonces": 0 }),
                    ..OrderAnswer::already(format!(
                        "0 nonces are given up: {account} has already none in flight"
                    ))
                },
            },
            Order::Reload => self.reloaded(&effect, &before).await?,
            Order::Keys => self.keys().await?,
            Order::Export { .. } => OrderAnswer::done(String::new()),
        })
    }

    /// Returns the accounts of this relayer, or `None` if they are not known here.
    async fn known_accounts(&self) -> Result<Option<Vec<Address>>, StoreError> {
        let own = self.daemon.as_ref().map(|(relayer, _)| relayer.configured.clone());
        if own.is_none() && !self.store.is_shared() {
            return Ok(None);
        }
        let records = self.store.run(|store| store.account_records()).await?;
        Ok(Some(own.into_iter().flatten().chain(records.into_iter().map(|record| record.account)).collect()))
    }

    async fn reports(&self) -> Result<Vec<DaemonReport>, StoreError> {
        self.store.run(|store| store.reports()).await
    }

    /// Waits until each daemon has followed the order to reload, or says that it cannot.
    async fn reloaded(&self, effect: &Effect, before: &[DaemonReport]) -> Result<OrderAnswer, StoreError> {
        let Effect::Number(number) = *effect else {
            return Ok(OrderAnswer::refused("the order has no number"));
        };
        if before.is_empty() {
            return Ok(OrderAnswer::done("no daemon runs: each reads the policy when it starts"));
        }
        let deadline = Instant::now() + RELOADED_WITHIN;
        let reports = loop {
            let reports = self.reports().await?;
            if reports.iter().all(|report| report.reload >= number) || Instant::now() >= deadline {
                break reports;
            }
            sleep(LOOK_AGAIN).await;
        };
        Ok(followed(number, before, &reports))
    }

    /// Lists the accounts and the daemons.
    async fn keys(&self) -> Result<OrderAnswer, StoreError> {
        let records = self.store.run(|store| store.account_records()).await?;
        let (reports, orders) = (self.reports().await?, self.store.run(|store| store.orders()).await?);
        let (mut accounts, senders) = match &self.daemon {
            Some((relayer, _)) => (relayer.configured.clone(), relayer.accounts.senders()),
            None => Default::default(),
        };
        accounts.extend(records.iter().map(|record| record.account).chain(orders.cordoned.keys().copied()));
        accounts.sort();
        accounts.dedup();
        let (mut rows, mut lines) = (Vec::new(), Vec::new());
        for account in accounts {
            let record = records.iter().find(|record| record.account == account);
            let holder = record.and_then(|record| record.holder.as_ref()).map(|id| id.0.to_string());
            let state = if orders.cordoned.contains_key(&account) {
                AccountState::Cordoned.name()
            } else {
                // Without a daemon to ask nothing more is known.
                let elsewhere = if holder.is_some() { AccountState::Elsewhere.name() } else { "notHeld" };
                let sender = senders.iter().find(|sender| sender.account() == account);
                sender.map_or(elsewhere, |sender| sender.account_state().name())
            };
            let open = record.map_or(0, |record| record.open_nonces);
            let at = reports.iter().find(|report| Some(&report.daemon) == holder.as_ref());
            let place = match (&holder, at) {
                (Some(id), Some(at)) => format!("{id} at {}", at.host),
                (Some(id), None) => id.clone(),
                (None, _) => "-".to_owned(),
            };
            lines.push(format!("{account}  {state:<12}  {open:>4} in flight  {place}"));
            rows.push(json!({ "account": account, "state": state, "inFlight": open, "daemon": holder }));
        }
        for DaemonReport { daemon, host, policy, settings, .. } in &reports {
            lines.push(format!("daemon {daemon} at {host}: policy {policy}, settings {settings}"));
        }
        let details = json!({ "accounts": rows, "daemons": reports });
        Ok(OrderAnswer { details, ..OrderAnswer::done(lines.join("\n")) })
    }
}

fn ended(outcome: &RelayOutcome) -> String {
    match outcome.parts() {
        (Some(mined), ..) => format!("is {} already, by {}", outcome.state(), mined.tx_hash),
        (None, Some(failure), _) => format!("was dropped already: {}", failure.message()),
        _ => "has ended already".to_owned(),
    }
}

/// Returns the answer to the reload with this number, from the daemons' reports before and after it.
fn followed(number: u64, before: &[DaemonReport], reports: &[DaemonReport]) -> OrderAnswer {
    let line = |report: &DaemonReport| {
        let DaemonReport { daemon, host, policy, .. } = report;
        let what = match &report.fault {
            _ if report.reload < number => {
                "has not answered, and reads the policy when it goes on".to_owned()
            }
            Some(fault) => format!("refused, and the policy before stays: {fault}"),
            None => format!("policy {policy}"),
        };
        format!("{daemon} at {host}: {what}")
    };
    let text = reports.iter().map(line).collect::<Vec<_>>().join("\n");
    let has_changed = reports
        .iter()
        .any(|report| before.iter().any(|old| old.daemon == report.daemon && old.policy != report.policy));
    let ok = reports.iter().all(|report| report.fault.is_none() && report.reload >= number);
    let already = ok && !has_changed;
    OrderAnswer {
        ok,
        already,
        text: if already { format!("already in force:\n{text}") } else { text },
        details: json!({ "daemons": reports }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_already_in_force_only_where_each_daemon_has_followed_the_order() {
        let report = |policy: &str, reload, fault: Option<&str>| DaemonReport {
            policy: policy.to_owned(),
            reload,
            fault: fault.map(str::to_owned),
            ..DaemonReport::default()
        };
        let before = [report("old", 1, None)];
        for (after, ok, already) in [
            (report("old", 2, None), true, true),
            (report("new", 2, None), true, false),
            (report("old", 2, Some("deny")), false, false),
            (report("old", 1, None), false, false),
        ] {
            let answer = followed(2, &before, &[after]);
            assert_eq!((answer.ok, answer.already), (ok, already), "{}", answer.text);
            assert_eq!(answer.text.starts_with("already in force"), already);
        }
    }
}
