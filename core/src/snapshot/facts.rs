//! What a shard or segment holds of a wallet, and the verdict made of it.

use alloy_primitives::{Address, B256, U256};

use super::{
    Manifest, SnapshotError,
    wire::{Bytes, WITHOUT_LIABILITY},
};
use crate::{
    eth::timestamp::Timestamp,
    index::wallet_events,
    liability::{Liability, ParentBasis, WalletEvents},
    registry::{
        agent::{Agent, AgentId, Status},
        kya::{FORMER_SHOWN, FormerAgent, InactiveAncestor, Kya, Past},
        lineage::MAX_LEVELS,
    },
};

/// Bits of a record's first byte.
const HAS_AGENT: u8 = 1;
const ASK_CHAIN: u8 = 2;
const SUPERSEDED: u8 = 3;
/// Two bits: what ties the agent to its parent.
const PARENT_BASIS: u8 = 4;
/// The liable wallet's last event is the last attestation.
const ATTESTED: u8 = 0x10;
/// Its time less that of the last attestation follows.
const ATTESTED_APART: u8 = 0x20;
/// The block of the registration follows.
const REGISTERED_IN: u8 = 0x40;
/// What ties agents to their parents, as a record numbers it from 1 on.
const PARENT_BASES: [ParentBasis; 3] = [ParentBasis::Registered, ParentBasis::Named, ParentBasis::Unknown];

/// What is known of a wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Only the chain can tell: the index does not hold all that a verdict needs, such as a long scope.
    AskChain,
    /// Changed since the file's version: a wider segment tells of it, or, to a manifest that names none, only
    /// the chain can.
    Superseded,
    /// All that a verdict needs.
    Known {
        /// The live agent.
        agent: Option<Box<LiveAgent>>,
        /// Ended agents, newest first, at most one more than a verdict shows.
        former: Vec<Former>,
    },
}

/// The live agent of a wallet. Times are unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveAgent {
    /// Its id.
    pub id: u64,
    /// Its parent's id; 0 for a root.
    pub parent: u64,
    /// The wallet that registered it.
    pub creator: Address,
    /// The wallet of the liable person.
    pub haftungsperson: Address,
    /// Its status.
    pub status: Status,
    /// When it was registered.
    pub registered_at: u64,
    /// When it last attested its compliance.
    pub last_attestation: u64,
    /// Its ancestors that are not Active, the nearest first.
    pub inactive_ancestors: Vec<(u64, Status)>,
    /// When its liable wallet last attested or reported revenue, as far as that was seen; else 0.
    pub attested_at: u64,
    /// The height of the block with its registration, if all its events since were listed; else 0.
    pub registered_in: u64,
    /// What ties it to its parent; `None` for a root.
    pub parent_basis: Option<ParentBasis>,
    /// Its purpose.
    pub scope: String,
}

/// An agent of the wallet that has ended. Times are unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// Its id.
    pub id: u64,
    /// How it ended.
    pub status: Status,
    /// When it was registered.
    pub registered_at: u64,
    /// When it ended; 0 where that is unknown.
    pub ended_at: u64,
}

impl Facts {
    /// Appends the record's bytes. What does not fit is for the chain to tell.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let (agent, former) = match self {
            Self::Known { agent, former } => (agent, former),
            Self::AskChain => return bytes.push(ASK_CHAIN),
            Self::Superseded => return bytes.push(SUPERSEDED),
        };
        let scope = agent.as_ref().map_or(Ok(0), |agent| u16::try_from(agent.scope.len()));
        let ancestors = agent.as_ref().map_or(0, |agent| agent.inactive_ancestors.len());
        let (Ok(scope), true) = (scope, ancestors < MAX_LEVELS && former.len() <= FORMER_SHOWN + 1) else {
            return bytes.push(ASK_CHAIN);
        };
        if agent.is_none() {
            bytes.push(0);
        }
        if let Some(agent) = agent {
            // Nothing more is told than what has room.
            let apart = i32::try_from(agent.attested_at.wrapping_sub(agent.last_attestation).cast_signed());
            let apart = apart.ok().filter(|_| agent.attested_at > 0);
            let registered_in = u32::try_from(agent.registered_in).ok().filter(|block| *block > 0);
            let parent = agent.parent_basis.map_or(0, |basis| basis as u8 + 1) * PARENT_BASIS;
            let attested = match apart {
                None => 0,
                Some(0) => ATTESTED,
                Some(_) => ATTESTED_APART,
            };
            bytes.push(HAS_AGENT | parent | attested | registered_in.map_or(0, |_| REGISTERED_IN));
            bytes.extend(agent.id.to_be_bytes());
            bytes.extend(agent.parent.to_be_bytes());
            bytes.extend(agent.creator);
            bytes.extend(agent.haftungsperson);
            bytes.push(agent.status as u8);
            bytes.extend(agent.registered_at.to_be_bytes());
            bytes.extend(agent.last_attestation.to_be_bytes());
            bytes.extend(apart.filter(|apart| *apart != 0).into_iter().flat_map(i32::to_be_bytes));
            bytes.extend(registered_in.into_iter().flat_map(u32::to_be_bytes));
            bytes.push(u8::try_from(ancestors).unwrap_or(u8::MAX));
            for (id, status) in &agent.inactive_ancestors {
                bytes.extend(id.to_be_bytes());
                bytes.push(*status as u8);
            }
            bytes.extend(scope.to_be_bytes());
            bytes.extend(agent.scope.as_bytes());
        }
        bytes.push(u8::try_from(former.len()).unwrap_or(u8::MAX));
        for Former { id, status, registered_at, ended_at } in former {
            bytes.extend(id.to_be_bytes());
            bytes.push(*status as u8);
            bytes.extend(registered_at.to_be_bytes());
            bytes.extend(ended_at.to_be_bytes());
        }
    }

    /// Reads a record of a file in this version of the format.
    pub(super) fn decode(bytes: &mut Bytes<'_>, format: u8) -> Result<Self, SnapshotError> {
        let agent_bits = match format {
            WITHOUT_LIABILITY => 0,
            _ => (3 * PARENT_BASIS) | ATTESTED | ATTESTED_APART | REGISTERED_IN,
        };
        let agent = match bytes.byte()? {
            ASK_CHAIN => return Ok(Self::AskChain),
            SUPERSEDED => return Ok(Self::Superseded),
            0 => None,
            bits if bits & !agent_bits == HAS_AGENT => {
                Some(Box::new(LiveAgent::decode(bytes, bits, format)?))
            }
            _ => return Err(SnapshotError::Damaged),
        };
        let count = usize::from(bytes.byte()?);
        if count > FORMER_SHOWN + 1 {
            return Err(SnapshotError::Damaged);
        }
        let mut former = Vec::with_capacity(count);
        for _ in 0..count {
            let (id, status) = (bytes.u64()?, status(bytes)?);
            former.push(Former { id, status, registered_at: bytes.u64()?, ended_at: bytes.u64()? });
        }
        Ok(Self::Known { agent, former })
    }

    /// The verdict on the wallet at `now`, or at the time up to which the manifest lacks no change where that
    /// is later, as of the manifest's block; `None` where only the chain can tell.
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

    /// The part of the verdict at the manifest's block that evidence of that block proves; `None` where only
    /// the chain can tell.
    pub fn provable(self, wallet: Address, manifest: &Manifest) -> Option<Kya> {
        let Self::Known { agent, .. } = self else { return None };
        Some(judge(agent, wallet, manifest, manifest.as_of.block_timestamp).as_proved())
    }
}

/// The verdict without the wallet's past.
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
    /// What is known of the events by its liable wallet, at the manifest's block.
    pub fn wallet_events(&self, manifest: &Manifest) -> WalletEvents {
        wallet_events(self.attested_at, self.registered_in, manifest.listed_after)
    }

    fn decode(bytes: &mut Bytes<'_>, bits: u8, format: u8) -> Result<Self, SnapshotError> {
        let (id, parent) = (bytes.u64()?, bytes.u64()?);
        let (creator, haftungsperson) = (bytes.address()?, bytes.address()?);
        let status_of_agent = status(bytes)?;
        let (registered_at, last_attestation) = (bytes.u64()?, bytes.u64()?);
        let attested_at = match bits & (ATTESTED | ATTESTED_APART) {
            0 => 0,
            ATTESTED => last_attestation,
            ATTESTED_APART => last_attestation.wrapping_add_signed(bytes.u32()?.cast_signed().into()),
            _ => return Err(SnapshotError::Damaged),
        };
        let registered_in = if bits & REGISTERED_IN == 0 { 0 } else { bytes.u32()?.into() };
        let parent_basis = match bits / PARENT_BASIS % 4 {
            0 if format == WITHOUT_LIABILITY => (parent != 0).then_some(ParentBasis::Unknown),
            0 => None,
            number => PARENT_BASES.get(usize::from(number) - 1).copied(),
        };
        let count = usize::from(bytes.byte()?);
        if count >= MAX_LEVELS {
            return Err(SnapshotError::Damaged);
        }
        let mut inactive_ancestors = Vec::with_capacity(count);
        for _ in 0..count {
            inactive_ancestors.push((bytes.u64()?, status(bytes)?));
        }
        let length = usize::from(bytes.u16()?);
        let scope = core::str::from_utf8(bytes.take(length)?).map_err(|_| SnapshotError::Damaged)?.to_owned();
        Ok(Self {
            id,
            parent,
            creator,
            haftungsperson,
            status: status_of_agent,
            registered_at,
            last_attestation,
            inactive_ancestors,
            attested_at,
            registered_in,
            parent_basis,
            scope,
        })
    }

    /// As a record; what a verdict does not need is zero.
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

fn status(bytes: &mut Bytes<'_>) -> Result<Status, SnapshotError> {
    Status::from_number(bytes.byte()?).ok_or(SnapshotError::Damaged)
}
