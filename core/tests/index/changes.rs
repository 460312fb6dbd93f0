//! What the list of changes promises, one by one.

use alloy_primitives::Address;
use registry_core::eth::abi::AgentRecord;
use registry_core::eth::timestamp::Timestamp;
use registry_core::index::{IndexError, SqlValue, Store as _};
use registry_core::registry::agent::Status;
use registry_core::registry::changes::{Change, Cursor, KEPT_SECONDS, Since, Standing};
use registry_core::registry::kya::Decision;
use serde_json::json;

use crate::{
    Indexed,
    common::{PlainRegistry, record},
    history::{Chance, History},
    promises::{attest, filled, mine, show, verdict},
};

const DAY: u64 = 86_400;

/// An index of ten agents, filled, that all attested a day before its clock.
fn begun() -> (Indexed, History, Chance) {
    let (mut index, mut history, mut chance) = filled(10, 0);
    attest(&mut history, 1, 10, &mut chance, true);
    index.now = history.blocks[&history.newest()].seconds + DAY;
    refresh(&mut index, &history);
    (index, history, chance)
}

fn refresh(index: &mut Indexed, history: &History) {
    show(index, history);
    index.work().unwrap();
}

/// A block that changes the registry, and has an event of each of these agents.
pub(crate) fn mine_events(
    history: &mut History,
    chance: &mut Chance,
    agents: &[u64],
    change: impl FnOnce(&mut PlainRegistry),
) {
    mine(history, chance, change);
    let newest = history.newest();
    history.blocks.get_mut(&newest).unwrap().events = agents.to_vec();
}

fn changes(index: &Indexed, since: Since) -> Vec<Change> {
    index.changes(since, 100).unwrap().data
}

fn now(index: &Indexed) -> Cursor {
    index.changes(Since::Now, 1).unwrap().next
}

fn standing(status: Status, decision: Decision) -> Option<Standing> {
    Some(Standing { status, decision })
}

#[test]
fn an_attestation_that_lapses_is_a_change_at_its_second() {
    let (mut index, mut history, mut chance) = begun();
    let (since, attested) = (now(&index), history.blocks[&history.newest()].seconds);
    index.now = attested + 7 * DAY;
    refresh(&mut index, &history);
    assert_eq!(changes(&index, Since::Cursor(since)), [], "the last second of the grace period");
    // Two of them renew it; the index is refreshed an hour later.
    mine_events(&mut history, &mut chance, &[3, 4], |registry| {
        registry.agents[2..4].iter_mut().for_each(|agent| agent.lastAttestation = attested + 6 * DAY);
    });
    index.now += 3_600;
    refresh(&mut index, &history);
    let lapsed = changes(&index, Since::Cursor(since));
    let ids: Vec<u64> = lapsed.iter().map(|change| change.agent_id.0.to()).collect();
    assert_eq!(ids, [1, 2, 5, 6, 7, 8, 9, 10]);
    for change in &lapsed {
        assert_eq!(change.from, standing(Status::Active, Decision::Provision));
        assert_eq!(change.to, standing(Status::Active, Decision::RequestRenewal));
        assert_eq!(change.time.seconds(), attested + 7 * DAY + 1);
    }
}

#[test]
fn what_was_undone_is_a_change_back_and_the_cursor_goes_on() {
    let (mut index, mut history, mut chance) = begun();
    let since = now(&index);
    let kept = history.blocks.clone();
    mine_events(&mut history, &mut chance, &[4], |registry| registry.agents[3].status = 1);
    let suspended_at = history.newest();
    refresh(&mut index, &history);
    let [suspended] = &changes(&index, Since::Cursor(since))[..] else { panic!("one change") };
    assert_eq!(suspended.from, standing(Status::Active, Decision::Provision));
    assert_eq!(suspended.to, standing(Status::Suspended, Decision::RequestRenewal));
    assert_eq!(suspended.block_number, suspended_at);

    history.blocks = kept;
    history.mine(0, &mut chance);
    history.mine(0, &mut chance);
    refresh(&mut index, &history);
    let [back] = &changes(&index, Since::Cursor(suspended.cursor))[..] else { panic!("one change") };
    assert_eq!((&back.agent_id, back.from, back.to), (&suspended.agent_id, suspended.to, suspended.from));
    assert_eq!(changes(&index, Since::Cursor(back.cursor)), []);
}

#[test]
fn a_change_in_the_blocks_that_a_reorganisation_brought_has_its_own_block() {
    let (mut index, mut history, mut chance) = begun();
    let kept = history.blocks.clone();
    for agent in [7, 8] {
        mine_events(&mut history, &mut chance, &[agent], |_| {});
        refresh(&mut index, &history);
    }
    let since = now(&index);
    history.blocks = kept;
    mine_events(&mut history, &mut chance, &[4], |registry| registry.agents[3].status = 1);
    let suspended_at = history.newest();
    (0..4).for_each(|_| mine_events(&mut history, &mut chance, &[5], |_| {}));
    refresh(&mut index, &history);
    let [suspended] = &changes(&index, Since::Cursor(since))[..] else { panic!("one change") };
    assert_eq!((suspended.agent_id.0.to(), suspended.block_number), (4_u64, suspended_at));
}

#[test]
fn a_lapse_that_was_renewed_before_a_refresh_is_reported_with_its_renewal() {
    let (mut index, mut history, mut chance) = begun();
    let (since, attested) = (now(&index), history.blocks[&history.newest()].seconds);
    attest(&mut history, 6, 1, &mut chance, true);
    let newest = history.newest();
    let renewed = attested + 8 * DAY;
    let mined = history.blocks.get_mut(&newest).unwrap();
    let mut registry = (*mined.registry).clone();
    for agent in &mut registry.agents {
        agent.lastAttestation = renewed;
    }
    (mined.registry, mined.events) = (registry.into(), (1..=10).collect());
    index.now = renewed + 60;
    refresh(&mut index, &history);
    let reported = changes(&index, Since::Cursor(since));
    let of_six: Vec<u64> =
        reported.iter().filter(|change| change.agent_id.0 == 6).map(|change| change.time.seconds()).collect();
    assert_eq!((reported.len(), of_six), (20, vec![attested + 7 * DAY + 1, renewed]));
}

#[test]
fn changes_are_kept_for_thirty_days_and_an_older_cursor_is_refused() {
    let (mut index, mut history, mut chance) = begun();
    let since = now(&index);
    for agent in [2, 5] {
        let id = agent as u64 + 1;
        mine_events(&mut history, &mut chance, &[id], |registry| registry.agents[agent].status = 2);
        index.now += 60;
        refresh(&mut index, &history);
    }
    let both = changes(&index, Since::Cursor(since));
    assert!(changes(&index, Since::Oldest).ends_with(&both));
    let ids: Vec<u64> = both.iter().map(|change| change.agent_id.0.to()).collect();
    assert_eq!(ids, [3, 6]);
    assert_eq!(both[0].to, standing(Status::Revoked, Decision::Deny));
    // By now all attestations have lapsed, which are changes of their own.
    index.now += KEPT_SECONDS - 30;
    refresh(&mut index, &history);
    let kept = changes(&index, Since::Oldest);
    assert_eq!((kept.len(), kept[0].agent_id.0.to::<u64>()), (9, 6));
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
fn an_id_that_a_reorganisation_gives_to_another_wallet_is_taken_from_the_first() {
    let (mut index, mut history, mut chance) = begun();
    let since = now(&index);
    let kept = history.blocks.clone();
    let wallets = [Address::repeat_byte(0xaa), Address::repeat_byte(0xbb)];
    for wallet in wallets {
        history.blocks = kept.clone();
        history.mine(0, &mut chance);
        mine_events(&mut history, &mut chance, &[11], |registry| {
            registry.agents.push(AgentRecord { agentWallet: wallet, ..record(11, 0) });
        });
        refresh(&mut index, &history);
    }
    let reported: Vec<(Address, bool, bool)> = changes(&index, Since::Cursor(since))
        .iter()
        .map(|change| (change.wallet, change.from.is_some(), change.to.is_some()))
        .collect();
    let [first, second] = wallets;
    assert_eq!(reported, [(first, false, true), (first, true, false), (second, false, true)]);
}

#[test]
fn a_verdict_says_when_former_agents_ended_where_the_index_saw_it_and_the_node_says_when() {
    for (times_logs, blocks_later) in [(false, 0), (true, 3), (false, 3)] {
        let (mut index, mut history, mut chance) = begun();
        index.node.quirks.times_logs = times_logs;
        let kept = history.blocks.clone();
        let agent = history.blocks[&history.newest()].registry.agents[4].clone();
        mine_events(&mut history, &mut chance, &[5], |registry| registry.agents[4].status = 2);
        let revoked_at = history.newest();
        let seconds = history.blocks[&revoked_at].seconds;
        (0..blocks_later).for_each(|_| history.mine(0, &mut chance));
        refresh(&mut index, &history);
        let expected =
            (times_logs || blocks_later == 0).then(|| Timestamp::from_seconds(seconds).to_string());
        let (kya, _) = verdict(&mut index, &agent);
        let former = &kya["formerAgents"][0];
        assert_eq!((&former["agentId"], former["endedAt"].as_str()), (&json!(5), expected.as_deref()));

        // Long after its change is no longer kept, it is still known; and forgotten once it is undone.
        index.now += 2 * KEPT_SECONDS;
        refresh(&mut index, &history);
        let (kya, _) = verdict(&mut index, &agent);
        assert_eq!(kya["formerAgents"][0]["endedAt"].as_str(), expected.as_deref());
        history.blocks = kept;
        (0..blocks_later + 2).for_each(|_| history.mine(0, &mut chance));
        refresh(&mut index, &history);
        let (kya, _) = verdict(&mut index, &agent);
        assert_eq!(kya["formerAgents"], json!([]), "{kya}");
        let rows = index.database.execute("SELECT id FROM ends", &[]).unwrap();
        assert_eq!(rows, Vec::<Vec<SqlValue>>::new());
    }
}
