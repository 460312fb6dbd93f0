//! The checks before the start: `check` prints them, `serve` does not start without them.

use std::fmt;

use crate::{
    http::now,
    kya::AccountReader,
    metrics::Metrics,
    nonces,
    records::Records,
    settings::{ContentSource, KyaSource, NonceSettings, Settings, TargetSource},
    signer::Signer,
};

/// The results of the checks, a line each.
#[derive(Debug, Default)]
pub struct Report {
    lines: Vec<(bool, &'static str, String)>,
}

impl Report {
    /// Whether every line is good.
    pub fn is_good(&self) -> bool {
        self.lines.iter().all(|(good, ..)| *good)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (good, name, text) in &self.lines {
            writeln!(f, "{} {name:<9} {text}", if *good { '✓' } else { '✗' })?;
        }
        Ok(())
    }
}

/// Checks a configuration against its chain and its source of verdicts.
///
/// # Errors
/// If no HTTP client can be built.
pub async fn run(settings: &Settings) -> anyhow::Result<Report> {
    let accounts = AccountReader::new(settings, Metrics::new()?)?;
    let (good, source) = match accounts.probe(now()).await {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    };
    let target = match &settings.proxy.target {
        TargetSource::Path => "the path behind the policy".to_owned(),
        TargetSource::Header(name) => format!("the header {name}"),
    };
    let content = match &settings.proxy.content {
        ContentSource::Passed => "content is compared with its digest",
        ContentSource::Withheld(_) => "content is not passed on: the service compares its digest",
    };
    let mut report = Report::default();
    report.lines.push((true, "proxy", format!("the original target is in {target}; {content}")));
    for (name, policy) in &settings.policies {
        let (scheme, authority) = (policy.origin.scheme(), policy.origin.authority());
        let observed = if policy.observe { ", observed only" } else { "" };
        let allowed: Vec<String> =
            policy.agents.allow.iter().map(|decision| format!("{decision:?}")).collect();
        let text = format!("{name}: {scheme}://{authority}, {}{observed}", allowed.join(", "));
        report.lines.push((true, "policy", text));
    }
    if let Some(signing) = &settings.signing {
        let (good, text) = match Signer::new(signing, settings.chain.id) {
            Ok(signer) => (true, signer.label()),
            Err(error) => (false, format!("{error:#}")),
        };
        report.lines.push((good, "verdict", text));
    }
    if let Some(records) = &settings.records {
        let opened = Records::open(records).map_err(|error| format!("{error:#}"));
        let proved = match opened {
            Ok(_) if records.evidence => accounts.probe_evidence(now()).await.map(|()| ", with evidence"),
            opened => opened.map(|_| ""),
        };
        let text = proved
            .as_ref()
            .map(|words| format!("admissions are written to {}{words}", records.file.display()));
        report.lines.push((proved.is_ok(), "records", text.unwrap_or_else(Clone::clone)));
    }
    report.lines.push((good, "source", source));
    if let KyaSource::Api { follow_changes, .. } = settings.kya.source {
        let text = if follow_changes { "changes are followed" } else { "changes are not followed" };
        report.lines.push((true, "changes", text.to_owned()));
    }
    report.lines.push(match &settings.nonces {
        NonceSettings::Memory { capacity } => (true, "nonces", format!("in memory, at most {capacity}")),
        NonceSettings::Redis(settings) => match nonces::inspect(settings).await {
            Ok(text) => (true, "nonces", text),
            Err(error) => (false, "nonces", format!("{error:#}")),
        },
    });
    Ok(report)
}
