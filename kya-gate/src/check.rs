//! The checks before the start: `check` prints them, `serve` needs them to pass.

use std::{collections::BTreeSet, sync::Arc};

use registry_core::{gate::FetchOutcome, liability::WELL_KNOWN};

use crate::{
    domains::{self, Domains},
    http::now,
    kya::{AccountReader, ReadCause},
    metrics::Metrics,
    nonces,
    records::Records,
    settings::{ContentSource, KyaSource, NonceSettings, Settings, TargetSource},
    signer::Signer,
};

/// The results of the checks.
pub type CheckReport = host_kit::CheckReport<9>;

/// The readers of the chain, the source of verdicts and the domains of liable persons.
#[derive(Debug)]
pub struct Sources {
    /// Accounts and verdicts.
    pub accounts: Arc<AccountReader>,
    /// The files of domains.
    pub domains: Arc<Domains>,
    /// The metrics of both.
    pub metrics: Metrics,
}

impl Sources {
    /// Makes the sources of these settings, without asking any. Errors: if `liable.ca-file` cannot be read,
    /// or no HTTP client can be built.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let metrics = Metrics::new()?;
        Self::of(settings, Arc::new(AccountReader::new(settings, metrics.clone())?), metrics)
    }

    fn of(settings: &Settings, accounts: Arc<AccountReader>, metrics: Metrics) -> anyhow::Result<Self> {
        metrics.start_at_zero(settings);
        let domains = Arc::new(Domains::new(settings, Arc::clone(&accounts), metrics.clone())?);
        Ok(Self { accounts, domains, metrics })
    }
}

/// Checks a configuration against its chain and its source of verdicts. Where the chain is reachable, returns
/// the sources too, with the domains' files. Errors: if no HTTP client can be built.
pub async fn run(settings: &Settings) -> anyhow::Result<(CheckReport, Option<Sources>)> {
    let metrics = Metrics::new()?;
    let accounts = Arc::new(AccountReader::new(settings, metrics.clone())?);
    let source = accounts.probe(now()).await;
    let target = match &settings.proxy.target {
        TargetSource::Path => "the path behind the policy".to_owned(),
        TargetSource::Header(name) => format!("the header {name}"),
    };
    let content = match &settings.proxy.content {
        ContentSource::Passed => "content is compared with its digest",
        ContentSource::Withheld(_) => "content is not passed on: the service compares its digest",
    };
    let mut report = CheckReport::default();
    report.tick("proxy", format!("the original target is in {target}; {content}"));
    for (name, policy) in &settings.policies {
        let (scheme, authority) = (policy.origin.scheme(), policy.origin.authority());
        let observed = if policy.observe { ", observed only" } else { "" };
        let allowed: Vec<String> =
            policy.agents.allow.iter().map(|decision| format!("{decision:?}")).collect();
        report.tick("policy", format!("{name}: {scheme}://{authority}, {}{observed}", allowed.join(", ")));
        if let Some(hash) = settings.policy_hashes.get(name).filter(|_| settings.records.is_some()) {
            report.tick("policy", format!("{name}: records name its table by the hash {hash:#x}"));
        }
    }
    if let Some(signing) = &settings.signing {
        let signer = Signer::new(signing, settings.chain.id, settings.registry());
        report.add("verdict", signer.map(|signer| signer.label()).map_err(|error| format!("{error:#}")));
    }
    if let Some(records) = &settings.records {
        let opened = Records::open(records).map_err(|error| format!("{error:#}"));
        let proved = match opened {
            Ok(_) if records.evidence => accounts.probe_evidence(now()).await.map(|()| ", with evidence"),
            opened => opened.map(|_| ""),
        };
        let text = |words| format!("admissions are written to {}{words}", records.file.display());
        report.add("records", proved.map(text));
    }
    let is_reachable = source.is_ok();
    report.add("source", source);
    // One endpoint that answers hides the others.
    if is_reachable && settings.chain.rpc.len() > 1 {
        for silent in accounts.silent_endpoints(now()).await {
            report.warn("source", silent);
        }
    }
    if let KyaSource::Api { follow_changes, .. } = settings.kya.source {
        report.tick(
            "changes",
            if follow_changes { "changes are followed" } else { "changes are not followed" },
        );
    }
    let mut sources = None;
    if is_reachable {
        look_at_liable_wallets(settings, &accounts, &mut report).await;
        let built = Sources::of(settings, accounts, metrics).map_err(|error| format!("{error:#}"));
        sources = report.pass("domain", built);
    }
    if let Some(sources) = &sources {
        look_at_domains(&sources.domains, &mut report).await;
    }
    report.add(
        "nonces",
        match &settings.nonces {
            NonceSettings::Memory { capacity } => Ok(format!("in memory, at most {capacity}")),
            NonceSettings::Redis(settings) => {
                nonces::inspect(settings).await.map_err(|error| format!("{error:#}"))
            }
        },
    );
    Ok((report, sources))
}

/// Warns of liable wallets with code: any caller of such code could make the wallet an agent's creator.
async fn look_at_liable_wallets(settings: &Settings, accounts: &AccountReader, report: &mut CheckReport) {
    for (name, policy) in &settings.policies {
        for wallet in &policy.agents.liable.allow {
            if accounts.has_code(*wallet, ReadCause::Operator, now()).await == Some(true) {
                let rule = "make sure that it acts for its owners alone";
                report.warn("policy", format!("{name}: liable.allow names {wallet}, which has code: {rule}"));
            }
        }
    }
}

async fn look_at_domains(domains: &Domains, report: &mut CheckReport) {
    for (name, fetched) in domains.refresh(now()).await {
        let label = domains::label(&name);
        if domains::mixes_scripts(&name) {
            report.warn(
                "domain",
                format!("{label}: has letters of several scripts, and may read as another name"),
            );
        }
        let refused = "agents of its wallets are refused until it is read";
        let (file, bound) = match fetched {
            FetchOutcome::Failed(error) => {
                report.warn("domain", format!("{label}: {error}; {refused}"));
                continue;
            }
            FetchOutcome::Gone => {
                report.warn("domain", format!("{label}: has no {WELL_KNOWN}; {refused}"));
                continue;
            }
            FetchOutcome::File(file, bound) => (file, bound),
        };
        let counted = domains.state(&name, now()).unwrap_or_default().counted;
        let wallets = bound.iter().map(|entry| {
            let claimed = entry.legal_name.iter().map(|name| format!(" ({name:?} by its own word)"));
            let now = if counted.contains(&entry.wallet) { "" } else { " (not now)" };
            format!("{}{}{now}", entry.wallet, claimed.collect::<String>())
        });
        let wallets: BTreeSet<String> = wallets.collect();
        let wallets: Vec<String> = wallets.into_iter().collect();
        let (accepted, withdrawn, disowned) =
            (file.acceptances.len(), file.withdrawn.len(), file.not_ours.len());
        let said = format!("{accepted} acceptances, {withdrawn} withdrawn, {disowned} agents not its own");
        match wallets.is_empty() {
            true => report.warn(
                "domain",
                format!("{label}: no wallet of this chain and registry that has signed for it; {said}"),
            ),
            false => report.tick("domain", format!("{label}: {}; {said}", wallets.join(", "))),
        }
    }
}
