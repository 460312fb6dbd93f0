//! The program's arguments, keys and exit statuses, as a program that reads `--json` meets them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{ffi::OsStr, fs, io::pipe, os::unix::ffi::OsStrExt as _, process::Command};

use serde_json::Value;

/// Returns a command of the program, without settings of the caller's shell.
fn kya() -> Command {
    let mut kya = Command::new(env!("CARGO_BIN_EXE_kya"));
    for name in ["KYA_RPC_URL", "KYA_REMOTE_SIGNER", "KYA_RELAYER_KEY", "KYA_STATE_DIR"] {
        kya.env_remove(name);
    }
    kya.arg("--json");
    kya
}

#[test]
fn wrong_arguments_end_with_2_whatever_they_are() {
    let end_with_2 = |arguments: &[u8]| {
        let words = arguments.split(|byte| *byte == b' ').map(OsStr::from_bytes);
        let output = kya().args(words).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let arguments = String::from_utf8_lossy(arguments);
        assert_eq!((output.status.code(), &said["exit"]), (Some(2), &2.into()), "{arguments}: {output:?}");
    };
    let place = "--chain 1 --registry 0x0000000000000000000000000000000000000001";
    let liable = "0x0000000000000000000000000000000000000001";
    let documents = "--constitution none --capabilities none";
    let register = format!("register --key none --liable {liable} --scope a {documents}");
    let sign = "sign GET http://localhost --key none --chain 1";
    for (command, wrong) in [
        ("bogus", ""),
        ("status", "0x00000000000000000000000000000000000000Ab"),
        ("status 1", "--chain 0"),
        ("status 1", "--at ftp://localhost"),
        ("status 1", "--relayer ftp://localhost"),
        (&format!("status {place} --api http://localhost:1"), "1_0"),
        (&register, "--parent="),
        (&register, "--parent 0x"),
        (&register, "--parent 0x_1"),
        ("attest --key none", "_"),
        (&format!("terminate {place} --key none"), "1_0"),
        (&format!("status 1 {place}"), "--api ftp://localhost"),
        (&format!("status 1 {place}"), "--rpc ftp://localhost"),
        (&format!("status 1 {place}"), "--rpc http://["),
        ("attest 1 --key none", "--timeout 18446744073709551615"),
        (
            &format!("attest 1 {place} --rpc http://localhost:1"),
            "--signer-address 0x0000000000000000000000000000000000000001 --remote-signer ftp://localhost",
        ),
        ("sign --key none --chain 1", "G(ET http://localhost"),
        ("sign --key none --chain 1", "GET ftp://localhost"),
        ("sign --key none GET http://localhost", "--chain 0"),
        (sign, "-H nocolon"),
        (sign, "-H Bad(Name:x"),
        (sign, "-H a:b\nc"),
        (&format!("domain {place} --typed-data"), "Acme.example"),
        (&format!("domain {place} --typed-data"), "acme.example"),
    ] {
        end_with_2(format!("{command} {wrong}").trim_end().as_bytes());
    }
    end_with_2(b"status \xff");
}

#[test]
fn a_reader_of_standard_error_that_is_gone_changes_no_answer() {
    for arguments in [["bogus", "1"], ["status", "1"]] {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = kya().args(arguments).stderr(writer).output().unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        assert_eq!((output.status.code(), &said["exit"]), (Some(2), &2.into()), "{arguments:?}: {output:?}");
    }
}

#[test]
fn a_full_disk_leaves_no_file_of_a_key_or_keystore() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let kdf = r#"{"dklen":32,"n":2,"r":8,"p":1,"salt":"00"}"#;
    let keystore = format!(r#"{{"Crypto":{{"kdf":"scrypt","kdfparams":{kdf}}},"version":3}}"#);
    fs::write(path.join("keystore.json"), keystore).unwrap();
    fs::create_dir(path.join("tmp")).unwrap();
    let place = "--rpc http://localhost:1 --chain 1 --registry 0x0000000000000000000000000000000000000001";
    // A limit of 0 bytes for each file is a full disk.
    let script = format!(
        r#"umask 077; echo password > password
        ( trap "" XFSZ; ulimit -f 0
          "$KYA" key agent.key; [ $? = 1 ] || exit 10
          "$KYA" attest 1 --keystore keystore.json --password-file password {place}; [ $? = 1 ] || exit 11 ) || exit
        [ "$(ls -A tmp)" = "" ] || exit 12
        [ "$(ls -A | tr '\n' ' ')" = "keystore.json password tmp " ] || exit 13
        "$KYA" key agent.key && "$KYA" key agent.key"#
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).env("KYA", env!("CARGO_BIN_EXE_kya")).env("TMPDIR", path.join("tmp"));
    let output = bash.env("LC_ALL", "C").current_dir(path).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, lines[2]), "the same address twice: {printed}");
}

#[test]
fn who_registers_another_wallet_cannot_sign_its_request() {
    let directory = tempfile::tempdir().unwrap();
    let kya = |command: &str| {
        let mut kya = Command::new(env!("CARGO_BIN_EXE_kya"));
        kya.args(command.split(' ')).current_dir(directory.path()).output().unwrap()
    };
    let address = String::from_utf8(kya("key creator.key").stdout).unwrap();
    let address = address.lines().next().unwrap();
    let other = "0x0000000000000000000000000000000000000001";
    // Documents are read next, and there are none.
    for (wallet, status) in [(other, 2), (address, 1)] {
        let register = format!("register --key creator.key --wallet {wallet} --liable {other} --scope a");
        let more = "--constitution none --capabilities none --at http://localhost:1 --then";
        let output = kya(&format!("{register} {more}"));
        assert_eq!(output.status.code(), Some(status), "{output:?}");
    }
}

#[test]
fn a_remote_signer_of_the_environment_that_is_no_url_is_not_taken_for_no_key() {
    for (variable, told) in [("http//token@signer", "http or https"), ("", "no key")] {
        let sign = ["sign", "GET", "http://localhost", "--chain", "1"];
        let output = kya().args(sign).env("KYA_REMOTE_SIGNER", variable).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.code() == Some(2) && said.contains(told), "{variable}: {said}");
        assert!(!said.contains("token"), "{said}");
    }
}

#[test]
fn a_signed_request_has_the_digest_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let kya = |arguments: &[&str]| kya().args(arguments).current_dir(directory.path()).output().unwrap();
    assert!(kya(&["key", "agent.key"]).status.success());
    fs::write(directory.path().join("body"), "hello").unwrap();
    let sign = ["sign", "POST", "http://localhost/items", "--key", "agent.key", "--chain", "1"];
    for (data, digest) in [
        (&["--data", "body"][..], "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:"),
        (&[], "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:"),
    ] {
        let output = kya(&[&sign[..], data].concat());
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["content-digest"], digest, "{output:?}");
    }
}
