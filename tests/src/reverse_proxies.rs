//! The reverse proxies in front of the gate: Debian's nginx and Caddy, and PyPI's Caddys and Envoy, each with
//! the configuration of `docs/gate.md`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::process::{Process, Spawn, free_port};
use crate::servers::{self, listening};
use crate::tls::Authority;
use crate::{python, repo};

const PAGE: &str = "docs/gate.md";
/// Addresses of gate and service in the documentation.
const GATE: &str = "127.0.0.1:4180";
const SERVICE: &str = "127.0.0.1:8080";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReverseProxyKind {
    /// nginx with `auth_request`.
    Nginx,
    /// Caddy with `forward_auth`.
    Caddy,
    /// A Caddy from PyPI, by the folder of `tests` that names its version.
    PackagedCaddy(&'static str),
    /// Envoy with `ext_authz` over HTTP.
    Envoy,
}

impl ReverseProxyKind {
    pub const fn is_caddy(self) -> bool {
        matches!(self, Self::Caddy | Self::PackagedCaddy(_))
    }

    /// Returns the documented gate configuration beside this proxy, for `origin`, this chain and registry.
    pub fn gate(self, origin: &str, chain: u64, rpc: &str, registry: &str) -> Result<String> {
        let page = read(PAGE)?;
        let mut text = block(&page, "## Five minutes", "toml", 0)?;
        if self != Self::Nginx {
            let table = block(&page, if self.is_caddy() { "### Caddy" } else { "### Envoy" }, "toml", 0)?;
            let (before, rest) = text.split_once("[proxy]").context("a [proxy] table")?;
            let (_, after) = rest.split_once("\n[").context("a table behind it")?;
            text = format!("{before}{table}\n[{after}");
        }
        replaced(
            text,
            &[
                (GATE, "127.0.0.1:0"),
                ("https://api.example", origin),
                // A local chain makes blocks on demand.
                ("id = 84532", &format!("id = {chain}\nmax-head-age-seconds = 0")),
                ("https://sepolia.base.org", rpc),
                ("0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23", registry),
            ],
        )
    }

    /// Returns the documented arguments of `kya` for a signed request, for `origin`, this key file and chain.
    pub fn command(origin: &str, key: &str, chain: u64) -> Result<Vec<String>> {
        let command = block(&read(PAGE)?, "## Five minutes", "sh", 0)?;
        let arguments = command.lines().find_map(|line| line.strip_prefix("kya "));
        let documented = [("agent.key", key), ("84532", &chain.to_string()), ("https://api.example", origin)];
        let text = replaced(arguments.context("kya")?.to_owned(), &documented)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    /// Starts the proxy between the gate and the service, for all protocols.
    pub async fn start(self, gate: &str, service: &str) -> Result<RunningProxy> {
        self.start_on(free_port()?, gate, service).await
    }

    pub async fn start_on(self, port: u16, gate: &str, service: &str) -> Result<RunningProxy> {
        let [gate, service] = [gate, service].map(|url| url.trim_start_matches("http://"));
        let page = read(PAGE)?.replace(GATE, gate).replace(SERVICE, service);
        let block = |heading, language, place| block(&page, heading, language, place);
        let (authority, directory) = (Authority::new()?, tempfile::tempdir()?);
        let [certificate, key] = authority.files("api.example", directory.path())?;
        let [certificate, key] = [certificate.display(), key.display()];
        // Envoy detects the protocol on one port.
        let (mut h2c_port, mut tls_port) = (port, port);
        let process = match self {
            Self::Nginx => {
                (h2c_port, tls_port) = (free_port()?, free_port()?);
                let http = block("### nginx", "nginx", 0)?;
                let server = block("### nginx", "nginx", 1)? + &block(BROWSERS, "nginx", 0)?;
                // A content limit for the guarded location alone, and WebSockets.
                let guarded = "location / {\n    client_max_body_size 32m;\n    proxy_http_version 1.1;\n    \
                               proxy_set_header Upgrade $http_upgrade;\n    proxy_set_header Connection upgrade;";
                let server = replaced(server, &[("location / {", guarded)])?;
                let server = format!(
                    "listen 127.0.0.1:{h2c_port} http2;\nlisten 127.0.0.1:{tls_port} ssl http2;\n\
                     ssl_certificate {certificate};\nssl_certificate_key {key};\n{server}"
                );
                servers::nginx_with(port, &http, &server).await?
            }
            Self::Caddy | Self::PackagedCaddy(_) => {
                let guarded = block(BROWSERS, "caddyfile", 0)? + &block("### Caddy", "caddyfile", 0)?;
                tls_port = free_port()?;
                let below = format!("handle_path {PREFIX}/* {{\n{guarded}}}\nhandle {{\n{guarded}}}\n");
                let sites = format!(
                    "http://127.0.0.1:{port}, http://api.example:{port} {{\n{below}}}\n\
                     https://api.example:{tls_port} {{\ntls {certificate} {key}\n{below}}}\n"
                );
                let program = match self {
                    Self::PackagedCaddy(set) => python::programs(set).await?.join("caddy"),
                    _ => "caddy".into(),
                };
                caddy(program, port, &sites).await?
            }
            Self::Envoy => {
                let blocks = EnvoyBlocks {
                    filters: block(BROWSERS, "yaml", 0)? + &block("### Envoy", "yaml", 0)?,
                    manager: block("### Envoy", "yaml", 1)?,
                    host: block(BROWSERS, "yaml", 1)?,
                    cluster: block("### Envoy", "yaml", 2)?,
                    route: block("### Envoy", "yaml", 3)?,
                };
                let tls = format!(
                    "certificate_chain: {{ filename: {certificate} }}, private_key: {{ filename: {key} }}"
                );
                envoy(port, &blocks, gate, service, Some(&tls)).await?
            }
        };
        let url = |port| format!("http://127.0.0.1:{port}");
        let over_http_2 = [url(h2c_port), format!("https://127.0.0.1:{tls_port}")];
        Ok(RunningProxy { process, url: url(port), over_http_2, authority })
    }
}

#[derive(Debug)]
pub struct RunningProxy {
    pub process: Process,
    /// The proxy's URL for HTTP/1.1.
    pub url: String,
    /// The proxy's URLs for HTTP/2: without TLS, by prior knowledge, and with TLS.
    pub over_http_2: [String; 2],
    pub authority: Authority,
}

/// Heading of the blocks for pages of other sites.
const BROWSERS: &str = "### Browser clients";
/// Path prefix that Caddy strips before it asks the gate.
pub const PREFIX: &str = "/v1";

/// Starts Envoy with the filter of `docs/signed-verdicts.md`, which lets a request through to the service
/// only with a verdict of this issuer in `KYA-Verdict`. Envoy fetches the keys from `keys` and caches them
/// for a second.
pub async fn verdict_verifier(
    keys: &str,
    issuer: &str,
    audience: &str,
    registry: &str,
    service: &str,
) -> Result<(Process, String)> {
    let filter = block(&read("docs/signed-verdicts.md")?, "## How to verify it", "yaml", 0)?;
    let [keys, service] = [keys, service].map(|url| url.trim_start_matches("http://"));
    let filter = replaced(
        filter,
        &[
            ("https://kya.example", issuer),
            ("https://api.example", audience),
            ("eip155:8453:0x2efab5b3bef49e56a6ce1dcb1a39ef63c312ea23", registry),
            (GATE, keys),
            ("cache_duration: 300s", "cache_duration: 1s"),
        ],
    )?;
    let port = free_port()?;
    let (manager, host, route) = (String::new(), String::new(), String::new());
    let cluster = block(&read(PAGE)?, "### Envoy", "yaml", 2)?;
    let blocks = EnvoyBlocks { filters: filter, manager, host, route, cluster };
    let process = envoy(port, &blocks, keys, service, None).await?;
    Ok((process, format!("http://127.0.0.1:{port}")))
}

/// Replaces values of a documented text, each of which has to occur exactly once.
fn replaced(mut text: String, values: &[(&str, &str)]) -> Result<String> {
    for (documented, used) in values {
        ensure!(text.matches(documented).count() == 1, "{documented} is documented not once:\n{text}");
        text = text.replace(documented, used);
    }
    Ok(text)
}

fn read(page: &str) -> Result<String> {
    Ok(fs::read_to_string(repo::root().join(page))?)
}

/// Returns the `place`-th block of a language after a heading, without the indentation of a list.
fn block(page: &str, heading: &str, language: &str, place: usize) -> Result<String> {
    let (_, section) = page.split_once(&format!("{heading}\n")).with_context(|| format!("no {heading}"))?;
    let fence = format!("```{language}\n");
    let mut blocks = section.match_indices(&fence);
    let (at, _) = blocks.nth(place).with_context(|| format!("no {language}: {heading}"))?;
    let (before, rest) = (&section[..at], &section[at + fence.len()..]);
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let (text, _) = rest.split_once(&format!("\n{indent}```")).context("a block without an end")?;
    let lines = text.lines().map(|line| line.strip_prefix(indent).unwrap_or(line));
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}

async fn caddy(program: PathBuf, port: u16, sites: &str) -> Result<Process> {
    let spawn = Spawn::new("caddy", program);
    let home = spawn.scratch().to_owned();
    let file = home.join("Caddyfile");
    let options = "{\n\tadmin off\n\tauto_https off\n\tservers {\n\t\tprotocols h1 h2 h2c\n\t}\n}\n";
    fs::write(&file, format!("{options}{sites}"))?;
    let spawn = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"]
        .into_iter()
        .fold(spawn, |spawn, name| spawn.env(name, &home));
    listening(spawn.args(["run", "--adapter", "caddyfile", "--config"]).arg(file), port).await
}

/// The documented blocks of an Envoy configuration: filters before the router, and lines of the connection
/// manager, of the virtual host and of its first routes.
struct EnvoyBlocks {
    filters: String,
    manager: String,
    host: String,
    route: String,
    /// The gate's cluster, which with another name and port is also the service's.
    cluster: String,
}

/// Starts Envoy with these blocks and the clusters `gate` and `service`. With a certificate, the port takes
/// TLS as well.
async fn envoy(
    port: u16,
    blocks: &EnvoyBlocks,
    gate: &str,
    service: &str,
    certificate: Option<&str>,
) -> Result<Process> {
    let program = python::programs("envoy").await?.join("envoy");
    let spawn = Spawn::new("envoy", program);
    let indented =
        |text: &str, by: usize| text.lines().map(|line| format!("{:by$}{line}\n", "")).collect::<String>();
    let (manager, filters) = (indented(&blocks.manager, 10), indented(&blocks.filters, 10));
    let (host, route) = (indented(&blocks.host, 14), indented(&blocks.route, 14));
    let cluster = |name: &str, address: &str| -> Result<String> {
        let port = address.strip_prefix("127.0.0.1:").context("an address of this machine")?;
        Ok(indented(&replaced(blocks.cluster.clone(), &[("4180", port)])?.replace("gate", name), 2))
    };
    let tls = certificate.map_or_else(String::new, |certificate| {
        format!(
            r#"
    - filter_chain_match: {{ transport_protocol: tls }}
      filters: *filters
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          common_tls_context: {{ alpn_protocols: [h2], tls_certificates: [{{ {certificate} }}] }}
    listener_filters:
    - name: envoy.filters.listener.tls_inspector
      typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector }}"#
        )
    });
    let text = format!(
        r#"static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters: &filters
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
{manager}          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
{route}              - {{ match: {{ prefix: "/" }}, route: {{ cluster: service }} }}
{host}          http_filters:
{filters}          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}{tls}
  clusters:
{}{}"#,
        cluster("gate", gate)?,
        cluster("service", service)?,
    );
    let file = spawn.scratch().join("envoy.yaml");
    fs::write(&file, text)?;
    // Several Envoys run side by side: no shared memory for hot restarts.
    let spawn = spawn.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"]);
    listening(spawn.arg(file), port).await
}
