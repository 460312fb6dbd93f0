//! Documents that commit 3ad2b3d proved and signed (`tests/fixtures/3ad2b3d`) are verified today.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{fs, process::Command};

use registry_core::{
    registry::kya::Decision,
    token::{Jws, KeySet},
};
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde_json::Value;

fn path(name: &str) -> String {
    format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// The program's output where every proof is right.
fn verified(command: &str, file: &str, options: &[&str]) -> Vec<String> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kya"));
    let output = program.args(["verify", command, &path(file)]).args(options).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{file}: {text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn evidence_and_records_of_admissions_prove_what_they_did() {
    let showcase: Value = serde_json::from_str(&read("showcase.json")).unwrap();
    let (registry, hash) =
        (showcase["registry"].as_str().unwrap(), showcase["blockHashes"]["kyoto"].as_str());
    let (hash, keys) = (hash.unwrap(), path("jwks.json"));
    for (file, decision) in [("evidence.kyoto.json", "provision"), ("evidence.nobody.json", "deny")] {
        let options = ["--block-hash", hash, "--chain-id", "31337", "--registry", registry];
        let said = verified("evidence", file, &options);
        assert!(said[0].starts_with(&format!("proved: {decision} for wallet 0x")), "{said:?}");
    }
    let records = verified("record", "admissions.jsonl", &["--keys", &keys]);
    assert!(records.len() == 2 && records[1].contains("POST http://api.example/orders"), "{records:?}");
    let proved = ["--keys", &keys, "--block-hash", hash, "--registry", registry];
    let records = verified("record", "admissions.evidence.jsonl", &proved);
    assert!(records.len() == 1 && records[0].contains("proved against the hash"), "{records:?}");
}

#[test]
fn tokens_are_signed_by_the_published_keys() {
    let (keys, tokens) = (KeySet::parse(&read("jwks.json")).unwrap(), read("tokens.txt"));
    let shop = Some("https://shop.example".to_owned());
    let decisions = [Decision::Provision, Decision::Provision, Decision::RequestRenewal, Decision::Deny];
    assert_eq!(tokens.lines().count(), decisions.len());
    for (token, expected) in tokens.lines().zip(decisions.into_iter().zip([None, shop, None, None])) {
        let token = Jws::parse(token).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, keys.find(&token.kid).unwrap().point());
        key.verify(token.signing_input.as_bytes(), &token.signature).unwrap();
        assert_eq!((token.claims.decision, token.claims.aud), expected);
    }
}
