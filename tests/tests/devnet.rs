//! What `cargo xtask dev` and `cargo xtask deploy-contracts` become, as a person meets it.
//!
//! 1. `dev` comes up, its curl lines give documents, and Ctrl-C ends everything it started and nothing else.
//! 2. Killed without a chance to clean up, it leaves nothing behind either.
//! 3. A taken port is named in one line, and nothing is started.
//! 4. `deploy-contracts` prints settings that work; its key comes from the environment and goes nowhere.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use alloy::primitives::Address;
use e2e::anvil::{Anvil, AnvilOptions, dev_key};
use e2e::client::Client;
use e2e::process::{Process, Spawn, eventually};
use e2e::stage::run;
use e2e::{http, oracle::Oracle};
use rustix::process::Signal;

const DEVNET: &str = env!("CARGO_BIN_EXE_devnet");

/// Long enough for a first build of the Worker.
const UP: Duration = Duration::from_secs(300);
const DOWN: Duration = Duration::from_secs(20);

async fn up() -> Process {
    let mut dev = Spawn::new("dev", DEVNET)
        .args(["dev", "--chain-port", "0", "--worker-port", "0", "--relayer-port", "0"])
        .start()
        .unwrap();
    dev.until("up", UP, async |log| log.contains("Ctrl-C stops everything.").then_some(())).await.unwrap();
    dev
}

/// All processes below `ancestor`.
fn descendants(ancestor: u32) -> BTreeSet<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        // "pid (name) state parent ..."; the name may hold anything, a parenthesis too. A zombie has ended.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        if let [state, parent, ..] = fields[..]
            && state != "Z"
        {
            parents.push((pid, parent.parse::<u32>().unwrap()));
        }
    }
    let mut found = BTreeSet::from([ancestor]);
    loop {
        let more: Vec<u32> = parents
            .iter()
            .filter(|(pid, parent)| found.contains(parent) && !found.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            found.remove(&ancestor);
            return found;
        }
        found.extend(more);
    }
}

fn alive(pid: &u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

async fn all_gone(processes: &BTreeSet<u32>) {
    eventually("gone", DOWN, async || (!processes.iter().any(alive)).then_some(())).await.unwrap_or_else(
        |error| {
            let left: Vec<String> = processes
                .iter()
                .filter(|pid| alive(pid))
                .map(|pid| {
                    fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
                })
                .collect();
            panic!("{error}: {left:#?}")
        },
    );
}

/// What the introduction says of `what`.
fn told(dev: &Process, what: &str) -> String {
    let log = dev.log();
    let said =
        log.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix("  ")?.split_whitespace().next());
    said.unwrap_or_else(|| panic!("nothing of {what}: {log}")).to_owned()
}

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

#[test]
fn dev_answers_its_own_curl_lines_and_ctrl_c_ends_it() {
    run(async {
        let bystander = Anvil::start(AnvilOptions::default()).await.unwrap();
        let mut dev = up().await;
        let log = dev.log();
        let urls: Vec<&str> = log
            .lines()
            .filter_map(|line| line.trim().strip_prefix("curl "))
            .map(|url| url.trim_matches('\''))
            .collect();
        assert_eq!(urls.len(), 5, "{log}");
        for url in &urls {
            let answer = http::client(Duration::from_secs(30)).get(*url).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{url}");
            let body = answer.text().await.unwrap();
            assert!(body.starts_with('{') && body.len() > 100, "{url}: {body}");
        }
        let api = Client::new(&told(&dev, "read API"));
        assert_eq!(api.get("/health").await.ok()["registry"], told(&dev, "registry"));
        let forwarder: Address = told(&dev, "forwarder").parse().unwrap();
        assert_ne!(forwarder, Address::ZERO);

        let relayer = told(&dev, "relayer");
        let status =
            http::client(Duration::from_secs(30)).get(format!("{relayer}/status")).send().await.unwrap();
        assert!(status.text().await.unwrap().contains(&told(&dev, "registry")));

        let page = http::client(Duration::from_secs(30)).get(told(&dev, "explorer")).send().await.unwrap();
        assert!(page.text().await.unwrap().starts_with("<!doctype html>"));
        let settings = format!("/#/settings?rpc={}&relayer={relayer}", told(&dev, "chain"));
        assert!(log.contains(&settings), "{log}");

        let started = descendants(dev.id());
        assert!(started.len() >= 5, "anvil, the daemon, wrangler and workerd are there: {started:?}");
        let ports = ["chain", "read API", "relayer"].map(|what| port(&told(&dev, what)));
        dev.signal(Signal::INT).unwrap();
        assert!(dev.exited(DOWN).await.unwrap().success());
        drop(dev);
        all_gone(&started).await;
        for port in ports {
            assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens");
        }
        assert!(bystander.time().await.is_ok(), "somebody else's chain runs on");
    });
}

#[test]
fn dev_killed_outright_leaves_nothing_behind() {
    run(async {
        let mut dev = up().await;
        let started = descendants(dev.id());
        dev.signal(Signal::KILL).unwrap();
        assert!(!dev.exited(DOWN).await.unwrap().success());
        drop(dev);
        all_gone(&started).await;
    });
}

#[test]
fn a_taken_port_is_named_in_one_line() {
    run(async {
        let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = taken.local_addr().unwrap().port().to_string();
        let options = ["--chain-port", "--worker-port", "--relayer-port"];
        for option in options {
            let ports = options.iter().flat_map(|name| [*name, if *name == option { &port } else { "0" }]);
            let mut dev = Spawn::new("dev", DEVNET).arg("dev").args(ports).start().unwrap();
            assert_eq!(dev.exited(DOWN).await.unwrap().code(), Some(1));
            let log = dev.log();
            assert_eq!(log.lines().count(), 1, "{log}");
            assert!(log.contains(&format!("port {port} is taken")) && log.contains(option), "{log}");
        }
    });
}

fn deploy(url: &str) -> Spawn {
    Spawn::new("deploy", DEVNET).args(["deploy-contracts", "--rpc-url", url]).env_remove("DEPLOYER_KEY")
}

#[test]
fn deploy_contracts_prints_settings_that_work() {
    run(async {
        let node = Anvil::start(AnvilOptions::default()).await.unwrap();
        let key = format!("0x{}", alloy::hex::encode(dev_key(3).to_bytes()));
        let mut deployment = deploy(node.url()).env("DEPLOYER_KEY", &key).start().unwrap();
        let status = deployment.exited(UP).await.unwrap();
        let log = deployment.log();
        assert!(status.success(), "{log}");
        let setting = |name: &str| -> Address {
            log.lines()
                .find_map(|line| line.strip_prefix(&format!("{name}=")))
                .unwrap_or_else(|| panic!("{log}"))
                .parse()
                .unwrap()
        };
        let oracle = Oracle::new(node.url(), setting("REGISTRY_ADDRESS")).unwrap();
        assert_eq!(oracle.total().await.unwrap(), 0);
        assert_eq!(oracle.grace_seconds().await.unwrap(), 604_800);
        assert_ne!(setting("FORWARDER_ADDRESS"), setting("REGISTRY_ADDRESS"));
        assert!(log.contains("MULTICALL3_ADDRESS"), "a fresh chain has no Multicall3, which it says: {log}");
        assert!(!log.contains(&key[2..]), "{log}");
    });
}

#[test]
fn a_deployers_key_is_asked_for_and_never_shown() {
    run(async {
        let node = Anvil::start(AnvilOptions::default()).await.unwrap();
        let broken = "0x1234567890abcdef-not-a-key";
        for (spawn, message) in [
            (deploy(node.url()), "DEPLOYER_KEY is not set"),
            (deploy(node.url()).env("DEPLOYER_KEY", broken), "DEPLOYER_KEY is no private key"),
        ] {
            let mut deployment = spawn.start().unwrap();
            assert_eq!(deployment.exited(DOWN).await.unwrap().code(), Some(1));
            let log = deployment.log();
            assert_eq!(log.lines().count(), 1, "{log}");
            assert!(log.contains(message) && !log.contains("1234567890abcdef"), "{log}");
        }
        let unfunded = alloy::signers::local::PrivateKeySigner::random();
        let key = alloy::hex::encode(unfunded.to_bytes());
        let mut deployment = deploy(node.url()).env("DEPLOYER_KEY", &key).start().unwrap();
        assert_eq!(deployment.exited(DOWN).await.unwrap().code(), Some(1));
        let log = deployment.log();
        assert!(log.contains("the node refused to deploy Forwarder") && !log.contains(&key), "{log}");
    });
}
