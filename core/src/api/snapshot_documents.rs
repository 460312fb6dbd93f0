//! Verdicts from a snapshot of the registry: the same documents as from the chain at the snapshot's block.

use super::{
    document::{Document, DocumentMetadata, Shape, clock_members_of_all, member},
    error::Error,
    question::{LIST_SCOPE_BYTES, TOO_LONG, malformed},
    route::Route,
};
use crate::{
    eth::timestamp::Timestamp,
    registry::error_code::Code,
    registry::kya::{Kya, KyaItem, KyaList, KyaRange, WalletInput},
    snapshot::{Facts, Manifest, Shard, ShardEntry},
};
use alloy_primitives::Address;

/// Returns the shards and segments that a route's answer needs, the widest first; `None` if a snapshot does
/// not give the answer.
///
/// # Errors
///
/// [`Error::InvalidParameter`] for a range that is too long or too short for the registry.
pub fn shards_for(route: &Route, manifest: &Manifest) -> Result<Option<Vec<ShardEntry>>, Error> {
    match route {
        Route::Kya { block: None, .. } | Route::KyaList { block: None, .. } => {
            let mut files: Vec<ShardEntry> = Vec::new();
            for entry in route.wallets().into_iter().flat_map(|wallet| manifest.entries_of(wallet)) {
                if !files.contains(&entry) {
                    files.push(entry);
                }
            }
            files.sort_unstable_by_key(|entry| entry.range.bits);
            Ok(Some(files))
        }
        Route::KyaRange(prefix) => {
            prefix.check(manifest.prefix_digits())?;
            Ok(Some(manifest.entries_in(prefix.range()).collect()))
        }
        _ => Ok(None),
    }
}

/// Returns the document of a route from these shards and segments, the widest first, as of `now`; `None` if
/// only the chain can answer.
pub fn document(route: &Route, manifest: &Manifest, files: &[&Shard], now: Timestamp) -> Option<Document> {
    let verdict = |wallet: Address| manifest.find(files, wallet).ok()?.verdict(wallet, manifest, now);
    match route {
        Route::Kya { wallet, block: None, .. } => Some(Document::of(verdict(*wallet)?, route)),
        Route::KyaList { wallets, block: None } => Some(Document::of(list(wallets, verdict)?, route)),
        Route::KyaRange(prefix) => {
            let item = |(wallet, facts): (Address, Facts)| match facts {
                Facts::Superseded => None,
                facts => Some(match facts.verdict(wallet, manifest, now) {
                    Some(kya) => KyaItem::Verdict(Box::new(kya)),
                    None => KyaItem::failed(wallet.to_checksum(None), Code::TooLarge, TOO_LONG.to_owned()),
                }),
            };
            let wallets = manifest.wallets_of(files, prefix.range()).ok()?;
            let data = wallets.into_iter().map(item).collect::<Option<Vec<KyaItem>>>()?;
            let prefix_digits_max = *manifest.prefix_digits().end();
            let (prefix, total, as_of) = (prefix.to_string(), data.len(), manifest.as_of);
            Some(Document::of(KyaRange { prefix, prefix_digits_max, total, data, as_of }, route))
        }
        _ => None,
    }
}

/// Returns a list of verdicts; `None` if only the chain can give one of them.
fn list(wallets: &[WalletInput], verdict: impl Fn(Address) -> Option<Kya>) -> Option<KyaList> {
    let (mut items, mut scope_bytes) = (Vec::new(), 0);
    for asked in wallets {
        items.extend(malformed(asked));
        let WalletInput::Wallet(wallet) = *asked else { continue };
        let kya = verdict(wallet)?;
        scope_bytes += kya.agent.as_ref().map_or(0, |agent| agent.operational_scope.len());
        items.push(match scope_bytes > LIST_SCOPE_BYTES {
            true => KyaItem::failed(wallet.to_checksum(None), Code::TooLarge, TOO_LONG.to_owned()),
            false => KyaItem::Verdict(Box::new(kya)),
        });
    }
    Some(items.into())
}

impl Shape for KyaRange {
    fn about(&self, _: &Route) -> DocumentMetadata {
        let until = |item: &KyaItem| match item {
            KyaItem::Verdict(kya) => kya.valid_until,
            KyaItem::Failed(_) => None,
        };
        DocumentMetadata {
            size_hint: 256 + self.data.len() * 900,
            clock_members: match clock_members_of_all(&self.data) {
                members if members.is_empty() => vec![member("asOf", &self.as_of)],
                members => members,
            },
            valid_until: self.data.iter().filter_map(until).min(),
            block: Some(self.as_of.into()),
            links: None,
        }
    }
}
