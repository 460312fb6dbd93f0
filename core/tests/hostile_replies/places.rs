//! The places where a node's bytes are decoded: questions, the upkeep of an index, an agent's history.

use std::cell::RefCell;

use registry_core::{
    api::question::Question,
    api::route::{KYA_BODY_MAX, Route},
    chain::{Batch, Endpoints, Limits, Query, Reply, Run, Step},
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    index::{Config, HistoryQuery, State, Work, prepare},
    registry::agent::AgentId,
    registry::kya::WalletInput,
};
use serde_json::Value;

use crate::{
    common::{Mined, NOW, Node, PlainRegistry, REGISTRY, Undeployed, proofs, record},
    database::Database,
};

/// Batches after which a place is left: a reader that asks again and again has been tried enough.
const BATCHES: usize = 12;

type Post<'a> = &'a mut dyn FnMut(&Batch) -> Option<Vec<u8>>;

/// Reads through `post`, and prepares by means of the honest node.
type Drive = dyn Fn(Post<'_>, &mut Node);

/// A reader of a node.
pub(crate) struct Place {
    pub(crate) name: String,
    node: Node,
    drive: Box<Drive>,
}

/// A request, and the honest node's result.
pub(crate) struct Asked {
    pub(crate) request: Value,
    pub(crate) result: Value,
}

impl Place {
    /// The requests of each batch, answered honestly.
    pub(crate) fn requests(&self) -> Vec<Vec<Asked>> {
        let asked = RefCell::new(Vec::new());
        self.post(|batch, node| {
            let body: Value = serde_json::from_str(&batch.body).unwrap();
            let requests = body.as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
            let reply = node.post(batch).1;
            let results: Value = serde_json::from_slice(&reply).unwrap();
            let results = results.as_array().cloned().unwrap_or_else(|| vec![results.clone()]);
            let both = requests.into_iter().zip(results);
            let both = both.map(|(request, reply)| Asked { request, result: reply["result"].clone() });
            asked.borrow_mut().push(both.collect());
            reply
        });
        asked.into_inner()
    }

    /// Reads from a node that is honest but for one reply.
    pub(crate) fn run(&self, at: usize, hostile: &str) {
        let mut batches = 0;
        self.post(|batch, node| {
            batches += 1;
            if batches == at + 1 { hostile.as_bytes().to_vec() } else { node.post(batch).1 }
        });
    }

    fn post(&self, mut answer: impl FnMut(&Batch, &mut Node) -> Vec<u8>) {
        let (mut node, mut batches) = (self.node.clone(), 0);
        let mut other = self.node.clone();
        let mut post = |batch: &Batch| {
            batches += 1;
            (batches <= BATCHES).then(|| answer(batch, &mut node))
        };
        (self.drive)(&mut post, &mut other);
    }
}

/// A node of a registry with a few agents and reports; a block with events is its newest.
fn node(undeployed: Undeployed) -> Node {
    let registry = PlainRegistry::with_agents(5);
    let mut node = Node::new(registry.clone());
    for (number, events) in [(99, vec![]), (100, vec![1, 2])] {
        let hash = alloy_primitives::keccak256([number as u8]);
        let mined =
            Mined { hash, seconds: NOW - 200 + number * 2, registry: registry.clone().into(), events };
        node.chain.insert(number, mined);
    }
    node.quirks.undeployed = undeployed;
    node
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

pub(crate) fn all() -> Vec<Place> {
    let asked = WalletInput::Wallet(record(1, 0).agentWallet);
    let same = Route::kya_list(vec![asked; KYA_BODY_MAX], None).unwrap();
    let mut places = vec![question("the same wallet a hundred times", same, Undeployed::Override)];
    places
        .extend(TARGETS.map(|target| question(target, Route::parse(target).unwrap(), Undeployed::Override)));
    // A node that does not run the lens is asked for all records and histories through getters.
    let scan = "/api/v1/stats/detailed";
    places.push(question(scan, Route::parse(scan).unwrap(), Undeployed::Refused));
    for undeployed in [Undeployed::Override, Undeployed::Refused] {
        places.push(Place {
            name: format!("fill, {undeployed:?}"),
            node: node(undeployed),
            drive: Box::new(|post, _| upkeep(&index(), post)),
        });
        places.push(Place {
            name: format!("refresh, {undeployed:?}"),
            node: node(undeployed),
            drive: Box::new(|post, node| upkeep(&filled(node), post)),
        });
    }
    let history = |post: Post<'_>, node: &mut Node| {
        let database = filled(node);
        let state = State::load(&database).unwrap();
        let agent = (AgentId::from(1), 50, None);
        let query = HistoryQuery::new(&database, &state, REGISTRY, agent).unwrap();
        drive(query.run(&config(), Endpoints::new(1, None)), post);
    };
    places.push(Place { name: "history".into(), node: node(Undeployed::Override), drive: Box::new(history) });
    places
}

/// A question.
fn question(name: &str, route: Route, undeployed: Undeployed) -> Place {
    let drive = move |post: Post<'_>, _: &mut Node| {
        let question = Question {
            route: route.clone(),
            registry: REGISTRY,
            chain: "http://node".into(),
            now: Timestamp::from_seconds(NOW),
            scan: None,
            excerpt: None,
        };
        drive(Run::new(question, CANONICAL_ADDRESS, Limits::default()), post);
    };
    Place { name: format!("{name}, {undeployed:?}"), node: node(undeployed), drive: Box::new(drive) }
}

fn drive<Q: Query>(mut run: Run<Q>, post: Post<'_>) {
    while let Ok(Step::Send(batch)) = run.step() {
        let Some(body) = post(&batch) else { return };
        if run.feed(Reply { status: 200, body: &body }).is_err() {
            return;
        }
    }
}

fn config() -> Config {
    Config {
        registry: REGISTRY,
        multicall3: CANONICAL_ADDRESS,
        limits: Limits::default(),
        slice: 10_000,
        sweep: 10,
        proved: 1,
        layout: Some(proofs::layout()),
        self_contained_code: None,
    }
}

fn index() -> Database {
    let database = Database::new();
    prepare(&database).unwrap();
    database
}

/// An index as of the block before the node's newest.
fn filled(node: &mut Node) -> Database {
    let database = index();
    node.block -= 1;
    upkeep(&database, &mut |batch| Some(node.post(batch).1));
    node.block += 1;
    database
}

fn upkeep(database: &Database, post: Post<'_>) {
    let mut work = Work::begin(database, None, config(), Endpoints::new(1, None), NOW * 1_000).unwrap();
    while let Ok(Step::Send(batch)) = work.step(database) {
        let Some(body) = post(&batch) else { return };
        if work.feed(Reply { status: 200, body: &body }).is_err() {
            return;
        }
    }
}
