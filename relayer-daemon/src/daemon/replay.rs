//! `replay`: has events delivered once more. It writes to the journal, also beside a running daemon, which
//! delivers them.

use std::{sync::Arc, time::Duration};

use alloy::primitives::B256;
use anyhow::{Context as _, bail};
use clap::Args;

use crate::{
    chain::Rpc,
    daemon::settings::Settings,
    metrics::Metrics,
    process::clock,
    store::{
        Identity, Store,
        control::{relay_id, time},
        events::Replay,
        files::StoreFiles,
    },
};

/// Pause between two steps, so that most of the time the database is free for others.
const PAUSE: Duration = Duration::from_millis(50);

/// The arguments of `replay`: the events to deliver once more, and the daemon's settings.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The daemon's settings
    #[command(flatten)]
    pub settings: Settings,

    /// Events of this API key, by its name in the policy file
    #[arg(long, value_name = "NAME")]
    api_key: String,

    /// Only events of the relay with this id
    #[arg(long, value_parser = relay_id)]
    relay: Option<B256>,

    /// Only events from this time on: unix seconds, a date, or a time as 2026-01-31T00:00:00.000Z
    #[arg(long, value_parser = time, default_value = "0")]
    since: u64,

    /// Only events that were given up
    #[arg(long)]
    given_up: bool,
}

/// Marks the events as not delivered. Returns how many.
///
/// # Errors
/// Fails if there is no journal, or it cannot be written.
pub async fn run(args: &ReplayArgs) -> anyhow::Result<usize> {
    let settings = &args.settings;
    let replay = Replay {
        key: args.api_key.clone(),
        relay: args.relay,
        since: args.since,
        given_up_only: args.given_up,
    };
    let now = clock::shared().now();
    let (store, replay) = (open_existing(settings).await?, Arc::new(replay));
    let (mut events, mut after) = (0, None);
    loop {
        let chosen = Arc::clone(&replay);
        let (some, next) = store.run(move |store| store.replay(&chosen, after, now)).await?;
        events += some;
        after = next;
        if after.is_none() {
            return Ok(events);
        }
        // Other writes come first.
        tokio::time::sleep(PAUSE).await;
    }
}

/// Opens the journal of this forwarder, which must be there, and makes or migrates none.
///
/// # Errors
/// Fails if there is none, it is another relayer's, or its format is older.
pub(super) async fn open_existing(settings: &Settings) -> anyhow::Result<Arc<Store>> {
    let (store, place) = match settings.store_url.clone() {
        Some(url) => {
            let connect = move || Store::connect_existing(&url);
            (tokio::task::spawn_blocking(connect).await??, "in the database of STORE_URL".to_owned())
        }
        None => {
            let path = files(settings).await?.store;
            (Store::open_existing(&path)?, format!("at {}", path.display()))
        }
    };
    let none = || format!("there is no journal {place}");
    let store = Arc::new(store.with_context(none)?);
    let Identity { chain_id, forwarder, .. } =
        store.run(|store| store.identity()).await?.with_context(none)?;
    if forwarder != settings.forwarder_address || settings.chain_id.is_some_and(|id| id != chain_id) {
        bail!("the journal {place} belongs to forwarder {forwarder} on chain {chain_id}");
    }
    Ok(store)
}

/// Returns the journal's files, which must be there.
pub(super) async fn files(settings: &Settings) -> anyhow::Result<StoreFiles> {
    let files = files_of(settings).await?;
    if !files.store.exists() {
        bail!("there is no journal at {}", files.store.display());
    }
    Ok(files)
}

/// Returns the journal's files, which may be missing.
pub(super) async fn files_of(settings: &Settings) -> anyhow::Result<StoreFiles> {
    let chain_id = match settings.chain_id {
        Some(id) => id,
        None => asked_chain_id(settings).await?,
    };
    // The key that pays is no part of the journal's name.
    Ok(StoreFiles::new(&settings.data_dir, chain_id, settings.forwarder_address, Default::default()))
}

async fn asked_chain_id(settings: &Settings) -> anyhow::Result<u64> {
    let rpc = Rpc::new(&settings.endpoints()?, settings.rpc_timeout, Metrics::new()?)?;
    let ids = rpc.chain_ids().await;
    ids.into_iter().find_map(|(_, id)| id.ok()).context("no RPC endpoint says its chain id: set CHAIN_ID")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches as _};

    #[test]
    fn since_is_a_time_as_ctl_takes_it() {
        let since = |text: &str| {
            let line = format!(
                "relayer-daemon --forwarder-address 0x70c2fdD0CDada6b43195981928D76f5D32AE29e5 \
                 --registry-address 0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23 --api-key acme --since {text}"
            );
            let command = ReplayArgs::augment_args(Command::new("relayer-daemon"));
            let matches = command.try_get_matches_from(line.split(' '))?;
            ReplayArgs::from_arg_matches(&matches).map(|args| args.since)
        };
        assert_eq!(since("2026-01-01").unwrap(), 1_767_225_600);
        assert_eq!(since("1767225600").unwrap(), 1_767_225_600);
        assert!(since("yesterday").unwrap_err().to_string().contains("unix seconds"));
    }
}
