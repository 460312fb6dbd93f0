//! Replies of 1 MB by which a node tries to end its reader, at every place where a node's bytes are decoded:
//! offsets that refer to the same bytes thousands of times, and lists of the shortest elements.
//!
//! 1. None makes the core hold more than 16 MB.
//! 2. A thousand of them, one after the other, raise the process's resident memory by less than 64 MB.
//! 3. No storage proof of 1 MB makes the maker of evidence hold more than 16 MB.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

#[path = "../common/mod.rs"]
mod common;
#[path = "../index/database.rs"]
mod database;
mod places;
mod shapes;

use std::sync::Mutex;

use alloy_primitives::{Address, B256};
use peak_alloc::PeakAlloc;
use registry_core::evidence::{self, Layout, Material};
use serde_json::Value;
use shapes::MB;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The tests run one at a time, as the count of bytes is of the whole process.
static TURN: Mutex<()> = Mutex::new(());

/// Bytes that `work` held at most, beyond what was there before.
fn peak(work: impl FnOnce()) -> usize {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    work();
    ALLOCATED.peak_usage() - before
}

/// A line of `/proc/self/status`, in bytes.
fn resident(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1_024
}

#[test]
fn no_hostile_reply_of_a_megabyte_is_unrolled_at_any_place() {
    let _turn = TURN.lock();
    // The high-water mark of resident memory begins anew.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, mut replies, mut worst) = (resident("VmRSS"), 0, (0, String::new()));
    let mut unrolled = Vec::new();
    for place in places::all() {
        for (at, requests) in place.requests().into_iter().enumerate() {
            shapes::replies(at, &requests, &mut |name, reply| {
                let held = peak(|| place.run(at, &reply));
                let what = format!("{}, batch {at}: {name}", place.name);
                if held > 16 * MB {
                    unrolled.push(format!("{what}: {held} bytes held"));
                }
                if held > worst.0 {
                    worst = (held, what);
                }
                replies += 1;
            });
        }
    }
    let grown = resident("VmHWM").saturating_sub(before);
    println!(
        "{replies} replies, {grown} bytes of resident memory more; most held: {} by {}",
        worst.0, worst.1
    );
    assert!(unrolled.is_empty(), "{unrolled:#?}");
    assert!(replies >= 1_000 && grown <= 64 * MB, "{replies} replies, {grown} bytes");
}

#[test]
fn no_hostile_proof_of_a_megabyte_is_unrolled() {
    let _turn = TURN.lock();
    let read = |name: &str| {
        let path = format!("{}/tests/vectors/evidence/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(path).unwrap()
    };
    let recorded: Value = serde_json::from_str(&read("provision.json")).unwrap();
    let slots: Vec<B256> = recorded["proof"]["storageProof"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| slot["key"].as_str().unwrap().parse().unwrap())
        .collect();
    let address = |name: &str| recorded[name].as_str().unwrap().parse::<Address>().unwrap();
    let (code, block) = (format!("\"{}\"", read("registry_code.hex").trim()), recorded["block"].to_string());
    for (name, proof) in shapes::proofs(&recorded["proof"]) {
        let held = peak(|| {
            let material = Material {
                wallet: address("wallet"),
                registry: address("registry"),
                chain_id: recorded["chainId"].as_u64().unwrap(),
                layout: Layout::AGENT_REGISTRY,
                slots: &slots,
                block: &block,
                proof: &proof,
                code: &code,
            };
            let _ = material.needed_slots();
            assert!(evidence::make(&material).is_err(), "{name}");
        });
        assert!(held <= 16 * MB, "{name}: {held} bytes held");
    }
}
