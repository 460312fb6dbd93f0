//! `kya verify` as its users run it, on documents of `tests/fixtures/3ad2b3d` and `docs/liability`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A document about a compliant agent, and its block's hash.
fn document() -> (String, String) {
    let document = file("tests/fixtures/3ad2b3d/evidence.kyoto.json").trim_end().to_owned();
    let hash = serde_json::from_str::<Value>(&document).unwrap()["blockHash"].as_str().unwrap().to_owned();
    (document, hash)
}

/// A file of the repository.
fn file(name: &str) -> String {
    fs::read_to_string(format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn verify(arguments: &[&str], document: &str) -> Output {
    verify_as("evidence", arguments, document)
}

fn verify_as(kind: &str, arguments: &[&str], document: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kya"))
        .args(["verify", kind, "-"])
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
    let (document, hash) = document();
    let (status, line) = said(&verify(&[], &document));
    assert_eq!(status, 0, "{line}");
    assert!(line.starts_with("consistent: provision") && line.contains("by the document's word"), "{line}");
    assert!(line.contains(&hash) && line.contains("--block-hash"), "{line}");
}

#[test]
fn what_is_refused_is_refused_with_the_reason() {
    let (document, hash) = document();
    let other = format!("0x{}", "01".repeat(32));
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
    let program =
        Command::new(env!("CARGO_BIN_EXE_kya")).args(["verify", "evidence", "nowhere.json"]).output();
    let (status, line) = said(&program.unwrap());
    assert_eq!(status, 2);
    assert!(line.starts_with("kya: cannot open nowhere.json"), "{line}");
}

#[test]
fn a_machine_without_certificates_is_told_what_it_lacks() {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kya"));
    program.args(["status", "1", "--rpc", "http://127.0.0.1:1", "--chain", "1", "--registry"]);
    program.arg("0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");
    program.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
    let line = String::from_utf8(program.output().unwrap().stderr).unwrap();
    assert!(line.contains("no HTTP client can be built: ") && line.contains("CA certificates"), "{line}");
}

#[test]
fn a_token_is_verified_by_its_issuers_keys_its_audience_and_its_time() {
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/3ad2b3d/jwks.json");
    let tokens = file("tests/fixtures/3ad2b3d/tokens.txt");
    let (at, late) = ("1795808785", "1795808999");
    let (plain, shop) = (tokens.lines().next().unwrap(), tokens.lines().nth(1).unwrap());
    let (head, rest) = plain.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let (_, of_shop) = shop.rsplit_once('.').unwrap();
    let moved = [head, claims, of_shop].join(".");
    let cut = [head, claims, &signature[2..]].join(".");
    for (options, token, status, words) in [
        (&["--at", at][..], plain, 0, "signed: provision for eip155:31337:0xf8baf884"),
        (&["--at", at, "--issuer", "https://kya.example"], plain, 0, "by the word of https://kya.example"),
        (&["--at", at, "--audience", "https://shop.example"], shop, 0, "signed: provision"),
        (
            &["--at", at, "--audience", "https://shop.example"],
            plain,
            1,
            "its audience is not stated, not https://shop",
        ),
        (
            &["--at", at, "--issuer", "https://other.example"],
            plain,
            1,
            "its issuer is https://kya.example, not",
        ),
        (&["--at", late], plain, 1, "it has expired at 2026-11-27T"),
        (&["--at", at], &moved, 1, "did not sign this"),
        (&["--at", at], &cut, 1, "refused: it "),
        (&["--at", at], claims, 1, "refused: it "),
    ] {
        let (ended, line) = said(&verify_as("token", &[&["--keys", keys], options].concat(), token));
        assert!(ended == status && line.contains(words), "{words}: {ended} {line}");
    }
}

#[test]
fn an_acceptance_is_verified_by_its_wallets_signature_of_the_scope_and_its_time() {
    let vectors: Value = serde_json::from_str(&file("docs/liability/vectors.json")).unwrap();
    let signed = &vectors["acceptances"][0];
    let (document, scope) = (signed["document"].to_string(), signed["operationalScope"].as_str().unwrap());
    let other = document.replace("\"agentId\":\"11\"", "\"agentId\":\"12\"");
    for (at, scope, document, status, words) in [
        (
            "1790000000",
            scope,
            &document,
            0,
            "signed: 0x4a62316623ad457F02cDC5D997deD67a383EC569 accepts agent 11",
        ),
        ("1792592000", scope, &document, 0, "until 2026-10-2"),
        ("1792593000", scope, &document, 1, "the acceptance does not hold: "),
        ("1790000000", "another scope", &document, 1, "the acceptance does not hold: "),
        ("1790000000", scope, &other, 1, "the acceptance does not hold: "),
        ("1790000000", scope, &"{}".to_owned(), 1, "refused: -: "),
    ] {
        let (ended, line) = said(&verify_as("acceptance", &["--scope", scope, "--at", at], document));
        assert!(ended == status && line.contains(words), "{words}: {ended} {line}");
    }
}

#[test]
fn programs_are_told_what_was_verified_and_a_file_that_cannot_be_read_is_nothing_wrong() {
    let fixture = |name: &str| format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"));
    let json = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kya")).arg("--json").args(arguments).output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code().unwrap(), document)
    };
    let (keys, evidence) = (fixture("jwks.json"), fixture("evidence.kyoto.json"));
    let (status, shown) = json(&["verify", "evidence", &evidence]);
    assert_eq!((status, &shown["right"], &shown["proved"]), (0, &true.into(), &false.into()), "{shown}");
    assert_eq!(shown["verdict"]["decision"], "provision", "{shown}");
    let (status, shown) = json(&["verify", "evidence", &evidence, "--chain-id", "1"]);
    assert_eq!((status, &shown["right"], &shown["exit"]), (1, &false.into(), &1.into()), "{shown}");
    assert!(shown["error"].as_str().unwrap().contains("not about 1"), "{shown}");
    let (status, shown) = json(&["verify", "record", &fixture("admissions.jsonl"), "--keys", &keys]);
    assert_eq!((status, shown["records"].as_array().unwrap().len()), (0, 2), "{shown}");
    assert_eq!((&shown["records"][1]["method"], &shown["records"][1]["line"]), (&"POST".into(), &2.into()));
    assert_eq!(shown["records"][1]["claims"]["decision"], "provision", "{shown}");
    let (status, shown) = json(&["verify", "record", &evidence, "--keys", &keys]);
    assert_eq!((status, &shown["records"][0]["right"]), (1, &false.into()), "{shown}");
    for wrong in [["nowhere.jsonl", &keys], [&evidence, "nowhere.json"], [&evidence, &evidence]] {
        let (status, shown) = json(&["verify", "record", wrong[0], "--keys", wrong[1]]);
        assert_eq!((status, &shown["exit"], &shown["right"]), (2, &2.into(), &Value::Null), "{shown}");
    }
}
