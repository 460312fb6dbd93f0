//! The search for canonical blocks among the known ones.

use super::checkpoint::Checkpoint;
use crate::chain::{Halt, Header, View};

/// Older blocks compared at once in search of the last canonical one.
const OLDER: usize = 16;

/// Returns the last of these blocks, by ascending height, that is canonical with all before it.
pub(super) fn known_canonical(
    view: &View,
    blocks: &[Checkpoint],
    head: &Header,
) -> Result<Option<Checkpoint>, Halt> {
    let headers: Vec<_> = blocks
        .iter()
        .take_while(|block| block.number <= head.number)
        .map(|block| (block, view.header_at(block.number)))
        .collect();
    let mut last = None;
    for (block, header) in headers {
        if header?.hash != block.hash {
            break;
        }
        last = Some(*block);
    }
    Ok(last)
}

/// Returns the highest canonical block of these.
pub(super) fn last_canonical(
    view: &View,
    older: &[Checkpoint],
    head: &Header,
) -> Result<Option<Checkpoint>, Halt> {
    let older: Vec<&Checkpoint> = older.iter().filter(|block| block.number <= head.number).collect();
    for blocks in older.chunks(OLDER) {
        let headers: Vec<_> = blocks.iter().map(|block| view.header_at(block.number)).collect();
        for (block, header) in blocks.iter().zip(headers) {
            if header?.hash == block.hash {
                return Ok(Some(**block));
            }
        }
    }
    Ok(None)
}
