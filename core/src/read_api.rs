//! The whole read API: a parsed [`Endpoint`] in, a [`Query`] for its JSON body out. Worker and browser run
//! the same one.
//!
//! | endpoint | round trips |
//! |---|---|
//! | `/health`, `/stats`, `/agents` without filter, `/agent/:id`, `/agent/:id/revenue`, `/kya/:wallet` | 1 |
//! | `/stats/detailed`, `/agents?status=`, `/agents/compliance`, `/revenue/aggregate` | 2, up to about 10,000 agents |
//! | `/kya/:wallet,:wallet...`, up to 100 | 1 |
//! | `/agent/:id/lineage`, `/agent/:id/ancestors` | one per level |
//! | `/kya/:wallet?evidence=1` | 2 |
//!
//! More are needed where a node takes less than most, or where an agent's lists have outgrown the node's gas.

mod evidence;
mod past;

pub use evidence::WithEvidence;

use std::sync::Arc;

use alloy_primitives::{Address, U256};
use alloy_sol_types::SolCall;

use crate::{
    abi::IAgentRegistry::{
        attestationGracePeriodCall, complianceStatusCall, getAgentByWalletCall, getAgentCall,
        getChildrenCall, getRevenueHistoryCall, nextAgentIdCall,
    },
    agent::{Agent, AgentDetail, AgentId, AgentListItem, Status, UnknownStatus},
    ancestors::{self, Ancestors, Fetched},
    as_of::{AsOf, BlockId},
    compliance::{Compliance, DEFAULT_GRACE_SECONDS},
    error::Error,
    health::Health,
    index::{Excerpt, Reading},
    kya::{Asked, Kya, KyaItem, KyaList},
    lens::Detail,
    lineage::{self, Children, LineageNode, Member},
    page::{AgentPage, Page},
    response::{Document, Shape},
    revenue::RevenueHistory,
    route::Endpoint,
    rpc::revert::Revert,
    run::{Halt, Need, Query, View, WalkKey},
    scan::{Rows, Scan, recent_ids},
    stats::{RecentRegistration, Stats},
    timestamp::Timestamp,
};

/// Agents an answer over the whole registry covers at most: their scan and the largest answer made from it fit into 64 MiB.
pub const MAX_AGENTS: u64 = 100_000;

/// The contract's words for an id or wallet it does not have (`service.md` section 7).
const AGENT_NOT_FOUND: &str = "Agent not found";
const WALLET_NOT_REGISTERED: &str = "No agent registered for this wallet";

/// A question to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub endpoint: Endpoint,
    /// The registry's address.
    pub registry: Address,
    /// The RPC endpoint as shown to clients: scheme and host, see [`public_origin`](crate::redact::public_origin).
    pub chain: String,
    /// The host's clock.
    pub now: Timestamp,
    /// A scan that the host has at hand, by which a verdict tells a wallet's past.
    pub scan: Option<Scan>,
    /// What the host's index knows of the wallets; it goes before the scan.
    pub excerpt: Option<Excerpt>,
}

/// What a run comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer, ready to send.
    pub document: Document,
    /// What it was made from, where it is about the whole registry: other such questions can be answered from it, too.
    pub scan: Option<Scan>,
    /// What an index read, where it asked; the document is empty then.
    pub reading: Option<Box<Reading>>,
}

impl From<Document> for Answer {
    fn from(document: Document) -> Self {
        Self { document, scan: None, reading: None }
    }
}

impl Query for Question {
    fn resolve(&self, view: &View) -> Result<Answer, Halt> {
        let answer = self.answer(view)?;
        let document = Document { is_final: view.is_final(), ..answer.document };
        Ok(Answer { document, ..answer })
    }

    fn block(&self) -> Option<BlockId> {
        self.endpoint.block()
    }

    fn is_one_round(&self) -> bool {
        !matches!(
            self.endpoint,
            Endpoint::Lineage(_)
                | Endpoint::Ancestors(_)
                | Endpoint::Evidence(_)
                | Endpoint::Kya { history: true, .. }
        ) && !Scan::covers(&self.endpoint)
    }
}

impl Question {
    fn answer(&self, view: &View) -> Result<Answer, Halt> {
        let registry = Registry { view, address: self.registry };
        match &self.endpoint {
            Endpoint::Health => self.document(self.health(&registry)?),
            Endpoint::Stats => self.document(self.stats(&registry)?),
            Endpoint::Agent { id, .. } => self.document(self.agent(&registry, *id)?),
            Endpoint::Ancestors(id) => self.document(ancestors(&registry, *id)?),
            Endpoint::Agents { page, status: None } => self.document(agents(&registry, *page)?),
            Endpoint::Lineage(id) => self.document(lineage(&registry, *id)?),
            Endpoint::Revenue { id, offset, limit } => {
                self.document(revenue(&registry, *id, *offset, *limit)?)
            }
            Endpoint::Kya { wallet, history, .. } => self.document(self.kya(&registry, *wallet, *history)?),
            Endpoint::KyaList { wallets, .. } => self.document(self.kya_list(&registry, wallets)?),
            // Only hosts that make evidence carry what it takes.
            Endpoint::Evidence(_) => Err(evidence::NOT_MADE_HERE.into()),
            Endpoint::Liable { .. }
            | Endpoint::Listing(_)
            | Endpoint::Changes { .. }
            | Endpoint::History { .. } => Err(Error::IndexRequired.into()),
            Endpoint::DetailedStats
            | Endpoint::Agents { status: Some(_), .. }
            | Endpoint::Compliance(_)
            | Endpoint::RevenueAggregate => {
                let scan = self.scan(&registry)?;
                let document = scan.document(&self.endpoint, self.now)?;
                Ok(Answer { document, scan: Some(scan), reading: None })
            }
        }
    }

    fn document<T: Shape>(&self, shape: T) -> Result<Answer, Halt> {
        Ok(Document::of(shape, &self.endpoint).into())
    }

    fn health(&self, registry: &Registry<'_>) -> Result<Health, Halt> {
        registry.total()?;
        Ok(Health { status: "ok", registry: registry.address, rpc: self.chain.clone() })
    }

    fn stats(&self, registry: &Registry<'_>) -> Result<Stats, Halt> {
        let total_agents = registry.total()?;
        Ok(Stats { total_agents, registry_address: registry.address, chain: self.chain.clone() })
    }

    fn scan(&self, registry: &Registry<'_>) -> Result<Scan, Halt> {
        // The first rows come along with the count.
        let first = registry.rows(1, Detail::Revenue, None);
        let (total, grace) = (registry.total(), registry.grace_period());
        let (total, grace) = (total?, grace?);
        let total = u64::try_from(total)
            .ok()
            .filter(|total| *total <= MAX_AGENTS)
            .ok_or(Error::TooManyAgents(total))?;
        first?;
        let (rows, recent) =
            (registry.rows(1, Detail::Revenue, Some(total)), registry.records(&recent_ids(total)));
        let (rows, recent) = (rows?, recent?);
        let recent = recent
            .into_iter()
            // Who is unreadable is named by the rows.
            .filter_map(|record| record.ok().map(|agent| RecentRegistration::from(&agent)))
            .collect();
        Ok(Scan::of((self.registry, self.chain.clone()), total, grace, recent, rows)?)
    }

    fn agent(&self, registry: &Registry<'_>, id: AgentId) -> Result<AgentDetail, Halt> {
        let (grace, children) = (registry.grace_period(), registry.children(id.0));
        let as_of = self.endpoint.block().map(|_| registry.view.as_of());
        let agent = registry.agent(id)?;
        let (grace, children, as_of) = (grace?, children?, as_of.transpose()?);
        let now = as_of.map_or(self.now, |as_of| as_of.block_timestamp);
        let compliance = Compliance::of(&agent, children.total, grace, now);
        Ok(AgentDetail {
            agent,
            compliance,
            truncated: children.is_cut(),
            note: children.note(children.ids.len()),
            children: children.ids,
            as_of,
        })
    }

    fn kya<'a>(&'a self, registry: &Registry<'a>, wallet: Address, history: bool) -> Result<Kya, Halt> {
        let (grace, agent, as_of) =
            (registry.grace_period(), registry.agent_of(wallet), registry.view.as_of());
        let pasts = self.pasts(registry, [wallet], history);
        let (grace, agent, as_of) = (grace?, agent?, as_of?);
        let past = pasts.of(registry, wallet, agent.as_ref())?;
        Ok(self.judge(wallet, agent, grace, as_of).with_past(past))
    }

    /// One wallet whose record cannot be read does not keep the others from their verdicts.
    fn kya_list<'a>(&'a self, registry: &Registry<'a>, wallets: &[Asked]) -> Result<KyaList, Halt> {
        // All are asked for before one is missed.
        let read = |asked: &Asked| match asked {
            Asked::Wallet(wallet) => Ok((*wallet, registry.agent_of(*wallet))),
            Asked::Malformed { text, error } => Err(KyaItem::malformed(text, *error)),
        };
        let read: Vec<_> = wallets.iter().map(read).collect();
        if read.iter().all(Result::is_err) {
            return Ok(read.into_iter().filter_map(Result::err).collect::<Vec<_>>().into());
        }
        let (grace, as_of) = (registry.grace_period(), registry.view.as_of());
        let pasts = self.pasts(registry, read.iter().flatten().map(|(wallet, _)| *wallet), false);
        let (grace, as_of) = (grace?, as_of?);
        let item = |read: Result<(Address, Result<Option<Agent>, Halt>), KyaItem>| match read {
            Err(malformed) => Ok(malformed),
            Ok((wallet, Ok(agent))) => {
                let past = pasts.of(registry, wallet, agent.as_ref())?;
                let kya = self.judge(wallet, agent, grace, as_of).with_past(past);
                Ok(KyaItem::Verdict(Box::new(kya)))
            }
            Ok((wallet, Err(Halt::Error(error)))) if is_of_one_record(&error) => {
                Ok(KyaItem::unreadable(wallet, &error))
            }
            Ok((_, Err(halt))) => Err(halt),
        };
        let items: Result<Vec<KyaItem>, Halt> = read.into_iter().map(item).collect();
        Ok(items?.into())
    }

    /// The verdict at the host's time, or at that of the block asked about.
    fn judge(&self, wallet: Address, agent: Option<Agent>, grace: U256, as_of: AsOf) -> Kya {
        let kya = Kya::of(wallet, agent, grace, self.time_of(as_of), as_of);
        match self.endpoint.block() {
            // What was so then stays so.
            Some(_) => Kya { checked_at: self.now, valid_until: None, ..kya },
            None => kya,
        }
    }

    /// When compliance is judged.
    fn time_of(&self, as_of: AsOf) -> Timestamp {
        if self.endpoint.block().is_some() { as_of.block_timestamp } else { self.now }
    }
}

/// Whether an error is about one agent's record, and says nothing about the others.
const fn is_of_one_record(error: &Error) -> bool {
    matches!(error, Error::TooHeavy { .. } | Error::Reverted { .. } | Error::UnknownStatus(_))
}

/// Whether a call was reverted with just these words.
fn says(halt: &Halt, reason: &str) -> bool {
    matches!(halt, Halt::Error(Error::Reverted { revert, .. }) if revert.message.as_deref() == Some(reason))
}

fn agents(registry: &Registry<'_>, page: Page) -> Result<AgentPage, Halt> {
    // Ids are dense from 1, so a page's ids are known without the total; those beyond it revert.
    let first = U256::from(page.skipped()) + U256::from(1);
    let ids: Vec<U256> = (0..page.limit).map(|index| first + U256::from(index)).collect();
    let (total, records) = (registry.total(), registry.records(&ids));
    let (total, records) = (total?, records?);
    let (mut data, mut unreadable) = (Vec::new(), Vec::new());
    for (id, record) in ids.into_iter().zip(records).take_while(|(id, _)| *id <= total) {
        match record {
            Ok(agent) => data.push(AgentListItem::from(&agent)),
            Err(Error::TooHeavy { .. }) => unreadable.push(AgentId(id)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(AgentPage { unreadable, ..AgentPage::of(page, total, data) })
}

fn lineage(registry: &Registry<'_>, id: AgentId) -> Result<LineageNode, Halt> {
    let children = registry.children(id.0);
    let agent = registry.agent(id)?;
    lineage::grow(Member { agent: (&agent).into(), children: children? }, |ids| {
        let records = registry.records(ids);
        // All are asked for before one is missed.
        let children: Vec<_> = ids.iter().map(|id| registry.children(*id)).collect();
        let member = |(record, children): (Result<Agent, Error>, Result<Children, Halt>)| match record {
            Ok(agent) => {
                Ok(lineage::Fetched::Member(Box::new(Member { agent: (&agent).into(), children: children? })))
            }
            Err(Error::Reverted { .. }) => Ok(lineage::Fetched::Absent),
            Err(Error::TooHeavy { .. }) => Ok(lineage::Fetched::Unreadable),
            Err(error) => Err(error.into()),
        };
        records?.into_iter().zip(children).map(member).collect()
    })
}

fn ancestors(registry: &Registry<'_>, id: AgentId) -> Result<Ancestors, Halt> {
    let (agent, as_of) = (registry.agent(id), registry.view.as_of());
    let (agent, as_of) = (agent?, as_of?);
    let (ancestors, note) = ancestors::climb(&agent, |id| match registry.agent(id) {
        Ok(agent) => Ok(Fetched::Agent(Box::new(agent))),
        Err(Halt::Error(Error::AgentNotFound(_))) => Ok(Fetched::Absent),
        Err(Halt::Error(error)) if is_of_one_record(&error) => Ok(Fetched::Unreadable),
        Err(halt) => Err(halt),
    })?;
    Ok(Ancestors { agent_id: id, ancestors, note, as_of })
}

fn revenue(registry: &Registry<'_>, id: AgentId, offset: u64, limit: u64) -> Result<RevenueHistory, Halt> {
    let reports = registry.call(&getRevenueHistoryCall { agentId: id.0 });
    // The history of an unknown agent may be empty instead of an error: the record tells them apart.
    registry.agent(id)?;
    Ok(RevenueHistory::of(&reports?, offset, limit))
}

/// The registry, read through a view: one function per contract read.
pub(crate) struct Registry<'a> {
    pub(crate) view: &'a View,
    pub(crate) address: Address,
}

impl<'a> Registry<'a> {
    fn call<C: SolCall>(&self, call: &C) -> Result<C::Return, Halt> {
        self.view.call(self.address, call)
    }

    /// How many agents there are: ids count from 1.
    pub(crate) fn total(&self) -> Result<U256, Halt> {
        Ok(self.call(&nextAgentIdCall {})?.saturating_sub(U256::from(1)))
    }

    /// The grace period in seconds; the documented one where the contract has no such function.
    pub(crate) fn grace_period(&self) -> Result<U256, Halt> {
        match self.call(&attestationGracePeriodCall {}) {
            Err(Halt::Error(Error::Reverted { revert: Revert { message: None }, .. })) => {
                Ok(U256::from(DEFAULT_GRACE_SECONDS))
            }
            grace => grace,
        }
    }

    /// The agent the registry has for a wallet.
    fn agent_of(&self, wallet: Address) -> Result<Option<Agent>, Halt> {
        match self.call(&getAgentByWalletCall { wallet }) {
            Err(halt) if says(&halt, WALLET_NOT_REGISTERED) => Ok(None),
            record => Ok(Some(Agent::try_from(record?).map_err(Error::from)?)),
        }
    }

    fn agent(&self, id: AgentId) -> Result<Agent, Halt> {
        match self.call(&getAgentCall { agentId: id.0 }) {
            Err(halt) if says(&halt, AGENT_NOT_FOUND) => Err(Error::AgentNotFound(id).into()),
            record => Ok(Agent::try_from(record?).map_err(Error::from)?),
        }
    }

    /// An agent's status, and nothing that it can make long.
    fn status(&self, id: u64) -> Result<Status, Halt> {
        let agent_id = U256::from(id);
        let number = self.call(&complianceStatusCall { agentId: agent_id })?.status;
        let unknown = Error::UnknownStatus(UnknownStatus { agent_id, number });
        Ok(Status::from_number(number).ok_or(unknown)?)
    }

    /// An agent's children. Where they are too many for the node's gas, they are counted, and looked for among the agents
    /// that were registered after it: as many of those as one call holds.
    fn children(&self, id: U256) -> Result<Children, Halt> {
        match self.call(&getChildrenCall { agentId: id }) {
            Err(Halt::Error(error @ Error::TooHeavy { .. })) => {
                let parent = u64::try_from(id).ok().filter(|id| *id < u64::MAX).ok_or(error)?;
                let compliance = self.call(&complianceStatusCall { agentId: id });
                let rows = self.rows(parent + 1, Detail::Rows, None);
                let (compliance, rows) = (compliance?, rows?);
                let found = rows.iter().filter(|(_, row)| row.record_is_readable() && row.parent == parent);
                let ids = found.map(|(id, _)| U256::from(id)).collect();
                Ok(Children { ids, total: compliance.childCount })
            }
            Err(halt) if says(&halt, AGENT_NOT_FOUND) => Err(Error::AgentNotFound(AgentId(id)).into()),
            children => Ok(Children::from(children?)),
        }
    }

    fn records(&self, ids: &[U256]) -> Result<Vec<Result<Agent, Error>>, Need> {
        let records = self.view.calls(self.address, ids.iter().map(|id| getAgentCall { agentId: *id }))?;
        Ok(records.into_iter().map(|record| Ok(record?.try_into()?)).collect())
    }

    pub(crate) fn rows(&self, first: u64, detail: Detail, last: Option<u64>) -> Result<&'a Arc<Rows>, Need> {
        self.view.rows(WalkKey { registry: self.address, first, detail }, last)
    }
}
