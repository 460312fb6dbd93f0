//! The places where a node's bytes are decoded: questions, the upkeep of an index, an agent's history.

use std::cell::RefCell;

use alloy_primitives::keccak256;
use registry_core::{
    api::route::KYA_BODY_MAX,
    index::{Config, HistoryQuery, State, Work},
    registry::{agent::AgentId, kya::WalletInput},
};

use crate::common::{
    Mined, Undeployed, database::Database, database::config, prelude::*, proofs, record, requests,
};

/// Batches after which a place is left: a reader that asks again and again has been tried enough.
const BATCHES: usize = 12;

type Post<'a> = &'a mut dyn FnMut(&Batch) -> Option<Vec<u8>>;

/// A reader of a node.
pub(crate) struct Place {
    pub(crate) name: String,
    node: Node,
    reads: Reads,
}

enum Reads {
    Question(Route),
    Fill,
    Refresh,
    History,
}

/// A request, and the honest node's result.
pub(crate) struct Asked {
    pub(crate) request: Value,
    pub(crate) result: Value,
}

impl Place {
    /// A place with a node of a few agents, of which a block with events is the newest.
    fn new(name: &str, undeployed: Undeployed, reads: Reads) -> Self {
        let registry = PlainRegistry::with_agents(5);
        let mut node = Node::new(registry.clone());
        for (number, events) in [(99, vec![]), (100, vec![1, 2])] {
            let (hash, seconds) = (keccak256([number as u8]), NOW - 200 + number * 2);
            node.chain.insert(number, Mined { hash, seconds, registry: registry.clone().into(), events });
        }
        node.quirks.undeployed = undeployed;
        Self { name: format!("{name}, {undeployed:?}"), node, reads }
    }

    /// The requests of each batch, answered honestly.
    pub(crate) fn requests(&self) -> Vec<Vec<Asked>> {
        let asked = RefCell::new(Vec::new());
        self.post(|batch, node| {
            let reply = node.post(batch).1;
            let results = requests(str::from_utf8(&reply).unwrap());
            let both = requests(&batch.body).into_iter().zip(results);
            let both = both.map(|(request, reply)| Asked { request, result: reply["result"].clone() });
            asked.borrow_mut().push(both.collect());
            reply
        });
        asked.into_inner()
    }

    /// Reads from a node that is honest but for one reply, which it gives twice: what was kept of the first is
    /// there when the second comes. The length of the answer, where a client gets one.
    pub(crate) fn run(&self, at: usize, hostile: &str) -> usize {
        let mut batches = 0;
        self.post(|batch, node| {
            batches += 1;
            if (at + 1..=at + 2).contains(&batches) {
                hostile.as_bytes().to_vec()
            } else {
                node.post(batch).1
            }
        })
    }

    fn post(&self, mut answer: impl FnMut(&Batch, &mut Node) -> Vec<u8>) -> usize {
        let (mut node, mut batches) = (self.node.clone(), 0);
        let post: Post<'_> = &mut |batch| {
            batches += 1;
            (batches <= BATCHES).then(|| answer(batch, &mut node))
        };
        match &self.reads {
            Reads::Question(route) => {
                let asked = Question { route: route.clone(), ..question("/health") };
                return match finish(Run::new(asked, CANONICAL_ADDRESS, Limits::default()), post) {
                    Some(Ok(document)) => document.body.len(),
                    Some(Err(error)) => error.body().len(),
                    None => 0,
                };
            }
            Reads::Fill => upkeep(&Database::new(), post),
            Reads::Refresh => upkeep(&self.filled(), post),
            Reads::History => {
                let database = self.filled();
                let (state, agent) = (State::load(&database).unwrap(), (AgentId::from(1), 50, None));
                let query = HistoryQuery::new(&database, &state, REGISTRY, agent).unwrap();
                finish(query.run(&settings(), Endpoints::new(1, None)), post);
            }
        }
        0
    }

    /// An index as of the block before the node's newest.
    fn filled(&self) -> Database {
        let (database, mut node) = (Database::new(), self.node.clone());
        node.block -= 1;
        upkeep(&database, &mut |batch| Some(node.post(batch).1));
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

pub(crate) fn all() -> Vec<Place> {
    use Undeployed::{Override, Refused};
    let question = |target: &str| Reads::Question(Route::parse(target).unwrap());
    let same = vec![WalletInput::Wallet(record(1, 0).agentWallet); KYA_BODY_MAX];
    let same = Reads::Question(Route::kya_list(same, None).unwrap());
    let mut places = vec![
        Place::new("the same wallet a hundred times", Override, same),
        // A node that does not run the lens is asked for all records and histories through getters.
        Place::new(TARGETS[4], Refused, question(TARGETS[4])),
        Place::new("history", Override, Reads::History),
    ];
    places.extend(TARGETS.map(|target| Place::new(target, Override, question(target))));
    for undeployed in [Override, Refused] {
        places.push(Place::new("fill", undeployed, Reads::Fill));
        places.push(Place::new("refresh", undeployed, Reads::Refresh));
    }
    places
}

/// The outcome, unless `post` ends it.
fn finish<Q: Query>(mut run: Run<Q>, post: Post<'_>) -> Option<Result<Q::Output, Q::Error>> {
    loop {
        match run.step() {
            Ok(Step::Send(batch)) => {
                if let Err(error) = run.feed(Reply { status: 200, body: &post(&batch)? }) {
                    return Some(Err(error));
                }
            }
            Ok(Step::Done(output)) => return Some(Ok(output)),
            Err(error) => return Some(Err(error)),
        }
    }
}

fn settings() -> Config {
    Config { proved: 1, layout: Some(proofs::layout()), ..config(REGISTRY, 10_000, 10) }
}

fn upkeep(database: &Database, post: Post<'_>) {
    let mut work = Work::begin(database, None, settings(), Endpoints::new(1, None), NOW * 1_000).unwrap();
    while let Ok(Step::Send(batch)) = work.step(database) {
        let Some(body) = post(&batch) else { return };
        if work.feed(Reply { status: 200, body: &body }).is_err() {
            return;
        }
    }
}
