//! The program `kya` over a real chain, relayer and guarded service.
//!
//! 1. Six commands lead from nothing to a registered and attested agent with an admitted signed request.
//! 2. Killed at each step and repeated, `register`, `attest` and `terminate` do nothing twice, through a
//!    relayer and with gas. A transaction that the base fee outgrows is replaced, and done once.
//! 3. `register --at URL --then` leads from a refusal to an admission, with no more than the URL and a key.
//! 4. Keys in a keystore and behind a remote signer work like a key in a file.
//! 5. A relayer that lies or is gone ends no operation, and blocks none beyond its request's validity.
//! 6. Another server's answer is not taken for a read API's, and `attest` needs more than `--at`.
//! 7. `attest --watch` keeps an agent from lapsing over nine days and kills: once a period, never for one
//!    that only names the same liable wallet, and also with a machine's clock that is ahead.
//! 8. An empty variable counts as not set, and operations in flight are found from any directory.

use std::fs;

use alloy::hex;
use alloy::primitives::{Address, Bytes, U256, uint};
use alloy::signers::SignerSync as _;
use alloy::sol_types::SolEvent as _;
use e2e::anvil::{AnvilOptions, dev_account, dev_key, wall_clock};
use e2e::chain::Chain;
use e2e::daemon::{RelayerDaemon, write_private};
use e2e::fault::{FaultRule, NodeFault};
use e2e::guarded::GuardedService;
use e2e::hooks::{HookReply, Receiver};
use e2e::http;
use e2e::kya::{CommandOutcome, Kya};
use e2e::process::{PATIENCE, Process, eventually, free_port, output, wait_until};
use e2e::proxy::Proxy;
use e2e::python;
use e2e::seed;
use registry_core::eth::abi::IAgentRegistry::{
    ComplianceAttested, getAgentCall, isRegisteredAndCompliantCall, registerAgentCall,
};
use serde_json::{Value, json};
use tokio::process::Command;

const ETHER: U256 = uint!(1_000_000_000_000_000_000_U256);
const HOUR: u64 = 3_600;
/// The registry's grace period.
const GRACE: u64 = 7 * 24 * HOUR;

mod failures;

struct KyaFixture {
    chain: Chain,
    relayer: RelayerDaemon,
    user: Kya,
    registry: String,
}

impl KyaFixture {
    async fn start() -> Self {
        let chain = Chain::start(AnvilOptions::default()).await.unwrap();
        let key = seed::wallet("relayer");
        chain.node.set_balance(key.address(), ETHER).await.unwrap();
        let relayer = RelayerDaemon::start(&chain.daemon(&key)).await.unwrap();
        let registry = chain.contracts.registry.to_string();
        Self { chain, relayer, user: Kya::new().unwrap(), registry }
    }

    /// Adds to a command the registry, an RPC endpoint, and the relayer or `--direct`.
    fn at<'a>(&'a self, command: &[&'a str], way: Submission) -> Vec<&'a str> {
        let way = match way {
            Submission::Relayed => vec!["--relayer", self.relayer.url()],
            Submission::Direct => vec!["--direct"],
            Submission::Read => Vec::new(),
        };
        [command, &place(self.chain.node.url(), &self.registry), &way].concat()
    }

    async fn run(&self, command: &[&str], way: Submission) -> CommandOutcome {
        self.user.run(&self.at(command, way)).await.unwrap()
    }

    /// Runs a command that is killed at this point.
    async fn killed(&self, point: &str, command: &[&str], way: Submission) {
        let ended = self.user.dying_at(point, &self.at(command, way)).await.unwrap();
        assert_eq!(ended.status, None, "{point}: {ended:?}");
    }

    async fn key(&self, name: &str) -> Address {
        self.user.run(&["key", name]).await.unwrap().ok()["address"].as_str().unwrap().parse().unwrap()
    }

    /// Returns the times of the attestations for an agent, oldest first.
    async fn attestations(&self, agent: u64) -> Vec<u64> {
        attestations(&self.chain, agent).await
    }
}

async fn attestations(chain: &Chain, agent: u64) -> Vec<u64> {
    let filter = json!([{
        "fromBlock": "0x0", "address": chain.contracts.registry,
        "topics": [ComplianceAttested::SIGNATURE_HASH, format!("{agent:#066x}")],
    }]);
    let logs: Vec<Value> = chain.node.request("eth_getLogs", filter).await.unwrap();
    let time = |log: &Value| u64::from_str_radix(log["data"].as_str()?.trim_start_matches("0x"), 16).ok();
    logs.iter().map(|log| time(log).unwrap()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submission {
    /// Through the relayer.
    Relayed,
    /// With the key's own gas.
    Direct,
    /// Nothing is sent.
    Read,
}

/// Returns the options for a local chain's registry and its node.
fn place<'a>(rpc: &'a str, registry: &'a str) -> [&'a str; 6] {
    ["--rpc", rpc, "--registry", registry, "--chain", "31337"]
}

/// Returns the command that registers a key's own wallet.
fn register<'a>(key: &'a str, liable: &'a str) -> Vec<&'a str> {
    let documents = ["--constitution", "constitution.md", "--capabilities", "capabilities.json"];
    [&["register", "--key", key, "--liable", liable, "--scope", "Invoices 🥐"][..], &documents].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn six_commands_lead_from_nothing_to_an_admitted_agent_with_an_attested_liable_wallet() {
    let scene = KyaFixture::start().await;
    let guarded = GuardedService::start(0, &scene.chain).await.unwrap();
    let agent = scene.key("agent.key").await;
    let liable = scene.key("liable.key").await.to_string();
    let registered = scene.run(&register("agent.key", &liable), Submission::Relayed).await.ok();
    assert_eq!((&registered["agentId"], &registered["already"]), (&json!(1), &json!(false)), "{registered}");
    let attested =
        scene.run(&["attest", "1", "--key", "liable.key", "--yes"], Submission::Relayed).await.ok();
    assert_eq!(attested["attested"][0]["agentId"], "1", "{attested}");
    let status = scene.run(&["status", &agent.to_string()], Submission::Read).await.ok();
    assert_eq!((&status["basis"], &status["isCompliant"]), (&json!("attested"), &json!(true)), "{status}");
    let items = format!("{}/items", guarded.url());
    let signed = ["sign", "GET", &items, "--key", "agent.key", "--chain", "31337", "--send"];
    let answer = scene.user.run(&signed).await.unwrap().ok();
    assert!(answer["body"].as_str().unwrap().starts_with(&format!("served {agent}")), "{answer}");

    // A repeated registration is reported as done, and one that contradicts the record is refused.
    let again = scene.run(&register("agent.key", &liable), Submission::Relayed).await.ok();
    assert_eq!((&again["agentId"], &again["already"]), (&json!(1), &json!(true)), "{again}");
    // The finality of a finished registration is waited for, too.
    let final_one =
        [&register("agent.key", &liable)[..], &["--finality", "finalized", "--timeout", "1"]].concat();
    let early = scene.run(&final_one, Submission::Relayed).await.error(4);
    assert!(early.contains("not as final yet"), "{early}");
    scene.chain.node.mine(200).await.unwrap();
    scene.run(&final_one, Submission::Relayed).await.ok();
    let other = scene.run(&register("agent.key", &agent.to_string()), Submission::Relayed).await;
    assert!(other.error(1).contains("other values: the liable wallet"), "{other:?}");
    // The same values by another key are not its registration.
    let wallet = agent.to_string();
    let of_agent = [&register("liable.key", &liable)[..], &["--wallet", &wallet]].concat();
    let of_agent = scene.run(&of_agent, Submission::Relayed).await.error(1);
    assert!(of_agent.contains("other values: the creator."), "{of_agent}");
    let unsigned = scene.run(&["attest", "1"], Submission::Relayed).await;
    assert!(unsigned.error(2).contains("--key"), "{unsigned:?}");
    // A liable wallet is asked before it stands behind what others registered.
    let unasked = scene.run(&["attest", "1", "--key", "liable.key"], Submission::Relayed).await;
    assert_eq!(unasked.status, Some(5), "{unasked:?}");
    assert!(unasked.errors.contains("scope       \"Invoices 🥐\""), "{unasked:?}");
    // Without a relayer, and without gas.
    let poor = scene.run(&["attest", "1", "--key", "agent.key"], Submission::Direct).await;
    assert_eq!(poor.status, Some(3), "{poor:?}");
    // A key file has to be private.
    fs::write(scene.user.path("open.key"), "01".repeat(32)).unwrap();
    let open = scene.run(&["attest", "1", "--key", "open.key"], Submission::Relayed).await;
    assert!(open.errors.contains("chmod 600"), "{open:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_alone_leads_to_an_admission() {
    let scene = KyaFixture::start().await;
    // The read API's answer about a wallet that is not registered.
    let api = Receiver::start().await.unwrap();
    api.answer_by(|asked| match asked.path.starts_with("/api/v1/kya/") {
        true => HookReply::json(&json!({ "isRegistered": false })),
        false => HookReply { status: 404, ..HookReply::json(&json!({ "error": "Agent not found: 1" })) },
    });
    let guarded = GuardedService::telling(0, &scene.chain, scene.relayer.url(), api.url()).await.unwrap();
    let items = format!("{}/items", guarded.url());
    let refused = http::client(PATIENCE).get(&items).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["discovery"], "/.well-known/agent-registry", "{refused}");
    let agent = scene.key("agent.key").await;
    let liable = scene.key("liable.key").await.to_string();
    // A service for another registry than the requested one is refused before anything is sent.
    let command = register("agent.key", &liable);
    let other = [&command[..], &["--at", &items, "--registry", &liable]].concat();
    let other = scene.user.run(&other).await.unwrap().error(1);
    assert!(other.contains("the service is for the registry"), "{other}");
    let then = [&command[..], &["--at", &items, "--then"]].concat();
    let registered = scene.user.run(&then).await.unwrap().ok();
    assert_eq!(registered["answer"]["status"], 200, "{registered}");
    let served = registered["answer"]["body"].as_str().unwrap();
    assert!(served.starts_with(&format!("served {agent}")), "{registered}");
    assert_eq!(scene.chain.total().await.unwrap(), 1);
    // `attest` has to read the record from another source than the service.
    let alone = ["attest", "1", "--key", "agent.key", "--at", &items];
    let alone = scene.user.run(&alone).await.unwrap().error(2);
    assert!(alone.contains("give --rpc"), "{alone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keystore_and_a_remote_signer_do_what_a_key_in_a_file_does() {
    let scene = KyaFixture::start().await;
    let guarded = GuardedService::start(0, &scene.chain).await.unwrap();
    // anvil signs typed data, messages and transactions for its own accounts.
    let remote = dev_account(1).to_string();
    let signer = ["--remote-signer", scene.chain.node.url(), "--signer-address", &remote];
    let liable = dev_key(2);
    let python = python::programs("signers").await.unwrap().join("python");
    let script = "import json, sys; from eth_account import Account as A; print(json.dumps(A.encrypt(*sys.argv[1:], iterations=2)))";
    let mut python = Command::new(python);
    python.args(["-c", script, &hex::encode_prefixed(liable.to_bytes()), "pässword"]);
    let keystore = String::from_utf8(output(&mut python).await.unwrap()).unwrap();
    write_private(&scene.user.path("liable.json"), &keystore);
    write_private(&scene.user.path("password"), "pässword\n");
    let keystore = ["--keystore", "liable.json", "--password-file", "password"];

    let person = liable.address().to_string();
    let command = [&register("", &person)[..1], &register("", &person)[3..], &signer].concat();
    let registered = scene.run(&command, Submission::Relayed).await.ok();
    assert_eq!(registered["agentId"], 1, "{registered}");
    let attested =
        scene.run(&[&["attest", "1", "--yes"][..], &keystore].concat(), Submission::Relayed).await.ok();
    assert_eq!(attested["attested"][0]["agentId"], "1", "{attested}");
    let direct = scene.run(&[&["attest", "1"][..], &signer].concat(), Submission::Direct).await.ok();
    assert_eq!(direct["attested"][0]["agentId"], "1", "{direct}");
    let items = format!("{}/items", guarded.url());
    let sign = [&["sign", "GET", &items, "--chain", "31337", "--send"][..], &signer].concat();
    let answer = scene.user.run(&sign).await.unwrap().ok();
    assert!(answer["body"].as_str().unwrap().starts_with(&format!("served {remote}")), "{answer}");

    // A signature by another account is not sent.
    let answers = Receiver::start().await.unwrap();
    let other = dev_key(3).sign_message_sync(b"anything").unwrap();
    let result = json!({ "jsonrpc": "2.0", "id": 1, "result": Bytes::from(other.as_bytes()) });
    answers.answer_by(move |_| HookReply::json(&result));
    let by_other = ["attest", "1", "--remote-signer", answers.url(), "--signer-address", &remote];
    let refused = scene.run(&by_other, Submission::Relayed).await.error(1);
    assert!(refused.contains("did not sign this as"), "{refused}");
    write_private(&scene.user.path("password"), "another");
    let closed =
        scene.run(&[&["attest", "1", "--yes"][..], &keystore].concat(), Submission::Relayed).await.error(1);
    assert!(closed.contains("password"), "{closed}");
}

/// A watcher of agent 1 with a crash point, and the URL of its metrics.
struct Watcher {
    process: Process,
    metrics: String,
}

impl Watcher {
    async fn start(scene: &KyaFixture, point: &str) -> Self {
        let metrics = format!("127.0.0.1:{}", free_port().unwrap());
        let command =
            ["attest", "1", "--watch", "--every", "1", "--yes", "--key", "liable.key", "--metrics", &metrics];
        let process = scene.user.spawn(point, &scene.at(&command, Submission::Relayed)).start().unwrap();
        Self { process, metrics: format!("http://{metrics}/metrics") }
    }

    /// Waits until nothing is due at this time of the chain: `true`, or `false` if the watcher has died.
    async fn caught_up(&mut self, time: u64) -> bool {
        let client = http::client(PATIENCE);
        let url = self.metrics.clone();
        let process = &mut self.process;
        let caught = eventually("the watcher to catch up", PATIENCE, async || {
            if process.exit_status().unwrap().is_some() {
                return Some(false);
            }
            let text = client.get(&url).send().await.ok()?.text().await.ok()?;
            let due =
                text.lines().find_map(|line| line.strip_prefix("kya_attestation_due_seconds{agent=\"1\"} "));
            (due?.parse::<u64>().ok()? > time).then_some(true)
        });
        let log = |error| format!("{error:#}");
        caught.await.map_err(log).unwrap_or_else(|error| panic!("{error}\n{}", self.process.log()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_agent_never_lapses_in_nine_days_with_kills_and_an_impostor_is_not_attested() {
    let scene = KyaFixture::start().await;
    let agent = scene.key("agent.key").await;
    let liable = scene.key("liable.key").await;
    scene.run(&register("agent.key", &liable.to_string()), Submission::Relayed).await.ok();
    let impostor = seed::registration_call(2, dev_account(3), "mine, too", 0);
    let impostor = registerAgentCall { haftungsperson: liable, ..impostor };
    scene.chain.send(dev_account(2), impostor).await.unwrap();

    let mut points = ["before_send", "after_send", "before_report", ""].into_iter();
    let mut watcher = Watcher::start(&scene, points.next().unwrap()).await;
    let began = scene.chain.node.time().await.unwrap();
    let mut time = began;
    while time < began + 9 * 24 * HOUR {
        scene.chain.node.advance(3 * HOUR).await.unwrap();
        time = scene.chain.node.time().await.unwrap();
        while !watcher.caught_up(time).await {
            let point = points.next().expect("it dies once at each point");
            watcher = Watcher::start(&scene, point).await;
        }
        let compliant = isRegisteredAndCompliantCall { agentWallet: agent };
        let is_compliant = scene.chain.read(scene.chain.contracts.registry, compliant).await.unwrap();
        assert!(is_compliant, "lapsed after {} hours\n{}", (time - began) / HOUR, watcher.process.log());
    }
    let attested = scene.attestations(1).await;
    // The liable wallet was only named, and attests at once for the first time.
    assert!(attested.len() >= 2 && attested[0] < began + 4 * HOUR, "{attested:?}");
    for pair in attested.windows(2) {
        assert!(pair[1] + HOUR >= pair[0] + 2 * GRACE / 3, "once in each period: {attested:?}");
    }
    assert!(scene.attestations(2).await.is_empty(), "the impostor is not attested");
    let record = getAgentCall { agentId: U256::from(2) };
    let record = scene.chain.read(scene.chain.contracts.registry, record).await.unwrap();
    assert_eq!(record.lastAttestation, record.registeredAt);
    let status = scene.run(&["status", "2"], Submission::Read).await.with(1);
    assert_ne!(status["basis"], "attested");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_with_a_clock_that_is_ahead_by_weeks_attests_once() {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 30 * 24 * HOUR)).await.unwrap();
    let (user, node) = (Kya::new().unwrap(), Proxy::start(chain.node.url()).await.unwrap());
    let registry = chain.contracts.registry.to_string();
    let direct = [&place(node.url(), &registry)[..], &["--direct"]].concat();
    let wallet = failures::address_of_key(&user, "agent.key").await;
    chain.node.set_balance(wallet.parse().unwrap(), ETHER).await.unwrap();
    user.run(&[&register("agent.key", &wallet)[..], &direct].concat()).await.unwrap().ok();
    let watch = ["attest", "1", "--watch", "--every", "1", "--key", "agent.key"];
    // The first round requests blocks before it signs, for time and base fee, and after the receipt. Then it
    // requests the attestation's block for its time, and the first watcher gets no answer.
    node.inject(FaultRule::on("eth_getBlockByNumber", NodeFault::status(503)).after(4).once());
    for starts in 1..=2 {
        let mut watcher = user.spawn("", &[&watch[..], &direct].concat()).start().unwrap();
        watcher.announced("agent 1: attested", PATIENCE).await.unwrap();
        // A round reads the grace period and the record.
        node.reset();
        wait_until("five rounds later", PATIENCE, async || node.calls("eth_call") > 10).await;
        assert_eq!(attestations(&chain, 1).await.len(), starts, "{}", watcher.log());
    }
}
