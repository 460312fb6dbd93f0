//! The readers of a node's bytes: questions, the upkeep of an index, an agent's history.

use std::cell::RefCell;

use alloy_primitives::keccak256;
use registry_core::index::{Config, HistoryQuery, State};
use registry_core::{api::route::KYA_BODY_MAX, registry::agent::AgentId, registry::kya::WalletInput};

use crate::common::database::{Database, config, upkeep};
use crate::common::{host::finish, prelude::*, proofs, requests};

/// Batches after which the node becomes unreachable: a reader that retries for ever has been tried enough.
const BATCHES: usize = 12;

/// A reader of a node.
pub(crate) struct NodeReader {
    pub(crate) name: String,
    node: Node,
    reads: ReaderKind,
}

enum ReaderKind {
    Question(Route),
    Fill,
    Refresh,
    History,
}

/// A request, and an honest node's result.
pub(crate) struct HonestExchange {
    pub(crate) request: Value,
    pub(crate) result: Value,
}

impl NodeReader {
    /// Makes a reader of a node with a few agents and with events in its newest block.
    fn new(name: &str, undeployed: Undeployed, reads: ReaderKind) -> Self {
        let registry = PlainRegistry::with_agents(5);
        let mut node = Node::new(registry.clone());
        for (number, events) in [(99, vec![]), (100, vec![1, 2])] {
            let (hash, seconds) = (keccak256([number as u8]), NOW - 200 + number * 2);
            node.chain.insert(number, Mined { hash, seconds, registry: registry.clone().into(), events });
        }
        node.quirks.undeployed = undeployed;
        Self { name: format!("{name}, {undeployed:?}"), node, reads }
    }

    /// Returns the requests of each batch, answered honestly.
    pub(crate) fn requests(&self) -> Vec<Vec<HonestExchange>> {
        let asked = RefCell::new(Vec::new());
        self.post(|batch, node| {
            let reply = node.post(batch).1;
            let results = requests(str::from_utf8(&reply).unwrap());
            let both = requests(&batch.body).into_iter().zip(results);
            let both =
                both.map(|(request, reply)| HonestExchange { request, result: reply["result"].clone() });
            asked.borrow_mut().push(both.collect());
            reply
        });
        asked.into_inner()
    }

    /// Reads from a node that is honest except for one reply, which it gives twice, so that the second meets
    /// the state that the first left. Returns the length of the client's answer; 0 if there is no client.
    pub(crate) fn run(&self, at: usize, hostile: &str) -> usize {
        let mut batches = 0;
        self.post(|batch, node| {
            batches += 1;
            let is_hostile = (at + 1..=at + 2).contains(&batches);
            if is_hostile { hostile.as_bytes().to_vec() } else { node.post(batch).1 }
        })
    }

    fn post(&self, mut answer: impl FnMut(&Batch, &mut Node) -> Vec<u8>) -> usize {
        let (mut node, mut batches) = (self.node.clone(), 0);
        let reply = |batch: &Batch| {
            batches += 1;
            if batches > BATCHES { Err(Failure::Unreachable) } else { Ok((200, answer(batch, &mut node))) }
        };
        match &self.reads {
            ReaderKind::Question(route) => {
                let asked = Question { route: route.clone(), ..question("/health") };
                let mut run = Run::new(asked, CANONICAL_ADDRESS, Limits::default());
                return match finish(&mut run, reply) {
                    Ok(document) => document.body.len(),
                    Err(error) => error.body().len(),
                };
            }
            ReaderKind::Fill => drop(upkeep(&Database::new(), settings(), NOW, reply)),
            ReaderKind::Refresh => drop(upkeep(&self.filled(), settings(), NOW, reply)),
            ReaderKind::History => {
                let database = self.filled();
                let (state, agent) = (State::load(&database).unwrap(), (AgentId::from(1), 50, None));
                let query = HistoryQuery::new(&database, &state, REGISTRY, agent).unwrap();
                let _ = finish(&mut query.run(&settings(), Endpoints::new(1, None)), reply);
            }
        }
        0
    }

    /// Makes an index as of the block before the node's newest.
    fn filled(&self) -> Database {
        let (database, mut node) = (Database::new(), self.node.clone());
        node.block -= 1;
        upkeep(&database, settings(), NOW, |batch| Ok(node.post(batch))).unwrap();
        database
    }
}

/// One route for each kind of read.
const TARGETS: [&str; 6] = [
    "/api/v1/agent/1",
    "/api/v1/agent/1/revenue?limit=500",
    "/api/v1/agent/1/lineage",
    "/api/v1/agents?limit=3",
    "/api/v1/stats/detailed",
    "/api/v1/kya/0x0000000000000000000000000000000000000001?history=1",
];

pub(crate) fn all() -> Vec<NodeReader> {
    use Undeployed::{Override, Refused};
    let question = |target: &str| ReaderKind::Question(Route::parse(target).unwrap());
    let same = vec![WalletInput::Wallet(record(1, 0).agentWallet); KYA_BODY_MAX];
    let same = ReaderKind::Question(Route::kya_list(same, None).unwrap());
    let mut places = vec![
        NodeReader::new("the same wallet a hundred times", Override, same),
        // A node that does not run the lens is asked for all records and histories through getters.
        NodeReader::new(TARGETS[4], Refused, question(TARGETS[4])),
        NodeReader::new("history", Override, ReaderKind::History),
    ];
    places.extend(TARGETS.map(|target| NodeReader::new(target, Override, question(target))));
    for undeployed in [Override, Refused] {
        places.push(NodeReader::new("fill", undeployed, ReaderKind::Fill));
        places.push(NodeReader::new("refresh", undeployed, ReaderKind::Refresh));
    }
    places
}

fn settings() -> Config {
    Config { proved: 1, layout: Some(proofs::layout()), ..config(REGISTRY, 10_000, 10) }
}
