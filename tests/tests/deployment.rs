//! The relayer as its README and its unit file deploy it.
//!
//! 1. Behind the README's nginx each client is limited by its own address, even if it forges
//!    `X-Forwarded-For`.
//! 2. That nginx forwards relays, answers large bodies with 413, and keeps the metrics private.
//! 3. systemd accepts every line of the unit file.

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::daemon::Daemon;
use e2e::process::{Process, Spawn, free_port};
use e2e::relay::{Desk, RelayClient, attest};
use e2e::repo;
use e2e::seed::wallet;

/// The directory of Debian's nginx, which is on the PATH of root only.
const NGINX_PATH: &str = "/usr/sbin";

/// The timeout of nginx's start.
const START: Duration = Duration::from_secs(20);

/// A daemon behind nginx, the only proxy that it trusts.
struct Deployed {
    desk: Desk,
    daemon: Daemon,
    /// A client of nginx.
    client: RelayClient,
    _nginx: Process,
    _chain: Chain,
}

impl Deployed {
    async fn new() -> Self {
        let chain = Chain::start(AnvilOptions::default()).await.unwrap();
        let options = chain.daemon(&dev_key(9)).plain().without("RATE_LIMIT_PER_IP");
        let daemon = Daemon::start(&options.var("TRUSTED_PROXIES", "127.0.0.1")).await.unwrap();
        let (nginx, url) = nginx(daemon.url()).await;
        let client = RelayClient::new(&url).from_address(Ipv4Addr::new(127, 0, 0, 2));
        Self { desk: Desk::of(&chain), daemon, client, _nginx: nginx, _chain: chain }
    }
}

/// Starts nginx with the README's locations in front of the daemon at `url`; returns nginx's address.
async fn nginx(url: &str) -> (Process, String) {
    let readme = fs::read_to_string(repo::root().join("relayer-daemon/README.md")).unwrap();
    let (_, locations) = readme.split_once("```nginx\n").expect("the README shows a configuration");
    let (locations, _) = locations.split_once("```").unwrap();
    assert_eq!(locations.matches("http://127.0.0.1:3001").count(), 1, "{locations}");
    let locations = locations.replace("http://127.0.0.1:3001", url);

    let port = free_port().unwrap();
    let spawn = Spawn::new("nginx", "nginx");
    let directory = spawn.scratch().to_owned();
    // Without a master process nginx needs no rights. Directories default to Debian's, which only root can
    // write.
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {};", directory.join(name).display()));
    let configuration = directory.join("nginx.conf");
    fs::write(
        &configuration,
        format!(
            "daemon off; master_process off; pid {}; error_log stderr;\nevents {{}}\n\
             http {{ access_log off; {}\nserver {{ listen 127.0.0.1:{port};\n{locations}}} }}\n",
            directory.join("pid").display(),
            temporary.concat(),
        ),
    )
    .unwrap();
    let path = format!("{}:{NGINX_PATH}", env::var("PATH").unwrap_or_default());
    let mut process = spawn.env("PATH", path).arg("-c").arg(configuration).start().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let probe = e2e::http::client(START);
    process
        .until("listening", START, async |_| probe.get(format!("{url}/livez")).send().await.ok())
        .await
        .unwrap();
    (process, url)
}

#[tokio::test]
async fn behind_nginx_a_forged_header_does_not_change_the_address_that_is_limited() {
    let deployed = Deployed::new().await;
    let signer = wallet("cheap");
    let mut request = deployed.desk.draft(&signer, 0, &attest(1));
    // A target that is not allowed costs no call to the chain.
    request.to = signer.address();
    let request = deployed.desk.sign(&signer, request);
    for index in 0..20 {
        let forged = deployed.client.forwarded_for(&format!("203.0.113.{index}"));
        assert_eq!(forged.relay(&request).await.status, 403, "request {index}");
    }
    for forged in ["203.0.113.99", "127.0.0.1", "nonsense"] {
        let answer = deployed.client.forwarded_for(forged).relay(&request).await;
        answer.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (20/hour)");
    }
    let other = deployed.client.from_address(Ipv4Addr::new(127, 0, 0, 3));
    assert_eq!(other.relay(&request).await.status, 403, "another address has a limit of its own");
}

#[tokio::test]
async fn nginx_forwards_relays_and_refuses_large_bodies_and_the_metrics() {
    let Deployed { desk, daemon, client, .. } = &Deployed::new().await;
    let answer = client.relay(&desk.registration(&wallet("new"), 0)).await.ok();
    assert_eq!((&answer["success"], &answer["agentId"]), (&true.into(), &1.into()), "{answer}");
    assert_eq!(client.get("/readyz").await.status, 200);

    let large = client.post("x".repeat(64 * 1024 + 1)).await;
    assert!(large.status == 413 && large.text.contains("nginx"), "{large:?}");
    let metrics = client.get("/metrics").await;
    assert!(metrics.status == 403 && metrics.text.contains("nginx"), "{metrics:?}");
    let own = daemon.client().get("/metrics").await;
    assert!(own.status == 200 && own.text.contains("relayer_"), "{own:?}");
}

#[test]
fn systemd_accepts_every_line_of_the_unit_file() {
    let unit =
        fs::read_to_string(repo::root().join("relayer-daemon/systemd/relayer-daemon.service")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let verify = |unit: &str| {
        let path = directory.path().join("relayer-daemon.service");
        // systemd checks that the program exists.
        let program = env::current_exe().unwrap();
        fs::write(&path, unit.replace("/usr/local/bin/relayer-daemon", program.to_str().unwrap())).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().unwrap();
        // systemd only warns of a line that it does not understand. Other units may cause warnings too.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said.lines().any(|line| line.contains("relayer-daemon.service")), said)
    };
    let (accepted, named, said) = verify(&unit);
    assert!(accepted && !named, "{said}");
    let (_, named, said) = verify(&unit.replace("ProtectSystem=", "ProtectSistem="));
    assert!(named, "a wrong line is found: {said}");
}
