//! `cargo xtask dev` and `cargo xtask deploy-contracts` as their users see them.
//!
//! 1. `dev` starts, its curl lines return documents, the commands of README and docs and the Python package's
//!    example work, its guarded service admits the agent it names, and Ctrl-C ends everything it started and
//!    nothing else.
//! 2. Killed without a chance to clean up, it leaves nothing behind either.
//! 3. The key of `deploy-contracts` comes from the environment and is never shown. That its contracts work is
//!    tested in `foreign_nodes`.

mod docs;
mod python_package;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use alloy::primitives::Address;
use e2e::anvil::{Anvil, AnvilOptions};
use e2e::client::Client;
use e2e::process::{Process, Spawn, eventually};
use e2e::usage::{descendants, is_alive};
use e2e::{http, signers};
use rustix::process::Signal;

const DEVNET: &str = env!("CARGO_BIN_EXE_devnet");
const PORTS: [&str; 4] = ["--chain-port", "--worker-port", "--relayer-port", "--guarded-port"];
/// Long enough for a first build of the Worker.
const UP: Duration = Duration::from_secs(300);
const DOWN: Duration = Duration::from_secs(120);

async fn up() -> Process {
    let ports = PORTS.iter().flat_map(|option| [*option, "0"]);
    let mut dev = Spawn::new("dev", DEVNET).arg("dev").args(ports).start().unwrap();
    dev.until("up", UP, async |log| log.contains("Ctrl-C stops everything.").then_some(())).await.unwrap();
    dev
}

async fn all_gone(processes: &BTreeSet<u32>) {
    let ended = async || (!processes.iter().any(|pid| is_alive(*pid))).then_some(());
    if let Err(error) = eventually("gone", DOWN, ended).await {
        let left = processes.iter().filter(|pid| is_alive(**pid));
        let commands = left.map(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
        panic!("{error}: {:#?}", commands.collect::<Vec<_>>());
    }
}

/// Returns the value that the introduction prints for `what`.
fn printed(dev: &Process, what: &str) -> String {
    let log = dev.log();
    let said =
        log.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix("  ")?.split_whitespace().next());
    said.unwrap_or_else(|| panic!("nothing of {what}: {log}")).to_owned()
}

async fn read(url: &str) -> String {
    let answer = http::client(Duration::from_secs(30)).get(url).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{url}");
    answer.text().await.unwrap()
}

fn port(url: &str) -> u16 {
    url.rsplit(':').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_answers_its_own_curl_lines_and_ctrl_c_ends_it() {
    let bystander = Anvil::start(AnvilOptions::default()).await.unwrap();
    let mut dev = up().await;
    let log = dev.log();
    let commands = log.lines().filter_map(|line| line.trim().strip_prefix("curl "));
    let urls: Vec<&str> = commands.map(|url| url.trim_matches('\'')).collect();
    assert_eq!(urls.len(), 5, "{log}");
    for url in &urls {
        let body = read(url).await;
        assert!(body.starts_with('{') && body.len() > 100, "{url}: {body}");
    }
    let api = Client::new(&printed(&dev, "read API"));
    assert_eq!(api.get("/health").await.ok()["registry"], printed(&dev, "registry"));
    let forwarder: Address = printed(&dev, "forwarder").parse().unwrap();
    assert_ne!(forwarder, Address::ZERO);

    let relayer = printed(&dev, "relayer");
    assert!(read(&format!("{relayer}/status")).await.contains(&printed(&dev, "registry")));
    assert!(read(&printed(&dev, "explorer")).await.starts_with("<!doctype html>"));
    let settings = format!("/#/settings?rpc={}&relayer={relayer}", printed(&dev, "chain"));
    assert!(log.contains(&settings), "{log}");

    let guarded = printed(&dev, "guarded");
    let unsigned = http::client(DOWN).get(format!("{guarded}/items")).send().await.unwrap();
    assert_eq!(unsigned.status(), 401);
    let script = "node tests/signers/signed-requests.mjs ";
    let arguments = log.lines().find_map(|line| line.trim().strip_prefix(script)).unwrap();
    let outcomes =
        signers::node("signed-requests.mjs", &arguments.split(' ').collect::<Vec<_>>()).await.unwrap();
    for outcome in outcomes.as_array().unwrap() {
        let is_bot = outcome["client"] == "web-bot-auth alone";
        assert_eq!(outcome["status"], if is_bot { 401 } else { 200 }, "{outcome}");
    }

    let registry = printed(&dev, "registry");
    docs::commands_work(&printed(&dev, "read API"), &relayer, &printed(&dev, "chain"), &guarded, &registry)
        .await;
    let served = docs::python_example(&relayer, &registry, &guarded).await;
    assert!(served.contains("your items"), "{served}");

    let started = descendants(dev.id()).unwrap();
    assert!(started.len() >= 5, "anvil, the daemon, wrangler and workerd are there: {started:?}");
    let ports = ["chain", "read API", "relayer", "guarded"].map(|what| port(&printed(&dev, what)));
    dev.signal(Signal::INT).unwrap();
    assert!(dev.exited(DOWN).await.unwrap().success());
    drop(dev);
    all_gone(&started).await;
    for port in ports {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "{port} still listens");
    }
    assert!(bystander.time().await.is_ok(), "another chain runs on");
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_killed_outright_leaves_nothing_behind() {
    let mut dev = up().await;
    let started = descendants(dev.id()).unwrap();
    dev.signal(Signal::KILL).unwrap();
    assert!(!dev.exited(DOWN).await.unwrap().success());
    drop(dev);
    all_gone(&started).await;
}

fn deploy(url: &str) -> Spawn {
    Spawn::new("deploy", DEVNET).args(["deploy-contracts", "--rpc-url", url]).env_remove("DEPLOYER_KEY")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployers_key_is_asked_for_and_never_shown() {
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
}
