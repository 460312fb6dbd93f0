//! A node that answers from a registry, or from a chain of them; its quirks, faults and events are data.

mod calls;
mod logs;

use std::{borrow::Cow, collections::BTreeMap, collections::VecDeque, fmt, rc::Rc};

use alloy_primitives::{hex, keccak256};
use alloy_sol_types::SolEvent;
use registry_core::api::{document::Document, scan::Scan};
use registry_core::eth::abi::IAgentRegistry::{
    AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, ComplianceAttested, RevenueReported,
};

use super::{IsFaulty, batch_too_large, header, prelude::*, proofs, questions::question_about};
use super::{reply_of, requests, response};

/// The chain id of nodes where nothing else is set.
pub(crate) const CHAIN_ID: u64 = 84_532;

/// Returns an address made of a chain and a block.
pub(crate) fn signature(chain_id: u64, number: u64) -> Address {
    Address::left_padding_from(&[chain_id.to_be_bytes(), number.to_be_bytes()].concat())
}

/// A block of a chain on which the registry changes.
#[derive(Clone, Debug)]
pub(crate) struct Mined {
    pub(crate) hash: B256,
    pub(crate) seconds: u64,
    pub(crate) registry: Rc<PlainRegistry>,
    /// Agents with an event in this block, as this node serves it; 0 stands for the registry itself.
    pub(crate) events: Vec<u64>,
}

/// A node with one registry; its newest block's number grows as the quirks say.
#[derive(Clone, Default)]
pub(crate) struct Node {
    pub(crate) registry: PlainRegistry,
    pub(crate) quirks: Quirks,
    /// The outcomes of the next posts. Later ones succeed.
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) address: Address,
    pub(crate) block: u64,
    pub(crate) chain_id: u64,
    /// Seconds since the newest block, by the host's clock.
    pub(crate) head_age: u64,
    pub(crate) milliseconds_per_block: u64,
    /// The chain's blocks, where the registry is not the same in all of them.
    pub(crate) chain: BTreeMap<u64, Mined>,
    /// Lag in blocks of each machine behind the node's URL; the machines take turns.
    pub(crate) machines: Vec<u64>,
    pub(crate) finalized: u64,
    pub(crate) oldest_state: u64,
    /// Events in full, by block, beside those of the chain's blocks.
    pub(crate) emitted: Vec<(u64, Value)>,
    /// The requests of each post: methods and their second parameters, or the only ones.
    pub(crate) log: Vec<Vec<(String, Value)>>,
}

impl fmt::Debug for Node {
    /// Shows all but the registry and the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Node { quirks, faults, block, chain_id, head_age, .. } = self;
        write!(f, "{{chain {chain_id}, block {block}, {head_age} s old, {quirks:?}, {faults:?}}}")
    }
}

impl Node {
    pub(crate) fn new(registry: PlainRegistry) -> Self {
        Self {
            registry,
            address: REGISTRY,
            block: 100,
            chain_id: CHAIN_ID,
            milliseconds_per_block: 2_000,
            finalized: 90,
            oldest_state: 1,
            ..Self::default()
        }
    }

    pub(crate) fn ask(&mut self, target: &str) -> Result<Value, Error> {
        self.ask_within(target, Limits::default())
    }

    pub(crate) fn ask_within(&mut self, target: &str, limits: Limits) -> Result<Value, Error> {
        let document = self.document(Route::parse(target).unwrap(), None, limits)?;
        Ok(serde_json::from_str(&document.body).unwrap())
    }

    /// Returns the document of a route for a host that has this scan cached.
    pub(crate) fn document(
        &mut self,
        endpoint: Route,
        scan: Option<Scan>,
        limits: Limits,
    ) -> Result<Document, Error> {
        let question = Question { scan, ..question_about(endpoint) };
        drive(Run::new(question, CANONICAL_ADDRESS, limits), |batch| self.post(batch))
    }

    /// Answers a query by itself.
    pub(crate) fn run<Q: Query>(&mut self, query: Q) -> Result<Q::Output, Q::Error> {
        drive(Run::new(query, CANONICAL_ADDRESS, Limits::default()), |batch| self.post(batch))
    }

    pub(crate) fn round_trips(&self) -> usize {
        self.log.len()
    }

    pub(crate) fn emit(&mut self, number: u64, event: &impl SolEvent) {
        let data = event.encode_log_data();
        let index = self.emitted.iter().filter(|(block, _)| *block == number).count() as u64 + 3;
        let transaction = keccak256([number.to_be_bytes(), index.to_be_bytes()].concat());
        let mut log = self.event(number, index, &[json!(data.topics()), json!(data.data)]);
        (log["transactionHash"], log["transactionIndex"]) = (json!(transaction), json!("0x0"));
        self.emitted.push((number, log));
    }

    fn event(&self, number: u64, index: u64, [topics, data]: &[Value; 2]) -> Value {
        json!({
            "address": format!("{REGISTRY:#x}"), "topics": topics, "data": data,
            "blockNumber": format!("{number:#x}"), "blockHash": self.hash(number),
            "blockTimestamp": format!("{:#x}", self.seconds(number)), "logIndex": format!("{index:#x}"),
            "removed": false,
        })
    }

    /// Returns the reply of a node without faults.
    pub(crate) fn post(&mut self, batch: &Batch) -> (u16, Vec<u8>) {
        self.reply(batch).0.unwrap()
    }

    /// Returns the outcome of a post, and the milliseconds that it took, within its time-out.
    pub(crate) fn reply(&mut self, batch: &Batch) -> (Result<(u16, Vec<u8>), Failure>, u32) {
        let requests = requests(&batch.body);
        let noted = requests.iter().map(|request| {
            let params = &request["params"];
            (request["method"].as_str().unwrap().into(), params.get(1).unwrap_or(&params[0]).clone())
        });
        self.log.push(noted.collect());
        let ok = |body: Vec<u8>| (Ok((200, body)), 10);
        let mines = self.quirks.posts_per_block.is_some_and(|posts| self.log.len().is_multiple_of(posts));
        self.block += u64::from(mines);
        let faulty = self.quirks.faulty.clone();
        let is_faulty = |(is, fault): (IsFaulty, Fault)| {
            requests.iter().any(|request| is(self, request)).then_some(fault)
        };
        let fault = faulty.and_then(is_faulty);
        let (reply, took) = match self.faults.pop_front().or(fault) {
            None => ok(self.answers(batch, &requests)),
            Some(Fault::Slow(time)) => (Ok((200, self.answers(batch, &requests))), time),
            Some(Fault::Unreachable) => (Err(Failure::Unreachable), 1),
            Some(Fault::Hangs) => (Err(Failure::TimedOut), u32::MAX),
            Some(Fault::Endless) => (Err(Failure::TooLarge), 10),
            Some(Fault::Status(status)) => (Ok((status, b"<html>sorry</html>".to_vec())), 10),
            Some(Fault::Html) => ok(b"<html>welcome</html>".to_vec()),
            Some(Fault::Error(code, message)) => {
                let error = response(&Value::Null, Err(json!({"code": code, "message": message})));
                ok(error.to_string().into_bytes())
            }
            Some(fault) => {
                let body = self.answers(batch, &requests);
                ok(match fault {
                    Fault::HalfABody => body[..body.len() / 2].to_vec(),
                    Fault::Null => {
                        let mut answers = super::requests(str::from_utf8(&body).unwrap());
                        for answer in answers.iter_mut().filter(|answer| answer.get("error").is_some()) {
                            *answer = response(&answer["id"], Ok(Value::Null));
                        }
                        reply_of(&batch.body, answers)
                    }
                    Fault::WrongId => str::from_utf8(&body).unwrap().replace("\"id\":", "\"id\":77").into(),
                    _ => match serde_json::from_slice::<Vec<Value>>(&body) {
                        Ok(answers) => answers[0].to_string().into_bytes(),
                        Err(_) => body,
                    },
                })
            }
        };
        if let (Some(status), Some(most)) = (self.quirks.batch_status, self.quirks.batch_limit)
            && requests.len() > most
        {
            return (Ok((status, b"batches are not allowed".to_vec())), took);
        }
        if let Some((_, reply)) = self.quirks.longest_body.filter(|(most, _)| batch.body.len() > *most) {
            return (Ok((413, reply.into())), took);
        }
        let agents = self.registry.agents.len() as u64;
        let is_late = |most| requests.iter().any(|request| calls::work_in(request, agents) > most);
        if self.quirks.most_in_time.is_some_and(is_late) {
            return match self.quirks.late {
                Some((status, reply)) => (Ok((status, reply.into())), 3_000),
                None => (Err(Failure::TimedOut), batch.timeout_ms),
            };
        }
        match (&reply, self.quirks.logs) {
            _ if took >= batch.timeout_ms => (Err(Failure::TimedOut), batch.timeout_ms),
            (Ok((_, body)), Logs::Bytes(most)) if body.len() > most => (Err(Failure::TooLarge), took),
            _ => (reply, took),
        }
    }

    fn answers(&mut self, batch: &Batch, requests: &[Value]) -> Vec<u8> {
        if self.quirks.batch_limit.is_some_and(|limit| requests.len() > limit) {
            if let Some((code, message)) = self.quirks.batch_refusal {
                let error = || Err(json!({"code": code, "message": message}));
                let refusals = requests.iter().map(|request| response(&request["id"], error()));
                return Value::from_iter(refusals).to_string().into_bytes();
            }
            let refusal = match self.quirks.refuses_by_id {
                true => json!([response(&requests[0]["id"], Err(batch_too_large()))]),
                false => response(&Value::Null, Err(batch_too_large())),
            };
            return refusal.to_string().into_bytes();
        }
        let is_lagging = |every| (keccak256(self.log.len().to_be_bytes())[0] as usize).is_multiple_of(every);
        let behind = match self.quirks.lags {
            Some((every, blocks)) if is_lagging(every) => blocks.min(self.block - 1),
            _ => self.machines.first().copied().unwrap_or_default(),
        };
        if !self.machines.is_empty() {
            self.machines.rotate_left(1);
        }
        self.block -= behind;
        let mut answers: Vec<Value> = requests.iter().map(|request| self.answer(request)).collect();
        self.block += behind;
        if let Some(kept) = self.quirks.short_batches {
            answers.truncate(kept.max(1));
        }
        reply_of(&batch.body, answers)
    }

    fn answer(&mut self, request: &Value) -> Value {
        self.block += u64::from(self.quirks.mines_within_batches);
        let method = request["method"].as_str().unwrap();
        let mut given = self.quirks.outcomes.iter_mut();
        if let Some((_, left, outcome)) = given.find(|(of, left, _)| *of == method && *left > 0) {
            *left -= 1;
            return response(&request["id"], outcome.clone());
        }
        let outcome = match method {
            // A block that is not there yet.
            "eth_getBlockByNumber" if is_beyond(&request["params"][0], self.block) => Ok(Value::Null),
            "eth_getBlockByHash" if self.quirks.replaced.is_some_and(|(hash, _)| request["params"][0] == json!(hash)) => {
                let (hash, number) = self.quirks.replaced.unwrap();
                Ok(header(number, [hash, self.hash(number - 1)], self.seconds(number)))
            }
            "eth_getBlockByHash" if self.number(&request["params"][0]).is_err() => Ok(Value::Null),
            "eth_getBlockByNumber" | "eth_getBlockByHash" => {
                self.number(&request["params"][0]).and_then(|number| self.header(number))
            }
            "eth_getProof" => self.number(&request["params"][2]).and_then(|number| {
                let is_newest = number == self.block;
                match self.quirks.proofs {
                    Proofs::Unsupported => Err(json!({"code": -32601, "message": "the method eth_getProof does not exist"})),
                    Proofs::Newest if !is_newest => {
                        let window = "distance to target block exceeds maximum proof window";
                        Err(json!({"code": -32000, "message": window}))
                    }
                    proofs => {
                        let number = if proofs == Proofs::IgnoringBlocks { self.block } else { number };
                        let slots: Vec<B256> = serde_json::from_value(request["params"][1].clone()).unwrap();
                        Ok(proofs::proof(&self.registry_at(number), &slots))
                    }
                }
            }),
            "eth_getCode" => Ok(json!(hex::encode_prefixed(proofs::CODE))),
            "eth_chainId" => Ok(json!(format!("{:#x}", self.chain_id))),
            "eth_getLogs" => self.logs(&request["params"][0]),
            "eth_call" => self.number(&request["params"][1]).and_then(|number| {
                if number < self.oldest_state {
                    if let Some((code, message, data)) = &self.quirks.state_refusal {
                        return Err(json!({"code": code, "message": message, "data": data}));
                    }
                    return Err(json!({"code": -32000, "message": "missing trie node 5d0a (path ) state is not available"}));
                }
                let number = if self.quirks.ignores_blocks { self.block } else { number };
                let data = hex::decode(request["params"][0]["data"].as_str().unwrap()).unwrap();
                self.call(&request["params"], &data, number).map(|data| json!(hex::encode_prefixed(data)))
            }),
            method => panic!("unexpected {method}"),
        };
        response(&request["id"], outcome)
    }

    fn header(&self, number: u64) -> Result<Value, Value> {
        if number < self.quirks.headers_from {
            let denial = |(code, message)| json!({"code": code, "message": message});
            return self.quirks.no_header.map(denial).map_or(Ok(Value::Null), Err);
        }
        let hashes = [number, number.saturating_sub(1)].map(|number| self.hash(number));
        let mut header = header(number, hashes, self.seconds(number));
        header["stateRoot"] = json!(proofs::state_root(&self.registry_at(number)));
        Ok(header)
    }

    fn number(&mut self, block: &Value) -> Result<u64, Value> {
        if block == "latest" {
            return Ok(self.block);
        }
        if block == "finalized" {
            return Ok(self.finalized);
        }
        if let Some((code, message)) = self.quirks.hash_refusal.filter(|_| block.is_object()) {
            return Err(json!({"code": code, "message": message}));
        }
        if block.is_object() && self.quirks.no_eip1898 {
            return Err(
                json!({"code": -32602, "message": "invalid argument 1: json: cannot unmarshal object into Go value"}),
            );
        }
        if self.quirks.unknown_blocks > 0 {
            self.quirks.unknown_blocks -= 1;
            return Err(json!({"code": -32000, "message": "header not found"}));
        }
        let hash = block["blockHash"].as_str().or(block.as_str()).filter(|text| text.len() == 66);
        match hash {
            Some(text) => {
                let hash: B256 = text.parse().unwrap();
                (1..=self.block).rev().find(|number| self.hash(*number) == hash)
            }
            None => Some(number_of(block.as_str().unwrap())).filter(|_| !is_beyond(block, self.block)),
        }
        .ok_or(match &self.quirks.state_refusal {
            Some((code, message, data)) => json!({"code": code, "message": message, "data": data}),
            None => json!({"code": -32000, "message": "header not found"}),
        })
    }

    /// Returns whether a request is for the logs of more blocks than [`Logs::Blocks`] allows.
    pub(crate) fn is_long_range(&self, request: &Value) -> bool {
        let Logs::Blocks(most) = self.quirks.logs else { return false };
        let [from, to] = range_of(&request["params"][0]);
        request["method"] == "eth_getLogs" && to - from + 1 > most
    }

    /// Returns whether a request is a call at a block before the oldest state.
    pub(crate) fn is_of_lost_state(&self, request: &Value) -> bool {
        let block = &request["params"][1];
        let is_at = |number| {
            *block == json!(format!("{number:#x}")) || block["blockHash"] == json!(self.hash(number))
        };
        request["method"] == "eth_call" && (1..self.oldest_state).any(is_at)
    }

    /// Returns the wallet that attested or reported in a block: the liable one in every second block.
    pub(crate) fn made_by(&self, number: u64, id: u64) -> Option<Address> {
        let of = [ComplianceAttested::SIGNATURE_HASH, RevenueReported::SIGNATURE_HASH];
        let agent = self.chain[&number].registry.agents.get((id as usize).checked_sub(1)?)?;
        let older = self.chain.range(..number).next_back().map(|(_, mined)| &mined.registry);
        if older.is_some_and(|older| {
            older.agents.contains(agent) && older.reports == self.chain[&number].registry.reports
        }) {
            // It changed nothing.
            return None;
        }
        let is_liable = number.is_multiple_of(2);
        let by = if is_liable { agent.haftungsperson } else { agent.agentWallet };
        of.contains(&self.event_of(number, id)).then_some(by)
    }

    /// Returns the event of an agent's change in a block.
    pub(crate) fn event_of(&self, number: u64, id: u64) -> B256 {
        let newer = &self.chain[&number].registry;
        let older = self.chain.range(..number).next_back().map(|(_, mined)| &mined.registry);
        let place = id.wrapping_sub(1) as usize;
        let (Some(older), Some(after)) = (older, newer.agents.get(place)) else {
            return AgentRegistered::SIGNATURE_HASH;
        };
        let Some(before) = older.agents.get(place) else { return AgentRegistered::SIGNATURE_HASH };
        let mut same = before.clone();
        (same.status, same.lastAttestation) = (after.status, after.lastAttestation);
        let is_plain = same == *after && older.reports == newer.reports;
        match (is_plain, before.status == after.status, after.status) {
            (false, true, _) => RevenueReported::SIGNATURE_HASH,
            (false, false, _) => AgentRevoked::SIGNATURE_HASH,
            (true, true, _) => ComplianceAttested::SIGNATURE_HASH,
            (true, false, 0) => AgentReactivated::SIGNATURE_HASH,
            (true, false, 1) => AgentSuspended::SIGNATURE_HASH,
            (true, false, _) => AgentRevoked::SIGNATURE_HASH,
        }
    }

    pub(crate) fn seconds(&self, number: u64) -> u64 {
        if let Some(mined) = self.chain.get(&number) {
            return mined.seconds;
        }
        let age = (self.block.max(number) - number) * self.milliseconds_per_block / 1_000;
        NOW - self.head_age - age
    }

    /// Returns the registry; signed records have the [`signature`] of chain and block as their creator.
    fn registry_at(&self, number: u64) -> Cow<'_, PlainRegistry> {
        if let Some(mined) = self.chain.get(&number) {
            return Cow::Borrowed(&mined.registry);
        }
        let mut registry = Cow::Borrowed(&self.registry);
        if self.quirks.signs_records {
            for agent in &mut registry.to_mut().agents {
                agent.creator = signature(self.chain_id, number);
            }
        }
        registry
    }

    fn hash(&self, number: u64) -> B256 {
        if let Some(mined) = self.chain.get(&number) {
            return mined.hash;
        }
        hash(self.chain_id, number)
    }
}

fn is_beyond(block: &Value, newest: u64) -> bool {
    block.as_str().is_some_and(|text| text.starts_with("0x") && text.len() < 66 && number_of(text) > newest)
}

/// Returns the blocks that a filter of logs is about.
fn range_of(filter: &Value) -> [u64; 2] {
    ["fromBlock", "toBlock"].map(|end| filter[end].as_str().map_or(0, number_of))
}

pub(crate) fn number_of(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Returns the block parameter that pins a call to a block of the usual chain by its hash.
pub(crate) fn pinned(number: u64) -> Value {
    json!({"blockHash": hash(CHAIN_ID, number).to_string()})
}

fn hash(chain_id: u64, number: u64) -> B256 {
    keccak256([chain_id.to_be_bytes(), number.to_be_bytes()].concat())
}
