//! What is asked of the chain and of the budget before a relay is sent.

use alloy::{
    primitives::{B256, Bytes},
    sol_types::SolCall,
};
use registry_core::{
    abi::IForwarder::executeCall,
    forward::Refusal,
    rpc::{
        classify::{Action, classify},
        revert::Revert,
    },
};

use super::{MINIMUM_BALANCE_WEI, Relayer, queue::QueuePosition};
use crate::{
    budget::{Budget, WINDOW_SECONDS},
    chain::{Node, RpcError, Simulation},
    faults,
    fees::Fees,
    gas,
    outcome::Failure,
    sender::{Job, receipt_reader::inner_reason},
    store::{NewRelay, Store, StoreError},
    transaction::RelayTerms,
};

/// Why a relay cannot be sent.
#[derive(Debug)]
pub(super) enum CheckError {
    /// It must not be: it is over.
    Refused(Failure),
    /// Nobody knows: an endpoint or the disk fails, and may do better in a moment.
    Unavailable(Failure),
}

impl From<Failure> for CheckError {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl From<Refusal> for CheckError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl From<StoreError> for CheckError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "journal failed");
        Self::Unavailable(Failure::journal())
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

/// What a relay will offer, and what was reserved beside it.
struct Offered {
    fees: Fees,
    l1_fee: u128,
    head: u64,
}

impl<C: Node> Relayer<C> {
    /// Balance, budget, verification, simulation. Each pass of the loop is one attempt to be the signer's next request;
    /// see [`queue`] for what it waits for.
    pub(super) async fn check(&self, relay: &NewRelay) -> Result<Job, CheckError> {
        let execute = executeCall::abi_decode(&relay.calldata).map_err(|_| Failure::journal())?;
        let inner_gas = u64::try_from(execute.req.gas).unwrap_or(u64::MAX);
        let gas_limit = gas::limit(&relay.calldata, inner_gas);
        let mut position = QueuePosition::new();
        loop {
            position.wait_for_predecessor(&self.inflight, relay.id).await;
            let permit = self.checks.acquire().await.map_err(|_| Failure::shutting_down())?;
            self.rules.check_terms(&execute.req, self.clock.now())?;
            let Offered { fees, l1_fee, head } = self.afford(relay, gas_limit).await?;
            if self.chain.verify(&execute).await? {
                let terms = RelayTerms {
                    id: relay.id,
                    signer: relay.signer,
                    forward_nonce: relay.forward_nonce,
                    deadline: relay.deadline,
                    l1_fee_wei: l1_fee,
                };
                self.simulate(&relay.calldata, gas_limit).await?;
                faults::point("after_simulate");
                return Ok(Job { relay: terms, calldata: relay.calldata.clone(), gas_limit, fees, head });
            }
            drop(permit);
            // Not the next one? The reservation waits for nobody.
            self.release(relay.id).await?;
            let on_chain = self.chain.forwarder_nonce(relay.signer).await?;
            if !position.becomes_valid(&self.inflight, relay, on_chain).await {
                return Err(Failure::nonce_mismatch().into());
            }
        }
    }

    /// Balance and budget: reserves the worst case.
    async fn afford(&self, relay: &NewRelay, gas_limit: u64) -> Result<Offered, CheckError> {
        let (balance, market) = tokio::try_join!(self.chain.balance(), self.chain.market())?;
        self.saw_balance(balance);
        if balance < MINIMUM_BALANCE_WEI {
            return Err(Failure::balance_too_low().into());
        }
        let fees =
            Fees::initial(&market, self.spending.max_fee).ok_or_else(Failure::network_too_expensive)?;
        let l1_fee = self.l1_fee(relay, gas_limit, fees).await?;

        let wei = fees.worst_case(gas_limit).saturating_add(l1_fee);
        let (id, limit, now) = (relay.id, self.spending.daily_wei, self.clock.now());
        let reserve = move |store: &dyn Store| {
            let reserved = store.reserve(id, wei, l1_fee, limit, now)?;
            Ok((reserved, store.budget(limit, now)?))
        };
        let (reserved, budget) = self.store.run(reserve).await?;
        if !reserved {
            return Err(Failure::budget_exhausted(wait_for_budget(&budget, now)).into());
        }
        faults::point("after_reserve");
        // The node demands that the account can pay for everything in flight at its worst.
        if budget.reserved_wei > balance {
            return Err(Failure::balance_too_low().into());
        }
        Ok(Offered { fees, l1_fee, head: market.head })
    }

    /// What the L1 data fee may come to: it moves with L1's market, so a quarter is added.
    async fn l1_fee(&self, relay: &NewRelay, gas_limit: u64, fees: Fees) -> Result<u128, CheckError> {
        if !self.has_l1_fee {
            return Ok(0);
        }
        let fee = self.chain.l1_fee(self.wallet.draft(relay.calldata.clone(), gas_limit, fees)).await?;
        Ok(fee.saturating_add(fee.div_ceil(4)))
    }

    async fn simulate(&self, calldata: &Bytes, gas_limit: u64) -> Result<(), CheckError> {
        match self.chain.simulate(calldata, gas_limit).await {
            Ok(Simulation::Success) => Ok(()),
            Ok(Simulation::InnerRevert(data)) => Err(Failure::reverted(inner_reason(&data)).into()),
            Err(RpcError::Node(error)) => match Revert::from_error(&error) {
                // Executed by somebody else since it was verified.
                Some(revert) if revert.to_string().starts_with("Forwarder: invalid signature") => {
                    Err(Failure::nonce_mismatch().into())
                }
                Some(revert) => Err(Failure::reverted(revert.to_string()).into()),
                None => Err(RpcError::Node(error).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, id: B256) -> Result<(), CheckError> {
        let now = self.clock.now();
        Ok(self.store.run(move |store| store.release(id, now)).await?)
    }
}

fn wait_for_budget(budget: &Budget, now: u64) -> u64 {
    budget.resets_at().map_or(WINDOW_SECONDS, |reset| reset.saturating_sub(now)).max(1)
}
