//! Agents of a liable person: any stranger can name one.
//!
//! 1. A stranger registers an agent that names Acme as liable, and attests: it is refused where `liable.allow` names
//!    Acme's wallet or `liable.domains` its domain. Agents that Acme registered, attested for or accepted are admitted,
//!    with the basis in header, token and record.
//! 2. What Acme's file withdraws or disowns is refused, whatever else is known of it, and so are all agents once the
//!    file has lost the wallet.
//! 3. Requests with acceptances that do not hold are refused, and cause one read of the liable wallet's code.
//! 4. `kya accept` and `kya domain` sign what a gate takes; `check --explain` tells what each rule finds.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use alloy::hex;
use alloy::primitives::{Address, B256, U256};
use e2e::anvil::{CHAIN_ID, dev_account, dev_key, wall_clock};
use e2e::chain::Chain;
use e2e::gate::{Gate, ORIGIN, kya};
use e2e::hooks::{Receiver, Reply};
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, registration_call, wallet};
use e2e::signed_requests::RawAnswer;
use e2e::tls::{Authority, TlsFront};
use e2e::verdict_tokens::{key_file, key_set, new_key, signing};
use e2e::verifier;
use registry_core::eth::abi::IAgentRegistry::{attestComplianceCall, registerAgentCall};
use registry_core::liability::Acceptance;
use registry_core::token::{Jws, KeySet};
use serde_json::{Value, json};

use crate::{ISSUER, WAIT, ask, assert_refused, get};

const ACME: usize = 1;
const STRANGER: usize = 2;

/// The agents that name Acme as liable, in the order of their ids, and who registers them.
const AGENTS: [(&str, usize); 7] = [
    ("impostor", STRANGER),
    ("registered", ACME),
    ("attested", STRANGER),
    ("header", STRANGER),
    ("listed", STRANGER),
    ("withdrawn", STRANGER),
    ("disowned", STRANGER),
];

fn id(agent: &str) -> u64 {
    let place = AGENTS.iter().position(|(name, _)| *name == agent).unwrap();
    2 + u64::try_from(place).unwrap()
}

async fn chain() -> Chain {
    let chain = chain_of_one().await.unwrap();
    for (name, creator) in AGENTS {
        let call = registration_call(id(name), wallet(name).address(), "guarded", 0);
        let call = registerAgentCall { haftungsperson: dev_account(ACME), ..call };
        chain.send(dev_account(creator), call).await.unwrap();
    }
    for (by, agent) in [(STRANGER, "impostor"), (ACME, "attested"), (ACME, "disowned")] {
        let call = attestComplianceCall { agentId: U256::from(id(agent)) };
        chain.send(dev_account(by), call).await.unwrap();
    }
    chain
}

/// Runs `kya` with Acme's key.
async fn signed(directory: &Path, chain: &Chain, command: &[&str]) -> String {
    let file = directory.join("acme.key");
    fs::write(&file, hex::encode(dev_key(ACME).to_bytes())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (registry, chain_id) = (chain.contracts.registry.to_string(), CHAIN_ID.to_string());
    let place = ["--registry", &registry, "--chain", &chain_id, "--key", file.to_str().unwrap()];
    kya(&[command, &place].concat()).await.unwrap()
}

/// An acceptance of an agent, by `kya accept`.
async fn accepted(directory: &Path, chain: &Chain, agent: &str) -> Acceptance {
    let wallet = wallet(agent).address().to_string();
    let command = ["accept", &wallet, "--yes", "--rpc", chain.node.url()];
    let document = signed(directory, chain, &command).await;
    Acceptance::from_json(&document).unwrap()
}

/// The digest of an acceptance of one of the agents.
fn digest(acceptance: &Acceptance) -> B256 {
    acceptance.digest("guarded")
}

/// A gate under this policy that signs verdicts and records admissions in this directory.
async fn gate(chain: &Chain, directory: &Path, policy: &str) -> (Gate, String) {
    gate_at(chain, chain.node.url(), directory, policy).await
}

async fn gate_at(chain: &Chain, rpc: &str, directory: &Path, policy: &str) -> (Gate, String) {
    let registry = chain.contracts.registry.to_string();
    let text = Kind::Envoy.gate(ORIGIN, CHAIN_ID, rpc, &registry).unwrap();
    let text = text.replace("[kya]", "[kya]\ncache-seconds = 3600");
    let keys = directory.join("keys.json");
    key_file(&keys, &key_set(&[&new_key().await.unwrap()])).unwrap();
    let records = directory.join("admissions.jsonl").display().to_string();
    let text = format!("{text}{policy}{}\n[records]\nfile = \"{records}\"\n", signing(ISSUER, &keys));
    (Gate::start(&text).await.unwrap(), text)
}

async fn asked(gate: &Gate, agent: &str, acceptance: Option<&Acceptance>) -> RawAnswer {
    let request = get("/items");
    let request = match acceptance {
        Some(acceptance) => request.header("liability-acceptance", &acceptance.to_header()),
        None => request,
    };
    ask(gate, &request.sign(&wallet(agent), CHAIN_ID)).await
}

/// Asserts that an agent is admitted, with this basis in header and token.
fn assert_admitted(answer: &RawAnswer, basis: &str) {
    assert_eq!((answer.status, answer.header("kya-liable-basis")), (200, vec![basis]), "{answer:?}");
    let claims = Jws::parse(answer.header("kya-verdict")[0]).unwrap().claims;
    assert_eq!(claims.liability.unwrap().basis.name(), basis, "{answer:?}");
}

/// Asserts that the liable wallet of an agent is not proved, with this problem of its acceptance.
fn assert_not_proved(answer: &RawAnswer, problem: Option<&str>) {
    assert_refused(answer, 403, "principal_not_allowed");
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&body["type"], &body["problem"]), (&json!("liable_not_proved"), &json!(problem)), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impostor_is_refused_and_the_liable_persons_own_agents_are_admitted_by_each_basis() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let directory = directory.path();
    // The file of an earlier release: it names the wallet and nothing else.
    let acme: Address = dev_account(ACME);
    let (gate, text) = gate(&chain, directory, &format!("liable.allow = [\"{acme}\"]\n")).await;
    assert_not_proved(&asked(&gate, "impostor", None).await, None);
    assert_admitted(&asked(&gate, "registered", None).await, "registered");
    assert_admitted(&asked(&gate, "attested", None).await, "attested");
    let header = accepted(directory, &chain, "header").await;
    assert_eq!(header.not_after - header.not_before, 30 * 86_400);
    assert_not_proved(&asked(&gate, "header", None).await, None);
    assert_admitted(&asked(&gate, "header", Some(&header)).await, "accepted");
    // A copy helps no other agent, and neither does one that is over.
    assert_not_proved(&asked(&gate, "impostor", Some(&header)).await, Some("agentId"));
    let over = Acceptance { not_after: wall_clock() - 100, not_before: wall_clock() - 200, ..header.clone() };
    assert_not_proved(&asked(&gate, "header", Some(&over)).await, Some("time"));

    let records = fs::read_to_string(directory.join("admissions.jsonl")).unwrap();
    let bases = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["basis"].clone());
    assert_eq!(bases.collect::<Vec<_>>(), ["registered", "attested", "accepted"]);
    let keys = KeySet::parse(&fs::read_to_string(directory.join("keys.json")).unwrap()).unwrap();
    fs::write(directory.join("jwks.json"), keys.published()).unwrap();
    let [records, jwks] =
        ["admissions.jsonl", "jwks.json"].map(|file| directory.join(file).display().to_string());
    let (right, said) = verifier::run(&["verify-admission", &records, "--keys", &jwks]).await.unwrap();
    let digest = digest(&header);
    for (line, words) in [
        (0, format!("liable {acme} (registered)")),
        (2, format!("liable {acme} (accepted by its key, {digest:#x}")),
    ] {
        assert!(right && said[line].contains(&words), "{words}: {said:?}");
    }

    let impostor = wallet("impostor").address().to_string();
    let explained = Gate::explain(&text, &impostor).await.unwrap();
    for words in [
        format!("policy.api: {impostor} is refused, principal_not_allowed"),
        format!("✓ liable.allow, liable.deny, liable.domains: the liable wallet is {acme}"),
        "✗ liable.basis, liable.attested-days: the basis is unknown".to_owned(),
        "✓ allow: Provision at block".to_owned(),
    ] {
        assert!(explained.contains(&words), "{words}\n{explained}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_domains_file_accepts_and_overrules_until_it_loses_the_wallet() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let directory = directory.path();
    let mut documents = BTreeMap::new();
    for agent in ["header", "listed", "withdrawn", "disowned"] {
        documents.insert(agent, accepted(directory, &chain, agent).await);
    }
    let entry = signed(directory, &chain, &["domain", "acme.example", "--legal-name", "Acme GmbH"]).await;
    let entry: Value = serde_json::from_str(&entry).unwrap();
    let file = json!({
        "liable": [entry],
        "acceptances": [documents["listed"], documents["withdrawn"], documents["disowned"]],
        "withdrawn": [digest(&documents["withdrawn"])],
        "notOurs": [id("disowned").to_string()],
    });
    let (server, authority) = (Receiver::start().await.unwrap(), Authority::new().unwrap());
    let served = Arc::new(Mutex::new((200, file.to_string())));
    let answered = Arc::clone(&served);
    server.answer_by(move |asked| {
        let (status, body) = answered.lock().unwrap().clone();
        let is_file = asked.path == "/.well-known/kya-liable.json" && asked.header("host") == "acme.example";
        if is_file { Reply { body, ..Reply::status(status) } } else { Reply::status(500) }
    });
    let front = TlsFront::start_as(&authority, "acme.example", 4000, server.url()).await.unwrap();
    let address = front.url().replace("https://localhost", "127.0.0.1");
    let policy = format!(
        "liable.domains = [\"acme.example\"]\n\n[liable]\nrefresh-seconds = 1\nresolve.\"acme.example\" = \
         \"{address}\"\nca-file = \"{}\"\n",
        authority.bundle().display()
    );
    let (gate, text) = gate(&chain, directory, &policy).await;
    assert_not_proved(&asked(&gate, "impostor", None).await, None);
    assert_admitted(&asked(&gate, "registered", None).await, "registered");
    assert_admitted(&asked(&gate, "attested", None).await, "attested");
    assert_admitted(&asked(&gate, "header", Some(&documents["header"])).await, "accepted");
    assert_admitted(&asked(&gate, "listed", None).await, "accepted");
    // The file's acceptance holds where the request's own does not.
    assert_admitted(&asked(&gate, "listed", Some(&documents["header"])).await, "accepted");
    assert_not_proved(&asked(&gate, "withdrawn", Some(&documents["withdrawn"])).await, Some("withdrawn"));
    let disowned = asked(&gate, "disowned", Some(&documents["disowned"])).await;
    assert_not_proved(&disowned, Some("notOurs"));
    assert_eq!(disowned.header("kya-liable-basis"), ["named"]);
    // The agent `good` names another person.
    assert_refused(&asked(&gate, "good", None).await, 403, "agent_not_allowed");
    let words = "kya_gate_domain_wallets{domain=\"acme.example\",state=\"counted\"}";
    assert_eq!(gate.metric(words).await, Some(1.0));

    let listed = wallet("listed").address().to_string();
    let explained = Gate::explain(&text, &listed).await.unwrap();
    let acme = dev_account(ACME);
    for words in [
        format!(
            "✓ domain    acme.example: {acme} (\"Acme GmbH\" by its own word); 3 acceptances, 1 withdrawn, 1 agents not its own"
        ),
        format!("policy.api: {listed} is served"),
        format!("the liable wallet is {acme}: its domain is among liable.domains"),
        "the basis is accepted until".to_owned(),
    ] {
        assert!(explained.contains(&words), "{words}\n{explained}");
    }

    // A server that fails keeps the file, one that has lost the wallet loses it at once; what comes back is new.
    *served.lock().unwrap() = (500, String::new());
    let failed = "kya_gate_domain_fetches_total{domain=\"acme.example\",result=\"failed\"}";
    wait_until("a failed fetch", WAIT, async || gate.metric(failed).await.is_some_and(|count| count > 0.0))
        .await;
    assert_admitted(&asked(&gate, "listed", None).await, "accepted");
    *served.lock().unwrap() = (200, r#"{"liable":[]}"#.to_owned());
    let is_refused = async |agent| asked(&gate, agent, None).await.status == 403;
    wait_until("the wallet's loss", WAIT, async || is_refused("listed").await).await;
    for agent in ["registered", "attested", "listed"] {
        assert_refused(&asked(&gate, agent, None).await, 403, "agent_not_allowed");
    }
    *served.lock().unwrap() = (200, file.to_string());
    let waiting = "kya_gate_domain_wallets{domain=\"acme.example\",state=\"waiting\"}";
    wait_until("the new wallet", WAIT, async || gate.metric(waiting).await == Some(1.0)).await;
    assert_refused(&asked(&gate, "registered", None).await, 403, "agent_not_allowed");
    assert!(gate.log().contains("the domain's file has a new wallet"), "{}", gate.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_with_acceptances_that_do_not_hold_cause_no_read_of_code() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let (proxy, acme) = (Proxy::start(chain.node.url()).await.unwrap(), dev_account(ACME));
    let policy = format!("liable.allow = [\"{acme}\"]\n");
    let valid = accepted(directory.path(), &chain, "header").await;
    let (gate, _) = gate_at(&chain, proxy.url(), directory.path(), &policy).await;
    proxy.reset();
    for number in 0..1_000_u32 {
        let (random, mut other) = (B256::random(), valid.clone());
        let half = random.0.repeat(2);
        match number % 5 {
            0 => other.signature = [&half, &[27 + random[0] % 2][..]].concat().into(),
            1 => other.signature = half[..usize::from(random[0] % 64)].to_vec().into(),
            2 => other.terms_hash = random,
            3 => other.creator = Address::from_word(random),
            _ => {}
        }
        let mut header = other.to_header();
        if number % 5 == 4 {
            let end = usize::from(random[0]) * header.len() / 256;
            header.replace_range(end.., &hex::encode(random));
        }
        let request = get("/").header("liability-acceptance", &header).sign(&wallet("header"), CHAIN_ID);
        let refused = ask(&gate, &request).await;
        assert_refused(&refused, 403, "principal_not_allowed");
        assert!(refused.body.contains("\"problem\":"), "{refused:?}");
    }
    // The account with its verdict: the liable wallet's code is known from the checks before the start.
    assert_eq!((proxy.calls("eth_call"), proxy.calls("eth_getLogs")), (1, 1));
    assert_admitted(&asked(&gate, "header", Some(&valid)).await, "accepted");
}
