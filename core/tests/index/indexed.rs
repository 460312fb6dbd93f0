//! An index with its host (the database, the clock, endpoints that answer or fail), the chain that its node
//! sees, and the checks of its answers.

use std::{cell::Cell, cell::RefCell, collections::BTreeMap};

use registry_core::api::{document::Document, question::LateExcerpt};
use registry_core::index::{Bounds, Config, Excerpt, Index, IndexError, State, Work};
use registry_core::registry::agent::{Agent, AgentId, Fetched, Status};
use registry_core::registry::changes::{ChangeList, Cursor, Since, Standing};
use registry_core::registry::lineage::{self, Member};
use registry_core::{liability::Basis, registry::kya::Decision};

use crate::common::{database::Database, database::config, prelude::*, proofs};
use crate::{history::ChainHistory, liability, liable, snapshot, store_failures::LimitedStore};

pub(crate) const CHAIN: &str = "http://node";

pub(crate) struct TestIndex {
    pub(crate) database: Database,
    pub(crate) endpoints: Endpoints,
    pub(crate) config: Config,
    pub(crate) node: Node,
    pub(crate) history: ChainHistory,
    pub(crate) random: Random,
    /// Quirks of the second endpoint of the same chain, and the failures of connections.
    pub(crate) second: Option<(Quirks, ConnectionFailures)>,
    pub(crate) kept: Option<State>,
    /// Replies after which the next work dies.
    pub(crate) dies_after: Option<u64>,
    pub(crate) now: u64,
    /// The cursor up to which changes have been read, the standings by these changes, and the time.
    pub(crate) standings: Option<(Cursor, BTreeMap<u64, Standing>, u64)>,
    /// Files that a host has fetched.
    pub(crate) shelf: RefCell<snapshot::HeldFiles>,
}

/// Random failures of connections: one in `one_in` fails.
pub(crate) struct ConnectionFailures {
    pub(crate) one_in: u64,
    pub(crate) random: Random,
}

impl TestIndex {
    /// Creates an empty index that is filled in slices of `slice` agents.
    pub(crate) fn new(history: ChainHistory, slice: u64, sweep: u64) -> Self {
        let config = Config { proved: 1, layout: Some(proofs::layout()), ..config(REGISTRY, slice, sweep) };
        let mut index = Self {
            database: Database::new(),
            endpoints: Endpoints::new(1, None),
            config,
            node: Node::new(PlainRegistry::default()),
            history,
            random: Random(7),
            second: None,
            kept: None,
            dies_after: None,
            now: NOW,
            standings: None,
            shelf: RefCell::default(),
        };
        index.show();
        index
    }

    pub(crate) fn filled_with(history: ChainHistory, sweep: u64) -> Self {
        let mut index = Self::new(history, 100_000, sweep);
        index.work().unwrap();
        assert!(index.state().is_complete());
        index
    }

    pub(crate) fn filled(agents: u64, sweep: u64) -> Self {
        let mut random = Random(7);
        let history = ChainHistory::new(agents, &mut random);
        Self { random, ..Self::filled_with(history, sweep) }
    }

    pub(crate) fn of(registry: PlainRegistry) -> Self {
        Self::filled_with(ChainHistory::of(2, registry), 200)
    }

    pub(crate) fn newest(&self) -> &Mined {
        self.history.newest()
    }

    pub(crate) fn agents(&self) -> Vec<AgentRecord> {
        self.newest().registry.agents.clone()
    }

    /// Shows the node the chain as it is now.
    pub(crate) fn show(&mut self) {
        (self.node.block, self.node.chain) = (self.history.number(), self.history.blocks.clone());
    }

    /// Does one piece of work with the chain as it is now, and clears the node's log before.
    pub(crate) fn refresh(&mut self) {
        self.node.log.clear();
        self.show();
        self.work().unwrap();
    }

    /// Mines a block with a change, and an event of each agent that it changes. The change receives the
    /// block's time.
    pub(crate) fn mine(&mut self, change: impl FnOnce(&mut PlainRegistry, u64)) {
        self.history.mine(0, &mut self.random);
        self.history.edit(|mined| {
            let mut registry = (*mined.registry).clone();
            let before = registry.agents.clone();
            change(&mut registry, mined.seconds);
            let agents = (1..).zip(&registry.agents);
            let changed = agents.filter(|(id, agent)| before.get(*id as usize - 1) != Some(*agent));
            mined.events.extend(changed.map(|(id, _)| id));
            mined.registry = registry.into();
        });
    }

    /// Mines a block with a change, and events of these agents only.
    pub(crate) fn mine_with_events(&mut self, events: &[u64], change: impl FnOnce(&mut PlainRegistry, u64)) {
        self.mine(change);
        self.history.edit(|mined| mined.events = events.to_vec());
    }

    /// Mines a block in which `count` agents from `first` on are attested.
    pub(crate) fn attest(&mut self, first: u64, count: u64) {
        self.attest_silently(first, count);
        self.history.edit(|mined| mined.events = (first..first + count).collect());
    }

    /// Mines a block with these attestations, without an event.
    pub(crate) fn attest_silently(&mut self, first: u64, count: u64) {
        self.mine_with_events(&[], |registry, seconds| {
            (first..first + count).for_each(|id| registry.agents[id as usize - 1].lastAttestation = seconds);
        });
    }

    pub(crate) fn idle(&mut self) {
        let Mined { seconds, registry, .. } = self.newest().clone();
        self.history.push(self.history.number() + 1, seconds + 20, (*registry).clone(), Vec::new());
    }

    pub(crate) fn refresh_after(&mut self, seconds: u64) {
        self.now += seconds;
        self.refresh();
    }

    /// Mines a block without events, and refreshes `seconds` later.
    pub(crate) fn idle_for(&mut self, seconds: u64) {
        self.idle();
        self.refresh_after(seconds);
    }

    /// Mines a block without events at this time, and refreshes then.
    pub(crate) fn idle_until(&mut self, seconds: u64) {
        self.idle();
        self.history.edit(|mined| mined.seconds = seconds);
        self.now = seconds;
        self.refresh();
    }

    pub(crate) fn state(&self) -> State {
        self.kept.clone().unwrap_or_else(|| State::load(&self.database).unwrap())
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(Index<'_, Database>) -> T) -> T {
        read(Index::new(&self.database, &self.state(), REGISTRY, CHAIN))
    }

    pub(crate) fn document(&self, target: &str, now: u64) -> Result<Document, IndexError> {
        let route = Route::parse(target).unwrap();
        self.read(|index| index.document(&route, Timestamp::from_seconds(now)))
    }

    pub(crate) fn ask(&self, target: &str, now: u64) -> (Value, Option<String>) {
        self.ask_within(target, now, Bounds::DEFAULT)
    }

    /// Returns a document with other bounds for a page of a list, and its links.
    pub(crate) fn ask_within(&self, target: &str, now: u64, bounds: Bounds) -> (Value, Option<String>) {
        let (route, now) = (Route::parse(target).unwrap(), Timestamp::from_seconds(now));
        let mut document = self.read(|index| index.within(bounds).document(&route, now)).unwrap();
        let links = document.links.take();
        (read(document), links)
    }

    /// Reads a list's pages, each of which has to link to the next.
    pub(crate) fn pages(&self, first: &str, now: u64, bounds: Bounds) -> Vec<Value> {
        let (mut pages, mut target) = (Vec::new(), first.to_owned());
        loop {
            let (page, links) = self.ask_within(&target, now, bounds);
            let next = page["next"].as_str().map(|cursor| format!("{first}&cursor={cursor}"));
            pages.push(page);
            let Some(next) = next else { return pages };
            target = next;
            let link = format!("<{}>; rel=\"next\"", Route::parse(&target).unwrap().canonical());
            assert!(links.unwrap().ends_with(&link), "{target}");
        }
    }

    pub(crate) fn excerpt(&self, wallets: &[Address]) -> Excerpt {
        let excerpt = Excerpt::of(&self.database, &self.state(), wallets).unwrap();
        assert_eq!(Excerpt::decode(&excerpt.encode()).as_ref(), Some(&excerpt));
        excerpt
    }

    /// Returns the node's answer to a question, with the index's excerpt for its wallets.
    pub(crate) fn ask_node(&mut self, target: &str, excerpt: LateExcerpt) -> Document {
        self.node.log.clear();
        self.node.run(Question { excerpt: Some(excerpt), ..question(target) }).unwrap()
    }

    /// Does one piece of work, and returns whether it came to its end.
    pub(crate) fn work(&mut self) -> Result<bool, IndexError> {
        self.work_within(u64::MAX)
    }

    /// Does one piece of work on a store that fails after `statements`.
    pub(crate) fn work_within(&mut self, statements: u64) -> Result<bool, IndexError> {
        let (now, left) = (self.now * 1_000, Cell::new(statements));
        let (kept, store) = (self.kept.take(), LimitedStore::new(&self.database, &left));
        let mut work = Work::begin(&store, kept, self.config.clone(), self.endpoints.clone(), now)?;
        let mut replies = 0;
        loop {
            let (dies, mut step) = (self.dies_after == Some(replies), None);
            self.database.transaction(|database| {
                let done = step.insert(work.step(&LimitedStore::new(database, &left)));
                // A failed store, and the death of the host, take what was not committed.
                (!dies && !matches!(done, Err(IndexError::Store(_)))).then_some(())
            });
            let Some(step) = step.filter(|_| !dies) else { return Ok(false) };
            match step? {
                Step::Done(()) => break,
                Step::Send(batch) => {
                    replies += 1;
                    let fed = match self.post(&batch) {
                        Some((status, body)) => work.feed(Reply { status, body: &body }),
                        None => work.fail(Failure::TimedOut),
                    };
                    // As the object does: facts learned of an endpoint are kept even if the work fails.
                    self.endpoints.merge(&work.update());
                    fed?;
                }
            }
        }
        self.kept = Some(work.state().clone());
        Ok(true)
    }

    /// Returns the reply of the batch's endpoint; `None` if the connection fails.
    fn post(&mut self, batch: &Batch) -> Option<(u16, Vec<u8>)> {
        let Some((quirks, failures)) = &mut self.second else { return Some(self.node.post(batch)) };
        if failures.random.once_in(failures.one_in) {
            return None;
        }
        if batch.endpoint == 0 {
            return Some(self.node.post(batch));
        }
        std::mem::swap(quirks, &mut self.node.quirks);
        let reply = self.node.post(batch);
        std::mem::swap(quirks, &mut self.node.quirks);
        Some(reply)
    }

    /// Works until the index is complete and as of the chain's newest block. After a while no machine lags
    /// and no post is lost any more: until then, a reading that takes many replies may be of an older block
    /// each time.
    pub(crate) fn catch_up(&mut self) -> Result<(), String> {
        let (mut last, lags) = (Ok(true), self.node.quirks.lags);
        let one_in = self.second.as_ref().map(|(_, failures)| failures.one_in);
        let fails = |index: &mut Self, one_in| {
            index.second.iter_mut().for_each(|(_, failures)| failures.one_in = one_in);
        };
        for round in 0..200 {
            if round == 100 {
                self.node.quirks.lags = None;
                self.second.iter_mut().for_each(|(second, _)| second.lags = None);
                fails(self, u64::MAX);
            }
            last = self.work();
            // Late events are waited for.
            self.now += 30;
            let (state, newest) = (self.state(), self.newest().hash);
            if state.is_complete() && state.as_of().is_some_and(|block| block.hash == newest) {
                self.node.quirks.lags = lags;
                one_in.into_iter().for_each(|one_in| fails(self, one_in));
                return Ok(());
            }
        }
        Err(format!("never complete: {last:?}"))
    }

    pub(crate) fn changes(&self, since: Since, limit: u64) -> Result<ChangeList, IndexError> {
        self.read(|index| index.changes(since, limit))
    }

    /// Replays the changes, and compares the resulting standings with that registry.
    pub(crate) fn changes_come_to(&mut self, registry: &PlainRegistry) -> Result<(), String> {
        let current_from = (self.state().read_at / 1_000).saturating_sub(registry.grace_seconds.unwrap());
        let standing = |agent: &AgentRecord| {
            let status = Status::from_number(agent.status).unwrap();
            let decision = match status {
                Status::Active if agent.lastAttestation >= current_from => Decision::Provision,
                Status::Active | Status::Suspended => Decision::RequestRenewal,
                Status::Revoked | Status::Terminated => Decision::Deny,
            };
            let basis = liability::of_record(self, agent)["basis"].as_str().and_then(Basis::from_name);
            Standing { status, decision, basis }.listed()
        };
        let expected: BTreeMap<u64, Standing> = (1..).zip(registry.agents.iter().map(standing)).collect();
        let read = self.standings.take().filter(|(cursor, _, at)| {
            // Changes are kept for thirty days.
            let is_expired = self.changes(Since::Cursor(*cursor), 1) == Err(IndexError::CursorExpired);
            !is_expired || self.now <= at + 30 * 86_400
        });
        let Some((mut cursor, mut standings, _)) = read else {
            self.standings = Some((self.changes(Since::Now, 1).unwrap().next, expected, self.now));
            return Ok(());
        };
        loop {
            let list = self.changes(Since::Cursor(cursor), 3).unwrap();
            for change in &list.data {
                let id = change.agent_id.0.to::<u64>();
                let (from, to) = (change.from.map(Standing::listed), change.to.map(Standing::listed));
                if standings.get(&id) != from.as_ref() || from == to {
                    return Err(format!("{change:?} of {:?}", standings.get(&id)));
                }
                match to {
                    Some(to) => standings.insert(id, to),
                    None => standings.remove(&id),
                };
            }
            cursor = list.next;
            if !list.has_more {
                break;
            }
        }
        if standings != expected {
            return Err(format!("the changes come to {standings:?}\nnot {expected:?}"));
        }
        self.standings = Some((cursor, standings, self.now));
        Ok(())
    }

    /// Compares every answer with the newest block.
    #[track_caller]
    pub(crate) fn is_right(&self) {
        let newest = self.newest();
        self.is_like(&newest.registry, newest.seconds + 1_000).unwrap();
    }

    /// Compares every answer with the index's own block.
    #[track_caller]
    pub(crate) fn is_right_at_its_block(&self) {
        let block = self.state().as_of().unwrap();
        self.is_like(&self.history.ever[&block.hash], block.seconds + 1_000).unwrap();
    }

    /// Compares every answer with a scan of that registry.
    pub(crate) fn is_like(&self, registry: &PlainRegistry, now: u64) -> Result<(), String> {
        let scan = registry.scan();
        let agents = registry.agents.iter().map(|agent| Agent::try_from(agent.clone()).unwrap());
        let agents: Vec<Agent> = agents.collect();
        let read = |target: &str| -> Result<Value, String> {
            let expected =
                scan.document(&Route::parse(target).unwrap(), Timestamp::from_seconds(now)).unwrap();
            let found = self.document(target, now).unwrap();
            let mut read: Value = serde_json::from_str(&found.body).unwrap();
            if found != expected {
                let mut wanted: Value = serde_json::from_str(&expected.body).unwrap();
                [&mut read, &mut wanted].into_iter().for_each(liability::take);
                if read != wanted || found.links != expected.links {
                    return Err(format!("{target}: {found:?}\nnot {expected:?}"));
                }
            }
            Ok(read)
        };
        let paths = "stats/detailed agents/compliance?limit=1&cursor=0-0 revenue/aggregate \
                     agents/compliance?cursor=9007199254740991-0 agents?status=Active \
                     agents?status=Active&limit=2&page=2 agents?status=Suspended \
                     agents?status=Revoked&limit=1 agents?status=Terminated&page=9";
        for path in paths.split(' ') {
            read(&format!("/api/v1/{path}"))?;
        }
        // The pages of a list come together to the whole.
        let whole = read("/api/v1/agents/compliance")?;
        let (mut together, mut next) = (Vec::new(), Some(String::new()));
        while let Some(cursor) = next {
            let page = read(&format!("/api/v1/agents/compliance?limit=3{cursor}"))?;
            together.extend(page["data"].as_array().unwrap().iter().cloned());
            next = page["next"].as_str().map(|next| format!("&cursor={next}"));
        }
        if whole["data"] != Value::from(together) || whole.get("limit").is_some() {
            return Err(format!("pages of {whole}"));
        }
        for id in 1..=agents.len() as u64 {
            let found = self.document(&format!("/api/v1/agent/{id}/lineage"), now).unwrap().body;
            let expected = serde_json::to_string(&tree(&agents, id)).unwrap();
            if found != expected {
                return Err(format!("lineage of {id}: {found}\nnot {expected}"));
            }
        }
        let beyond = agents.len() + 1;
        let unknown = self.document(&format!("/api/v1/agent/{beyond}/lineage"), now).unwrap_err();
        assert_eq!(unknown.to_string(), format!("Agent not found: {beyond}"));
        liable::is_like(self, registry, now)?;
        snapshot::is_like(self, registry, now)
    }
}

/// Builds the tree below an agent from plain lists.
fn tree(agents: &[Agent], root: u64) -> lineage::LineageNode {
    let member = |id: U256| {
        let agent = &agents[id.to::<usize>() - 1];
        let children = agents.iter().filter(|child| child.parent_agent_id == AgentId(id));
        let children: Vec<U256> = children.map(|child| child.agent_id.0).collect();
        Member { agent: agent.into(), children: children.into() }
    };
    let fetch = |ids: &[U256]| {
        Ok::<_, std::convert::Infallible>(
            ids.iter().map(|id| Fetched::Found(Box::new(member(*id)))).collect(),
        )
    };
    let Ok(tree) = lineage::grow(member(U256::from(root)), fetch);
    tree
}
