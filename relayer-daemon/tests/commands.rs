//! The commands that alerts and runbook tell an operator to give.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::{collections::BTreeSet, process::Command};

const TEXTS: [&str; 2] = [include_str!("../ops/alerts.yaml"), include_str!("../../docs/relayer-runbook.md")];
/// Commands that they name without arguments.
const NAMES: [&str; 2] = ["relayer-daemon ctl", "ctl cancel"];

/// Returns the argument that stands for a placeholder.
fn given(word: &str) -> String {
    match word {
        "ACCOUNT" | "OLD" | "0xOLD" => format!("0x{}", "1".repeat(40)),
        "RELAY" => format!("0x{}", "1".repeat(64)),
        "DATE" => "2026-01-31".to_owned(),
        word => word.to_owned(),
    }
}

#[test]
fn every_command_of_alerts_and_runbook_has_all_its_arguments() {
    let quoted =
        TEXTS.iter().flat_map(|text| text.lines()).flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_command = |text: &&str| text.starts_with("relayer-daemon ") || text.starts_with("ctl ");
    let commands: BTreeSet<&str> = quoted.filter(is_command).filter(|text| !NAMES.contains(text)).collect();
    assert!(commands.len() > 10, "only {commands:?}: what was read?");
    let directory = tempfile::tempdir().unwrap();
    let contract = format!("0x{}", "2".repeat(40));
    for command in commands {
        let arguments = command.strip_prefix("relayer-daemon ").unwrap_or(command);
        let output = Command::new(env!("CARGO_BIN_EXE_relayer-daemon"))
            .args(arguments.split(' ').map(given))
            .env_clear()
            .env("FORWARDER_ADDRESS", &contract)
            .env("REGISTRY_ADDRESS", &contract)
            .env("RPC_URL", "http://127.0.0.1:1")
            .env("CHAIN_ID", "1")
            .current_dir(directory.path())
            .output()
            .unwrap();
        // There is no journal, so it fails; the status of a wrong command line is 2.
        assert_eq!(output.status.code(), Some(1), "{command}: {output:?}");
    }
}
