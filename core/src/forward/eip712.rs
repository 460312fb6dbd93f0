//! EIP-712 for forward requests: the forwarder's domain, and the digest that `from` signs.

use alloy_primitives::{Address, B256};
use alloy_sol_types::{Eip712Domain, SolStruct, eip712_domain};

use super::SignedRequest;

/// `name` of the forwarder's EIP-712 domain.
pub const DOMAIN_NAME: &str = "MinimalForwarder";
/// `version` of the forwarder's EIP-712 domain.
pub const DOMAIN_VERSION: &str = "1";

/// Returns the domain of the forwarder at `forwarder` on chain `chain_id`.
#[must_use]
pub fn domain(chain_id: u64, forwarder: Address) -> Eip712Domain {
    eip712_domain! { name: DOMAIN_NAME, version: DOMAIN_VERSION, chain_id: chain_id, verifying_contract: forwarder, }
}

impl SignedRequest {
    /// Returns the EIP-712 digest that `from` signed. It identifies the request.
    #[must_use]
    pub fn digest(&self, domain: &Eip712Domain) -> B256 {
        self.request.eip712_signing_hash(domain)
    }
}
