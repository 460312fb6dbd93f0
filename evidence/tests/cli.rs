//! The program as its users run it, on documents made of what anvil answered (`core/tests/vectors/evidence`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use alloy_primitives::{Address, B256};
use registry_core::evidence::{self, Layout, Material};
use serde_json::Value;

/// A document, and its block's hash.
fn document(kind: &str) -> (String, String) {
    let read = |name: &str| {
        let path = format!("{}/../core/tests/vectors/evidence/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let recorded: Value = serde_json::from_str(&read(&format!("{kind}.json"))).unwrap();
    let address = |name: &str| recorded[name].as_str().unwrap().parse::<Address>().unwrap();
    let slots = recorded["proof"]["storageProof"].as_array().unwrap();
    let slots: Vec<B256> = slots.iter().map(|slot| slot["key"].as_str().unwrap().parse().unwrap()).collect();
    let material = Material {
        wallet: address("wallet"),
        registry: address("registry"),
        chain_id: 31_337,
        layout: Layout::AGENT_REGISTRY,
        slots: &slots,
        block: &recorded["block"].to_string(),
        proof: &recorded["proof"].to_string(),
        code: &Value::from(read("registry_code.hex")).to_string(),
    };
    let (evidence, _) = evidence::make(&material).unwrap();
    (serde_json::to_string(&evidence).unwrap(), recorded["block"]["hash"].as_str().unwrap().to_owned())
}

fn verify(arguments: &[&str], document: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_evidence"))
        .args(["verify", "-"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have refused the arguments already.
    let _ = program.stdin.take().unwrap().write_all(document.as_bytes());
    program.wait_with_output().unwrap()
}

/// Exit status, and the one line.
fn said(output: &Output) -> (i32, String) {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches('\n').count(), 1, "one line: {text}");
    (output.status.code().unwrap(), text)
}

#[test]
fn without_a_hash_a_document_only_agrees_with_itself() {
    let (document, hash) = document("expired");
    let (status, line) = said(&verify(&[], &document));
    assert_eq!(status, 0, "{line}");
    assert!(
        line.starts_with("consistent: request_renewal") && line.contains("by the document's word"),
        "{line}"
    );
    assert!(line.contains(&hash) && line.contains("--block-hash"), "{line}");
}

#[test]
fn what_is_refused_is_refused_with_the_reason() {
    let (document, hash) = document("provision");
    let other = format!("{:#x}", B256::repeat_byte(1));
    for (arguments, document, reason) in [
        (vec!["--block-hash", &other], document.clone(), "the document is about block"),
        (vec!["--chain-id", "1"], document.clone(), "the document is about chain 31337, not about 1"),
        (
            vec!["--registry", "0x1111111111111111111111111111111111111111"],
            document.clone(),
            "the document is about registry",
        ),
        (
            vec!["--block-hash", &hash],
            document.replace("\"isCompliant\":true", "\"isCompliant\":false"),
            "verdict.isCompliant is not what",
        ),
        (vec![], document[..document.len() - 1].to_owned(), "the document is no evidence"),
        (vec![], String::new(), "the document is no evidence"),
    ] {
        let (status, line) = said(&verify(&arguments, &document));
        assert_eq!(status, 1, "{line}");
        assert!(line.starts_with(&format!("refused: {reason}")), "{line}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let program = Command::new(env!("CARGO_BIN_EXE_evidence")).args(["verify", "nowhere.json"]).output();
    let (status, line) = said(&program.unwrap());
    assert_eq!(status, 1);
    assert!(line.starts_with("refused: cannot open nowhere.json"), "{line}");
}
