//! The checks before a start, at an endpoint where they fail.

use std::{fs, path::Path, slice};

use alloy::{primitives::B256, signers::local::PrivateKeySigner};
use clap::{Args as _, Command, FromArgMatches as _};
use relayer_daemon::{
    daemon::{
        check::{self, CheckMode},
        settings::Settings,
    },
    metrics::Metrics,
    process::{clock, lock::ProcessLock},
    signer::TxSigner,
    store::files::StoreFiles,
};
use serde_json::{Value, json};

use crate::endpoint::{ScriptedEndpoint, ScriptedReply::Answer, install_crypto, scripted};

/// Returns the settings of a daemon with this endpoint and data directory, without the environment.
fn settings(endpoint: &ScriptedEndpoint, data_dir: &Path) -> Settings {
    let (url, data_dir) = (endpoint.url.as_str(), data_dir.to_str().unwrap());
    let [forwarder, registry] = ["1", "2"].map(|digit| format!("0x{}", digit.repeat(40)));
    let contracts = ["--forwarder-address", &forwarder, "--registry-address", &registry];
    let rest = ["--rpc-url", url, "--data-dir", data_dir];
    let command = Settings::augment_args(Command::new("relayer-daemon"))
        .mut_args(|argument| argument.env(None::<&'static str>));
    let flags = ["relayer-daemon"].into_iter().chain(contracts).chain(rest);
    Settings::from_arg_matches(&command.get_matches_from(flags)).unwrap()
}

#[tokio::test]
async fn a_start_that_fails_a_check_makes_no_file_and_leaves_a_running_daemon_alone() {
    install_crypto();
    let key = TxSigner::from(PrivateKeySigner::from_bytes(&B256::repeat_byte(7)).unwrap());
    let mut found = Vec::new();
    for (mode, is_running) in [
        (CheckMode::Serve, false),
        (CheckMode::Serve, true),
        (CheckMode::Drain, false),
        (CheckMode::Drain, true),
    ] {
        // Its chain has no contracts.
        let chain_id = || Answer(json!("0x1"));
        let endpoint = scripted(&[chain_id(), chain_id(), Answer(Value::Null)]).await;
        let data = tempfile::tempdir().unwrap();
        let settings = settings(&endpoint, data.path());
        let files = StoreFiles::new(data.path(), 1, settings.forwarder_address, &[key.address()]);
        let _running = is_running.then(|| ProcessLock::take(&files.store_lock).unwrap());
        let (keys, metrics) = (slice::from_ref(&key), Metrics::new().unwrap());
        let (report, parts) = check::run(mode, &settings, keys, &clock::shared(), &metrics).await;
        assert!(!report.is_good() && parts.is_none(), "{report}");
        let is_held = report.to_string().contains("is running");
        found.push((mode, fs::read_dir(data.path()).unwrap().count(), is_held));
    }
    let (serve, drain) = (CheckMode::Serve, CheckMode::Drain);
    // Only the lock of the running one.
    assert_eq!(found, [(serve, 0, false), (serve, 1, true), (drain, 0, false), (drain, 1, true)]);
}
