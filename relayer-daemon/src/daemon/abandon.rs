//! `abandon`: the way out for the relays of an account whose key is lost, stolen or closed.

use std::sync::Arc;

use alloy::primitives::Address;
use anyhow::{Context as _, bail};
use clap::Args;

use super::replay::files;
use crate::{
    daemon::{check, settings::Settings},
    process::lock::ProcessLock,
    store::{Store, StoreError},
};

/// The arguments of `abandon`: the account, and the daemon's settings.
#[derive(Debug, Clone, Args)]
pub struct AbandonArgs {
    #[command(flatten)]
    settings: Settings,

    /// The account whose open nonces are given up
    #[arg(long)]
    account: Address,
}

impl AbandonArgs {
    /// The daemon's settings.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Gives up the account's open nonces. Returns how many.
///
/// # Errors
/// If a daemon still has the account, or the journal cannot be written.
pub async fn run(args: &AbandonArgs) -> anyhow::Result<usize> {
    let account = args.account;
    let (store, _lock) = match args.settings.store_url.clone() {
        Some(url) => (tokio::task::spawn_blocking(move || check::connect(&url)).await??, None),
        None => {
            let files = files(&args.settings).await?;
            let lock = ProcessLock::take(&files.store_lock).context("stop the daemon first")?;
            (Store::open(&files.store)?, Some(lock))
        }
    };
    match Arc::new(store).run(move |store| store.abandon(account)).await {
        Err(StoreError::HeldElsewhere) => {
            bail!("a daemon holds {account}: restart that daemon without its key first")
        }
        given_up => Ok(given_up?),
    }
}
