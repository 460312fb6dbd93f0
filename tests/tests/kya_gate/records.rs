//! Records of admissions, written by the real gate and verified without it.
//!
//! 1. viem and jose alone verify a record, and refuse it with one byte changed.
//! 2. `kya verify record` reports the wallet and its signed request, and the registry's verdict with its
//!    block, proved against the block's hash.
//! 3. There is no admission without its record, and no record without its admission. `/readyz` reports that
//!    none can be written.
//! 4. A cached verdict blocks no admission where nodes no longer prove its block.

use std::fs;
use std::path::PathBuf;

use e2e::anvil::CHAIN_ID;
use e2e::fault::{FaultRule, NodeFault};
use e2e::gate::{Gate, ORIGIN};
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::{registration_call, wallet};
use e2e::signed_requests::{Draft, RawAnswer, SignedHttpRequest};
use e2e::verdict_tokens::{key_file, key_set, new_key, signing};
use e2e::{kya, signers};
use registry_core::token::Jws;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{ISSUER, PATIENCE, ask, assert_refused, chain, configuration_at, get, good, plain, signed};

/// A gate that records with evidence and reads the chain through a counting proxy.
struct RecordingGate {
    rpc: Proxy,
    gate: Gate,
    directory: TempDir,
}

impl RecordingGate {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts a gate with these further tables.
    async fn start_with(tables: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let rpc = Proxy::start(chain().await.node.url()).await.unwrap();
        let keys = directory.path().join("keys.json");
        key_file(&keys, &key_set(&[&new_key().await.unwrap()])).unwrap();
        let records = directory.path().join("admissions.jsonl");
        let text = format!(
            "{}{}\n[records]\nfile = \"{}\"\nevidence = true\n{tables}",
            configuration_at(ReverseProxyKind::Envoy, rpc.url()).await,
            signing(ISSUER, &keys),
            records.display()
        );
        let gate = Gate::start(&text).await.unwrap();
        let published = plain(gate.url(), "/.well-known/jwks.json").await.body;
        fs::write(directory.path().join("jwks.json"), published).unwrap();
        Self { rpc, gate, directory }
    }

    async fn admitted(&self, request: SignedHttpRequest) -> RawAnswer {
        let answer = ask(&self.gate, &request).await;
        assert_eq!(answer.status, 200, "{answer:?}\n{}", self.gate.log());
        answer
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("admissions.jsonl")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Runs `kya verify record` with the published keys; returns whether all is right, and the printed lines.
    async fn verify(&self, more: &[&str]) -> (bool, Vec<String>) {
        let [records, keys] = ["admissions.jsonl", "jwks.json"].map(|name| self.path(name));
        let arguments = ["record", records.to_str().unwrap(), "--keys", keys.to_str().unwrap()];
        kya::verify(&[&arguments, more].concat()).await.unwrap()
    }
}

/// Returns the token of a record's line.
fn verdict_of(line: &str) -> String {
    serde_json::from_str::<Value>(line).unwrap()["verdict"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_verified_by_viem_and_jose_alone_and_by_the_program_with_the_blocks_hash() {
    let recorded = RecordingGate::start().await;
    recorded.rpc.reset();
    let first = recorded.admitted(signed("/items?view=full")).await;
    assert_eq!(recorded.rpc.posts(), 3, "the account with its verdict, and two for the proof");
    let order = Draft::post(ORIGIN, "/orders", r#"{"hello":"world"}"#).sign(&good(), CHAIN_ID);
    recorded.admitted(order).await;
    assert_eq!(recorded.rpc.posts(), 3, "a verdict is proved once");
    let lines = recorded.lines();
    assert_eq!(lines.len(), 2);
    assert_eq!(first.header("kya-verdict"), [verdict_of(&lines[0])], "the service gets the record's token");

    // The verifier tries 600 changes among some 20,000 bytes.
    let (file, keys) = (recorded.path("admissions.jsonl"), recorded.path("jwks.json"));
    let registry = format!("eip155:{CHAIN_ID}:{:#x}", chain().await.contracts.registry);
    let arguments = [file.to_str().unwrap(), keys.to_str().unwrap(), "600", &registry];
    let shown = signers::node("verify-admissions.mjs", &arguments).await.unwrap();
    let agent = good().address().to_checksum(None);
    for (row, (method, path)) in
        shown.as_array().unwrap().iter().zip([("GET", "/items"), ("POST", "/orders")])
    {
        let expected = [agent.as_str(), method, path, "provision"].map(Value::from);
        assert_eq!(["wallet", "method", "path", "decision"].map(|name| row[name].clone()), expected);
        assert_eq!((&row["tried"], &row["accepted"]), (&json!(600), &json!([])));
    }

    let number = Jws::parse(&verdict_of(&lines[0])).unwrap().claims.as_of.block_number;
    let block = chain().await.node.block(number).await.unwrap();
    let hash = block["hash"].as_str().unwrap();
    let registry = chain().await.contracts.registry.to_string();
    let given = ["--block-hash", hash, "--registry", &registry];
    let (right, said) = recorded.verify(&given).await;
    assert!(right && said.len() == 2, "{said:?}");
    for words in [
        "1: 20",
        "GET http://api.example/items?view=full, signed by",
        &format!("{agent} of chain {CHAIN_ID}, admitted under api (0x"),
        &format!(") by {ISSUER}: provision at block {number}, liable "),
        &format!("at the registry {registry} that you gave, proved against the hash {hash} that you gave"),
    ] {
        assert!(said[0].contains(words), "{words}: {}", said[0]);
    }

    let other = format!("0x{}", "11".repeat(32));
    let another = format!("0x{}", "11".repeat(20));
    let consistent =
        format!("at the registry {registry} by the record's word (--registry), consistent with evidence");
    for (more, is_right, words) in [
        (["--line", "2"], true, "consistent with evidence"),
        (["--block-hash", hash], true, &consistent),
        (["--registry", &another], false, "refused: the verdict is of the registry"),
        (["--block-hash", &other], false, "refused: the evidence is refused"),
    ] {
        let (right, said) = recorded.verify(&more).await;
        assert!(right == is_right && said[0].contains(words), "{words}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_record_for_each_admission_and_for_nothing_else() {
    let recorded = RecordingGate::start().await;
    let request = signed("/items");
    recorded.admitted(request.clone()).await;
    assert_refused(&ask(&recorded.gate, &request).await, 401, "nonce_reused");
    let denied = ask(&recorded.gate, &get("/").sign(&wallet("new"), CHAIN_ID)).await;
    assert_refused(&denied, 403, "kya_not_allowed");
    let token = denied.header("kya-verdict")[0];
    assert_eq!(Jws::parse(token).unwrap().claims.jti, None, "a refusal's token makes no record");
    assert_eq!(recorded.lines().len(), 1);

    // The file is moved by log rotation, and then cannot be written.
    let file = recorded.path("admissions.jsonl");
    fs::rename(&file, recorded.path("admissions.1.jsonl")).unwrap();
    recorded.admitted(signed("/")).await;
    assert_eq!(recorded.lines().len(), 1);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_refused(&ask(&recorded.gate, &signed("/")).await, 503, "record_unavailable");
    let ready = plain(recorded.gate.url(), "/readyz").await;
    assert!(ready.status == 503 && ready.body.contains("records:"), "{ready:?}");
    fs::remove_dir(&file).unwrap();
    let is_ready = async || plain(recorded.gate.url(), "/readyz").await.status == 200;
    wait_until("ready", PATIENCE, is_ready).await;
    recorded.admitted(signed("/")).await;
    assert_eq!(recorded.lines().len(), 1);

    // The node gives a verdict and no proof of it.
    let (chain, second) = (chain().await, || get("/").sign(&wallet("second"), CHAIN_ID));
    let call = registration_call(4, wallet("second").address(), "guarded", 0);
    chain.send(chain.owner(), call).await.unwrap();
    let missing = NodeFault::error(-32601, "the method eth_getProof does not exist");
    recorded.rpc.inject(FaultRule::on("eth_getProof", missing));
    assert_refused(&ask(&recorded.gate, &second()).await, 503, "record_unavailable");
    recorded.rpc.heal();
    recorded.admitted(second()).await;
    assert_eq!(recorded.lines().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_is_recorded_where_the_block_of_the_cached_verdict_is_not_proved_any_more() {
    let demanding = "\n[policy.demanding]\nallow = [\"provision\"]\nremaining-seconds = 100000000\n";
    for proves_newest_alone in [true, false] {
        let recorded = RecordingGate::start_with(demanding).await;
        // The verdict is cached without its proof, since this policy denies.
        let asked = signed("/").asking("GET", "/gate/demanding/");
        let denied = asked.send(recorded.gate.url()).await.unwrap();
        assert_eq!(denied.status, 403, "{denied:?}");
        let number = Jws::parse(denied.header("kya-verdict")[0]).unwrap().claims.as_of.block_number;
        chain().await.node.mine(1).await.unwrap();
        if proves_newest_alone {
            recorded.rpc.inject(FaultRule::on("eth_getProof", NodeFault::NewestProofs));
        } else {
            let block = chain().await.node.block(number).await.unwrap();
            for name in [&block["number"], &block["hash"]] {
                let pruned = NodeFault::error(-32000, "missing trie node");
                recorded.rpc.inject(FaultRule::on("eth_getProof", pruned).containing(&name.to_string()));
            }
        }
        recorded.admitted(signed("/items")).await;
        recorded.rpc.reset();
        recorded.admitted(signed("/items")).await;
        assert_eq!(recorded.rpc.posts(), 0, "the newer verdict is proved once");
        let (right, said) = recorded.verify(&[]).await;
        assert!(right && said.len() == 2, "{said:?}");
    }
}
