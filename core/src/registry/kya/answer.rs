//! A reader for answers of `/kya/:wallet`: the parts that gates and tokens use.

use alloy_primitives::Address;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Decision, Reason};
use crate::{
    eth::as_of::AsOf,
    eth::json,
    eth::timestamp::Timestamp,
    registry::liability::{Liability, PinnedRecord},
};

/// The parts of a [`Kya`](super::Kya) that gates and tokens need.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KyaAnswer {
    /// The wallet.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// The decision.
    pub decision: Decision,
    /// Its reasons, the most important first.
    pub reasons: Vec<Reason>,
    /// The agent, if one is registered.
    pub agent: Option<KyaAnswerAgent>,
    /// The agent's liable wallet and the basis of its liability; absent in answers of earlier versions.
    pub liability: Option<Liability>,
    /// The last second at which the attestation is current; `None` if the agent is not compliant, or the
    /// attestation never lapses.
    #[serde(deserialize_with = "compliant_until")]
    pub compliant_until: Option<Timestamp>,
    /// The block that the registry was read at.
    pub as_of: AsOf,
}

/// The agent of a [`KyaAnswer`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KyaAnswerAgent {
    agent_id: Box<RawValue>,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// Its purpose.
    pub operational_scope: String,
    /// Time of registration.
    pub registered_at: Timestamp,
}

impl KyaAnswer {
    /// Parses an answer; `None` for other texts, or if agent and decision contradict one another.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let answer: Self = serde_json::from_slice(body).ok()?;
        (answer.agent.is_some() != (answer.decision == Decision::Deny)).then_some(answer)
    }
}

impl KyaAnswerAgent {
    /// Returns the agent's id in decimal. JSON has large ids as strings, as JavaScript would round numbers.
    pub fn id(&self) -> String {
        self.agent_id.get().trim_matches('"').to_owned()
    }

    /// Returns the members of the record that an acceptance pins; `None` if the id is malformed.
    pub fn pinned(&self) -> Option<PinnedRecord> {
        Some(PinnedRecord {
            agent_id: self.id().parse().ok()?,
            creator: self.creator,
            agent_wallet: self.agent_wallet,
            haftungsperson: self.haftungsperson,
            registered_at: self.registered_at.seconds(),
        })
    }
}

/// Deserializes a time that may be absent. A year above 9999 counts as absent.
fn compliant_until<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<&str>::deserialize(deserializer)?.filter(|text| !text.starts_with('+'));
    let parsed = text.map(|text| Timestamp::parse(text).ok_or(text)).transpose();
    parsed.map_err(|_| serde::de::Error::custom("no timestamp"))
}
