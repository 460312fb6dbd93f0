//! Downloads of the registry's snapshot, for those who hold it themselves: its manifest, and its shards alone
//! or several in one answer.
//!
//! A shard of one version never changes, so that its answer is cached for as long as a client likes. Shards
//! share the memory and the cache of those that verdicts come from ([`snapshot`](super::snapshot)); answers
//! made of them are not kept.

use std::rc::Rc;

use edge_shared::unix_millis;
use futures_util::{FutureExt as _, future::join_all};
use registry_core::{
    api::error::Error,
    eth::timestamp::Timestamp,
    host::shared_reads::CacheKey,
    snapshot::{BUNDLE_MAX, Bundle, Shard, ShardEntry, parse_bundle_names},
};

use super::{
    documents::DocumentRead,
    single_flight::{Flight, share},
    snapshot::{SHARD_SECONDS, ShardRead, usable_manifest},
};
use crate::http::{Content, Lifetime};

/// The path of the manifest.
const MANIFEST: &str = "/api/v1/snapshot";
/// What the paths of shards begin with.
const SHARDS: &str = "/api/v1/snapshot/";
/// The last part of the path of several shards.
const BUNDLE: &str = "shards";

/// What can be downloaded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Download {
    /// The manifest.
    Manifest,
    /// A shard of a version.
    Shard(ShardEntry),
    /// Several of them.
    Bundle(Vec<ShardEntry>),
}

impl CacheKey for Download {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Manifest | Self::Shard(_) => 0,
            Self::Bundle(entries) => size_of_val(entries.as_slice()),
        }
    }
}

impl Download {
    /// What a target asks for; `None` where it is of another path.
    pub(crate) fn parse(target: &str) -> Option<Result<Self, Error>> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path == MANIFEST {
            return Some(Ok(Self::Manifest));
        }
        let parameter = |name| {
            let mut parameters = query.split('&').filter_map(|parameter| parameter.split_once('='));
            parameters.find(|(key, _)| *key == name).map_or("", |(_, value)| value)
        };
        Some(match path.strip_prefix(SHARDS)? {
            BUNDLE => {
                const { assert!(BUNDLE_MAX == 32, "the rule names it") };
                let rule = "must be up to 32 shards with their versions, as 14 hex digits, -, and 24, separated by commas";
                let entries = parse_bundle_names(parameter("names")).map(Self::Bundle);
                entries.ok_or(Error::InvalidParameter { field: "names", rule })
            }
            range => {
                let rule = "must be 14 hex digits, with its version as v, of 24 hex digits";
                let entry = ShardEntry::parse(range, parameter("v")).map(Self::Shard);
                entry.ok_or(Error::InvalidParameter { field: "shard", rule })
            }
        })
    }

    /// The path with its parameters by name, for logs.
    pub(crate) const fn pattern(&self) -> &'static str {
        match self {
            Self::Manifest => MANIFEST,
            Self::Shard(_) => "/api/v1/snapshot/:shard",
            Self::Bundle(_) => "/api/v1/snapshot/shards",
        }
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// [`Error::IndexRequired`] where there is no index, [`Error::IndexUnavailable`] while it has no snapshot,
    /// [`Error::NotFound`] for a shard that the manifest does not name.
    pub(super) async fn answer(&self, flight: &Flight<DocumentRead>) -> Result<Rc<Content>, Error> {
        let (context, record) = (&flight.context, &flight.record);
        let kept = usable_manifest(context, record).await?;
        let manifest = &kept.manifest;
        let asked = |entry: ShardEntry| async move {
            match manifest.shards().contains(&entry) {
                true => share(context, ShardRead(entry), &mut record.clone()).boxed_local().await,
                false => Err(Error::NotFound),
            }
        };
        let immutable = Lifetime::Immutable(SHARD_SECONDS);
        match self {
            Self::Manifest => {
                let bytes = manifest.encode().map_err(|_| Error::IndexUnavailable)?;
                Ok(binary(bytes, Lifetime::Seconds(kept.seconds_left())))
            }
            Self::Shard(entry) => {
                let shard = asked(*entry).await.map_err(reason)?;
                Ok(binary(shard.as_bytes().to_vec(), immutable))
            }
            Self::Bundle(entries) => {
                let shards = join_all(entries.iter().copied().map(asked)).await;
                let mut bundle = Bundle::default();
                shards.iter().for_each(|shard| bundle.push(shard.as_deref().ok().map(Shard::as_bytes)));
                match shards.into_iter().find_map(Result::err) {
                    Some(error) if bundle.given() == 0 => return Err(reason(error)),
                    _ => {}
                }
                let lifetime = if bundle.is_whole() { immutable } else { Lifetime::Seconds(0) };
                Ok(binary(bundle.into_bytes(), lifetime))
            }
        }
    }
}

fn reason(error: Error) -> Error {
    if error == Error::NotFound { error } else { Error::IndexUnavailable }
}

/// Bytes of the snapshot. The seal that they end with is their tag.
fn binary(bytes: Vec<u8>, lifetime: Lifetime) -> Rc<Content> {
    let seal = bytes.last_chunk::<8>().map_or(0, |seal| u64::from_be_bytes(*seal));
    let (tag, now) = (format!("W/\"{seal:016x}\""), Timestamp::from_millis(unix_millis()));
    Rc::new(Content::new("application/octet-stream", bytes, tag, None, now, lifetime).into_download())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_the_manifest_a_shard_or_several() {
        let parse = |target: &str| Download::parse(target).map(Result::ok);
        let entry = ShardEntry::parse("01000000000008", "000000000000012c00000001").unwrap();
        let name = entry.name();
        assert_eq!(parse("/api/v1/snapshot?x=1"), Some(Some(Download::Manifest)));
        let shard = "/api/v1/snapshot/01000000000008?a&v=000000000000012c00000001";
        assert_eq!(parse(shard), Some(Some(Download::Shard(entry))));
        let bundle = format!("/api/v1/snapshot/shards?names={name},{name}");
        assert_eq!(parse(&bundle), Some(Some(Download::Bundle(vec![entry; 2]))));
        for bad in ["/api/v1/snapshot/", "/api/v1/snapshot/shards", "/api/v1/snapshot/01000000000008?v=1"] {
            assert_eq!(parse(bad), Some(None), "{bad}");
        }
        assert_eq!(parse("/api/v1/snapshots"), None);
        assert_eq!(parse("/api/v1/stats"), None);
    }
}
