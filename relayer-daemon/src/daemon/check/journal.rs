//! The checks of the journal and its locks, and of what the accounts have in flight.

use std::{io, path::PathBuf, sync::Arc};

use alloy::primitives::Address;

use super::CheckMode;
use crate::{
    chain::{Chain, ChainNode as _},
    daemon::{
        report::{CheckReport, of_account},
        settings::Settings,
    },
    process::{
        instance,
        lock::{LockError, ProcessLock},
    },
    store::{DaemonId, Identity, Store, StoreError, control::DaemonReport, files::StoreFiles},
};

/// The lock's line if it is free.
pub(super) const LOCK_IS_FREE: &str = "no other process with this key, or with this journal";

pub(super) fn look_at_locks(files: &StoreFiles, report: &mut CheckReport) {
    for path in files.locks() {
        match ProcessLock::holder(path) {
            Ok(None) => {}
            Ok(Some(holder)) => return report.tick("lock", format!("held: {holder} is running")),
            Err(error) => return report.cross("lock", error),
        }
    }
    report.tick("lock", LOCK_IS_FREE);
}

/// Takes the lock. `drain` asks its holder to drain first, and waits for its end.
pub(super) async fn take_lock(mode: CheckMode, path: PathBuf) -> Result<ProcessLock, LockError> {
    let take = move || match ProcessLock::take(&path) {
        Err(LockError::Held(holder)) if mode == CheckMode::Drain => {
            holder.ask_to_drain()?;
            host_kit::say(format_args!("asked {holder} to drain, and waiting for its end\n"));
            ProcessLock::wait(&path)
        }
        taken => taken,
    };
    tokio::task::spawn_blocking(take).await.unwrap_or(Err(LockError::Unusable(io::ErrorKind::Interrupted)))
}

/// Returns the place of the journal. A database's URL is not shown: it may hold a password.
pub(super) fn place(settings: &Settings, files: &StoreFiles) -> String {
    let file = || files.store.display().to_string();
    settings.store_url.as_ref().map_or_else(file, |_| "in the Postgres database of STORE_URL".to_owned())
}

/// Opens the journal, and creates it if it is not there. In a database this daemon is one of a fleet.
pub(super) async fn open(
    settings: &Settings,
    files: &StoreFiles,
    identity: Identity,
) -> Result<Store, StoreError> {
    let (url, path) = (settings.store_url.clone(), files.store.clone());
    let open = move || {
        let store = match url {
            Some(url) => Store::connect(&url)?.of_daemon(DaemonId(instance::id().into())),
            None => Store::open(&path)?,
        };
        store.verify(&identity)?;
        Ok(store)
    };
    tokio::task::spawn_blocking(open).await.unwrap_or(Err(StoreError::Interrupted))
}

/// Opens the journal for reading, and creates nothing; `None` if it is not there.
async fn open_read_only(
    settings: &Settings,
    files: &StoreFiles,
    identity: Identity,
) -> Result<Option<Store>, StoreError> {
    let (url, path) = (settings.store_url.clone(), files.store.clone());
    let open = move || {
        let store = match url {
            Some(url) => Store::connect_read_only(&url)?.map(|store| store.of_daemon(DaemonId::random())),
            None => Store::open_read_only(&path)?,
        };
        store.map(|store| store.verify(&identity).map(|()| store)).transpose()
    };
    tokio::task::spawn_blocking(open).await.unwrap_or(Err(StoreError::Interrupted))
}

pub(super) async fn look_at_store(
    settings: &Settings,
    files: &StoreFiles,
    identity: &Identity,
    chain: &Chain,
    accounts: &[Address],
    policy: &str,
    report: &mut CheckReport,
) {
    let opened = open_read_only(settings, files, *identity).await;
    let Some(store) = report.pass("journal", opened) else { return };
    let store = store.map(Arc::new);
    match store {
        Some(_) => report.tick("journal", place(settings, files)),
        None => {
            report.tick("journal", format!("{} is not there yet: serve makes it", place(settings, files)));
        }
    }
    pending_are_ours(chain, accounts, store.as_ref(), report).await;
    if let Some(store) = store {
        report.add("other keys", other_keys_are_drained(&store, accounts).await);
        compare_with_daemons(&store, policy, &settings.hash(), report).await;
    }
}

/// Looks, without changing anything, whether what is pending, or other keys, will prevent the start. What of
/// the journal cannot be read now is left to the start itself, which may have to bring it up to date first.
pub(super) async fn foresee(
    mode: CheckMode,
    settings: &Settings,
    files: &StoreFiles,
    identity: Identity,
    chain: &Chain,
    accounts: &[Address],
) -> CheckReport {
    let mut report = CheckReport::default();
    // Beside a running daemon `serve` fails at the lock, which changes nothing and names the holder.
    let is_held = || files.locks().any(|path| matches!(ProcessLock::holder(path), Ok(Some(_))));
    if mode == CheckMode::Serve && is_held() {
        return report;
    }
    let store = match open_read_only(settings, files, identity).await {
        Ok(store) => store.map(Arc::new),
        Err(error) => {
            // Another relayer's journal stays as it is, also in an earlier format.
            if matches!(error, StoreError::Foreign(_)) {
                report.cross("journal", error);
            }
            return report;
        }
    };
    if let Some(store) = &store {
        if store.run(|store| store.accounts_with_open_nonces()).await.is_err() {
            return report;
        }
        // A running daemon that is asked to drain finishes those of its other keys.
        if mode == CheckMode::Serve {
            report.add("other keys", other_keys_are_drained(store, accounts).await);
        }
    }
    pending_are_ours(chain, accounts, store.as_ref(), &mut report).await;
    report
}

/// Warns of daemons that have another policy or other settings in force than `serve` would have here.
async fn compare_with_daemons(store: &Arc<Store>, policy: &str, settings: &str, report: &mut CheckReport) {
    // A journal of the version before has no reports.
    let Ok(reports) = store.run(|store| store.reports()).await else { return };
    for other in reports {
        for (what, here, there) in
            [("policy", policy, &other.policy), ("settings", settings, &other.settings)]
        {
            if here != there {
                let DaemonReport { daemon, host, .. } = &other;
                report
                    .warn("daemons", format!("{daemon} at {host} has another {what}: {there}, here {here}"));
            }
        }
    }
}

/// Checks that no other key has anything in flight: only that key could sign for those nonces.
pub(super) async fn other_keys_are_drained(
    store: &Arc<Store>,
    accounts: &[Address],
) -> Result<String, String> {
    if store.is_shared() {
        return Ok("those of other daemons are theirs to finish".to_owned());
    }
    let open = store.run(|store| store.accounts_with_open_nonces()).await;
    let others: Vec<String> = open
        .map_err(|error| error.to_string())?
        .into_iter()
        .filter(|other| !accounts.contains(other))
        .map(|other| other.to_string())
        .collect();
    if others.is_empty() {
        return Ok("none has anything in flight".to_owned());
    }
    Err(format!("{} has transactions in flight: run drain with that key first", others.join(", ")))
}

/// Checks that all pending transactions of each account are in the store.
pub(super) async fn pending_are_ours(
    chain: &Chain,
    accounts: &[Address],
    store: Option<&Arc<Store>>,
    report: &mut CheckReport,
) {
    for account in accounts {
        let found = pending_is_ours(chain, *account, store).await;
        let name = |text: String| of_account(*account, accounts.len(), &text);
        report.add("pending", found.map(name).map_err(name));
    }
}

async fn pending_is_ours(
    chain: &Chain,
    account: Address,
    store: Option<&Arc<Store>>,
) -> Result<String, String> {
    let counts = tokio::try_join!(chain.mined_nonce(account), chain.pending_nonce(account));
    let (latest, pending) = counts.map_err(|error| error.to_string())?;
    if pending <= latest {
        return Ok(format!("nothing pending, next nonce {latest}"));
    }
    // Read after the chain: what was sent meanwhile was stored before.
    let ours = match store {
        Some(store) => store.run(move |store| store.explains(account, latest, pending)).await,
        None => Ok(false),
    };
    let count = pending.saturating_sub(latest);
    if ours.map_err(|error| error.to_string())? {
        return Ok(format!("{count} pending, all of them ours"));
    }
    Err(format!("{count} pending that the journal does not know: another program uses this key"))
}
