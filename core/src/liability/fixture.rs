//! Signed acceptances for this crate's own tests.

use alloy_primitives::{Address, B256, Bytes};
use k256::ecdsa::SigningKey;

use super::{Acceptance, DecimalId};
use crate::registry::{agent::Agent, fixture};

fn key() -> SigningKey {
    SigningKey::from_slice(&[7; 32]).unwrap()
}

/// Makes agent 11, with a liable wallet that signs.
pub(crate) fn agent() -> Agent {
    Agent { haftungsperson: Address::from_private_key(&key()), ..fixture::agent(11) }
}

/// Makes an acceptance of that agent at the registry `at`, from 100 seconds before `now` to 100 after, with a
/// change that is signed.
pub(crate) fn acceptance(at: (u64, Address), now: u64, change: impl FnOnce(&mut Acceptance)) -> Acceptance {
    let agent = agent();
    let mut acceptance = Acceptance {
        chain_id: at.0,
        registry: at.1,
        agent_id: DecimalId(agent.agent_id.0),
        creator: agent.creator,
        agent_wallet: agent.agent_wallet,
        haftungsperson: agent.haftungsperson,
        registered_at: agent.registered_at.seconds(),
        terms_hash: B256::ZERO,
        not_before: now - 100,
        not_after: now + 100,
        signature: Bytes::new(),
    };
    change(&mut acceptance);
    signed(acceptance, &agent.operational_scope, &key())
}

/// Signs the acceptance with this key.
pub(crate) fn signed(acceptance: Acceptance, operational_scope: &str, key: &SigningKey) -> Acceptance {
    let digest = acceptance.digest(operational_scope);
    let (signature, id) = key.sign_prehash_recoverable(digest.as_slice()).unwrap();
    Acceptance { signature: [&signature.to_bytes()[..], &[27 + id.to_byte()]].concat().into(), ..acceptance }
}
