//! The program as its users run it, on a document of `tests/fixtures/3ad2b3d`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// A document about a compliant agent, and its block's hash.
fn document() -> (String, String) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/3ad2b3d/evidence.kyoto.json");
    let document = fs::read_to_string(path).unwrap().trim_end().to_owned();
    let hash = serde_json::from_str::<Value>(&document).unwrap()["blockHash"].as_str().unwrap().to_owned();
    (document, hash)
}

fn verify(arguments: &[&str], document: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_kya"))
        .args(["verify", "evidence", "-"])
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
    assert_eq!(status, 1);
    assert!(line.starts_with("refused: cannot open nowhere.json"), "{line}");
}
