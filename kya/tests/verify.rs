//! `kya verify` as its users run it, on what commit 3ad2b3d proved and signed (`tests/fixtures/3ad2b3d`), and
//! on documents of `docs/liability`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use registry_core::token::{Jws, compact, signing_input};
use serde_json::Value;

/// Returns a document about a compliant agent, and its block's hash.
fn document() -> (String, String) {
    let document = fixture("evidence.kyoto.json").trim_end().to_owned();
    let hash = serde_json::from_str::<Value>(&document).unwrap()["blockHash"].as_str().unwrap().to_owned();
    (document, hash)
}

/// Returns the path of a file that this commit wrote.
fn path(name: &str) -> String {
    format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn fixture(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Returns a command of the program with these arguments.
fn kya(arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kya"));
    program.args(arguments);
    program
}

fn verify(kind: &str, arguments: &[&str], document: &str) -> Output {
    let mut program = kya(&["verify", kind, "-"])
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

/// Returns the exit status, and the one line of output.
fn said(output: &Output) -> (i32, String) {
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    let line = text.strip_suffix('\n').unwrap();
    assert!(!line.contains(char::is_control), "one line, which steers no terminal: {text:?}");
    (output.status.code().unwrap(), text)
}

#[test]
fn without_a_hash_a_document_only_agrees_with_itself() {
    let (document, hash) = document();
    let (status, line) = said(&verify("evidence", &[], &document));
    assert_eq!(status, 0, "{line}");
    assert!(line.starts_with("consistent: provision") && line.contains("by the document's word"), "{line}");
    assert!(line.contains(&hash) && line.contains("--block-hash"), "{line}");
}

#[test]
fn what_is_refused_is_refused_with_the_reason() {
    let (document, hash) = document();
    let [other, registry] = [32, 20].map(|bytes| format!("0x{}", "01".repeat(bytes)));
    let changed = document.replace("\"isCompliant\":true", "\"isCompliant\":false");
    for (arguments, document, reason) in [
        (&["--block-hash", &other][..], &*document, "the document is about block"),
        (&["--chain-id", "1"], &document, "the document is about chain 31337, not about 1"),
        (&["--registry", &registry], &document, "the document is about registry"),
        (&["--block-hash", &hash], &changed, "verdict.isCompliant is not what"),
        (&[], &document[..document.len() - 1], "the document is no evidence"),
        (&[], "", "the document is no evidence"),
    ] {
        let (status, line) = said(&verify("evidence", arguments, document));
        assert_eq!(status, 1, "{line}");
        assert!(line.starts_with(&format!("refused: {reason}")), "{line}");
    }
}

#[test]
fn a_document_of_sixteen_megabytes_is_read_whole_and_no_part_of_a_larger_one_is() {
    let (document, _) = document();
    let most = 16 * 1024 * 1024;
    for (bytes, status, words) in [(most, 0, "consistent: "), (most + 1, 2, "is larger than 16777216 bytes")]
    {
        let padded = format!("{document}{}", " ".repeat(bytes - document.len()));
        let (exit, line) = said(&verify("evidence", &[], &padded));
        assert!(exit == status && line.contains(words), "{bytes}: {line}");
    }
}

#[test]
fn a_machine_without_certificates_is_told_what_it_lacks() {
    let registry = "0x2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23";
    let mut program =
        kya(&["status", "1", "--rpc", "http://127.0.0.1:1", "--chain", "1", "--registry", registry]);
    program.env("SSL_CERT_FILE", "/dev/null").env("SSL_CERT_DIR", "/nowhere");
    let line = String::from_utf8(program.output().unwrap().stderr).unwrap();
    assert!(line.contains("no HTTP client can be built: ") && line.contains("CA certificates"), "{line}");
}

#[test]
fn a_token_is_verified_by_its_issuers_keys_its_audience_and_its_time() {
    let (keys, tokens) = (path("jwks.json"), fixture("tokens.txt"));
    let (at, shops) = ("1795808785", "https://shop.example");
    let lines: Vec<&str> = tokens.lines().collect();
    let [plain, shop, suspended, unregistered] = lines[..] else { panic!("{tokens}") };
    let exp = Jws::parse(plain).unwrap().claims.exp;
    let [last, end] = [exp - 1, exp].map(|at| at.to_string());
    let (head, rest) = plain.split_once('.').unwrap();
    let (claims, signature) = rest.split_once('.').unwrap();
    let (_, of_shop) = shop.rsplit_once('.').unwrap();
    let moved = [head, claims, of_shop].join(".");
    let cut = [head, claims, &signature[2..]].join(".");
    for (options, token, status, words) in [
        (&["--at", at][..], plain, 0, "signed: provision for eip155:31337:0xf8baf884"),
        (&["--at", at, "--issuer", "https://kya.example"], plain, 0, "by the word of https://kya.example"),
        (&["--at", at, "--audience", shops], shop, 0, "signed: provision"),
        (&["--at", at], suspended, 0, "signed: request_renewal"),
        (&["--at", at], unregistered, 0, "signed: deny"),
        (&["--at", at, "--audience", shops], plain, 1, "its audience is not stated, not https://shop"),
        (&["--at", at, "--issuer", shops], plain, 1, "its issuer is https://kya.example, not"),
        (&["--at", &last], plain, 0, "signed: provision"),
        (&["--at", &end], plain, 1, "it has expired at 2026-11-27T"),
        (&["--at", at], &moved, 1, "did not sign this"),
        (&["--at", at], &cut, 1, "refused: it "),
        (&["--at", at], claims, 1, "refused: it "),
    ] {
        let (ended, line) = said(&verify("token", &[&["--keys", &keys], options].concat(), token));
        assert!(ended == status && line.contains(words), "{words}: {ended} {line}");
    }
}

#[test]
fn what_is_refused_begins_no_line_and_steers_no_terminal() {
    let (keys, tokens, records) = (path("jwks.json"), fixture("tokens.txt"), fixture("admissions.jsonl"));
    let (keys, record) = (["--keys", &keys], records.lines().next().unwrap());
    let claims = Jws::parse(tokens.lines().next().unwrap()).unwrap().claims;
    let token = compact(&signing_input("a\nsigned: provision \u{1b}[2J", &claims), &[7; 64]);
    let verdict = serde_json::from_str::<Value>(record).unwrap()["verdict"].as_str().unwrap().to_owned();
    let record = record.replace(&verdict, &token);
    let evidence = document().0.replacen('{', "{\"\u{9b}2J\":1,", 1);
    for (kind, options, document, words) in [
        ("token", &keys[..], &token, "refused: there is no key \"a\\nsigned: provision"),
        ("record", &keys, &record, "1: refused: the verdict is signed by the key \"a\\nsigned: provision"),
        ("evidence", &[], &evidence, "refused: the document is no evidence: \u{fffd}2J"),
    ] {
        let (status, line) = said(&verify(kind, options, document));
        assert!(status == 1 && line.starts_with(words), "{line}");
    }
}

#[test]
fn an_acceptance_is_verified_by_its_wallets_signature_of_the_scope_and_its_time() {
    let vectors = include_str!("../../docs/liability/vectors.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let signed = &vectors["acceptances"][0];
    let (document, scope) = (signed["document"].to_string(), signed["operationalScope"].as_str().unwrap());
    let other = document.replace("\"agentId\":\"11\"", "\"agentId\":\"12\"");
    let accepts = "signed: 0x4a62316623ad457F02cDC5D997deD67a383EC569 accepts agent 11";
    for (at, scope, document, status, words) in [
        ("1790000000", scope, &document, 0, accepts),
        ("1792592000", scope, &document, 0, "until 2026-10-2"),
        ("1792593000", scope, &document, 1, "the acceptance does not hold: "),
        ("1790000000", "another scope", &document, 1, "the acceptance does not hold: "),
        ("1790000000", scope, &other, 1, "the acceptance does not hold: "),
        ("1790000000", scope, &"{}".to_owned(), 1, "refused: -: "),
    ] {
        let (ended, line) = said(&verify("acceptance", &["--scope", scope, "--at", at], document));
        assert!(ended == status && line.contains(words), "{words}: {ended} {line}");
    }
}

/// Returns the exit status, and the document for programs.
fn json(arguments: &[&str]) -> (i32, Value) {
    let output = kya(&["--json"]).args(arguments).output().unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_line_that_is_no_text_or_too_long_is_wrong_alone_and_the_next_one_keeps_its_number() {
    let (directory, keys) = (tempfile::tempdir().unwrap(), path("jwks.json"));
    let [long, broken] = ["long", "broken"].map(|name| directory.path().join(name));
    let records = fixture("admissions.jsonl");
    let (first, second) = (records.lines().next().unwrap(), records.lines().nth(1).unwrap());
    let padded = format!("{second}{}", " ".repeat((17 << 20) - second.len()));
    fs::write(&long, [first, &padded, first].join("\n")).unwrap();
    let mut bytes = [first, second, first].join("\n").into_bytes();
    bytes[first.len() + 10] = 0xff;
    fs::write(&broken, bytes).unwrap();
    for (line, status, expected) in [
        (&["--line", "1"][..], 0, &[true][..]),
        (&["--line", "2"], 1, &[false]),
        (&["--line", "3"], 0, &[true]),
        (&[], 1, &[true, false, true]),
    ] {
        for file in [&long, &broken] {
            let record = ["verify", "record", file.to_str().unwrap(), "--keys", &keys];
            let (ended, shown) = json(&[&record[..], line].concat());
            let records = shown["records"].as_array().unwrap();
            let right: Vec<bool> = records.iter().map(|record| record["right"] == true).collect();
            assert!(ended == status && right == expected, "{line:?}: {shown}");
        }
    }
    let name = broken.to_str().unwrap();
    for kind in [&["evidence"][..], &["token", "--keys", &keys], &["acceptance", "--scope", "a"]] {
        let (status, shown) = json(&[&["verify"][..], kind, &[name]].concat());
        assert_eq!((status, &shown["right"]), (1, &false.into()), "{kind:?}: {shown}");
    }
    let (status, shown) = json(&["verify", "token", &path("tokens.txt"), "--keys", name]);
    assert_eq!((status, &shown["right"]), (2, &Value::Null), "keys are an argument: {shown}");
}

#[test]
fn programs_are_told_what_was_verified_and_a_file_that_cannot_be_read_is_nothing_wrong() {
    let (keys, evidence) = (path("jwks.json"), path("evidence.kyoto.json"));
    let (status, shown) = json(&["verify", "evidence", &evidence]);
    assert_eq!((status, &shown["right"], &shown["proved"]), (0, &true.into(), &false.into()), "{shown}");
    assert_eq!(shown["verdict"]["decision"], "provision", "{shown}");
    let (status, shown) = json(&["verify", "evidence", &evidence, "--chain-id", "1"]);
    assert_eq!((status, &shown["right"], &shown["exit"]), (1, &false.into(), &1.into()), "{shown}");
    assert!(shown["error"].as_str().unwrap().contains("not about 1"), "{shown}");
    let (status, shown) = json(&["verify", "record", &path("admissions.jsonl"), "--keys", &keys]);
    assert_eq!((status, shown["records"].as_array().unwrap().len()), (0, 2), "{shown}");
    assert_eq!((&shown["records"][1]["method"], &shown["records"][1]["line"]), (&"POST".into(), &2.into()));
    assert_eq!(shown["records"][1]["claims"]["decision"], "provision", "{shown}");
    let (status, shown) = json(&["verify", "record", &evidence, "--keys", &keys]);
    assert_eq!((status, &shown["records"][0]["right"]), (1, &false.into()), "{shown}");
    for wrong in [["nowhere.jsonl", &keys], [&evidence, "nowhere.json"], [&evidence, &evidence]] {
        let (status, shown) = json(&["verify", "record", wrong[0], "--keys", wrong[1]]);
        assert_eq!((status, &shown["exit"], &shown["right"]), (2, &2.into(), &Value::Null), "{shown}");
    }
    let (_, shown) = json(&["verify", "evidence", "nowhere.json"]);
    assert!(shown["error"].as_str().unwrap().starts_with("cannot open nowhere.json"), "{shown}");
}

/// Returns the program's lines, where every proof is right.
fn verified(kind: &str, file: &str, options: &[&str]) -> Vec<String> {
    let output = kya(&["verify", kind, &path(file)]).args(options).output().unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{file}: {text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn evidence_and_records_of_admissions_prove_what_they_did() {
    let showcase: Value = serde_json::from_str(&fixture("showcase.json")).unwrap();
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
