//! The registry's snapshot: its verdicts are the chain's, and a shard of one version never changes.

use std::collections::{BTreeMap, HashMap};

use alloy_primitives::{Address, U256, keccak256};
use registry_core::{
    api::{
        document::Document,
        route::Route,
        snapshot_documents::{document, shards_for},
    },
    chain::{Limits, Run, drive},
    eth::{abi::AgentRecord, multicall::CANONICAL_ADDRESS, timestamp::Timestamp},
    index::{Basis, Excerpt, IndexError},
    snapshot::{Identity, Manifest, Shard, ShardEntry, Shards, shard},
};
use serde_json::{Value, json};

use crate::{
    Indexed, REGISTRY,
    common::{CHAIN_ID, NOW, PlainRegistry, question, record, split_mix::setting},
    history::{Chance, History},
    promises::{filled, filled_with, mine, show},
};

const IDENTITY: Identity = Identity { chain_id: CHAIN_ID, registry: REGISTRY };

/// What a host has fetched, by name: never fetched again.
pub(crate) type Shelf = HashMap<ShardEntry, Vec<u8>>;

/// The manifest, as the object hands it out: none while a shard's version is of a height that the chain has
/// not reached again after a reorg.
pub(crate) fn manifest(index: &Indexed) -> Result<Manifest, IndexError> {
    let made = Shards::read(&index.database)?.manifest(&index.state(), IDENTITY)?;
    let bytes = made.encode().map_err(|_| IndexError::Uncovered)?;
    assert_eq!(Manifest::parse(&bytes), Ok(made.clone()));
    Ok(made)
}

fn bytes(index: &Indexed, entry: ShardEntry) -> Option<Vec<u8>> {
    shard(&index.database, &index.state(), &IDENTITY, entry).unwrap()
}

/// All shards of the manifest; those on the shelf have to be as they were.
fn shards(index: &Indexed, manifest: &Manifest, shelf: &mut Shelf) -> Result<Vec<Shard>, String> {
    let mut shards = Vec::new();
    for entry in manifest.shards() {
        let made = bytes(index, *entry).ok_or(format!("{entry:?} is not there"))?;
        let kept = shelf.entry(*entry).or_insert_with(|| made.clone());
        if *kept != made {
            return Err(format!("{entry:?} has changed: {kept:?}\nnot {made:?}"));
        }
        shards.push(Shard::parse(made, &IDENTITY, *entry).map_err(|error| error.to_string())?);
    }
    Ok(shards)
}

/// The document of a route from the snapshot.
fn told(index: &Indexed, target: &str) -> Option<Document> {
    let (route, manifest) = (Route::parse(target).unwrap(), manifest(index).unwrap());
    let entries = shards_for(&route, &manifest).unwrap().unwrap();
    let shards: Vec<Shard> = entries
        .iter()
        .map(|entry| Shard::parse(bytes(index, *entry).unwrap(), &IDENTITY, *entry).unwrap())
        .collect();
    let shards: Vec<&Shard> = shards.iter().collect();
    document(&route, &manifest, &shards, Timestamp::from_seconds(NOW))
}

/// The document of a route from the chain, with the index's excerpt.
fn asked(index: &mut Indexed, target: &str) -> Document {
    let mut question = question(target);
    let excerpt = Excerpt::of(&index.database, &index.state(), &question.route.wallets()).unwrap();
    question.excerpt = Some(excerpt.into());
    let node = &mut index.node;
    drive(Run::new(question, CANONICAL_ADDRESS, Limits::default()), |batch| node.post(batch)).unwrap()
}

/// Holds the verdicts on all wallets against that registry, where there is a snapshot.
pub(crate) fn is_like(index: &Indexed, registry: &PlainRegistry, now: u64) -> Result<(), String> {
    let Ok(manifest) = manifest(index) else { return Ok(()) };
    let shards = shards(index, &manifest, &mut index.shelf.borrow_mut())?;
    let shards: Vec<&Shard> = shards.iter().collect();
    let held: usize = shards.iter().map(|shard| shard.len()).sum();
    let status = |id: U256| registry.agents[id.to::<usize>() - 1].status;
    let name = |status: u8| ["Active", "Suspended", "Revoked", "Terminated"][usize::from(status)];
    for agent in &registry.agents {
        let route = Route::parse(&format!("/api/v1/kya/{}", agent.agentWallet)).unwrap();
        let document = document(&route, &manifest, &shards, Timestamp::from_seconds(now)).unwrap();
        let verdict: Value = serde_json::from_str(&document.body).unwrap();
        let mut above = Vec::new();
        let mut next = agent.parentAgentId;
        for _ in 0..14 {
            if next.is_zero() {
                break;
            }
            if status(next) != 0 {
                above.push(json!({ "agentId": next.to::<u64>(), "status": name(status(next)) }));
            }
            next = registry.agents[next.to::<usize>() - 1].parentAgentId;
        }
        let expected = match agent.status {
            0 | 1 => (json!(agent.agentId.to::<u64>()), json!(name(agent.status)), json!(above), 0),
            _ => (Value::Null, Value::Null, json!([]), 1),
        };
        let found = &verdict["agent"];
        let former = verdict["formerAgents"].as_array().unwrap().len();
        let found = (
            found["agentId"].clone(),
            found["status"].clone(),
            verdict["ancestorsNotActive"].clone(),
            former,
        );
        if found != expected || held != registry.agents.len() {
            return Err(format!("snapshot of {}: {verdict}\nnot {expected:?}", agent.agentId));
        }
    }
    Ok(())
}

/// The wallets of a registry, and some that no agent has.
fn wallets(history: &History) -> Vec<Address> {
    let agents = &history.blocks[&history.newest()].registry.agents;
    let unknown = (1..=20_u8).map(Address::repeat_byte);
    agents.iter().map(|agent| agent.agentWallet).chain(unknown).collect()
}

fn is_the_chains(index: &mut Indexed, history: &History) {
    let wallets = wallets(history);
    for wallet in &wallets {
        let target = format!("/api/v1/kya/{wallet}");
        let expected = asked(index, &target);
        assert_eq!(told(index, &target), Some(Document { is_final: false, ..expected }), "{wallet}");
    }
    let of_list = wallets.iter().rev().take(18).map(Address::to_string).collect::<Vec<_>>().join(",");
    let target = format!("/api/v1/kya/{of_list},nonsense");
    let expected = asked(index, &target);
    assert_eq!(told(index, &target), Some(Document { is_final: false, ..expected }));
}

#[test]
fn every_verdict_is_the_chains_byte_for_byte() {
    let (mut index, mut history, mut chance) = filled(60, 0);
    // The first refresh learns the storage root.
    mine(&mut history, &mut chance, |registry| registry.agents[6].status = 2);
    show(&mut index, &history);
    index.work().unwrap();
    is_the_chains(&mut index, &history);
    for round in 0..12 {
        mine(&mut history, &mut chance, |registry| {
            let total = registry.agents.len();
            registry.agents[round * 3].status = (round % 4) as u8;
            registry.agents[round * 2 + 1].lastAttestation = NOW;
            // Ended agents' wallets are registered again, some of them often.
            let wallet = registry.agents[6].agentWallet;
            if registry.agents.iter().all(|agent| agent.agentWallet != wallet || agent.status > 1) {
                let next = AgentRecord { agentWallet: wallet, ..record(total as u64 + 1, 2) };
                registry.agents.push(next);
            }
        });
        show(&mut index, &history);
        index.work().unwrap();
        mine(&mut history, &mut chance, |registry| registry.agents.last_mut().unwrap().status = 3);
        show(&mut index, &history);
        index.work().unwrap();
        assert_eq!(index.state().basis, Basis::StorageRoot);
        is_the_chains(&mut index, &history);
    }
}

#[test]
fn a_wallet_with_more_former_agents_than_are_shown_costs_no_more() {
    let (mut index, mut history, mut chance) = filled(10, 0);
    let wallet = history.blocks[&history.newest()].registry.agents[3].agentWallet;
    mine(&mut history, &mut chance, |registry| {
        registry.agents[3].status = 3;
        for id in 11..=90 {
            let status = if id == 90 { 0 } else { 2 };
            registry.agents.push(AgentRecord { agentWallet: wallet, status, ..record(id, 0) });
        }
    });
    show(&mut index, &history);
    index.work().unwrap();
    index.work().unwrap();
    is_the_chains(&mut index, &history);
    let only = manifest(&index).unwrap().shards()[0];
    assert!(bytes(&index, only).unwrap().len() < 3_500);
}

#[test]
fn wallets_of_one_place_with_thousands_of_former_agents_have_a_shard_that_costs_no_more() {
    let (mut index, mut history, mut chance) = filled(10, 0);
    // Their Keccak-256 begin with the same 48 bits: 9ba8aee75c63.
    let wallets = [9_649_088_u64, 19_946_483].map(numbered);
    mine(&mut history, &mut chance, |registry| {
        for id in 11..=5_010_u64 {
            let status = if id > 5_008 { 0 } else { 2 };
            let wallet = wallets[usize::try_from(id % 2).unwrap()];
            registry.agents.push(AgentRecord { agentWallet: wallet, status, ..record(id, 0) });
        }
    });
    show(&mut index, &history);
    index.work().unwrap();
    index.work().unwrap();
    is_the_chains(&mut index, &history);
    let manifest = manifest(&index).unwrap();
    let own = wallets.map(|wallet| manifest.shard_of(wallet).unwrap());
    assert!(own[0] == own[1] && own[0].range.bits == 48, "one place alone cannot be split: {own:?}");
    index.database.steps.take();
    assert!(bytes(&index, own[0]).unwrap().len() < 7_000);
    let steps: u64 = index.database.steps.take().values().sum();
    assert!(steps < 2_000, "{steps} steps");
}

#[test]
fn a_scope_that_the_index_may_have_cut_is_for_the_chain_to_tell() {
    let (mut index, mut history, mut chance) = filled(10, 0);
    mine(&mut history, &mut chance, |registry| {
        for (agent, bytes) in registry.agents.iter_mut().zip([252, 253, 256, 257, 4_000]) {
            (agent.operationalScope, agent.status) = ("x".repeat(bytes), 0);
        }
    });
    show(&mut index, &history);
    index.work().unwrap();
    index.work().unwrap();
    let told: Vec<bool> = history.blocks[&history.newest()].registry.agents[..5]
        .iter()
        .map(|agent| told(&index, &format!("/api/v1/kya/{}", agent.agentWallet)).is_some())
        .collect();
    assert_eq!(told, [true, false, false, false, false]);
}

#[test]
fn there_is_no_snapshot_while_the_root_does_not_vouch_for_the_rows() {
    let (mut index, mut history, mut chance) = filled(10, 0);
    index.work().unwrap();
    assert!(manifest(&index).is_ok());
    // A change of which the event is late.
    mine(&mut history, &mut chance, |registry| registry.agents[6].status = 1);
    let newest = history.newest();
    let told = std::mem::take(&mut history.blocks.get_mut(&newest).unwrap().events);
    show(&mut index, &history);
    index.work().unwrap();
    assert_eq!(manifest(&index).unwrap_err(), IndexError::Uncovered);
    history.blocks.get_mut(&newest).unwrap().events = told;
    show(&mut index, &history);
    index.now += 3;
    index.work().unwrap();
    assert!(manifest(&index).is_ok(), "{:?}", index.state());
    // An agent that cannot be read may have any wallet.
    mine(&mut history, &mut chance, |registry| registry.agents[6].status = 255);
    show(&mut index, &history);
    index.work().unwrap();
    assert_eq!(manifest(&index).unwrap_err(), IndexError::Uncovered);
}

#[test]
fn one_shard_holds_up_to_128_agents_and_a_version_that_is_gone_is_not_given() {
    let (mut index, mut history, mut chance) = filled(128, 0);
    index.work().unwrap();
    let before = manifest(&index).unwrap();
    assert_eq!(before.shards().len(), 1);
    mine(&mut history, &mut chance, |registry| registry.agents[6].lastAttestation = NOW);
    show(&mut index, &history);
    index.work().unwrap();
    let after = manifest(&index).unwrap();
    assert_ne!(before.shards(), after.shards());
    assert_eq!(bytes(&index, before.shards()[0]), None);
    // A revenue report changes no verdict, and no shard.
    mine(&mut history, &mut chance, |registry| registry.reports.push(crate::common::report(3, 1)));
    let newest = history.newest();
    history.blocks.get_mut(&newest).unwrap().events.push(3);
    show(&mut index, &history);
    index.work().unwrap();
    let later = manifest(&index).unwrap();
    assert!(later.as_of.block_number > after.as_of.block_number);
    assert_eq!(later.shards(), after.shards());
}

#[test]
fn a_shard_takes_a_handful_of_statements_whatever_it_holds() {
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    // A path of 20 agents, and the others below its end.
    registry.agents = (1..=2_000_u64).map(|id| record(id, id.min(21) - 1)).collect();
    let mut history = History::new(0, &mut Chance(3));
    history.push(2, NOW - 100_000, registry, Vec::new());
    let mut index = filled_with(&history, 0);
    index.work().unwrap();
    let manifest = manifest(&index).unwrap();
    for entry in manifest.shards() {
        let before = index.database.executed.get();
        index.database.steps.take();
        let size = bytes(&index, *entry).unwrap().len();
        let (statements, steps) = (index.database.executed.get() - before, index.database.steps.take());
        let steps: u64 = steps.values().sum();
        println!("{size} bytes: {statements} statements, {steps} steps");
        // Its version, its agents, fourteen levels of ancestors, ends.
        assert!(statements <= 17 && steps < 60_000, "{statements} statements, {steps} steps");
    }
}

/// A wallet by its number.
fn numbered(number: u64) -> Address {
    Address::left_padding_from(&(number | 1 << 60).to_be_bytes())
}

/// Wallets with a Keccak-256 that begins with the same bits, as many as that.
fn sharing(bits: u32, count: usize) -> Vec<Address> {
    let of = |wallet: &Address| {
        let [first, second, ..] = keccak256(wallet).0;
        (u16::from_be_bytes([first, second]) ^ 0xa5c3) >> (16 - bits) == 0
    };
    (0..).map(numbered).filter(of).take(count).collect()
}

/// `SHARED_BITS=16` grinds for half a minute in a release build.
#[test]
fn a_huge_shard_is_split_alone_and_lookups_beside_it_stay_the_same() {
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    registry.agents = (1..=3_000).map(|id| record(id, 0)).collect();
    let mut chance = Chance(3);
    let mut history = History::new(0, &mut chance);
    history.push(2, NOW - 100_000, registry, Vec::new());
    let mut index = filled_with(&history, 0);
    index.work().unwrap();
    let (before, mut shelf) = (manifest(&index).unwrap(), Shelf::new());
    shards(&index, &before, &mut shelf).unwrap();
    let sizes = || before.shards().iter().map(|entry| bytes(&index, *entry).unwrap().len());
    println!(
        "3,000 agents: {} shards of {} to {} bytes",
        sizes().len(),
        sizes().min().unwrap(),
        sizes().max().unwrap()
    );
    assert!(sizes().max().unwrap() < 80 * 1_024);

    let bits = u32::try_from(setting("SHARED_BITS", 8)).unwrap();
    let crowd = sharing(bits, 5_000);
    let hit = before.shard_of(crowd[0]).unwrap();
    for part in crowd.chunks(700) {
        mine(&mut history, &mut chance, |registry| {
            let first = registry.agents.len() as u64 + 1;
            registry.agents.extend(
                (first..).zip(part).map(|(id, wallet)| AgentRecord { agentWallet: *wallet, ..record(id, 0) }),
            );
        });
        show(&mut index, &history);
        index.work().unwrap();
    }
    let after = manifest(&index).unwrap();
    let beside: Vec<&ShardEntry> = before.shards().iter().filter(|entry| **entry != hit).collect();
    assert!(beside.iter().all(|entry| after.shards().contains(entry)), "the others are as they were");
    let parts: Vec<usize> =
        after.shards_of(hit.range).map(|entry| bytes(&index, entry).unwrap().len()).collect();
    println!(
        "5,000 agents that share {bits} bits: {} shards, the largest of {:?} bytes",
        parts.len(),
        parts.iter().max()
    );
    assert!(parts.len() > 10 && parts.iter().all(|bytes| *bytes < 80 * 1_024), "{parts:?}");
    let held: BTreeMap<Address, ShardEntry> =
        crowd.iter().map(|wallet| (*wallet, after.shard_of(*wallet).unwrap())).collect();
    for (wallet, entry) in held.iter().step_by(97) {
        let found = Shard::parse(bytes(&index, *entry).unwrap(), &IDENTITY, *entry).unwrap().find(*wallet);
        assert!(format!("{found:?}").contains("Some(LiveAgent"), "{found:?}");
    }
}

#[test]
fn a_range_holds_the_verdicts_of_all_its_wallets_and_of_no_others() {
    let (mut index, mut history, mut chance) = filled(1_000, 0);
    mine(&mut history, &mut chance, |registry| registry.agents[6].status = 2);
    show(&mut index, &history);
    index.work().unwrap();
    let agents = history.blocks[&history.newest()].registry.agents.clone();
    let ranges: BTreeMap<String, Value> = (0..16)
        .map(|digit| format!("{digit:x}"))
        .map(|prefix| {
            let body = told(&index, &format!("/api/v1/kya/range/{prefix}")).unwrap().body;
            (prefix, serde_json::from_str(&body).unwrap())
        })
        .collect();
    let total: u64 = ranges.values().map(|range| range["total"].as_u64().unwrap()).sum();
    assert_eq!(total, 1_000);
    for agent in &agents {
        let prefix = &keccak256(agent.agentWallet).to_string()[2..3];
        let wallet = agent.agentWallet.to_string();
        let of_range = ranges[prefix]["data"].as_array().unwrap().iter().find(|kya| kya["wallet"] == wallet);
        let alone = told(&index, &format!("/api/v1/kya/{wallet}")).unwrap().body;
        assert_eq!(of_range, Some(&serde_json::from_str::<Value>(&alone).unwrap()));
    }
    let manifest = manifest(&index).unwrap();
    let refused = |prefix: &str| {
        let route = Route::parse(&format!("/api/v1/kya/range/{prefix}")).unwrap();
        shards_for(&route, &manifest).unwrap_err().to_string()
    };
    assert!(refused("abc").contains("must have 1 hex digit now"), "{}", refused("abc"));
}
