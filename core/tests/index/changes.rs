//! The promises of the list of changes, one by one.

use std::collections::BTreeSet;

use registry_core::index::{IndexError, SqlValue, Store as _};
use registry_core::registry::agent::Status;
use registry_core::registry::changes::{Change, Cursor, KEPT_SECONDS, Since, Standing};
use registry_core::registry::kya::Decision;

use crate::{TestIndex, common::prelude::*, promises::verdict};

const DAY: u64 = 86_400;

/// Creates an index of ten agents that attested a day before its clock, and returns its newest cursor.
fn begun() -> (TestIndex, Cursor) {
    let mut index = TestIndex::filled(10, 0);
    index.attest(1, 10);
    index.now = index.newest().seconds + DAY;
    index.refresh();
    let since = now(&index);
    (index, since)
}

fn changes(index: &TestIndex, since: Since) -> Vec<Change> {
    index.changes(since, 100).unwrap().data
}

fn ids(changes: &[Change]) -> Vec<u64> {
    changes.iter().map(|change| change.agent_id.0.to()).collect()
}

/// Returns the only change since a cursor, apart from changes of the basis.
#[track_caller]
fn only(index: &TestIndex, since: Cursor) -> Change {
    let mut changes = changes(index, Since::Cursor(since));
    changes.retain(|change| stands(change.from) != stands(change.to));
    assert_eq!(changes.len(), 1, "{changes:?}");
    changes.into_iter().next().unwrap()
}

fn now(index: &TestIndex) -> Cursor {
    index.changes(Since::Now, 1).unwrap().next
}

/// Suspends agent 4, and returns the number of the block.
fn suspend(index: &mut TestIndex) -> u64 {
    index.mine_with_events(&[4], |registry, _| registry.agents[3].status = 1);
    index.history.number()
}

/// Returns a standing without its basis.
fn stands(standing: Option<Standing>) -> Option<(Status, Decision)> {
    standing.map(|Standing { status, decision, .. }| (status, decision))
}

#[test]
fn an_attestation_that_lapses_is_a_change_at_its_second() {
    let (mut index, since) = begun();
    let attested = index.newest().seconds;
    index.now = attested + 7 * DAY;
    index.refresh();
    assert_eq!(changes(&index, Since::Cursor(since)), [], "the last second of the grace period");
    // Two of them renew it; the index is refreshed an hour later.
    index.mine(|registry, _| {
        registry.agents[2..4].iter_mut().for_each(|agent| agent.lastAttestation = attested + 6 * DAY);
    });
    index.refresh_after(3_600);
    let lapsed = changes(&index, Since::Cursor(since));
    assert_eq!(ids(&lapsed), [1, 2, 5, 6, 7, 8, 9, 10]);
    for change in &lapsed {
        assert_eq!(stands(change.from), Some((Status::Active, Decision::Provision)));
        assert_eq!(stands(change.to), Some((Status::Active, Decision::RequestRenewal)));
        assert_eq!(change.time.seconds(), attested + 7 * DAY + 1);
    }
}

#[test]
fn a_change_in_the_blocks_that_a_reorganisation_brought_has_its_own_block() {
    let (mut index, _) = begun();
    let kept = index.history.blocks.clone();
    for agent in [7, 8] {
        index.mine_with_events(&[agent], |_, _| {});
        index.refresh();
    }
    let since = now(&index);
    index.history.blocks = kept;
    let suspended_at = suspend(&mut index);
    (0..4).for_each(|_| index.mine_with_events(&[5], |_, _| {}));
    index.refresh();
    let suspended = only(&index, since);
    assert_eq!((suspended.agent_id.0.to(), suspended.block_number), (4_u64, suspended_at));
}

#[test]
fn a_lapse_that_was_renewed_before_a_refresh_is_reported_with_its_renewal() {
    let (mut index, since) = begun();
    let attested = index.newest().seconds;
    let renewed = attested + 8 * DAY;
    index.mine(|registry, _| {
        registry.agents.iter_mut().for_each(|agent| agent.lastAttestation = renewed);
    });
    index.now = renewed + 60;
    index.refresh();
    let reported = changes(&index, Since::Cursor(since));
    let of_six = reported.iter().filter(|change| change.agent_id.0 == 6);
    assert!(of_six.map(|change| change.time.seconds()).eq([attested + 7 * DAY + 1, renewed]));
    assert_eq!(reported.len(), 20);
}

#[test]
fn changes_are_kept_for_thirty_days_and_an_older_cursor_is_refused() {
    let (mut index, since) = begun();
    for agent in [2, 5] {
        index.mine(|registry, _| registry.agents[agent].status = 2);
        index.refresh_after(60);
    }
    let both = changes(&index, Since::Cursor(since));
    assert!(changes(&index, Since::Oldest).ends_with(&both));
    assert_eq!(ids(&both), [3, 6]);
    assert_eq!(stands(both[0].to), Some((Status::Revoked, Decision::Deny)));
    // By now all attestations have lapsed, which are changes of their own.
    index.refresh_after(KEPT_SECONDS - 30);
    let kept = changes(&index, Since::Oldest);
    assert_eq!((kept.len(), ids(&kept)[0]), (9, 6));
    for limit in [1, 4, 9, 500] {
        let newest = index.changes(Since::Newest, limit).unwrap();
        assert_eq!(newest.data, kept[9 - 9.min(limit as usize)..], "the newest {limit}");
        assert_eq!((newest.has_more, newest.next), (false, now(&index)));
    }
    assert_eq!(changes(&index, Since::Cursor(both[0].cursor)).len(), 9, "behind the one that went");
    let another = Cursor { began: since.began + 1, ..since };
    let ahead = Cursor { number: now(&index).number + 1, ..since };
    for expired in [since, another, ahead] {
        let refused = index.changes(Since::Cursor(expired), 10);
        assert_eq!(refused, Err(IndexError::CursorExpired), "{expired}");
    }
}

#[test]
fn an_id_that_a_reorganisation_gives_to_other_wallets_is_taken_from_the_first() {
    let [first, second] = [0xaa, 0xbb].map(Address::repeat_byte);
    for pairs in [[(first, first), (second, second)], [(first, first), (first, second)]] {
        let (mut index, since) = begun();
        let kept = index.history.blocks.clone();
        for (wallet, person) in pairs {
            index.history.blocks = kept.clone();
            index.mine(|_, _| {});
            let agent = AgentRecord { agentWallet: wallet, haftungsperson: person, ..record(11, 0) };
            index.mine_with_events(&[11], |registry, _| registry.agents.push(agent));
            index.refresh();
        }
        let reported: Vec<_> = changes(&index, Since::Cursor(since))
            .iter()
            .map(|change| ((change.wallet, change.liable), change.from.is_some(), change.to.is_some()))
            .collect();
        let [first, second] = pairs;
        assert_eq!(reported, [(first, false, true), (first, true, false), (second, false, true)]);
    }
}

#[test]
fn an_end_that_a_reorg_moves_to_another_block_has_the_block_and_time_of_that_one() {
    // With another change, or with the same root; found at once, or two minutes later; on a host with a clock
    // that is an hour behind the chain.
    for (times_logs, is_other, later, is_behind) in [
        (true, true, 0, false),
        (false, true, 0, false),
        (true, false, 0, false),
        (false, false, 0, false),
        (true, false, 4, false),
        (true, true, 0, true),
        (true, false, 4, true),
    ] {
        let (mut index, since) = begun();
        if is_behind {
            index.now = index.newest().seconds - 3_600;
        }
        index.node.quirks.times_logs = times_logs;
        let parent = index.history.number();
        let revoke = |index: &mut TestIndex| {
            let events = if is_other { vec![5, 6] } else { vec![5] };
            index.mine_with_events(&events, |registry, seconds| {
                registry.agents[4].status = 2;
                if is_other {
                    registry.agents[5].lastAttestation = seconds;
                }
            });
            index.newest().seconds
        };
        revoke(&mut index);
        index.refresh();
        index.history.blocks.retain(|number, _| *number <= parent);
        index.idle();
        let block = revoke(&mut index);
        (0..later).for_each(|_| index.idle());
        index.refresh();
        for _ in 0..later * 2 {
            index.idle_for(20);
        }
        let change = only(&index, since);
        assert_eq!((change.block_number, change.time.seconds()), (parent + 2, block), "{later}, {is_behind}");
        let ends = index.database.execute("SELECT id, seconds FROM ends", &[]).unwrap();
        assert_eq!(ends, [[SqlValue::Integer(5), block.into()]]);
        index.is_right();
    }
}

#[test]
fn a_reorg_moves_no_change_that_another_one_of_the_agent_followed() {
    let (mut index, since) = begun();
    let parent = index.history.number();
    let reorganise = |index: &mut TestIndex, parent, blocks| {
        index.history.blocks.retain(|number, _| *number <= parent);
        (0..blocks).for_each(|_| index.idle());
    };
    // A suspension in a block that is undone, and another one in an earlier block.
    (0..8).for_each(|_| index.idle());
    suspend(&mut index);
    index.refresh();
    reorganise(&mut index, parent, 2);
    // A shorter chain is a later one.
    index.history.edit(|mined| mined.seconds += 1_000);
    index.refresh();
    let suspended_at = suspend(&mut index);
    index.refresh();
    // A pause of the suspension between two refreshes, which moves to other blocks.
    for blocks in [0, 1] {
        reorganise(&mut index, suspended_at, blocks);
        index.mine(|registry, _| registry.agents[3].status = 0);
        index.mine(|registry, seconds| {
            registry.agents[3].status = 1;
            registry.agents[5].lastAttestation = seconds;
        });
        index.refresh();
    }
    let mut changes = changes(&index, Since::Cursor(since));
    changes.retain(|change| change.agent_id.0 == 4 && stands(change.from) != stands(change.to));
    let blocks: Vec<u64> = changes.iter().map(|change| change.block_number).collect();
    assert_eq!(blocks, [parent + 9, parent + 2, suspended_at]);
    index.is_right();
}

#[test]
fn a_verdict_says_when_former_agents_ended_where_the_index_saw_it_and_the_node_says_when() {
    for (times_logs, blocks_later) in [(false, 0), (true, 3), (false, 3)] {
        let (mut index, _) = begun();
        index.node.quirks.times_logs = times_logs;
        let (kept, agent) = (index.history.blocks.clone(), index.agents()[4].clone());
        index.mine_with_events(&[5], |registry, _| registry.agents[4].status = 2);
        let ended_at = Timestamp::from_seconds(index.newest().seconds).to_string();
        (0..blocks_later).for_each(|_| index.mine(|_, _| {}));
        index.refresh();
        let expected = if times_logs || blocks_later == 0 { json!(ended_at) } else { Value::Null };
        let former = verdict(&mut index, &agent).0["formerAgents"][0].clone();
        assert_eq!((&former["agentId"], &former["endedAt"]), (&json!(5), &expected));

        // The end is still known long after its change is deleted, and forgotten once it is undone.
        index.refresh_after(2 * KEPT_SECONDS);
        assert_eq!(verdict(&mut index, &agent).0["formerAgents"][0]["endedAt"], expected);
        index.history.blocks = kept;
        (0..blocks_later + 2).for_each(|_| index.mine(|_, _| {}));
        index.refresh();
        assert_eq!(verdict(&mut index, &agent).0["formerAgents"], json!([]));
        let rows = index.database.execute("SELECT id FROM ends", &[]).unwrap();
        assert_eq!(rows, Vec::<Vec<SqlValue>>::new());
    }
}

#[test]
fn changes_of_one_liable_wallets_agents_are_those_of_all_changes_new_agents_included() {
    let mut index = TestIndex::filled(12, 0);
    for _ in 0..20 {
        index.history.mine(3, &mut index.random);
        index.refresh();
    }
    let now = index.newest().seconds;
    let all = index.changes(Since::Oldest, 500).unwrap().data;
    let persons: BTreeSet<Address> = all.iter().map(|change| change.liable).collect();
    assert!(persons.len() > 1 && all.iter().any(|change| change.from.is_none()));
    for person in persons {
        let own: Vec<Value> = all
            .iter()
            .filter(|change| change.liable == person)
            .map(|it| serde_json::to_value(it).unwrap())
            .collect();
        let (mut found, mut target) = (Vec::new(), format!("/api/v1/changes?limit=2&liable={person}"));
        loop {
            let (page, _) = index.ask(&target, now);
            found.extend(page["data"].as_array().unwrap().clone());
            target =
                format!("/api/v1/changes?limit=2&liable={person}&since={}", page["next"].as_str().unwrap());
            if page["hasMore"] == false {
                break;
            }
        }
        assert_eq!(found, own, "{person}");
        let (newest, _) = index.ask(&format!("/api/v1/changes?limit=2&liable={person}&since=newest"), now);
        assert_eq!(newest["data"].as_array().unwrap(), &own[own.len().saturating_sub(2)..], "{person}");
        assert_eq!(newest["hasMore"], false);
    }
}
