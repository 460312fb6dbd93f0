//! The files of the domains in the configuration: fetching, checks, and their word on an agent.
//!
//! A request cannot make the gate ask a domain. The effect of files over time is in
//! `registry_core::gate::DomainBook`.

mod addresses;
mod fetch;
mod names;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use alloy_primitives::Address;
use futures_util::future::join_all;
use host_kit::native::lock;
use registry_core::{
    chain::SignerQuery,
    eth::timestamp::Timestamp,
    gate::{AgentPolicy, DomainBook, DomainState, FetchOutcome, Verdict},
    liability::{Acceptance, DomainFile, DomainName, LiableWallet},
};
use tokio::sync::watch;

use crate::{
    http::now,
    kya::{AccountReader, ReadCause},
    metrics::Metrics,
    settings::{DomainSettings, Settings},
};
use fetch::Fetcher;
pub use names::{label, mixes_scripts};

/// The most wallets of one registry that a file may name: the gate reads the code of each.
const MOST_WALLETS: usize = 64;
/// The longest pause between fetches while a domain has no file that counts.
const RETRY: Duration = Duration::from_secs(60);

/// The configured domains and their files.
#[derive(Debug)]
pub struct Domains {
    book: Mutex<Arc<DomainBook>>,
    fetcher: Fetcher,
    accounts: Arc<AccountReader>,
    settings: DomainSettings,
    /// Chain and registry of the wallets that count.
    place: (u64, Address),
    metrics: Metrics,
}

impl Domains {
    /// Makes the domains of these settings, without reading any. Errors: if `liable.ca-file` cannot be read,
    /// or no HTTP client can be built.
    pub fn new(settings: &Settings, accounts: Arc<AccountReader>, metrics: Metrics) -> anyhow::Result<Self> {
        let names = settings.policies.values().flat_map(|policy| policy.agents.domains.iter().cloned());
        Ok(Self {
            book: Mutex::new(Arc::new(DomainBook::new(names))),
            fetcher: Fetcher::new(&settings.domains)?,
            accounts,
            settings: settings.domains.clone(),
            place: (settings.chain.id, settings.kya.registry),
            metrics,
        })
    }

    /// Fetches the files of all domains at once. Returns the result of each fetch.
    pub async fn refresh(&self, now: Timestamp) -> Vec<(DomainName, FetchOutcome)> {
        let names: Vec<DomainName> = self.book().names().cloned().collect();
        let fetched = join_all(names.iter().map(|name| self.fetch(name, now))).await;
        let fetched: Vec<_> = names.into_iter().zip(fetched).collect();
        for (name, fetched) in &fetched {
            self.update(name, fetched.clone(), now);
        }
        fetched
    }

    /// Returns a verdict with the files' word on its agent under a policy, and their acceptances of the
    /// agent, the first to try last.
    pub fn told(
        &self,
        policy: &AgentPolicy,
        verdict: Option<Arc<Verdict>>,
        now: Timestamp,
    ) -> (Option<Arc<Verdict>>, Vec<Acceptance>) {
        let Some((verdict, agent)) =
            verdict.as_ref().and_then(|verdict| Some((verdict, verdict.agent.as_ref()?)))
        else {
            return (verdict, Vec::new());
        };
        let (word, listed) = self.book().word(policy, agent, now);
        let is_same = agent.domains == word;
        (Some(if is_same { Arc::clone(verdict) } else { Arc::new(verdict.with_domains(word)) }), listed)
    }

    /// Returns whether a domain of the liable wallet has withdrawn the acceptance of a query.
    pub fn has_withdrawn(&self, asked: &SignerQuery) -> bool {
        self.book().has_withdrawn(asked.account, asked.hash)
    }

    /// Returns a domain's wallets at this time; `None` where no file counts.
    pub fn state(&self, domain: &DomainName, now: Timestamp) -> Option<DomainState> {
        self.book().state(domain, now)
    }

    fn update(&self, name: &DomainName, fetched: FetchOutcome, now: Timestamp) {
        let read = |at: u64| {
            let gauge = self.metrics.domain_read.with_label_values(&[name.as_str()]);
            gauge.set(i64::try_from(at).unwrap_or(i64::MAX));
        };
        let result = match &fetched {
            FetchOutcome::File(..) => {
                read(now.seconds());
                "ok"
            }
            FetchOutcome::Gone => {
                read(0);
                "gone"
            }
            FetchOutcome::Failed(error) => {
                tracing::warn!(domain = name.as_str(), error, "the domain's file could not be read");
                "failed"
            }
        };
        self.metrics.domain_fetches.with_label_values(&[name.as_str(), result]).inc();
        let before = self.state(name, now).unwrap_or_default();
        let mut book = DomainBook::clone(&self.book());
        let new = book.update(name, fetched, self.settings.new_wallet_delay_seconds, now);
        *lock(&self.book) = Arc::new(book);
        for wallet in new {
            tracing::warn!(
                domain = name.as_str(),
                %wallet,
                seconds = self.settings.new_wallet_delay_seconds,
                "the domain's file has a new wallet, which counts after this time"
            );
        }
        let after = self.state(name, now).unwrap_or_default();
        for wallet in before.counted.iter().filter(|wallet| !after.counted.contains(wallet)) {
            tracing::warn!(domain = name.as_str(), %wallet, "a wallet of the domain no longer counts");
        }
        for (state, wallets) in [("counted", &after.counted), ("waiting", &after.waiting)] {
            let gauge = self.metrics.domain_wallets.with_label_values(&[name.as_str(), state]);
            gauge.set(i64::try_from(wallets.len()).unwrap_or(i64::MAX));
        }
    }

    /// Fetches a domain's file, with the wallets that have signed for the domain.
    async fn fetch(&self, name: &DomainName, now: Timestamp) -> FetchOutcome {
        let file = match self.fetcher.fetch(name).await {
            Ok(Some(text)) => DomainFile::read(&text).map_err(|error| error.to_string()),
            Ok(None) => return FetchOutcome::Gone,
            Err(error) => Err(error),
        };
        let bound = async |file| Ok((self.bound(&file, name, now).await?, file));
        match async { bound(file?).await }.await {
            Ok((bound, file)) => FetchOutcome::File(file, bound),
            Err(error) => FetchOutcome::Failed(error),
        }
    }

    async fn bound(
        &self,
        file: &DomainFile,
        name: &DomainName,
        now: Timestamp,
    ) -> Result<Vec<LiableWallet>, String> {
        let (chain_id, registry) = self.place;
        let mut bound = Vec::new();
        for (number, entry) in file.wallets(chain_id, registry).enumerate() {
            if number == MOST_WALLETS {
                return Err(format!("it names more than {MOST_WALLETS} wallets of this registry"));
            }
            let (hash, signature) = (entry.digest(name), entry.signature.clone());
            let query = SignerQuery { account: entry.wallet, hash, signature, block: None };
            // Requests that spend their budget would else keep withdrawals from being read.
            let code = self.accounts.signer(query, ReadCause::Operator, now).await;
            let code =
                code.ok_or_else(|| format!("the chain does not say whether {} has code", entry.wallet))?;
            if code.accepts || !code.has_code && entry.check_signature(name).is_ok() {
                bound.push(entry.clone());
            } else {
                let (domain, wallet) = (name.as_str(), entry.wallet);
                tracing::warn!(domain, %wallet, "the wallet did not sign that this domain is its own");
            }
        }
        Ok(bound)
    }

    fn book(&self) -> Arc<DomainBook> {
        Arc::clone(&lock(&self.book))
    }
}

/// Fetches the domains' files every `liable.refresh-seconds` until `stop` turns true.
pub async fn follow(domains: Arc<Domains>, mut stop: watch::Receiver<bool>) {
    let following = async {
        loop {
            let book = domains.book();
            let are_read = book.names().all(|name| book.state(name, now()).is_some());
            let pause = domains.settings.refresh;
            tokio::time::sleep(if are_read { pause } else { pause.min(RETRY) }).await;
            domains.refresh(now()).await;
        }
    };
    let has_none = domains.book().names().next().is_none();
    tokio::select! {
        () = following, if !has_none => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}
