//! A simulation of the world: lookups at hundreds of data centres, with verdicts from the snapshot, by an RPC
//! call, and from a key-value store.
//!
//! The times between regions are published ones, the prices those of Cloudflare's list; the constants hold
//! the assumptions. The cache of an instance, the ages of manifests and files, and the levels of segments
//! above the shards are the Worker's and the index's.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::report::{head, percentile, row};

const DATA_CENTRES: usize = 300; // the n-th busiest has an n-th of the busiest one's lookups
const AGENTS: u64 = 1_000_000;
const SHARDS: u64 = 4_096;
const LEVELS: [u64; 4] = [1, 16, 256, SHARDS]; // files: the manifest's own segment, its parts, theirs, shards
const PLACES_MAX: usize = 512; // of a segment
const EARLIER: u64 = AGENTS; // changes before the first day: levels are as full as in any month
const LOOKUPS: [u64; 2] = [1_000_000, 10_000_000]; // of a day
const CHANGES: [u64; 2] = [1_000, 100_000]; // of a day
const UNREGISTERED: u64 = 20; // one lookup in so many is for a wallet without an agent
const IN_MEMORY: NonZeroUsize = NonZeroUsize::new(350).unwrap(); // files that an instance keeps
const LOOKUPS_OF_AN_INSTANCE: f64 = 20_000.0; // of a day
const MONTH: f64 = 30.0; // days

// Seconds: an instance's mean lifetime, the ages of what is kept, and the age at which a manifest is renewed.
const DAY: f64 = 86_400.0;
const LIFETIME: f64 = 3_600.0;
const MANIFEST: f64 = 20.0;
const RENEWAL: f64 = 20.0 * 2.0 / 3.0;
const VERDICT: f64 = 60.0;
const FILE: f64 = 86_400.0;

// Milliseconds: the data centre's cache, the object's work, the node's work, the store's.
const CACHE: f64 = 5.0;
const OBJECT: f64 = 5.0;
const NODE: f64 = 20.0;
const STORE: f64 = 5.0;

// Dollars for one: requests to an object, rows read, RPC calls, reads and writes of a key-value store.
const OBJECT_REQUEST: f64 = 0.15 / 1e6;
const ROW: f64 = 0.001 / 1e6;
const RPC_CALL: f64 = 10.0 / 1e6;
const STORE_READ: f64 = 0.5 / 1e6;
const STORE_WRITE: f64 = 5.0 / 1e6;

/// Milliseconds to N. Virginia, Frankfurt and Singapore and back, from ten regions: N. Virginia, N.
/// California, Oregon, Ireland, Frankfurt, Tokyo, Seoul, Singapore, Sydney, São Paulo. Between regions of
/// AWS, as tabulated at acomputerscientistlearnsaws.blogspot.com/2017/04/aws-regions.html; 2 within a region.
const REGIONS: [[f64; 3]; 10] = [
    [2.0, 88.7, 216.7],
    [72.7, 166.6, 174.0],
    [87.0, 159.5, 161.4],
    [80.6, 19.6, 239.0],
    [88.7, 2.0, 325.9],
    [145.3, 236.6, 73.8],
    [178.4, 265.3, 71.9],
    [216.7, 325.9, 2.0],
    [230.0, 323.5, 175.3],
    [119.5, 194.9, 328.1],
];

pub(crate) fn tables() -> Vec<String> {
    let anew = head("changes a day | files made anew | the most by one change");
    let anew = CHANGES.into_iter().map(files_made_anew).fold(anew, |table, row| table + &row);
    vec![table(), anew]
}

/// Counts the files that the changes of the second day make anew.
fn files_made_anew(changes: u64) -> String {
    let files = Files::changed_by(changes, &mut Random(changes));
    let times = files.versions.iter().skip(1).flatten().filter(|(since, _)| *since >= DAY);
    let mut of_change = BTreeMap::<u64, usize>::new();
    times.for_each(|(since, _)| *of_change.entry(since.to_bits()).or_default() += 1);
    row(&[&changes, &of_change.values().sum::<usize>(), &of_change.values().max().unwrap_or(&0)])
}

fn table() -> String {
    let days = LOOKUPS.into_iter().flat_map(|lookups| CHANGES.map(|changes| second_day(lookups, changes)));
    head(
        "lookups, changes a day | verdicts from | in memory % | data centre's cache % | cold: p50 ms | p95 ms | p99 ms | requests a month, millions | $ a month",
    ) + &days.collect::<String>()
}

struct Instance {
    ends: f64,
    manifest: f64,
    files: LruCache<usize, usize>,
}

impl Instance {
    fn until(ends: f64) -> Self {
        Self { ends, manifest: f64::MIN, files: LruCache::new(IN_MEMORY) }
    }
}

/// Times of cold lookups; counts of those with all files in memory, with all at the data centre, and with
/// some only at the object; and the cost of all lookups.
#[derive(Default)]
struct Costs {
    millis: Vec<u32>,
    found: [u64; 3],
    requests: u64,
    dollars: f64,
}

impl Costs {
    fn request(&mut self, dollars: f64) {
        self.requests += 1;
        self.dollars += dollars;
    }
}

/// The files of the snapshot, numbered through all levels, and the times of their changes.
///
/// A changed wallet enters the widest segment, which is in the manifest. A segment with too many wallets
/// hands half of them down to its fullest parts, which then have a new version; the narrowest segments hand
/// down to the shards. The time of a lookup's manifest decides which files it needs.
struct Files {
    /// Times at which each file was made anew, ascending, and whether it has wallets from then on.
    versions: Vec<Vec<(f64, bool)>>,
    /// Times at which each wallet entered (`true`) or left the widest segment, ascending.
    recent: HashMap<u64, Vec<(f64, bool)>>,
}

impl Files {
    fn changed_by(changes: u64, random: &mut Random) -> Self {
        let mut times: Vec<f64> = (0..2 * changes).map(|_| random.unit() * 2.0 * DAY).collect();
        times.sort_by(f64::total_cmp);
        let earlier = (0..EARLIER).map(|number| number as f64 - EARLIER as f64);
        let mut recent = HashMap::<u64, Vec<(f64, bool)>>::new();
        let count = LEVELS.iter().sum::<u64>() as usize;
        let (mut segments, mut versions) = (vec![BTreeSet::new(); count], vec![Vec::new(); count]);
        for at in earlier.chain(times) {
            let wallet = Random(random.below(AGENTS)).next();
            recent.entry(wallet).or_default().push((at, true));
            let mut waiting = vec![(0, 0, BTreeSet::from([wallet]))];
            while let Some((level, file, wallets)) = waiting.pop() {
                if level + 1 == LEVELS.len() {
                    versions[file].push((at, true));
                    continue;
                }
                segments[file].extend(wallets);
                for (part, wallets) in Self::handed_down(level, &mut segments[file]) {
                    if level == 0 {
                        wallets
                            .iter()
                            .for_each(|wallet| recent.entry(*wallet).or_default().push((at, false)));
                    }
                    waiting.push((level + 1, part, wallets));
                }
                versions[file].push((at, !segments[file].is_empty()));
            }
        }
        Self { versions, recent }
    }

    /// Takes out of an overfull segment the wallets that it hands down, by part.
    fn handed_down(level: usize, segment: &mut BTreeSet<u64>) -> Vec<(usize, BTreeSet<u64>)> {
        if segment.len() <= PLACES_MAX {
            return Vec::new();
        }
        let mut parts = BTreeMap::<usize, BTreeSet<u64>>::new();
        for wallet in segment.iter() {
            parts.entry(Self::file(level + 1, *wallet)).or_default().insert(*wallet);
        }
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_by_key(|(_, wallets)| Reverse(wallets.len()));
        let most = segment.len() / 2;
        let is_taken = |(_, wallets): &(usize, BTreeSet<u64>)| {
            let is_taken = segment.len() > most;
            if is_taken {
                segment.retain(|wallet| !wallets.contains(wallet));
            }
            is_taken
        };
        parts.into_iter().take_while(is_taken).collect()
    }

    /// Returns the file of a level that holds a wallet's place.
    fn file(level: usize, wallet: u64) -> usize {
        let before: u64 = LEVELS[..level].iter().sum();
        (before + wallet % SHARDS / (SHARDS / LEVELS[level])) as usize
    }

    /// Returns the files, with versions, that a lookup by a manifest of this time needs: the wallet's segment
    /// of each level, if it has places, and its shard; none for a wallet that is in the manifest.
    fn needed(&self, wallet: u64, at: f64) -> Vec<(usize, usize)> {
        let version = |file: usize| count_until(&self.versions[file], at);
        if self.recent.get(&wallet).is_some_and(|times| is_at(times, at)) {
            return Vec::new();
        }
        let is_there = |file: &usize| *file >= Self::file(3, 0) || is_at(&self.versions[*file], at);
        let files = (1..LEVELS.len()).map(|level| Self::file(level, wallet)).filter(is_there);
        files.map(|file| (file, version(file))).collect()
    }

    /// Returns the number of rows that the object reads to make a file.
    fn rows(file: usize) -> f64 {
        if file < Self::file(3, 0) { PLACES_MAX as f64 } else { AGENTS as f64 / SHARDS as f64 }
    }
}

fn count_until(times: &[(f64, bool)], at: f64) -> usize {
    times.partition_point(|(since, _)| *since <= at)
}

/// Returns the flag of the last of these times up to `at`; `false` before the first.
fn is_at(times: &[(f64, bool)], at: f64) -> bool {
    count_until(times, at).checked_sub(1).is_some_and(|last| times[last].1)
}

/// Simulates two days of all data centres, and returns a row for the second by each source of verdicts.
fn second_day(lookups: u64, changes: u64) -> String {
    let mut random = Random(lookups ^ changes);
    let files = Files::changed_by(changes, &mut random);
    let harmonic: f64 = (1..=DATA_CENTRES).map(|rank| 1.0 / rank as f64).sum();
    let [mut first_day, mut snapshot, mut chain, mut store] = [(); 4].map(|()| Costs::default());
    for rank in 1..=DATA_CENTRES {
        let a_day = lookups as f64 / harmonic / rank as f64;
        let [virginia, frankfurt, singapore] = REGIONS[rank % REGIONS.len()];
        let object = virginia + OBJECT;
        let instances = 0..(a_day / LOOKUPS_OF_AN_INSTANCE).ceil() as usize;
        let mut instances: Vec<_> = instances.map(|_| Instance::until(0.0)).collect();
        // The data centre's cache: times of its manifest, its files with their versions, and its verdicts.
        let (mut kept_manifest, mut kept_files, mut kept_verdicts) =
            (f64::MIN, HashMap::<usize, (usize, f64)>::new(), HashMap::new());
        let mut at = random.exponential(DAY / a_day);
        while at < 2.0 * DAY {
            // The wallet of an agent by its popularity, or one without an agent; its hash decides its files.
            let wallet = Random(match random.below(UNREGISTERED) {
                0 => AGENTS + random.below(u64::MAX - AGENTS),
                _ => (random.unit() * (AGENTS as f64).ln()).exp() as u64,
            })
            .next();
            let is_cold = kept_verdicts.insert(wallet, at).is_none_or(|last| last + VERDICT < at);
            let costs = if at < DAY { &mut first_day } else { &mut snapshot };
            let place = random.below(instances.len() as u64) as usize;
            let instance = &mut instances[place];
            if instance.ends < at {
                *instance = Instance::until(at + random.exponential(LIFETIME));
            }
            let mut millis = 0.0;
            if instance.manifest + RENEWAL < at {
                let has_expired = instance.manifest + MANIFEST < at;
                if kept_manifest + RENEWAL < at {
                    // In the last third of a manifest's time, one request renews it after its own answer.
                    millis += if has_expired && kept_manifest + MANIFEST < at { object } else { 0.0 };
                    costs.request(OBJECT_REQUEST);
                    kept_manifest = at;
                } else if has_expired {
                    millis += CACHE;
                }
                instance.manifest = kept_manifest;
            }
            // The missing files are requested at once: the slowest one counts.
            let mut found = 0;
            for (file, version) in files.needed(wallet, instance.manifest) {
                let is_current = |(kept, since): &(usize, f64)| *kept == version && since + FILE > at;
                if instance.files.put(file, version) == Some(version) {
                    continue;
                }
                if kept_files.get(&file).is_some_and(is_current) {
                    found = found.max(1);
                } else {
                    kept_files.insert(file, (version, at));
                    costs.request(OBJECT_REQUEST + Files::rows(file) * ROW);
                    found = 2;
                }
            }
            millis += [0.0, CACHE, object][found];
            if is_cold && at >= DAY {
                snapshot.found[found] += 1;
                snapshot.millis.push(millis as u32);
                chain.millis.push((virginia.min(frankfurt).min(singapore) + NODE) as u32);
                chain.request(RPC_CALL);
                store.millis.push((virginia.min(frankfurt) + STORE) as u32);
                store.request(STORE_READ);
            }
            at += random.exponential(DAY / a_day);
        }
    }
    // Instances learn of changed verdicts by the manifest; a store needs a write for each.
    store.dollars += changes as f64 * STORE_WRITE;
    let manifest = LEVELS[1..].iter().sum::<u64>() as f64 + PLACES_MAX as f64;
    snapshot.dollars += changes as f64 * manifest * ROW;
    let sources = [("the snapshot", snapshot), ("an RPC call", chain), ("a key-value store", store)];
    let rows = sources.map(|(source, costs)| {
        let share = |count: u64| format!("{:.1}", 100.0 * count as f64 / costs.millis.len() as f64);
        let [p50, p95, p99] = [50, 95, 99].map(|percent| percentile(percent, costs.millis.iter().copied()));
        let [requests, dollars] =
            [costs.requests as f64 / 1e6, costs.dollars].map(|a_day| format!("{:.2}", MONTH * a_day));
        let [in_memory, in_cache, _] = costs.found.map(share);
        let day = format!("{lookups}, {changes}");
        row(&[&day, &source, &in_memory, &in_cache, &p50, &p95, &p99, &requests, &dollars])
    });
    rows.concat()
}

/// SplitMix64: pseudorandom numbers, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}
