//! The verdict on a wallet, made of its facts in a snapshot.

use alloy_primitives::{Address, B256, U256};

use super::{Facts, Former, LiveAgent, Manifest};
use crate::{
    eth::timestamp::Timestamp,
    index::wallet_events,
    liability::{Liability, WalletEvents},
    registry::{
        agent::{Agent, AgentId},
        kya::{FormerAgent, InactiveAncestor, Kya, Past},
    },
};

impl Facts {
    /// Returns the verdict on the wallet as of the manifest's block, at the later of `now` and the time up to
    /// which the manifest lacks no change; `None` if the chain has to be asked.
    pub fn verdict(self, wallet: Address, manifest: &Manifest, now: Timestamp) -> Option<Kya> {
        let Self::Known { agent, former } = self else { return None };
        let now = now.max(Timestamp::from_millis(manifest.confirmed_at));
        let time = Timestamp::from_seconds;
        let ancestors = agent.iter().flat_map(|agent| &agent.inactive_ancestors);
        let ancestors =
            ancestors.map(|(id, status)| InactiveAncestor { agent_id: AgentId::from(*id), status: *status });
        let former = former.into_iter().map(|Former { id, status, registered_at, ended_at }| FormerAgent {
            agent_id: AgentId::from(id),
            status,
            registered_at: time(registered_at),
            ended_at: (ended_at > 0).then(|| time(ended_at)),
        });
        let past = Past { former: Ok(former.collect()), ancestors: Ok(ancestors.collect()) };
        Some(judge(agent, wallet, manifest, now).with_past(past))
    }

    /// Returns the part of the verdict at the manifest's block that evidence of that block proves; `None` if
    /// the chain has to be asked.
    pub fn provable(self, wallet: Address, manifest: &Manifest) -> Option<Kya> {
        let Self::Known { agent, .. } = self else { return None };
        Some(judge(agent, wallet, manifest, manifest.as_of.block_timestamp).as_proved())
    }
}

/// Makes the verdict without the wallet's past.
fn judge(agent: Option<Box<LiveAgent>>, wallet: Address, manifest: &Manifest, now: Timestamp) -> Kya {
    let known = agent.as_ref().map(|agent| (agent.wallet_events(manifest), agent.parent_basis));
    let (agent, grace) = (agent.map(|agent| agent.record(wallet)), U256::from(manifest.grace_seconds));
    let kya = Kya::of(wallet, agent, grace, now, manifest.as_of);
    let block_time = manifest.as_of.block_timestamp.seconds();
    let liability = kya.liability.zip(known).map(|(record, (events, parent_basis))| Liability {
        parent_basis,
        ..record.with_events(events, block_time)
    });
    Kya { liability, ..kya }
}

impl LiveAgent {
    /// Returns the known events by its liable wallet, at the manifest's block.
    pub fn wallet_events(&self, manifest: &Manifest) -> WalletEvents {
        wallet_events(self.attested_at, self.registered_in, manifest.listed_after)
    }

    /// Converts it to a record with zeros in the fields that a verdict does not need.
    fn record(self, wallet: Address) -> Agent {
        Agent {
            agent_id: AgentId::from(self.id),
            creator: self.creator,
            haftungsperson: self.haftungsperson,
            agent_wallet: wallet,
            constitution_hash: B256::ZERO,
            capability_hash: B256::ZERO,
            operational_scope: self.scope,
            parent_agent_id: AgentId::from(self.parent),
            generation: U256::ZERO,
            self_modifying: false,
            registered_at: Timestamp::from_seconds(self.registered_at),
            last_attestation: Timestamp::from_seconds(self.last_attestation),
            last_revenue_report: Timestamp::default(),
            status: self.status,
        }
    }
}
