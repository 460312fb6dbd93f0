//! No bytes make a reader of snapshots panic, and none without a valid seal changes a verdict: manifests and
//! shards mutated at random, as they are and with a new seal.
//!
//! `SNAPSHOT_MUTATIONS` is their number (100,000 by default), `MUTATION_SEED` the seed of the random numbers:
//! `SNAPSHOT_MUTATIONS=10000000 cargo test --release -p registry-core --test hostile snapshots`.

use std::{collections::BTreeMap, ops::Range};

use alloy_primitives::Keccak256;
use registry_core::snapshot::{Facts, Former, Identity, LiveAgent, Manifest, SnapshotError};
use registry_core::snapshot::{Shard, ShardEntry, ShardRange, ShardVersion};
use registry_core::{eth::as_of::AsOf, liability::ParentBasis, registry::agent::Status};

use crate::{common::prelude::*, common::random::Mutator, turn};

const IDENTITY: Identity = Identity { chain_id: 8_453, registry: Address::repeat_byte(0x42) };

fn facts(id: u64) -> Facts {
    if id.is_multiple_of(31) {
        return Facts::AskChain;
    }
    let status = |number: u64| Status::from_number((number % 4) as u8).unwrap();
    let agent = LiveAgent {
        id,
        parent: id / 2,
        creator: Address::repeat_byte(1),
        haftungsperson: Address::repeat_byte(2),
        status: status(id % 2),
        registered_at: 1_700_000_000 + id,
        last_attestation: 1_750_000_000 + id,
        inactive_ancestors: (0..id % 5).map(|above| (above + 1, status(above + 1))).collect(),
        attested_at: id % 2 * (1_760_000_000 + id),
        registered_in: id % 3 * id,
        parent_basis: [None, Some(ParentBasis::Named), Some(ParentBasis::Unknown)][(id % 3) as usize],
        scope: "Übersetzt Verträge ".repeat((id % 9) as usize),
    };
    let former =
        |number| Former { id: number, status: status(2 + number), registered_at: 5, ended_at: number % 2 };
    let former = (0..id % 4).map(former).collect();
    Facts::Known { agent: (!id.is_multiple_of(7)).then(|| Box::new(agent)), former }
}

/// Makes a shard of all wallets: its entry, content and bytes.
fn shard(agents: u64, version: ShardVersion) -> (ShardEntry, BTreeMap<Address, Facts>, Vec<u8>) {
    let wallet = |id: u64| Address::left_padding_from(&(id * 7_919).to_be_bytes());
    let wallets: BTreeMap<Address, Facts> = (1..=agents).map(|id| (wallet(id), facts(id))).collect();
    let entry = ShardEntry { range: ShardRange::ALL, version };
    let bytes = Shard::encode(&IDENTITY, entry, &wallets).unwrap();
    (entry, wallets, bytes)
}

/// Replaces the seal by the one that fits the bytes, as an author would.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len().saturating_sub(8);
    bytes.truncate(end);
    let mut hasher = Keccak256::new();
    hasher.update(IDENTITY.chain_id.to_be_bytes());
    hasher.update(IDENTITY.registry);
    hasher.update(&bytes);
    bytes.extend(&hasher.finalize()[..8]);
    bytes
}

/// Returns the numbers of the mutations of a kind.
fn mutations() -> Range<u64> {
    0..setting("SNAPSHOT_MUTATIONS", 100_000) / 2
}

#[test]
fn no_changed_shard_panics_or_tells_another_verdict() {
    let _turn = turn();
    let (entry, wallets, bytes) = shard(12, ShardVersion { block: 77, tag: 5 });
    let known: Vec<Address> = wallets.keys().copied().collect();
    let (mut random, mut refused, mut read) = (Random::seeded(9), 0_u64, 0_u64);
    for _ in mutations() {
        let changed = Mutator::BINARY.mutate(&bytes, &mut random);
        let wallet = random.pick(&known);
        // A change in transit is refused, or it changed nothing.
        match Shard::parse(changed.clone(), &IDENTITY, entry) {
            Ok(shard) => {
                assert_eq!(
                    (shard.as_bytes(), shard.find(wallet)),
                    (&bytes[..], Ok(Some(wallets[&wallet].clone())))
                )
            }
            Err(_) => refused += 1,
        }
        // Bytes that an author seals are read within their bounds, and search and list agree.
        let Ok(shard) = Shard::parse(sealed(changed), &IDENTITY, entry) else { continue };
        read += 1;
        let found = shard.find(wallet);
        if let Ok(all) = shard.wallets_of(ShardRange::ALL) {
            let listed = all.into_iter().find(|(listed, _)| *listed == wallet);
            assert_eq!(found, Ok(listed.map(|(_, facts)| facts)));
        }
    }
    assert!(refused > 0 && read > 0, "{refused} refused; {read} of those with a new seal read");
}

#[test]
fn no_changed_manifest_panics_or_names_other_shards() {
    let _turn = turn();
    let ranges = [(1, 0), (3, 1 << 47), (3, 5 << 45), (2, 3 << 46)];
    let entry = |(tag, (bits, start)): (u32, _)| {
        let version = ShardVersion { block: 900 + u64::from(tag), tag: 7 * tag };
        ShardEntry { range: ShardRange { start, bits }, version }
    };
    let entries: Vec<ShardEntry> = (0..).zip(ranges).map(entry).collect();
    let (block_timestamp, parent_hash) = (Timestamp::from_seconds(NOW), B256::repeat_byte(3));
    let as_of = AsOf { block_number: 1_000, block_timestamp, parent_hash };
    let root = B256::repeat_byte(4);
    let mut manifest = Manifest::new(IDENTITY, as_of, root, 604_800, 1_800_000_001_000, 1_000, entries);
    manifest.listed_after = Some(7);
    let segment = |bits, part: u64| {
        let range = ShardRange { start: part << (48 - bits), bits };
        ShardEntry { range, version: ShardVersion { block: 990 + part, tag: u32::from(bits) } }
    };
    let (entry, wallets, recent) = shard(5, ShardVersion { block: 1_000, tag: 9 });
    let recent = Shard::parse(recent, &IDENTITY, entry).unwrap();
    let manifest = manifest.with_segments(vec![segment(4, 0), segment(4, 9), segment(8, 5)], Some(recent));
    let bytes = manifest.encode().unwrap();
    assert_eq!(Manifest::parse(&bytes), Ok(manifest.clone()));
    let (mut random, mut refused, mut read) = (Random::seeded(10), 0_u64, 0_u64);
    for _ in mutations() {
        let changed = Mutator::BINARY.mutate(&bytes, &mut random);
        match Manifest::parse(&changed) {
            // The identity is part of the seal, and the caller compares it.
            Ok(parsed) if parsed.identity == IDENTITY => {
                assert_eq!((parsed, &changed), (manifest.clone(), &bytes))
            }
            Ok(parsed) => panic!("{parsed:?}"),
            Err(_) => refused += 1,
        }
        let Ok(parsed) = Manifest::parse(&sealed(changed)) else { continue };
        read += 1;
        let wallet = Address::left_padding_from(&random.next().to_be_bytes());
        let entry = parsed.shard_of(wallet).unwrap();
        assert!(entry.range.contains(wallet) && parsed.shards_of(entry.range).eq([entry]));
        let entries = parsed.entries_of(wallet);
        assert!(entries.iter().all(|entry| entry.range.contains(wallet) && parsed.names(*entry)));
        let known = random.pick(&wallets.keys().copied().collect::<Vec<_>>());
        match parsed.recent(known) {
            Ok(None) => {}
            Ok(Some(facts)) => {
                assert_eq!((parsed.entries_of(known), parsed.find(&[], known)), (Vec::new(), Ok(facts)));
            }
            Err(_) => assert_eq!(parsed.entries_of(known), Vec::new(), "no older file tells of it"),
        }
    }
    assert!(refused > 0 && read > 0, "{refused} refused; {read} of those with a new seal read");
}

/// Clients keep files of the previous version, which has no segments.
#[test]
fn a_manifest_and_a_shard_of_the_version_before_are_read() {
    let _turn = turn();
    let (entry, wallets, shard) = shard(12, ShardVersion { block: 77, tag: 5 });
    let as_of = AsOf { block_number: 80, ..AsOf::default() };
    let manifest = Manifest::new(IDENTITY, as_of, B256::ZERO, 604_800, 1, 12, vec![entry]);
    let mut bytes = manifest.encode().unwrap();
    bytes[4] = 2;
    // The number of segments, before the seal.
    let end = bytes.len() - 8;
    bytes.drain(end - 4..end);
    assert_eq!(Manifest::parse(&sealed(bytes.clone())), Ok(manifest));
    bytes.splice(end - 4..end - 4, [0; 4]);
    assert_eq!(Manifest::parse(&sealed(bytes)), Err(SnapshotError::Damaged));
    let mut bytes = shard;
    bytes[4] = 2;
    let shard = Shard::parse(sealed(bytes), &IDENTITY, entry).unwrap();
    assert!(wallets.iter().all(|(wallet, facts)| shard.find(*wallet) == Ok(Some(facts.clone()))));
}

#[test]
fn truncated_and_swapped_shards_are_refused() {
    let _turn = turn();
    let old = ShardVersion { block: 77, tag: 5 };
    let (entry, _, bytes) = shard(12, old);
    for end in 0..bytes.len() {
        assert!(Shard::parse(bytes[..end].to_vec(), &IDENTITY, entry).is_err(), "{end} bytes");
    }
    let parse = |entry| Shard::parse(bytes.clone(), &IDENTITY, entry);
    assert!(parse(entry).is_ok());
    let newer = ShardVersion { block: 78, ..old };
    let forked = ShardVersion { tag: 6, ..old };
    for version in [newer, forked] {
        assert_eq!(parse(ShardEntry { version, ..entry }), Err(SnapshotError::Another));
    }
    let half = ShardRange { start: 0, bits: 1 };
    assert_eq!(parse(ShardEntry { range: half, ..entry }), Err(SnapshotError::Another));
    for other in [Identity { chain_id: 1, ..IDENTITY }, Identity { registry: Address::ZERO, ..IDENTITY }] {
        assert_eq!(Shard::parse(bytes.clone(), &other, entry), Err(SnapshotError::Damaged));
    }
    let wallet = (1..=u8::MAX).map(Address::repeat_byte).find(|wallet| !half.contains(*wallet)).unwrap();
    let lower = ShardEntry { range: half, version: old };
    let empty = Shard::encode(&IDENTITY, lower, &BTreeMap::new()).unwrap();
    let empty = Shard::parse(empty, &IDENTITY, lower).unwrap();
    assert_eq!(empty.find(wallet), Err(SnapshotError::Another), "absence is no answer from another shard");
}

#[test]
fn a_prefix_is_shared_by_thirty_agents_or_more_and_not_by_thousands() {
    let _turn = turn();
    let digits = |agents| {
        let whole = vec![ShardEntry { range: ShardRange::ALL, version: ShardVersion { block: 0, tag: 0 } }];
        Manifest::new(IDENTITY, AsOf::default(), B256::ZERO, 0, 0, agents, whole).prefix_digits()
    };
    let agents = [0, 3, 480, 7_680, 15_359, 15_360, 122_880, 1_000_000, u64::MAX];
    let expected = [1..=1, 1..=1, 1..=1, 1..=2, 1..=2, 2..=2, 2..=3, 3..=3, 6..=6];
    assert_eq!(agents.map(digits), expected);
}
