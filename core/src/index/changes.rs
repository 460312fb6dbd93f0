//! Changes of verdicts in the order in which an index saw them: the content of `/changes`.
//!
//! A change is a difference between the stored and the newly read record of an agent. A reorg needs no
//! special case: an undone record is read again and yields a change back. A lapsing attestation changes a
//! verdict without an event on the chain. Each refresh first compares records as of the previous refresh, and
//! then advances to the present, so that attestations lapse:
//!
//! ```text
//!   refresh before                 refresh
//!        |-------------------------->|
//!        |  records: old, then new   |  attestations that lapsed in between, each at its second
//! ```

use std::collections::BTreeMap;

use alloy_primitives::{Address, U256};
use strum::VariantArray as _;

use super::{
    IndexError, State,
    checkpoint::Checkpoint,
    indexed_agent::IndexedAgent,
    open_lists,
    seen_events::{SeenEvents, wallet_events},
    store::{SqlValue, Store, StoreError, of_ids, one_number, ordered, query, write},
};
use crate::{
    chain::logs::StatusMoment,
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::changes::{Change, ChangeList, Cursor, KEPT_SECONDS, Since, Standing},
    registry::kya::Decision,
    registry::liability::{ATTESTED_SECONDS, Basis, Liability},
};

/// Maximum changes that are read for a page of one wallet's changes.
const SEARCHED: u64 = 10_000;
/// Lapses held in memory at once.
const ROWS: u64 = 1_000;
/// Lapses, or attestations that are current again, after which a piece of work ends with those of the same
/// second: any number of agents may have been attested at once.
const LAPSES_AT_ONCE: usize = 20_000;
/// Seconds by which the host's clock may have been set right between the time at which a change was noted and
/// a reorg that undoes its block.
const CLOCK_SET_RIGHT: u64 = 3_600;

/// The times as of which agents are compared.
#[derive(Clone, Copy, Debug)]
struct ComparisonMoments {
    /// Attestations are current from this second on.
    current_from: u64,
    /// Block time at which the basis of a liability is judged.
    basis_at: u64,
    /// Height after which events were listed.
    listed_after: Option<u64>,
}

impl ComparisonMoments {
    /// Returns an agent's standing; `None` for an unreadable record.
    fn standing(self, entry: &IndexedAgent) -> Option<Standing> {
        let (status, person) = (entry.status()?, entry.full.haftungsperson);
        Some(self.of(status, entry.row.last_attestation, (entry.row.creator, person), entry.events))
    }

    fn of(
        self,
        status: Status,
        attested: u64,
        (creator, person): (Address, Address),
        events: SeenEvents,
    ) -> Standing {
        let events = wallet_events(events.last, events.registered_in(), self.listed_after);
        let liability = Liability::of_wallets(creator, person, None).with_events(events, self.basis_at);
        Standing::new(status, attested >= self.current_from, Some(liability.basis))
    }
}

/// Encodes a standing as a number, and `None` as NULL.
fn value(standing: Option<Standing>) -> SqlValue {
    let Some(Standing { status, decision, basis }) = standing else { return SqlValue::Null };
    let basis = basis.map_or(0, |basis| basis as i64 + 1);
    SqlValue::Integer(basis * 8 + status as i64 * 2 + i64::from(matches!(decision, Decision::Provision)))
}

fn read_standing(value: Option<i64>) -> Result<Option<Standing>, StoreError> {
    let Some(number) = value else { return Ok(None) };
    let status = u8::try_from(number % 8 / 2).ok().and_then(Status::from_number);
    let basis = usize::try_from(number / 8).map_err(|_| StoreError::corrupt())?;
    let basis = basis.checked_sub(1).and_then(|basis| Basis::VARIANTS.get(basis)).copied();
    Ok(Some(Standing::new(status.ok_or_else(StoreError::corrupt)?, number % 2 == 1, basis)))
}

/// Returns whether two standings differ as changes list them: `named` and `unknown` are the same there.
fn is_change(from: Option<Standing>, to: Option<Standing>) -> bool {
    from.map(Standing::listed) != to.map(Standing::listed)
}

/// A change to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct VerdictChange {
    id: u64,
    wallet: Address,
    liable: Address,
    from: Option<Standing>,
    to: Option<Standing>,
    /// Block of the change; `None` for the block at which it was seen.
    number: Option<u64>,
    seconds: Option<u64>,
}

/// Compares records as of the previous refresh.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    as_of: ComparisonMoments,
    grace_seconds: u64,
}

impl Comparison {
    /// Compares as of the previous refresh, for rows of this height; `None` before the first complete fill.
    pub(super) fn of(state: &State, height: u64) -> Option<Self> {
        let (basis_at, listed_after) = (state.log.basis_at, state.listed.after(height));
        let as_of = ComparisonMoments { current_from: state.log.current_from?, basis_at, listed_after };
        Some(Self { as_of, grace_seconds: state.grace() })
    }

    /// Returns the changes between two records of an agent. `moment` is its last event that changed a status.
    pub(super) fn compare(
        self,
        id: u64,
        before: Option<&IndexedAgent>,
        after: Option<&IndexedAgent>,
        moment: Option<StatusMoment>,
    ) -> Vec<VerdictChange> {
        let of = |entry: Option<&IndexedAgent>| entry.and_then(|entry| self.as_of.standing(entry));
        let (from, to) = (of(before), of(after));
        let wallets = |entry: Option<&IndexedAgent>| {
            entry.map(|entry| (entry.row.wallet, entry.full.haftungsperson)).unwrap_or_default()
        };
        let ((wallet, liable), (was, was_liable)) = (wallets(after.or(before)), wallets(before));
        let note =
            |from, to, number, seconds| VerdictChange { id, wallet, liable, from, to, number, seconds };
        if let (Some(before), Some(after)) = (before, after)
            && wallets(Some(before)) != wallets(Some(after))
        {
            // An agent's wallets never change: a reorg undid the first registration, and another one has its
            // id.
            let undone = VerdictChange { wallet: was, liable: was_liable, ..note(from, None, None, None) };
            let number = moment.map(|moment| moment.number);
            let registered = note(None, to, number, Some(after.row.registered_at));
            return [undone, registered].into_iter().filter(|noted| noted.from != noted.to).collect();
        }
        if let (Some(before), Some(after)) = (before, after)
            && let (Some(from), Some(to)) = (from, to)
            && (from.decision, to.decision) == (Decision::Provision, Decision::Provision)
            && let Some(end) = self.lapses_at(before).filter(|end| *end <= after.row.last_attestation)
        {
            // It lapsed and was renewed between two refreshes.
            let expired = Some(Standing::new(from.status, false, from.basis));
            return vec![
                note(Some(from), expired, None, Some(end)),
                note(expired, Some(to), None, Some(after.row.last_attestation)),
            ];
        }
        if !is_change(from, to) {
            return Vec::new();
        }
        let (number, seconds) = match (from, to, after) {
            (None, Some(_), Some(after)) => {
                (moment.map(|moment| moment.number), Some(after.row.registered_at))
            }
            // An attestation or a report, unless one was undone.
            (Some(from), Some(to), Some(after)) if from.status == to.status => {
                let renewed = (to.decision == Decision::Provision).then_some(after.row.last_attestation);
                let tied = (to.basis == Some(Basis::Attested)).then_some(after.events.last);
                (None, if from.decision == to.decision { tied } else { renewed })
            }
            _ => (moment.map(|moment| moment.number), moment.and_then(|moment| moment.seconds)),
        };
        vec![note(from, to, number, seconds)]
    }

    fn lapses_at(self, entry: &IndexedAgent) -> Option<u64> {
        entry.row.last_attestation.checked_add(self.grace_seconds)?.checked_add(1)
    }
}

/// Appends changes to the table.
pub(super) struct ChangeLog<'a, S> {
    pub(super) store: &'a S,
    pub(super) state: &'a mut State,
    /// The block at which changes are seen.
    pub(super) at: Checkpoint,
    /// The host's clock in unix seconds.
    pub(super) now: u64,
}

impl<S: Store> ChangeLog<'_, S> {
    /// Stores changes, and the time at which agents ended if it is known to the second.
    pub(super) fn write(&mut self, noted: Vec<VerdictChange>) -> Result<(), StoreError> {
        let (mut rows, mut ends) = (Vec::with_capacity(noted.len()), BTreeMap::new());
        for VerdictChange { id, wallet, liable, from, to, number, seconds } in noted {
            self.state.log.changes += 1;
            rows.push([
                self.state.log.changes.into(),
                id.into(),
                SqlValue::Blob(wallet.to_vec()),
                SqlValue::Blob(liable.to_vec()),
                value(from),
                value(to),
                number.unwrap_or(self.at.number).into(),
                seconds.unwrap_or(self.at.seconds).into(),
                self.now.into(),
            ]);
            let exact = seconds.or((number == Some(self.at.number)).then_some(self.at.seconds));
            let status = |standing: Option<Standing>| standing.map(|standing| standing.status);
            let has_ended = |it| status(it).is_some_and(Status::has_ended) && status(from) != status(to);
            if has_ended(from) {
                // The end was undone, or is replaced.
                ends.insert(id, None);
            }
            if let Some(seconds) = exact.filter(|_| has_ended(to)) {
                ends.insert(id, Some(seconds));
            }
        }
        write(
            self.store,
            "INSERT INTO changes (number, agent, wallet, liable, was, is_now, block, seconds, noted) \
             SELECT value->>0, value->>1, unhex(value->>2), unhex(value->>3), value->>4, value->>5, value->>6, \
             value->>7, value->>8 FROM json_each(?1)",
            &rows,
        )?;
        let ids: Vec<u64> = ends.keys().copied().collect();
        of_ids(self.store, "DELETE FROM ends WHERE id", &[], &ids)?;
        let known = |(id, seconds): (u64, Option<u64>)| Some([id.into(), seconds?.into()]);
        let ends: Vec<[SqlValue; 2]> = ends.into_iter().filter_map(known).collect();
        let statement = "INSERT INTO ends (id, seconds) SELECT value->>0, value->>1 FROM json_each(?1)";
        write(self.store, statement, &ends)
    }

    /// Replaces the undone blocks in changes and ends of agents with the same record after a reorg by the new
    /// blocks of their events. The reorg has undone the blocks after the one of this height and time. Only an
    /// agent's newest change of status is moved: an undone one before it was followed by a change back.
    pub(super) fn move_undone(
        &self,
        (since, seconds): (u64, u64),
        moved: &[(u64, StatusMoment)],
    ) -> Result<(), StoreError> {
        let moment = |(id, moment): &(u64, StatusMoment)| {
            let own = (moment.number == self.at.number).then_some(self.at.seconds);
            let seconds = moment.seconds.or(own).map_or(SqlValue::Null, SqlValue::from);
            [(*id).into(), moment.number.into(), seconds]
        };
        let moved: Vec<[SqlValue; 3]> = moved.iter().map(moment).collect();
        let of = "FROM (SELECT value->>0 AS id, value->>1 AS block, value->>2 AS seconds FROM json_each(?1)) \
                  AS moved WHERE";
        // By the host's clock, which may be behind the chain.
        let behind = self.at.seconds.saturating_sub(self.now) + CLOCK_SET_RIGHT;
        let noted_from = seconds.saturating_sub(behind);
        let statement = format!(
            "UPDATE changes SET block = moved.block, seconds = coalesce(moved.seconds, changes.seconds) {of} \
             changes.agent = moved.id AND changes.block > {since} AND changes.number IN (SELECT max(number) \
             FROM changes WHERE noted >= {noted_from} AND was & 6 IS NOT is_now & 6 \
             AND agent IN (SELECT value->>0 FROM json_each(?1)) GROUP BY agent)"
        );
        write(self.store, &statement, &moved)?;
        let statement =
            format!("UPDATE ends SET seconds = moved.seconds {of} ends.id = moved.id AND moved.seconds > 0");
        write(self.store, &statement, &moved)?;
        let unknown =
            "DELETE FROM ends WHERE id IN (SELECT value->>0 FROM json_each(?1) WHERE value->>2 IS NULL)";
        write(self.store, unknown, &moved)
    }

    /// Advances the times of comparison to those of the rows: attestations lapse, or are current again after
    /// a longer grace period, and events of liable wallets become too old for a basis. If there are very many
    /// of these, it advances as far as they are noted. Deletes changes and lists past their TTL.
    pub(super) fn move_on(&mut self) -> Result<(), StoreError> {
        let grace = self.state.grace();
        // Answers are as of then, too.
        let current_from = (self.state.read_at / 1_000).saturating_sub(grace);
        let basis_was_at = std::mem::replace(&mut self.state.log.basis_at, self.at.seconds);
        let Some(was_from) = self.state.log.current_from.replace(current_from) else { return Ok(()) };
        let mut most = LAPSES_AT_ONCE;
        let listed_after = self.state.listed_after();
        let as_of = |current_from, basis_at| ComparisonMoments { current_from, basis_at, listed_after };
        let (before, between) = (as_of(was_from, basis_was_at), as_of(current_from, basis_was_at));
        // 0 is Active.
        let [end, next, order] = direction(was_from <= current_from);
        let statement = format!(
            "SELECT id, attested, status, attested, creator, person, events, wallet \
             FROM agents INDEXED BY agents_by_attestation \
             WHERE status = 0 AND attested {end} ?1 AND (attested, id) {next} (?2, ?3) \
             ORDER BY attested {order}, id {order} LIMIT ?4"
        );
        let current_from =
            self.note_lapses(&statement, (was_from, current_from), (before, between), grace, &mut most)?;
        self.state.log.current_from = Some(current_from);
        let [between, after] = [basis_was_at, self.at.seconds].map(|at| as_of(current_from, at));
        let [was_from, from] =
            [basis_was_at, self.at.seconds].map(|at| at.saturating_sub(ATTESTED_SECONDS).max(1));
        let [end, next, order] = direction(was_from <= from);
        let statement = format!(
            "SELECT id, substr(events, 1, 8), status, attested, creator, person, events, wallet \
             FROM agents INDEXED BY agents_by_event WHERE creator <> person \
             AND events >= x'0000000000000001' AND substr(events, 1, 8) {end} ?1 \
             AND substr(events, 1, 8) {next}= ?2 AND (substr(events, 1, 8) {next} ?2 OR id {next} ?3) \
             ORDER BY substr(events, 1, 8) {order}, id {order} LIMIT ?4"
        );
        let moments = (was_from, from);
        let reached = self.note_lapses(&statement, moments, (between, after), ATTESTED_SECONDS, &mut most)?;
        if reached != from {
            self.state.log.basis_at = reached.saturating_add(ATTESTED_SECONDS);
        }
        let outdated = self.now.saturating_sub(KEPT_SECONDS);
        // At most 20,000 in one piece of work.
        let statement =
            "DELETE FROM changes WHERE noted < ?1 AND number < (SELECT min(number) FROM changes) + 20000";
        self.store.execute(statement, &[outdated.into()])?;
        open_lists::close_forgotten(self.store, self.now)
    }

    /// Notes the agents with a time between `was_from` and `is_from`, in the statement's [`direction`]: the
    /// time of something that lapses after `lapse_seconds`. After the `most` agents that are left to this
    /// piece of work, it ends with those of the same second. Returns the time up to which all are noted.
    fn note_lapses(
        &mut self,
        statement: &str,
        (was_from, is_from): (u64, u64),
        (before, after): (ComparisonMoments, ComparisonMoments),
        lapse_seconds: u64,
        most: &mut usize,
    ) -> Result<u64, StoreError> {
        let (at, now, lapses) = (self.at.seconds, self.now, was_from <= is_from);
        let (mut reached, mut last) = (is_from, (was_from, 0));
        if was_from == is_from {
            return Ok(is_from);
        }
        loop {
            let parameters = [ordered(reached), ordered(last.0), last.1.into(), ROWS.into()];
            let noted = query(self.store, statement, &parameters, |row| {
                let (id, begun) = (row.number()?, u64::from_be_bytes(row.array()?));
                last = (begun, id);
                let status = u8::try_from(row.integer()?).ok().and_then(Status::from_number);
                let attested = u64::from_be_bytes(row.array()?);
                let wallets: [Address; 2] = [row.array::<20>()?.into(), row.array::<20>()?.into()];
                let (events, [creator, liable]) = (SeenEvents::unpack(row.nullable_blob()?)?, wallets);
                let standing = |as_of: ComparisonMoments| {
                    status.map(|status| as_of.of(status, attested, (creator, liable), events))
                };
                let lapse = begun.saturating_add(lapse_seconds).saturating_add(1).min(now);
                Ok(VerdictChange {
                    id,
                    wallet: row.array::<20>()?.into(),
                    liable,
                    from: standing(before),
                    to: standing(after),
                    number: None,
                    // A different grace period would have changed the second.
                    seconds: Some(if lapses { lapse } else { at }),
                })
            })?;
            if noted.is_empty() {
                break;
            }
            *most = most.saturating_sub(noted.len());
            if *most == 0 {
                reached = last.0.saturating_add(u64::from(lapses));
            }
            self.write(noted.into_iter().filter(|noted| is_change(noted.from, noted.to)).collect())?;
        }
        Ok(reached)
    }
}

/// Returns a statement's operators for the end and for the last row, and its order: it goes on to later
/// times, which have lapsed, or back to earlier ones, which are current again.
const fn direction(lapses: bool) -> [&'static str; 3] {
    if lapses { ["<", ">", "ASC"] } else { [">=", "<", "DESC"] }
}

/// Reads the timestamps of the blocks in which these agents ended, by id; known if the index saw the event
/// and the node sent its time.
pub(super) fn ended_at(store: &impl Store, ids: &[u64]) -> Result<BTreeMap<u64, u64>, StoreError> {
    let rows = of_ids(store, "SELECT id, seconds FROM ends WHERE id", &[], ids)?;
    rows.into_iter().map(|mut row| Ok((row.number()?, row.number()?))).collect()
}

/// Reads at most `limit` changes after `since`.
pub(super) fn list(
    store: &impl Store,
    state: &State,
    liable: Option<Address>,
    since: Since,
    limit: u64,
) -> Result<ChangeList, IndexError> {
    let at = state.block()?;
    let oldest = one_number(store, "SELECT min(number) FROM changes", &[])?;
    let oldest = oldest.map_or(state.log.changes, |first| first.saturating_sub(1));
    let began = state.log.began;
    let wallet = liable.map_or(SqlValue::Null, |liable| SqlValue::Blob(liable.to_vec()));
    let after = match since {
        Since::Oldest => oldest,
        Since::Now => state.log.changes,
        Since::Newest => {
            let searched = liable.map_or(limit, |_| SEARCHED);
            let first = state.log.changes.saturating_sub(searched).max(oldest);
            let statement = "SELECT number - 1 FROM changes WHERE number > ?1 AND liable = ?2 \
                             ORDER BY number DESC LIMIT 1 OFFSET ?3";
            let parameters = [first.into(), wallet.clone(), limit.saturating_sub(1).into()];
            one_number(store, statement, &parameters)?.unwrap_or(first)
        }
        Since::Cursor(cursor) => {
            let mut logs = state.log.earlier_logs.iter().copied().chain([(began, state.log.changes)]);
            let log = logs.find(|(log, _)| *log == cursor.began);
            if log.is_none_or(|(_, newest)| !(oldest..=newest).contains(&cursor.number)) {
                return Err(IndexError::CursorExpired);
            }
            cursor.number
        }
    };
    let statement = "SELECT number, agent, wallet, liable, was, is_now, block, seconds FROM changes WHERE number > ?1 \
                     AND number <= ?2 AND (?3 IS NULL OR liable = ?3) ORDER BY number LIMIT ?4";
    // A page of one wallet's changes ends here even if it holds few.
    let until = liable.map_or(state.log.changes, |_| after.saturating_add(SEARCHED).min(state.log.changes));
    let parameters = [after.into(), until.into(), wallet, limit.into()];
    let data = query(store, statement, &parameters, |row| {
        Ok(Change {
            cursor: Cursor { began, number: row.number()? },
            agent_id: AgentId(U256::from(row.number()?)),
            wallet: Address::from(row.array::<20>()?),
            liable: row
                .nullable_blob()?
                .and_then(|bytes| Address::try_from(&*bytes).ok())
                .unwrap_or_default(),
            from: read_standing(row.nullable()?)?,
            to: read_standing(row.nullable()?)?,
            block_number: row.number()?,
            time: Timestamp::from_seconds(row.number()?),
        })
    })?;
    let last = data.last().map_or(after, |change: &Change| change.cursor.number);
    let is_full = data.len() as u64 == limit && since != Since::Newest;
    let number = if liable.is_some() && !is_full { until } else { last };
    let next = Cursor { began, number };
    Ok(ChangeList { limit, has_more: next.number < state.log.changes, data, next, as_of: at.into() })
}
