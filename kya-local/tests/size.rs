//! The cost of a large registry: memory, bytes of updates, and the time of lookups.
//!
//! `KYA_LOCAL_AGENTS=1000000 cargo test -p kya-local --test size -- --nocapture` prints the figures of a
//! million agents.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod common;

use std::{fs, time::Instant};

use common::{ShardedRegistry, SnapshotService, wallet};
use kya_local::{Address, Decision, LocalKya, UpdateStats};

/// Agents of a shard of 32 KiB, about.
const AGENTS_A_SHARD: u64 = 150;
const LOOKUPS: u64 = 100_000;
/// All that the process may have in memory, the service's half included.
const MEMORY_MIB: u64 = 64;

fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1_024
}

/// Returns lookups per second, one in twenty of an unregistered wallet.
fn lookups(local: &LocalKya, agents: u64) -> f64 {
    let (mut chance, began) = (1_u64, Instant::now());
    for number in 0..LOOKUPS {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let id = 1 + (chance >> 33) % agents;
        let (wallet, expected) = match number % 20 {
            0 => (wallet(id + agents), Decision::Deny),
            _ => (wallet(id), Decision::Provision),
        };
        assert_eq!(local.kya(wallet).unwrap().decision, expected, "{id}");
    }
    LOOKUPS as f64 / began.elapsed().as_secs_f64()
}

fn told(what: &str, update: UpdateStats, began: Instant) {
    let UpdateStats { shards, requests, bytes, .. } = update;
    let (mib, seconds) = (bytes as f64 / 1_048_576.0, began.elapsed().as_secs_f64());
    println!("{what}: {shards} shards, {requests} requests, {mib:.1} MiB sent, {seconds:.1} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_registry_takes_little_memory_and_an_update_what_changed() {
    let agents = std::env::var("KYA_LOCAL_AGENTS").map_or(20_000, |agents| agents.parse().unwrap());
    let bits = (agents / AGENTS_A_SHARD).max(1).ilog2() as u8;
    let mut registry = ShardedRegistry::new(agents, bits);
    registry.segment_ids = 512;
    let service = SnapshotService::start(registry).await;
    let directory = tempfile::tempdir().unwrap();
    let options = kya_local::Options {
        // Releases are fast, and this is no test of time.
        max_age: std::time::Duration::from_secs(3_600),
        ..service.options(&directory)
    };
    let local = LocalKya::open(options.clone()).unwrap();
    let began = Instant::now();
    let update = local.update().await.unwrap();
    told(&format!("{agents} agents"), update, began);
    assert_eq!(update.shards, 1 << bits);
    let file = fs::metadata(directory.path().join("registry.kya")).unwrap().len();
    println!("on disk: {} MiB, {} bytes an agent", file >> 20, file / agents);
    println!("{:.0} lookups a second", lookups(&local, agents));

    let changed = 1_000.min(agents / 20);
    service.state().registry.toggle((1..=agents).step_by((agents / changed) as usize).take(changed as usize));
    let began = Instant::now();
    let update = local.update().await.unwrap();
    told(&format!("after {changed} changes"), update, began);
    assert!(update.shards <= 16);
    assert_eq!(local.kya(wallet(1)).unwrap().decision, Decision::RequestRenewal);

    // And back, so that all are provisioned.
    service.state().registry.toggle((1..=agents).step_by((agents / changed) as usize).take(changed as usize));
    local.update().await.unwrap();
    drop(local);
    let began = Instant::now();
    let local = LocalKya::open(options).unwrap();
    assert_eq!(local.kya(Address::repeat_byte(9)).unwrap().decision, Decision::Deny);
    println!("the first verdict {:.1} ms after a restart", began.elapsed().as_secs_f64() * 1_000.0);
    println!("{:.0} lookups a second, with shards checked at their first read", lookups(&local, agents));
    println!("{} MiB of memory at most, the service's half included", peak_mib());
    assert!(peak_mib() <= MEMORY_MIB, "{} MiB", peak_mib());
}
