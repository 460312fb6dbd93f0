//! Agents of a liable person, which any stranger can name.
//!
//! 1. A stranger registers an agent that names Acme as liable, and attests: it is refused where
//!    `liable.allow` names Acme's wallet or `liable.domains` its domain. Agents that Acme registered,
//!    attested for or accepted are admitted, with the basis in header, token and record.
//! 2. Agents that Acme's file withdraws or disowns are refused whatever their basis, and so are all agents
//!    once the file has lost the wallet.
//! 3. Requests with invalid acceptances are refused, and cause no read of the liable wallet's code. An
//!    acceptance that is valid by code is so also where no node has the verdict's block.
//! 4. `kya accept` and `kya domain` sign documents that a gate takes, with a key in a file or by any wallet's
//!    `eth_signTypedData_v4`; `check --explain` reports the result of each rule.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use alloy::hex;
use alloy::primitives::{Address, B256, Bytes};
use alloy::rpc::types::TransactionRequest;
use alloy::sol_types::SolCall;
use e2e::anvil::{CHAIN_ID, dev_account, dev_key, wall_clock};
use e2e::chain::Chain;
use e2e::fault::{FaultRule, NodeFault};
use e2e::gate::{ACCEPT, Gate, ORIGIN};
use e2e::hooks::{HookReply, Receiver};
use e2e::kya;
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::relay::{REQUEST_GAS, RequestFactory, attest};
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::{chain_of_one, registration_call, wallet};
use e2e::signed_requests::RawAnswer;
use e2e::tls::{Authority, TlsFront};
use e2e::verdict_tokens::{key_file, key_set, new_key, signing};
use registry_core::eth::abi::IAgentRegistry::registerAgentCall;
use registry_core::eth::abi::IForwarder::executeCall;
use registry_core::forward::SignedRequest;
use registry_core::liability::Acceptance;
use registry_core::token::{Jws, KeySet};
use serde_json::{Value, json};

use crate::{ISSUER, PATIENCE, ask, assert_refused, get};

pub(crate) const ACME: usize = 1;
const STRANGER: usize = 2;

/// Agents that name Acme as liable, in the order of their ids, with the account that registers each.
const AGENTS: [(&str, usize); 9] = [
    ("impostor", STRANGER),
    ("registered", ACME),
    ("attested", STRANGER),
    ("header", STRANGER),
    ("listed", STRANGER),
    ("withdrawn", STRANGER),
    ("disowned", STRANGER),
    ("relayed registration", ACME),
    ("relayed attestation", STRANGER),
];

fn id(agent: &str) -> u64 {
    let place = AGENTS.iter().position(|(name, _)| *name == agent).unwrap();
    2 + u64::try_from(place).unwrap()
}

pub(crate) async fn chain() -> Chain {
    let chain = chain_of_one().await.unwrap();
    for (name, creator) in AGENTS {
        let call = registration_call(id(name), wallet(name).address(), "guarded", 0);
        let call = registerAgentCall { haftungsperson: dev_account(ACME), ..call };
        match name {
            "relayed registration" => relay(&chain, 0, &call).await,
            _ => drop(chain.send(dev_account(creator), call).await.unwrap()),
        }
    }
    relay(&chain, 1, &attest(id("relayed attestation"))).await;
    for (by, agent) in [(STRANGER, "impostor"), (ACME, "attested"), (ACME, "disowned")] {
        chain.send(dev_account(by), attest(id(agent))).await.unwrap();
    }
    chain
}

/// Sends a call that Acme has signed through the forwarder, as the stranger.
async fn relay(chain: &Chain, nonce: u64, call: &impl SolCall) {
    let SignedRequest { request, signature } =
        RequestFactory::of(chain).request(&dev_key(ACME), nonce, call).signed;
    let execute = executeCall { req: request, signature };
    let data = Bytes::from(execute.abi_encode()).into();
    let transaction = TransactionRequest::default().from(dev_account(STRANGER)).to(chain.contracts.forwarder);
    let sent = chain.node.execute(transaction.gas_limit(2 * REQUEST_GAS).input(data)).await.unwrap();
    assert!(sent.status());
}

/// Runs `kya` for the chain's registry; returns its output, or its error.
async fn run(chain: &Chain, command: &[&str]) -> Result<String, String> {
    let (registry, chain_id) = (chain.contracts.registry.to_string(), CHAIN_ID.to_string());
    let place = ["--registry", &registry, "--chain", &chain_id];
    kya::printed(&[command, &place].concat()).await.map_err(|error| format!("{error:#}"))
}

/// Runs `kya` for the chain's registry with Acme's key.
async fn signed(directory: &Path, chain: &Chain, command: &[&str]) -> String {
    let file = directory.join("acme.key");
    fs::write(&file, hex::encode(dev_key(ACME).to_bytes())).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    run(chain, &[command, &["--key", file.to_str().unwrap()]].concat()).await.unwrap()
}

/// Runs `kya` in two steps, with a wallet that signs typed data in between: the node, which has Acme's key.
/// Any change in between is refused by the name of its field.
async fn signed_by_wallet(directory: &Path, chain: &Chain, command: &[&str], changed: [&str; 2]) -> String {
    let printed = run(chain, &[command, &["--typed-data"]].concat()).await.unwrap();
    let typed: Value = serde_json::from_str(&printed).unwrap();
    let asked = json!([dev_account(ACME), typed]);
    let signature: String = chain.node.request("eth_signTypedData_v4", asked).await.unwrap();
    let file = directory.join("typed.json");
    let taken = async |text: &str, signature: &str| {
        fs::write(&file, text).unwrap();
        let signed = ["--signed", file.to_str().unwrap(), "--signature", signature];
        run(chain, &[command, &signed].concat()).await
    };
    let with = |from: &str, to: &str| printed.replacen(from, to, 1);
    let elsewhere = with(&chain.contracts.registry.to_string(), &Address::ZERO.to_string());
    for (text, signature, words) in [
        (&*printed, &*signature.replace(&signature[4..8], "0000"), "signature"),
        (&elsewhere, &signature, "domain.verifyingContract of what was signed differs"),
        (&with("AgentLiability", "Other"), &signature, "domain.name of what was signed differs"),
        (&with(changed[0], changed[1]), &signature, "message."),
        (&with("\"notAfter\":1", "\"notAfter\":9"), &signature, "notAfter"),
        ("[]", &signature, "message.notBefore of what was signed is no number"),
    ] {
        let refused = taken(text, signature).await.unwrap_err();
        assert!(refused.contains(words), "{words}: {refused}");
    }
    // Some wallets number the keys of a signature from 0.
    let (rest, last) = signature.split_at(signature.len() - 2);
    let from_zero = format!("{rest}{:02x}", u8::from_str_radix(last, 16).unwrap() - 27);
    let taken = [taken(&printed, &from_zero).await.unwrap(), taken(&printed, &signature).await.unwrap()];
    assert_eq!(taken[0], taken[1]);
    taken.into_iter().next().unwrap()
}

/// Makes an acceptance of an agent by `kya accept`.
pub(crate) async fn accepted(directory: &Path, chain: &Chain, agent: &str) -> Acceptance {
    let wallet = wallet(agent).address().to_string();
    let command = ["accept", &wallet, "--yes", "--rpc", chain.node.url()];
    let document = signed(directory, chain, &command).await;
    Acceptance::from_json(&document).unwrap()
}

/// Starts a gate under this policy that signs verdicts and records admissions in this directory.
async fn gate(chain: &Chain, rpc: &str, directory: &Path, policy: &str) -> (Gate, String) {
    let registry = chain.contracts.registry.to_string();
    let text = ReverseProxyKind::Envoy.gate(ORIGIN, CHAIN_ID, rpc, &registry).unwrap();
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
    // The policy of an earlier release's file: it names the wallet and nothing else.
    let acme: Address = dev_account(ACME);
    let (allow, rpc) = (format!("liable.allow = [\"{acme}\"]\n"), chain.node.url());
    let (gate, text) = gate(&chain, rpc, directory, &allow).await;
    assert_not_proved(&asked(&gate, "impostor", None).await, None);
    for (agent, basis) in [
        ("registered", "registered"),
        ("relayed registration", "registered"),
        ("attested", "attested"),
        ("relayed attestation", "attested"),
    ] {
        assert_admitted(&asked(&gate, agent, None).await, basis);
    }
    let agent = wallet("header").address().to_string();
    let command = ["accept", &agent, "--rpc", rpc];
    let header = signed_by_wallet(directory, &chain, &command, ["guarded", "unguarded"]).await;
    let header = Acceptance::from_json(&header).unwrap();
    assert_eq!(header.not_after - header.not_before, 30 * 86_400);
    assert_not_proved(&asked(&gate, "header", None).await, None);
    assert_admitted(&asked(&gate, "header", Some(&header)).await, "accepted");
    // A copy of it helps no other agent, and an expired one none at all.
    assert_not_proved(&asked(&gate, "impostor", Some(&header)).await, Some("agentId"));
    let over = Acceptance { not_after: wall_clock() - 100, not_before: wall_clock() - 200, ..header.clone() };
    assert_not_proved(&asked(&gate, "header", Some(&over)).await, Some("time"));

    let records = fs::read_to_string(directory.join("admissions.jsonl")).unwrap();
    let bases = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["basis"].clone());
    assert_eq!(bases.collect::<Vec<_>>(), ["registered", "registered", "attested", "attested", "accepted"]);
    let keys = KeySet::parse(&fs::read_to_string(directory.join("keys.json")).unwrap()).unwrap();
    fs::write(directory.join("jwks.json"), keys.published()).unwrap();
    let [records, jwks] =
        ["admissions.jsonl", "jwks.json"].map(|file| directory.join(file).display().to_string());
    let (right, said) = kya::verify(&["record", &records, "--keys", &jwks]).await.unwrap();
    let digest = header.digest("guarded");
    for (line, words) in [
        (0, format!("liable {acme} (registered)")),
        (4, format!("liable {acme} (accepted by its key, {digest:#x}")),
    ] {
        assert!(right && said[line].contains(&words), "{words}: {said:?}");
    }

    // Where `accepted` does not count, an acceptance does not hide a basis that does.
    let own = tempfile::tempdir().unwrap();
    let policy = allow + "liable.basis = [\"registered\", \"attested\"]\n";
    let (strict, _) = self::gate(&chain, rpc, own.path(), &policy).await;
    let registered = accepted(directory, &chain, "registered").await;
    assert_admitted(&asked(&strict, "registered", Some(&registered)).await, "registered");
    assert_not_proved(&asked(&strict, "header", Some(&header)).await, None);

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
    let acme = dev_account(ACME).to_string();
    let command = ["domain", "acme.example", "--legal-name", "Acme GmbH", "--wallet", &acme];
    let entry = signed_by_wallet(directory, &chain, &command, ["acme.example", "acme.evil"]).await;
    let entry: Value = serde_json::from_str(&entry).unwrap();
    // These invalid acceptances last longer, and still do not hide the valid one.
    let changes: [fn(&mut Acceptance); 4] = [
        |other| other.chain_id += 1,
        |other| other.registry = Address::ZERO,
        |other| other.registered_at += 1,
        |other| other.not_after += 1,
    ];
    let others = changes.map(|change| {
        let mut other = documents["listed"].clone();
        other.not_after += 1;
        change(&mut other);
        other
    });
    let listed = ["listed", "withdrawn", "disowned"].map(|agent| &documents[agent]);
    let file = json!({
        "liable": [entry],
        "acceptances": listed.into_iter().chain(&others).collect::<Vec<_>>(),
        "withdrawn": [documents["withdrawn"].digest("guarded")],
        "notOurs": [id("disowned").to_string()],
    });
    let (server, authority) = (Receiver::start().await.unwrap(), Authority::new().unwrap());
    let served = Arc::new(Mutex::new((200, file.to_string())));
    let answered = Arc::clone(&served);
    server.answer_by(move |asked| {
        let (status, body) = answered.lock().unwrap().clone();
        let is_file = asked.path == "/.well-known/kya-liable.json" && asked.header("host") == "acme.example";
        if is_file { HookReply { body, ..HookReply::status(status) } } else { HookReply::status(500) }
    });
    let front = TlsFront::start_as(&authority, "acme.example", 4000, server.url()).await.unwrap();
    let address = front.url().replace("https://localhost", "127.0.0.1");
    let policy = format!(
        "liable.domains = [\"acme.example\"]\n\n[liable]\nrefresh-seconds = 1\nresolve.\"acme.example\" = \
         \"{address}\"\nca-file = \"{}\"\n",
        authority.bundle().display()
    );
    let (gate, text) = gate(&chain, chain.node.url(), directory, &policy).await;
    assert_not_proved(&asked(&gate, "impostor", None).await, None);
    assert_admitted(&asked(&gate, "registered", None).await, "registered");
    assert_admitted(&asked(&gate, "attested", None).await, "attested");
    assert_admitted(&asked(&gate, "header", Some(&documents["header"])).await, "accepted");
    assert_admitted(&asked(&gate, "listed", None).await, "accepted");
    // The file's acceptance counts where the request's own is invalid.
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
    for words in [
        format!(
            "✓ domain    acme.example: {acme} (\"Acme GmbH\" by its own word); 7 acceptances, 1 withdrawn, 1 agents not its own"
        ),
        format!("policy.api: {listed} is served"),
        format!("the liable wallet is {acme}: its domain is among liable.domains"),
        "the basis is accepted until".to_owned(),
    ] {
        assert!(explained.contains(&words), "{words}\n{explained}");
    }

    // While its server fails, the last file counts. A file without the wallet loses it at once, and a wallet
    // that comes back counts as new.
    *served.lock().unwrap() = (500, String::new());
    let failed = "kya_gate_domain_fetches_total{domain=\"acme.example\",result=\"failed\"}";
    wait_until("a failed fetch", PATIENCE, async || {
        gate.metric(failed).await.is_some_and(|count| count > 0.0)
    })
    .await;
    assert_admitted(&asked(&gate, "listed", None).await, "accepted");
    // A metric has the time of the last good file.
    let read = "kya_gate_domain_read_seconds{domain=\"acme.example\"}";
    let (last, failures) = (gate.metric(read).await, gate.metric(failed).await);
    assert!(last > Some(0.0) && failures.is_some(), "{last:?}, {failures:?}");
    wait_until("another one", PATIENCE, async || gate.metric(failed).await > failures).await;
    assert_eq!(gate.metric(read).await, last);
    *served.lock().unwrap() = (200, r#"{"liable":[]}"#.to_owned());
    let is_refused = async |agent| asked(&gate, agent, None).await.status == 403;
    wait_until("the wallet's loss", PATIENCE, async || is_refused("listed").await).await;
    for agent in ["registered", "attested", "listed"] {
        assert_refused(&asked(&gate, agent, None).await, 403, "agent_not_allowed");
    }
    *served.lock().unwrap() = (200, file.to_string());
    let waiting = "kya_gate_domain_wallets{domain=\"acme.example\",state=\"waiting\"}";
    wait_until("the new wallet", PATIENCE, async || gate.metric(waiting).await == Some(1.0)).await;
    assert_refused(&asked(&gate, "registered", None).await, 403, "agent_not_allowed");
    assert!(gate.log().contains("the domain's file has a new wallet"), "{}", gate.log());
    *served.lock().unwrap() = (404, String::new());
    wait_until("told that the file is gone", PATIENCE, async || gate.metric(read).await == Some(0.0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_by_code_holds_where_no_node_has_the_block_of_the_cached_verdict() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let (proxy, acme) = (Proxy::start(chain.node.url()).await.unwrap(), dev_account(ACME));
    let of_key = accepted(directory.path(), &chain, "header").await;
    let of_code = Acceptance { signature: Bytes::from_static(&[1, 2, 3]), ..of_key };
    chain.node.mine(1).await.unwrap();
    chain.node.set_code(acme, &Bytes::from_static(ACCEPT)).await.unwrap();
    chain.node.mine(2).await.unwrap();
    let policy = format!("liable.allow = [\"{acme}\"]\n");
    let (gate, _) = gate(&chain, proxy.url(), directory.path(), &policy).await;
    assert_admitted(&asked(&gate, "header", Some(&of_code)).await, "accepted");

    let number = chain.node.height().await.unwrap();
    let block = chain.node.block(number).await.unwrap();
    chain.node.mine(1).await.unwrap();
    let pruned = |block: &str| {
        FaultRule::on("eth_call", NodeFault::error(-32000, "missing trie node"))
            .containing(&format!("\"{block}\""))
    };
    for rules in [
        vec![pruned(&format!("{number:#x}")), pruned(block["hash"].as_str().unwrap())],
        vec![FaultRule::any(NodeFault::Stale { head: number - 1 })],
    ] {
        proxy.heal();
        rules.into_iter().for_each(|rule| proxy.inject(rule));
        assert_admitted(&asked(&gate, "header", Some(&of_code)).await, "accepted");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_with_acceptances_that_do_not_hold_cause_no_read_of_code() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let (proxy, acme) = (Proxy::start(chain.node.url()).await.unwrap(), dev_account(ACME));
    let policy = format!("liable.allow = [\"{acme}\"]\n");
    let valid = accepted(directory.path(), &chain, "header").await;
    let (gate, _) = gate(&chain, proxy.url(), directory.path(), &policy).await;
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
