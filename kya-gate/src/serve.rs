//! The life of the process: checks, listening, and the end at SIGTERM or SIGINT.

use std::{io::Write as _, sync::Arc};

use anyhow::{Context as _, bail};
use host_kit::{say, sockets};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};

use crate::{
    check::{self, Sources},
    domains,
    gate::Gate,
    http::{self, App, ContentReader, Readiness},
    kya,
    nonces::NonceStore,
    records::Records,
    refusals::Refusals,
    settings::Settings,
    signer::{self, Signer},
};

/// Serves until SIGTERM or SIGINT. Errors: the cause of a failed start.
pub async fn serve(settings: Settings) -> anyhow::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let start = async {
        let (report, sources) = check::run(&settings).await?;
        let Some(sources) = sources.filter(|_| report.is_good()) else {
            say(&report);
            bail!("not started: see the crosses above");
        };
        gate(&settings, sources).await
    };
    // The checks may take longer than a service manager waits.
    let gate = tokio::select! {
        made = start => made?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let listener =
        sockets::listen(settings.listen).with_context(|| format!("cannot listen on {}", settings.listen))?;
    let address = listener.local_addr()?;
    let (stop, stopping) = watch::channel(false);
    let follow = || tokio::spawn(kya::follow(Arc::clone(&gate.accounts), stopping.clone()));
    let follower = settings.kya.follows_changes().then(follow);
    let watcher = gate.signer.clone().map(|signer| tokio::spawn(signer::watch(signer, stopping.clone())));
    let domains = tokio::spawn(domains::follow(Arc::clone(&gate.domains), stopping.clone()));
    let (discovery, registry) = (settings.discovery_document(), settings.registry_document());
    let (proxy, policies) = (settings.proxy, settings.policies);
    let contents = ContentReader::default();
    let words = format!("{}: the checks before the start passed", gate.accounts.registry());
    let readiness = Readiness::new(Ok(words));
    let app = App { gate, proxy, contents, policies, discovery, registry, readiness };
    let server = tokio::spawn(http::serve(listener, Arc::new(app), stopping));
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "listening");
    let mut out = std::io::stdout();
    // Standard output may be closed.
    let _ = writeln!(out, "kya-gate listening on http://{address}").and_then(|()| out.flush());
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
    tracing::info!("stopping");
    let _ = stop.send(true);
    server.await?;
    for task in [follower, watcher, Some(domains)].into_iter().flatten() {
        task.await?;
    }
    Ok(())
}

/// Makes the gate of these settings and sources. Changes of verdicts, keys and domains' files are not
/// followed yet. Errors: if Redis is configured and does not answer or forgets keys, or the keys or the file
/// of records cannot be opened.
pub async fn gate(settings: &Settings, sources: Sources) -> anyhow::Result<Gate> {
    let Sources { accounts, domains, metrics } = sources;
    let nonces = NonceStore::open(&settings.nonces, metrics.clone(), http::now()).await?;
    let signer =
        settings.signing.as_ref().map(|signing| Signer::new(signing, settings.chain.id, settings.registry()));
    let signer = signer.transpose()?.map(Arc::new);
    let records = settings.records.as_ref().map(Records::open).transpose()?;
    let (refusals, log_wallets) = (Refusals::default(), settings.log_wallets);
    let policy_hashes = settings.policy_hashes.clone();
    Ok(Gate { accounts, domains, nonces, refusals, signer, records, policy_hashes, metrics, log_wallets })
}
