//! The promises of a `LocalKya`.
//!
//! 1. Verdicts are given without the service, and right after a restart; an unregistered wallet has one, too.
//! 2. An update fetches only what changed, and an interrupted one goes on where it ended.
//! 3. In place of a verdict that is too old there is an error, whatever the clocks of the API and of this
//!    computer say.
//! 4. Bytes that are not the manifest's, of another registry, or lost by the disk give no verdict.
//! 5. One file has one holder. Where the rate limit is used up, an update waits, and not for ever.
//! 6. `run` updates, and reports spot checks that get no answer.
//! 7. A copy of an earlier version (`tests/fixtures/3ad2b3d/local`) answers without a service.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod common;

use std::{
    fs,
    path::Path,
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use alloy_primitives::keccak256;
use common::{BUNDLES, MANIFESTS, ServiceFault, ShardedRegistry, SnapshotService, now_millis, wallet};
use kya_local::{Address, Decision, Error, Event, LocalKya, Options, SpotChecks};
use registry_core::registry::{agent::Status, kya::Registration};
use registry_core::snapshot::SnapshotError;
use tempfile::TempDir;

const AGENTS: u64 = 4_000;
/// Shards: more than two bundles.
const SHARDS: u64 = 128;

async fn service() -> (SnapshotService, TempDir) {
    (SnapshotService::start(ShardedRegistry::new(AGENTS, 7)).await, tempfile::tempdir().unwrap())
}

/// Starts a service, and opens and updates a copy of its registry.
async fn held() -> (SnapshotService, TempDir, LocalKya) {
    let (service, directory) = service().await;
    let local = LocalKya::open(service.options(&directory)).unwrap();
    local.update().await.unwrap();
    (service, directory, local)
}

/// Compares all verdicts with the service's registry.
fn is_the_services(local: &LocalKya, service: &SnapshotService) {
    let registry = &service.state().registry;
    for id in 1..=registry.agents() {
        let verdict = local.kya(wallet(id)).unwrap();
        let expected = match registry.status(id) {
            Status::Active => Decision::Provision,
            _ => Decision::RequestRenewal,
        };
        assert_eq!(verdict.decision, expected, "{id}");
        assert_eq!(verdict.agent.unwrap().agent_id.to_string(), id.to_string());
        assert_eq!(verdict.as_of.block_number, registry.block);
    }
    for byte in 1..50 {
        assert_eq!(local.kya(Address::repeat_byte(byte)).unwrap().decision, Decision::Deny);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_given_without_the_service_and_right_after_a_restart() {
    let (service, directory) = service().await;
    let local = LocalKya::open(service.options(&directory)).unwrap();
    assert!(matches!(local.kya(wallet(1)), Err(Error::Stale { age: None })));
    assert_eq!(local.age(), None);
    let update = local.update().await.unwrap();
    assert_eq!((update.shards, update.agents, update.requests), (SHARDS, AGENTS, 5));
    service.asked();
    is_the_services(&local, &service);
    assert!(local.age().unwrap() < Duration::from_secs(60));

    drop(local);
    let began = Instant::now();
    let local = LocalKya::open(service.options(&directory)).unwrap();
    assert_eq!(local.kya(wallet(7)).unwrap().decision, Decision::Provision);
    println!("the first verdict {:?} after a restart", began.elapsed());
    is_the_services(&local, &service);
    assert_eq!(service.asked(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_fetches_only_what_changed() {
    let (service, directory, local) = held().await;
    for round in 1..20 {
        service.state().registry.toggle((round..=AGENTS).step_by(997));
        let update = local.update().await.unwrap();
        assert!((1..=5).contains(&update.shards) && update.requests == 2, "{update:?}");
        is_the_services(&local, &service);
    }
    let update = local.update().await.unwrap();
    assert_eq!((update.shards, update.requests), (0, 1));
    // Space is used again.
    let bytes = fs::metadata(directory.path().join("registry.kya")).unwrap().len();
    assert!(bytes < AGENTS * 320, "{bytes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_read_from_the_manifest_and_from_segments_before_shards() {
    let (service, directory, local) = held().await;
    service.state().registry.segment_ids = 40;
    let mut fetched = Vec::new();
    for round in 1..60 {
        service.state().registry.toggle((round..=AGENTS).step_by(97));
        let update = local.update().await.unwrap();
        fetched.push(update.shards);
        is_the_services(&local, &service);
    }
    println!("fetched after 41 changes each: {fetched:?}");
    assert!(fetched.iter().sum::<u64>() < 59 * 41 * 2 / 3);
    drop(local);
    let local = LocalKya::open(service.options(&directory)).unwrap();
    is_the_services(&local, &service);
    assert_eq!(local.update().await.unwrap().shards, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_update_goes_on_where_it_ended_and_verdicts_stay_until_then() {
    let (service, directory) = service().await;
    let local = LocalKya::open(service.options(&directory)).unwrap();
    service.state().faults.insert((BUNDLES, 2), ServiceFault::Status(503, ""));
    assert!(matches!(local.update().await, Err(Error::Refused { status: 503, .. })));
    assert!(matches!(local.kya(wallet(1)), Err(Error::Stale { age: None })));
    drop(local);
    service.state().faults.clear();
    let local = LocalKya::open(service.options(&directory)).unwrap();
    assert_eq!(local.update().await.unwrap().shards, SHARDS - 64);
    is_the_services(&local, &service);

    // All shards change, and the update is interrupted: the verdicts are those of the block before.
    service.asked();
    service.state().registry.toggle(1..=AGENTS);
    service.state().faults.insert((BUNDLES, 1), ServiceFault::Status(500, ""));
    local.update().await.unwrap_err();
    for id in 1..=AGENTS {
        let verdict = local.kya(wallet(id)).unwrap();
        assert_eq!((verdict.decision, verdict.as_of.block_number), (Decision::Provision, 1));
    }
    service.state().faults.clear();
    assert_eq!(local.update().await.unwrap().shards, SHARDS - 32);
    is_the_services(&local, &service);
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_at_any_time_leave_a_registry_whole() {
    let (service, directory, mut local) = held().await;
    let (data, head) = ("registry.kya", "registry.kya.head");
    let mut saved_head = fs::read(directory.path().join(head)).unwrap();
    for round in 1..12 {
        service.state().registry.toggle((round..=AGENTS).step_by(61));
        let before = service.state().registry.block - 1;
        // The process ends after the shards were written, before the head was replaced.
        local.update().await.unwrap();
        let new_head = std::mem::replace(&mut saved_head, fs::read(directory.path().join(head)).unwrap());
        let bytes = fs::read(directory.path().join(data)).unwrap();
        drop(local);
        let crashed = tempfile::tempdir().unwrap();
        fs::write(crashed.path().join(data), &bytes).unwrap();
        fs::write(crashed.path().join(head), &new_head).unwrap();
        let old = LocalKya::open(service.options(&crashed)).unwrap();
        for id in 1..=AGENTS {
            match old.kya(wallet(id)) {
                Ok(verdict) => assert_eq!(verdict.as_of.block_number, before),
                // The file was made shorter after the head was replaced: this one is older than that.
                Err(Error::File(_) | Error::Snapshot(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
        old.update().await.unwrap();
        is_the_services(&old, &service);
        local = LocalKya::open(service.options(&directory)).unwrap();
        is_the_services(&local, &service);
    }
}

async fn becomes_stale(local: &LocalKya) {
    let waiting = async {
        while local.kya(wallet(1)).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(common::PATIENCE, waiting).await.unwrap();
    assert!(matches!(local.kya(wallet(1)), Err(Error::Stale { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_old_is_no_verdict_whatever_the_api_says_of_its_time() {
    let (service, directory) = service().await;
    let options = |max_age, max_block_age| Options {
        max_age: Duration::from_millis(max_age),
        max_block_age,
        ..service.options(&directory)
    };
    service.state().confirmed_at = Some(now_millis() - 61_000);
    let local = LocalKya::open(options(60_000, None)).unwrap();
    local.update().await.unwrap();
    let Err(Error::Stale { age: Some(age) }) = local.kya(wallet(1)) else { panic!("an old verdict") };
    assert!(age >= Duration::from_secs(61) && local.age().unwrap() >= age);
    // A time to come is not believed.
    service.state().confirmed_at = Some(now_millis() + 3_600_000);
    local.update().await.unwrap();
    local.kya(wallet(1)).unwrap();
    assert!(local.age().unwrap() < common::PATIENCE);

    drop(local);
    let fresh = tempfile::tempdir().unwrap();
    let local = LocalKya::open(Options { max_age: Duration::ZERO, ..service.options(&fresh) }).unwrap();
    let update = tokio::time::timeout(common::PATIENCE, local.update()).await.unwrap().unwrap();
    assert_eq!((update.shards, update.agents), (SHARDS, AGENTS), "one that takes longer ends");
    drop(local);
    let local = LocalKya::open(options(50, None)).unwrap();
    becomes_stale(&local).await;
    drop(local);
    let local = LocalKya::open(options(3_600_000, Some(Duration::from_millis(50)))).unwrap();
    becomes_stale(&local).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_that_has_adopted_a_registry_is_one_though_a_later_round_gets_no_answer() {
    let (service, directory) = service().await;
    // Each round counts as one that took long.
    let options = Options { max_age: Duration::ZERO, ..service.options(&directory) };
    let local = LocalKya::open(options).unwrap();
    service.state().faults.insert((MANIFESTS, 1), ServiceFault::Status(503, ""));
    let update = local.update().await.unwrap();
    assert_eq!((update.block, update.agents, update.shards), (1, AGENTS, SHARDS));
    // Without an adopted one it fails, and so it does where the service goes on with other bytes.
    service.asked();
    service.state().faults.insert((MANIFESTS, 0), ServiceFault::Status(503, ""));
    assert!(matches!(local.update().await, Err(Error::Refused { status: 503, .. })));
    service.asked();
    service.state().faults = [((MANIFESTS, 1), ServiceFault::Flipped)].into();
    assert!(matches!(local.update().await, Err(Error::Snapshot(_))));
}

/// Rewrites the head as if its manifest had come so much later.
fn received_later(head: &Path, millis: u64) {
    let mut bytes = fs::read(head).unwrap();
    let fetched_at = u64::from_be_bytes(bytes[5..13].try_into().unwrap()) + millis;
    bytes[5..13].copy_from_slice(&fetched_at.to_be_bytes());
    let content = bytes.len() - 8;
    let checksum = keccak256(&bytes[..content]);
    bytes[content..].copy_from_slice(&checksum[..8]);
    fs::write(head, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_opened_by_a_clock_that_was_set_back_is_stale_until_it_is_updated() {
    let (service, directory, local) = held().await;
    drop(local);
    received_later(&directory.path().join("registry.kya.head"), 3_600_000);
    let local = LocalKya::open(service.options(&directory)).unwrap();
    let kya = |local: &LocalKya| local.kya(wallet(1)).map(|verdict| verdict.decision);
    assert!(matches!(kya(&local), Err(Error::Stale { age: None })));
    assert_eq!(local.age(), None);
    local.update().await.unwrap();
    assert_eq!(kya(&local).unwrap(), Decision::Provision);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_behind_makes_no_lapsed_agent_compliant() {
    let (service, _directory, local) = held().await;
    // Eight days behind the chain, or behind the service: attestations have lapsed.
    for (of_chain, of_service) in [(true, false), (false, true)] {
        let ahead = 8 * 86_400_000;
        service.state().registry.ahead_millis = if of_chain { ahead } else { 0 };
        service.state().confirmed_at = of_service.then(|| now_millis() + ahead);
        service.state().registry.toggle([2, 3].into_iter());
        local.update().await.unwrap();
        let verdict = local.kya(wallet(1)).unwrap();
        assert_eq!(verdict.decision, Decision::RequestRenewal);
        assert!(verdict.checked_at.as_millis() >= now_millis() + ahead - 60_000);
        assert!(local.age().unwrap() < common::PATIENCE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_goes_back_is_told_and_its_older_block_not_adopted_while_the_newer_one_is_not_too_old()
{
    let (service, directory, local) = held().await;
    service.state().registry.toggle([5].into_iter());
    local.update().await.unwrap();
    service.state().registry = ShardedRegistry::new(AGENTS, 7);
    let refused = local.update().await;
    assert!(matches!(refused, Err(Error::WentBack { held: 2, offered: 1 })), "{refused:?}");
    assert_eq!(local.kya(wallet(5)).unwrap().decision, Decision::RequestRenewal);
    drop(local);
    let local = LocalKya::open(Options { max_age: Duration::ZERO, ..service.options(&directory) }).unwrap();
    assert_eq!(local.update().await.unwrap().block, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_changed_and_foreign_bytes_are_refused_and_verdicts_stay() {
    let (service, directory, local) = held().await;
    for (kind, fault) in [
        (BUNDLES, ServiceFault::Swapped),
        (BUNDLES, ServiceFault::Flipped),
        (MANIFESTS, ServiceFault::Flipped),
    ] {
        service.asked();
        for _ in 0..2 {
            service.state().registry.toggle(1..=AGENTS);
        }
        service.state().faults.insert((kind, 0), fault.clone());
        let refused = local.update().await;
        assert!(matches!(refused, Err(Error::Snapshot(_))), "{fault:?}: {refused:?}");
        assert_eq!(local.kya(wallet(1)).unwrap().decision, Decision::Provision);
        service.state().faults.clear();
        local.update().await.unwrap();
        is_the_services(&local, &service);
    }
    drop(local);
    let mut other = service.options(&directory);
    other.identity.chain_id = 1;
    let local = LocalKya::open(other).unwrap();
    assert!(matches!(local.kya(wallet(1)), Err(Error::Stale { age: None })));
    assert!(matches!(local.update().await, Err(Error::Snapshot(SnapshotError::Another))));
}

/// Changes a byte of one shard on disk.
fn flip(directory: &TempDir, part: usize) {
    let file = directory.path().join("registry.kya");
    let mut bytes = fs::read(&file).unwrap();
    let place = bytes.len() / part;
    bytes[place] ^= 1;
    fs::write(&file, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_the_disk_lost_gives_no_verdict_and_is_fetched_again() {
    let (service, directory, local) = held().await;
    drop(local);
    flip(&directory, 2);
    let local = LocalKya::open(service.options(&directory)).unwrap();
    // The second time, after all bytes were found to be right.
    for _ in 0..2 {
        let lost = |id: &u64| matches!(local.kya(wallet(*id)), Err(Error::Snapshot(SnapshotError::Damaged)));
        let lost = (1..=AGENTS).filter(lost).count();
        assert!((1..100).contains(&lost), "{lost}");
        assert_eq!(local.update().await.unwrap().shards, 1);
        is_the_services(&local, &service);
        flip(&directory, 4);
    }

    // Without its head, or with half of it, the file is begun anew.
    drop(local);
    let head = directory.path().join("registry.kya.head");
    let half = fs::read(&head).unwrap();
    fs::write(&head, &half[..half.len() / 2]).unwrap();
    let local = LocalKya::open(service.options(&directory)).unwrap();
    assert!(matches!(local.kya(wallet(1)), Err(Error::Stale { age: None })));
    assert_eq!(local.update().await.unwrap().shards, SHARDS);
    is_the_services(&local, &service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_a_spot_check_finds_lost_is_fetched_again() {
    let (service, directory, local) = held().await;
    drop(local);
    // Each of them, so that the first comparison finds one.
    let file = directory.path().join("registry.kya");
    let damaged: Vec<u8> = fs::read(&file).unwrap().into_iter().map(|byte| byte ^ 1).collect();
    fs::write(&file, damaged).unwrap();
    let spot_checks = Some(silent_checks());
    let local = LocalKya::open(Options { spot_checks, ..service.options(&directory) }).unwrap();
    runs_until(&local, |event| matches!(event, Event::CheckFailed(Error::Snapshot(_)))).await;
    let fetched = local.update().await.unwrap().shards;
    assert!((1..SHARDS).contains(&fetched), "{fetched}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_loses_shards_again_and_again_does_not_let_the_file_grow() {
    let (service, directory, local) = held().await;
    let file = directory.path().join("registry.kya");
    let length = || fs::metadata(&file).unwrap().len();
    let whole = length();
    for _ in 0..3 {
        let damaged: Vec<u8> = fs::read(&file).unwrap().into_iter().map(|byte| byte ^ 1).collect();
        fs::write(&file, damaged).unwrap();
        let wallets = (1..=service.state().registry.agents()).map(wallet);
        let lost = wallets.filter(|wallet| local.kya(*wallet).is_err()).count();
        assert!(lost > 0 && local.update().await.unwrap().shards > 0);
        assert!(length() <= 2 * whole, "{} of {whole}", length());
    }
    is_the_services(&local, &service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_one_holder_and_a_used_up_rate_limit_is_waited_for() {
    let (service, directory) = service().await;
    let local = LocalKya::open(service.options(&directory)).unwrap();
    assert!(matches!(LocalKya::open(service.options(&directory)), Err(Error::InUse)));
    service.state().faults.insert((BUNDLES, 1), ServiceFault::Status(429, "Retry-After: 1\r\n"));
    let began = Instant::now();
    let update = local.update().await.unwrap();
    assert_eq!((update.shards, update.requests), (SHARDS, 6));
    assert!(began.elapsed() >= Duration::from_secs(1));
    is_the_services(&local, &service);
    service.asked();
    service.state().faults =
        (0..9).map(|number| ((MANIFESTS, number), ServiceFault::Status(429, "Retry-After: 1\r\n"))).collect();
    let updating = tokio::time::timeout(common::PATIENCE, local.update());
    assert!(matches!(updating.await.unwrap(), Err(Error::Refused { status: 429, .. })));
    assert_eq!(service.asked().len(), 4);
}

#[tokio::test]
async fn nothing_is_chosen_for_the_whole_process() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("registry.kya");
    let local = LocalKya::open(Options::new("https://127.0.0.1:1", 1, Address::ZERO, file)).unwrap();
    assert!(matches!(local.update().await, Err(Error::Unreachable(_))));
    assert!(rustls::crypto::CryptoProvider::get_default().is_none());
}

/// Runs until an event for which `is_enough` returns true.
async fn runs_until(local: &LocalKya, mut is_enough: impl FnMut(Event) -> bool) {
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let running = local.run(|event| sender.send(event).unwrap());
    let hearing = async { while !is_enough(events.recv().await.unwrap()) {} };
    let hearing = async {
        tokio::select! { _ = running => unreachable!(), () = hearing => {} }
    };
    tokio::time::timeout(common::PATIENCE, hearing).await.unwrap();
}

/// Comparisons with a chain that does not answer: nothing listens there.
fn silent_checks() -> SpotChecks {
    SpotChecks { rpc: "http://127.0.0.1:1".to_owned(), every: Duration::from_millis(1), layout: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_updates_and_reports_what_cannot_be_checked() {
    let (service, directory) = service().await;
    let spot_checks = Some(silent_checks());
    let options =
        Options { spot_checks, update_every: Duration::from_millis(1), ..service.options(&directory) };
    let local = LocalKya::open(options).unwrap();
    let (mut updates, mut failures) = (0, 0);
    let enough = |event| {
        match event {
            Event::Updated(update) => updates += u32::from(update.agents == AGENTS),
            Event::CheckFailed(Error::Chain(_)) => failures += 1,
            event => panic!("{event:?}"),
        }
        updates >= 3 && failures >= 2
    };
    runs_until(&local, enough).await;
    is_the_services(&local, &service);
}

#[tokio::test(flavor = "multi_thread")]
async fn lookups_while_updates_write_are_of_one_block_and_never_another_shards() {
    let (service, _directory, local) = held().await;
    let local = Arc::new(local);
    let is_over = Arc::new(AtomicBool::new(false));
    let readers = [0, 1].map(|mut id| {
        let (local, is_over) = (Arc::clone(&local), Arc::clone(&is_over));
        tokio::task::spawn_blocking(move || {
            let mut lookups = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                id = id % AGENTS + 1;
                let verdict = local.kya(wallet(id)).unwrap();
                assert_eq!(verdict.agent.unwrap().agent_id.to_string(), id.to_string());
                // All agents change in each block.
                let is_even = verdict.as_of.block_number.is_multiple_of(2);
                assert_eq!(verdict.decision == Decision::RequestRenewal, is_even);
                lookups += 1;
            }
            lookups
        })
    });
    for _ in 0..20 {
        service.state().registry.toggle(1..=AGENTS);
        local.update().await.unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.await.unwrap() > 0);
    }
}

#[test]
fn a_copy_that_commit_3ad2b3d_wrote_still_knows_its_agents() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/3ad2b3d/local");
    let directory = tempfile::tempdir().unwrap();
    for name in ["registry.kya", "registry.kya.head"] {
        fs::copy(fixture.join(name), directory.path().join(name)).unwrap();
    }
    let registry = "0xe7f1725E7734CE288F8367e1Bb143E90bb3F0512".parse().unwrap();
    let file = directory.path().join("registry.kya");
    let options = Options::new("http://127.0.0.1:1", 31_337, registry, file);
    let local = LocalKya::open(Options { max_age: Duration::MAX, ..options }).unwrap();
    let active = |id| Some((id, Status::Active));
    for (wallet, agent, registration) in [
        ("0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1", active("11"), Registration::Current),
        ("0xb309312A0d70f6ea4bECF0337df3f704aAA0fd12", active("6"), Registration::Current),
        ("0x596D514f5CcCFDb30340BB14F6bb8a39ecD16A58", Some(("1", Status::Suspended)), Registration::Current),
        ("0xF0D914Ce7dACD39f6939076EAD056A8Ee2945746", None, Registration::Former),
        ("0x0101010101010101010101010101010101010101", None, Registration::Never),
    ] {
        let verdict = local.kya(wallet.parse().unwrap()).unwrap();
        assert_eq!(verdict.as_of.block_number, 22);
        assert_eq!(verdict.registration, registration, "{wallet}");
        let found = verdict.agent.map(|agent| (agent.agent_id.to_string(), agent.status));
        assert_eq!(found, agent.map(|(id, status): (&str, _)| (id.to_owned(), status)), "{wallet}");
    }
}
