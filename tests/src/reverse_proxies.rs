//! The reverse proxies that ask the gate: Debian's nginx and Caddy, and PyPI's Envoy, each with the
//! configuration of `docs/gate.md`.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::net::TcpStream;

use crate::process::{Process, Spawn, free_port};
use crate::{python, repo};

/// The directory of Debian's nginx, which is on the PATH of root only.
const NGINX_PATH: &str = "/usr/sbin";
/// How long a proxy may take to listen.
const START: Duration = Duration::from_secs(30);
/// The gate's and the service's addresses in the documentation.
const GATE: &str = "127.0.0.1:4180";
const SERVICE: &str = "127.0.0.1:8080";

/// A reverse proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `auth_request`.
    Nginx,
    /// `forward_auth`.
    Caddy,
    /// `ext_authz` over HTTP.
    Envoy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nginx, Self::Caddy, Self::Envoy];

    /// The documented configuration of the gate beside this proxy, for `origin`, this chain and registry.
    pub fn gate(self, origin: &str, chain: u64, rpc: &str, registry: &str) -> Result<String> {
        let page = page()?;
        let whole = block(&page, "## Five minutes", "toml")?;
        let table = match self {
            Self::Nginx => None,
            Self::Caddy => Some(block(&page, "### Caddy", "toml")?),
            Self::Envoy => Some(block(&page, "### Envoy", "toml")?),
        };
        let mut text = whole.clone();
        if let Some(table) = table {
            let (before, rest) = whole.split_once("[proxy]").context("a [proxy] table")?;
            let (_, after) = rest.split_once("\n[").context("a table behind it")?;
            text = format!("{before}{table}\n[{after}");
        }
        for (documented, used) in [
            (GATE, "127.0.0.1:0"),
            ("https://api.example", origin),
            // A local chain makes blocks on demand.
            ("id = 8453", &format!("id = {chain}\nmax-head-age-seconds = 0")),
            ("https://mainnet.base.org", rpc),
            ("0x0000000000000000000000000000000000000000", registry),
        ] {
            ensure!(text.matches(documented).count() == 1, "docs/gate.md has {documented} not once");
            text = text.replace(documented, used);
        }
        Ok(text)
    }

    /// Starts it between the gate and the service; returns its address.
    pub async fn start(self, gate: &str, service: &str) -> Result<(Process, String)> {
        self.start_on(free_port()?, gate, service).await
    }

    /// Starts it on this port of the machine itself.
    pub async fn start_on(self, port: u16, gate: &str, service: &str) -> Result<(Process, String)> {
        let [gate, service] = [gate, service].map(|url| url.trim_start_matches("http://"));
        let mut process = match self {
            Self::Nginx => nginx(port, gate, service)?,
            Self::Caddy => caddy(port, gate, service)?,
            Self::Envoy => {
                envoy(port, &configuration("### Envoy", "yaml", gate, service)?, gate, service).await?
            }
        };
        listening(&mut process, port).await.map(|url| (process, url))
    }
}

/// Starts Envoy with the filter of `docs/signed-verdicts.md`, which lets a request through to the service
/// only with a verdict of this issuer in `KYA-Verdict`. The keys are fetched from `keys`, whenever they are a
/// second old.
pub async fn verdict_verifier(
    keys: &str,
    issuer: &str,
    audience: &str,
    service: &str,
) -> Result<(Process, String)> {
    let filter = block(&read("docs/signed-verdicts.md")?, "## How to verify it", "yaml")?;
    let [keys, service] = [keys, service].map(|url| url.trim_start_matches("http://"));
    let (mut filter, port) = (filter, free_port()?);
    for (documented, used) in [
        ("https://kya.example", issuer),
        ("https://api.example", audience),
        (GATE, keys),
        ("cache_duration: 300s", "cache_duration: 1s"),
    ] {
        ensure!(filter.matches(documented).count() == 1, "docs/signed-verdicts.md has {documented} not once");
        filter = filter.replace(documented, used);
    }
    let mut process = envoy(port, &filter, keys, service).await?;
    listening(&mut process, port).await.map(|url| (process, url))
}

async fn listening(process: &mut Process, port: u16) -> Result<String> {
    process.until("listening", START, async |_| TcpStream::connect(("127.0.0.1", port)).await.ok()).await?;
    Ok(format!("http://127.0.0.1:{port}"))
}

/// The documented configuration in this language behind a heading, with other addresses.
fn configuration(heading: &str, language: &str, gate: &str, service: &str) -> Result<String> {
    let text = block(&page()?, heading, language)?;
    Ok(text.replace(GATE, gate).replace(SERVICE, service))
}

fn page() -> Result<String> {
    read("docs/gate.md")
}

fn read(page: &str) -> Result<String> {
    Ok(fs::read_to_string(repo::root().join(page))?)
}

/// The first block of a language behind a heading, without the indentation of a list.
fn block(page: &str, heading: &str, language: &str) -> Result<String> {
    let (_, section) = page.split_once(&format!("{heading}\n")).with_context(|| format!("no {heading}"))?;
    let fence = format!("```{language}\n");
    let (before, rest) = section.split_once(&fence).with_context(|| format!("no {language}: {heading}"))?;
    let indent = before.rsplit('\n').next().unwrap_or_default();
    let (text, _) = rest.split_once(&format!("\n{indent}```")).context("a block without an end")?;
    let lines = text.lines().map(|line| line.strip_prefix(indent).unwrap_or(line));
    Ok(lines.collect::<Vec<_>>().join("\n") + "\n")
}

fn nginx(port: u16, gate: &str, service: &str) -> Result<Process> {
    let spawn = Spawn::new("nginx", "nginx");
    let directory = spawn.scratch().to_owned();
    // Without a master process nginx needs no rights. Directories default to Debian's, which only root can
    // write.
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {};", directory.join(name).display()));
    let locations = configuration("### nginx", "nginx", gate, service)?;
    let file = directory.join("nginx.conf");
    fs::write(
        &file,
        format!(
            "daemon off; master_process off; pid {}; error_log stderr;\nevents {{}}\n\
             http {{ access_log off; large_client_header_buffers 4 64k; {}\n\
             server {{ listen 127.0.0.1:{port};\n{locations}}} }}\n",
            directory.join("pid").display(),
            temporary.concat(),
        ),
    )?;
    let path = format!("{}:{NGINX_PATH}", std::env::var("PATH").unwrap_or_default());
    spawn.env("PATH", path).arg("-c").arg(file).start()
}

fn caddy(port: u16, gate: &str, service: &str) -> Result<Process> {
    let spawn = Spawn::new("caddy", "caddy");
    let directory = spawn.scratch().to_owned();
    let directives = configuration("### Caddy", "caddyfile", gate, service)?;
    let file = directory.join("Caddyfile");
    let options = "{\n\tadmin off\n\tauto_https off\n}\n";
    fs::write(
        &file,
        format!("{options}http://127.0.0.1:{port}, http://api.example:{port} {{\n{directives}}}\n"),
    )?;
    let home = directory.display().to_string();
    let spawn = spawn.env("HOME", &home).env("XDG_DATA_HOME", &home).env("XDG_CONFIG_HOME", &home);
    spawn.args(["run", "--adapter", "caddyfile", "--config"]).arg(file).start()
}

/// Envoy with this filter between the clusters `gate` and `service`.
async fn envoy(port: u16, filter: &str, gate: &str, service: &str) -> Result<Process> {
    let program = python::programs("envoy").await?.join("envoy");
    let spawn = Spawn::new("envoy", program);
    let filter = filter.lines().map(|line| format!("          {line}\n")).collect::<String>();
    let cluster = |name: &str, address: &str| -> Result<String> {
        let (host, port) = address.split_once(':').context("an address with a port")?;
        Ok(format!(
            "  - name: {name}\n    type: STATIC\n    connect_timeout: 2s\n    load_assignment:\n      \
             cluster_name: {name}\n      endpoints:\n      - lb_endpoints:\n        - endpoint: {{ address: \
             {{ socket_address: {{ address: {host}, port_value: {port} }} }} }}\n"
        ))
    };
    let text = format!(
        r#"static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - {{ name: all, domains: ["*"], routes: [{{ match: {{ prefix: "/" }}, route: {{ cluster: service }} }}] }}
          http_filters:
{filter}          - name: envoy.filters.http.router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
{}{}"#,
        cluster("gate", gate)?,
        cluster("service", service)?,
    );
    let file = spawn.scratch().join("envoy.yaml");
    fs::write(&file, text)?;
    // Several of them run beside one another: no shared memory between restarts.
    spawn
        .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"])
        .arg(file)
        .start()
}
