//! `relayer-daemon check`: one screen of ticks, or the one line that says what is wrong; `serve` refuses what
//! it crosses.
//!
//! 1. A good chain: ticks only.
//! 2. Each thing wrong, and the line that says so.
//! 3. Beside a running daemon it is good as well, says who runs, and disturbs nothing; before the first start
//!    it leaves nothing behind.
//! 4. A node that has pruned its history is no obstacle, also to a journal from before.

use alloy::hex;
use alloy::primitives::{Address, Bytes, U256, keccak256};
use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::deploy::deploy;
use e2e::fault::{Fault, Rule};
use e2e::process::free_port;
use e2e::relay::attest;
use serde_json::{Value, json};

use crate::audit::{Stage, agent, relayer};

/// Runs `check`, which must find exactly one thing wrong, in a line with these words; `serve` must refuse as
/// well.
async fn crosses(options: &DaemonOptions, words: &[&str]) {
    let (good, printed) = check(options).await.unwrap();
    let crosses: Vec<&str> = printed.lines().filter(|line| line.starts_with('✗')).collect();
    assert!(!good && crosses.len() == 1, "{words:?}:\n{printed}");
    assert!(words.iter().all(|word| crosses[0].contains(word)), "{words:?}:\n{printed}");
    let refusal = Daemon::refuse(options).await.unwrap();
    assert!(refusal.contains(crosses[0]) || words.iter().all(|word| refusal.contains(word)), "{refusal}");
}

#[tokio::test]
async fn a_good_chain_has_ticks_only() {
    let stage = Stage::set().await;
    let (good, printed) = check(&stage.options).await.unwrap();
    assert!(good, "{printed}");
    let ticks: Vec<&str> = printed.lines().collect();
    assert!(ticks.iter().all(|line| line.starts_with('✓')), "{printed}");
    for name in [
        "key",
        "rpc",
        "chain id",
        "registry",
        "forwarder",
        "domain",
        "trust",
        "balance",
        "clock",
        "no-op gas",
        "delegation",
        "lock",
        "journal",
        "pending",
    ] {
        assert_eq!(
            ticks.iter().filter(|line| line[3..].trim_start().starts_with(name)).count(),
            1,
            "{name}:\n{printed}"
        );
    }
    assert!(printed.contains(&relayer().address().to_checksum(None)), "{printed}");
}

#[tokio::test]
async fn each_thing_wrong_with_the_chain_has_its_line() {
    let stage = Stage::set().await;
    let fresh = || stage.options.clone().with_empty_journal();
    crosses(&fresh().var("CHAIN_ID", 84532), &["chain id", "31337", "84532"]).await;
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    crosses(&fresh().var("RPC_URL", dead), &["rpc", "no RPC endpoint answers"]).await;
    crosses(&fresh().var("RPC_URL", "localhost:8545"), &["rpc", "entry 1"]).await;

    let nobody = agent("nobody").address();
    let text = nobody.to_checksum(None);
    crosses(&fresh().var("REGISTRY_ADDRESS", nobody), &["registry", "no contract at", &text]).await;
    crosses(&fresh().var("FORWARDER_ADDRESS", nobody), &["forwarder", "no contract at", &text]).await;

    // A registry that trusts another forwarder, good in itself.
    let other = deploy(stage.chain.node.url(), dev_key(0)).await.unwrap();
    crosses(&fresh().var("REGISTRY_ADDRESS", other.registry), &["trust", "does not trust"]).await;

    let stranger = rename_forwarder(&stage.chain).await;
    let (good, printed) = check(&fresh().var("FORWARDER_ADDRESS", stranger)).await.unwrap();
    let cross =
        printed.lines().find(|line| line.starts_with("✗ domain")).unwrap_or_else(|| panic!("{printed}"));
    assert!(!good && cross.contains("EIP-712 domain"), "{cross}");

    let options = fresh();
    options.move_clock(3_600);
    crosses(&options, &["clock", "ahead of"]).await;
    options.move_clock(-3_600);
    crosses(&options, &["clock", "behind"]).await;

    // Somebody else sends with this key.
    stage.chain.node.set_automine(false).await.unwrap();
    let foreign = json!([{ "from": relayer().address(), "to": nobody }]);
    let _: Value = stage.chain.node.request("eth_sendTransaction", foreign).await.unwrap();
    crosses(&fresh(), &["pending", "somebody else uses this key"]).await;
    stage.chain.node.mine(1).await.unwrap();

    let poor = U256::from(999_999_999_999_999_u64);
    stage.chain.node.set_balance(relayer().address(), poor).await.unwrap();
    crosses(&fresh(), &["balance", "less than 0.001"]).await;
}

/// A forwarder whose EIP-712 name is another one: the real code with the name's hash replaced.
async fn rename_forwarder(chain: &Chain) -> Address {
    let code: Bytes =
        chain.node.request("eth_getCode", json!([chain.contracts.forwarder, "latest"])).await.unwrap();
    let name = hex::encode(keccak256("MinimalForwarder"));
    let code = hex::encode(&code);
    assert!(code.contains(&name), "the name's hash is in the code");
    let renamed = hex::decode(code.replace(&name, &hex::encode(keccak256("AnotherForwarder")))).unwrap();
    let address = agent("renamed forwarder").address();
    chain.node.set_code(address, &renamed.into()).await.unwrap();
    address
}

#[tokio::test]
async fn each_thing_wrong_around_the_process_has_its_line() {
    let stage = Stage::set().await;
    let (daemon, _client) = stage.daemon().await;
    let refusal = Daemon::refuse(&stage.options).await.unwrap();
    assert!(refusal.contains("✗ lock         another process ("), "{refusal}");
    daemon.kill();

    // The journal was written for another chain with the same id.
    let elsewhere = Chain::start(AnvilOptions {
        genesis_time: Some(e2e::anvil::wall_clock() - 30),
        ..Default::default()
    });
    let elsewhere = elsewhere.await.unwrap();
    crosses(&stage.options.clone().var("RPC_URL", elsewhere.node.url()), &["journal", "another chain"]).await;

    for (options, message) in [
        (stage.options.clone().without("RELAYER_KEY"), "no key: set one of RELAYER_KEY"),
        (stage.options.clone().var("RELAYER_KEY", "0x12"), "RELAYER_KEY does not hold a private key"),
        (stage.options.clone().without("REGISTRY_ADDRESS"), "--registry-address"),
        (stage.options.clone().var("DAILY_GAS_BUDGET", "lots"), "--daily-gas-budget"),
    ] {
        let (good, printed) = check(&options).await.unwrap();
        assert!(!good && printed.contains(message), "{message}:\n{printed}");
    }
}

#[tokio::test]
async fn a_key_with_delegated_code_is_refused() {
    let stage = Stage::set().await;
    // EIP-7702: the account's code names another account's.
    let code = format!("0xef0100{}", "11".repeat(20));
    let account = relayer().address();
    let _: Value = stage.chain.node.request("anvil_setCode", json!([account, code])).await.unwrap();
    crosses(&stage.options, &["delegation", "EIP-7702"]).await;
}

#[tokio::test]
async fn check_beside_a_running_daemon_says_who_runs_and_disturbs_nothing() {
    let stage = Stage::set().await;
    let (good, printed) = check(&stage.options).await.unwrap();
    assert!(good && printed.contains("is not there yet"), "{printed}");
    assert_eq!(std::fs::read_dir(stage.options.data_dir()).unwrap().count(), 0, "it left something behind");

    let (mut daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let holder = format!("another process ({}) is running", daemon.process().id());
    for _ in 0..5 {
        let (good, printed) = check(&stage.options).await.unwrap();
        assert!(good, "{printed}");
        assert!(printed.contains(&holder) && printed.contains("1 pending, all of them ours"), "{printed}");
    }
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_node_without_its_first_blocks_is_no_obstacle() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    let registration = stage.desk.registration(&agent("alice"), 0);
    client.relay(&registration).await.ok();
    daemon.kill();

    // What nodes say for a block that they have pruned; `earliest` is then the first that they still have.
    let block: Value =
        stage.chain.node.request("eth_getBlockByNumber", json!(["latest", false])).await.unwrap();
    for pruned in [
        Fault::Result(Value::Null),
        Fault::error(4444, "pruned history unavailable"),
        Fault::error(-32000, "header not available: history expired"),
    ] {
        stage.proxy.heal();
        stage.proxy.inject(Rule::on("eth_getBlockByNumber", pruned).containing("\"0x0\""));
        let earliest = Rule::on("eth_getBlockByNumber", Fault::Result(block.clone())).containing("earliest");
        stage.proxy.inject(earliest);
        let (good, printed) = check(&stage.options).await.unwrap();
        assert!(good, "{printed}");
    }
    let (_daemon, client) = stage.daemon().await;
    let attestation = stage.desk.request(&agent("alice"), 1, &attest(1));
    client.relay(&attestation).await.ok();
    stage.audit(&client, &[&registration, &attestation]).await;
}
