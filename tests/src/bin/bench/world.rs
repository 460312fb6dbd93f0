//! The world, simulated: lookups at hundreds of data centres, with verdicts from the snapshot, by an RPC
//! call, and from a key-value store.
//!
//! The times between regions are published ones, the prices those of Cloudflare's list; what is assumed
//! stands in the constants. The cache of an instance and the ages of manifests and shards are the Worker's.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use lru::LruCache;

use crate::document::{Table, percentile};

/// Data centres. The busiest has the most lookups, the n-th an n-th of them.
const DATA_CENTRES: usize = 300;
/// Agents, and shards of the snapshot.
const AGENTS: u64 = 1_000_000;
const SHARDS: u64 = 4_096;
/// Lookups of a day, and changes of a day.
const LOOKUPS: [u64; 2] = [1_000_000, 10_000_000];
const CHANGES: [u64; 2] = [1_000, 100_000];
/// One lookup in so many is for a wallet without an agent.
const UNREGISTERED: u64 = 20;
/// Shards in an instance's memory.
const IN_MEMORY: NonZeroUsize = NonZeroUsize::new(350).unwrap();
/// One instance for so many lookups of a day, with a mean lifetime in seconds.
const LOOKUPS_OF_AN_INSTANCE: f64 = 20_000.0;
const LIFETIME: f64 = 3_600.0;
/// Seconds: how long a manifest is kept, when it is renewed, how long a verdict and a shard are kept.
const MANIFEST: f64 = 20.0;
const RENEWAL: f64 = 20.0 * 2.0 / 3.0;
const VERDICT: f64 = 60.0;
const SHARD: f64 = 86_400.0;
const DAY: f64 = 86_400.0;
/// Milliseconds: the data centre's cache, the object's work, the node's work, the store's.
const CACHE: f64 = 5.0;
const OBJECT: f64 = 5.0;
const NODE: f64 = 20.0;
const STORE: f64 = 5.0;
/// Dollars for a million: requests to an object, rows read, RPC calls, reads and writes of a key-value store.
const OBJECT_REQUESTS: f64 = 0.15;
const ROWS: f64 = 0.001;
const RPC_CALLS: f64 = 10.0;
const STORE_READS: f64 = 0.5;
const STORE_WRITES: f64 = 5.0;
const MONTH: f64 = 30.0;

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

pub(crate) fn section() -> Vec<Table> {
    let mut table = Table::new(
        "lookups, changes a day | verdicts from | in memory % | data centre's cache % | cold: p50 ms | p95 ms | p99 ms | requests a month, millions | $ a month",
    );
    for (lookups, changes) in
        LOOKUPS.into_iter().flat_map(|lookups| CHANGES.map(|changes| (lookups, changes)))
    {
        for row in World::new(lookups, changes).run() {
            table.row([format!("{lookups}, {changes}")].into_iter().chain(row));
        }
    }
    vec![table]
}

struct World {
    lookups: u64,
    changes: u64,
    /// When each shard changed, ascending, seconds.
    versions: Vec<Vec<f64>>,
    random: Random,
}

/// A data centre. Its caches: the version of each shard and since when, and when each wallet was asked for last.
struct DataCentre {
    region: usize,
    instances: Vec<Instance>,
    manifest: f64,
    shards: HashMap<u64, (usize, f64)>,
    wallets: HashMap<u64, f64>,
}

struct Instance {
    ends: f64,
    manifest: f64,
    shards: LruCache<u64, usize>,
}

/// Where a lookup found its shard.
#[derive(Clone, Copy)]
enum Found {
    InMemory,
    InCache,
    AtObject,
}

/// What cold lookups of one source took, how many found their shard where, and what all lookups cost.
#[derive(Default)]
struct Costs {
    millis: Vec<u32>,
    found: [u64; 3],
    requests: u64,
    dollars: f64,
}

impl World {
    fn new(lookups: u64, changes: u64) -> Self {
        let mut random = Random(lookups ^ changes);
        let mut versions = vec![Vec::new(); SHARDS as usize];
        for _ in 0..2 * changes {
            let (shard, at) = (random.below(SHARDS) as usize, random.unit() * 2.0 * DAY);
            versions[shard].push(at);
        }
        versions.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        Self { lookups, changes, versions, random }
    }

    /// Two days of all data centres, of which the second counts: a row for each source of verdicts.
    fn run(mut self) -> [Vec<String>; 3] {
        let harmonic: f64 = (1..=DATA_CENTRES).map(|rank| 1.0 / rank as f64).sum();
        let [mut snapshot, mut chain, mut store] = [Costs::default(), Costs::default(), Costs::default()];
        for rank in 1..=DATA_CENTRES {
            let a_day = self.lookups as f64 / harmonic / rank as f64;
            let instances = (a_day / LOOKUPS_OF_AN_INSTANCE).ceil() as usize;
            let mut centre = DataCentre {
                region: rank % REGIONS.len(),
                instances: (0..instances).map(|_| Instance::new(0.0)).collect(),
                manifest: f64::MIN,
                shards: HashMap::new(),
                wallets: HashMap::new(),
            };
            let mut at = self.random.exponential(DAY / a_day);
            while at < 2.0 * DAY {
                let wallet = self.wallet();
                let is_cold = centre.wallets.insert(wallet, at).is_none_or(|last| last + VERDICT < at);
                let mut nothing = Costs::default();
                let costs = if at < DAY { &mut nothing } else { &mut snapshot };
                let (millis, found) = self.look_up(&mut centre, wallet, at, costs);
                if is_cold && at >= DAY {
                    let [virginia, frankfurt, singapore] = REGIONS[centre.region];
                    snapshot.found[found as usize] += 1;
                    snapshot.millis.push(millis as u32);
                    chain.call(virginia.min(frankfurt).min(singapore) + NODE, RPC_CALLS);
                    store.call(virginia.min(frankfurt) + STORE, STORE_READS);
                }
                at += self.random.exponential(DAY / a_day);
            }
        }
        // All instances know all changed verdicts by the manifest; a store is written.
        store.dollars += self.changes as f64 * STORE_WRITES / 1e6;
        snapshot.dollars += self.changes as f64 * SHARDS as f64 * ROWS / 1e6;
        [snapshot.cells("the snapshot"), chain.cells("an RPC call"), store.cells("a key-value store")]
    }

    /// A lookup as the Worker does it: its milliseconds, and where the shard was.
    fn look_up(&mut self, centre: &mut DataCentre, wallet: u64, at: f64, costs: &mut Costs) -> (f64, Found) {
        let place = self.random.below(centre.instances.len() as u64) as usize;
        if centre.instances[place].ends < at {
            centre.instances[place] = Instance::new(at + self.random.exponential(LIFETIME));
        }
        let instance = &mut centre.instances[place];
        let object = REGIONS[centre.region][0] + OBJECT;
        let mut millis = 0.0;
        if instance.manifest + RENEWAL < at {
            let has_expired = instance.manifest + MANIFEST < at;
            if centre.manifest + RENEWAL < at {
                // The last third is for one request to renew it, after its answer.
                millis += if has_expired && centre.manifest + MANIFEST < at { object } else { 0.0 };
                costs.request();
                centre.manifest = at;
            } else if has_expired {
                millis += CACHE;
            }
            instance.manifest = centre.manifest;
        }
        let shard = wallet % SHARDS;
        let version = self.versions[shard as usize].partition_point(|changed| *changed <= instance.manifest);
        if instance.shards.put(shard, version) == Some(version) {
            return (millis, Found::InMemory);
        }
        match centre.shards.get(&shard) {
            Some((kept, since)) if *kept == version && since + SHARD > at => (millis + CACHE, Found::InCache),
            _ => {
                centre.shards.insert(shard, (version, at));
                costs.request();
                costs.dollars += AGENTS as f64 / SHARDS as f64 * ROWS / 1e6;
                (millis + object, Found::AtObject)
            }
        }
    }

    /// A wallet: an agent's by its popularity, or one without an agent.
    fn wallet(&mut self) -> u64 {
        let number = match self.random.below(UNREGISTERED) {
            0 => AGENTS + self.random.below(u64::MAX - AGENTS),
            _ => (self.random.unit() * (AGENTS as f64).ln()).exp() as u64,
        };
        // Its place, which says the shard.
        Random(number).next()
    }
}

impl Instance {
    fn new(ends: f64) -> Self {
        Self { ends, manifest: f64::MIN, shards: LruCache::new(IN_MEMORY) }
    }
}

impl Costs {
    fn request(&mut self) {
        self.requests += 1;
        self.dollars += OBJECT_REQUESTS / 1e6;
    }

    fn call(&mut self, millis: f64, dollars: f64) {
        self.millis.push(millis as u32);
        self.requests += 1;
        self.dollars += dollars / 1e6;
    }

    fn cells(self, source: &str) -> Vec<String> {
        let share = |count: u64| format!("{:.1}", 100.0 * count as f64 / self.millis.len() as f64);
        let [in_memory, in_cache, _] = self.found.map(share);
        let mut cells = vec![source.to_owned(), in_memory, in_cache];
        cells.extend([50, 95, 99].map(|percent| percentile(&self.millis, percent).to_string()));
        cells.extend([self.requests as f64 / 1e6, self.dollars].map(|a_day| format!("{:.2}", MONTH * a_day)));
        cells
    }
}

/// Numbers that look random, the same in every run: SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
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
