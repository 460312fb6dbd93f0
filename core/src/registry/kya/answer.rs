//! An answer of `/kya/:wallet`, read: the parts that are carried on.

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
    /// The agent, where one is registered.
    pub agent: Option<KyaAnswerAgent>,
    /// What ties its liable wallet to it; absent in answers of earlier versions.
    pub liability: Option<Liability>,
    /// The last second at which the attestation is current; `None` where the agent is not compliant, and
    /// where the attestation never lapses.
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
    /// When it was registered.
    pub registered_at: Timestamp,
}

impl KyaAnswer {
    /// Reads an answer; `None` for another text, and where agent and decision contradict one another.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let answer: Self = serde_json::from_slice(body).ok()?;
        (answer.agent.is_some() != (answer.decision == Decision::Deny)).then_some(answer)
    }
}

impl KyaAnswerAgent {
    /// The agent's id in decimal. It is a number, or its digits where JavaScript would round it.
    pub fn id(&self) -> String {
        self.agent_id.get().trim_matches('"').to_owned()
    }

    /// What an acceptance pins of its record; `None` where the id is none.
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

/// A time that may be absent. A year above 9999 is as good as none.
fn compliant_until<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<&str>::deserialize(deserializer)?.filter(|text| !text.starts_with('+'));
    let parsed = text.map(|text| Timestamp::parse(text).ok_or(text)).transpose();
    parsed.map_err(|_| serde::de::Error::custom("no timestamp"))
}
