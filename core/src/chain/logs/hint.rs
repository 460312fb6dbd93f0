//! Events as hints: the few fields that an index trusts. Events of one agent's history are decoded in
//! [`event_log`](super::event_log).

use std::{borrow::Cow, collections::BTreeMap, fmt};

use alloy_primitives::{Address, B256, U256, hex};
use alloy_sol_types::SolEvent;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use crate::eth::{
    abi::IAgentRegistry::{
        AgentReactivated, AgentRegistered, AgentRevoked, AgentSuspended, AgentTerminated, ComplianceAttested,
        RevenueReported,
    },
    spelled::quantity,
};

/// Events with the agent as their first topic.
pub(crate) const EVENTS: [B256; 7] = [
    AgentRegistered::SIGNATURE_HASH,
    ComplianceAttested::SIGNATURE_HASH,
    RevenueReported::SIGNATURE_HASH,
    AgentSuspended::SIGNATURE_HASH,
    AgentRevoked::SIGNATURE_HASH,
    AgentReactivated::SIGNATURE_HASH,
    AgentTerminated::SIGNATURE_HASH,
];

/// Events that change an agent's status or last attestation, and no other storage.
const PLAIN: [B256; 3] =
    [ComplianceAttested::SIGNATURE_HASH, AgentSuspended::SIGNATURE_HASH, AgentReactivated::SIGNATURE_HASH];

/// The block of an event, as listed by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatusMoment {
    /// The block's height.
    pub(crate) number: u64,
    /// The block's timestamp in unix seconds; `None` if the node omits it.
    pub(crate) seconds: Option<u64>,
}

/// An event of the registry, as listed by the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    /// The agent it may be about: the number in its first topic.
    pub(crate) agent: Option<u64>,
    /// The block's height; 0 if the node omits it.
    pub(crate) number: u64,
    /// Distinguishes the event from others; 0 if the node omits its block's hash or its index.
    pub(crate) fingerprint: u64,
    /// It changes no more of the registry's storage than an agent's status or last attestation.
    pub(crate) is_plain: bool,
    pub(crate) kind: EventKind,
}

/// Kind of an event, as far as it concerns an agent's liable wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    Registered,
    /// An attestation or a report of revenue by a wallet, with its time in unix seconds if that is listed.
    Made {
        by: Address,
        seconds: Option<u64>,
    },
    Other,
}

/// Hints of a list of logs, read log by log: a list of logs would take 25 times as much memory as its text.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// At least one log is listed.
    pub(super) is_any: bool,
    /// The events, without those that name neither an agent nor a block.
    pub(super) events: Vec<Announced>,
    /// Each agent's last event that set its status.
    pub(super) moments: BTreeMap<u64, StatusMoment>,
    /// The highest block.
    pub(super) last: Option<u64>,
}

impl Hints {
    fn add(&mut self, log: &HintLog) {
        self.is_any = true;
        let (number, event) = (log.block_number, log.topics.get(0));
        self.last = self.last.max(number);
        let agent = log.topics.get(1).and_then(|topic| U256::from_be_bytes(topic.0).try_into().ok());
        if agent.is_some() || number.is_some() {
            let fingerprint = log.fingerprint().unwrap_or_default();
            let is_plain = event.is_some_and(|event| PLAIN.contains(&event));
            let number = number.unwrap_or_default();
            let kind = log.kind();
            self.events.push(Announced { agent, number, fingerprint, is_plain, kind });
        }
        let Some(id) = agent else { return };
        let sets_status = event.is_some_and(|event| {
            EVENTS.contains(&event)
                && event != ComplianceAttested::SIGNATURE_HASH
                && event != RevenueReported::SIGNATURE_HASH
        });
        if let Some(number) = number.filter(|_| sets_status) {
            merge_moment(&mut self.moments, id, StatusMoment { number, seconds: log.block_timestamp });
        }
    }
}

/// Keeps an agent's last event that set its status.
pub(crate) fn merge_moment(moments: &mut BTreeMap<u64, StatusMoment>, id: u64, moment: StatusMoment) {
    let last = moments.entry(id).or_insert(moment);
    if last.number <= moment.number {
        *last = moment;
    }
}

impl<'de> Deserialize<'de> for Hints {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Hints;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of logs")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut logs: A) -> Result<Hints, A::Error> {
                let mut hints = Hints::default();
                while let Some(log) = logs.next_element()? {
                    hints.add(&log);
                }
                Ok(hints)
            }
        }

        deserializer.deserialize_seq(Visit)
    }
}

/// The trusted part of a log. A member is `None` if it is missing, `null`, or malformed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HintLog {
    #[serde(default)]
    topics: Topics,
    #[serde(default, deserialize_with = "number")]
    block_number: Option<u64>,
    #[serde(default, deserialize_with = "word")]
    block_hash: Option<B256>,
    #[serde(default, deserialize_with = "number")]
    log_index: Option<u64>,
    /// Not every node sends it.
    #[serde(default, deserialize_with = "number")]
    block_timestamp: Option<u64>,
    /// Data of one word that is a number, such as the time of an attestation.
    #[serde(default, deserialize_with = "number_in_word")]
    data: Option<u64>,
}

impl HintLog {
    fn kind(&self) -> EventKind {
        let by = || self.topics.get(2).map(Address::from_word);
        match (self.topics.get(0), by()) {
            (Some(AgentRegistered::SIGNATURE_HASH), _) => EventKind::Registered,
            (Some(ComplianceAttested::SIGNATURE_HASH), Some(by)) => {
                EventKind::Made { by, seconds: self.data.or(self.block_timestamp) }
            }
            (Some(RevenueReported::SIGNATURE_HASH), Some(by)) => {
                EventKind::Made { by, seconds: self.block_timestamp }
            }
            _ => EventKind::Other,
        }
    }

    fn fingerprint(&self) -> Option<u64> {
        let hash = self.block_hash?;
        let first = hash.0.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        Some(first?.wrapping_add(self.log_index?))
    }
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    text(deserializer, quantity)
}

fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<B256>, D::Error> {
    text(deserializer, |text| text.parse().ok())
}

fn number_in_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    text(deserializer, |text| {
        let word: [u8; 32] = hex::decode_to_array(text).ok().filter(|_| text.len() == 66)?;
        U256::from_be_bytes(word).try_into().ok()
    })
}

fn text<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Cow<'de, str>>::deserialize(deserializer)?.and_then(|text| read(&text)))
}

/// The topics of a log. The EVM has at most four; further ones are ignored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Topics([Option<B256>; 4]);

impl Topics {
    /// Returns a topic; `None` if it is missing or not a word.
    pub(super) fn get(&self, place: usize) -> Option<B256> {
        self.0.get(place).copied().flatten()
    }
}

impl<'de> Deserialize<'de> for Topics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visit;

        impl<'de> Visitor<'de> for Visit {
            type Value = Topics;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of topics")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut topics: A) -> Result<Topics, A::Error> {
                let (mut words, mut places) = (Topics::default(), 0..);
                while let Some(topic) = topics.next_element::<Cow<'de, str>>()? {
                    let place = places.next().and_then(|place: usize| words.0.get_mut(place));
                    if let Some(word) = place {
                        *word = topic.parse().ok();
                    }
                }
                Ok(words)
            }
        }

        deserializer.deserialize_seq(Visit)
    }
}
