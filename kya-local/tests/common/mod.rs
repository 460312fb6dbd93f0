//! A registry in shards, and a service that hands them out as the read API does.

#![allow(dead_code)] // not all test programs use all of it
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use alloy_primitives::{Address, B256, keccak256};
use flate2::{Compression, write::GzEncoder};
use kya_local::Options;
use registry_core::{
    eth::{as_of::AsOf, timestamp::Timestamp},
    registry::agent::Status,
    snapshot::{
        BUNDLE_MAX, Bundle, Facts, Identity, LiveAgent, Manifest, Shard, ShardEntry, ShardRange,
        ShardVersion, parse_bundle_names,
    },
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

pub(crate) const IDENTITY: Identity = Identity { chain_id: 8453, registry: Address::repeat_byte(0x5f) };

pub(crate) fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

pub(crate) fn wallet(id: u64) -> Address {
    Address::from_word(keccak256(id.to_be_bytes()))
}

/// Agents by their ids, in 2^bits shards.
#[derive(Debug)]
pub(crate) struct ShardedRegistry {
    bits: u8,
    pub(crate) block: u64,
    /// Lead of the chain's clock over this computer's.
    pub(crate) ahead_millis: u64,
    statuses: Vec<Status>,
    /// Ids of each shard's agents, and the block of its last change.
    shards: Vec<(Vec<u64>, u64)>,
    /// Ids of each segment and the block of its last change, by bits and part.
    segments: BTreeMap<(u8, usize), (BTreeSet<u64>, u64)>,
    /// The most ids of a segment; with 0 each change makes a shard anew.
    pub(crate) segment_ids: usize,
}

impl ShardedRegistry {
    pub(crate) fn new(agents: u64, bits: u8) -> Self {
        let shards = vec![(Vec::new(), 1); 1 << bits];
        let statuses = vec![Status::Active; agents as usize + 1];
        let (segments, segment_ids) = (BTreeMap::new(), 0);
        let mut registry = Self { bits, block: 1, ahead_millis: 0, statuses, shards, segments, segment_ids };
        for id in 1..=agents {
            let shard = part_of(wallet(id), bits);
            registry.shards[shard].0.push(id);
        }
        registry
    }

    pub(crate) fn agents(&self) -> u64 {
        self.statuses.len() as u64 - 1
    }

    pub(crate) fn status(&self, id: u64) -> Status {
        self.statuses[id as usize]
    }

    /// Adds a block in which these agents are suspended, or reactivated.
    pub(crate) fn toggle(&mut self, ids: impl Iterator<Item = u64>) {
        self.block += 1;
        let ids: BTreeSet<u64> = ids.collect();
        for id in &ids {
            let status = &mut self.statuses[*id as usize];
            *status = if *status == Status::Active { Status::Suspended } else { Status::Active };
        }
        let mut waiting = vec![((0, 0), ids)];
        while let Some((key, mut ids)) = waiting.pop() {
            ids.extend(self.segments.remove(&key).unwrap_or_default().0);
            if ids.len() <= self.segment_ids {
                self.segments.insert(key, (ids, self.block));
                continue;
            }
            let bits = key.0 + 4;
            let mut parts = BTreeMap::<_, BTreeSet<u64>>::new();
            for id in ids {
                match self.bits < bits + 3 {
                    true => self.shards[part_of(wallet(id), self.bits)].1 = self.block,
                    false => drop(parts.entry((bits, part_of(wallet(id), bits))).or_default().insert(id)),
                }
            }
            waiting.extend(parts);
        }
    }

    fn entry(&self, shard: usize) -> ShardEntry {
        entry_of(self.bits, shard, self.shards[shard].1)
    }

    /// Returns the manifest, confirmed at that unix millisecond.
    pub(crate) fn manifest(&self, confirmed_at: u64) -> Vec<u8> {
        let block_timestamp = Timestamp::from_millis(now_millis() + self.ahead_millis);
        let as_of = AsOf { block_number: self.block, block_timestamp, parent_hash: B256::repeat_byte(7) };
        let entries = (0..self.shards.len()).map(|shard| self.entry(shard)).collect();
        let root = B256::repeat_byte(8);
        let segment =
            |(key, (_, block)): (&(u8, usize), &(BTreeSet<u64>, u64))| entry_of(key.0, key.1, *block);
        let mut segments: Vec<_> = self.segments.iter().map(segment).collect();
        let recent = segments.first().copied().filter(|entry| entry.range.bits == 0);
        let recent = recent.map(|entry| Shard::parse(self.shard(entry).unwrap(), &IDENTITY, entry).unwrap());
        segments.retain(|entry| entry.range.bits > 0);
        let manifest = Manifest::new(IDENTITY, as_of, root, 604_800, confirmed_at, self.agents(), entries);
        manifest.with_segments(segments, recent).encode().unwrap()
    }

    /// Returns a shard or segment of this version; `None` where it has changed.
    pub(crate) fn shard(&self, entry: ShardEntry) -> Option<Vec<u8>> {
        let part = (entry.range.start >> (48 - entry.range.bits)) as usize;
        let (ids, block): (Vec<u64>, u64) = match entry.range.bits == self.bits {
            true => self.shards[part].clone(),
            false => {
                let (ids, block) = self.segments.get(&(entry.range.bits, part))?;
                (ids.iter().copied().collect(), *block)
            }
        };
        let above: BTreeSet<u64> = self
            .segments
            .iter()
            .filter(|((bits, _), _)| *bits < entry.range.bits)
            .flat_map(|(_, (ids, _))| ids.iter().copied())
            .collect();
        let facts = |id: &u64| match above.contains(id) {
            true => (wallet(*id), Facts::Superseded),
            false => (wallet(*id), self.facts(*id)),
        };
        let wallets: BTreeMap<_, _> = ids.iter().map(facts).collect();
        (entry_of(entry.range.bits, part, block) == entry)
            .then(|| Shard::encode(&IDENTITY, entry, &wallets).unwrap())
    }

    fn facts(&self, id: u64) -> Facts {
        let agent = LiveAgent {
            id,
            parent: 0,
            creator: Address::from_word(keccak256((id % 673).to_be_bytes())),
            haftungsperson: Address::from_word(keccak256((id % 997).to_be_bytes())),
            status: self.status(id),
            registered_at: 1_700_000_000 + id,
            last_attestation: now_millis() / 1_000 / 86_400 * 86_400 - id % 86_400,
            inactive_ancestors: Vec::new(),
            attested_at: 0,
            registered_in: 0,
            parent_basis: None,
            scope: format!(
                "Translates papers of kind {id} for the people of its town, and reads them aloud on request"
            ),
        };
        Facts::Known { agent: Some(Box::new(agent)), former: Vec::new() }
    }
}

/// Returns the part of so many bits that holds a wallet.
fn part_of(wallet: Address, bits: u8) -> usize {
    let [first, second, ..] = keccak256(wallet).0;
    usize::from(u16::from_be_bytes([first, second])) >> (16 - bits)
}

fn entry_of(bits: u8, part: usize, block: u64) -> ShardEntry {
    let range = ShardRange { start: (part as u64) << (48 - bits), bits };
    ShardEntry { range, version: ShardVersion { block, tag: 1 } }
}

/// A fault of the service, in place of an answer or before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServiceFault {
    Status(u16, &'static str),
    /// Each shard of a bundle is the one after it.
    Swapped,
    /// One bit of the answer is flipped.
    Flipped,
}

#[derive(Debug)]
pub(crate) struct ServiceState {
    pub(crate) registry: ShardedRegistry,
    /// Time at which manifests are confirmed; now, if not given.
    pub(crate) confirmed_at: Option<u64>,
    /// Faults of requests, by the path's beginning and the request's number among those.
    pub(crate) faults: HashMap<(&'static str, usize), ServiceFault>,
    pub(crate) asked: Vec<String>,
}

/// A service on a port of its own; dropping it closes the port.
#[derive(Debug)]
pub(crate) struct SnapshotService {
    state: Arc<Mutex<ServiceState>>,
    pub(crate) url: String,
    task: JoinHandle<()>,
}

pub(crate) const MANIFESTS: &str = "/api/v1/snapshot";
pub(crate) const BUNDLES: &str = "/api/v1/snapshot/shards?names=";

impl SnapshotService {
    pub(crate) async fn start(registry: ShardedRegistry) -> Self {
        let state = ServiceState { registry, confirmed_at: None, faults: HashMap::new(), asked: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let own = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&own)));
            }
        });
        Self { state, url, task }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, ServiceState> {
        self.state.lock().unwrap()
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state().asked)
    }

    pub(crate) fn options(&self, directory: &tempfile::TempDir) -> Options {
        let Identity { chain_id, registry } = IDENTITY;
        Options::new(&self.url, chain_id, registry, directory.path().join("registry.kya"))
    }
}

impl Drop for SnapshotService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<ServiceState>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let (status, headers, body) = answer(&path, &mut state.lock().unwrap());
    let takes_gzip = head.to_lowercase().contains("accept-encoding: gzip");
    let (coding, body) = if takes_gzip { ("Content-Encoding: gzip\r\n", gzip(&body)) } else { ("", body) };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n{coding}{headers}\r\n"
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    let _ = stream.shutdown().await;
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn answer(path: &str, state: &mut ServiceState) -> (u16, &'static str, Vec<u8>) {
    let kind = if path == MANIFESTS { MANIFESTS } else { BUNDLES };
    let number = state.asked.iter().filter(|asked| asked.starts_with(BUNDLES) == (kind == BUNDLES)).count();
    state.asked.push(path.to_owned());
    let fault = state.faults.get(&(kind, number)).cloned();
    if let Some(ServiceFault::Status(status, headers)) = fault {
        return (status, headers, Vec::new());
    }
    let mut body = match path.strip_prefix(BUNDLES) {
        None => state.registry.manifest(state.confirmed_at.unwrap_or_else(now_millis)),
        Some(names) => {
            let entries = parse_bundle_names(names).unwrap();
            assert!(entries.len() <= BUNDLE_MAX);
            let mut shards: Vec<_> = entries.iter().map(|entry| state.registry.shard(*entry)).collect();
            if fault == Some(ServiceFault::Swapped) {
                shards.rotate_left(1);
            }
            let mut bundle = Bundle::default();
            shards.iter().for_each(|shard| bundle.push(shard.as_deref()));
            bundle.into_bytes()
        }
    };
    if fault == Some(ServiceFault::Flipped) {
        let middle = body.len() / 2;
        body[middle] ^= 1;
    }
    (200, "", body)
}

/// Longest time that a step of a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
