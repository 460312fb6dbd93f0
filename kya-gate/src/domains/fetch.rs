//! One fetch of a domain's file: by HTTPS at port 443, without redirects, at a public address that was looked
//! up once, in ten seconds, of at most 256 KiB.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use futures_util::future::BoxFuture;
use host_kit::native::read_body;
use registry_core::liability::{DomainName, MAX_FILE_BYTES, WELL_KNOWN};
use reqwest::{
    Certificate, Client, StatusCode,
    dns::{Name, Resolve, Resolving},
};

use super::addresses::is_public;
use crate::settings::DomainSettings;

/// The longest time for a fetch, from the look-up to the last byte.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A look-up of the addresses of a name.
pub(super) type LookUp = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Fetches files of domains.
#[derive(Debug)]
pub(super) struct Fetcher(Client);

impl Fetcher {
    /// Uses the system's look-up and authorities, unless the settings say otherwise.
    pub(super) fn new(settings: &DomainSettings) -> anyhow::Result<Self> {
        let look_up: LookUp =
            Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) }));
        Self::with(
            settings,
            DomainResolver { set: settings.resolve.clone(), look_up, may_connect: is_public },
            TIMEOUT,
        )
    }

    pub(super) fn with(
        settings: &DomainSettings,
        addresses: DomainResolver,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let client = Client::builder()
            .https_only(true)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .dns_resolver(addresses)
            // Each fetch looks the name up, and connects to an address that it found.
            .pool_max_idle_per_host(0)
            .timeout(timeout)
            .user_agent(concat!("kya-gate/", env!("CARGO_PKG_VERSION")));
        let client = match &settings.ca_file {
            None => client,
            Some(file) => {
                let read = fs::read(file).with_context(|| format!("cannot read {}", file.display()));
                let certificates = read.and_then(|pem| Ok(Certificate::from_pem_bundle(&pem)?));
                client.tls_certs_only(certificates.context("liable.ca-file")?)
            }
        };
        Ok(Self(client.build()?))
    }

    /// Fetches the text of a domain's file; `None` where the domain says that it has none.
    pub(super) async fn fetch(&self, domain: &DomainName) -> Result<Option<String>, String> {
        let failed = |error: reqwest::Error| {
            // The innermost cause has the information: a certificate, an address.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(deeper) = cause.source() {
                cause = deeper;
            }
            if error.is_timeout() { "no answer in time".to_owned() } else { cause.to_string() }
        };
        // Without this header, a server may answer in any coding.
        let request =
            self.0.get(format!("https://{domain}{WELL_KNOWN}")).header("accept-encoding", "identity");
        let response = request.send().await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(None),
            status => return Err(format!("status {}", status.as_u16())),
        }
        let body = read_body(response, MAX_FILE_BYTES).await.map_err(failed)?;
        let body = body.ok_or_else(|| "it has more than 256 KiB".to_owned())?;
        String::from_utf8(body).map(Some).map_err(|_| "it is no UTF-8".to_owned())
    }
}

/// A resolver of names: one look-up for each fetch, refused unless all addresses are allowed.
pub(super) struct DomainResolver {
    /// Addresses of the configuration, in place of a look-up.
    pub(super) set: BTreeMap<DomainName, SocketAddr>,
    pub(super) look_up: LookUp,
    pub(super) may_connect: fn(IpAddr) -> bool,
}

impl Resolve for DomainResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let set = DomainName::parse(name.as_str()).and_then(|name| self.set.get(&name).copied());
        let (look_up, may_connect) = ((self.look_up)(name.as_str().to_owned()), self.may_connect);
        Box::pin(async move {
            let addresses = match set {
                Some(address) => vec![address],
                None => {
                    let found = look_up.await?;
                    if let Some(other) = found.iter().find(|found| !may_connect(found.ip())) {
                        return Err(format!("it has the address {}, which is not public", other.ip()).into());
                    }
                    found
                }
            };
            Ok(Box::new(addresses.into_iter()) as reqwest::dns::Addrs)
        })
    }
}
