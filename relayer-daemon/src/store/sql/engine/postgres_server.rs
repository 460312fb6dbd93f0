//! The Postgres server: its hosts, the settings of connections, and the thread that drives them.

use std::{
    net::IpAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake},
    thread::{self, Thread},
    time::Duration,
};

use tokio::{runtime::Handle, sync::oneshot, time::timeout};
use tokio_postgres::{
    Client, Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

use super::postgres_tls::Tls;
use crate::store::{Result, StoreError};

/// Timeout of an answer: longer than those after which the server itself gives up.
pub(super) const ANSWER: Duration = Duration::from_secs(8);
/// Timeout of connecting to one address of a host, first answers included; then the next one is tried.
const CONNECT: Duration = Duration::from_secs(4);
/// Idle time after which a connection is probed: a NAT on the way may have dropped it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Limits of each session: a write waits for its turn or fails, and a daemon that stalls in a transaction
/// loses it. They are sent as options when connecting, which a pooler refuses, since its sessions are not one
/// client's own.
const OPTIONS: &str = "-c statement_timeout=6s -c lock_timeout=5s -c idle_in_transaction_session_timeout=3s
     -c default_transaction_isolation=read\\ committed";
/// Makes commits wait for the server's disk, whatever its default says.
const SESSION: &str = "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";

/// The server, with its TLS connector and the runtime that drives the connections.
pub(in super::super) struct Server {
    /// Its hosts, each with all settings of a connection.
    hosts: Vec<Config>,
    /// The index of the host that was the primary last.
    primary: AtomicUsize,
    /// The number of connections that were made.
    connects: Arc<AtomicU64>,
    tls: Option<Tls>,
    runtime: Handle,
    /// Ends the driver's thread, and with it all connections, when dropped.
    _driver: oneshot::Sender<()>,
}

impl Server {
    /// Creates the server that a URL names, without connecting. No message contains its password.
    ///
    /// # Errors
    /// [`StoreError::Engine`] for a URL that names none, or if TLS cannot be set up.
    pub(in super::super) fn new(url: &str) -> Result<Self> {
        let unusable = |why: &str| StoreError::Engine(format!("STORE_URL: {why}"));
        let mut config: Config = url.parse().map_err(|_| unusable("is no postgres URL"))?;
        let options = format!("{} {OPTIONS}", config.get_options().unwrap_or_default());
        config.application_name("relayer-daemon").options(options.trim());
        config.tcp_user_timeout(ANSWER).keepalives_idle(KEEPALIVE);
        // Nothing but the primary is of use, also for reading.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_ssl_mode() != SslMode::Disable {
            // `prefer` would let an attacker on the way strip TLS.
            let mode = if is_local(&config) { SslMode::Disable } else { SslMode::Require };
            config.ssl_mode(mode);
        }
        let tls = match config.get_ssl_mode() {
            SslMode::Disable => None,
            _ => Some(Tls::new().map_err(|error| unusable(&format!("no TLS: {error}")))?),
        };
        let failed = |error: std::io::Error| StoreError::Engine(error.to_string());
        let driver = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let runtime = driver.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("store-postgres".to_owned())
            .spawn(move || drop(driver.block_on(stopped)))
            .map_err(failed)?;
        let hosts = each_host(&config).map_err(unusable)?;
        Ok(Self {
            hosts,
            primary: AtomicUsize::new(0),
            connects: Arc::default(),
            tls,
            runtime,
            _driver: stop,
        })
    }

    /// Returns the counter of the connections that were made.
    pub(in super::super) fn connects(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.connects)
    }

    /// Blocks the thread until the answer is there or `limit` has passed.
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let _timers = self.runtime.enter();
        let answered = block_on(timeout(limit, answer));
        answered.map_err(|_| StoreError::Unreachable("no answer".to_owned()))?.map_err(Into::into)
    }

    /// Connects to the first host that answers as a primary, beginning with the one that did so last. Each
    /// address of each host has its own timeout: a silent one does not use up that of the others.
    pub(super) fn connect(&self) -> Result<Client> {
        let first = self.primary.load(Ordering::Relaxed);
        let mut failed = StoreError::Unreachable("no host".to_owned());
        for index in (0..self.hosts.len()).map(|turn| (first + turn) % self.hosts.len()) {
            let Some(host) = self.hosts.get(index) else { continue };
            let addressed = match self.addresses(host) {
                Ok(addresses) => at_each(host, &addresses),
                Err(error) => {
                    failed = error;
                    continue;
                }
            };
            for host in addressed {
                match self.wait(CONNECT, self.connect_to(&host)) {
                    Ok(client) => {
                        self.connects.fetch_add(1, Ordering::Relaxed);
                        self.primary.store(index, Ordering::Relaxed);
                        return Ok(client);
                    }
                    Err(error) => failed = error,
                }
            }
        }
        Err(failed)
    }

    /// Resolves a host's name; no address if the host is a socket's folder or has its address already.
    fn addresses(&self, host: &Config) -> Result<Vec<IpAddr>> {
        let ([Host::Tcp(name)], []) = (host.get_hosts(), host.get_hostaddrs()) else { return Ok(Vec::new()) };
        let _timers = self.runtime.enter();
        let found = block_on(timeout(CONNECT, tokio::net::lookup_host((name.as_str(), 0))));
        match found {
            Ok(Ok(found)) => Ok(found.map(|address| address.ip()).collect()),
            Ok(Err(error)) => Err(StoreError::Unreachable(error.to_string())),
            Err(_) => Err(StoreError::Unreachable("the host's name is not resolved".to_owned())),
        }
    }

    async fn connect_to(&self, host: &Config) -> Result<Client, tokio_postgres::Error> {
        let client = match &self.tls {
            Some(tls) => {
                let (client, connection) = host.connect(tls.clone()).await?;
                self.runtime.spawn(connection);
                client
            }
            None => {
                let (client, connection) = host.connect(tokio_postgres::NoTls).await?;
                self.runtime.spawn(connection);
                client
            }
        };
        client.batch_execute(SESSION).await?;
        Ok(client)
    }
}

/// Blocks this thread, of any runtime, until another has made the future ready.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

/// Returns the settings of a connection to each host of a URL.
fn each_host(config: &Config) -> Result<Vec<Config>, &'static str> {
    let (hosts, addresses, ports) = (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = hosts.len().max(addresses.len());
    if count == 0
        || (addresses.len() != count && !addresses.is_empty())
        || (ports.len() > 1 && ports.len() != count)
    {
        return Err("has no host, or not a port and an address for each");
    }
    let one = |index: usize| {
        let mut one = Config::new();
        config.get_user().map(|user| one.user(user));
        config.get_password().map(|password| one.password(password));
        config.get_dbname().map(|name| one.dbname(name));
        config.get_options().map(|options| one.options(options));
        config.get_application_name().map(|name| one.application_name(name));
        one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
        one.channel_binding(config.get_channel_binding());
        config.get_tcp_user_timeout().map(|timeout| one.tcp_user_timeout(*timeout));
        one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
        one.target_session_attrs(config.get_target_session_attrs());
        match hosts.get(index) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        addresses.get(index).map(|address| one.hostaddr(*address));
        ports.get(index).or(ports.first()).map(|port| one.port(*port));
        one
    };
    Ok((0..count).map(one).collect())
}

/// Returns the settings of a connection to each of a host's addresses; if it has none, to the host. The name
/// stays: the server's certificate is for it.
fn at_each(host: &Config, addresses: &[IpAddr]) -> Vec<Config> {
    let at = |address: &IpAddr| {
        let mut one = host.clone();
        one.hostaddr(*address);
        one
    };
    if addresses.is_empty() { vec![host.clone()] } else { addresses.iter().map(at).collect() }
}

/// Returns whether all hosts are this machine: traffic passes no network. An address comes before the name.
fn is_local(config: &Config) -> bool {
    let is_loopback =
        |name: &str| name == "localhost" || name.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    config.get_hostaddrs().iter().all(std::net::IpAddr::is_loopback)
        && config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => is_loopback(name),
            Host::Unix(_) => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_a_network_is_encrypted_and_checked() {
        let mode = |url: &str| Server::new(url).map(|server| server.hosts[0].get_ssl_mode());
        let _ = rustls::crypto::ring::default_provider().install_default();
        for url in [
            "postgres://db.example/relayer",
            "postgres://u:p@db.example/r?sslmode=prefer",
            "postgres://localhost/r?hostaddr=192.0.2.1",
        ] {
            assert_eq!(mode(url).unwrap(), SslMode::Require, "{url}");
        }
        for url in [
            "postgres://localhost/relayer",
            "postgres://u@127.0.0.1:5433/r?sslmode=prefer",
            "postgres://%2Fvar%2Frun%2Fpostgresql/r",
            "postgres://db.example/r?sslmode=disable",
        ] {
            assert_eq!(mode(url).unwrap(), SslMode::Disable, "{url}");
        }
        let refused = mode("postgres://u:secret@host:port/").unwrap_err().to_string();
        assert!(refused.contains("STORE_URL") && !refused.contains("secret"), "{refused}");
    }

    #[test]
    fn each_address_of_a_hosts_name_is_tried_for_itself() {
        let hosts = |url: &str| each_host(&url.parse().unwrap()).unwrap();
        let addresses: Vec<IpAddr> = ["192.0.2.1", "2001:db8::1"].map(|it| it.parse().unwrap()).into();
        let host = &hosts("postgres://db.example:5433/r")[0];
        let tried = at_each(host, &addresses);
        let of_each: Vec<_> = tried.iter().map(|one| one.get_hostaddrs().to_vec()).collect();
        assert_eq!(of_each, [[addresses[0]], [addresses[1]]]);
        for one in tried {
            assert_eq!((one.get_hosts(), one.get_ports()), (host.get_hosts(), [5433].as_slice()));
        }
        let socket = at_each(&hosts("postgres://%2Frun%2Fpostgresql/r")[0], &[]);
        assert!(socket.len() == 1 && socket[0].get_hostaddrs().is_empty());
    }
}
