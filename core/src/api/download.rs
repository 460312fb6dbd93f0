//! Downloads of the registry's snapshot: request targets to the files that they name.

use super::{
    error::Error,
    route::{decoded, parameter},
};
use crate::snapshot::{BUNDLE_MAX, ShardEntry, parse_bundle_names};

/// The path of the manifest.
const MANIFEST: &str = "/api/v1/snapshot";
/// The prefix of the paths of shards.
const SHARDS: &str = "/api/v1/snapshot/";
/// The last part of the path of several shards.
const BUNDLE: &str = "shards";

/// A file of the snapshot, or several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Download {
    /// The manifest.
    Manifest,
    /// A shard of a version.
    Shard(ShardEntry),
    /// Several shards, each of a version.
    Bundle(Vec<ShardEntry>),
}

impl Download {
    /// Parses a request target; `None` for a target of another path.
    pub fn parse(target: &str) -> Option<Result<Self, Error>> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let rest = match path {
            MANIFEST => return Some(Ok(Self::Manifest)),
            path => path.strip_prefix(SHARDS)?,
        };
        Some(if rest == BUNDLE { Self::bundle(query) } else { Self::shard(rest, query) })
    }

    fn bundle(query: &str) -> Result<Self, Error> {
        const { assert!(BUNDLE_MAX == 32, "the rule names it") };
        let rule =
            "must be up to 32 shards with their versions, as 14 hex digits, -, and 24, separated by commas";
        let names = parameter(query, "names")?.unwrap_or_default();
        parse_bundle_names(&names).map(Self::Bundle).ok_or(Error::InvalidParameter { field: "names", rule })
    }

    fn shard(range: &str, query: &str) -> Result<Self, Error> {
        let rule = "must be 14 hex digits, with its version as v, of 24 hex digits";
        let version = parameter(query, "v")?.unwrap_or_default();
        ShardEntry::parse(&decoded(range), &version)
            .map(Self::Shard)
            .ok_or(Error::InvalidParameter { field: "shard", rule })
    }

    /// Returns the path with its parameters by name, for logs.
    pub const fn pattern(&self) -> &'static str {
        match self {
            Self::Manifest => MANIFEST,
            Self::Shard(_) => "/api/v1/snapshot/:shard",
            Self::Bundle(_) => "/api/v1/snapshot/shards",
        }
    }

    /// Returns the bytes of memory that the download takes beyond its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Manifest | Self::Shard(_) => 0,
            Self::Bundle(entries) => size_of_val(entries.as_slice()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_the_manifest_a_shard_or_several_in_every_spelling() {
        let entry = ShardEntry::parse("01000000000008", "000000000000012c00000001").unwrap();
        let (shard, name) = ("/api/v1/snapshot/01000000000008?", entry.name());
        let bundle = format!("/api/v1/snapshot/shards?names={name}");
        for (target, expected) in [
            ("/api/v1/snapshot?x=1", Some(Download::Manifest)),
            (&format!("{shard}a&v=000000000000012c00000001"), Some(Download::Shard(entry))),
            (
                &format!("{}v=000000000000012c00000001", shard.replace("01", "%301")),
                Some(Download::Shard(entry)),
            ),
            (&format!("{bundle},{name}"), Some(Download::Bundle(vec![entry; 2]))),
            (&format!("{bundle}%2C{}", name.replace('-', "%2d")), Some(Download::Bundle(vec![entry; 2]))),
            (&format!("{bundle}&names={name}"), None),
            (&format!("{shard}v=1"), None),
            ("/api/v1/snapshot/", None),
            ("/api/v1/snapshot/shards", None),
        ] {
            assert_eq!(Download::parse(target).unwrap().ok(), expected, "{target}");
        }
        assert_eq!(["/api/v1/snapshots", "/api/v1/stats"].map(Download::parse), [None, None]);
    }
}
