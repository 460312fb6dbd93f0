//! A node that knows headers and events, and serves the events as real ones do: capped, pruned, wrong, or not
//! at all.

use alloy_primitives::{B256, keccak256};
use alloy_sol_types::SolEvent;
use registry_core::chain::{Batch, Failure};
use serde_json::{Value, json};

use crate::{
    REGISTRY,
    common::{batch_too_large, number_of, response},
};

/// The newest block.
pub(crate) const HEAD: u64 = 5_000_000;
const GENESIS: u64 = 1_790_000_000;
/// Several blocks share a second.
pub(crate) const fn seconds(number: u64) -> u64 {
    GENESIS + number / 5
}

/// How a node serves events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    All,
    /// Of so many blocks at a time.
    Blocks(u64),
    /// So many at a time.
    Results(usize),
    /// In replies of so many bytes.
    Bytes(usize),
    /// From this block on; before it says that there are none.
    From(u64),
    Nothing,
    Unsupported,
    /// Not in batches.
    NoBatches,
}

/// A node that knows headers and events, and nothing else.
pub(crate) struct EventNode {
    pub(crate) head: B256,
    /// Events, and the heights of their blocks.
    pub(crate) logs: Vec<(u64, Value)>,
    pub(crate) serves: Serves,
    /// Logs say when their block was.
    pub(crate) times_logs: bool,
    /// Puts a log into every answer that was not asked for.
    pub(crate) lies: Option<fn(&mut Value)>,
    /// Headers are kept from this block on, and how older ones are denied.
    pub(crate) headers_from: u64,
    pub(crate) denial: Option<(i64, &'static str)>,
    pub(crate) calls: usize,
    pub(crate) batches: usize,
}

impl EventNode {
    pub(crate) fn new(head: B256) -> Self {
        let (serves, denial, lies) = (Serves::All, None, None);
        let (headers_from, calls, batches) = (0, 0, 0);
        Self { head, logs: Vec::new(), serves, times_logs: true, lies, headers_from, denial, calls, batches }
    }

    fn hash(&self, number: u64) -> B256 {
        if number == HEAD { self.head } else { keccak256(number.to_be_bytes()) }
    }

    pub(crate) fn emit(&mut self, number: u64, event: &impl SolEvent) {
        let data = event.encode_log_data();
        let index = self.logs.iter().filter(|(block, _)| *block == number).count() + 3;
        let log = json!({
            "address": format!("{REGISTRY:#x}"),
            "topics": data.topics(),
            "data": data.data,
            "blockNumber": format!("{number:#x}"),
            "blockHash": self.hash(number),
            "blockTimestamp": format!("{:#x}", seconds(number)),
            "transactionHash": keccak256([number.to_be_bytes(), (index as u64).to_be_bytes()].concat()),
            "transactionIndex": "0x0",
            "logIndex": format!("{index:#x}"),
            "removed": false,
        });
        self.logs.push((number, log));
    }

    pub(crate) fn post(&mut self, batch: &Batch) -> Result<Vec<u8>, Failure> {
        self.batches += 1;
        let requests: Value = serde_json::from_str(&batch.body).unwrap();
        let Value::Array(requests) = requests else {
            return Ok(self.answer(&requests).to_string().into_bytes());
        };
        if self.serves == Serves::NoBatches {
            return Ok(response(&Value::Null, Err(batch_too_large())).to_string().into_bytes());
        }
        let answers: Vec<Value> = requests.iter().map(|request| self.answer(request)).collect();
        let body = Value::from(answers).to_string().into_bytes();
        match self.serves {
            Serves::Bytes(most) if body.len() > most => Err(Failure::TooLarge),
            _ => Ok(body),
        }
    }

    fn answer(&mut self, request: &Value) -> Value {
        let number = |text: &Value| number_of(text.as_str().unwrap());
        let params = &request["params"];
        let outcome = match request["method"].as_str().unwrap() {
            "eth_getBlockByNumber" => {
                let number = number(&params[0]);
                assert!(number <= HEAD);
                let parent = self.hash(number.saturating_sub(1));
                match self.denial {
                    Some(denial) if number < self.headers_from => Err(denial),
                    None if number < self.headers_from => Ok(Value::Null),
                    _ => Ok(json!({
                        "number": params[0], "hash": self.hash(number), "parentHash": parent,
                        "timestamp": format!("{:#x}", seconds(number)),
                    })),
                }
            }
            "eth_getLogs" => {
                self.calls += 1;
                let filter = &params[0];
                assert_eq!(filter["address"], format!("{REGISTRY:#x}"));
                self.list((number(&filter["fromBlock"]), number(&filter["toBlock"])), &filter["topics"])
            }
            other => panic!("{other}"),
        };
        let error = |(code, message)| json!({"code": code, "message": message});
        response(&request["id"], outcome.map_err(error))
    }

    fn list(&self, (from, to): (u64, u64), topics: &Value) -> Result<Value, (i64, &'static str)> {
        let first = match self.serves {
            Serves::Unsupported => return Err((-32601, "the method eth_getLogs does not exist")),
            Serves::Blocks(most) if to - from + 1 > most => return Err((-32005, "block range is too large")),
            Serves::Nothing => u64::MAX,
            Serves::From(first) => first,
            _ => 0,
        };
        let is_asked = |(number, log): &&(u64, Value)| {
            let matches = |position: usize| {
                topics[position].as_array().is_none_or(|any| any.contains(&log["topics"][position]))
            };
            (from.max(first)..=to).contains(number) && matches(0) && matches(1)
        };
        let mut logs: Vec<Value> = self.logs.iter().filter(is_asked).map(|(_, log)| log.clone()).collect();
        if let Serves::Results(most) = self.serves
            && logs.len() > most
        {
            return Err((-32602, "query returned more than so many results"));
        }
        for log in &mut logs {
            if let Some(lie) = self.lies {
                lie(log);
            }
            if !self.times_logs {
                log.as_object_mut().unwrap().remove("blockTimestamp");
            }
        }
        Ok(logs.into())
    }
}
