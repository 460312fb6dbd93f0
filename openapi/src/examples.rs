//! The examples: a registry of three agents, and the core's answers about it. The core's types write them,
//! so that an example cannot show an answer that the API would not give.

use core::convert::Infallible;
use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, U256, address, b256};
use openapi::Schemas;
use registry_core::{
    api::accept::{EVENTS_TYPE, JWT_TYPE},
    api::error::Error,
    api::health::{Health, Ready, ServiceStatus},
    api::route::{CHANGES_LIMIT_DEFAULT, HISTORY_LIMIT_DEFAULT, KYA_BODY_BYTES_MAX},
    api::scan::Scan,
    chain::{NodeFeatures, QueryError, RunError},
    eth::abi::RevenueReport,
    eth::as_of::{AsOf, IndexedAt},
    eth::timestamp::Timestamp,
    evidence::Evidence,
    registry::agent::{Agent, AgentId, Fetched, Status},
    registry::agent_detail::AgentDetail,
    registry::agent_item::{AgentListItem, AgentSummary},
    registry::agent_query::{AgentFilter, AgentQuery, Sort, Start},
    registry::ancestors::Ancestors,
    registry::changes::{Change, ChangeList, Cursor, Standing},
    registry::compliance::{Compliance, DEFAULT_GRACE_SECONDS},
    registry::cursor::AgentCursor,
    registry::history::{AgentEvent, AgentHistory, HistoryEvent},
    registry::kya::{Kya, KyaItem, KyaList, KyaRange},
    registry::liability::{Basis, Liability},
    registry::liable::{ByBasis, Lapse, Liable},
    registry::lineage::{self, LineageNode, Member},
    registry::page::{AgentList, AgentPage, Page},
    registry::revenue::{RevenueAggregate, RevenueHistory},
    registry::stats::Stats,
};
use serde_json::{Value, json};

/// Returns the content of each operation's 200, by the operation's id.
pub(crate) fn answers(schemas: &mut Schemas) -> BTreeMap<&'static str, Value> {
    let token =
        json!({ "type": "string", "pattern": "^[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]+\\.[A-Za-z0-9_-]{86}$" });
    let agents = json!({ "anyOf": [schemas.of::<AgentPage>(), schemas.of::<AgentList>()] });
    let agents = json!({ "application/json": { "schema": agents, "examples": {
        "page": { "value": page() },
        "from an index": { "value": list() },
    } } });
    let stats = Stats { total_agents: U256::from(3), registry_address: REGISTRY, chain: CHAIN.to_owned() };
    let health = Health { status: "ok", registry: REGISTRY, rpc: CHAIN.to_owned() };
    BTreeMap::from([
        ("checkWallet", schemas.answer(&kya(WALLET))),
        ("getToken", json!({ JWT_TYPE: { "schema": token } })),
        ("getEvidence", json!({ "application/json": { "schema": schemas.of::<Evidence>() } })),
        ("checkWallets", schemas.answer(&kya_list())),
        ("checkRange", schemas.answer(&kya_range())),
        ("getSnapshot", binary()),
        ("getShard", binary()),
        ("getShards", binary()),
        ("getAgent", schemas.answer(&agent())),
        ("listAgents", agents),
        ("listCompliance", schemas.answer(&in_full(scan().compliance(None, now())))),
        ("getLiable", schemas.answer(&liable())),
        ("getLineage", schemas.answer(&lineage())),
        ("getAncestors", schemas.answer(&ancestors())),
        ("getHistory", schemas.answer(&history())),
        ("listRevenue", schemas.answer(&RevenueHistory::of(&reports(), 0, 100))),
        ("getTotalRevenue", schemas.answer(&RevenueAggregate::of(&reports()))),
        ("listChanges", schemas.answer(&changes())),
        ("streamChanges", json!({ EVENTS_TYPE: { "schema": { "type": "string" }, "example": event() } })),
        ("getStats", schemas.answer(&stats)),
        ("getDetailedStats", schemas.answer(&in_full(scan().detailed_stats(now())))),
        ("getHealth", schemas.answer(&health)),
        ("isReady", schemas.answer(&ready())),
    ])
}

/// Returns the errors of failures, by the name of the response.
pub(crate) fn failures() -> BTreeMap<&'static str, Error> {
    let invalid = Error::InvalidParameter { field: "page", rule: "must be a whole number of at least 1" };
    BTreeMap::from([
        ("BadRequest", invalid),
        ("NotFound", QueryError::AgentNotFound(id(4)).into()),
        ("CursorExpired", Error::CursorExpired),
        ("NotAcceptable", Error::NotAcceptable("this service signs no verdicts, as VERDICT_KEYS is not set")),
        ("BodyTooLarge", Error::BodyTooLarge(KYA_BODY_BYTES_MAX)),
        ("UnsupportedMediaType", Error::UnsupportedMediaType),
        ("RateLimited", Error::RateLimited),
        ("Failed", RunError::Unreachable.into()),
        ("NotImplemented", Error::IndexRequired),
        ("Indexing", Error::Indexing { percent: 40 }),
        ("NotReady", RunError::Unreachable.into()),
    ])
}

/// The registry's address.
const REGISTRY: Address = address!("2EFaB5B3BEf49E56a6Ce1dcB1A39EF63C312EA23");
/// The RPC endpoint as answers name it.
const CHAIN: &str = "https://sepolia.base.org";
/// The wallet of a compliant agent.
pub(crate) const WALLET: Address = address!("F8BAF884A2a20d918e118b6de84D1B1bB02f5eb1");
/// A wallet without an agent.
pub(crate) const UNREGISTERED: Address = address!("5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed");

/// The time of the examples: noon on the first of March 2026.
const NOW: u64 = 1_772_366_400;
const DAY: u64 = 86_400;
const OPERATOR: Address = address!("9965507D1a55bcC2695C58ba16FB37d819B0A4dc");
const CONSTITUTION: B256 = b256!("b8a3c3ecbfcc7d6c1b6dd0aa0d9f7ce2c7f4b3a2a8b7a5d63ef2f1aee0f4c1d9");
const PARENT: B256 = b256!("5d0a6d3b3e5c1c1f0f7b8a54d2b9e86c4a7f2e31c0d98b6a5f4e3d2c1b0a9f8e");
const CAPABILITIES: B256 = b256!("1f0d6c9eb5a1a7a5f1d96bd8cbb6a0c3df6a1c4ffb9a9a83a4d0e61b2c5d7e80");

/// The newest block.
const AS_OF: AsOf =
    AsOf { block_number: 38_114_205, block_timestamp: Timestamp::from_seconds(NOW - 2), parent_hash: PARENT };
const INDEXED_AT: IndexedAt =
    IndexedAt { block_number: AS_OF.block_number, block_timestamp: AS_OF.block_timestamp };
const GRACE: U256 = U256::from_limbs([DEFAULT_GRACE_SECONDS, 0, 0, 0]);

fn now() -> Timestamp {
    ago(0)
}

fn ago(days: u64) -> Timestamp {
    Timestamp::from_seconds(NOW - days * DAY)
}

/// Returns a compliant root, its child with an expired attestation, and an agent that a regulator suspended.
fn agents() -> [Agent; 3] {
    let agent = |number, agent_wallet, scope: &str, attested| Agent {
        agent_id: id(number),
        creator: OPERATOR,
        haftungsperson: address!("7A9E6c203243de271b3253a77B526bDf96caD70B"),
        agent_wallet,
        constitution_hash: CONSTITUTION,
        capability_hash: CAPABILITIES,
        operational_scope: scope.to_owned(),
        parent_agent_id: id(0),
        generation: U256::ZERO,
        self_modifying: false,
        registered_at: ago(30),
        last_attestation: ago(attested),
        last_revenue_report: Timestamp::default(),
        status: Status::Active,
    };
    let root = agent(1, WALLET, "Research: reads papers, writes summaries, buys nothing", 2);
    let child = agent(2, address!("15d34AAf54267DB7D7c367839AAf71A00a2C6A65"), "Gathers papers", 9);
    let stopped = agent(3, address!("976EA74026E726554dB657fA54763abd0C3a0aa9"), "Trades energy", 3);
    [
        Agent { last_revenue_report: ago(2), ..root },
        Agent { parent_agent_id: id(1), generation: U256::from(1), self_modifying: true, ..child },
        Agent { registered_at: ago(20), status: Status::Suspended, ..stopped },
    ]
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

fn kya(wallet: Address) -> Kya {
    let agent = agents().into_iter().find(|agent| agent.agent_wallet == wallet);
    Kya::of(wallet, agent, GRACE, now(), AS_OF)
}

fn kya_list() -> KyaList {
    let verdict = |wallet| KyaItem::Verdict(Box::new(kya(wallet)));
    vec![verdict(WALLET), verdict(UNREGISTERED)].into()
}

/// Returns the content of parts of a snapshot.
fn binary() -> Value {
    json!({ "application/octet-stream": {} })
}

fn kya_range() -> KyaRange {
    let data = vec![KyaItem::Verdict(Box::new(kya(WALLET)))];
    let prefix = alloy_primitives::keccak256(WALLET).to_string().chars().skip(2).take(1).collect();
    KyaRange { prefix, prefix_digits_max: 1, total: data.len(), data, as_of: AS_OF }
}

fn ancestors() -> Ancestors {
    let [parent, agent, _] = agents();
    Ancestors { agent_id: agent.agent_id, ancestors: vec![(&parent).into()], note: None, as_of: AS_OF }
}

fn agent() -> AgentDetail {
    let [agent, child, _] = agents();
    let compliance = Compliance::of(&agent, U256::from(1), GRACE, now());
    let children = vec![child.agent_id.0];
    let liability = Liability::of_record(&agent);
    AgentDetail { agent, liability, children, compliance, truncated: false, note: None, as_of: None }
}

fn page() -> AgentPage {
    let agents = agents().each_ref().map(AgentListItem::from);
    let page = Page { number: 1, limit: 2 };
    AgentPage::of(page, U256::from(agents.len()), page.slice(&agents).to_vec())
}

/// Returns the first page of a person's agents.
fn list() -> AgentList {
    let query = AgentQuery {
        filter: AgentFilter { haftungsperson: Some(agents()[0].haftungsperson), ..AgentFilter::default() },
        sort: Sort::default(),
        start: Start::Page(1),
        limit: 2,
    };
    let shown = agents().iter().take(2).map(summary).collect();
    AgentList::of(&query, (agents().len() as u64, false), shown, Some(AgentCursor::after(2)), INDEXED_AT)
}

fn liable() -> Liable {
    let agents = agents();
    let mut liable = Liable {
        total: agents.len() as u64,
        data: agents.iter().map(summary).collect(),
        basis_distribution: Some(ByBasis { unknown: agents.len() as u64, ..ByBasis::default() }),
        ..Liable::none(agents[0].haftungsperson, 20, INDEXED_AT)
    };
    for summary in &liable.data {
        *liable.status_distribution.entry(summary.status).or_default() += 1;
        if summary.is_compliant {
            liable.compliant_count += 1;
            let lapses = summary.last_attestation.seconds() + DEFAULT_GRACE_SECONDS;
            liable.next_lapses.push(Lapse {
                agent_id: summary.agent_id,
                agent_wallet: summary.agent_wallet,
                compliant_until: Timestamp::from_seconds(lapses),
            });
        } else if summary.status == Status::Active {
            liable.expired_count += 1;
        }
    }
    liable
}

fn summary(agent: &Agent) -> AgentSummary {
    AgentSummary {
        agent_id: agent.agent_id,
        creator: agent.creator,
        haftungsperson: agent.haftungsperson,
        liability: Liability::of_record(agent),
        agent_wallet: agent.agent_wallet,
        operational_scope: agent.operational_scope.clone(),
        parent_agent_id: agent.parent_agent_id,
        generation: agent.generation.to(),
        registered_at: agent.registered_at,
        last_attestation: agent.last_attestation,
        status: agent.status,
        is_compliant: Compliance::of(agent, U256::ZERO, GRACE, now()).is_compliant(),
    }
}

fn lineage() -> LineageNode {
    let [root, child, _] = agents();
    let root = Member { agent: (&root).into(), children: vec![child.agent_id.0].into() };
    let child = Member { agent: (&child).into(), children: Vec::new().into() };
    let Ok(tree) =
        lineage::grow(root, |_| Ok::<_, Infallible>(vec![Fetched::Found(Box::new(child.clone()))]));
    tree
}

/// Returns the history of a suspended agent: its registration, a renewed attestation, the suspension.
fn history() -> AgentHistory {
    let [_, _, agent] = agents();
    let event = |event, seconds, log_index, transaction: u8| HistoryEvent {
        event,
        block_number: AS_OF.block_number - (NOW - seconds) / 2,
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
        event(registered, agent.registered_at.seconds(), 3, 0xa1),
        event(AgentEvent::Attested { by: agent.agent_wallet }, agent.last_attestation.seconds(), 0, 0xb2),
        event(AgentEvent::Suspended { by: OPERATOR, reason }, NOW - 400, 12, 0xc3),
    ];
    AgentHistory {
        agent_id: agent.agent_id,
        complete: true,
        incomplete_because: None,
        from_block: data.first().map(|first| first.block_number),
        limit: HISTORY_LIMIT_DEFAULT,
        data,
        next: None,
        as_of: INDEXED_AT,
    }
}

/// Returns the first event of a stream.
fn event() -> String {
    let ChangeList { data, .. } = changes();
    let of = |change: &Change| {
        let data = in_full(serde_json::to_string(change).map_err(|_| Error::NotFound));
        format!("event: change\nid: {}\ndata: {data}\n\n", change.cursor)
    };
    data.first().map(of).unwrap_or_default()
}

/// Returns a registration, and a suspension an hour later.
fn changes() -> ChangeList {
    let [agent, _, suspended] = agents();
    let change = |number, agent: Agent, from, to, seconds| Change {
        cursor: cursor(number),
        agent_id: agent.agent_id,
        wallet: agent.agent_wallet,
        liable: agent.haftungsperson,
        from,
        to,
        block_number: AS_OF.block_number - (NOW - seconds) / 2,
        time: Timestamp::from_seconds(seconds),
    };
    let active = Some(Standing::new(Status::Active, true, Some(Basis::Named)));
    let stopped = Some(Standing::new(Status::Suspended, true, Some(Basis::Named)));
    ChangeList {
        limit: CHANGES_LIMIT_DEFAULT,
        data: vec![
            change(1_201, agent, None, active, NOW - 4_000),
            change(1_202, suspended, active, stopped, NOW - 400),
        ],
        next: cursor(1_202),
        has_more: false,
        as_of: INDEXED_AT,
    }
}

fn cursor(number: u64) -> Cursor {
    Cursor { began: (NOW - 40 * DAY) * 1_000, number }
}

fn ready() -> Ready {
    let yes = Some(true);
    let node = NodeFeatures { block_hash: yes, proofs: yes, logs: yes, finalized: yes, batch: yes };
    Ready {
        ready: true,
        chain_id: U256::from(84_532),
        head_age_seconds: 2,
        registry: REGISTRY,
        service: ServiceStatus { node: vec![node], ..ServiceStatus::default() },
    }
}

/// Returns a document of a scan, which the few agents of the examples cannot make fail.
fn in_full<T>(document: Result<T, Error>) -> T {
    document.unwrap_or_else(|error| unreachable!("{error}"))
}

fn scan() -> Scan {
    Scan::of_agents(REGISTRY, CHAIN.to_owned(), GRACE, &agents(), &reports())
}
