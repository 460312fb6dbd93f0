//! Follows accounts of which no daemon has the key any more, after another key took their place, until what
//! they have mined is final: a reorganisation is noticed, without a signature. What it undoes is given up,
//! and its relays go to other accounts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use alloy::primitives::Address;
use tokio::{sync::watch, time::sleep};

use crate::{
    chain::ChainNode,
    process::shutdown::{ShutdownSignal, stopped},
    relay::Relayer,
    sender::{Sender, lease::Lease},
    store::{Store, StoreError},
};

/// Interval at which the store is asked for such accounts.
const LOOK: Duration = Duration::from_secs(15);

/// Makes the sender of an account without its key.
pub type MakeFollower<N> = Arc<dyn Fn(Address) -> Arc<Sender<N>> + Send + Sync>;

/// Follows accounts without their keys until shutdown, while `duty` is valid: in a fleet one daemon does.
pub async fn follow<N: ChainNode>(
    relayer: Arc<Relayer<N>>,
    make: MakeFollower<N>,
    duty: Lease,
    mut stop: ShutdownSignal,
) {
    // Dropping an account's entry ends its task after the step in hand.
    let mut following: BTreeMap<Address, watch::Sender<bool>> = BTreeMap::new();
    loop {
        match accounts(&relayer, &duty).await {
            Ok(accounts) => {
                following.retain(|account, _| accounts.contains(account));
                for account in accounts {
                    following.entry(account).or_insert_with(|| {
                        tracing::info!(%account, "followed without its key until what it has mined is final");
                        let (ending, is_ending) = watch::channel(false);
                        let sender = make(account);
                        tokio::spawn(async move { sender.follow_without_key(is_ending).await });
                        ending
                    });
                }
            }
            Err(error) => tracing::warn!(%error, "accounts without a key are not known"),
        }
        tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            () = sleep(LOOK) => {}
        }
    }
}

/// Returns the accounts to follow: what they have mined is not final, or what they have given up may be mined
/// yet, and no daemon sends with them.
async fn accounts<N: ChainNode>(relayer: &Relayer<N>, duty: &Lease) -> Result<BTreeSet<Address>, StoreError> {
    if !duty.is_valid() {
        return Ok(BTreeSet::new());
    }
    let now = relayer.clock.now();
    let read = move |store: &Store| {
        let mut accounts = store.unsettled_accounts(now)?;
        if store.is_shared() {
            let holders = store.fleet()?.holders;
            accounts.retain(|account| !holders.contains_key(account));
        }
        Ok(accounts)
    };
    let mut accounts = relayer.store.run(read).await?;
    accounts.retain(|account| !relayer.configured.contains(account));
    Ok(accounts)
}
