//! Changes of verdicts, in the order in which an index saw them: what `/changes` tells.
//!
//! A change is a difference between what an index had of an agent and what it read. So a reorganisation needs no care: what was undone is
//! read again, and is a change back. An attestation that lapses changes a verdict without anything on the chain. Each refresh
//! first compares records as of the moment of the refresh before, and then moves that moment, whereby attestations lapse:
//!
//! ```text
//!   refresh before                 refresh
//!        |-------------------------->|
//!        |  records: old, then new   |  attestations that lapsed in between, each at its second
//! ```

use std::collections::BTreeMap;

use alloy_primitives::{Address, U256};

use super::{
    IndexError, State,
    entry::Entry,
    open_lists,
    state::Checkpoint,
    store::{Columns, Store, StoreError, Value, of_ids, one_number, ordered, write},
};
use crate::{
    chain::logs::Moment,
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::changes::{Change, ChangeList, Cursor, KEPT_SECONDS, Since, Standing},
    registry::kya::Decision,
};

/// Lapses that are in memory at once.
const ROWS: u64 = 1_000;

/// The standing of an agent where attestations are current from that second on; `None` for a record that cannot be read.
fn standing(entry: &Entry, current_from: u64) -> Option<Standing> {
    let status = entry.status()?;
    Some(Standing::new(status, entry.row.last_attestation >= current_from))
}

/// As a number, NULL for none.
fn value(standing: Option<Standing>) -> Value {
    let Some(Standing { status, decision }) = standing else { return Value::Null };
    Value::Integer(status as i64 * 2 + i64::from(matches!(decision, Decision::Provision)))
}

fn read_standing(value: Option<i64>) -> Result<Option<Standing>, StoreError> {
    let Some(number) = value else { return Ok(None) };
    let status = u8::try_from(number / 2).ok().and_then(Status::from_number);
    Ok(Some(Standing::new(status.ok_or_else(StoreError::corrupt)?, number % 2 == 1)))
}

/// A change on its way into the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Noted {
    id: u64,
    wallet: Address,
    from: Option<Standing>,
    to: Option<Standing>,
    /// `None` is the block that it was seen at.
    number: Option<u64>,
    seconds: Option<u64>,
}

/// How records are compared: as of the refresh before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    pub(super) current_from: u64,
    pub(super) grace_seconds: u64,
}

impl Comparison {
    /// The changes between two records of an agent; `moment` is of its last event that changed a status.
    pub(super) fn compare(
        self,
        id: u64,
        before: Option<&Entry>,
        after: Option<&Entry>,
        moment: Option<Moment>,
    ) -> Vec<Noted> {
        let of = |entry: Option<&Entry>| entry.and_then(|entry| standing(entry, self.current_from));
        let (from, to) = (of(before), of(after));
        let wallet = after.or(before).map(|entry| entry.row.wallet).unwrap_or_default();
        let note = |from, to, number, seconds| Noted { id, wallet, from, to, number, seconds };
        if let (Some(before), Some(after)) = (before, after)
            && before.row.wallet != after.row.wallet
        {
            // A wallet never changes: the first registration was undone, and another one has its id.
            let undone = Noted { wallet: before.row.wallet, ..note(from, None, None, None) };
            let number = moment.map(|moment| moment.number);
            let registered = note(None, to, number, Some(after.row.registered_at));
            return [undone, registered].into_iter().filter(|noted| noted.from != noted.to).collect();
        }
        if from == to {
            let lapsed = match (before, after, to) {
                (Some(before), Some(after), Some(Standing { decision: Decision::Provision, .. })) => {
                    self.lapses_at(before).filter(|end| *end <= after.row.last_attestation).zip(Some(after))
                }
                _ => None,
            };
            // It lapsed, and was renewed, before anybody looked.
            return lapsed.map_or_else(Vec::new, |(end, after)| {
                let expired = to.map(|to| Standing::new(to.status, false));
                vec![
                    note(to, expired, None, Some(end)),
                    note(expired, to, None, Some(after.row.last_attestation)),
                ]
            });
        }
        let (number, seconds) = match (from, to, after) {
            (None, Some(_), Some(after)) => {
                (moment.map(|moment| moment.number), Some(after.row.registered_at))
            }
            // An attestation, if it is not one that was undone.
            (Some(from), Some(to), Some(after)) if from.status == to.status => {
                let renewed = to.decision == Decision::Provision;
                (None, renewed.then_some(after.row.last_attestation))
            }
            _ => (moment.map(|moment| moment.number), moment.and_then(|moment| moment.seconds)),
        };
        vec![note(from, to, number, seconds)]
    }

    fn lapses_at(self, entry: &Entry) -> Option<u64> {
        entry.row.last_attestation.checked_add(self.grace_seconds)?.checked_add(1)
    }
}

/// Writes changes behind those that are there.
pub(super) struct Log<'a, S> {
    pub(super) store: &'a S,
    pub(super) state: &'a mut State,
    /// The block that changes are seen at.
    pub(super) at: Checkpoint,
    /// When, by the host's clock, unix seconds.
    pub(super) now: u64,
}

impl<S: Store> Log<'_, S> {
    /// Writes them, and when agents ended, where that is known to the second.
    pub(super) fn write(&mut self, noted: Vec<Noted>) -> Result<(), StoreError> {
        let (mut rows, mut ends) = (Vec::with_capacity(noted.len()), BTreeMap::new());
        for Noted { id, wallet, from, to, number, seconds } in noted {
            self.state.changes += 1;
            rows.push([
                self.state.changes.into(),
                id.into(),
                Value::Blob(wallet.to_vec()),
                value(from),
                value(to),
                number.unwrap_or(self.at.number).into(),
                seconds.unwrap_or(self.at.seconds).into(),
                self.now.into(),
            ]);
            let exact = seconds.or((number == Some(self.at.number)).then_some(self.at.seconds));
            let has_ended = |standing: Option<Standing>| standing.is_some_and(|it| it.status.has_ended());
            if has_ended(from) {
                // It was undone, or is another one now.
                ends.insert(id, None);
            }
            if let Some(seconds) = exact.filter(|_| has_ended(to)) {
                ends.insert(id, Some(seconds));
            }
        }
        write(
            self.store,
            "INSERT INTO changes (number, agent, wallet, was, is_now, block, seconds, noted) \
             SELECT value->>0, value->>1, unhex(value->>2), value->>3, value->>4, value->>5, value->>6, value->>7 \
             FROM json_each(?1)",
            &rows,
        )?;
        let ids: Vec<u64> = ends.keys().copied().collect();
        of_ids(self.store, "DELETE FROM ends WHERE id", &[], &ids)?;
        let known = |(id, seconds): (u64, Option<u64>)| Some([id.into(), seconds?.into()]);
        let ends: Vec<[Value; 2]> = ends.into_iter().filter_map(known).collect();
        let statement = "INSERT INTO ends (id, seconds) SELECT value->>0, value->>1 FROM json_each(?1)";
        write(self.store, statement, &ends)
    }

    /// Moves the moment as of which records are compared to now: attestations lapse, or hold again where the grace period was made longer.
    /// What is kept too long goes.
    pub(super) fn move_on(&mut self) -> Result<(), StoreError> {
        let grace = self.state.grace();
        let current_from = self.now.saturating_sub(grace);
        let Some(before) = self.state.current_from.replace(current_from) else { return Ok(()) };
        let lapses = before <= current_from;
        let (mut from, to) = if lapses { (before, current_from) } else { (current_from, before) };
        let mut after = 0;
        loop {
            // By status it would read, and sort, nearly all agents. 0 is Active, as that index has it.
            let statement = "SELECT id, attested, wallet FROM agents INDEXED BY active_agents_by_attestation \
                             WHERE status = 0 AND attested < ?1 AND (attested, id) > (?2, ?3) \
                             ORDER BY attested, id LIMIT ?4";
            let parameters = [ordered(to), ordered(from), after.into(), ROWS.into()];
            let rows = self.store.execute(statement, &parameters)?;
            let mut noted = Vec::with_capacity(rows.len());
            for row in rows {
                let mut row = Columns::of(row);
                let (id, attested) = (row.number()?, u64::from_be_bytes(row.array()?));
                let wallet = Address::from(row.array::<20>()?);
                (from, after) = (attested, id);
                let lapse = attested.saturating_add(grace).saturating_add(1);
                let standing = |current| Some(Standing::new(Status::Active, current));
                noted.push(Noted {
                    id,
                    wallet,
                    from: standing(lapses),
                    to: standing(!lapses),
                    number: None,
                    // With another grace period it would have been another second.
                    seconds: Some(if lapses { lapse.min(self.now) } else { self.at.seconds }),
                });
            }
            if noted.is_empty() {
                break;
            }
            self.write(noted)?;
        }
        let outdated = self.now.saturating_sub(KEPT_SECONDS);
        self.store.execute("DELETE FROM changes WHERE noted < ?1", &[outdated.into()])?;
        open_lists::close_forgotten(self.store, self.now)
    }
}

/// When an agent ended, by the time of its block: known where the index saw it, and the node said when that was.
pub(super) fn ended_at(store: &impl Store, id: u64) -> Result<Option<u64>, StoreError> {
    one_number(store, "SELECT seconds FROM ends WHERE id = ?1", &[id.into()])
}

/// So many changes from there on.
pub(super) fn list(
    store: &impl Store,
    state: &State,
    since: Since,
    limit: u64,
) -> Result<ChangeList, IndexError> {
    let Some(at) = state.as_of() else { return Err(IndexError::Incomplete { percent: state.percent() }) };
    let oldest = one_number(store, "SELECT min(number) FROM changes", &[])?;
    let oldest = oldest.map_or(state.changes, |first| first.saturating_sub(1));
    let began = state.began;
    let after = match since {
        Since::Oldest => oldest,
        Since::Now => state.changes,
        Since::Newest => state.changes.saturating_sub(limit).max(oldest),
        Since::Cursor(cursor) => {
            if cursor.began != began || !(oldest..=state.changes).contains(&cursor.number) {
                return Err(IndexError::CursorExpired);
            }
            cursor.number
        }
    };
    let statement = "SELECT number, agent, wallet, was, is_now, block, seconds FROM changes WHERE number > ?1 \
                     ORDER BY number LIMIT ?2";
    let mut data = Vec::new();
    for row in store.execute(statement, &[after.into(), limit.into()])? {
        let mut row = Columns::of(row);
        data.push(Change {
            cursor: Cursor { began, number: row.number()? },
            agent_id: AgentId(U256::from(row.number()?)),
            wallet: Address::from(row.array::<20>()?),
            from: read_standing(row.nullable()?)?,
            to: read_standing(row.nullable()?)?,
            block_number: row.number()?,
            time: Timestamp::from_seconds(row.number()?),
        });
    }
    let next = data.last().map_or(Cursor { began, number: after }, |change| change.cursor);
    Ok(ChangeList { limit, has_more: next.number < state.changes, data, next, as_of: at.into() })
}
