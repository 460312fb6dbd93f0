//! Allocates places of shards in the data file: first fit in the gaps, else at the end.
//!
//! A shard's place is given back only when the head that no longer names it is on disk, so that a crash at
//! any time leaves a head with all its shards whole.

use std::collections::BTreeMap;

/// A piece of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Offset of its first byte.
    pub(crate) offset: u64,
    /// Length in bytes.
    pub(crate) length: u32,
}

impl Extent {
    const fn end(self) -> u64 {
        self.offset.saturating_add(self.length as u64)
    }
}

/// The gaps of the data file.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// Lengths of the gaps, by their first byte. No two gaps touch.
    gaps: BTreeMap<u64, u64>,
    /// The end of the last extent.
    end: u64,
}

impl Space {
    /// Returns the space around these extents; `None` where two overlap.
    pub(crate) fn around(extents: impl Iterator<Item = Extent>) -> Option<Self> {
        let mut extents: Vec<Extent> = extents.collect();
        extents.sort_unstable_by_key(|extent| extent.offset);
        let mut space = Self::default();
        for extent in extents {
            let gap = extent.offset.checked_sub(space.end)?;
            if gap > 0 {
                space.gaps.insert(space.end, gap);
            }
            space.end = extent.end();
        }
        Some(space)
    }

    /// Takes a piece of that length.
    pub(crate) fn take(&mut self, length: u32) -> Extent {
        let wanted = u64::from(length);
        let fits = self.gaps.iter().find(|(_, gap)| **gap >= wanted).map(|(offset, gap)| (*offset, *gap));
        let Some((offset, gap)) = fits else {
            let extent = Extent { offset: self.end, length };
            self.end = extent.end();
            return extent;
        };
        self.gaps.remove(&offset);
        if gap > wanted {
            self.gaps.insert(offset + wanted, gap - wanted);
        }
        Extent { offset, length }
    }

    /// Gives a piece back.
    pub(crate) fn give_back(&mut self, extent: Extent) {
        let (mut offset, mut end) = (extent.offset, extent.end());
        if let Some((before, gap)) = self.gaps.range(..offset).next_back().map(|(at, gap)| (*at, *gap))
            && before + gap == offset
        {
            self.gaps.remove(&before);
            offset = before;
        }
        if let Some(gap) = self.gaps.remove(&end) {
            end += gap;
        }
        match end == self.end {
            true => self.end = offset,
            false => {
                self.gaps.insert(offset, end - offset);
            }
        }
    }

    /// Returns the length that the file needs.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_never_overlap_and_gaps_are_used_again() {
        let mut space = Space::default();
        let mut held: Vec<Extent> = Vec::new();
        let mut chance = 7_u64;
        for round in 0..5_000_usize {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if held.len() > 40 || (round % 3 == 0 && !held.is_empty()) {
                let index = (chance >> 33) as usize % held.len();
                space.give_back(held.swap_remove(index));
            } else {
                held.push(space.take(1 + (chance >> 40) as u32 % 1_000));
            }
            let mut sorted = held.clone();
            sorted.sort_unstable_by_key(|extent| extent.offset);
            assert!(sorted.windows(2).all(|pair| pair[0].end() <= pair[1].offset), "{sorted:?}");
            let again = Space::around(held.iter().copied()).unwrap();
            assert_eq!((&again.gaps, again.end), (&space.gaps, space.end));
        }
        assert!(space.end() < 80_000, "{}", space.end());
    }

    #[test]
    fn pieces_that_overlap_are_no_space() {
        let extents = [Extent { offset: 0, length: 10 }, Extent { offset: 9, length: 1 }];
        assert!(Space::around(extents.into_iter()).is_none());
    }
}
