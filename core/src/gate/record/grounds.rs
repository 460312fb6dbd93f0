//! The grounds of an admission, and their id, which the issuer's token signs.

use alloy_primitives::{B256, hex, keccak256};
use serde_json::value::RawValue;

use super::VerifiedBy;
use crate::liability::{Acceptance, Basis};

/// The grounds of an admission, to which `jti` binds the verdict's token.
#[derive(Clone, Copy, Debug)]
pub struct Grounds<'a> {
    /// The policy's name.
    pub policy: &'a str,
    /// The registry that the verdict is of, as
    /// [`AdmissionRecord::registry`](super::AdmissionRecord::registry) has it, and the hash of the policy;
    /// `None` in version 1.
    pub registry: Option<(&'a str, B256)>,
    /// Basis that ties the liable wallet to the agent, where one is registered.
    pub basis: Option<Basis>,
    /// The acceptance, where this is the basis, and the Keccak-256 of the agent's scope.
    pub acceptance: Option<(&'a Acceptance, B256)>,
    /// Verifier of the wallet's signature.
    pub account: VerifiedBy,
    /// The wallet's signature.
    pub signature: &'a [u8],
    /// The signature base.
    pub base: &'a str,
    /// The text of the evidence, where records have evidence.
    pub evidence: Option<&'a RawValue>,
}

impl Grounds<'_> {
    /// Returns the id of the admission: the Keccak-256 of these texts, joined by line feeds. Only the last
    /// one may contain line feeds. Hashes and signatures are `0x` and hex digits, absent texts are empty.
    ///
    /// 1. The policy.
    /// 2. Since version 2: the registry, the policy's hash, the basis, the acceptance's EIP-712 digest, and
    ///    its signature.
    /// 3. `key` or `code`, the wallet's signature, the Keccak-256 of the evidence, the base.
    pub fn id(&self) -> B256 {
        let account = match self.account {
            VerifiedBy::Key => "key",
            VerifiedBy::Code => "code",
        };
        let mut texts = vec![self.policy.to_owned()];
        if let Some((registry, policy_hash)) = self.registry {
            let (digest, signature) =
                self.acceptance.map_or_else(Default::default, |(acceptance, scope_hash)| {
                    (
                        format!("{:#x}", acceptance.digest_of(scope_hash)),
                        hex::encode_prefixed(&acceptance.signature),
                    )
                });
            let basis = self.basis.map(Basis::name).unwrap_or_default().to_owned();
            texts.extend([registry.to_owned(), format!("{policy_hash:#x}"), basis, digest, signature]);
        }
        let evidence = self.evidence.map(|text| format!("{:#x}", keccak256(text.get()))).unwrap_or_default();
        texts.extend([
            account.to_owned(),
            hex::encode_prefixed(self.signature),
            evidence,
            self.base.to_owned(),
        ]);
        keccak256(texts.join("\n"))
    }
}
