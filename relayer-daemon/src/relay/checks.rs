//! The checks against chain and budget before a relay is sent.

use std::collections::BTreeSet;

use alloy::{
    primitives::{Address, Bytes},
    sol_types::SolCall,
};
use futures_util::FutureExt as _;
use registry_core::eth::{
    abi::IForwarder::executeCall,
    rpc::{
        read_error::{Action, classify},
        revert::Revert,
    },
};
use tokio::time::Instant;

use super::{Relayer, check_permits::CheckPermit, queue::QueuePosition, store_failed};
use crate::{
    budget::{
        Budget, WINDOW_SECONDS,
        share::{Allowance, Denial},
    },
    chain::{ChainNode, RpcError, SimulationResult},
    gas::{self, fees::Fees},
    outcome::{ErrorCode, Failure, RelayOutcome},
    process::faults,
    sender::{SendJob, carrier::Carrier, receipt_reader::inner_reason},
    store::{ExpectedCost, NewRelay, RelayTerms, Reservation, Store, StoreError},
};

/// The reason why a relay cannot be sent.
#[derive(Debug)]
pub(super) enum CheckError {
    /// It must not be sent: it has ended.
    Refused(Failure),
    /// A transient failure of an endpoint or the disk: retry.
    Unavailable(Failure),
    /// Another daemon of the fleet runs it.
    Elsewhere,
    /// Another daemon's account is to send it, it waits until an account is uncordoned, or this daemon drains
    /// while another one runs what comes before it.
    NotHere,
    /// It is not in the store any more, as after a failover that lost commits.
    Lost,
}

impl From<Failure> for CheckError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::HeldElsewhere => Self::Elsewhere,
            StoreError::Missing("relay") => Self::Lost,
            StoreError::NonceUsed => Self::Refused(error.into()),
            _ => {
                tracing::error!(%error, "journal failed");
                Self::Unavailable(error.into())
            }
        }
    }
}

impl From<RpcError> for CheckError {
    fn from(error: RpcError) -> Self {
        let may_pass = match &error {
            RpcError::Unreachable(_) | RpcError::Timeout | RpcError::Malformed(_) => true,
            RpcError::Node(error) => matches!(classify(error), Action::Retry | Action::Repin),
        };
        let failure = error.into();
        if may_pass { Self::Unavailable(failure) } else { Self::Refused(failure) }
    }
}

/// The fees that a relay will offer, and the account that may send it.
struct Prices {
    fees: Fees,
    l1_fee_wei: u128,
    head: u64,
    account: Address,
}

impl<C: ChainNode> Relayer<C> {
    /// Checks balance, verification, simulation and budget. Each pass of the loop is one attempt to be the
    /// signer's next request; [`super::queue`] decides what it waits for.
    ///
    /// The caller holds the permit while all pools are full, so that only what is soon sent is checked.
    pub(super) async fn check(&self, relay: &NewRelay) -> Result<(SendJob, CheckPermit<'_>), CheckError> {
        let execute =
            executeCall::abi_decode(&relay.calldata).map_err(|_| Failure::of(ErrorCode::JournalFailed))?;
        let inner_gas = u64::try_from(execute.req.gas).unwrap_or(u64::MAX);
        let gas_limit = gas::limit(&relay.calldata, inner_gas);
        let mut position = QueuePosition::new();
        let look = || self.follow_predecessors(relay).boxed();
        let carries = || self.accounts.carrier() == Carrier::Here;
        let stays = || carries() && !self.leaves_with_predecessor(relay.id);
        loop {
            if !position.wait_for_predecessor(&self.inflight, relay.id, look, stays).await {
                return Err(CheckError::NotHere);
            }
            let is_shared = relay.client.is_some() && self.policy.current().without_key_share() < 100;
            let permit = self.checks.acquire(is_shared).await.ok_or(Failure::of(ErrorCode::ShuttingDown))?;
            self.terms.rules.check_terms(&execute.req, self.clock.now()).map_err(Failure::from)?;
            if !carries() {
                return Err(CheckError::NotHere);
            }
            let prices = self.prices(relay, gas_limit).await?;
            if self.chain.verify(&execute).await? {
                let gas = self.simulate(prices.account, &relay.calldata, gas_limit).await?;
                faults::point("after_simulate");
                self.reserve(relay, &prices, gas).await?;
                faults::point("after_reserve");
                let terms = RelayTerms {
                    id: relay.id,
                    signer: relay.signer,
                    forward_nonce: relay.forward_nonce,
                    deadline: relay.deadline,
                    l1_fee_wei: prices.l1_fee_wei,
                    expected_gas: Some(gas),
                    without_key: relay.client.is_some(),
                };
                let Prices { fees, head, .. } = prices;
                let calldata = relay.calldata.clone();
                let checked_at = Instant::now();
                return Ok((SendJob { relay: terms, calldata, gas_limit, fees, head, checked_at }, permit));
            }
            drop(permit);
            let on_chain = self.chain.forwarder_nonce(relay.signer).await?;
            if !position.becomes_valid(&self.inflight, relay, on_chain, look).await {
                return Err(Failure::of(ErrorCode::InvalidSignatureOrNonce).into());
            }
        }
    }

    /// Returns the budget and its shares, by the policy in force.
    fn allowance(&self) -> Allowance {
        let mut allowance = self.terms.allowance;
        allowance.shares.without_key = self.policy.current().without_key_share();
        allowance
    }

    /// Looks up what the store knows of a relay, and whether the budget and its shares leave anything for it,
    /// before it costs a call or a write.
    pub(super) async fn look_up(
        &self,
        relay: &NewRelay,
    ) -> Result<(Option<Option<RelayOutcome>>, Result<(), Failure>), Failure> {
        let price = self.gas_price.recent();
        let wei = u128::from(gas::least(&relay.calldata)).saturating_mul(price).max(1);
        let least_wei = u128::from(gas::CHEAPEST_RELAY).saturating_mul(price).max(1);
        let (relay, allowance, now) = (relay.clone(), self.allowance(), self.clock.now());
        let look_up = move |store: &Store| store.look_up(&relay, wei, least_wei, &allowance, now);
        let (known, Reservation { denial, budget }) = self.store.run(look_up).await.map_err(store_failed)?;
        let affordable = match denial {
            Some(denial @ (Denial::Spent(_) | Denial::TooDear(_))) => Err(denied(denial, &budget, now)),
            // Reservations may be given back in time.
            Some(Denial::Reserved(_)) | None => Ok(()),
        };
        Ok((known, affordable))
    }

    /// Prices the relay, and checks that an account holds enough.
    async fn prices(&self, relay: &NewRelay, gas_limit: u64) -> Result<Prices, CheckError> {
        let (account, market) = tokio::join!(self.funded_account(), self.chain.market());
        let (account, market) = (account?, market?);
        let fees = Fees::initial(&market, self.terms.spending.max_fee)
            .ok_or(Failure::of(ErrorCode::NetworkFeesTooHigh))?;
        self.gas_price.saw(fees.max_fee);
        let l1_fee_wei = self.l1_fee(relay, gas_limit, fees).await?;
        Ok(Prices { fees, l1_fee_wei, head: market.head, account })
    }

    /// Returns the account that would get the relay now, after reading its balance. If another one is the
    /// next after that, because this one is empty or no longer the richest, reads that one's balance as well.
    async fn funded_account(&self) -> Result<Address, CheckError> {
        let mut read = BTreeSet::new();
        while let Some(sender) = self.accounts.next() {
            if !read.insert(sender.account()) {
                return Ok(sender.account());
            }
            sender.saw_balance(self.chain.balance(sender.account()).await?);
        }
        if read.is_empty() {
            // Funds may have come since the last look.
            for sender in self.accounts.senders() {
                sender.saw_balance(self.chain.balance(sender.account()).await?);
            }
        }
        let sender = self.accounts.next();
        let for_none = || self.accounts.ends().map_or(CheckError::NotHere, CheckError::Refused);
        sender.map(|sender| sender.account()).ok_or_else(for_none)
    }

    /// Reserves the simulated need in the budget and in the shares of its parties.
    async fn reserve(&self, relay: &NewRelay, prices: &Prices, gas: u64) -> Result<(), CheckError> {
        let wei = prices.fees.worst_case(gas).saturating_add(prices.l1_fee_wei);
        let no_op_wei = self.wallet.no_op_wei(prices.fees);
        let least_wei = prices.fees.worst_case(gas::CHEAPEST_RELAY);
        let cost = ExpectedCost { wei, gas, l1_fee_wei: prices.l1_fee_wei, least_wei, no_op_wei };
        let (id, allowance, now) = (relay.id, self.allowance(), self.clock.now());
        let reserve = move |store: &Store| store.reserve_share(id, &cost, &allowance, now);
        let Reservation { denial, budget } = self.store.run(reserve).await?;
        match denial {
            Some(denial) => Err(denied(denial, &budget, now).into()),
            None => Ok(()),
        }
    }

    /// Returns the highest L1 data fee to expect, wei: a quarter is added, since it moves with L1's market.
    async fn l1_fee(&self, relay: &NewRelay, gas_limit: u64, fees: Fees) -> Result<u128, CheckError> {
        if !self.terms.has_l1_fee {
            return Ok(0);
        }
        let fee = self.chain.l1_fee(self.wallet.draft(relay.calldata.clone(), gas_limit, fees)).await?;
        Ok(fee.saturating_add(fee.div_ceil(4)))
    }

    /// Simulates the relay, and returns the gas that it may use when it is mined.
    async fn simulate(&self, account: Address, calldata: &Bytes, gas_limit: u64) -> Result<u64, CheckError> {
        match self.chain.simulate(account, calldata, gas_limit).await {
            Ok(SimulationResult::Success { gas_used }) => {
                Ok(gas_used.map_or(gas_limit, |used| gas::expected(used, gas_limit)))
            }
            Ok(SimulationResult::InnerRevert(data)) => Err(Failure::reverted(inner_reason(&data)).into()),
            Err(RpcError::Node(error)) => match Revert::from_error(&error) {
                // Executed elsewhere since it was verified.
                Some(revert) if revert.to_string().starts_with("Forwarder: invalid signature") => {
                    Err(Failure::of(ErrorCode::InvalidSignatureOrNonce).into())
                }
                Some(revert) => Err(Failure::reverted(revert.to_string()).into()),
                None => Err(RpcError::Node(error).into()),
            },
            Err(error) => Err(error.into()),
        }
    }
}

fn denied(denial: Denial, budget: &Budget, now: u64) -> Failure {
    let wait = budget.resets_at().map_or(WINDOW_SECONDS, |reset| reset.saturating_sub(now)).max(1);
    match denial {
        Denial::Spent(None) => Failure::budget_exhausted(wait),
        Denial::Spent(Some(party)) => Failure::share_exhausted(party, wait),
        Denial::TooDear(_) => Failure::of(ErrorCode::BudgetTooSmall).retry_after(wait),
        Denial::Reserved(_) => Failure::of(ErrorCode::BudgetReserved),
    }
}
