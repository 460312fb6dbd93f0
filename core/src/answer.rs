//! The whole read API: a parsed [`Endpoint`] in, a [`Query`] for its JSON body out. Worker and browser run
//! the same one.
//!
//! | endpoint | round trips |
//! |---|---|
//! | `/health`, `/stats`, `/agents` without filter, `/agent/:id`, `/agent/:id/revenue`, `/kya/:wallet` | 1 |
//! | `/stats/detailed`, `/agents?status=`, `/agents/compliance`, `/revenue/aggregate` | 2 |
//! | `/agent/:id/lineage` | one per level |

use alloc::{string::String, vec::Vec};

use alloy_primitives::{Address, U256};
use alloy_sol_types::SolCall;

use crate::{
    abi::{
        AgentRecord,
        IAgentRegistry::{
            attestationGracePeriodCall, getAgentByWalletCall, getAgentCall, getChildrenCall,
            getRevenueHistoryCall, nextAgentIdCall,
        },
        RevenueReport,
    },
    agent::{Agent, AgentDetail, AgentId, AgentListItem, Status},
    compliance::{Compliance, ComplianceList, DEFAULT_GRACE_SECONDS},
    document::{Document, Shape},
    error::Error,
    health::Health,
    kya::Kya,
    lineage::{self, Member},
    page::{AgentPage, Page},
    revenue::{RevenueAggregate, RevenueHistory},
    route::Endpoint,
    rpc::revert::Revert,
    run::{Need, Query, View},
    stats::{DetailedStats, Stats},
    timestamp::Timestamp,
};

/// Agents an answer over the whole registry covers at most: what fits a Worker's memory with room to spare.
pub const MAX_AGENTS: u64 = 100_000;

/// The contract's words for an id or wallet it does not have (`service.md` section 7).
const AGENT_NOT_FOUND: &str = "Agent not found";
const WALLET_NOT_REGISTERED: &str = "No agent registered for this wallet";

/// A question to the registry. Its output is the answer as a [`Document`], or the error to answer with.
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
}

/// A value, or the error to answer with; the outer error of a reading function is [`Need`].
type Answer<T> = Result<T, Error>;

impl Query for Question {
    type Output = Answer<Document>;

    fn resolve(&self, view: &View) -> Result<Self::Output, Need> {
        let registry = Registry { view, address: self.registry };
        Ok(match &self.endpoint {
            Endpoint::Health => self.document(self.health(&registry)?),
            Endpoint::Stats => self.document(self.stats(&registry)?),
            Endpoint::DetailedStats => self.document(self.detailed_stats(&registry)?),
            Endpoint::Agent(id) => self.document(self.agent(&registry, *id)?),
            Endpoint::Agents { page, status: None } => self.document(agents(&registry, *page)?),
            Endpoint::Agents { page, status: Some(status) } => {
                self.document(agents_of(&registry, *page, *status)?)
            }
            Endpoint::Compliance => self.document(self.compliance(&registry)?),
            Endpoint::Lineage(id) => self.document(lineage(&registry, *id)?),
            Endpoint::Revenue { id, offset, limit } => {
                self.document(revenue(&registry, *id, *offset, *limit)?)
            }
            Endpoint::RevenueAggregate => self.document(revenue_aggregate(&registry)?),
            Endpoint::Kya(wallet) => self.document(self.kya(&registry, *wallet)?),
        })
    }

    fn is_one_round(&self) -> bool {
        match self.endpoint {
            Endpoint::Health
            | Endpoint::Stats
            | Endpoint::Agent(_)
            | Endpoint::Agents { status: None, .. }
            | Endpoint::Revenue { .. }
            | Endpoint::Kya(_) => true,
            Endpoint::DetailedStats
            | Endpoint::Agents { status: Some(_), .. }
            | Endpoint::Compliance
            | Endpoint::Lineage(_)
            | Endpoint::RevenueAggregate => false,
        }
    }
}

/// Ends a reading function with the error to answer with.
macro_rules! known {
    ($answer:expr) => {
        match $answer {
            Ok(value) => value,
            Err(error) => return Ok(Err(Error::from(error))),
        }
    };
}

impl Question {
    fn document<T: Shape>(&self, answer: Answer<T>) -> Answer<Document> {
        answer.map(|shape| {
            let links = shape.total().and_then(|total| self.endpoint.links(total));
            Document { links, ..Document::of(shape) }
        })
    }

    fn health(&self, registry: &Registry<'_>) -> Result<Answer<Health>, Need> {
        known!(registry.total()?);
        Ok(Ok(Health { status: "ok", registry: registry.address, rpc: self.chain.clone() }))
    }

    fn stats(&self, registry: &Registry<'_>) -> Result<Answer<Stats>, Need> {
        let total_agents = known!(registry.total()?);
        Ok(Ok(Stats { total_agents, registry_address: registry.address, chain: self.chain.clone() }))
    }

    fn detailed_stats(&self, registry: &Registry<'_>) -> Result<Answer<DetailedStats>, Need> {
        let grace = registry.grace_period();
        let stats = known!(self.stats(registry)?);
        let ids = known!(all_ids(stats.total_agents));
        let (agents, reports) = (registry.agents(&ids), registry.reports(&ids));
        let (agents, reports) = (known!(agents?), known!(reports?));
        Ok(Ok(DetailedStats::of(stats, &agents, &reports, known!(grace?), self.now)))
    }

    fn agent(&self, registry: &Registry<'_>, id: AgentId) -> Result<Answer<AgentDetail>, Need> {
        let (grace, children) = (registry.grace_period(), registry.children(id));
        let agent = known!(registry.agent(id)?);
        let (grace, children) = (known!(grace?), known!(children?));
        let compliance = Compliance::of(&agent, U256::from(children.len()), grace, self.now);
        Ok(Ok(AgentDetail { agent, children, compliance }))
    }

    fn compliance(&self, registry: &Registry<'_>) -> Result<Answer<ComplianceList>, Need> {
        let (grace, agents) = (registry.grace_period(), registry.all_agents());
        let (grace, agents) = (known!(grace?), known!(agents?));
        Ok(Ok(ComplianceList::of(&agents, grace, self.now)))
    }

    fn kya(&self, registry: &Registry<'_>, wallet: Address) -> Result<Answer<Kya>, Need> {
        let (grace, record) = (registry.grace_period(), registry.call(&getAgentByWalletCall { wallet }));
        let (grace, record) = (known!(grace?), record?);
        let agent = match record {
            Ok(record) => Some(known!(Agent::try_from(record))),
            Err(revert) if revert.message.as_deref() == Some(WALLET_NOT_REGISTERED) => None,
            Err(revert) => return Ok(Err(Error::reverted::<getAgentByWalletCall>(revert))),
        };
        Ok(Ok(Kya::of(wallet, agent, grace, self.now)))
    }
}

fn agents(registry: &Registry<'_>, page: Page) -> Result<Answer<AgentPage>, Need> {
    // Ids are dense from 1, so a page's ids are known without the total; those beyond it revert.
    let first = U256::from(page.skipped()) + U256::from(1);
    let ids: Vec<U256> = (0..page.limit).map(|index| first + U256::from(index)).collect();
    let (total, records) = (registry.total(), registry.records(&ids));
    let (total, records) = (known!(total?), records?);
    let mut data = Vec::new();
    for record in ids.iter().zip(records).take_while(|(id, _)| **id <= total).map(|(_, record)| record) {
        let agent = known!(Agent::try_from(known!(record.map_err(Error::reverted::<getAgentCall>))));
        data.push(AgentListItem::from(&agent));
    }
    Ok(Ok(AgentPage::of(page, total, data)))
}

fn agents_of(registry: &Registry<'_>, page: Page, status: Status) -> Result<Answer<AgentPage>, Need> {
    let agents = known!(registry.all_agents()?);
    let matching: Vec<AgentListItem> =
        agents.iter().filter(|agent| agent.status == status).map(AgentListItem::from).collect();
    Ok(Ok(AgentPage::of(page, U256::from(matching.len()), page.slice(&matching).to_vec())))
}

fn lineage(registry: &Registry<'_>, id: AgentId) -> Result<Answer<lineage::LineageNode>, Need> {
    let children = registry.children(id);
    let root = known!(registry.agent(id)?);
    let root = Member { agent: root, children: known!(children?) };
    let tree = lineage::grow(root, |ids| {
        let (records, children) =
            (registry.records(ids), registry.each(ids, |id| getChildrenCall { agentId: id }));
        let (records, children) = (records.map_err(Stop::Need)?, children.map_err(Stop::Need)?);
        let member = |(record, children): (Result<AgentRecord, Revert>, Result<Vec<U256>, Revert>)| {
            let Ok(record) = record else { return Ok(None) };
            let agent = Agent::try_from(record).map_err(Error::from)?;
            Ok(Some(Member { agent, children: children.map_err(Error::reverted::<getChildrenCall>)? }))
        };
        records.into_iter().zip(children).map(member).collect::<Answer<Vec<_>>>().map_err(Stop::Error)
    });
    match tree {
        Ok(tree) => Ok(Ok(tree)),
        Err(Stop::Error(error)) => Ok(Err(error)),
        Err(Stop::Need(need)) => Err(need),
    }
}

/// Why a lineage stopped growing.
enum Stop {
    Need(Need),
    Error(Error),
}

fn revenue(
    registry: &Registry<'_>,
    id: AgentId,
    offset: u64,
    limit: u64,
) -> Result<Answer<RevenueHistory>, Need> {
    let reports = registry.call(&getRevenueHistoryCall { agentId: id.0 });
    // The history of an unknown agent may be empty instead of an error: the record tells them apart.
    known!(registry.agent(id)?);
    let reports = known!(reports?.map_err(Error::reverted::<getRevenueHistoryCall>));
    Ok(Ok(RevenueHistory::of(&reports, offset, limit)))
}

fn revenue_aggregate(registry: &Registry<'_>) -> Result<Answer<RevenueAggregate>, Need> {
    let ids = known!(all_ids(known!(registry.total()?)));
    Ok(registry.reports(&ids)?.map(|reports| RevenueAggregate::of(&reports)))
}

/// The registry, read through a view: one function per contract read, reverts turned into answers.
struct Registry<'a> {
    view: &'a View,
    address: Address,
}

impl Registry<'_> {
    fn call<C: SolCall>(&self, call: &C) -> Result<Result<C::Return, Revert>, Need> {
        self.view.call(self.address, call)
    }

    fn each<C: SolCall>(
        &self,
        ids: &[U256],
        call: impl Fn(U256) -> C,
    ) -> Result<Vec<Result<C::Return, Revert>>, Need> {
        self.view.calls(self.address, ids.iter().map(|id| call(*id)))
    }

    /// How many agents there are: ids count from 1.
    fn total(&self) -> Result<Answer<U256>, Need> {
        let next = self.call(&nextAgentIdCall {})?;
        Ok(next.map(|next| next.saturating_sub(U256::from(1))).map_err(Error::reverted::<nextAgentIdCall>))
    }

    /// The grace period in seconds; the documented one where the contract has no such function.
    fn grace_period(&self) -> Result<Answer<U256>, Need> {
        Ok(match self.call(&attestationGracePeriodCall {})? {
            Ok(seconds) => Ok(seconds),
            Err(Revert { message: None }) => Ok(U256::from(DEFAULT_GRACE_SECONDS)),
            Err(revert) => Err(Error::reverted::<attestationGracePeriodCall>(revert)),
        })
    }

    fn agent(&self, id: AgentId) -> Result<Answer<Agent>, Need> {
        Ok(match self.call(&getAgentCall { agentId: id.0 })? {
            Ok(record) => Agent::try_from(record).map_err(Error::from),
            Err(revert) if revert.message.as_deref() == Some(AGENT_NOT_FOUND) => {
                Err(Error::AgentNotFound(id))
            }
            Err(revert) => Err(Error::reverted::<getAgentCall>(revert)),
        })
    }

    fn children(&self, id: AgentId) -> Result<Answer<Vec<U256>>, Need> {
        let children = self.call(&getChildrenCall { agentId: id.0 })?;
        Ok(match children {
            Ok(children) => Ok(children),
            Err(revert) if revert.message.as_deref() == Some(AGENT_NOT_FOUND) => {
                Err(Error::AgentNotFound(id))
            }
            Err(revert) => Err(Error::reverted::<getChildrenCall>(revert)),
        })
    }

    fn records(&self, ids: &[U256]) -> Result<Vec<Result<AgentRecord, Revert>>, Need> {
        self.each(ids, |id| getAgentCall { agentId: id })
    }

    fn agents(&self, ids: &[U256]) -> Result<Answer<Vec<Agent>>, Need> {
        let records = self.records(ids)?.into_iter();
        Ok(records.map(|record| Ok(record.map_err(Error::reverted::<getAgentCall>)?.try_into()?)).collect())
    }

    fn all_agents(&self) -> Result<Answer<Vec<Agent>>, Need> {
        let ids = known!(all_ids(known!(self.total()?)));
        self.agents(&ids)
    }

    /// All reports of these agents, one after another.
    fn reports(&self, ids: &[U256]) -> Result<Answer<Vec<RevenueReport>>, Need> {
        let histories = self.each(ids, |id| getRevenueHistoryCall { agentId: id })?;
        let histories: Result<Vec<_>, Revert> = histories.into_iter().collect();
        Ok(histories
            .map(|histories| histories.into_iter().flatten().collect())
            .map_err(Error::reverted::<getRevenueHistoryCall>))
    }
}

fn all_ids(total: U256) -> Answer<Vec<U256>> {
    match u64::try_from(total) {
        Ok(total) if total <= MAX_AGENTS => Ok((1..=total).map(U256::from).collect()),
        _ => Err(Error::TooManyAgents(total)),
    }
}
