//! The whole read API: a parsed [`Route`] in, a [`Query`] for its JSON body out. Worker and browser run
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

use alloy_primitives::{Address, U256};

use crate::{
    api::{
        document::{Document, Shape},
        error::Error,
        health::Health,
        route::Route,
        scan::{Scan, ScanQuery},
    },
    chain::{Halt, Query, QueryError, View, reader::Registry},
    eth::{
        abi::IAgentRegistry::getRevenueHistoryCall,
        address::AddressError,
        as_of::{AsOf, BlockId},
        timestamp::Timestamp,
    },
    index::Excerpt,
    registry::{
        agent::{Agent, AgentId, AgentListItem, Fetched},
        agent_detail::AgentDetail,
        ancestors::{self, Ancestors},
        compliance::Compliance,
        kya::{Kya, KyaItem, KyaList, WalletInput},
        lineage::{self, Children, LineageNode, Member},
        page::{AgentPage, Page},
        revenue::RevenueHistory,
        stats::Stats,
    },
};

/// A question to the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What is asked.
    pub endpoint: Route,
    /// The registry's address.
    pub registry: Address,
    /// The RPC endpoint as shown to clients: scheme and host, see [`public_origin`](crate::eth::redact::public_origin).
    pub chain: String,
    /// The host's clock.
    pub now: Timestamp,
    /// A scan that the host has at hand, by which a verdict tells a wallet's past.
    pub scan: Option<Scan>,
    /// What the host's index knows of the wallets; it goes before the scan.
    pub excerpt: Option<Excerpt>,
}

impl Query for Question {
    type Output = Document;
    type Error = Error;

    fn resolve(&self, view: &View) -> Result<Document, Halt<Error>> {
        Ok(Document { is_final: view.is_final(), ..self.document(view)? })
    }

    fn block(&self) -> Option<BlockId> {
        self.endpoint.block()
    }

    fn is_one_round(&self) -> bool {
        !matches!(
            self.endpoint,
            Route::Lineage(_) | Route::Ancestors(_) | Route::Evidence(_) | Route::Kya { history: true, .. }
        ) && !Scan::covers(&self.endpoint)
    }
}

impl Question {
    fn document(&self, view: &View) -> Result<Document, Halt<Error>> {
        let registry = Registry { view, address: self.registry };
        match &self.endpoint {
            Route::Health => self.told(self.health(&registry)),
            Route::Stats => self.told(self.stats(&registry)),
            Route::Agent { id, .. } => self.told(self.agent(&registry, *id)),
            Route::Ancestors(id) => self.told(ancestors(&registry, *id)),
            Route::Agents { page, status: None } => self.told(agents(&registry, *page)),
            Route::Lineage(id) => self.told(lineage(&registry, *id)),
            Route::Revenue { id, offset, limit } => self.told(revenue(&registry, *id, *offset, *limit)),
            Route::Kya { wallet, history, .. } => self.told(self.kya(&registry, *wallet, *history)),
            Route::KyaList { wallets, .. } => self.told(self.kya_list(&registry, wallets)),
            // Only hosts that make evidence carry what it takes.
            Route::Evidence(_) => Err(Halt::Error(evidence::NOT_MADE_HERE)),
            Route::Liable { .. } | Route::Listing(_) | Route::Changes { .. } | Route::History { .. } => {
                Err(Halt::Error(Error::IndexRequired))
            }
            Route::DetailedStats
            | Route::Agents { status: Some(_), .. }
            | Route::Compliance(_)
            | Route::RevenueAggregate => {
                let scan = ScanQuery { registry: self.registry, chain: self.chain.clone() }.resolve(view)?;
                scan.document(&self.endpoint, self.now).map_err(Halt::Error)
            }
        }
    }

    fn told<T: Shape>(&self, shape: Result<T, Halt>) -> Result<Document, Halt<Error>> {
        Ok(Document::of(shape?, &self.endpoint))
    }

    fn health(&self, registry: &Registry<'_>) -> Result<Health, Halt> {
        registry.total()?;
        Ok(Health { status: "ok", registry: registry.address, rpc: self.chain.clone() })
    }

    fn stats(&self, registry: &Registry<'_>) -> Result<Stats, Halt> {
        let total_agents = registry.total()?;
        Ok(Stats { total_agents, registry_address: registry.address, chain: self.chain.clone() })
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
    fn kya_list<'a>(&'a self, registry: &Registry<'a>, wallets: &[WalletInput]) -> Result<KyaList, Halt> {
        // All are asked for before one is missed.
        let read = |asked: &WalletInput| match asked {
            WalletInput::Wallet(wallet) => Ok((*wallet, registry.agent_of(*wallet))),
            WalletInput::Malformed { text, error } => Err(malformed(text, *error)),
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
            Ok((wallet, Err(Halt::Error(error)))) if error.is_of_one_record() => {
                Ok(KyaItem::failed(wallet.to_checksum(None), error.code(), error.to_string()))
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

/// An item of a list that is no wallet.
fn malformed(text: &str, error: AddressError) -> KyaItem {
    let error = Error::InvalidParameter { field: "wallet", rule: error.rule() };
    KyaItem::failed(text.to_owned(), error.code(), error.to_string())
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
            Err(QueryError::TooHeavy { .. }) => unreadable.push(AgentId(id)),
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
        let member = |(record, children): (Result<Agent, QueryError>, Result<Children, Halt>)| match record {
            Ok(agent) => Ok(Fetched::Found(Box::new(Member { agent: (&agent).into(), children: children? }))),
            Err(QueryError::Reverted { .. }) => Ok(Fetched::Absent),
            Err(QueryError::TooHeavy { .. }) => Ok(Fetched::Unreadable),
            Err(error) => Err(error.into()),
        };
        records?.into_iter().zip(children).map(member).collect()
    })
}

fn ancestors(registry: &Registry<'_>, id: AgentId) -> Result<Ancestors, Halt> {
    let (agent, as_of) = (registry.agent(id), registry.view.as_of());
    let (agent, as_of) = (agent?, as_of?);
    let (ancestors, note) = ancestors::climb(&agent, |id| match registry.agent(id) {
        Ok(agent) => Ok(Fetched::Found(Box::new(agent))),
        Err(Halt::Error(QueryError::AgentNotFound(_))) => Ok(Fetched::Absent),
        Err(Halt::Error(error)) if error.is_of_one_record() => Ok(Fetched::Unreadable),
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
