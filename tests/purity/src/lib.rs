//! All of registry-core in a wasm module with nothing else, and without a host.
//!
//! `cargo xtask test` builds it and fails if the module imports anything. Each export drives a part of the
//! core on bytes that the linker cannot know, so that it can leave nothing out.

#![allow(unsafe_code, reason = "an export needs `unsafe(no_mangle)`; no other unsafe code is here")]

use std::sync::atomic::{AtomicU8, Ordering};

use alloy_primitives::Address;
use registry_core::api::question::Question;
use registry_core::api::route::Route;
use registry_core::chain::{Endpoints, Failure, Limits, Reply, Run, Step};
use registry_core::eth::rpc::endpoint::parse_list;
use registry_core::eth::timestamp::Timestamp;
use registry_core::forward::{Rules, SignedRequest, domain};
use registry_core::host::rate_limit::{WindowLimit, WindowTally};

const SIZE: usize = 64 * 1024;

/// Arguments of the other exports, byte by byte.
static INPUT: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];

/// Writes one byte of the input.
#[unsafe(no_mangle)]
pub extern "C" fn put(index: usize, byte: u8) {
    if let Some(place) = INPUT.get(index) {
        place.store(byte, Ordering::Relaxed);
    }
}

fn input(length: usize) -> Vec<u8> {
    INPUT.iter().take(length).map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Answers a question of the read API. The input is a request target and the nodes' replies, separated by
/// zero bytes; an empty one is a time-out. Returns the length of body and ETag, a number of the error, or 0
/// when the replies do not suffice.
#[unsafe(no_mangle)]
pub extern "C" fn read_api(length: usize, now_millis: u64) -> usize {
    let input = input(length);
    let mut parts = input.split(|byte| *byte == 0);
    let target = str::from_utf8(parts.next().unwrap_or_default()).unwrap_or_default();
    let endpoint = match Route::parse(target) {
        Ok(endpoint) => endpoint,
        Err(error) => return error.body().len() + usize::from(error.status()),
    };
    let canonical = endpoint.canonical();
    let question = Question {
        route: endpoint,
        registry: Address::ZERO,
        chain: canonical,
        now: Timestamp::from_millis(now_millis),
        scan: None,
        excerpt: None,
    };
    // No request target is a list of endpoints, but the linker cannot know that.
    let endpoints = parse_list(target).map_or(1, |list| list.len());
    let mut run = Run::new(question, Address::ZERO, Limits::default())
        .over(Endpoints::new(endpoints, Some(now_millis)));
    loop {
        run.passed(endpoints as u32);
        match run.step() {
            Ok(Step::Done(answer)) => return answer.body.len() + answer.etag.len(),
            Ok(Step::Send(batch)) => {
                let Some(body) = parts.next() else { return 0 };
                let status = if batch.body.is_empty() { 500 } else { 200 };
                let fed = match body {
                    [] => run.fail(Failure::TimedOut),
                    body => run.feed(Reply { status, body }),
                };
                if fed.is_err() {
                    return 0;
                }
            }
            Err(error) => return error.status().into(),
        }
    }
}

/// Checks a signed request, given as JSON: 0 for a valid one, the refusal's status, or 1 for bad JSON.
#[unsafe(no_mangle)]
pub extern "C" fn forward(length: usize, chain_id: u64, now_seconds: u64) -> u32 {
    let Ok(signed) = SignedRequest::from_json(&input(length)) else { return 1 };
    let rules = Rules { registry: signed.request.to, max_gas: 1_000_000 };
    match rules.check(&signed, &domain(chain_id, signed.request.from), now_seconds) {
        Ok(()) => 0,
        Err(refusal) => refusal.status().into(),
    }
}

/// Charges one client; returns its remaining requests, or -1 where there is no limit.
#[unsafe(no_mangle)]
pub extern "C" fn window(requests: u32, window_seconds: u64, now_seconds: u64) -> i64 {
    let limit = WindowLimit { requests, window_seconds };
    limit.charge(&mut WindowTally::default(), now_seconds).map_or(-1, |verdict| verdict.remaining.into())
}
