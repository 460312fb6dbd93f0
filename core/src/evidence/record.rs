//! A reader of agents' records from proved slots.

use alloy_primitives::{Address, B256, U256, keccak256};

use super::{
    Layout, MAX_SCOPE_BYTES,
    layout::{Field, GracePeriod},
};
use crate::{
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
};

/// The rule that a record with a longer scope than [`MAX_SCOPE_BYTES`] breaks.
pub(crate) const SCOPE_TOO_LONG: &str = "the operational scope is too long to be proved";

/// The values of slots, in the order in which a verdict reads them. Reading an absent slot fails and names
/// it.
pub(super) struct Slots<'a> {
    known: &'a [(B256, U256)],
    /// Number of slots that are read.
    read: usize,
}

/// The reason that a record cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SlotError {
    /// The slot that belongs at this index is missing.
    Missing(usize, B256),
    /// The slots do not hold a record.
    NoRecord(&'static str),
}

impl<'a> Slots<'a> {
    pub(super) const fn new(known: &'a [(B256, U256)]) -> Self {
        Self { known, read: 0 }
    }

    /// Returns the number of slots that are read.
    pub(super) const fn read(&self) -> usize {
        self.read
    }

    fn take(&mut self, slot: B256) -> Result<U256, SlotError> {
        match self.known.get(self.read) {
            Some((known, value)) if *known == slot => {
                self.read += 1;
                Ok(*value)
            }
            _ => Err(SlotError::Missing(self.read, slot)),
        }
    }

    /// Reads the wallet's live agent, if it has one, and the grace period in seconds.
    pub(super) fn read_all(
        &mut self,
        layout: &Layout,
        wallet: Address,
    ) -> Result<(Option<Agent>, U256), SlotError> {
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

    fn agent(&mut self, layout: &Layout, id: U256) -> Result<Agent, SlotError> {
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
                .map_err(|_| SlotError::NoRecord("a time is out of range"))
        };
        Ok(Agent {
            agent_id: AgentId(id),
            creator: address(number(record.creator)),
            haftungsperson: address(number(record.haftungsperson)),
            agent_wallet: address(number(record.agent_wallet)),
            operational_scope,
            status: status.ok_or(SlotError::NoRecord("the status has no such number"))?,
            registered_at: time(record.registered_at)?,
            last_attestation: time(record.last_attestation)?,
            // Not part of a verdict.
            constitution_hash: B256::ZERO,
            capability_hash: B256::ZERO,
            parent_agent_id: AgentId(U256::ZERO),
            generation: U256::ZERO,
            self_modifying: false,
            last_revenue_report: Timestamp::default(),
        })
    }

    /// Reads the `string` in the slot with this word: up to 31 bytes are in the word itself, more in separate
    /// slots (Solidity, "bytes and string").
    fn string(&mut self, slot: B256, word: U256) -> Result<String, SlotError> {
        let bad = SlotError::NoRecord("the operational scope is no text");
        if !word.bit(0) {
            let length = usize::from(word.byte(0) / 2);
            let bytes = word.to_be_bytes::<32>();
            let text = bytes.get(..length).filter(|_| length < 32).ok_or(bad)?;
            return Ok(String::from_utf8_lossy(text).into_owned());
        }
        let length = usize::try_from(word >> 1).unwrap_or(usize::MAX);
        if length > MAX_SCOPE_BYTES {
            return Err(SlotError::NoRecord(SCOPE_TOO_LONG));
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
