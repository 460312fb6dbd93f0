//! Events by liable wallets in rows, shards and excerpts, compared with the chain's.

use alloy_sol_types::SolEvent as _;
use registry_core::liability::{Basis, WalletEvents, parent_basis};
use registry_core::registry::changes::{Since, Standing};
use registry_core::snapshot::{Facts, LiveAgent, Shard, ShardRange};
use registry_core::{eth::abi::IAgentRegistry::AgentRegistered, index::Store as _};
use registry_core::{registry::agent::Agent, registry::kya::Decision};

use crate::{TestIndex, common::prelude::*, snapshot};

/// Returns the row's events by an agent's liable wallet.
fn known(index: &TestIndex, id: u64) -> WalletEvents {
    index.read(|index| index.wallet_events(id)).unwrap().unwrap()
}

/// Removes the ties of liable wallets to agents from an answer: only an index knows them.
pub(crate) fn take(answer: &mut Value) {
    match answer {
        Value::Object(members) => {
            members.retain(|name, _| !["liability", "parentBasis", "basisDistribution"].contains(&&**name));
            members.values_mut().for_each(take);
        }
        Value::Array(items) => items.iter_mut().for_each(take),
        _ => {}
    }
}

/// Makes the `liability` of an agent in a list, by its record and by the events that the index has seen.
pub(crate) fn of_record(index: &TestIndex, agent: &AgentRecord) -> Value {
    let block = index.state().as_of().unwrap();
    let events = known(index, agent.agentId.to());
    let recent = events.last.filter(|last| block.seconds - last <= 90 * 86_400);
    let (basis, attested_at) = match recent {
        _ if agent.creator == agent.haftungsperson => ("registered", None),
        Some(last) => ("attested", Some(last)),
        None if events.is_complete => ("named", None),
        None => ("unknown", None),
    };
    let mut liability = json!({"wallet": agent.haftungsperson.to_checksum(None), "basis": basis});
    if let Some(seconds) = attested_at {
        liability["attestedAt"] = json!(time(seconds));
    }
    if !agent.parentAgentId.is_zero() {
        liability["parentBasis"] = "unknown".into();
    }
    liability
}

/// Reads all live agents of the snapshot, if there is one.
fn live_agents(index: &TestIndex) -> Vec<(LiveAgent, WalletEvents)> {
    let Ok(manifest) = snapshot::manifest(index) else { return Vec::new() };
    let files: Vec<Shard> = manifest.entries().map(|entry| snapshot::parsed(index, entry)).collect();
    let known = manifest.wallets_of(&files.iter().collect::<Vec<_>>(), ShardRange::ALL).unwrap();
    let live = |facts| match facts {
        Facts::Known { agent: Some(agent), .. } => {
            let events = agent.wallet_events(&manifest);
            Some((*agent, events))
        }
        _ => None,
    };
    known.into_values().filter_map(live).collect()
}

/// Compares seen events by liable wallets with those of the chain: each is one of the wallet's, and the last
/// one if all are known.
pub(crate) fn is_as_listed(index: &TestIndex) -> Result<(), String> {
    let Some(block) = index.state().as_of() else { return Ok(()) };
    let chain = &index.history.blocks;
    if chain.get(&block.number).is_none_or(|mined| mined.hash != block.hash) {
        return Ok(());
    }
    // The node's view is older if the chain has gone on.
    let node = Node { chain: chain.clone(), ..index.node.clone() };
    let agents = &chain[&block.number].registry.agents;
    for (id, agent) in (1..).zip(agents).filter(|(_, agent)| agent.agentWallet != Address::ZERO) {
        let Some(said) = index.read(|index| index.wallet_events(id)).unwrap() else { continue };
        let of_wallet = chain.range(..=block.number).filter(|(number, mined)| {
            let by = node.made_by(**number, id);
            mined.events.contains(&id) && by == Some(agent.haftungsperson)
        });
        let times: Vec<u64> = of_wallet.map(|(_, mined)| mined.seconds).collect();
        let is_true = match said.is_complete {
            true => said.last == times.iter().max().copied(),
            false => said.last.is_none_or(|last| times.contains(&last)),
        };
        let registered = chain.range(..=block.number).find(|(number, mined)| {
            mined.events.contains(&id) && node.event_of(**number, id) == AgentRegistered::SIGNATURE_HASH
        });
        if !is_true || (said.is_complete && registered.is_none()) {
            return Err(format!("agent {id} at {}: {said:?}, and the chain {times:?}", block.number));
        }
    }
    // The others' basis does not rest on events.
    let has_events = |(agent, _): &(LiveAgent, WalletEvents)| agent.creator != agent.haftungsperson;
    for (agent, events) in live_agents(index).into_iter().filter(has_events) {
        let wallet = agents[agent.id as usize - 1].agentWallet;
        let excerpt = index.excerpt(&[wallet]).wallet_events(agent.id);
        if excerpt != Some(events) {
            return Err(format!("agent {}: {events:?} in its shard, {excerpt:?} in an excerpt", agent.id));
        }
    }
    Ok(())
}

fn register(index: &mut TestIndex) -> u64 {
    let id = index.agents().len() as u64 + 1;
    index.mine(|registry, seconds| {
        let mut agent = record(id, 1);
        (agent.registeredAt, agent.lastAttestation) = (seconds, seconds);
        registry.agents.push(agent);
    });
    index.refresh();
    id
}

/// Attests in a block in which the liable wallet does so, or another one.
pub(crate) fn attest(index: &mut TestIndex, id: u64, by_liable: bool) -> u64 {
    while index.history.number().is_multiple_of(2) == by_liable {
        index.idle();
    }
    index.attest(id, 1);
    index.newest().seconds
}

#[test]
fn rows_read_from_state_say_unknown_and_those_whose_registration_was_listed_know() {
    for proofs in [Proofs::All, Proofs::Newest, Proofs::Unsupported] {
        let mut index = TestIndex::filled(6, 0);
        index.node.quirks.proofs = proofs;
        let new = register(&mut index);
        let unknown = WalletEvents::default();
        let named = WalletEvents { last: None, is_complete: true };
        assert_eq!((known(&index, 3), known(&index, new)), (unknown, named), "{proofs:?}");
        for id in [3, new] {
            attest(&mut index, id, false);
        }
        index.refresh();
        assert_eq!((known(&index, 3), known(&index, new)), (unknown, named), "by another wallet");
        let times = [3, new].map(|id| Some(attest(&mut index, id, true)));
        index.refresh();
        let of = |last, is_complete| WalletEvents { last, is_complete };
        assert_eq!((known(&index, 3), known(&index, new)), (of(times[0], false), of(times[1], true)));
        is_as_listed(&index).unwrap();

        // Restarted with no event in memory, and quiet: the same.
        index.kept = None;
        index.idle_for(0);
        assert_eq!(known(&index, new), of(times[1], true));
        // A change that no event tells is a gap for its agent alone.
        let other = register(&mut index);
        index.attest_silently(new, 1);
        index.config.sweep = 100;
        for _ in 0..10 {
            index.idle_for(400);
        }
        if proofs == Proofs::Unsupported {
            assert_eq!((known(&index, new), known(&index, other)), (of(times[1], false), named));
        }
    }
}

#[test]
fn a_node_that_has_pruned_its_events_leaves_what_it_cannot_list_unknown() {
    let mut index = TestIndex::filled(6, 0);
    let first = register(&mut index);
    index.node.quirks.logs = Logs::From(index.history.number() + 2);
    index.node.quirks.proofs = Proofs::Newest;
    attest(&mut index, first, true);
    for _ in 0..20 {
        index.idle_for(30);
    }
    let said = known(&index, first);
    assert!(!said.is_complete || said.last.is_some(), "{said:?}");
    is_as_listed(&index).unwrap();
}

#[test]
fn a_change_of_basis_is_a_change_at_its_second_and_names_the_liable_wallet() {
    for proofs in [Proofs::All, Proofs::Unsupported] {
        let mut index = TestIndex::filled(6, 0);
        index.node.quirks.proofs = proofs;
        let mut since = index.read(|index| index.changes(Since::Now, 1)).unwrap().next;
        let id = register(&mut index);
        let agent = index.agents()[id as usize - 1].clone();
        let mut reported = |index: &TestIndex| {
            let list = index.read(|index| index.changes(Since::Cursor(since), 100)).unwrap();
            since = list.next;
            let own = list.data.into_iter().filter(|change| change.agent_id == id.into());
            let told = own.map(|change| {
                assert_eq!((change.wallet, change.liable), (agent.agentWallet, agent.haftungsperson));
                let words = |standing: Standing| (standing.decision, standing.basis.unwrap());
                (change.from.map(words), change.to.map(words), change.time.seconds())
            });
            let told: Vec<_> = told.collect();
            let expected = of_record(index, &agent)["basis"].clone();
            assert!(told.last().is_none_or(|(_, to, _)| json!(to.unwrap().1.name()) == expected));
            told
        };
        let (current, lapsed) = (Decision::Provision, Decision::RequestRenewal);
        let named = Some((current, Basis::Named));
        assert_eq!(reported(&index), [(None, named, agent.registeredAt)], "{proofs:?}");
        attest(&mut index, id, false);
        index.refresh();
        assert_eq!(reported(&index), [], "by another wallet");
        // Undone by a reorg, and made again.
        let kept = index.history.blocks.clone();
        let attested = Some((current, Basis::Attested));
        let at = attest(&mut index, id, true);
        index.refresh();
        assert_eq!(reported(&index), [(named, attested, at)]);
        index.history.blocks = kept;
        (0..3).for_each(|_| index.idle());
        index.refresh();
        let [(from, Some((_, basis)), _)] = reported(&index)[..] else { panic!() };
        assert!(from == attested && basis != Basis::Attested);
        let at = attest(&mut index, id, true);
        index.refresh();
        let [(_, to, seconds)] = reported(&index)[..] else { panic!() };
        assert_eq!((to, seconds), (attested, at));

        index.idle_until(at + 90 * 86_400);
        let grace_over = (attested, Some((lapsed, Basis::Attested)), at + 7 * 86_400 + 1);
        assert_eq!(reported(&index), [grace_over], "the last second of 90 days");
        // Restarted with a state from before the basis was compared, and seen an hour late.
        index.kept = None;
        let forget = "UPDATE meta SET value = json_remove(value, '$.log.basisAt') WHERE key = 'state'";
        index.database.execute(forget, &[]).unwrap();
        index.idle_until(at + 90 * 86_400 + 3_600);
        let [(from, Some((decision, basis)), seconds)] = reported(&index)[..] else { panic!() };
        assert_eq!((from, decision), (grace_over.1, lapsed));
        assert_eq!((basis != Basis::Attested, seconds), (true, at + 90 * 86_400 + 1));
        index.idle_until(at + 100 * 86_400);
        assert_eq!(reported(&index), []);
    }
}

#[test]
fn shards_name_what_ties_an_agent_to_its_parent() {
    let mut index = TestIndex::filled(60, 0);
    index.refresh();
    let agents = index.agents();
    let found = live_agents(&index);
    assert!(found.len() > 10 && snapshot::manifest(&index).is_ok());
    for (agent, _) in found {
        let parent = agents.get((agent.parent as usize).wrapping_sub(1));
        let agent_record = &agents[agent.id as usize - 1];
        let [own, parent] = [Some(agent_record), parent]
            .map(|record| record.map(|record| Agent::try_from(record.clone()).unwrap()));
        assert_eq!(agent.parent_basis, parent_basis(&own.unwrap(), parent.as_ref()));
    }
}
