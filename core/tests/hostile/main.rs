//! Bytes by which a node, or the author of a document, tries to end its reader.
//!
//! 1. No reply of 1 MB makes the core hold more than 16 MB or send more than 8 MB, whichever place decodes
//!    it: offsets that refer to the same bytes thousands of times, and lists of the shortest elements
//!    ([`places`], [`shapes`]).
//! 2. A thousand of them, one after the other, raise the process's resident memory by less than 64 MB.
//! 3. No storage proof of 1 MB makes the maker of evidence hold more than 16 MB.
//! 4. The largest registry and the largest cache fit into their memory ([`memory`]).
//! 5. No changed reply, return value, relay body, shard or manifest panics ([`mutations`], [`snapshots`]).
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

#[path = "../common/mod.rs"]
mod common;
mod memory;
mod mutations;
mod places;
mod shapes;
mod snapshots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::prelude::*;
use peak_alloc::PeakAlloc;
use registry_core::evidence::{self, Layout, Material};
use shapes::MB;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The tests run one at a time, as the count of bytes is of the whole process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What `work` gives, and the bytes that it held at most, beyond what was there before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let value = work();
    (value, ALLOCATED.peak_usage() - before)
}

/// A line of `/proc/self/status`, in bytes.
fn resident(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1_024
}

/// Every other reply of each place, beginning with another one each time; `HOSTILE_STEP=1` tries all.
#[test]
fn no_hostile_reply_of_a_megabyte_is_unrolled_at_any_place() {
    let _turn = turn();
    let step = common::random::setting("HOSTILE_STEP", 2) as usize;
    // The high-water mark of resident memory begins anew.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, mut number, mut tried, mut worst) = (resident("VmRSS"), 0, 0, (0, String::new()));
    let mut unrolled = Vec::new();
    for place in places::all() {
        number += 1;
        for (at, requests) in place.requests().into_iter().enumerate() {
            shapes::replies(at, &requests, &mut |name, reply| {
                number += 1;
                if number % step > 0 {
                    return;
                }
                tried += 1;
                let (sent, held) = peak(|| place.run(at, &reply));
                let what = format!("{}, batch {at}: {name}", place.name);
                if held > 16 * MB || sent > 8 * MB {
                    unrolled.push(format!("{what}: {held} bytes held, {sent} sent"));
                }
                worst = worst.clone().max((held, what));
            });
        }
    }
    let grown = resident("VmHWM").saturating_sub(before);
    println!("{tried} replies, {grown} bytes of resident memory more; most held: {worst:?}");
    assert!(unrolled.is_empty(), "{unrolled:#?}");
    assert!(tried >= 1_000 && grown <= 64 * MB, "{tried} replies, {grown} bytes");
}

#[test]
fn no_hostile_proof_of_a_megabyte_is_unrolled() {
    let _turn = turn();
    let recorded: Value = serde_json::from_str(include_str!("../vectors/evidence/provision.json")).unwrap();
    let slots = recorded["proof"]["storageProof"].as_array().unwrap().iter();
    let slots: Vec<B256> = slots.map(|slot| slot["key"].as_str().unwrap().parse().unwrap()).collect();
    let address = |name: &str| recorded[name].as_str().unwrap().parse::<Address>().unwrap();
    let code = format!("\"{}\"", include_str!("../vectors/evidence/registry_code.hex").trim());
    let block = recorded["block"].to_string();
    for (name, proof) in shapes::proofs(&recorded["proof"]) {
        let ((), held) = peak(|| {
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
