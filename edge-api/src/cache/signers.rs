//! Cache of whether liable wallets have code, for acceptances. It is read along with a verdict, or by a query
//! of an acceptance's own, and kept until the end of the verdict at the same block. Only values at the newest
//! block are kept: for a verdict at another one (`?block=`) the code is read each time.

use std::cell::RefCell;

use alloy_primitives::Address;
use edge_shared::unix_millis;
use registry_core::{
    api::error::Error,
    chain::{QueryError, RunError, SignerCode, SignerQuery},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey},
};

use super::{budget::ReplyBytes, context::RequestContext};
use crate::{chain, log::Record};

/// Room for some 2,000 wallets.
const CAPACITY_BYTES: usize = 256 * 1024;
/// Size limit of the reply about one wallet.
const REPLY_BYTES: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WalletKey(Address);

impl CacheKey for WalletKey {
    fn heap_bytes(&self) -> usize {
        0
    }
}

thread_local! {
    static HAS_CODE: RefCell<Cache<WalletKey, bool>> = RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// Returns whether a wallet has code at the newest block, if that is known.
pub(crate) fn has_code(wallet: Address) -> Option<bool> {
    HAS_CODE.with_borrow_mut(|known| known.get(&WalletKey(wallet), unix_millis()))
}

/// Returns the liable wallet of the request's acceptance, if its code is to be read.
pub(super) fn unread(context: &RequestContext) -> Option<Address> {
    context.signer.filter(|signer| has_code(*signer).is_none())
}

/// Keeps whether a wallet has code, until a time in unix milliseconds.
pub(super) fn keep(wallet: Address, has_code: bool, until: u64) {
    let _ = HAS_CODE.with_borrow_mut(|known| {
        let kept = (has_code, size_of::<WalletKey>(), until);
        known.get_or_derive::<()>(&WalletKey(wallet), unix_millis(), || Ok(kept))
    });
}

/// Asks whether a liable wallet accepts an acceptance's signature, at the verdict's block; at the newest one
/// where the nodes no longer have the block of a kept verdict. `until` is the verdict's end.
pub(crate) async fn ask(
    context: &RequestContext,
    mut query: SignerQuery,
    until: u64,
    record: &mut Record,
) -> Result<SignerCode, Error> {
    let settings = &context.settings.shared;
    let deadline = settings.rpc_deadline_seconds;
    let _in_flight = ReplyBytes::take(REPLY_BYTES, deadline, u64::from(deadline) * 1_000).await?;
    let (now, account) = (Timestamp::from_millis(unix_millis()), query.account);
    let is_newest = context.signer.is_some();
    let code = loop {
        match chain::ask(query.clone(), now, settings, &mut record.rpc_calls).await {
            Err(Error::Query(QueryError::BlockNotAvailable(_))) if is_newest && query.block.is_some() => {
                query.block = None;
            }
            // The block of the verdict, which another endpoint may have given.
            Err(Error::Query(QueryError::BlockNotAvailable(_))) => return Err(RunError::Unreachable.into()),
            code => break code?,
        }
    };
    if is_newest {
        keep(account, code.has_code, until);
    }
    Ok(code)
}
