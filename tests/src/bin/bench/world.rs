//! The world, simulated: lookups at hundreds of data centres, with verdicts from the snapshot, by an RPC
//! call, and from a key-value store.
//!
//! The times between regions are published ones, the prices those of Cloudflare's list; what is assumed
//! stands in the constants. The cache of an instance and the ages of manifests and shards are the Worker's.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::report::{head, percentile, row};

const DATA_CENTRES: usize = 300; // the busiest has the most lookups, the n-th an n-th of them
const AGENTS: u64 = 1_000_000;
const SHARDS: u64 = 4_096;
const LOOKUPS: [u64; 2] = [1_000_000, 10_000_000]; // of a day
const CHANGES: [u64; 2] = [1_000, 100_000]; // of a day
const UNREGISTERED: u64 = 20; // one lookup in so many is for a wallet without an agent
const IN_MEMORY: NonZeroUsize = NonZeroUsize::new(350).unwrap(); // shards that an instance keeps
const LOOKUPS_OF_AN_INSTANCE: f64 = 20_000.0; // of a day
const MONTH: f64 = 30.0; // days

// Seconds: an instance's mean lifetime, the ages of what is kept, and the age at which a manifest is renewed.
const DAY: f64 = 86_400.0;
const LIFETIME: f64 = 3_600.0;
const MANIFEST: f64 = 20.0;
const RENEWAL: f64 = 20.0 * 2.0 / 3.0;
const VERDICT: f64 = 60.0;
const SHARD: f64 = 86_400.0;

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

pub(crate) fn table() -> String {
    let days = LOOKUPS.into_iter().flat_map(|lookups| CHANGES.map(|changes| second_day(lookups, changes)));
    head(
        "lookups, changes a day | verdicts from | in memory % | data centre's cache % | cold: p50 ms | p95 ms | p99 ms | requests a month, millions | $ a month",
    ) + &days.collect::<String>()
}

struct Instance {
    ends: f64,
    manifest: f64,
    shards: LruCache<u64, usize>,
}

impl Instance {
    fn until(ends: f64) -> Self {
        Self { ends, manifest: f64::MIN, shards: LruCache::new(IN_MEMORY) }
    }
}

/// What cold lookups took, how many found their shard in memory, in the cache and at the object, and what all
/// lookups cost.
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

/// Two days of all data centres, of which the second counts: a row for each source of verdicts.
fn second_day(lookups: u64, changes: u64) -> String {
    let mut random = Random(lookups ^ changes);
    // When each shard changed, ascending.
    let mut versions = vec![Vec::new(); SHARDS as usize];
    for _ in 0..2 * changes {
        versions[random.below(SHARDS) as usize].push(random.unit() * 2.0 * DAY);
    }
    versions.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    let harmonic: f64 = (1..=DATA_CENTRES).map(|rank| 1.0 / rank as f64).sum();
    let [mut first_day, mut snapshot, mut chain, mut store] = [(); 4].map(|()| Costs::default());
    for rank in 1..=DATA_CENTRES {
        let a_day = lookups as f64 / harmonic / rank as f64;
        let [virginia, frankfurt, singapore] = REGIONS[rank % REGIONS.len()];
        let object = virginia + OBJECT;
        let instances = 0..(a_day / LOOKUPS_OF_AN_INSTANCE).ceil() as usize;
        let mut instances: Vec<_> = instances.map(|_| Instance::until(0.0)).collect();
        // The data centre's cache: since when it has its manifest, each shard's version, and each verdict.
        let (mut kept_manifest, mut kept_shards, mut kept_verdicts) =
            (f64::MIN, HashMap::<u64, (usize, f64)>::new(), HashMap::new());
        let mut at = random.exponential(DAY / a_day);
        while at < 2.0 * DAY {
            // An agent's by its popularity, or one without an agent; its place says the shard.
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
                    // The last third is for one request to renew it, after its answer.
                    millis += if has_expired && kept_manifest + MANIFEST < at { object } else { 0.0 };
                    costs.request(OBJECT_REQUEST);
                    kept_manifest = at;
                } else if has_expired {
                    millis += CACHE;
                }
                instance.manifest = kept_manifest;
            }
            let shard = wallet % SHARDS;
            let version = versions[shard as usize].partition_point(|changed| *changed <= instance.manifest);
            let is_current = |(kept, since): &(usize, f64)| *kept == version && since + SHARD > at;
            let found = if instance.shards.put(shard, version) == Some(version) {
                0
            } else if kept_shards.get(&shard).is_some_and(is_current) {
                millis += CACHE;
                1
            } else {
                kept_shards.insert(shard, (version, at));
                costs.request(OBJECT_REQUEST + AGENTS as f64 / SHARDS as f64 * ROW);
                millis += object;
                2
            };
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
    // All instances know all changed verdicts by the manifest; a store is written.
    store.dollars += changes as f64 * STORE_WRITE;
    snapshot.dollars += changes as f64 * SHARDS as f64 * ROW;
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

/// Numbers that look random, the same in every run: SplitMix64.
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
