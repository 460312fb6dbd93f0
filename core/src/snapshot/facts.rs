//! Facts about a wallet as a shard or segment stores them.

use alloy_primitives::Address;

use super::{
    SnapshotError,
    wire::{ByteReader, WITHOUT_LIABILITY},
};
use crate::{
    liability::ParentBasis,
    registry::{agent::Status, kya::FORMER_SHOWN, lineage::MAX_LEVELS},
};

/// Bits of a record's first byte.
const HAS_AGENT: u8 = 1;
const ASK_CHAIN: u8 = 2;
const SUPERSEDED: u8 = 3;
/// Two bits: the agent's tie to its parent.
const PARENT_BASIS: u8 = 4;
/// The liable wallet's last event is the last attestation.
const ATTESTED: u8 = 0x10;
/// The time of the liable wallet's last event follows, less that of the last attestation.
const ATTESTED_APART: u8 = 0x20;
/// The block of the registration follows.
const REGISTERED_IN: u8 = 0x40;
/// Ties of agents to their parents, as a record numbers them from 1 on.
const PARENT_BASES: [ParentBasis; 3] = [ParentBasis::Registered, ParentBasis::Named, ParentBasis::Unknown];

/// Facts about a wallet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// The chain has to be asked: the index lacks facts that a verdict needs, such as a long scope.
    AskChain,
    /// The wallet has changed since the file's version: a wider segment has its facts. With a manifest that
    /// names no such segment, the chain has to be asked.
    Superseded,
    /// All facts that a verdict needs.
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
    /// Time of registration.
    pub registered_at: u64,
    /// Time of the last attestation of compliance.
    pub last_attestation: u64,
    /// Its ancestors that are not Active, the nearest first.
    pub inactive_ancestors: Vec<(u64, Status)>,
    /// Time at which its liable wallet last attested or reported revenue, if that was seen; else 0.
    pub attested_at: u64,
    /// Height of the block with its registration, if all its events since were listed; else 0.
    pub registered_in: u64,
    /// Tie to its parent; `None` for a root.
    pub parent_basis: Option<ParentBasis>,
    /// Its operational scope.
    pub scope: String,
}

/// An agent of the wallet that has ended. Times are unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Former {
    /// Its id.
    pub id: u64,
    /// Its final status.
    pub status: Status,
    /// Time of registration.
    pub registered_at: u64,
    /// Time of its end; 0 if that is unknown.
    pub ended_at: u64,
}

impl Facts {
    /// Appends the record's bytes, or those of [`AskChain`](Self::AskChain) if the facts do not fit.
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
            // Values that do not fit are left out as unknown.
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
    pub(super) fn decode(bytes: &mut ByteReader<'_>, format: u8) -> Result<Self, SnapshotError> {
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
}

impl LiveAgent {
    fn decode(bytes: &mut ByteReader<'_>, bits: u8, format: u8) -> Result<Self, SnapshotError> {
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
}

fn status(bytes: &mut ByteReader<'_>) -> Result<Status, SnapshotError> {
    Status::from_number(bytes.byte()?).ok_or(SnapshotError::Damaged)
}
