//! The registry's snapshot: its verdicts are the chain's, whenever its manifest and its files were fetched.

use std::collections::{BTreeMap, HashMap, VecDeque};

use alloy_primitives::keccak256;
use registry_core::api::snapshot_documents::{document, shards_for};
use registry_core::snapshot::{Facts, Identity, Manifest, Shard, ShardEntry, ShardRange, Shards, shard};
use registry_core::{api::document::Document, api::route::KYA_BODY_MAX};
use registry_core::{
    index::FileSizes, index::IndexError, registry::changes::Since, registry::kya::WalletInput,
};

use crate::{TestIndex, common::prelude::*, history::ChainHistory, liability};

pub(crate) const IDENTITY: Identity = Identity { chain_id: CHAIN_ID, registry: REGISTRY };

/// Files and manifests that hosts hold.
#[derive(Default)]
pub(crate) struct HeldFiles {
    /// Files as they were made at the first request.
    files: HashMap<ShardEntry, Vec<u8>>,
    /// The last manifests, with the facts of each.
    manifests: VecDeque<(Manifest, FactsByWallet)>,
}

type FactsByWallet = BTreeMap<Address, Facts>;

/// Makes the manifest as the object does. No shard's version is of a later block.
pub(crate) fn manifest(index: &TestIndex) -> Result<Manifest, IndexError> {
    let made = Shards::read(&index.database)?.manifest(&index.state(), IDENTITY)?;
    let bytes = made.encode().unwrap_or_else(|error| panic!("{error}: {made:?}"));
    assert_eq!(Manifest::parse(&bytes), Ok(made.clone()));
    Ok(made)
}

fn bytes(index: &TestIndex, entry: ShardEntry) -> Option<Vec<u8>> {
    shard(&index.database, &index.state(), &IDENTITY, entry).unwrap()
}

pub(crate) fn parsed(index: &TestIndex, entry: ShardEntry) -> Shard {
    given(index, entry).unwrap()
}

/// Makes a file, if the index has this version of it.
pub(crate) fn given(index: &TestIndex, entry: ShardEntry) -> Option<Shard> {
    Some(Shard::parse(bytes(index, entry)?, &IDENTITY, entry).unwrap())
}

/// Returns the files of a manifest that the index still gives: as it makes them now, or as a host holds them.
fn files(index: &TestIndex, manifest: &Manifest, held: Option<&mut HeldFiles>) -> Vec<Shard> {
    let made = |entry: ShardEntry| Some((entry, bytes(index, entry)?));
    let mut made: Vec<_> = manifest.entries().filter_map(made).collect();
    for (entry, bytes) in &mut made {
        if let Some(shelf) = &held {
            *bytes = shelf.files.get(entry).unwrap_or(bytes).clone();
        }
    }
    if let Some(shelf) = held {
        shelf.files.extend(made.iter().cloned());
    }
    made.into_iter().map(|(entry, bytes)| Shard::parse(bytes, &IDENTITY, entry).unwrap()).collect()
}

/// Checks that files and manifests of any age give the same facts, or send the host to a newer version.
/// `known` are the facts by the newest manifest.
fn are_of_any_age(index: &TestIndex, manifest: &Manifest, known: &FactsByWallet) -> Result<(), String> {
    let mut shelf = index.shelf.borrow_mut();
    let held = files(index, manifest, Some(&mut shelf));
    let of_held = manifest.wallets_of(&held.iter().collect::<Vec<_>>(), ShardRange::ALL).unwrap();
    if of_held != *known {
        return Err(format!("held files say {of_held:?}\nnot {known:?}"));
    }
    for (earlier, said) in &shelf.manifests {
        let files = files(index, earlier, None);
        let files: Vec<&Shard> = files.iter().collect();
        for wallet in known.keys().chain(said.keys()) {
            let none = Facts::Known { agent: None, former: Vec::new() };
            match earlier.find(&files, *wallet) {
                // There is another version by now.
                Err(_) | Ok(Facts::Superseded) => {}
                Ok(found) if found == *said.get(wallet).unwrap_or(&none) => {}
                found => {
                    return Err(format!(
                        "at block {}, {wallet} was {:?}, not {found:?}",
                        earlier.as_of.block_number,
                        said.get(wallet)
                    ));
                }
            }
        }
    }
    shelf.manifests.push_back((manifest.clone(), known.clone()));
    if shelf.manifests.len() > 3 {
        shelf.manifests.pop_front();
    }
    Ok(())
}

/// Makes the document of a route from the snapshot; `None` if the chain has to be asked.
fn from_snapshot(index: &TestIndex, target: &str) -> Option<Document> {
    let (route, manifest) = (Route::parse(target).unwrap(), manifest(index).unwrap());
    let entries = shards_for(&route, &manifest).unwrap().unwrap();
    let shards: Vec<Shard> = entries.iter().map(|entry| parsed(index, *entry)).collect();
    let shards: Vec<&Shard> = shards.iter().collect();
    document(&route, &manifest, &shards, Timestamp::from_seconds(NOW))
}

/// Returns verdicts without their block, and without facts that only an index knows.
fn plain(document: Document) -> Vec<Value> {
    let mut verdicts = read(document)["data"].as_array().unwrap().clone();
    for verdict in &mut verdicts {
        verdict["asOf"] = Value::Null;
        for former in verdict["formerAgents"].as_array_mut().unwrap() {
            former.as_object_mut().unwrap().remove("endedAt");
        }
    }
    verdicts
}

/// Compares the verdicts on all wallets with those of a node with that registry, if there is a snapshot.
pub(crate) fn is_like(index: &TestIndex, registry: &PlainRegistry, now: u64) -> Result<(), String> {
    let Ok(manifest) = manifest(index) else { return Ok(()) };
    let files = files(index, &manifest, None);
    let files: Vec<&Shard> = files.iter().collect();
    let known = manifest.wallets_of(&files, ShardRange::ALL).unwrap();
    if known.len() != registry.agents.len() || known.values().any(|facts| *facts == Facts::Superseded) {
        return Err(format!("the snapshot holds {} wallets: {known:?}", known.len()));
    }
    are_of_any_age(index, &manifest, &known)?;
    let most = index.database.number("SELECT coalesce(max(json_array_length(places)), 0) FROM segments");
    if most > i64::try_from(index.config.files.segment_places).unwrap() {
        return Err(format!("a segment of {most} places"));
    }
    let scan = registry.scan();
    // The snapshot judges no earlier than its time of confirmation, and the node no earlier than its block.
    let now = Timestamp::from_seconds(now.max(NOW)).max(Timestamp::from_millis(manifest.confirmed_at));
    let mut node = Node::new(registry.clone());
    for agents in registry.agents.chunks(KYA_BODY_MAX) {
        let wallets = agents.iter().map(|agent| WalletInput::Wallet(agent.agentWallet)).collect();
        let route = Route::kya_list(wallets, None).unwrap();
        let found = plain(document(&route, &manifest, &files, now).unwrap());
        let asked = Question { route, now, scan: Some(scan.clone()), ..question("/health") };
        let expected = plain(node.run(asked).unwrap());
        for (found, expected) in found.into_iter().zip(expected) {
            let [of_snapshot, of_chain] = [&found, &expected].map(|verdict| verdict["liability"].clone());
            let is_unknown = |liability: &Value| liability["basis"] == "unknown";
            let is_same = ["wallet", "basis", "attestedAt"].iter().all(|it| of_snapshot[it] == of_chain[it])
                || (is_unknown(&of_chain) && of_snapshot["wallet"] == of_chain["wallet"]);
            let (mut found, mut expected) = (found, expected);
            [&mut found, &mut expected].into_iter().for_each(liability::take);
            if found != expected || !is_same {
                return Err(format!("snapshot: {found} {of_snapshot}\nnot {expected} {of_chain}"));
            }
        }
    }
    Ok(())
}

/// Compares the documents on all wallets, and some without an agent, with those of the chain.
fn is_the_chains(index: &mut TestIndex) {
    let unknown = (1..=20_u8).map(Address::repeat_byte);
    let wallets: Vec<Address> = index.agents().iter().map(|agent| agent.agentWallet).chain(unknown).collect();
    let list = wallets.iter().rev().take(18).map(Address::to_string).collect::<Vec<_>>().join(",");
    for asked in wallets.iter().map(Address::to_string).chain([format!("{list},nonsense")]) {
        let target = format!("/api/v1/kya/{asked}");
        let excerpt = index.excerpt(&Route::parse(&target).unwrap().wallets());
        let expected = index.ask_node(&target, excerpt.into());
        // The chain does not know that the blocks since the index's have no event.
        let of_index =
            |document: Document| document.body.replace(r#""basis":"named""#, r#""basis":"unknown""#);
        assert_eq!(from_snapshot(index, &target).map(of_index), Some(of_index(expected)), "{asked}");
    }
}

#[test]
fn wallets_of_one_place_with_thousands_of_former_agents_have_a_shard_that_costs_no_more() {
    // Their Keccak-256 begin with the same 48 bits: 9ba8aee75c63.
    let wallets = [9_649_088_u64, 19_946_483].map(numbered);
    let mut index = TestIndex::filled(10, 0);
    index.mine(|registry, _| {
        registry.agents[3].status = 3;
        for id in 11..=1_510 {
            let (wallet, status) = (wallets[id as usize % 2], if id > 1_508 { 0 } else { 2 });
            registry.agents.push(AgentRecord { agentWallet: wallet, status, ..record(id, 0) });
        }
    });
    index.refresh();
    index.work().unwrap();
    is_the_chains(&mut index);
    let manifest = manifest(&index).unwrap();
    let own = wallets.map(|wallet| manifest.shard_of(wallet).unwrap());
    assert!(own[0] == own[1] && own[0].range.bits == 48, "one place alone cannot be split: {own:?}");
    let ([statements, steps], bytes) = index.database.cost(|| bytes(&index, own[0]).unwrap());
    let is_bounded = bytes.len() < 7_000 && statements <= 17 && steps < 2_000;
    assert!(is_bounded, "{} bytes, {statements} statements, {steps} steps", bytes.len());
}

#[test]
fn a_scope_that_the_index_may_have_cut_is_for_the_chain_to_tell() {
    let mut index = TestIndex::filled(10, 0);
    index.mine(|registry, _| {
        for (agent, bytes) in registry.agents.iter_mut().zip([252, 253, 256, 257, 4_000]) {
            (agent.operationalScope, agent.status) = ("x".repeat(bytes), 0);
        }
    });
    index.refresh();
    index.work().unwrap();
    let found =
        |agent: &AgentRecord| from_snapshot(&index, &format!("/api/v1/kya/{}", agent.agentWallet)).is_some();
    let found: Vec<bool> = index.agents()[..5].iter().map(found).collect();
    assert_eq!(found, [true, false, false, false, false]);
}

#[test]
fn ancestors_beyond_the_depth_limit_are_for_the_chain_to_tell() {
    let agents = (1..=16).map(|id| record(id, id - 1)).collect();
    let mut index = TestIndex::of(PlainRegistry { agents, ..PlainRegistry::with_agents(0) });
    index.work().unwrap();
    let found =
        |agent: &AgentRecord| from_snapshot(&index, &format!("/api/v1/kya/{}", agent.agentWallet)).is_some();
    let found: Vec<bool> = index.agents()[14..].iter().map(found).collect();
    assert_eq!(found, [true, false]);
}

#[test]
fn while_an_event_is_late_the_snapshot_says_up_to_when_it_lacks_nothing() {
    let mut index = TestIndex::filled(10, 0);
    index.work().unwrap();
    let of = |index: &TestIndex| manifest(index).map(|made| (made.as_of.block_number, made.confirmed_at));
    let before = of(&index).unwrap();
    assert_eq!(before.1, index.now * 1_000);
    // A change of which the event is late.
    index.mine_with_events(&[], |registry, _| registry.agents[6].status = 1);
    index.refresh_after(7);
    assert_eq!(of(&index), Ok(before));
    index.history.edit(|mined| mined.events = vec![7]);
    index.refresh_after(3);
    assert_eq!(of(&index), Ok((before.0 + 1, index.now * 1_000)), "{:?}", index.state());
    // An agent that cannot be read may have any wallet.
    index.mine(|registry, _| registry.agents[6].status = 255);
    index.refresh();
    assert_eq!(manifest(&index).unwrap_err(), IndexError::Uncovered);
}

#[test]
fn an_ancestor_that_could_not_be_read_meanwhile_is_in_the_shards_of_its_descendants() {
    let mut index = TestIndex::of(PlainRegistry::with_agents(600));
    index.work().unwrap();
    let holds = |index: &TestIndex| is_like(index, &index.newest().registry, index.newest().seconds);
    holds(&index).unwrap();
    for status in [255, 1] {
        index.mine(|registry, _| registry.agents[0].status = status);
        index.refresh_after(15);
    }
    assert!(manifest(&index).is_ok(), "{:?}", index.state());
    holds(&index).unwrap();
}

#[test]
fn a_parent_that_a_reorg_registers_by_another_creator_is_in_the_shards_of_its_children() {
    let mut index = TestIndex::of(PlainRegistry::with_agents(3_001));
    index.work().unwrap();
    let (creator, before) = (Address::repeat_byte(21), index.history.number());
    for of_parent in [creator, Address::repeat_byte(22)] {
        index.history.blocks.retain(|number, _| *number <= before);
        let parent = AgentRecord { creator: of_parent, ..record(3_002, 0) };
        let child = AgentRecord { creator, haftungsperson: creator, ..record(3_003, 3_002) };
        let manifest = |index: &TestIndex| manifest(index).unwrap();
        let range = |index: &TestIndex, wallet| manifest(index).shard_of(wallet).unwrap().range;
        assert_ne!(range(&index, parent.agentWallet), range(&index, child.agentWallet));
        index.mine(|registry, _| registry.agents.push(parent));
        index.mine(|registry, _| registry.agents.push(child));
        index.refresh_after(15);
        assert_eq!(manifest(&index).agents, 3_003);
        is_like(&index, &index.newest().registry, index.newest().seconds).unwrap();
    }
}

#[test]
fn a_reorg_to_a_lower_block_with_the_same_records_leaves_a_snapshot_of_that_block() {
    // From the first block on, it is another chain.
    for kept in [1, 0] {
        let mut index = TestIndex::filled(12, 0);
        (0..3).for_each(|_| index.idle());
        index.mine(|registry, _| registry.agents[3].status = 1);
        index.refresh();
        assert_eq!(manifest(&index).unwrap().as_of.block_number, 5);
        let Mined { seconds, registry, .. } = index.newest().clone();
        index.history.blocks.retain(|number, _| *number <= kept);
        index.history.push(kept + 1, seconds + 1, (*registry).clone(), vec![4]);
        index.refresh_after(15);
        index.work().unwrap();
        assert_eq!(manifest(&index).unwrap().as_of.block_number, kept + 1);
        is_like(&index, &registry, seconds + 1).unwrap();
        let changes = index.changes(Since::Oldest, 100).unwrap().data;
        let suspended = changes.iter().rfind(|change| change.agent_id.0 == 4);
        assert!(kept == 0 || suspended.is_some_and(|change| change.block_number == 2), "{changes:?}");
    }
}

#[test]
fn one_shard_holds_up_to_128_agents_and_changes_are_in_the_manifest_until_there_are_many() {
    let mut index = TestIndex::filled(128, 0);
    index.work().unwrap();
    let before = manifest(&index).unwrap();
    assert_eq!(before.shards().len(), 1);
    index.mine(|registry, _| registry.agents[6].lastAttestation = NOW);
    index.refresh();
    let after = manifest(&index).unwrap();
    assert_eq!(before.shards(), after.shards());
    let changed = index.agents()[6].agentWallet;
    let [was, is] = [&before, &after].map(|manifest| manifest.recent(changed).unwrap());
    assert!(was.is_none() && format!("{is:?}").contains(&format!("last_attestation: {NOW}")), "{is:?}");
    // A revenue report changes no verdict, and no shard.
    index.mine_with_events(&[3], |registry, _| registry.reports.push(report(3, 1)));
    index.refresh();
    let later = manifest(&index).unwrap();
    assert!(later.as_of.block_number > after.as_of.block_number);
    assert!(later.shards() == after.shards() && later.recent(index.agents()[2].agentWallet) == Ok(None));
    // More changes than a segment holds.
    index.mine(|registry, _| registry.agents.extend((129..=640).map(|id| record(id, 0))));
    index.refresh();
    assert_eq!(bytes(&index, before.shards()[0]), None);
    is_like(&index, &index.newest().registry, index.newest().seconds).unwrap();
}

/// Uses segments of two levels, and changes that reach shards.
#[test]
fn changes_reach_the_shards_many_at_a_time() {
    let mut index = TestIndex::new(ChainHistory::of(2, PlainRegistry::with_agents(600)), 350, 0);
    index.config.files = FileSizes { shard_bytes: 256, segment_places: 20, shard_bits_below: 2 };
    index.catch_up().unwrap();
    index.work().unwrap();
    let first = manifest(&index).unwrap();
    assert!(first.shards().len() >= 256, "{} shards", first.shards().len());
    let (mut manifest_before, mut renewed, mut levels) = (first, 0, BTreeMap::new());
    for round in 0..16_u64 {
        if round == 8 {
            // A release with other sizes goes on with these files.
            index.config.files.shard_bits_below = 5;
        }
        let changed = (0..25).map(|number| ((round * 25 + number) * 39 % 600) as usize);
        index.mine(|registry, _| {
            changed.for_each(|agent| registry.agents[agent].lastAttestation = NOW + round);
        });
        index.refresh_after(15);
        is_like(&index, &index.newest().registry, index.newest().seconds).unwrap();
        let made = manifest(&index).unwrap();
        for entry in made.entries().filter(|entry| !manifest_before.names(*entry)) {
            match made.shards().contains(&entry) {
                true => renewed += 1,
                false => *levels.entry(entry.range.bits).or_insert(0) += 1,
            }
        }
        manifest_before = made;
    }
    assert!(levels[&4] > 40 && levels[&8] > 20 && renewed < 300, "{levels:?} {renewed}");
}

/// Uses long scopes: a segment has at most as many bytes as a shard.
#[test]
fn a_manifest_is_small_whatever_is_registered() {
    let mut index = TestIndex::filled(10, 0);
    index.mine(|registry, _| {
        let agent = |id| AgentRecord { operationalScope: "x".repeat(250), ..record(id, 0) };
        registry.agents.extend((11..=1_200).map(agent));
    });
    index.refresh();
    let made = manifest(&index).unwrap();
    let bytes = made.encode().unwrap().len() - made.shards().len() * 9;
    assert!(bytes < 80 * 1024, "{bytes} bytes");
    is_like(&index, &index.newest().registry, index.newest().seconds).unwrap();
    // Rows of a later block make no manifest of an earlier one.
    let kept = index.state();
    index.mine(|registry, _| registry.agents[6].lastAttestation = NOW);
    index.refresh();
    assert!(Shards::read(&index.database).unwrap().manifest(&kept, IDENTITY).unwrap().encode().is_err());
}

/// Returns a wallet by its number.
fn numbered(number: u64) -> Address {
    Address::left_padding_from(&(number | 1 << 60).to_be_bytes())
}

/// Finds `count` wallets with a Keccak-256 that begins with the same bits.
fn sharing(bits: u32, count: usize) -> Vec<Address> {
    let of = |wallet: &Address| {
        let [first, second, ..] = keccak256(wallet).0;
        (u16::from_be_bytes([first, second]) ^ 0xa5c3) >> (16 - bits) == 0
    };
    (0..).map(numbered).filter(of).take(count).collect()
}

/// With `SHARED_BITS=16`, the search for wallets takes half a minute in a release build.
#[test]
fn a_huge_shard_is_split_alone_and_lookups_beside_it_stay_the_same() {
    // A fill of several slices makes its shards at the end.
    let mut index = TestIndex::new(ChainHistory::of(2, PlainRegistry::with_agents(3_000)), 700, 0);
    index.catch_up().unwrap();
    index.work().unwrap();
    let before = manifest(&index).unwrap();
    let size = |index: &TestIndex, entry: &ShardEntry| bytes(index, *entry).unwrap().len();
    assert!(before.shards().iter().all(|entry| size(&index, entry) < 80 * 1_024));
    assert!((4..20).contains(&before.shards().len()), "{}", before.shards().len());

    let bits = u32::try_from(setting("SHARED_BITS", 8)).unwrap();
    let crowd = sharing(bits, 2_500);
    let hit = before.shard_of(crowd[0]).unwrap();
    for part in crowd.chunks(700) {
        index.mine(|registry, _| {
            let ids = registry.agents.len() as u64 + 1..;
            let agent = |(id, wallet): (u64, &Address)| AgentRecord { agentWallet: *wallet, ..record(id, 0) };
            registry.agents.extend(ids.zip(part).map(agent));
        });
        index.refresh();
    }
    let after = manifest(&index).unwrap();
    let mut beside = before.shards().iter().filter(|entry| **entry != hit);
    assert!(beside.all(|entry| after.shards().contains(entry)), "the others are as they were");
    let parts: Vec<usize> = after.shards_of(hit.range).map(|entry| size(&index, &entry)).collect();
    assert!(parts.len() > 10 && parts.iter().all(|bytes| *bytes < 80 * 1_024), "{parts:?}");
    let others: Vec<Address> = index.agents().iter().take(3_000).map(|agent| agent.agentWallet).collect();
    let made: Vec<Shard> = after.entries().map(|entry| parsed(&index, entry)).collect();
    let made: Vec<&Shard> = made.iter().collect();
    for wallet in crowd.iter().chain(&others).step_by(97) {
        let found = after.find(&made, *wallet);
        assert!(format!("{found:?}").contains("Some(LiveAgent"), "{found:?}");
    }
}

#[test]
fn a_range_holds_the_verdicts_of_all_its_wallets_and_of_no_others() {
    let mut index = TestIndex::filled(600, 0);
    index.mine(|registry, _| registry.agents[6].status = 2);
    index.refresh();
    let verdicts = |prefix: String| {
        let range = read(from_snapshot(&index, &format!("/api/v1/kya/range/{prefix}")).unwrap());
        assert_eq!(range["total"], range["data"].as_array().unwrap().len());
        let of = |kya: &Value| (kya["wallet"].as_str().unwrap().to_owned(), (prefix.clone(), kya.clone()));
        range["data"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let ranges: BTreeMap<String, (String, Value)> =
        (0..16).flat_map(|digit| verdicts(format!("{digit:x}"))).collect();
    assert_eq!(ranges.len(), 600);
    for agent in index.agents() {
        let wallet = agent.agentWallet.to_string();
        let alone = read(from_snapshot(&index, &format!("/api/v1/kya/{wallet}")).unwrap());
        let prefix = keccak256(agent.agentWallet).to_string()[2..3].to_owned();
        assert_eq!(ranges.get(&wallet), Some(&(prefix, alone)));
    }
    let route = Route::parse("/api/v1/kya/range/abc").unwrap();
    let refused = shards_for(&route, &manifest(&index).unwrap()).unwrap_err().to_string();
    assert!(refused.contains("must have 1 hex digit now"), "{refused}");
}
