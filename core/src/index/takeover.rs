//! The takeover from the latest index of an earlier release, with tables of another format: its change log,
//! so that cursors stay valid, the ends of agents, and the agents' records, so that the changes since its
//! last refresh are told. All else is read from the chain.
//!
//! An index of this format is in an object of its own [name](super::protocol::object_name). The earlier
//! index's object is read, part by part, and nothing is written to it: if the release before is deployed
//! again, it continues with its rows.
//!
//! ```text
//!   state --> ends --> changes --> records --> the fill, which compares what it reads with these records
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    indexed_agent::{IndexedAgent, PACKED_BYTES},
    state::State,
    store::{Columns, EARLIER_FORMATS, SqlValue, Store, StoreError, first_row, format_of, one_number, query},
};

/// Rows in a part: less than a megabyte.
const ROWS: u64 = 2_500;
/// Milliseconds for which an earlier index that does not answer is asked again.
const PATIENCE_MILLIS: u64 = 600_000;
/// Parts in one piece of work, which bound its time.
pub const PARTS_AT_ONCE: u32 = 8;

/// Key of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartKey {
    /// The state.
    State,
    /// The ends of agents beyond this id.
    Ends(u64),
    /// The changes after this number.
    Changes(u64),
    /// The records of the agents beyond this id.
    Records(u64),
}

/// A part of an index of an earlier format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeoverPart {
    /// The state, or rows as JSON; empty if there is no such index.
    content: String,
    /// The next part, if there is one.
    next: Option<PartKey>,
}

impl TakeoverPart {
    /// Returns whether there is no such index, or none that has completed a fill.
    pub const fn is_empty(&self) -> bool {
        self.content.is_empty()
    }
}

/// Reads a part from the store of an index of an earlier format. Nothing is written.
///
/// # Errors
///
/// [`StoreError`].
pub fn part(store: &impl Store, place: PartKey) -> Result<TakeoverPart, StoreError> {
    let Some(format) = format_of(store)?.filter(|format| EARLIER_FORMATS.contains(&format.as_str())) else {
        return Ok(TakeoverPart::default());
    };
    let state = first_row(store, "SELECT value FROM meta WHERE key = 'state'", &[])?;
    let state = state.map_or_else(|| Ok(String::new()), |mut row| row.text())?;
    // Before its first complete fill it has no change log.
    if State::read(&state).is_none_or(|state| state.began() == 0) {
        return Ok(TakeoverPart::default());
    }
    // Format 11 has no such column.
    let liable = if format == "11" { "NULL" } else { "hex(liable)" };
    let changes = format!(
        "SELECT json_group_array(json_array(number, agent, hex(wallet), was, is_now, block, seconds, noted, \
         {liable})), max(number), count(*) \
         FROM (SELECT * FROM changes WHERE number > ?1 ORDER BY number LIMIT ?2)"
    );
    let (after, rows) = match place {
        PartKey::State => return Ok(TakeoverPart { content: state, next: Some(PartKey::Ends(0)) }),
        PartKey::Ends(after) => (
            after,
            "SELECT json_group_array(json_array(id, seconds)), max(id), count(*) \
             FROM (SELECT id, seconds FROM ends WHERE id > ?1 ORDER BY id LIMIT ?2)",
        ),
        PartKey::Changes(after) => (after, changes.as_str()),
        PartKey::Records(after) => (
            after,
            "SELECT json_array(json_array(min(id), group_concat(hex(substr(record, 1, ?3)), ''))), max(id), count(*) \
             FROM (SELECT id, record FROM agents WHERE id > ?1 ORDER BY id LIMIT ?2)",
        ),
    };
    let mut parameters = vec![after.into(), ROWS.into()];
    if matches!(place, PartKey::Records(_)) {
        parameters.push((PACKED_BYTES as u64).into());
    }
    let mut row = first_row(store, rows, &parameters)?.ok_or_else(StoreError::corrupt)?;
    let (content, last, count) = (row.text()?, row.nullable()?, row.number()?);
    let last = last.and_then(|last| u64::try_from(last).ok()).unwrap_or(0);
    let is_last = count < ROWS;
    let next = match place {
        PartKey::State | PartKey::Ends(_) if is_last => Some(PartKey::Changes(0)),
        PartKey::State | PartKey::Ends(_) => Some(PartKey::Ends(last)),
        PartKey::Changes(_) if is_last => Some(PartKey::Records(0)),
        PartKey::Changes(_) => Some(PartKey::Changes(last)),
        PartKey::Records(_) => (!is_last).then_some(PartKey::Records(last)),
    };
    Ok(TakeoverPart { content: if count == 0 { "[]".to_owned() } else { content }, next })
}

/// Returns the part that an index has to take over next; `None` once it has begun to read the chain.
///
/// # Errors
///
/// [`StoreError`].
pub fn next(store: &impl Store) -> Result<Option<PartKey>, StoreError> {
    let statement = "SELECT value FROM meta WHERE key IN ('takeover', 'state') ORDER BY key DESC LIMIT 1";
    match first_row(store, statement, &[])? {
        None => Ok(Some(PartKey::State)),
        // If the state alone is stored, this is its text.
        Some(mut row) => Ok(serde_json::from_str(&row.text()?).unwrap_or(None)),
    }
}

/// Stores a part, in one transaction of the host; an empty one after the state ends the takeover.
/// `now_millis` is the host's clock.
///
/// # Errors
///
/// [`StoreError`].
pub fn take(
    store: &impl Store,
    place: PartKey,
    part: TakeoverPart,
    now_millis: u64,
) -> Result<(), StoreError> {
    let TakeoverPart { content, next } = part;
    let statement = match place {
        PartKey::State => {
            if let Some(earlier) = next.and_then(|_| State::read(&content)) {
                let mut state = State::load(store)?;
                state.take_over(earlier, now_millis);
                state.save(store)?;
            }
            return go_on(store, next);
        }
        // The earlier index has been deleted meanwhile.
        _ if content.is_empty() => return begin_without(store),
        PartKey::Ends(_) => {
            "INSERT OR REPLACE INTO ends (id, seconds) SELECT value->>0, value->>1 FROM json_each(?1)"
        }
        PartKey::Changes(_) => {
            "INSERT OR REPLACE INTO changes (number, agent, wallet, was, is_now, block, seconds, noted, liable) \
             SELECT value->>0, value->>1, unhex(value->>2), value->>3, value->>4, value->>5, value->>6, value->>7, \
             nullif(unhex(value->>8), x'') FROM json_each(?1)"
        }
        PartKey::Records(_) => {
            "INSERT OR REPLACE INTO earlier (first, records) SELECT value->>0, unhex(value->>1) FROM json_each(?1)"
        }
    };
    store.execute(statement, &[SqlValue::Text(content)])?;
    go_on(store, next)
}

/// Notes that the earlier index has not answered, and returns whether to ask it again, for ten minutes. After
/// that the index begins without it.
///
/// # Errors
///
/// [`StoreError`].
pub fn is_awaited(store: &impl Store, now_millis: u64) -> Result<bool, StoreError> {
    let statement = "INSERT OR IGNORE INTO meta (key, value) VALUES ('awaited_since', ?1)";
    store.execute(statement, &[SqlValue::Text(now_millis.to_string())])?;
    let statement = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'awaited_since'";
    let since = one_number(store, statement, &[])?.unwrap_or(0);
    let is_awaited = now_millis < since.saturating_add(PATIENCE_MILLIS);
    if !is_awaited {
        begin_without(store)?;
    }
    Ok(is_awaited)
}

/// Begins without the earlier index and the parts stored of it: half of a log would tell false changes.
fn begin_without(store: &impl Store) -> Result<(), StoreError> {
    for statement in ["DELETE FROM meta WHERE key = 'state'", "DELETE FROM ends", "DELETE FROM changes"] {
        store.execute(statement, &[])?;
    }
    end(store)?;
    go_on(store, None)
}

fn go_on(store: &impl Store, next: Option<PartKey>) -> Result<(), StoreError> {
    let next = serde_json::to_string(&next).map_err(|_| StoreError::corrupt())?;
    store.execute("DELETE FROM meta WHERE key = 'awaited_since'", &[])?;
    let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('takeover', ?1)";
    store.execute(statement, &[SqlValue::Text(next)]).map(drop)
}

/// Reads the taken-over records of the agents from `first` to `last`, without their scopes.
pub(super) fn records(
    store: &impl Store,
    (first, last): (u64, u64),
) -> Result<BTreeMap<u64, IndexedAgent>, StoreError> {
    let mut records = BTreeMap::new();
    let statement = "SELECT first, records FROM earlier WHERE first > ?1 AND first <= ?2";
    for page in query(store, statement, &[first.saturating_sub(ROWS).into(), last.into()], read_page)? {
        let (begins, packed) = page;
        for (id, packed) in (begins..).zip(packed.chunks(PACKED_BYTES)) {
            if (first..=last).contains(&id) {
                records.insert(id, IndexedAgent::unpack(packed)?);
            }
        }
    }
    Ok(records)
}

fn read_page(row: &mut Columns) -> Result<(u64, Vec<u8>), StoreError> {
    Ok((row.number()?, row.blob()?))
}

/// Deletes the taken-over records, once all agents are read.
pub(super) fn end(store: &impl Store) -> Result<(), StoreError> {
    store.execute("DELETE FROM earlier", &[]).map(drop)
}
