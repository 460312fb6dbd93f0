//! The replies: 1 MB each of anything that a decoder may unroll.

use alloy_primitives::{Bytes, hex};
use alloy_sol_types::{Revert, SolCall, SolError, SolEvent, SolInterface};
use registry_core::chain::lens::LENS_ADDRESS;
use registry_core::eth::abi::IAgentRegistry::{AgentSuspended, RevenueReported};
use registry_core::eth::abi::IMulticall3::{self, IMulticall3Calls};
use registry_core::eth::abi::IRegistryLens::walkCall;

use crate::{common::prelude::*, places::HonestExchange};

pub(crate) const MB: usize = 1_000_000;
/// Bytes of return data: their hexadecimal digits make a reply of 1 MB.
const HALF: usize = 490_000;

/// Repeats a piece between head and tail up to 1 MB.
fn fill(head: &str, piece: &str, tail: &str) -> String {
    let count = (MB - head.len() - tail.len()) / piece.len();
    format!("{head}{}{tail}", piece.repeat(count).trim_end_matches(','))
}

/// Encodes numbers as ABI words.
fn words(words: &[usize]) -> Vec<u8> {
    words.iter().flat_map(|word| U256::from(*word).to_be_bytes::<32>()).collect()
}

/// Encodes an array of offsets that all lead to the same element.
fn repeated(place: &[u8]) -> Vec<u8> {
    let count = (HALF - place.len()) / 32;
    let mut data = words(&[32, count]);
    (0..count).for_each(|_| data.extend(words(&[count * 32])));
    data.extend(place);
    data
}

/// Encodes bytes behind their length.
fn sized(bytes: &[u8]) -> Vec<u8> {
    [words(&[bytes.len()]), bytes.to_vec()].concat()
}

/// A consumer of named replies, one at a time, as all of them take gigabytes.
type ReplySink<'a, T> = &'a mut dyn FnMut(&str, T);

/// Makes return data of one call. Bytes that are not UTF-8 triple when they are decoded.
fn returns(each: ReplySink<'_, Vec<u8>>) {
    for size in [0, 13_125, 250_000] {
        let text = sized(&vec![0xff; size]);
        let report = [words(&[1, 2, 7 * 32, 7 * 32, 5, 6, 7]), text.clone()].concat();
        each(&format!("reports of {size} bytes"), repeated(&report));
        each(&format!("a record around texts of {size} bytes"), repeated(&text));
    }
    let mut record = words(&[32]);
    record.extend([[0; 32]; 6].concat());
    record.extend(words(&[14 * 32]));
    record.extend([[0; 32]; 7].concat());
    for (name, byte) in [("control characters", 0), ("no UTF-8", 0xff)] {
        let scope = sized(&vec![byte; HALF - 1_000]);
        each(&format!("a scope of {name}"), [record.clone(), scope].concat());
    }
    each("ids", [words(&[32, 15_000]), vec![1; 15_000 * 32]].concat());
}

/// Makes return data of `aggregate3`; `honest` is an honest node's.
fn aggregates(honest: &[u8], each: ReplySink<'_, Vec<u8>>) {
    for success in [0, 1] {
        for size in [0, 4, 13_125, 60_000, 400_000] {
            let result = [words(&[success, 64]), sized(&vec![0xff; size])].concat();
            each(&format!("results {success} of {size} bytes"), repeated(&result));
        }
    }
    let honest = IMulticall3::aggregate3Call::abi_decode_returns(honest).unwrap();
    let mut with = |place: usize, name: &str, success: bool, data: &[u8]| {
        let mut results = honest.clone();
        results[place] = IMulticall3::Result { success, returnData: Bytes::copy_from_slice(data) };
        let data = IMulticall3::aggregate3Call::abi_encode_returns(&results);
        each(&format!("{name} of call {place}"), data);
    };
    // The first four calls are for the block. The next four cover every kind of call.
    for place in (4..8).filter(|place| *place < honest.len()) {
        returns(&mut |name, data| with(place, name, true, &data));
        let reason = Revert { reason: "x".repeat(HALF - 10_000) };
        with(place, "a revert", false, &reason.abi_encode());
    }
}

/// Makes answers of the lens.
fn slices(data: &[u8], each: ReplySink<'_, Vec<u8>>) {
    let call = walkCall::abi_decode(data).unwrap();
    let full = call.detail == U256::from(2);
    let row = if full { 86 } else { 62 };
    let head = |rows: usize| [&[1][..], &[0; 48], &(rows as u32).to_be_bytes(), &[0; 8]].concat();
    let rows = |status: u8, count: usize| {
        let mut rows = vec![0_u8; row * count];
        rows.chunks_mut(row).for_each(|row| row[0] = status);
        [head(count), rows].concat()
    };
    let sum = |kind: u8, text: &[u8]| {
        let owner = if full { &call.first.to_be_bytes::<32>()[24..] } else { &[] };
        [&[kind][..], &((owner.len() + text.len()) as u32).to_be_bytes(), &[9; 40], owner, text].concat()
    };
    let sums = (0..8_000_u32).flat_map(|text| sum(u8::from(text % 2 == 0), &text.to_be_bytes()[1..]));
    let scope = [&[2][..], &(HALF as u32 - 1_000).to_be_bytes(), &vec![0xff; HALF - 1_000]].concat();
    let scopes = [2, 0, 0, 0, 0].repeat(5_000);
    each("rows", rows(0, HALF / row - 1));
    each("unreadable rows", rows(255, HALF / row - 1));
    each("sums", [rows(0, 1), sums.collect()].concat());
    each("a long sum", [rows(0, 1), sum(0, &vec![0xff; HALF - 1_000])].concat());
    each("a long scope", [rows(0, 1), scope].concat());
    each("scopes", [rows(0, 5_000), scopes].concat());
}

/// Makes lists of logs.
fn logs(filter: &Value, each: ReplySink<'_, String>) {
    let (agent, by) = (B256::from(U256::from(1)), B256::ZERO);
    let log = |event: B256, data: &[u8]| {
        json!({
            "address": REGISTRY, "topics": [event, agent, by], "data": hex::encode_prefixed(data),
            "blockNumber": filter["fromBlock"], "blockHash": B256::ZERO, "transactionHash": B256::ZERO,
            "logIndex": "0x0",
        })
        .to_string()
    };
    let text = sized(&vec![0xff; HALF - 2_000]);
    let suspended = log(AgentSuspended::SIGNATURE_HASH, &[words(&[32]), text.clone()].concat());
    let reported = log(RevenueReported::SIGNATURE_HASH, &[words(&[7, 96, 96]), text].concat());
    let small = log(AgentSuspended::SIGNATURE_HASH, &words(&[32, 0]));
    let empty = r#"{"address":"","topics":[],"data":"","blockNumber":"","blockHash":"","transactionHash":"","logIndex":""},"#;
    each("empty logs", fill("[", "{},", "{}]"));
    each("logs without topics", fill("[", r#"{"topics":[]},"#, "{}]"));
    each("empty topics", fill(r#"[{"topics":["#, r#""","#, r#"""]}]"#));
    each("logs of empty members", fill("[", empty, "]"));
    each("small logs", fill("[", &format!("{small},"), "]"));
    each("a long reason", format!("[{suspended}]"));
    each("a report with one text for two", format!("[{reported}]"));
}

/// Makes results of `eth_getProof` from an honest one.
pub(crate) fn proofs(honest: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let (mark, storage) = (json!("MARK"), honest["storageProof"].as_array().unwrap().clone());
    let mut with = |name: &str, proof: &Value| {
        let text = proof.to_string();
        let (head, tail) = text.split_once("\"MARK\"").unwrap();
        for (kind, piece) in [
            ("numbers", "0,"),
            ("lists", "[],"),
            ("objects", "{},"),
            ("texts", "\"\","),
            ("nodes", "\"0x\","),
            ("slots", r#"{"key":"0x0","value":"0x0","proof":[]},"#),
        ] {
            all.push((format!("{kind} in {name}"), fill(&format!("{head}["), piece, &format!("]{tail}"))));
        }
        all.push((
            format!("members of {name}"),
            fill(&format!("{head}{{"), r#""a":0,"#, &format!("}}{tail}")),
        ));
        let long = format!(r#""0x{}""#, "c0".repeat(HALF - 10_000));
        all.push((format!("a node of {name}"), format!("{head}[{long}]{tail}")));
    };
    for member in ["accountProof", "storageProof"] {
        let mut proof = honest.clone();
        proof[member] = mark.clone();
        with(member, &proof);
    }
    let mut proof = honest.clone();
    let mut slots = storage;
    slots[0]["proof"] = mark;
    proof["storageProof"] = slots.into();
    with("proof", &proof);
    all
}

/// Makes results that fit no method, and errors.
fn anything(each: ReplySink<'_, String>) {
    let reason = hex::encode_prefixed(Revert { reason: "x".repeat(HALF - 1_000) }.abi_encode());
    for (name, outcome) in [
        ("numbers", fill(r#""result":["#, "0,", "]")),
        ("texts", fill(r#""result":["#, "\"\",", "]")),
        ("objects", fill(r#""result":["#, "{},", "]")),
        ("a text", fill(r#""result":""#, r"\u00e4", "\"")),
        ("error data", fill(r#""error":{"code":3,"message":"execution reverted","data":["#, "0,", "0]}")),
        (
            "error objects",
            fill(r#""error":{"message":"execution reverted","data":{"data":["#, "{},", "{}]}}"),
        ),
        ("members of an error", fill(r#""error":{"message":"x","data":{"#, r#""a":0,"#, r#""b":0}}"#)),
        ("a message", fill(r#""error":{"code":3,"message":"execution reverted: "#, "ab", r#""}"#)),
        ("escapes", fill(r#""error":{"code":-32000,"message":""#, r"\u00e4", r#""}"#)),
        ("a reason", format!(r#""error":{{"code":3,"message":"","data":"{reason}"}}"#)),
    ] {
        each(name, outcome);
    }
}

/// Makes bodies that fit no request.
fn bodies(each: ReplySink<'_, String>) {
    for (name, body) in [
        ("answers", fill("[", "{},", "{}]")),
        ("answers with an id", fill("[", r#"{"id":0,"result":0},"#, "{}]")),
        ("stray errors", fill("[", r#"{"error":""},"#, "{}]")),
        ("ids within an id", fill(r#"{"id":["#, "0,", r#"0],"result":"0x"}"#)),
        ("brackets", "[".repeat(MB)),
        ("braces", r#"{"a":"#.repeat(MB / 5)),
    ] {
        each(name, body);
    }
}

/// Makes replies to a batch: for each request every result that fits its method, and for the first batch also
/// those that fit any or none.
pub(crate) fn replies(at: usize, batch: &[HonestExchange], each: ReplySink<'_, String>) {
    if at == 0 {
        bodies(each);
    }
    for (place, HonestExchange { request, result: honest }) in batch.iter().enumerate() {
        let (method, call) = (request["method"].as_str().unwrap(), &request["params"][0]);
        let mut reply = |name: &str, outcome: String| {
            let outcome_of = |(other, HonestExchange { request, result }): (usize, &HonestExchange)| {
                let honest = || format!(r#""result":{result}"#);
                let outcome = if other == place { outcome.clone() } else { honest() };
                format!(r#"{{"id":{},{outcome}}}"#, request["id"])
            };
            let outcomes: Vec<String> = batch.iter().enumerate().map(outcome_of).collect();
            each(&format!("{name} in {method} {place}"), format!("[{}]", outcomes.join(",")));
        };
        if at == 0 {
            anything(&mut reply);
        }
        let bytes = |value: &Value| hex::decode(value.as_str().unwrap_or("0x")).unwrap_or_default();
        let mut result = |name: &str, json: String| reply(name, format!(r#""result":{json}"#));
        let mut data =
            |name: &str, data: Vec<u8>| result(name, json!(hex::encode_prefixed(data)).to_string());
        match method {
            "eth_call" if call["to"] == LENS_ADDRESS.to_string().to_lowercase() => {
                slices(&bytes(&call["data"]), &mut data);
            }
            "eth_call" if IMulticall3Calls::abi_decode(&bytes(&call["data"])).is_ok() => {
                aggregates(&bytes(honest), &mut data);
            }
            "eth_call" => returns(&mut data),
            "eth_getLogs" => logs(call, &mut result),
            _ => {
                let header = honest.to_string();
                let head = header.trim_end_matches('}');
                result("members of a header", fill(&format!("{head},"), r#""a":0,"#, r#""b":0}"#));
                result("uncles", fill(&format!(r#"{head},"uncles":["#), "0,", "]}"));
            }
        }
    }
}
