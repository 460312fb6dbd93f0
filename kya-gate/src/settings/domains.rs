//! `[liable]`: settings for fetching the files of the policies' domains.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context as _, ensure};
use registry_core::liability::DomainName;
use serde::Deserialize;

/// Settings for fetching the files of the policies' domains.
#[derive(Debug, Clone)]
pub struct DomainSettings {
    /// The pause between two fetches of a file.
    pub refresh: Duration,
    /// Seconds after which a new wallet of a known domain counts.
    pub new_wallet_delay_seconds: u64,
    /// Addresses of domains, in place of a look-up.
    pub resolve: BTreeMap<DomainName, SocketAddr>,
    /// PEM file with the only certificate authorities; without one, those of the machine.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct DomainsTable {
    refresh_seconds: Option<u64>,
    new_wallet_delay_seconds: Option<u64>,
    #[serde(default)]
    resolve: BTreeMap<String, SocketAddr>,
    ca_file: Option<PathBuf>,
}

impl DomainsTable {
    pub(super) fn validated(self) -> anyhow::Result<DomainSettings> {
        let refresh = self.refresh_seconds.unwrap_or(900);
        // A file that cannot be read counts for a day: some fetches of it fail before that is over.
        ensure!((1..=10_800).contains(&refresh), "liable.refresh-seconds: must be from 1 to 10800");
        let name = |text: &str| {
            DomainName::parse(text).with_context(|| format!("liable.resolve: {}", DomainName::RULE))
        };
        let resolve = self.resolve.iter().map(|(text, address)| Ok((name(text)?, *address)));
        Ok(DomainSettings {
            refresh: Duration::from_secs(refresh),
            new_wallet_delay_seconds: self.new_wallet_delay_seconds.unwrap_or(86_400),
            resolve: resolve.collect::<anyhow::Result<_>>()?,
            ca_file: self.ca_file,
        })
    }
}
