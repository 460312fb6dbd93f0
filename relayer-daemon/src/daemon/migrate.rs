//! `migrate`: moves the journal of a daemon alone from its file to a Postgres database. The daemon is
//! stopped.
//!
//! ```text
//! lock the file -> copy in one transaction, counts compared -> move the file away
//!        interrupted: run it again      interrupted: run it again, nothing is copied twice
//! ```

use std::{ffi::OsString, fs, path::Path, sync::Arc};

use anyhow::{Context as _, bail};
use clap::Args;

use super::{
    replay::{files, files_of},
    settings::Settings,
};
use crate::{
    process::lock::ProcessLock,
    store::{Store, migration::Migration},
};

/// The arguments of `migrate`: the database, and the daemon's settings.
#[derive(Debug, Clone, Args)]
pub struct MigrateArgs {
    /// The daemon's settings
    #[command(flatten)]
    pub settings: Settings,

    /// The Postgres database, as in STORE_URL; it holds no journal yet
    #[arg(long, env = "MIGRATE_TO", hide_env_values = true, value_name = "URL")]
    to: String,
}

/// Copies the journal, and moves its file away. Returns a text for the operator.
///
/// # Errors
/// Fails if a daemon runs, the target holds another journal, or one of them fails: the file stays then.
pub async fn run(args: &MigrateArgs) -> anyhow::Result<String> {
    let planned = files_of(&args.settings).await?;
    let done = moved(&planned.store, "");
    if !planned.store.exists() && done.exists() {
        return Ok(format!("already: the journal was migrated, and its file is {}", done.display()));
    }
    let files = files(&args.settings).await?;
    let _lock = ProcessLock::take(&files.store_lock).context("stop the daemon first")?;
    let (url, path) = (args.to.clone(), files.store.clone());
    let migrated = tokio::task::spawn_blocking(move || {
        let source = Arc::new(Store::open(&path)?);
        let target = Store::connect(&url)?;
        if let Some(identity) = source.identity()? {
            target.bind(&identity)?;
        }
        target.migrate_from(&source)
    });
    let text = match migrated.await?? {
        Migration::Copied(rows) => {
            let rows: Vec<String> = rows.iter().map(|(table, rows)| format!("{rows} {table}")).collect();
            format!("migrated: {}", rows.join(", "))
        }
        Migration::Already => "already: all was copied before".to_owned(),
        Migration::OpenInBoth(relay) => bail!("--to: relay {relay} is pending in both journals"),
        Migration::HasAccount(account) => {
            bail!("--to: the database has nonces of {account}: it must hold no journal")
        }
        Migration::NotEmpty(table) => bail!("--to: the database has {table}: it must hold no journal"),
    };
    // So that no daemon goes on with the file: the database alone counts.
    for suffix in ["", "-wal", "-shm"] {
        let mut name = OsString::from(files.store.as_os_str());
        name.push(suffix);
        if Path::new(&name).exists() {
            fs::rename(&name, moved(&files.store, suffix))
                .context("copied, but the file was not moved away")?;
        }
    }
    Ok(format!("{text}; the file is {} now: start the daemon with STORE_URL", done.display()))
}

fn moved(store: &Path, suffix: &str) -> std::path::PathBuf {
    let mut name = OsString::from(store.as_os_str());
    name.push(".migrated");
    name.push(suffix);
    name.into()
}
