//! Records of admissions, written by the real gate and verified without it.
//!
//! 1. A record is verified by viem and jose alone, and with one byte changed by neither them nor the program
//!    `evidence`.
//! 2. `evidence verify-admission` says who asked for what, that the wallet signed it, and what the registry
//!    said at which block, proved by the block's hash.
//! 3. No admission without its record, and no record without its admission.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::anvil::CHAIN_ID;
use e2e::chain::Chain;
use e2e::fault::{Fault, Rule};
use e2e::gate::{Gate, ORIGIN};
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, registration_call, wallet};
use e2e::signed_requests::{Draft, RawAnswer, Signed};
use e2e::verdict_tokens::{key_file, key_set, new_key};
use e2e::{http, signers, verifier};
use registry_core::gate::{AdmissionRecord, RecordError, Trusted};
use registry_core::token::{Jws, KeySet};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;
use tempfile::TempDir;

const ISSUER: &str = "https://kya.example";

/// A gate that records, over a chain with one agent.
struct Recorded {
    chain: Chain,
    rpc: Proxy,
    gate: Gate,
    directory: TempDir,
}

impl Recorded {
    async fn start(evidence: bool) -> Self {
        let (chain, directory) = (chain_of_one().await.unwrap(), tempfile::tempdir().unwrap());
        let rpc = Proxy::start(chain.node.url()).await.unwrap();
        let keys = directory.path().join("keys.json");
        key_file(&keys, &key_set(&[&new_key().await.unwrap()])).unwrap();
        let registry = chain.contracts.registry.to_string();
        let text = Kind::Envoy.gate(ORIGIN, CHAIN_ID, rpc.url(), &registry).unwrap();
        let records = directory.path().join("admissions.jsonl");
        let text = format!(
            "{text}\n[verdict]\nissuer = \"{ISSUER}\"\nkeys = \"{}\"\n\n[records]\nfile = \"{}\"\nevidence = {evidence}\n",
            keys.display(),
            records.display()
        );
        let gate = Gate::start(&text).await.unwrap();
        let published =
            http::client(Duration::from_secs(10)).get(format!("{}/.well-known/jwks.json", gate.url()));
        let published = published.send().await.unwrap().text().await.unwrap();
        fs::write(directory.path().join("jwks.json"), published).unwrap();
        Self { chain, rpc, gate, directory }
    }

    /// The answer to a request that Envoy asks about.
    async fn ask(&self, request: Signed) -> RawAnswer {
        request.asked_by_envoy().send(self.gate.url()).await.unwrap()
    }

    async fn admit(&self, draft: Draft) -> RawAnswer {
        let answer = self.ask(draft.sign(&wallet("good"), CHAIN_ID)).await;
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

    fn keys(&self) -> KeySet {
        KeySet::parse(&fs::read_to_string(self.path("jwks.json")).unwrap()).unwrap()
    }

    /// What `evidence verify-admission` says of this file: whether all is right, and its lines.
    async fn verify(&self, records: &Path, more: &[&str]) -> (bool, Vec<String>) {
        let keys = self.path("jwks.json");
        let mut arguments =
            vec!["verify-admission", records.to_str().unwrap(), "--keys", keys.to_str().unwrap()];
        arguments.extend(more);
        verifier::run(&arguments).await.unwrap()
    }
}

/// The token of a line.
fn verdict_of(line: &str) -> String {
    serde_json::from_str::<Value>(line).unwrap()["verdict"].as_str().unwrap().to_owned()
}

/// The native verifier's judgement on a line.
fn judged(line: &str, keys: &KeySet) -> Result<registry_core::gate::Admission, RecordError> {
    let trusted = Trusted { keys, code: false, blocks: &[] };
    AdmissionRecord::verify(line, &trusted, |key, text, signature| {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.point());
        key.verify(text.as_bytes(), signature).is_ok()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_verified_by_viem_and_jose_alone_and_a_changed_byte_refused() {
    for evidence in [false, true] {
        let recorded = Recorded::start(evidence).await;
        let first = recorded.admit(Draft::get(ORIGIN, "/items?view=full")).await;
        recorded.admit(Draft::post(ORIGIN, "/orders", r#"{"hello":"world"}"#)).await;
        let lines = recorded.lines();
        assert_eq!(lines.len(), 2);
        let header = first.raw_header("kya-verdict").unwrap();
        assert!(lines[0].contains(&header), "the service gets the token of the record");

        // Without evidence every byte is changed, with it 600 of some 20,000.
        let changes = if evidence { "600" } else { "0" };
        let (file, keys) = (recorded.path("admissions.jsonl"), recorded.path("jwks.json"));
        let arguments = [file.to_str().unwrap(), keys.to_str().unwrap(), changes];
        let shown = signers::node("verify-admissions.mjs", &arguments).await.unwrap();
        for (row, (method, path)) in
            shown.as_array().unwrap().iter().zip([("GET", "/items"), ("POST", "/orders")])
        {
            let tried = row["tried"].as_u64().unwrap();
            println!("viem and jose, evidence {evidence}: {method} {path}, {tried} changed bytes refused");
            let expected = [wallet("good").address().to_checksum(None).as_str(), method, path, "provision"]
                .map(Value::from);
            assert_eq!(["wallet", "method", "path", "decision"].map(|name| row[name].clone()), expected);
            assert!(tried >= 600);
            assert_eq!(row["accepted"], serde_json::json!([]));
        }

        let keys = recorded.keys();
        let line = lines[0].as_bytes();
        let step = if evidence { 37 } else { 1 };
        let mut refused = BTreeSet::new();
        for place in (0..line.len()).step_by(step) {
            for other in [line[place] ^ 1, line[place] ^ 32, b'0'] {
                let mut changed = line.to_vec();
                changed[place] = other;
                let Ok(changed) = String::from_utf8(changed) else { continue };
                if changed != lines[0] {
                    let error = judged(&changed, &keys).err();
                    refused.insert(error.unwrap_or_else(|| panic!("byte {place}: {changed}")).to_string());
                }
            }
        }
        println!("evidence, the program: refused for {} reasons", refused.len());
        let admission = judged(&lines[0], &keys).unwrap();
        assert_eq!(
            (admission.target.as_str(), admission.proved.is_some()),
            ("http://api.example/items?view=full", evidence)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_says_who_asked_for_what_and_what_the_registry_said() {
    let recorded = Recorded::start(true).await;
    recorded.rpc.reset();
    recorded.admit(Draft::get(ORIGIN, "/items")).await;
    assert_eq!(recorded.rpc.posts(), 3, "the account with its verdict, and two for the proof");
    recorded.admit(Draft::get(ORIGIN, "/?")).await;
    assert_eq!(recorded.rpc.posts(), 3, "a verdict is proved once");
    let number = Jws::parse(&verdict_of(&recorded.lines()[0])).unwrap().claims.as_of.block_number;
    let hash = recorded.chain.node.block(number).await.unwrap()["hash"].as_str().unwrap().to_owned();
    let file = recorded.path("admissions.jsonl");

    let (right, said) = recorded.verify(&file, &["--block-hash", &hash]).await;
    assert!(right && said.len() == 2, "{said:?}");
    println!("{}", said[0]);
    let agent = wallet("good").address().to_checksum(None);
    for words in [
        "1: 20",
        "GET http://api.example/items, signed by",
        &format!(
            "{agent} of chain {CHAIN_ID}, admitted under api by {ISSUER}: provision at block {number}, liable 0x"
        ),
        &format!("proved against the hash {hash} that you gave"),
    ] {
        assert!(said[0].contains(words), "{words}: {}", said[0]);
    }
    let (right, said) = recorded.verify(&file, &["--line", "2"]).await;
    assert!(
        right && said.len() == 1 && said[0].contains("2: ") && said[0].contains("consistent with evidence")
    );

    let other = format!("0x{}", "11".repeat(32));
    let (right, said) = recorded.verify(&file, &["--block-hash", &other]).await;
    assert!(
        !right && said[0].contains("1: refused: the evidence is refused: the document is about block"),
        "{said:?}"
    );
    let stranger = recorded.path("stranger.json");
    fs::write(&stranger, KeySet::parse(&key_set(&[&new_key().await.unwrap()])).unwrap().published()).unwrap();
    let arguments = ["verify-admission", file.to_str().unwrap(), "--keys", stranger.to_str().unwrap()];
    let (right, said) = verifier::run(&arguments).await.unwrap();
    assert!(!right && said[0].contains("which is not among the keys given"), "{said:?}");

    // A line of another admission's parts, and a file with one wrong line among right ones.
    let lines = recorded.lines();
    let swapped = lines[0].replace(&verdict_of(&lines[0]), &verdict_of(&lines[1]));
    let mixed = recorded.path("mixed.jsonl");
    fs::write(&mixed, format!("{}\n{swapped}\n{}\n", lines[0], lines[1])).unwrap();
    let (right, said) = recorded.verify(&mixed, &[]).await;
    assert!(!right && said[1] == "2: refused: the verdict was signed for another admission", "{said:?}");
    assert!(said[0].starts_with("1: 20") && said[2].starts_with("3: 20"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_a_record_for_each_admission_and_for_nothing_else() {
    let recorded = Recorded::start(true).await;
    let request = Draft::get(ORIGIN, "/items").sign(&wallet("good"), CHAIN_ID);
    assert_eq!(recorded.ask(request.clone()).await.status, 200);
    assert_eq!(recorded.ask(request).await.status, 401, "replayed");
    assert_eq!(recorded.ask(Draft::get(ORIGIN, "/").unsigned()).await.status, 401);
    let denied = recorded.ask(Draft::get(ORIGIN, "/").sign(&wallet("new"), CHAIN_ID)).await;
    assert_eq!(denied.status, 403);
    let token = denied.raw_header("kya-verdict").unwrap();
    assert_eq!(Jws::parse(&token).unwrap().claims.jti, None, "a refusal's token makes no record");
    assert_eq!(recorded.lines().len(), 1);

    // A file that log rotation has taken away, and one that cannot be written.
    let file = recorded.path("admissions.jsonl");
    fs::rename(&file, recorded.path("admissions.1.jsonl")).unwrap();
    recorded.admit(Draft::get(ORIGIN, "/")).await;
    assert_eq!(recorded.lines().len(), 1);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let refused = recorded.ask(Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
    assert!(refused.status == 503 && refused.body.contains("record_unavailable"), "{refused:?}");
    fs::remove_dir(&file).unwrap();
    recorded.admit(Draft::get(ORIGIN, "/")).await;
    assert_eq!(recorded.lines().len(), 1);

    // A node that gives no proof of a verdict that it has given.
    let call = registration_call(2, wallet("second").address(), "guarded", 0);
    recorded.chain.send(recorded.chain.owner(), call).await.unwrap();
    recorded
        .rpc
        .inject(Rule::on("eth_getProof", Fault::error(-32601, "the method eth_getProof does not exist")));
    let refused = recorded.ask(Draft::get(ORIGIN, "/").sign(&wallet("second"), CHAIN_ID)).await;
    assert!(refused.status == 503 && refused.body.contains("record_unavailable"), "{refused:?}");
    recorded.rpc.heal();
    let answer = recorded.ask(Draft::get(ORIGIN, "/").sign(&wallet("second"), CHAIN_ID)).await;
    assert_eq!((answer.status, recorded.lines().len()), (200, 2), "{answer:?}");
}
