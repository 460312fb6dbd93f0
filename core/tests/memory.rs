//! The memory that a reply costs, measured with a counting allocator. The tests run one at a time, as the
//! count is of the whole process.
//!
//! 1. No reply of 1 MB makes the core hold more than 16 MB, whichever of its fields repeats itself.
//! 2. What goes out is bounded by what came in.
//! 3. The largest registry that is answered for fits into 64 MiB, with the largest answer about it.
//! 4. A larger one is refused after one round trip.
//! 5. A cache takes no more memory than its capacity, however long the keys are that clients choose.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

use std::sync::Mutex;

use alloy_primitives::{Address, B256, U256, hex};
use alloy_sol_types::{SolCall, SolInterface, SolValue};
use peak_alloc::PeakAlloc;
use registry_core::{
    api::error::Error,
    api::question::Question,
    api::route::Route,
    chain::MAX_AGENTS,
    chain::lens::LENS_ADDRESS,
    chain::{Batch, Limits, Reply, Run, Step, drive},
    eth::abi::{
        IMulticall3::{self, IMulticall3Calls},
        IRegistryLens::walkCall,
    },
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheLookup, ReadOutcome},
    registry::error_code::Code,
};
use serde_json::Value;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

static TURN: Mutex<()> = Mutex::new(());

const MB: usize = 1_000_000;

/// Bytes that `work` held at most, beyond what was there before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let value = work();
    (value, ALLOCATED.peak_usage() - before)
}

fn run(target: &str) -> Run<Question> {
    let question = Question {
        route: Route::parse(target).unwrap(),
        registry: Address::repeat_byte(0x42),
        chain: "http://node".into(),
        now: Timestamp::from_seconds(1_800_000_000),
        scan: None,
        excerpt: None,
    };
    Run::new(question, CANONICAL_ADDRESS, Limits::default())
}

/// An ABI head of so many words.
fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| U256::from(*word).to_be_bytes::<32>()).collect()
}

/// Offsets that all lead to the same place, and as much behind them as fills half a megabyte.
fn repeated(place: &[u8]) -> Vec<u8> {
    let count = (500_000 - place.len()) / 32;
    let mut data = words(&[32, count]);
    (0..count).for_each(|_| data.extend(words(&[count * 32])));
    data.extend(place);
    data
}

/// Return data of each kind that repeats something: what a call inside `aggregate3` returns.
fn repeating_returns() -> Vec<(&'static str, Vec<u8>)> {
    // A report whose two texts are the rest of the data: of 250 KB, 15,000 times over.
    let mut report = words(&[1, 2, 7 * 32, 7 * 32, 5, 6, 7, 200_000]);
    report.resize(report.len() + 250_000, b'x');
    let mut record = words(&[32]);
    record.extend([[0; 32]; 6].concat());
    record.extend(words(&[14 * 32]));
    record.extend([[0; 32]; 7].concat());
    record.extend(words(&[490_000]));
    record.resize(record.len() + 490_000, 0);
    let ids = [words(&[32, 15_600]), vec![1; 15_600 * 32]].concat();
    vec![("reports", repeated(&report)), ("a scope of control characters", record), ("ids", ids)]
}

/// Replies of 1 MB to `batch`, each of which repeats one of its fields.
fn repeating_replies(batch: &Batch) -> Vec<(&'static str, String)> {
    let fill = |head: &str, piece: &str, tail: &str| {
        let count = (MB - head.len() - tail.len()) / piece.len();
        format!("{head}{}{tail}", piece.repeat(count).trim_end_matches(','))
    };
    let body: Value = serde_json::from_str(&batch.body).unwrap();
    let requests = body.as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
    let mut replies = vec![
        ("answers", fill("[", "{},", "{}]")),
        ("answers with an id", fill("[", r#"{"id":0,"result":0},"#, "{}]")),
        ("stray errors", fill("[", r#"{"error":""},"#, "{}]")),
        ("ids within an id", fill(r#"{"id":["#, "0,", r#"0],"result":"0x"}"#)),
        ("nested ids", fill(r#"{"id":["#, "[],", r#"0],"result":"0x"}"#)),
        (
            "error data",
            fill(r#"{"id":0,"error":{"code":3,"message":"execution reverted","data":["#, "0,", "0]}}"),
        ),
        (
            "error objects",
            fill(r#"{"id":0,"error":{"message":"execution reverted","data":{"data":["#, "{},", "{}]}}}"),
        ),
        (
            "fields of an error",
            fill(r#"{"id":0,"error":{"message":"x","data":{"#, r#""a":0,"#, r#""b":0}}}"#),
        ),
        ("messages", fill(r#"{"id":0,"error":{"code":-32000,"message":""#, "a ", r#""}}"#)),
        ("escapes", fill(r#"{"id":0,"error":{"code":-32000,"message":""#, r"\u00e4", r#""}}"#)),
        ("commas", ",".repeat(MB)),
        ("brackets", "[".repeat(MB)),
        ("braces", r#"{"a":"#.repeat(MB / 5)),
    ];
    for request in requests {
        let (id, call) = (&request["id"], &request["params"][0]);
        let answer = |name, data: Vec<u8>| {
            (name, format!(r#"[{{"id":{id},"result":"{}"}}]"#, hex::encode_prefixed(data)))
        };
        if call["to"].as_str() == Some(&LENS_ADDRESS.to_string().to_lowercase()) {
            let row = vec![0_u8; 62 * 8_000];
            let head = |rows: u32| [&[1][..], &[0; 48], &rows.to_be_bytes(), &[0; 8]].concat();
            replies.push(answer("rows", [head(8_000), row].concat()));
            let sum = |text: &[u8]| [&[0][..], &(text.len() as u32).to_be_bytes(), &[9; 40], text].concat();
            let sums: Vec<u8> = (0..10_000_u32).flat_map(|text| sum(&text.to_be_bytes())).collect();
            replies.push(answer("sums", [head(0), sums].concat()));
        } else if let Some(data) = call["data"].as_str() {
            let data = hex::decode(data).unwrap();
            let Ok(IMulticall3Calls::aggregate3(aggregate)) = IMulticall3Calls::abi_decode(&data) else {
                continue;
            };
            let result = words(&[1, 64, 60_000]);
            replies.push(answer("results", repeated(&[result, vec![7; 60_000]].concat())));
            for (name, data) in repeating_returns() {
                let result =
                    |data: &[u8]| IMulticall3::Result { success: true, returnData: data.to_vec().into() };
                let mut results = vec![result(&B256::ZERO.abi_encode()); aggregate.calls.len()];
                // The smallest registry first: it decides what all others are read as.
                *results.last_mut().unwrap() = result(&data);
                replies.push(answer(name, IMulticall3::aggregate3Call::abi_encode_returns(&results)));
            }
        }
    }
    replies
}

const TARGETS: [&str; 9] = [
    "/api/v1/stats",
    "/api/v1/agent/1",
    "/api/v1/agent/1/revenue?limit=500",
    "/api/v1/agent/1/lineage",
    "/api/v1/agents?limit=1",
    "/api/v1/agents/compliance",
    "/api/v1/revenue/aggregate",
    "/api/v1/stats/detailed",
    "/api/v1/kya/0x0000000000000000000000000000000000000001",
];

#[test]
fn no_reply_of_a_megabyte_makes_the_core_hold_sixteen() {
    let _turn = TURN.lock();
    let mut worst = (0, String::new());
    for target in TARGETS {
        let first = match run(target).step() {
            Ok(Step::Send(batch)) => batch,
            other => panic!("{other:?}"),
        };
        for (name, reply) in repeating_replies(&first) {
            let (sent, held) = peak(|| {
                let mut run = run(target);
                // Twice, so that what was kept of the first is there when the second comes.
                for _ in 0..2 {
                    match run.step() {
                        Ok(Step::Send(_)) => {}
                        Ok(Step::Done(answer)) => return answer.body.len(),
                        Err(error) => return error.body().len(),
                    }
                    let body = reply.clone().into_bytes();
                    if run.feed(Reply { status: 200, body: &body }).is_err() {
                        break;
                    }
                }
                match run.step() {
                    Ok(Step::Done(answer)) => answer.body.len(),
                    _ => 0,
                }
            });
            assert!(held <= 16 * MB, "{target}: {name}: {held} bytes held");
            assert!(sent <= 8 * MB, "{target}: {name}: {sent} bytes sent");
            if held > worst.0 {
                worst = (held, format!("{target}: {name}"));
            }
        }
    }
    println!("most memory for a reply of 1 MB: {} bytes, {}", worst.0, worst.1);
}

/// A node of a registry that is computed from its ids: all agents are active roots.
fn large_node(batch: &Batch, agents: u64) -> Vec<u8> {
    let body: Value = serde_json::from_str(&batch.body).unwrap();
    let requests = body.as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
    let mut reply = String::from("[");
    for request in requests {
        let data = request["params"][0]["data"].as_str().map(|data| hex::decode(data).unwrap());
        let result = match data {
            None => format!(
                r#"{{"number":"0x64","hash":"{}","parentHash":"{}","timestamp":"0x6b49d200"}}"#,
                B256::repeat_byte(1),
                B256::ZERO
            ),
            Some(data) if data.starts_with(&walkCall::SELECTOR) => {
                let call = walkCall::abi_decode(&data).unwrap();
                let first = call.first.to::<u64>();
                let count = call.count.to::<u64>().min(1_100).min((agents + 1).saturating_sub(first));
                let mut answer = [&[1][..], &[0; 48], &(count as u32).to_be_bytes(), &[0; 8]].concat();
                for id in first..first + count {
                    answer.extend([0, 0]);
                    answer.extend(Address::left_padding_from(&id.to_be_bytes()));
                    answer.extend(1_799_000_000_u64.to_be_bytes());
                    answer.extend(&(1_799_000_000 - id).to_be_bytes()[3..]);
                    answer.extend([0; 7]);
                    answer.extend(Address::left_padding_from(&id.to_be_bytes()));
                }
                format!("\"{}\"", hex::encode_prefixed(answer))
            }
            Some(data) => {
                let Ok(IMulticall3Calls::aggregate3(aggregate)) = IMulticall3Calls::abi_decode(&data) else {
                    panic!("unexpected call");
                };
                let results: Vec<IMulticall3::Result> = aggregate
                    .calls
                    .iter()
                    .map(|call| {
                        let number = match call.callData.len() {
                            // The marker's parent hash is that of the header; everything else is a number.
                            4 if call.target == CANONICAL_ADDRESS => U256::ZERO,
                            4 => U256::from(agents + 1),
                            _ => U256::MAX,
                        };
                        let success = number != U256::MAX;
                        let data = if success { number.abi_encode() } else { vec![1, 2, 3, 4] };
                        IMulticall3::Result { success, returnData: data.into() }
                    })
                    .collect();
                let data = IMulticall3::aggregate3Call::abi_encode_returns(&results);
                format!("\"{}\"", hex::encode_prefixed(data))
            }
        };
        reply.push_str(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}},"#, request["id"]));
    }
    reply.pop();
    reply.push(']');
    reply.into_bytes()
}

/// The answer, its round trips, and the peak of held bytes, which includes the node's.
fn ask(target: &str, agents: u64) -> (Result<String, Error>, usize, usize) {
    let ((answer, trips), held) = peak(|| {
        let mut trips = 0;
        let answer = drive(run(target), |batch| {
            trips += 1;
            (200, large_node(batch, agents))
        });
        (answer, trips)
    });
    (answer.map(|document| document.body), trips, held)
}

#[test]
fn the_largest_registry_is_answered_for_within_64_mib() {
    let _turn = TURN.lock();
    for target in &TARGETS[5..8] {
        let (answer, trips, held) = ask(target, MAX_AGENTS);
        println!("{target}: {MAX_AGENTS} agents, {trips} round trips, {held} bytes held");
        answer.unwrap();
        assert!(held <= 64 << 20, "{target}: {held} bytes held");
    }
}

#[test]
fn ten_thousand_agents_take_two_round_trips() {
    let _turn = TURN.lock();
    for target in ["/api/v1/agents/compliance", "/api/v1/stats/detailed"] {
        let (answer, trips, _) = ask(target, 10_000);
        answer.unwrap();
        assert_eq!(trips, 2, "{target}");
    }
}

#[test]
fn a_larger_registry_is_refused_after_one_round_trip() {
    let _turn = TURN.lock();
    let (answer, trips, _) = ask("/api/v1/agents/compliance", MAX_AGENTS + 1);
    assert_eq!((answer.unwrap_err().code(), trips), (Code::TooLarge, 1));
}

#[test]
fn a_cache_of_long_searches_takes_no_more_memory_than_its_capacity() {
    let _turn = TURN.lock();
    // A search has at most 200 characters, of up to four bytes each.
    let word = "%F0%A0%80%80".repeat(190);
    let route = |number: u32| {
        let target = format!("/api/v1/agents?q={number}+{word}");
        Route::parse(&target).unwrap()
    };
    let capacity = 4 * MB;
    let (cache, held) = peak(|| {
        let mut cache: Cache<Route, Result<u64, Error>> = Cache::new(capacity);
        for number in 0..30_000 {
            let (key, arrival) = (route(number), cache.arrive());
            let CacheLookup::Read(lease) = cache.look_up(&key, arrival, 0, 5_000) else { panic!("{number}") };
            cache.finish(&key, &lease, Err(Error::IndexRequired), ReadOutcome::Failure { millis: 5_000 }, 0);
        }
        cache
    });
    assert!(cache.bytes() <= capacity && held <= capacity * 5 / 4, "{} counted, {held} held", cache.bytes());
}
