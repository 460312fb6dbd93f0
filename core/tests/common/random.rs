//! SplitMix64: the same numbers for the same seed on every machine, and mutations drawn with them.
#![allow(dead_code)] // each test program uses its part

use proptest::test_runner::Config;

/// Returns a number from the environment.
pub(crate) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|number| number.parse().ok()).unwrap_or(default)
}

/// Returns settings for `default` cases of a property, or for as many as `PROPTEST_CASES` says.
pub(crate) fn cases(default: u32) -> Config {
    let cases = setting("PROPTEST_CASES", default.into()) as u32;
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Sequence of a seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Creates the sequence of `MUTATION_SEED`, another one for each offset.
    pub(crate) fn seeded(offset: u64) -> Self {
        Self(setting("MUTATION_SEED", 0).wrapping_mul(1_000).wrapping_add(offset))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns an index into something of this length.
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns true once in `times` calls, on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.place(from.len())].clone()
    }
}

/// Replacement bytes of mutations: single ones that mean something, and longer words.
pub(crate) struct Mutator {
    pub(crate) alphabet: &'static [u8],
    pub(crate) words: &'static [&'static [u8]],
    /// The longest piece that is cut out, doubled or moved.
    pub(crate) longest: usize,
}

impl Mutator {
    /// Mutator of JSON-RPC: digits and JSON's signs, and words of the ABI that a decoder takes for a length
    /// or an offset.
    pub(crate) const JSON_RPC: Self = Self {
        alphabet: b"0123456789abcdef{}[]\",:x",
        words: &[
            &[b'f'; 64],
            &[b'0'; 64],
            b"0000000000000000000000000000000000000000000000000000000000ffffff",
        ],
        longest: 400,
    };

    /// Mutator of binary formats: edges of bytes, and whole numbers.
    pub(crate) const BINARY: Self =
        Self { alphabet: &[0, 1, 0x7f, 0x80, 0xff], words: &[&[0; 4], &[0xff; 4]], longest: 40 };

    /// Changes bytes in one to four places.
    pub(crate) fn mutate(&self, bytes: &[u8], random: &mut Random) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=random.below(4) {
            if bytes.is_empty() {
                break;
            }
            let (at, other) = (random.place(bytes.len()), random.place(bytes.len()));
            // Long pieces now and then.
            let longest = if random.once_in(4) { self.longest } else { self.longest.min(70) };
            let length = random.place(longest);
            let piece = bytes[other..(other + length).min(bytes.len())].to_vec();
            let mut overwrite = |word: &[u8]| {
                let end = (at + word.len()).min(bytes.len());
                bytes[at..end].copy_from_slice(&word[..end - at]);
            };
            match random.below(8) {
                0 => overwrite(&[random.next() as u8]),
                1 => overwrite(&[random.pick(self.alphabet)]),
                2 => overwrite(random.pick(self.words)),
                3 => overwrite(&piece),
                4 => bytes[at] ^= 1 << random.below(8),
                5 => drop(bytes.drain(at..(at + length).min(bytes.len()))),
                6 => drop(bytes.splice(at..at, piece)),
                _ => bytes.truncate(at),
            }
        }
        bytes
    }
}
