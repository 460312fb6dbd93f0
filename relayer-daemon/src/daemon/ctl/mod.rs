//! `ctl`: the operator's orders. A running daemon carries them out, asked by its local socket; without one
//! the command itself writes them to the store, where the daemons of a fleet find them, and those that start
//! later.
//!
//! Exit status: 0 if the order is in force, also if it was before; 1 if it was refused or failed; 2 for a
//! wrong command line.

mod desk;
mod export;
mod socket;

use std::{fs, path::PathBuf, process::ExitCode, sync::Arc};

use alloy::primitives::Address;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use host_kit::{print, say};
use registry_core::eth::timestamp::Timestamp;
use serde_json::json;
use tokio::sync::Notify;

use self::desk::{OrderAnswer, OrderExecutor};
pub use self::socket::ControlSocket;
use super::{
    replay::{files, open_existing},
    settings::Settings,
};
use crate::{
    process::{instance::host, lock::ProcessLock, shutdown::ShutdownSignal},
    relay::Relayer,
    store::{
        DaemonId, Store,
        control::{ExportFormat, Order, account, time},
    },
};

/// The arguments of `ctl`: the order, and the daemon's settings.
#[derive(Debug, Clone, Args)]
pub struct CtlArgs {
    /// The daemon's settings
    #[command(flatten)]
    pub settings: Settings,

    /// Print answers as JSON
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: CtlCommand,
}

/// The arguments of `abandon`, which is the order of the same name.
#[derive(Debug, Clone, Args)]
pub struct AbandonArgs {
    /// The daemon's settings
    #[command(flatten)]
    pub settings: Settings,

    /// The account to abandon: its open nonces are given up
    #[arg(long, value_parser = account)]
    account: Address,
}

impl From<AbandonArgs> for CtlArgs {
    fn from(AbandonArgs { settings, account }: AbandonArgs) -> Self {
        Self { settings, json: false, command: CtlCommand::Order(Order::Abandon { account }) }
    }
}

#[derive(Debug, Clone, Subcommand)]
enum CtlCommand {
    #[command(flatten)]
    Order(Order),
    /// List the orders that were given: when, by which user, with which result
    Log {
        /// Only orders from this time on: unix seconds, or a date or time (UTC)
        #[arg(long, value_parser = time, default_value = "0")]
        since: u64,
    },
}

/// Gives an order and prints the answer.
///
/// # Errors
/// Fails if neither a daemon nor the store can be reached.
pub async fn run(args: &CtlArgs) -> anyhow::Result<ExitCode> {
    let settings = &args.settings;
    let order = match args.command {
        CtlCommand::Order(Order::Export { since, format }) => {
            let format = if args.json { ExportFormat::Jsonl } else { format };
            return export::run(&open(settings).await?, since, format).await;
        }
        CtlCommand::Order(order) => order,
        CtlCommand::Log { since } => return log(&open(settings).await?, since, args.json).await,
    };
    let answer = match socket::ask(&settings.control_socket(), &order).await? {
        Some(answer) => answer,
        None => by_the_store(settings, order).await?,
    };
    show(&answer, args.json)
}

fn show(answer: &OrderAnswer, as_json: bool) -> anyhow::Result<ExitCode> {
    let OrderAnswer { ok, already, text, details } = answer;
    if as_json {
        let answer = json!({ "ok": ok, "already": already, "message": text, "details": details });
        print(format_args!("{answer}\n"))?;
    } else if *ok {
        print(format_args!("{text}\n"))?;
    } else {
        say(format_args!("relayer-daemon: {text}\n"));
    }
    Ok(if *ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Carries out an order without a daemon.
async fn by_the_store(settings: &Settings, order: Order) -> anyhow::Result<OrderAnswer> {
    let _lock = match (order, &settings.store_url) {
        // A daemon alone remembers what its accounts have in flight.
        (Order::Abandon { .. }, None) => {
            let lock = files(settings).await?.store_lock;
            Some(ProcessLock::take(&lock).context("stop the daemon first")?)
        }
        _ => None,
    };
    let desk = OrderExecutor { store: open(settings).await?, daemon: None };
    Ok(desk.carry_out(order, own_operator()).await?)
}

async fn open(settings: &Settings) -> anyhow::Result<Arc<Store>> {
    let store = open_existing(settings).await?;
    // In a fleet as a daemon that is no member and holds nothing.
    let of_fleet = settings.store_url.is_some();
    Ok(if of_fleet { Arc::new(store.of_daemon(DaemonId::random())) } else { store })
}

/// Listens for orders, if that is possible; without a socket they come by the store.
pub(super) fn listen(settings: &Settings) -> Option<ControlSocket> {
    let path = settings.control_socket();
    let told = |error: &std::io::Error| {
        tracing::warn!(path = %path.display(), %error, "no control socket: `ctl` goes by the store");
    };
    ControlSocket::listen(&path).inspect_err(told).ok()
}

/// Carries out the orders that come by the socket, until shutdown.
pub(super) async fn serve(
    socket: ControlSocket,
    relayer: Arc<Relayer>,
    wake: Arc<Notify>,
    stop: ShutdownSignal,
) {
    let store = Arc::clone(&relayer.store);
    socket.serve(OrderExecutor { store, daemon: Some((relayer, wake)) }, stop).await;
}

/// Returns the name and id of a user of this machine, and the host, for the journal of orders.
fn operator(uid: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    });
    let host = host();
    name.map_or_else(|| format!("uid {uid} at {host}"), |name| format!("{name} (uid {uid}) at {host}"))
}

/// Returns this process's user as [`operator`] names it.
fn own_operator() -> String {
    operator(rustix::process::getuid().as_raw())
}

async fn log(store: &Arc<Store>, since: u64, as_json: bool) -> anyhow::Result<ExitCode> {
    for operation in store.run(move |store| store.operations(since)).await? {
        let line = if as_json {
            serde_json::to_string(&operation)?
        } else {
            let at = Timestamp::from_seconds(operation.at);
            let order = format!("{} {}", operation.command, operation.argument);
            format!("{at}  {}  {}  {}", operation.operator, order.trim_end(), operation.result)
        };
        if !print(format_args!("{line}\n"))? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Settings {
    /// Returns the path of the control socket.
    pub fn control_socket(&self) -> PathBuf {
        let of_forwarder = || self.data_dir.join(format!("control-{}.sock", self.forwarder_address));
        self.control_socket.clone().unwrap_or_else(of_forwarder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_told_by_name_and_id_and_machine() {
        assert!(operator(0).starts_with("root (uid 0) at "));
        assert!(operator(u32::MAX - 7).starts_with("uid 4294967288 at "));
    }
}
