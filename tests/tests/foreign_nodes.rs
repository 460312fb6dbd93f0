//! Nodes of other projects, beside anvil with the same transactions: hardhat 3 (EDR), ganache, and hardhat 2
//! on the EVM of EthereumJS at the hardfork berlin, before EIP-1559 and PUSH0. `tests/nodes` has them; this
//! program installs them. Their error messages are listed in `core/tests/engine`; these tests show that there
//! are no others.
//!
//! 1. `deploy-contracts` deploys, and prints settings that work and no key; or refuses with the reason.
//! 2. Every endpoint, with an index and without, answers the same as at anvil but for hashes and times, or
//!    with a documented 501.
//! 3. `/readyz` lists the node's capabilities; there is evidence exactly where there are proofs.
//! 4. A registration without gas is executed, or the relayer refuses to start with the reason.

use alloy::primitives::{Address, Bytes};
use alloy::providers::Provider as _;
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::SolCall as _;
use e2e::anvil::{Anvil, AnvilOptions, dev_account, dev_key};
use e2e::client::Client;
use e2e::daemon::{DaemonOptions, RelayerDaemon};
use e2e::deploy::{Deployment, create_from, gas_price, provider};
use e2e::process::{PATIENCE, Process, Spawn, eventually, free_port, output};
use e2e::relay::{RequestFactory, attest, register};
use e2e::seed::{registration_call, report, suspension, wallet};
use e2e::stage::IndexWorker;
use e2e::worker::{Worker, WorkerOptions};
use e2e::{npm, repo};
use registry_core::eth::abi::IAgentRegistry;
use registry_core::forward::domain;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const MNEMONIC: &str = "test test test test test test test test test test test junk";
/// Index of the account that deploys the contracts.
const DEPLOYER: usize = 0;
/// A past time, for reports.
const REPORTED: u64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ForeignNodeKind {
    Edr,
    Ganache,
    Berlin,
}

/// A node with the registry and its agents.
struct ForeignNode {
    url: String,
    contracts: Deployment,
    multicall3: Address,
    _process: Vec<Process>,
    _anvil: Option<Anvil>,
}

/// Starts a node on an empty chain.
async fn start(kind: ForeignNodeKind) -> (Process, String) {
    let (nodes, port) = (npm::installed("nodes").await.unwrap(), free_port().unwrap().to_string());
    let spawn = Spawn::new("node", "node").env("HARDHAT_DISABLE_TELEMETRY_PROMPT", "true");
    let spawn = match kind {
        ForeignNodeKind::Edr => spawn
            .dir(nodes.join("edr"))
            .arg(nodes.join("node_modules/hardhat/dist/src/cli.js"))
            .args(["node", "--hostname", "127.0.0.1", "--port", &port]),
        ForeignNodeKind::Berlin => spawn
            .dir(nodes.join("ethereumjs"))
            .arg(nodes.join("ethereumjs/node_modules/hardhat/internal/cli/bootstrap.js"))
            .args(["node", "--hostname", "127.0.0.1", "--port", &port]),
        ForeignNodeKind::Ganache => spawn
            .arg(nodes.join("node_modules/ganache/dist/node/cli.js"))
            .args(["--server.host", "127.0.0.1", "--server.port", &port])
            .args(["--wallet.mnemonic", MNEMONIC, "--chain.chainId", "31337"]),
    };
    let process = spawn.start().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let provider = provider(&url, dev_key(DEPLOYER)).unwrap();
    eventually("a node", PATIENCE, async || provider.get_block_number().await.ok()).await.unwrap();
    (process, url)
}

/// Runs `deploy-contracts`; returns the three addresses that it prints, or the log of a failure.
async fn deploy_contracts(url: &str) -> Result<[Address; 3], String> {
    let key = format!("{:#x}", dev_key(DEPLOYER).to_bytes());
    let deployment = Spawn::new("deploy", env!("CARGO_BIN_EXE_devnet"))
        .args(["deploy-contracts", "--rpc-url", url])
        .env("DEPLOYER_KEY", &key);
    let mut deployment = deployment.start().unwrap();
    let status = deployment.exited(PATIENCE).await.unwrap();
    let log = deployment.log();
    assert!(!log.contains(&key[2..]), "{log}");
    let setting =
        |name: &str| log.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    let settings = ["REGISTRY_ADDRESS", "FORWARDER_ADDRESS", "MULTICALL3_ADDRESS"].map(setting);
    match settings {
        [Some(registry), Some(forwarder), Some(multicall3)] if status.success() => {
            Ok([registry, forwarder, multicall3])
        }
        _ => Err(log),
    }
}

/// Deploys the contracts, compiled for an old chain, at the addresses that they have elsewhere.
async fn deploy_for_berlin(url: &str) -> [Address; 3] {
    let compile = npm::installed("nodes").await.unwrap().join("compile.mjs");
    let mut node = tokio::process::Command::from(repo::command("node"));
    let codes = output(node.arg(compile).args(["berlin", "AgentRegistry", "Multicall3"])).await.unwrap();
    let codes: Value = serde_json::from_slice(&codes).unwrap();
    let code = |name: &str| -> Bytes { codes[name].as_str().unwrap().parse().unwrap() };
    let provider = provider(url, dev_key(DEPLOYER)).unwrap();
    let create = async |name: &str, code: Bytes| create_from(&provider, name, code).await.unwrap();
    // Another contract stands in for the forwarder: OpenZeppelin's does not compile for this chain.
    let forwarder = create("Multicall3", code("Multicall3")).await;
    let arguments = alloy::sol_types::SolValue::abi_encode(&forwarder);
    let registry = create("AgentRegistry", [&code("AgentRegistry")[..], &arguments].concat().into()).await;
    [registry, forwarder, create("Multicall3", code("Multicall3")).await]
}

/// Registers the same few agents on any chain, in the same blocks.
async fn seed(url: &str, registry: Address) {
    let agent = |id: u64, parent: u64| {
        registration_call(id, wallet(&format!("foreign {id}")).address(), "Übersetzung — 翻訳", parent)
            .abi_encode()
    };
    let (owner, operator) = (provider(url, dev_key(DEPLOYER)).unwrap(), provider(url, dev_key(2)).unwrap());
    let regulator = IAgentRegistry::setRegulatorCall { account: dev_account(DEPLOYER), isRegulator: true };
    let revenue = report(1, 125_050, "EUR", "fees", REPORTED);
    for (sender, data) in [
        (&owner, regulator.abi_encode()),
        (&operator, agent(1, 0)),
        (&operator, agent(2, 1)),
        (&operator, agent(3, 2)),
        (&operator, agent(4, 0)),
        (&operator, attest(4).abi_encode()),
        (&operator, revenue.abi_encode()),
        (&owner, suspension(4, "late").abi_encode()),
    ] {
        let mut transaction = TransactionRequest::default().to(registry).input(Bytes::from(data).into());
        transaction.gas = Some(1_000_000);
        transaction.gas_price = gas_price(sender).await.unwrap();
        let pending = sender.send_transaction(transaction).await.unwrap();
        let receipt = pending.with_timeout(Some(PATIENCE)).get_receipt().await.unwrap();
        assert!(receipt.status(), "{receipt:?}");
    }
}

async fn node(kind: Option<ForeignNodeKind>) -> ForeignNode {
    let (process, anvil, url) = match kind {
        None => {
            let anvil = Anvil::start(AnvilOptions::default()).await.unwrap();
            let url = anvil.url().to_owned();
            (None, Some(anvil), url)
        }
        Some(kind) => {
            let (process, url) = start(kind).await;
            (Some(process), None, url)
        }
    };
    let deployed = deploy_contracts(&url).await;
    let [registry, forwarder, multicall3] = match (kind, deployed) {
        (Some(ForeignNodeKind::Berlin), Err(log)) => {
            assert!(log.contains("runs no code of Shanghai (PUSH0)"), "{log}");
            deploy_for_berlin(&url).await
        }
        (kind, deployed) => deployed.unwrap_or_else(|log| panic!("{kind:?}: {log}")),
    };
    seed(&url, registry).await;
    let contracts = Deployment { registry, forwarder };
    ForeignNode { url, contracts, multicall3, _process: process.into_iter().collect(), _anvil: anvil }
}

/// Returns the paths to request, from a Worker without an index and from one with it.
fn questions() -> (Vec<String>, Vec<String>) {
    let kya = |id: u64| format!("/api/v1/kya/{}", wallet(&format!("foreign {id}")).address());
    let list = format!("{},{}", kya(1), kya(4).trim_start_matches("/api/v1/kya/"));
    let asked = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<String>>();
    let mut plain = asked(&[
        "/health",
        "/api/v1/stats",
        "/api/v1/stats/detailed",
        "/api/v1/agents",
        "/api/v1/agents?page=2&limit=2",
        "/api/v1/agents?status=Suspended",
        "/api/v1/agents/compliance",
        "/api/v1/agent/3/ancestors",
        "/api/v1/agent/1/lineage",
        "/api/v1/agent/1/revenue",
        "/api/v1/revenue/aggregate",
        "/api/v1/agent/1",
        "/api/v1/agent/1?block=9",
        "/api/v1/agent/99",
        "/api/v1/agent/1?block=99999",
        "/api/v1/agent/1?block=0",
    ]);
    plain.push(format!("/api/v1/agent/1?block=0x{}", "ab".repeat(32)));
    plain.extend([
        kya(1),
        kya(4),
        kya(9),
        list,
        format!("{}?history=1", kya(4)),
        format!("{}?block=9", kya(1)),
    ]);
    let mut indexed = asked(&[
        "/api/v1/agents?parent=1",
        "/api/v1/agents?q=bersetzung&sort=-id",
        "/api/v1/agents/compliance?limit=2",
        "/api/v1/agent/1/history",
        "/api/v1/kya/range/0",
        "/api/v1/stats/detailed",
    ]);
    indexed.push(format!("/api/v1/liable/{}", registration_call(1, Address::ZERO, "", 0).haftungsperson));
    (plain, indexed)
}

/// Masks what differs between chains: hashes of blocks and transactions, times, and URLs.
fn masked(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let of_chain = [
                "parentHash",
                "txHash",
                "transactionHash",
                "cursor",
                "next",
                "rpc",
                "chain",
                "secondsSinceAttestation",
            ];
            let mask = |(key, value): (&String, &Value)| {
                let value = if of_chain.contains(&&**key) { Value::Null } else { masked(value) };
                (key.clone(), value)
            };
            Value::Object(members.iter().map(mask).collect())
        }
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::String(text) if text.len() == 24 && text.ends_with('Z') && text > &"2000".to_owned() => {
            json!("time")
        }
        other => other.clone(),
    }
}

async fn ask(client: &Client, paths: &[String]) -> Vec<(String, u16, Value)> {
    let mut answers = Vec::new();
    for path in paths {
        let answer = client.get(path).await;
        answers.push((path.clone(), answer.status, masked(&answer.json())));
    }
    answers
}

/// Returns all answers over a node, with the Worker that has no index.
async fn answers(node: &ForeignNode) -> (Worker, Vec<(String, u16, Value)>) {
    let (plain, indexed) = questions();
    let options = WorkerOptions::new(&node.url, node.contracts.registry)
        .var("MULTICALL3_ADDRESS", node.multicall3)
        // A lens call takes long on a node in JavaScript on a busy machine.
        .var("RPC_TIMEOUT_SECONDS", 20)
        .var("RPC_DEADLINE_SECONDS", 60);
    let worker = Worker::start(options.clone()).await.unwrap();
    let mut answers = ask(&worker.client(), &plain).await;
    let (with_index, index) = IndexWorker::start(options).await.unwrap();
    let client = with_index.client();
    let is_settled = |ready: &Value| ready["kyaSource"] == "snapshot" || ready["noSnapshot"].is_string();
    client.until_ready("the index", PATIENCE, is_settled).await.unwrap();
    answers.extend(ask(&client, &indexed).await);
    drop(index);
    (worker, answers)
}

async fn check(kind: ForeignNodeKind) {
    /// Anvil's answers.
    static EXPECTED: OnceCell<Vec<(String, u16, Value)>> = OnceCell::const_new();
    let expected = EXPECTED.get_or_init(async || answers(&node(None).await).await.1);
    let (expected, (node, worker, found)) = tokio::join!(expected, async {
        let node = node(Some(kind)).await;
        let (worker, found) = answers(&node).await;
        (node, worker, found)
    });
    let mut wrong = String::new();
    for (found, expected) in found.iter().zip(expected).filter(|(found, expected)| found != expected) {
        if found.1 != 501 {
            wrong += &format!("{}: {} {}\nanvil: {} {}\n", found.0, found.1, found.2, expected.1, expected.2);
        }
    }
    assert!(wrong.is_empty(), "{kind:?}:\n{wrong}");
    let client = worker.client();
    let ready = client.get("/readyz").await.ok();
    let (is_berlin, takes_hashes) = (kind == ForeignNodeKind::Berlin, kind != ForeignNodeKind::Ganache);
    let gives = json!({
        "blockHash": takes_hashes, "proofs": !is_berlin, "logs": true, "finalized": !is_berlin, "batch": true,
    });
    assert_eq!(ready["node"], json!([gives]), "{kind:?}");
    // Without proofs ranges are never available, and the code gives the reason.
    let (_, status, range) = found.iter().find(|(path, ..)| path == "/api/v1/kya/range/0").unwrap();
    assert_eq!(*status == 501 && range["code"] == "NODE_LACKS_METHOD", is_berlin, "{kind:?}: {range}");
    let evidence = client.get(&format!("/api/v1/kya/{}?evidence=1", wallet("foreign 1").address())).await;
    match is_berlin {
        true => assert_eq!((evidence.status, &evidence.json()["code"]), (501, &json!("NODE_LACKS_METHOD"))),
        false => assert_eq!(evidence.ok()["verdict"]["decision"], "provision", "{}", evidence.text),
    }
    let options = DaemonOptions::new(&node.url, node.contracts, &dev_key(9));
    if is_berlin {
        let printed = RelayerDaemon::refuse(&options).await.unwrap();
        assert!(printed.contains("it needs EIP-1559 (London)"), "{printed}");
        return;
    }
    let daemon = RelayerDaemon::start(&options).await.unwrap();
    let desk = RequestFactory {
        domain: domain(31_337, node.contracts.forwarder),
        registry: node.contracts.registry,
    };
    let newcomer = wallet("newcomer");
    let request = desk.request(&newcomer, 0, &register(newcomer.address()));
    let answer = daemon.client().relay(&request).await.ok();
    assert_eq!((&answer["success"], &answer["agentId"]), (&json!(true), &json!(5)), "{answer}");
    let executed = async || (daemon.client().state(&request).await.ok()["state"] == "executed").then_some(());
    eventually("executed", PATIENCE, executed).await.unwrap();
    let verdict = client.get(&format!("/api/v1/kya/{}?history=1", newcomer.address())).await.ok();
    assert_eq!(verdict["agent"]["agentId"], 5, "{verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hardhat_3_is_served_as_anvil_is() {
    check(ForeignNodeKind::Edr).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ganache_is_served_as_anvil_is() {
    check(ForeignNodeKind::Ganache).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_an_old_hardfork_is_served_as_far_as_it_goes() {
    check(ForeignNodeKind::Berlin).await;
}
