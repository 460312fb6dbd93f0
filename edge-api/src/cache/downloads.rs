//! Downloads of the registry's snapshot, for clients that hold it themselves: its manifest, and its shards
//! and segments alone or several in one answer.
//!
//! A shard or segment of a version never changes, and is valid for as long as a manifest names it, so that
//! clients may cache it for as long as they like. Downloads share the memory and the cache of the shards that
//! verdicts come from ([`snapshot`](super::snapshot)); the answers themselves are not kept.

use std::rc::Rc;

use edge_shared::unix_millis;
use futures_util::{FutureExt as _, future::join_all};
use registry_core::{
    api::download::Download,
    api::error::Error,
    eth::timestamp::Timestamp,
    snapshot::{Bundle, Shard, ShardEntry},
};

use super::{
    single_flight::{ReadInProgress, share},
    snapshot::{SHARD_SECONDS, ShardRead, usable_manifest},
};
use crate::http::{Content, Lifetime};

/// Returns the bytes of a download.
///
/// # Errors
///
/// [`Error::IndexRequired`] where there is no index, [`Error::NoSnapshot`] where it makes no snapshot,
/// [`Error::IndexUnavailable`] while it has none,
/// [`Error::NotFound`] for a shard that the manifest does not name.
pub(super) async fn answer(download: &Download, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    let (context, record) = (&reading.context, &reading.record);
    let kept = usable_manifest(context, record, true).await?;
    let manifest = &kept.manifest;
    let asked = |entry: ShardEntry| async move {
        match manifest.names(entry) {
            true => {
                share(context, ShardRead { entry, is_only_source: true }, &mut record.clone())
                    .boxed_local()
                    .await
            }
            false => Err(Error::NotFound),
        }
    };
    let immutable = Lifetime::Immutable(SHARD_SECONDS);
    match download {
        Download::Manifest => {
            let bytes = manifest.encode().map_err(|_| Error::IndexUnavailable)?;
            Ok(binary(bytes, Lifetime::Seconds(kept.seconds_left())))
        }
        Download::Shard(entry) => {
            let shard = asked(*entry).await.map_err(reason)?;
            Ok(binary(shard.as_bytes().to_vec(), immutable))
        }
        Download::Bundle(entries) => {
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
fn reason(error: Error) -> Error {
    if error == Error::NotFound { error } else { Error::IndexUnavailable }
}

/// Returns bytes of the snapshot. The seal at their end is their tag.
fn binary(bytes: Vec<u8>, lifetime: Lifetime) -> Rc<Content> {
    let seal = bytes.last_chunk::<8>().map_or(0, |seal| u64::from_be_bytes(*seal));
    let (tag, now) = (format!("W/\"{seal:016x}\""), Timestamp::from_millis(unix_millis()));
    Rc::new(Content::new("application/octet-stream", bytes, tag, None, now, lifetime).into_download())
}
