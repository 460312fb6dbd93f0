//! `relayer-daemon check`: one screen of ticks, or the one line that names the fault; `serve` refuses to
//! start with it.

use alloy::primitives::{Bytes, keccak256};
use e2e::deploy::deploy;

use crate::prelude::*;

/// Checks that `check` finds exactly one fault, in a line with these words, and that `serve` refuses as well.
async fn crosses(options: &DaemonOptions, words: &[&str]) {
    let (is_good, printed) = options.check().await.unwrap();
    let crosses: Vec<&str> = printed.lines().filter(|line| line.starts_with('✗')).collect();
    assert!(!is_good && crosses.len() == 1, "{words:?}:\n{printed}");
    assert!(words.iter().all(|word| crosses[0].contains(word)), "{words:?}:\n{printed}");
    let refusal = RelayerDaemon::refuse(options).await.unwrap();
    assert!(words.iter().all(|word| refusal.contains(word)), "{refusal}");
}

async fn good(options: &DaemonOptions) -> String {
    let (is_good, printed) = options.check().await.unwrap();
    assert!(is_good && printed.lines().all(|line| line.starts_with('✓')), "{printed}");
    printed
}

#[tokio::test]
async fn a_good_chain_has_ticks_only_before_beside_and_after_a_daemon() {
    let stage = RelayerFixture::set().await;
    let printed = good(&stage.options).await;
    let names =
        "key rpc chain registry forwarder domain trust balance clock no-op delegation lock journal pending";
    for name in names.split(' ') {
        let of_name = printed.lines().filter(|line| line[3..].trim_start().starts_with(name));
        assert_eq!(of_name.count(), 1, "{name}:\n{printed}");
    }
    assert!(printed.contains(&relayer().address().to_checksum(None)), "{printed}");
    assert!(printed.contains("is not there yet"), "{printed}");
    assert_eq!(std::fs::read_dir(stage.options.data_dir()).unwrap().count(), 0, "it left something behind");

    let (mut daemon, client) = stage.daemon().await;
    let posted = stage.leave_pending(&client, &stage.registration("alice")).await;
    let holder = format!("another process ({}) is running", daemon.process().id());
    let printed = good(&stage.options).await;
    assert!(printed.contains(&holder) && printed.contains("1 pending, all of them ours"), "{printed}");
    stage.mine().await;
    answer(posted).await.ok();
    daemon.kill();

    // Answers of nodes about a pruned block; `earliest` is then the first block that they still have.
    let block = stage.chain.node.block(stage.chain.node.height().await.unwrap()).await.unwrap();
    for pruned in [
        NodeFault::Result(Value::Null),
        NodeFault::error(4444, "pruned history unavailable"),
        NodeFault::error(-32000, "header not available: history expired"),
    ] {
        stage.proxy.heal();
        stage.proxy.inject(FaultRule::on("eth_getBlockByNumber", pruned).containing("\"0x0\""));
        let earliest =
            FaultRule::on("eth_getBlockByNumber", NodeFault::Result(block.clone())).containing("earliest");
        stage.proxy.inject(earliest);
        good(&stage.options).await;
    }
    let (_daemon, client) = stage.daemon().await;
    stage.register(&client, "bob").await;
    stage.audit(&client).await;
}

#[tokio::test]
async fn each_thing_wrong_has_its_line() {
    let stage = RelayerFixture::set().await;
    let fresh = || stage.options.clone().with_empty_journal();
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    let nobody = agent("nobody").address().to_checksum(None);
    let no_contract = format!("no contract at {nobody}");
    // A valid registry that trusts another forwarder.
    let other = deploy(stage.chain.node.url(), dev_key(0)).await.unwrap().registry.to_string();
    let renamed = rename_forwarder(&stage.chain).await.to_string();
    for (name, value, line, words) in [
        ("CHAIN_ID", "84532", "chain id", "31337, not 84532"),
        ("RPC_URL", &dead, "rpc", "no RPC endpoint answers"),
        ("REGISTRY_ADDRESS", &nobody, "registry", &no_contract),
        ("FORWARDER_ADDRESS", &nobody, "forwarder", &no_contract),
        ("REGISTRY_ADDRESS", &other, "trust", "does not trust"),
    ] as [(&str, &str, &str, &str); 5]
    {
        crosses(&fresh().var(name, value), &[line, words]).await;
    }
    let (is_good, printed) = fresh().var("FORWARDER_ADDRESS", renamed).check().await.unwrap();
    let line = printed.lines().find(|line| line.starts_with("✗ domain")).unwrap_or_default();
    assert!(!is_good && line.contains("EIP-712 domain"), "{printed}");
    for (seconds, side) in [(3_600, "ahead of"), (-3_600, "behind")] {
        let options = fresh();
        options.move_clock(seconds);
        crosses(&options, &["clock", side]).await;
    }

    // The journal was written for another chain with the same id.
    drop(stage.daemon().await);
    let elsewhere = AnvilOptions { genesis_time: Some(wall_clock() - 30), ..AnvilOptions::default() };
    let elsewhere = Chain::start(elsewhere).await.unwrap();
    crosses(&stage.options.clone().var("RPC_URL", elsewhere.node.url()), &["journal", "another chain"]).await;
    let (is_good, printed) = fresh().var("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://a/").check().await.unwrap();
    assert!(!is_good && printed.contains("✗ telemetry"), "{printed}");

    // Another program sends with this key.
    let account = relayer().address();
    stage.chain.node.set_automine(false).await.unwrap();
    let foreign = json!([{ "from": account, "to": nobody }]);
    stage.chain.node.command("eth_sendTransaction", foreign).await.unwrap();
    let options = fresh();
    crosses(&options, &["pending", "another program uses this key"]).await;
    assert_eq!(std::fs::read_dir(options.data_dir()).unwrap().count(), 0, "it left something behind");
    stage.mine().await;
    // EIP-7702: the account delegates to another account's code.
    let code: Bytes = hex::decode(format!("ef0100{}", "11".repeat(20))).unwrap().into();
    stage.chain.node.set_code(account, &code).await.unwrap();
    crosses(&fresh(), &["delegation", "EIP-7702"]).await;
    stage.chain.node.set_code(account, &Bytes::new()).await.unwrap();
    let poor = U256::from(999_999_999_999_999_u64);
    stage.chain.node.set_balance(account, poor).await.unwrap();
    crosses(&fresh(), &["balance", "less than 0.001"]).await;
}

/// Installs a forwarder with another EIP-712 name: the real code with the name's hash replaced.
async fn rename_forwarder(chain: &Chain) -> Address {
    let code = json!([chain.contracts.forwarder, "latest"]);
    let code: Bytes = chain.node.request("eth_getCode", code).await.unwrap();
    let [name, other] = ["MinimalForwarder", "AnotherForwarder"].map(|name| hex::encode(keccak256(name)));
    let renamed = hex::encode(&code).replace(&name, &other);
    assert_ne!(renamed, hex::encode(&code), "the name's hash is in the code");
    let address = agent("renamed forwarder").address();
    chain.node.set_code(address, &hex::decode(renamed).unwrap().into()).await.unwrap();
    address
}
