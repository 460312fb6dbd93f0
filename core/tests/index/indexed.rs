//! An index with its host: the database, the clock, the endpoints that answer or fail; and what its answers are
//! held against.

use std::{cell::RefCell, collections::BTreeMap};

use alloy_primitives::U256;
use registry_core::{
    api::route::Route,
    api::scan::Scan,
    chain::{Batch, Endpoints, Failure, Limits, Reply, Step},
    eth::abi::AgentRecord,
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    index::{Config, Index, IndexError, Phase, State, Work, prepare},
    registry::agent::{Agent, AgentId, Fetched, Status},
    registry::changes::{ChangeList, Cursor, Since, Standing},
    registry::kya::Decision,
    registry::lineage::{self, Member},
};

use crate::{
    common::{self, Node, PlainRegistry, Quirks, REGISTRY},
    database::Database,
    history::Chance,
    liable, snapshot,
};

pub(crate) const CHAIN: &str = "http://node";

/// An index of a node's registry.
pub(crate) struct Indexed {
    pub(crate) database: Database,
    pub(crate) endpoints: Endpoints,
    pub(crate) config: Config,
    pub(crate) node: Node,
    /// How the second endpoint of the same chain misbehaves, and how often a connection fails.
    pub(crate) second: Option<(Quirks, Failures)>,
    /// What the host keeps of the last work.
    pub(crate) kept: Option<State>,
    pub(crate) reply_bytes: usize,
    /// Replies after which the next work dies.
    pub(crate) dies_after: Option<u64>,
    /// The host's clock, unix seconds.
    pub(crate) now: u64,
    /// Standings as the changes tell them, and how far they have been read.
    pub(crate) told: Option<(Cursor, BTreeMap<u64, Standing>)>,
    /// Shards that a host has fetched.
    pub(crate) shelf: RefCell<snapshot::Shelf>,
}

/// One in so many connections fails.
pub(crate) struct Failures {
    pub(crate) one_in: u64,
    pub(crate) chance: Chance,
}

impl Indexed {
    pub(crate) fn new(node: Node, slice: u64, sweep: u64) -> Self {
        let limits = Limits { agents_per_call: 7, calls_per_chunk: 9, ..Limits::default() };
        let config = Config {
            registry: REGISTRY,
            multicall3: CANONICAL_ADDRESS,
            limits,
            slice,
            sweep,
            proved: 1,
            layout: Some(common::proofs::layout()),
            self_contained_code: None,
        };
        let database = Database::new();
        prepare(&database).unwrap();
        Self {
            database,
            endpoints: Endpoints::new(1, None),
            config,
            node,
            second: None,
            kept: None,
            reply_bytes: 0,
            dies_after: None,
            now: common::NOW,
            told: None,
            shelf: RefCell::default(),
        }
    }

    pub(crate) fn state(&self) -> State {
        self.kept.clone().unwrap_or_else(|| State::load(&self.database).unwrap())
    }

    /// One piece of work; false where it did not come to its end.
    pub(crate) fn work(&mut self) -> Result<bool, IndexError> {
        let now = self.now * 1_000;
        let kept = self.kept.take();
        let mut work = Work::begin(&self.database, kept, self.config.clone(), self.endpoints.clone(), now)?;
        let mut replies = 0;
        loop {
            let dies = self.dies_after == Some(replies);
            let step = self.database.transaction(|database| {
                let step = work.step(database);
                // The death of the host takes what was not committed.
                (!dies).then_some(step)
            });
            let Some(step) = step else { return Ok(false) };
            match step? {
                Step::Done(()) => break,
                Step::Send(batch) => {
                    replies += 1;
                    let fed = match self.post(&batch) {
                        Some((status, body)) => {
                            self.reply_bytes += body.len();
                            work.feed(Reply { status, body: &body })
                        }
                        None => work.fail(Failure::TimedOut),
                    };
                    // As the object does: what was learnt of an endpoint is kept where the work fails, too.
                    self.endpoints.merge(&work.update());
                    fed?;
                }
            }
        }
        self.kept = Some(work.state().clone());
        Ok(true)
    }

    /// The reply of the batch's endpoint; `None` where the connection fails.
    pub(crate) fn post(&mut self, batch: &Batch) -> Option<(u16, Vec<u8>)> {
        let Some((quirks, failures)) = &mut self.second else { return Some(self.node.post(batch)) };
        if failures.chance.once_in(failures.one_in) {
            return None;
        }
        let is_second = batch.endpoint == 1;
        if is_second {
            std::mem::swap(quirks, &mut self.node.quirks);
        }
        let reply = self.node.post(batch);
        if let Some((quirks, _)) = self.second.as_mut().filter(|_| is_second) {
            std::mem::swap(quirks, &mut self.node.quirks);
        }
        Some(reply)
    }

    /// Works until the index is complete and as of the chain's newest block, which machines that lag have
    /// after a while: as long as one lacks it, a reading that takes many replies may be of an older block
    /// each time.
    pub(crate) fn catch_up(&mut self) -> Result<(), String> {
        let (mut last, lags) = (Ok(true), self.node.quirks.lags);
        let newest = self.node.chain[&self.node.block].hash;
        for round in 0..200 {
            if round == 100 {
                self.node.quirks.lags = None;
            }
            last = self.work();
            // Late events are waited for.
            self.now += 30;
            let state = self.state();
            if state.phase == Phase::Complete && state.as_of().is_some_and(|block| block.hash == newest) {
                self.node.quirks.lags = lags;
                return Ok(());
            }
        }
        Err(format!("never complete: {last:?}"))
    }

    pub(crate) fn changes(&self, since: Since, limit: u64) -> Result<ChangeList, IndexError> {
        let state = self.state();
        Index::new(&self.database, &state, REGISTRY, CHAIN).changes(since, limit)
    }

    /// Plays the changes back, and holds what they come to against that registry.
    pub(crate) fn tells(&mut self, registry: &PlainRegistry) -> Result<(), String> {
        let current_from = (self.state().read_at / 1_000).saturating_sub(registry.grace_seconds.unwrap());
        let standing = |agent: &AgentRecord| {
            let status = Status::from_number(agent.status).unwrap();
            let decision = match status {
                Status::Active if agent.lastAttestation >= current_from => Decision::Provision,
                Status::Active | Status::Suspended => Decision::RequestRenewal,
                Status::Revoked | Status::Terminated => Decision::Deny,
            };
            Standing { status, decision }
        };
        let expected: BTreeMap<u64, Standing> = (1..).zip(registry.agents.iter().map(standing)).collect();
        let Some((mut cursor, mut told)) = self.told.take() else {
            self.told = Some((self.changes(Since::Now, 1).unwrap().next, expected));
            return Ok(());
        };
        loop {
            let list = self.changes(Since::Cursor(cursor), 3).unwrap();
            for change in &list.data {
                let id = u64::try_from(change.agent_id.0).unwrap();
                if told.get(&id) != change.from.as_ref() || change.from == change.to {
                    return Err(format!("{change:?} of {:?}", told.get(&id)));
                }
                match change.to {
                    Some(to) => told.insert(id, to),
                    None => told.remove(&id),
                };
            }
            cursor = list.next;
            if !list.has_more {
                break;
            }
        }
        if told != expected {
            return Err(format!("the changes come to {told:?}\nnot {expected:?}"));
        }
        self.told = Some((cursor, told));
        Ok(())
    }

    /// Holds every answer against a scan of that registry.
    pub(crate) fn is_like(&self, registry: &PlainRegistry, now: u64) -> Result<(), String> {
        let agents: Vec<Agent> =
            registry.agents.iter().map(|agent| Agent::try_from(agent.clone()).unwrap()).collect();
        let grace = U256::from(registry.grace_seconds.unwrap());
        let scan = Scan::of_agents(REGISTRY, CHAIN.into(), grace, &agents, &registry.reports);
        let state = self.state();
        let index = Index::new(&self.database, &state, REGISTRY, CHAIN);
        let now = Timestamp::from_seconds(now);
        let document = |target: &str| index.document(&Route::parse(target).unwrap(), now);
        let targets = [
            "stats/detailed",
            "agents/compliance",
            "agents/compliance?limit=3",
            "agents/compliance?limit=1&cursor=0-0",
            "agents/compliance?cursor=9007199254740991-0",
            "revenue/aggregate",
            "agents?status=Active",
            "agents?status=Active&limit=2&page=2",
            "agents?status=Suspended",
            "agents?status=Revoked&limit=1",
            "agents?status=Terminated&page=9",
        ];
        for target in targets.map(|path| format!("/api/v1/{path}")) {
            let endpoint = Route::parse(&target).unwrap();
            let expected = scan.document(&endpoint, now).unwrap();
            let found = document(&target).unwrap();
            if found != expected {
                return Err(format!("{target}: {}\nnot {}", found.body, expected.body));
            }
        }
        self.pages_of_compliance_are_the_list(&scan, now)?;
        for id in 1..=agents.len() as u64 {
            let found = document(&format!("/api/v1/agent/{id}/lineage")).unwrap().body;
            let expected = serde_json::to_string(&tree(&agents, id)).unwrap();
            if found != expected {
                return Err(format!("lineage of {id}: {found}\nnot {expected}"));
            }
        }
        liable::is_like(self, registry, now.seconds())?;
        snapshot::is_like(self, registry, now.seconds())?;
        let beyond = agents.len() + 1;
        let unknown = document(&format!("/api/v1/agent/{beyond}/lineage")).unwrap_err();
        assert_eq!(unknown.to_string(), format!("Agent not found: {beyond}"));
        Ok(())
    }

    /// Follows `next` from page to page, from a scan and from the index, and holds what comes together
    /// against the whole list.
    pub(crate) fn pages_of_compliance_are_the_list(&self, scan: &Scan, now: Timestamp) -> Result<(), String> {
        let state = self.state();
        let index = Index::new(&self.database, &state, REGISTRY, CHAIN);
        let read = |target: &str| -> Result<serde_json::Value, String> {
            let endpoint = Route::parse(target).unwrap();
            let (expected, found) =
                (scan.document(&endpoint, now).unwrap(), index.document(&endpoint, now).unwrap());
            if found != expected {
                return Err(format!("{target}: {found:?}\nnot {expected:?}"));
            }
            Ok(serde_json::from_str(&found.body).unwrap())
        };
        let whole = read("/api/v1/agents/compliance")?;
        let (mut together, mut target) = (Vec::new(), "/api/v1/agents/compliance?limit=3".to_owned());
        loop {
            let page = read(&target)?;
            together.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next"].as_str() else { break };
            target = format!("/api/v1/agents/compliance?limit=3&cursor={next}");
        }
        if whole["data"] != serde_json::Value::from(together) || whole.get("limit").is_some() {
            return Err(format!("pages of {whole}"));
        }
        Ok(())
    }
}

/// The tree below an agent, from plain lists.
fn tree(agents: &[Agent], root: u64) -> lineage::LineageNode {
    let member = |id: U256| {
        let agent = &agents[id.to::<usize>() - 1];
        let children = agents.iter().filter(|child| child.parent_agent_id == AgentId(id));
        let children: Vec<U256> = children.map(|child| child.agent_id.0).collect();
        Member { agent: agent.into(), children: children.into() }
    };
    let fetch = |ids: &[U256]| {
        let fetched = ids.iter().map(|id| Fetched::Found(Box::new(member(*id)))).collect();
        Ok::<_, std::convert::Infallible>(fetched)
    };
    let Ok(tree) = lineage::grow(member(U256::from(root)), fetch);
    tree
}
