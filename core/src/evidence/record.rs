//! An agent's record, read from proved slots.

use alloy_primitives::{Address, B256, U256, keccak256};

use super::{
    Layout, MAX_SCOPE_BYTES,
    layout::{Field, GracePeriod},
};
use crate::{
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
};

/// What slots hold, in the order in which a verdict rests on them. Reading one that is not there says which is missing.
pub(super) struct Slots<'a> {
    known: &'a [(B256, U256)],
    /// How many of them have been read.
    read: usize,
}

/// The next slot a verdict rests on, of which nothing is known yet, or an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The slot at this place.
    Missing(usize, B256),
    /// The slots hold what no registry stores.
    NoRecord(&'static str),
}

impl<'a> Slots<'a> {
    pub(super) const fn new(known: &'a [(B256, U256)]) -> Self {
        Self { known, read: 0 }
    }

    /// How many slots have been read.
    pub(super) const fn read(&self) -> usize {
        self.read
    }

    fn take(&mut self, slot: B256) -> Result<U256, Stop> {
        match self.known.get(self.read) {
            Some((known, value)) if *known == slot => {
                self.read += 1;
                Ok(*value)
            }
            _ => Err(Stop::Missing(self.read, slot)),
        }
    }

    /// The wallet's agent and the grace period in seconds, all that a verdict rests on; no agent where the registry has no live one for the wallet.
    pub(super) fn read_all(
        &mut self,
        layout: &Layout,
        wallet: Address,
    ) -> Result<(Option<Agent>, U256), Stop> {
        let id = self.take(layout.wallet_slot(wallet))?;
        let grace = match layout.attestation_grace_period {
            GracePeriod::Slot(slot) => self.take(B256::from(slot))?,
            GracePeriod::Seconds(seconds) => U256::from(seconds),
        };
        if id.is_zero() {
            return Ok((None, grace));
        }
        Ok((Some(self.agent(layout, id)?), grace))
    }

    fn agent(&mut self, layout: &Layout, id: U256) -> Result<Agent, Stop> {
        let first = layout.record_slot(id);
        let mut words = Vec::new();
        for slot in layout.record.slots() {
            words.push((slot, self.take(B256::from(first.wrapping_add(U256::from(slot))))?));
        }
        let word = |slot: u64| {
            words.iter().find(|(known, _)| *known == slot).map(|(_, word)| *word).unwrap_or_default()
        };
        let number = |field: Field| field.of(word(field.slot));
        let record = &layout.record;
        let scope = B256::from(first.wrapping_add(U256::from(record.operational_scope)));
        let operational_scope = self.string(scope, word(record.operational_scope))?;
        let status = u8::try_from(number(record.status)).ok().and_then(Status::from_number);
        let time = |field: Field| {
            u64::try_from(number(field))
                .map(Timestamp::from_seconds)
                .map_err(|_| Stop::NoRecord("a time is out of range"))
        };
        Ok(Agent {
            agent_id: AgentId(id),
            creator: address(number(record.creator)),
            haftungsperson: address(number(record.haftungsperson)),
            agent_wallet: address(number(record.agent_wallet)),
            operational_scope,
            status: status.ok_or(Stop::NoRecord("the status has no such number"))?,
            registered_at: time(record.registered_at)?,
            last_attestation: time(record.last_attestation)?,
            // No part of a verdict.
            constitution_hash: B256::ZERO,
            capability_hash: B256::ZERO,
            parent_agent_id: AgentId(U256::ZERO),
            generation: U256::ZERO,
            self_modifying: false,
            last_revenue_report: Timestamp::default(),
        })
    }

    /// A `string` whose slot holds `word`: up to 31 bytes stand in it, more in slots of their own (Solidity, "bytes and string").
    fn string(&mut self, slot: B256, word: U256) -> Result<String, Stop> {
        let bad = Stop::NoRecord("the operational scope is no text");
        if !word.bit(0) {
            let length = usize::from(word.byte(0) / 2);
            let bytes = word.to_be_bytes::<32>();
            let text = bytes.get(..length).filter(|_| length < 32).ok_or(bad)?;
            return Ok(String::from_utf8_lossy(text).into_owned());
        }
        let length = usize::try_from(word >> 1).unwrap_or(usize::MAX);
        if length > MAX_SCOPE_BYTES {
            return Err(Stop::NoRecord("the operational scope is too long to be proved"));
        }
        if length < 32 {
            return Err(bad);
        }
        let first = U256::from_be_bytes(keccak256(slot).0);
        let mut bytes = Vec::with_capacity(length);
        for place in 0..length.div_ceil(32) {
            let word = self.take(B256::from(first.wrapping_add(U256::from(place))))?;
            bytes.extend(word.to_be_bytes::<32>());
        }
        bytes.truncate(length);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn address(number: U256) -> Address {
    Address::from_word(B256::from(number))
}
