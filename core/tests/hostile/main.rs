//! Bytes with which a node, or the author of a document, tries to exhaust or crash its reader.
//!
//! [`places`], [`shapes`]: replies of 1 MB to each reader that decodes them. [`memory`]: the cost of honest
//! answers. [`mutations`], [`snapshots`]: no changed input panics.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

#[path = "../common/mod.rs"]
mod common;
mod memory;
mod mutations;
mod places;
mod shapes;
mod snapshots;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::recorded::Recorded;
use peak_alloc::PeakAlloc;
use registry_core::evidence;
use shapes::MB;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// Lets the tests run one at a time, as bytes are counted for the whole process.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the result of `work`, and the most bytes that it held beyond those allocated before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let value = work();
    (value, ALLOCATED.peak_usage() - before)
}

/// Tries every fourth reply to each reader, with a varying start; `HOSTILE_STEP=1` tries all.
#[test]
fn no_hostile_reply_of_a_megabyte_is_unrolled_at_any_place() {
    let _turn = turn();
    let step = common::random::setting("HOSTILE_STEP", 4) as usize;
    let (mut number, mut tried) = (0, 0);
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
                if held > 16 * MB || sent > 8 * MB {
                    let what = format!("{}, batch {at}: {name}", place.name);
                    unrolled.push(format!("{what}: {held} bytes held, {sent} sent"));
                }
            });
        }
    }
    assert!(unrolled.is_empty(), "{unrolled:#?}");
    assert!(tried >= 1_000, "{tried} replies");
}

#[test]
fn no_hostile_proof_of_a_megabyte_is_unrolled() {
    let _turn = turn();
    let recorded = Recorded::load("provision");
    let block = recorded.block.to_string();
    for (name, proof) in shapes::proofs(&recorded.proof) {
        let ((), held) = peak(|| {
            let material = recorded.material(&block, &proof);
            let _ = material.needed_slots();
            assert!(evidence::make(&material).is_err(), "{name}");
        });
        assert!(held <= 16 * MB, "{name}: {held} bytes held");
    }
}
