//! The examples: a registry of three agents, and what the core makes of it. Nothing here is written as JSON, so
//! an example cannot show what the API would not answer.

use core::convert::Infallible;

use alloy_primitives::{Address, B256, U256, address, b256};
use registry_core::{
    api::health::{Health, Ready},
    api::route::{CHANGES_LIMIT_DEFAULT, HISTORY_LIMIT_DEFAULT},
    api::scan::Scan,
    eth::abi::RevenueReport,
    eth::as_of::{AsOf, IndexedAt},
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, AgentListItem, AgentSummary, Fetched, Status},
    registry::agent_detail::AgentDetail,
    registry::agent_query::{AgentFilter, AgentQuery, Sort, Start},
    registry::ancestors::Ancestors,
    registry::changes::{Change, ChangeList, Cursor, Standing},
    registry::compliance::{Compliance, ComplianceList, DEFAULT_GRACE_SECONDS},
    registry::cursor::AgentCursor,
    registry::history::{AgentEvent, AgentHistory, HistoryEvent},
    registry::kya::{Kya, KyaItem, KyaList},
    registry::liable::{Lapse, Liable},
    registry::lineage::{self, LineageNode, Member},
    registry::page::{AgentList, AgentPage, Page},
    registry::revenue::{RevenueAggregate, RevenueHistory},
    registry::stats::{DetailedStats, Stats},
};

/// The registry's address.
const REGISTRY: Address = address!("2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");
/// The RPC endpoint, as clients see it.
const CHAIN: &str = "https://sepolia.base.org";
/// The wallet of a compliant agent.
pub(crate) const WALLET: Address = address!("F8BAF884A2a20d918e118b6de84D1B1bB02f5eb1");
/// A wallet without an agent.
pub(crate) const STRANGER: Address = address!("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed");

/// When the examples' questions are asked: the first of March 2026, noon.
const NOW: u64 = 1_772_366_400;
const DAY: u64 = 86_400;
const OPERATOR: Address = address!("9965507D1a55bcC2695C58ba16FB37d819B0A4dc");
const CONSTITUTION: B256 = b256!("b8a3c3ecbfcc7d6c1b6dd0aa0d9f7ce2c7f4b3a2a8b7a5d63ef2f1aee0f4c1d9");
const PARENT: B256 = b256!("5d0a6d3b3e5c1c1f0f7b8a54d2b9e86c4a7f2e31c0d98b6a5f4e3d2c1b0a9f8e");
const CAPABILITIES: B256 = b256!("1f0d6c9eb5a1a7a5f1d96bd8cbb6a0c3df6a1c4ffb9a9a83a4d0e61b2c5d7e80");

fn now() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

/// The newest block.
fn as_of() -> AsOf {
    AsOf { block_number: 38_114_205, block_timestamp: Timestamp::from_seconds(NOW - 2), parent_hash: PARENT }
}

fn indexed_at() -> IndexedAt {
    IndexedAt { block_number: as_of().block_number, block_timestamp: as_of().block_timestamp }
}

fn grace() -> U256 {
    U256::from(DEFAULT_GRACE_SECONDS)
}

fn ago(days: u64) -> Timestamp {
    Timestamp::from_seconds(NOW - days * DAY)
}

/// A root that does well, its child whose attestation is too old, and one that a regulator stopped.
fn agents() -> [Agent; 3] {
    let first = Agent {
        agent_id: id(1),
        creator: OPERATOR,
        haftungsperson: address!("7A9E6c203243de271b3253a77B526bDf96caD70B"),
        agent_wallet: WALLET,
        constitution_hash: CONSTITUTION,
        capability_hash: CAPABILITIES,
        operational_scope: "Research: reads papers, writes summaries, buys nothing".to_owned(),
        parent_agent_id: id(0),
        generation: U256::ZERO,
        self_modifying: false,
        registered_at: ago(30),
        last_attestation: ago(2),
        last_revenue_report: ago(2),
        status: Status::Active,
    };
    let second = Agent {
        agent_id: id(2),
        agent_wallet: address!("15d34AAf54267DB7D7c367839AAf71A00a2C6A65"),
        operational_scope: "Gathers papers".to_owned(),
        parent_agent_id: id(1),
        generation: U256::from(1),
        self_modifying: true,
        last_attestation: ago(9),
        last_revenue_report: Timestamp::default(),
        ..first.clone()
    };
    let third = Agent {
        agent_id: id(3),
        agent_wallet: address!("976EA74026E726554dB657fA54763abd0C3a0aa9"),
        operational_scope: "Trades energy".to_owned(),
        registered_at: ago(20),
        last_attestation: ago(3),
        status: Status::Suspended,
        last_revenue_report: Timestamp::default(),
        ..first.clone()
    };
    [first, second, third]
}

fn id(number: u64) -> AgentId {
    AgentId(U256::from(number))
}

fn reports() -> [RevenueReport; 2] {
    let report = |cents: u64, category: &str, days: u64| RevenueReport {
        agentId: U256::from(1),
        amount: U256::from(cents),
        currency: "EUR".to_owned(),
        category: category.to_owned(),
        periodStart: NOW - (days + 7) * DAY,
        periodEnd: NOW - days * DAY,
        reportedAt: NOW - days * DAY,
    };
    [report(98_050, "research", 10), report(101_999, "licences", 2)]
}

pub(crate) fn kya(wallet: Address) -> Kya {
    let agent = agents().into_iter().find(|agent| agent.agent_wallet == wallet);
    Kya::of(wallet, agent, grace(), now(), as_of())
}

pub(crate) fn kya_list() -> KyaList {
    let verdict = |wallet| KyaItem::Verdict(Box::new(kya(wallet)));
    vec![verdict(WALLET), verdict(STRANGER)].into()
}

pub(crate) fn ancestors() -> Ancestors {
    let [parent, agent, _] = agents();
    Ancestors { agent_id: agent.agent_id, ancestors: vec![(&parent).into()], note: None, as_of: as_of() }
}

pub(crate) fn agent() -> AgentDetail {
    let [agent, child, _] = agents();
    let compliance = Compliance::of(&agent, U256::from(1), grace(), now());
    AgentDetail {
        agent,
        children: vec![child.agent_id.0],
        compliance,
        truncated: false,
        note: None,
        as_of: None,
    }
}

pub(crate) fn page() -> AgentPage {
    let agents = agents().each_ref().map(AgentListItem::from);
    let page = Page { number: 1, limit: 2 };
    AgentPage::of(page, U256::from(agents.len()), page.slice(&agents).to_vec())
}

/// The first page of a person's agents.
pub(crate) fn list() -> AgentList {
    let query = AgentQuery {
        filter: AgentFilter { haftungsperson: Some(agents()[0].haftungsperson), ..AgentFilter::default() },
        sort: Sort::default(),
        start: Start::Page(1),
        limit: 2,
    };
    let shown = agents().iter().take(2).map(summary).collect();
    AgentList::of(&query, (agents().len() as u64, false), shown, Some(AgentCursor::after(2)), indexed_at())
}

pub(crate) fn liable() -> Liable {
    let agents = agents();
    let summaries: Vec<AgentSummary> = agents.iter().map(summary).collect();
    let mut liable = Liable::none(agents[0].haftungsperson, 20, indexed_at());
    liable.total = summaries.len() as u64;
    for summary in &summaries {
        *liable.status_distribution.entry(summary.status).or_default() += 1;
        liable.compliant_count += u64::from(summary.is_compliant);
        liable.expired_count += u64::from(summary.status == Status::Active && !summary.is_compliant);
    }
    let compliant = summaries.iter().filter(|summary| summary.is_compliant);
    liable.next_lapses = compliant
        .map(|summary| Lapse {
            agent_id: summary.agent_id,
            agent_wallet: summary.agent_wallet,
            compliant_until: Timestamp::from_seconds(
                summary.last_attestation.seconds() + DEFAULT_GRACE_SECONDS,
            ),
        })
        .collect();
    liable.data = summaries;
    liable
}

fn summary(agent: &Agent) -> AgentSummary {
    AgentSummary {
        agent_id: agent.agent_id,
        creator: agent.creator,
        haftungsperson: agent.haftungsperson,
        agent_wallet: agent.agent_wallet,
        operational_scope: agent.operational_scope.clone(),
        parent_agent_id: agent.parent_agent_id,
        generation: agent.generation.to(),
        registered_at: agent.registered_at,
        last_attestation: agent.last_attestation,
        status: agent.status,
        is_compliant: Compliance::of(agent, U256::ZERO, grace(), now()).is_compliant(),
    }
}

pub(crate) fn compliance() -> ComplianceList {
    scan().compliance(None, now()).unwrap_or_else(|error| unreachable!("{error}"))
}

pub(crate) fn lineage() -> LineageNode {
    let [root, child, _] = agents();
    let root = Member { agent: (&root).into(), children: vec![child.agent_id.0].into() };
    let child = Member { agent: (&child).into(), children: Vec::new().into() };
    let tree = lineage::grow(root, |_| Ok::<_, Infallible>(vec![Fetched::Found(Box::new(child.clone()))]));
    match tree {
        Ok(tree) => tree,
        Err(never) => match never {},
    }
}

pub(crate) fn revenue() -> RevenueHistory {
    RevenueHistory::of(&reports(), 0, 100)
}

pub(crate) fn aggregate() -> RevenueAggregate {
    RevenueAggregate::of(&reports())
}

/// A suspended agent's: its registration, a renewed attestation, the suspension.
pub(crate) fn history() -> AgentHistory {
    let [_, _, agent] = agents();
    let told = |event, seconds, log_index, transaction: u8| HistoryEvent {
        event,
        block_number: as_of().block_number - (NOW - seconds) / 2,
        time: Timestamp::from_seconds(seconds),
        transaction_hash: B256::repeat_byte(transaction),
        log_index,
    };
    let registered = AgentEvent::Registered {
        creator: agent.creator,
        haftungsperson: agent.haftungsperson,
        agent_wallet: agent.agent_wallet,
        parent_agent_id: agent.parent_agent_id,
        generation: agent.generation,
    };
    let reason = "Operator under investigation".to_owned();
    let data = vec![
        told(registered, agent.registered_at.seconds(), 3, 0xa1),
        told(AgentEvent::Attested { by: agent.agent_wallet }, agent.last_attestation.seconds(), 0, 0xb2),
        told(AgentEvent::Suspended { by: OPERATOR, reason }, NOW - 400, 12, 0xc3),
    ];
    AgentHistory {
        agent_id: agent.agent_id,
        complete: true,
        incomplete_because: None,
        from_block: data.first().map(|first| first.block_number),
        limit: HISTORY_LIMIT_DEFAULT,
        data,
        next: None,
        as_of: IndexedAt { block_number: as_of().block_number, block_timestamp: as_of().block_timestamp },
    }
}

/// A registration, and a suspension an hour later.
pub(crate) fn changes() -> ChangeList {
    let [agent, _, suspended] = agents();
    let change = |number, agent: Agent, from, to, seconds| Change {
        cursor: cursor(number),
        agent_id: agent.agent_id,
        wallet: agent.agent_wallet,
        from,
        to,
        block_number: as_of().block_number - (NOW - seconds) / 2,
        time: Timestamp::from_seconds(seconds),
    };
    let active = Some(Standing::new(Status::Active, true));
    let stopped = Some(Standing::new(Status::Suspended, true));
    ChangeList {
        limit: CHANGES_LIMIT_DEFAULT,
        data: vec![
            change(1_201, agent, None, active, NOW - 4_000),
            change(1_202, suspended, active, stopped, NOW - 400),
        ],
        next: cursor(1_202),
        has_more: false,
        as_of: indexed_at(),
    }
}

fn cursor(number: u64) -> Cursor {
    Cursor { began: (NOW - 40 * DAY) * 1_000, number }
}

pub(crate) fn stats() -> Stats {
    Stats { total_agents: U256::from(agents().len()), registry_address: REGISTRY, chain: CHAIN.to_owned() }
}

pub(crate) fn health() -> Health {
    Health { status: "ok", registry: REGISTRY, rpc: CHAIN.to_owned() }
}

pub(crate) fn ready() -> Ready {
    Ready { ready: true, chain_id: U256::from(84_532), head_age_seconds: 2, registry: REGISTRY, index: None }
}

pub(crate) fn detailed_stats() -> DetailedStats {
    scan().detailed_stats(now()).unwrap_or_else(|error| unreachable!("{error}"))
}

fn scan() -> Scan {
    Scan::of_agents(REGISTRY, CHAIN.to_owned(), grace(), &agents(), &reports())
}
