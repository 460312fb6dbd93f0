//! `relayer-daemon ctl`: orders through the socket of a single daemon, and through the store of a fleet.
//! Orders in the store are tested in `relayer-daemon/tests/store/control.rs`.

use std::os::unix::fs::PermissionsExt as _;

use e2e::postgres::Postgres;
use e2e::seed::wallet;

use crate::fleet::Fleet;
use crate::policy::{with_policy, write};
use crate::prelude::*;

/// Time within which another account executes the relays of an abandoned one.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(60);
const PAUSED: &str = "Relayer takes no requests at present. Please try again later or use direct mode.";
const CANCELLED: &str = "The operator has cancelled this relay. Nothing was executed.";

/// An operator, who gives orders with the settings of a daemon.
struct Operator(DaemonOptions);

impl Operator {
    async fn says(&self, order: &str, status: i32, words: &str) -> String {
        let (code, printed) = self.0.ctl(&order.split(' ').collect::<Vec<_>>()).await.unwrap();
        assert!(code == status && printed.contains(words), "{order}: {code}, {printed}");
        printed
    }

    /// Gives an order twice; the second answer says that it was done already.
    async fn twice(&self, order: &str, first: &str) {
        self.says(order, 0, first).await;
        self.says(order, 0, "already").await;
    }
}

fn account_states(status: &Value) -> Vec<&str> {
    status["accounts"].as_array().unwrap().iter().filter_map(|account| account["state"].as_str()).collect()
}

async fn until_open(client: &Client) {
    wait_until("open", PATIENCE, async || client.get("/readyz").await.ok()["refusing"].is_null()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_order_to_a_daemon_is_carried_out_once_told_and_journalled() {
    let (stage, _) = with_policy().await;
    let stage = stage.keys(2);
    write(&stage.options, "deny = []");
    let (_daemon, client) = stage.daemon().await;
    let ctl = Operator(stage.options.clone());
    let socket = format!("control-{}.sock", stage.chain.contracts.forwarder);
    let mode = fs::metadata(stage.options.data_dir().join(socket)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let [sent, executed] = ["sent", "executed"].map(|name| stage.registration(name));
    stage.register(&client, "executed").await;
    let posted = stage.leave_pending(&client, &sent).await;
    ctl.twice("pause", "intake is paused").await;
    until_refusing(&client, "INTAKE_PAUSED").await;
    let late = client.relay(&stage.registration("late")).await;
    assert!(late.refused(503, "INTAKE_PAUSED", PAUSED).number("retry-after") > 0);
    let status = client.get("/status").await.ok();
    assert_eq!(status["operator"]["intake"], "paused");
    assert_eq!(status["operator"]["lastOrder"]["command"], "pause");
    assert_eq!(client.metric("relayer_intake_paused").await, 1.0);
    ctl.twice("resume", "intake is open").await;
    until_open(&client).await;

    // The signer's second request waits for the first, and is not sent.
    let behind = stage.desk.request(&agent("sent"), 1, &attest(1));
    let waiting = post(&client, &behind);
    wait_until("accepted", PATIENCE, async || client.state(&behind).await.status == 200).await;
    ctl.twice(&format!("cancel {}", behind.id), "nothing of it was sent").await;
    answer(waiting).await.refused(403, "CANCELLED", CANCELLED);
    client.relay(&behind).await.refused(403, "CANCELLED", CANCELLED);
    ctl.twice(&format!("cancel {}", sent.id), "a no-op is to take its nonce").await;
    stage.until_sent(3).await;
    stage.mine().await;
    answer(posted).await.refused(403, "CANCELLED", CANCELLED);
    assert_eq!(state(&client, &sent).await, "dropped");
    ctl.says(&format!("cancel {}", executed.id), 1, "is executed already").await;
    ctl.says(&format!("cancel {}", B256::ZERO), 1, "is not in the journal").await;
    ctl.says("cancel 0x12", 2, "64 hexadecimal digits").await;

    let [first, second] = [stage.accounts[0], stage.accounts[1]];
    ctl.twice(&format!("cordon {first}"), "gets no more relays").await;
    wait_until("cordoned", PATIENCE, async || {
        account_states(&client.get("/status").await.ok()) == ["cordoned", "ready"]
    })
    .await;
    let before = stage.sent_by_each().await;
    for name in ["a", "b", "c"] {
        stage.register(&client, name).await;
    }
    assert_eq!(stage.sent_by_each().await, [before[0], before[1] + 3], "sent by the other account");
    ctl.says(&format!("cordon {}", wallet("nobody").address()), 1, "is no account of this relayer").await;
    ctl.says(&format!("abandon {second}"), 1, "a daemon holds").await;
    ctl.twice(&format!("uncordon {first}"), "gets relays again").await;

    let hash = async || client.get("/status").await.ok()["policyHash"].clone();
    let old = hash().await;
    write(&stage.options, &format!("deny = [\"{}\"]", agent("mallory").address()));
    ctl.twice("reload", "policy ").await;
    let new = hash().await;
    assert_ne!(old, new);
    write(&stage.options, "deny = [\"0x12\"]");
    ctl.says("reload", 1, "deny: \"0x12\" is no address").await;
    assert_eq!(hash().await, new, "the policy before stays");
    client.relay(&stage.registration("mallory")).await.refused(
        403,
        "SIGNER_DENIED",
        "This signer is not sponsored by this relayer",
    );

    let keys = ctl.says("--json keys", 0, &first.to_string()).await;
    let keys = keys.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap();
    assert_eq!(keys["details"]["accounts"].as_array().unwrap().len(), 2);
    assert_eq!(keys["details"]["daemons"][0]["policy"], new);
    let csv = ctl.says("export --since 2026-01-01", 0, "relay,key,signer").await;
    let line = |id: &B256| csv.lines().find(|line| line.starts_with(&id.to_string())).unwrap().to_owned();
    assert!(line(&executed.id).ends_with(",executed,") && line(&sent.id).ends_with(",dropped,CANCELLED"));
    ctl.says("export --format jsonl", 0, r#""outcome":"executed""#).await;
    ctl.says("export --since tomorrow", 2, "unix seconds").await;
    let log = ctl.says("log", 0, "(uid ").await;
    for line in [
        "pause  already",
        "resume  done",
        "  replacing",
        "  cancelled",
        "cordon ",
        "reload  number",
        "keys  done",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_go_by_the_journal_where_the_path_of_the_data_directory_is_too_long_for_a_socket() {
    let stage = RelayerFixture::set().await;
    let data = stage.options.data_dir().join("d".repeat(70));
    fs::create_dir(&data).unwrap();
    let stage = stage.var("RELAYER_DATA_DIR", data.display());
    let (mut daemon, client) = stage.daemon().await;
    daemon.logged(&["no control socket"]).await.unwrap();
    let ctl = Operator(stage.options.clone());
    ctl.twice("pause", "intake is paused").await;
    until_refusing(&client, "INTAKE_PAUSED").await;
    ctl.twice("resume", "intake is open").await;
    until_open(&client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_in_force_succeeds_though_nothing_reads_the_answer() {
    let stage = RelayerFixture::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
    for order in ["pause", "resume", "log", "export"] {
        let (code, told) = stage.options.ctl_unread(&[order]).await.unwrap();
        assert!(code == 0 && !told.contains("panicked"), "{order}: {code}, {told}");
    }
    Operator(stage.options.clone()).says("log", 0, "pause  done").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_a_fleet_reaches_each_daemon_also_one_that_is_down() {
    let (fleet, _) = Fleet::on(with_policy().await.0, 2, 2, Duration::ZERO);
    write(&fleet.stage.options, "deny = []");
    let (mut daemons, clients) = fleet.start().await;
    // This data directory has no socket.
    let ctl = Operator(fleet.options[0].clone().with_empty_journal());
    let executed = fleet.stage.registration("executed");
    fleet.stage.relay(&clients[0], &executed).await;

    daemons.remove(1).kill();
    ctl.twice("pause", "intake is paused").await;
    until_refusing(&clients[0], "INTAKE_PAUSED").await;
    daemons.push(RelayerDaemon::start(&fleet.options[1]).await.unwrap());
    for client in &clients {
        client.relay(&fleet.stage.registration("late")).await.refused(503, "INTAKE_PAUSED", PAUSED);
    }
    ctl.twice("resume", "intake is open").await;
    for client in &clients {
        until_open(client).await;
    }

    let [first, second] = [fleet.stage.accounts[0], fleet.stage.accounts[1]];
    ctl.twice(&format!("cordon {first}"), "gets no more relays").await;
    for client in &clients {
        let is_cordoned = async || account_states(&client.get("/status").await.ok())[0] == "cordoned";
        wait_until("cordoned", PATIENCE, is_cordoned).await;
    }
    ctl.twice(&format!("cordon {second}"), "gets no more relays").await;
    for client in &clients {
        until_refusing(client, "INTAKE_PAUSED").await;
        client.relay(&fleet.stage.registration("late")).await.refused(503, "INTAKE_PAUSED", PAUSED);
    }
    for account in [first, second] {
        ctl.twice(&format!("uncordon {account}"), "gets relays again").await;
    }
    for client in &clients {
        until_open(client).await;
    }
    let [sent, behind] =
        [fleet.stage.registration("sent"), fleet.stage.desk.request(&agent("sent"), 1, &attest(1))];
    let posted = fleet.stage.leave_pending(&clients[0], &sent).await;
    let waiting = post(&clients[1], &behind);
    wait_until("accepted", PATIENCE, async || clients[1].state(&behind).await.status == 200).await;
    ctl.twice(&format!("cancel {}", behind.id), "nothing of it was sent").await;
    answer(waiting).await.refused(403, "CANCELLED", CANCELLED);
    ctl.twice(&format!("cancel {}", sent.id), "a no-op is to take its nonce").await;
    let replaced = "SELECT count(*) FROM s0.transactions WHERE purpose = 'cancelled'";
    wait_until("replaced", PATIENCE, async || fleet.postgres.sql(replaced) != "0").await;
    fleet.stage.mine().await;
    answer(posted).await.refused(403, "CANCELLED", CANCELLED);

    write(&fleet.stage.options, &format!("deny = [\"{}\"]", agent("mallory").address()));
    ctl.twice("reload", "policy ").await;
    let hashes =
        join_all(clients.iter().map(async |client| client.get("/status").await.ok()["policyHash"].clone()));
    let hashes = hashes.await;
    assert_eq!(hashes[0], hashes[1]);
    let keys = ctl.says("keys", 0, hashes[0].as_str().unwrap()).await;
    assert_eq!(keys.matches("\ndaemon ").count(), 2, "{keys}");
    let other = fleet.options[0].clone().var("DAILY_GAS_BUDGET", 7);
    let printed = other.check().await.unwrap().1;
    assert_eq!(printed.matches("has another settings").count(), 2, "{printed}");
    assert!(!printed.contains("has another policy"), "{printed}");
    ctl.says("export", 0, &executed.id.to_string()).await;
    let log = ctl.says("log", 0, "pause  already").await;
    assert!(
        log.contains("  replacing") && log.contains("  cancelled") && log.contains("export 0  done"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_to_a_database_without_this_relayers_journal_fails_and_changes_nothing() {
    let fleet = Fleet::set(1, 1).await;
    let _daemons = fleet.start().await;
    // This data directory has no socket.
    let options = fleet.options[0].clone().with_empty_journal();
    let elsewhere = options.clone().var("STORE_URL", fleet.postgres.schema());
    let none = "there is no journal in the database of STORE_URL";
    for order in ["pause", "keys", "export", "log"] {
        Operator(elsewhere.clone()).says(order, 1, none).await;
    }
    let printed = elsewhere.replay(&["--api-key", "acme"]).await.unwrap_err().to_string();
    assert!(printed.contains(none), "{printed}");
    assert_eq!(fleet.postgres.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 's1'"), "0");

    let other = Operator(options.clone().var("FORWARDER_ADDRESS", Address::repeat_byte(7)));
    other.says("pause", 1, "STORE_URL belongs to forwarder").await;
    Operator(options.var("CHAIN_ID", 7)).says("pause", 1, "STORE_URL belongs to forwarder").await;
    assert_eq!(fleet.postgres.sql("SELECT count(*) FROM s0.control"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn relays_of_a_stolen_key_are_executed_by_another_within_a_minute_also_while_a_daemon_holds_it() {
    let fleet = Fleet::set(2, 2).await;
    let (_daemons, clients) = fleet.start().await;
    let requests = fleet.stage.registrations("stolen", 4);
    fleet.stage.leave_all_pending(&clients[0], &requests).await;
    let (stolen, node) = (fleet.stage.accounts[0], &fleet.stage.chain.node);
    let ctl = Operator(fleet.options[0].clone().with_empty_journal());
    ctl.says(&format!("abandon {stolen}"), 1, "cordon it first").await;
    // The thief has replaced the relayer's transactions and taken the funds.
    node.command("anvil_dropAllTransactions", json!([])).await.unwrap();
    node.set_balance(stolen, U256::ZERO).await.unwrap();
    node.set_automine(true).await.unwrap();
    let began = Instant::now();
    ctl.twice(&format!("cordon {stolen}"), "gets no more relays").await;
    ctl.twice(&format!("abandon {stolen}"), "nonces are given up").await;
    until_executed(&clients[0], &requests).await;
    assert!(began.elapsed() < TAKEN_OVER_WITHIN, "{:?}", began.elapsed());
    fleet.audit(&clients[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_moves_to_postgres_with_its_budget_and_what_it_has_in_flight() {
    let (stage, postgres) = (RelayerFixture::set().await, Postgres::start(&[]));
    let url = postgres.schema();
    let (daemon, client) = stage.daemon().await;
    stage.register(&client, "before").await;
    let request = stage.registration("moved");
    let posted = stage.leave_pending(&client, &request).await;
    let migrate = async || stage.options.migrate(&url).await.unwrap();
    let (is_good, printed) = migrate().await;
    assert!(!is_good && printed.contains("stop the daemon first"), "{printed}");
    daemon.kill();
    assert!(posted.await.unwrap().is_err());
    for words in ["migrated: 2 relays", "already: the journal was migrated"] {
        let (is_good, printed) = migrate().await;
        assert!(is_good && printed.contains(words), "{printed}");
    }
    let (_daemon, client) = start(&stage.options.clone().var("STORE_URL", &url)).await;
    stage.mine().await;
    until_executed(&client, &[request]).await;
    stage.audit(&client).await;
}
