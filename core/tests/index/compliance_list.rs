//! The whole list in pieces, while the index moves on.

use registry_core::index::{IndexError, ListChunk, ListCursor};

use crate::{TestIndex, common::prelude::*};

/// Seconds for which a list stays open without a request.
const FORGOTTEN: u64 = 60;

/// A partly read list.
struct OpenList {
    /// The list in one piece, as it was when this one was opened.
    whole: String,
    text: String,
    next: ListCursor,
    /// Time of the last request for it.
    used: u64,
}

#[derive(Default)]
pub(crate) struct OpenLists(Vec<OpenList>);

impl TestIndex {
    pub(crate) fn open_list(&self, now: u64, most: u64) -> Result<ListChunk, IndexError> {
        self.read(|index| index.open_list(Timestamp::from_seconds(now), self.now * 1_000, most))
    }

    pub(crate) fn next_chunk(&self, cursor: ListCursor, most: u64) -> Result<ListChunk, IndexError> {
        self.read(|index| index.next_chunk(cursor, self.now * 1_000, most))
    }
}

/// Counts the open lists, and the agents kept for them.
fn kept(index: &TestIndex) -> [i64; 2] {
    ["lists", "former_agents"].map(|table| index.database.number(&format!("SELECT count(*) FROM {table}")))
}

impl OpenLists {
    /// Opens another list, as of `now`, unless too many are open.
    pub(crate) fn open(&mut self, index: &TestIndex, now: u64) {
        if self.0.len() > 2 {
            return;
        }
        let whole = index.document("/api/v1/agents/compliance", now).unwrap().body;
        let piece = index.open_list(now, 2).unwrap();
        match piece.next {
            Some(next) => self.0.push(OpenList { whole, text: piece.text, next, used: index.now }),
            None => assert_eq!(piece.text, whole),
        }
    }

    /// Continues some of the lists.
    pub(crate) fn go_on(&mut self, index: &TestIndex, random: &mut Random) -> Result<(), String> {
        for mut list in std::mem::take(&mut self.0) {
            let mut next = Some(list.next);
            for _ in 0..random.below(3) {
                let Some(cursor) = next else { break };
                // The cursor goes between the two Workers as text.
                let cursor = ListCursor::parse(&cursor.to_string()).unwrap();
                match index.next_chunk(cursor, 1 + random.below(3)) {
                    Ok(piece) => {
                        list.text.push_str(&piece.text);
                        (next, list.used) = (piece.next, index.now);
                    }
                    Err(IndexError::CursorExpired) if index.now > list.used + FORGOTTEN => {
                        (next, list.text) = (None, list.whole.clone());
                    }
                    Err(error) => return Err(format!("{cursor}: {error}")),
                }
            }
            match next {
                Some(next) => self.0.push(OpenList { next, ..list }),
                None if list.text == list.whole => {}
                None => return Err(format!("a list in pieces: {}\nnot {}", list.text, list.whole)),
            }
        }
        Ok(())
    }
}

/// Mines a block in which all these agents are suspended, or active again, and refreshes.
fn toggle(index: &mut TestIndex, ids: &[u64]) {
    index.mine_with_events(ids, |registry, _| {
        for id in ids {
            let status = &mut registry.agents[*id as usize - 1].status;
            *status = u8::from(*status == 0);
        }
    });
    index.refresh();
}

#[test]
fn a_list_without_a_reader_makes_room_for_the_next_one() {
    let mut index = TestIndex::filled(9, 2);
    let opened: Vec<ListChunk> = (0..4).map(|_| index.open_list(NOW, 2).unwrap()).collect();
    let next = |place: usize| opened[place].next.unwrap();
    assert!(matches!(index.open_list(NOW, 2), Err(IndexError::Busy)));
    // The reader of the second says that it has gone.
    index.read(|index| index.close_list(next(1))).unwrap();
    let fifth = index.open_list(NOW, 2).unwrap();
    assert!(matches!(index.next_chunk(next(1), 2), Err(IndexError::CursorExpired)));
    // Those of the third and the fourth never ask again; the others do.
    index.now += 10;
    let first = index.next_chunk(next(0), 2).unwrap();
    let fifth = index.next_chunk(fifth.next.unwrap(), 2).unwrap();
    assert!(index.open_list(NOW, 2).is_ok() && index.open_list(NOW, 2).is_ok());
    assert!(matches!(index.open_list(NOW, 2), Err(IndexError::Busy)));
    for gone in [2, 3] {
        assert!(matches!(index.next_chunk(next(gone), 2), Err(IndexError::CursorExpired)));
    }
    for living in [first, fifth] {
        assert!(index.next_chunk(living.next.unwrap(), 1_000).is_ok());
    }
}

#[test]
fn an_abandoned_list_is_closed_and_costs_nothing_any_more() {
    let mut index = TestIndex::filled(9, 2);
    let opened: Vec<ListChunk> = (0..4).map(|_| index.open_list(NOW, 2).unwrap()).collect();
    let refused = index.open_list(NOW, 2).unwrap_err();
    assert!(matches!(&refused, IndexError::Busy), "{refused}");
    toggle(&mut index, &[7, 8]);
    assert_eq!(kept(&index), [4, 2], "once for all of them");
    index.now += FORGOTTEN + 1;
    toggle(&mut index, &[9]);
    assert_eq!(kept(&index), [0, 0]);
    for piece in opened {
        let expired = index.next_chunk(piece.next.unwrap(), 2).unwrap_err();
        assert!(matches!(expired, IndexError::CursorExpired), "{expired}");
    }
    assert!(index.open_list(NOW, 2).is_ok());
}
