//! The read API: a parsed [`Route`] becomes a [`Query`] for its document, the same in Worker and browser.
//!
//! | route | round trips |
//! |---|---|
//! | `/health`, `/stats`, `/agents` without filter, `/agent/:id`, `/agent/:id/revenue`, `/kya/:wallet` | 1 |
//! | `/stats/detailed`, `/agents?status=`, `/agents/compliance`, `/revenue/aggregate` | 2 to 10,000 agents |
//! | `/kya/:wallet,:wallet...`, up to 100 | 1 |
//! | `/agent/:id/lineage`, `/agent/:id/ancestors` | one per level |
//! | `/kya/:wallet?evidence=1` | 2 |
//!
//! A node with low limits takes more round trips, and so do lists of an agent that exceed the node's gas
//! limit. A verdict takes a second one if the index's excerpt arrives during the first and names ancestors,
//! or is older than an agent.

mod evidence;
mod late_excerpt;
mod past;
mod revenue;

pub use evidence::WithEvidence;
pub use late_excerpt::LateExcerpt;
pub use revenue::{RevenueQuery, RevenueReports};

use alloy_primitives::{Address, U256};

use crate::{
    api::{
        document::{Document, Shape},
        error::Error,
        health::Health,
        route::Route,
        scan::{Scan, ScanQuery},
    },
    chain::{
        Halt, Query, QueryError, View,
        reader::{Registry, is_absent},
    },
    eth::{
        as_of::{AsOf, BlockId},
        timestamp::Timestamp,
    },
    registry::{
        agent::{Agent, AgentId, Fetched},
        agent_detail::AgentDetail,
        agent_item::AgentListItem,
        ancestors::{self, Ancestors},
        compliance::Compliance,
        error_code::Code,
        kya::{Kya, KyaItem, KyaList, WalletInput},
        liability::Liability,
        lineage::{self, Children, LineageNode, Member},
        page::{AgentPage, Page},
        stats::Stats,
    },
};

/// The most bytes of operational scopes in a list of verdicts. For one wallet a hundred times, or from a node
/// that lies, they would otherwise be a hundred times as long as the node's reply.
pub(super) const LIST_SCOPE_BYTES: usize = 512 * 1024;

/// One request, with the host's clock and cached data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The parsed request.
    pub route: Route,
    /// The registry's address.
    pub registry: Address,
    /// The RPC endpoint as shown to clients: scheme and host, see
    /// [`public_origin`](crate::eth::redact::public_origin).
    pub chain: String,
    /// The host's clock.
    pub now: Timestamp,
    /// A scan that the host has cached, for the past of a wallet.
    pub scan: Option<Scan>,
    /// The index's excerpt on the wallets, which is preferred to the scan; `None` without an index.
    pub excerpt: Option<LateExcerpt>,
}

impl Query for Question {
    type Output = Document;
    type Error = Error;

    fn resolve(&self, view: &View) -> Result<Document, Halt<Error>> {
        Ok(Document { is_final: view.is_final(), ..self.document(view)? })
    }

    fn block(&self) -> Option<BlockId> {
        self.route.block()
    }

    fn is_one_round(&self) -> bool {
        self.route.is_one_round()
    }
}

impl Question {
    fn document(&self, view: &View) -> Result<Document, Halt<Error>> {
        let registry = Registry { view, address: self.registry };
        match &self.route {
            Route::Health => self.answer(self.health(&registry)),
            Route::Stats => self.answer(self.stats(&registry)),
            Route::Agent { id, .. } => self.answer(self.agent(&registry, *id)),
            Route::Ancestors(id) => self.answer(ancestors(&registry, *id)),
            Route::Agents { page, status: None } => self.answer(agents(&registry, *page)),
            Route::Lineage(id) => self.answer(lineage(&registry, *id)),
            Route::Revenue { id, offset, limit } => {
                self.answer(RevenueReports::read(&registry, *id).map(|reports| reports.page(*offset, *limit)))
            }
            Route::Kya { wallet, history, .. } => self.answer(self.kya(&registry, *wallet, *history)),
            Route::KyaList { wallets, .. } => self.answer(self.kya_list(&registry, wallets)),
            // Only hosts that make evidence carry the code for it.
            Route::Evidence(_) => Err(Halt::Error(evidence::NOT_MADE_HERE)),
            route if route.needs_index() => Err(Halt::Error(Error::IndexRequired)),
            route => {
                let scan = ScanQuery { registry: self.registry, chain: self.chain.clone() }.resolve(view)?;
                scan.document(route, self.now).map_err(Halt::Error)
            }
        }
    }

    fn answer<T: Shape>(&self, shape: Result<T, Halt>) -> Result<Document, Halt<Error>> {
        Ok(Document::of(shape?, &self.route))
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
        let as_of = registry.view.as_of();
        let agent = registry.agent(id)?;
        let (grace, children, as_of) = (grace?, children?, as_of?);
        let compliance = Compliance::of(&agent, children.total, grace, self.time_of(as_of));
        let as_of = self.route.block().map(|_| as_of);
        Ok(AgentDetail {
            liability: Liability::of_record(&agent),
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
        let past_sources = self.past_sources(registry, [wallet], history);
        let (grace, agent, as_of) = (grace?, agent?, as_of?);
        let past = past_sources.of(registry, wallet, agent.as_ref())?;
        let liability = agent.as_ref().map(|agent| past_sources.liability(agent, as_of));
        Ok(self.judge(wallet, agent, liability, grace, as_of).with_past(past))
    }

    /// Judges each wallet. A record that cannot be read fails its own item only.
    fn kya_list<'a>(&'a self, registry: &Registry<'a>, wallets: &[WalletInput]) -> Result<KyaList, Halt> {
        let unique = self.route.wallets();
        // All are requested before the first missing one ends the round.
        for wallet in &unique {
            let _ = registry.agent_of(*wallet);
        }
        if unique.is_empty() {
            return Ok(wallets.iter().filter_map(malformed).collect::<Vec<_>>().into());
        }
        let (grace, as_of) = (registry.grace_period(), registry.view.as_of());
        let past_sources = self.past_sources(registry, unique, false);
        let (grace, as_of) = (grace?, as_of?);
        let (mut items, mut scope_bytes) = (Vec::new(), 0);
        for asked in wallets {
            items.extend(malformed(asked));
            let WalletInput::Wallet(wallet) = *asked else { continue };
            let failed = |code, message| KyaItem::failed(wallet.to_checksum(None), code, message);
            let agent = registry.agent_of(wallet);
            if let Ok(Some(agent)) = &agent {
                scope_bytes += agent.operational_scope.len();
            }
            items.push(match agent {
                _ if scope_bytes > LIST_SCOPE_BYTES => failed(Code::TooLarge, TOO_LONG.to_owned()),
                Ok(agent) => {
                    let past = past_sources.of(registry, wallet, agent.as_ref())?;
                    let liability = agent.as_ref().map(|agent| past_sources.liability(agent, as_of));
                    let kya = self.judge(wallet, agent, liability, grace, as_of).with_past(past);
                    KyaItem::Verdict(Box::new(kya))
                }
                Err(Halt::Error(error)) if error.is_of_one_record() => {
                    failed(error.code(), error.to_string())
                }
                Err(halt) => return Err(halt),
            });
        }
        Ok(items.into())
    }

    /// Returns the verdict as of the host's clock, or of the requested block.
    fn judge(
        &self,
        wallet: Address,
        agent: Option<Agent>,
        liability: Option<Liability>,
        grace: U256,
        as_of: AsOf,
    ) -> Kya {
        let kya = Kya { liability, ..Kya::of(wallet, agent, grace, self.time_of(as_of), as_of) };
        match self.route.block() {
            // A verdict at a past block never lapses.
            Some(_) => Kya { checked_at: self.now, valid_until: None, ..kya },
            None => kya,
        }
    }

    /// Returns the time to judge compliance at: a requested block's, else the later of clock and block time.
    fn time_of(&self, as_of: AsOf) -> Timestamp {
        let block_time = as_of.block_timestamp;
        if self.route.block().is_some() { block_time } else { self.now.max(block_time) }
    }
}

/// The message of an item that exceeds [`LIST_SCOPE_BYTES`].
pub(super) const TOO_LONG: &str = "The list's operational scopes are too long: ask for this wallet alone";

/// Returns the item for a text that is not a wallet; `None` for a wallet.
pub(super) fn malformed(asked: &WalletInput) -> Option<KyaItem> {
    let WalletInput::Malformed { text, error } = asked else { return None };
    let error = Error::InvalidParameter { field: "wallet", rule: error.rule() };
    Some(KyaItem::failed(text.clone(), error.code(), error.to_string()))
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
        // All are requested before the first missing one ends the round.
        let children: Vec<_> = ids.iter().map(|id| registry.children(*id)).collect();
        let member = |(record, children): (Result<Agent, QueryError>, Result<Children, Halt>)| match record {
            Ok(agent) => Ok(Fetched::Found(Box::new(Member { agent: (&agent).into(), children: children? }))),
            Err(error) if is_absent(&error) => Ok(Fetched::Absent),
            Err(QueryError::Reverted { .. } | QueryError::TooHeavy { .. }) => Ok(Fetched::Unreadable),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chain::Limits, chain::Run, eth::multicall::CANONICAL_ADDRESS};

    #[test]
    fn what_only_an_index_can_tell_is_refused_without_a_call() {
        let liable = format!("liable/{}", Address::ZERO);
        let others = "agents?sort=-id agents?q=papers agents?compliant=true agent/1/history changes";
        for target in others.split(' ').chain([liable.as_str()]) {
            let route = Route::parse(&format!("/api/v1/{target}")).unwrap();
            let (chain, now) = ("http://node".to_owned(), Timestamp::default());
            let question = Question { route, registry: Address::ZERO, chain, now, scan: None, excerpt: None };
            let step = Run::new(question, CANONICAL_ADDRESS, Limits::default()).step();
            assert_eq!(step.err(), Some(Error::IndexRequired), "{target}");
        }
    }
}
