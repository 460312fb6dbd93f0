//! The operator's orders as the store keeps them: those in force, for all daemons of a fleet, and a journal
//! of the orders with their operators.
//!
//! An order is a row, which each daemon reads once a second: one that is down finds it when it starts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use alloy::primitives::{Address, B256};
use clap::{Subcommand, ValueEnum};
use registry_core::eth::{address, timestamp::Timestamp};
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::DaemonId;
use crate::outcome::RelayOutcome;

/// Milliseconds after which a daemon that has not reported counts as gone.
pub const SILENT_MS: i64 = 15_000;

/// An order of the operator, as on the command line and as the store has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Subcommand, IntoStaticStr)]
#[serde(tag = "command", rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Order {
    /// Accept no new relays: POST /relay answers 503 INTAKE_PAUSED; relays in hand go on
    Pause,
    /// Accept relays again
    Resume,
    /// Give an account no more relays
    Cordon {
        /// The account
        #[arg(value_parser = account)]
        account: Address,
    },
    /// Give an account relays again
    Uncordon {
        /// The account
        #[arg(value_parser = account)]
        account: Address,
    },
    /// End a relay without executing it: one that was sent is replaced by a no-op
    Cancel {
        /// The relay's id
        #[arg(value_parser = relay_id)]
        relay: B256,
    },
    /// Give up what an account with a lost, stolen or closed key has in flight: other accounts carry its
    /// relays
    Abandon {
        /// The account
        #[arg(value_parser = account)]
        account: Address,
    },
    /// Have every daemon read its policy file again, with its API keys and webhook secrets
    Reload,
    /// List accounts and daemons
    Keys,
    /// Write out the relays that have ended, with key, signer, gas, cost and outcome
    Export {
        /// Relays that ended from this time on: unix seconds, or a date or time (UTC)
        #[arg(long, value_parser = time, default_value = "0")]
        since: u64,
        /// The format
        #[arg(long, default_value = "csv")]
        format: ExportFormat,
    },
}

/// A format of exported relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum ExportFormat {
    /// A line of names, and one for each relay.
    Csv,
    /// A JSON object in each line.
    Jsonl,
}

/// Reads an account's address.
///
/// # Errors
/// The rule that it breaks.
pub fn account(text: &str) -> Result<Address, &'static str> {
    let rule = "must be 0x and 40 hexadecimal digits, with a right checksum if in mixed case";
    address::parse(text).map_err(|_| rule)
}

/// Reads a relay's id.
///
/// # Errors
/// The rule that it breaks.
pub fn relay_id(text: &str) -> Result<B256, &'static str> {
    let id = text.starts_with("0x").then(|| text.parse().ok()).flatten();
    id.ok_or("must be 0x and 64 hexadecimal digits")
}

/// Reads a time, unix seconds.
///
/// # Errors
/// The rule that it breaks.
pub fn time(text: &str) -> Result<u64, &'static str> {
    let date = || Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{text}T00:00:00.000Z")));
    text.parse()
        .ok()
        .or_else(|| Some(date()?.seconds()))
        .ok_or("must be unix seconds, a date as 2026-01-31, or a time as 2026-01-31T00:00:00.000Z")
}

impl Order {
    /// Returns the order's name, as on the command line.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Returns the order's argument, as on the command line; empty for none.
    pub fn argument(&self) -> String {
        match self {
            Self::Pause | Self::Resume | Self::Reload | Self::Keys => String::new(),
            Self::Cordon { account } | Self::Uncordon { account } | Self::Abandon { account } => {
                account.to_string()
            }
            Self::Cancel { relay } => relay.to_string(),
            Self::Export { since, .. } => since.to_string(),
        }
    }
}

/// The result of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is in force now.
    Done,
    /// It was in force before.
    Already,
    /// A relay that was not sent has ended.
    Cancelled,
    /// A relay was sent: a no-op is to take its nonce.
    Replacing,
    /// A relay has ended otherwise before.
    Ended(RelayOutcome),
    /// The relay is not stored.
    Unknown,
    /// This number of nonces was given up.
    GivenUp(usize),
    /// Refused: a daemon holds the account, which is not cordoned.
    Held,
    /// The order to reload has this number.
    Number(u64),
}

impl fmt::Display for Effect {
    /// Writes the result as the journal has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Already => f.write_str("already"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Replacing => f.write_str("replacing"),
            Self::Ended(outcome) => f.write_str(outcome.state()),
            Self::Unknown => f.write_str("refused: not known"),
            Self::GivenUp(nonces) => write!(f, "{nonces} nonces"),
            Self::Held => f.write_str("refused: held by a daemon"),
            Self::Number(number) => write!(f, "number {number}"),
        }
    }
}

/// An order that was given, with its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Time of the order, unix seconds.
    pub at: u64,
    /// The user that gave it, with user id and machine.
    pub operator: String,
    /// The order's name.
    pub command: String,
    /// The order's argument.
    pub argument: String,
    /// The result.
    pub result: String,
}

/// The orders in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// Time at which intake was paused, unix seconds; `None` while it is not.
    pub paused_since: Option<u64>,
    /// The accounts that get no relays, each with the time of the order, unix seconds.
    pub cordoned: BTreeMap<Address, u64>,
    /// The relays that are not to be executed.
    pub cancelled: BTreeSet<B256>,
    /// The number of the last order to reload.
    pub reload: u64,
}

/// The orders in force as this daemon last read them.
#[derive(Debug, Clone, Default)]
pub struct SharedOrders(Arc<RwLock<Arc<Orders>>>);

impl SharedOrders {
    /// Returns the orders.
    pub fn current(&self) -> Arc<Orders> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the orders, and returns those before.
    pub fn replace(&self, orders: Orders) -> Arc<Orders> {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Arc::new(orders))
    }
}

/// A daemon's report about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonReport {
    /// Its id.
    pub daemon: String,
    /// Its machine.
    pub host: String,
    /// The hash of the policy in force.
    pub policy: String,
    /// The hash of the settings that all daemons of a fleet have alike.
    pub settings: String,
    /// The number of the order to reload that it last followed.
    pub reload: u64,
    /// The reason why the policy was not reloaded.
    pub fault: Option<String>,
}

/// A paying account as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRecord {
    /// The account.
    pub account: Address,
    /// The daemon that holds it; `None` without a fleet.
    pub holder: Option<DaemonId>,
    /// The number of its nonces that are not seen mined.
    pub open_nonces: u64,
}

/// A relay that has ended, as an export has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportedRelay {
    /// Its id.
    pub relay: B256,
    /// The API key that sponsored it.
    pub key: Option<String>,
    /// Its signer.
    pub signer: Address,
    /// The account that paid; `None` where nothing was mined.
    pub account: Option<Address>,
    /// The transaction that ended it.
    pub tx_hash: Option<B256>,
    /// The gas that the transaction used.
    pub gas_used: Option<u64>,
    /// Total cost of its transactions, wei.
    #[serde(serialize_with = "decimal")]
    pub paid_wei: u128,
    /// Time of acceptance, unix seconds.
    pub accepted_at: u64,
    /// Time of its end, unix seconds.
    pub ended_at: u64,
    /// Its outcome: `executed`, `reverted` or `dropped`.
    pub outcome: String,
    /// The code of its failure.
    pub code: Option<String>,
}

fn decimal<S: serde::Serializer>(wei: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(wei)
}

impl ExportedRelay {
    /// The names of the columns.
    pub const CSV_HEADER: &str =
        "relay,key,signer,account,txHash,gasUsed,paidWei,acceptedAt,endedAt,outcome,code";

    /// Formats one line. No value has a comma or a quote: keys' names are letters, digits and `-_.`.
    pub fn csv(&self) -> String {
        fn or_empty(value: Option<impl ToString>) -> String {
            value.map(|value| value.to_string()).unwrap_or_default()
        }
        [
            self.relay.to_string(),
            or_empty(self.key.as_deref()),
            self.signer.to_string(),
            or_empty(self.account),
            or_empty(self.tx_hash),
            or_empty(self.gas_used),
            self.paid_wei.to_string(),
            self.accepted_at.to_string(),
            self.ended_at.to_string(),
            self.outcome.clone(),
            or_empty(self.code.as_deref()),
        ]
        .join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_wrong_are_told_with_their_rule() {
        assert_eq!(time("1767225600"), time("2026-01-01"));
        assert_eq!(time("2026-01-01T00:00:00.000Z"), Ok(1_767_225_600));
        assert!(time("yesterday").unwrap_err().contains("unix seconds"));
        assert!(account("0x12").unwrap_err().contains("40 hexadecimal digits"));
        let id = B256::repeat_byte(0xab);
        assert_eq!(relay_id(&id.to_string()), Ok(id));
        for wrong in ["0x12".to_owned(), "ab".repeat(32), format!("0X{}", "ab".repeat(32))] {
            assert!(relay_id(&wrong).unwrap_err().contains("64 hexadecimal digits"), "{wrong}");
        }
    }
}
