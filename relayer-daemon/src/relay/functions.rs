//! The functions of the registry that are relayed, by selector.
//!
//! A relayed view would only spend the budget, so only functions that change the registry are relayed, and of
//! these the ones that the operator lists; by default all of them. The regulator's and the owner's are among
//! them: the simulation refuses them to all other signers before anything is paid, and service.md section 7
//! has their reverts among the relayer's answers. An unknown selector is refused.

use alloy::sol_types::SolCall;
use clap::ValueEnum;
use registry_core::eth::abi::IAgentRegistry;
use strum::{Display, VariantArray};

use crate::outcome::{ErrorCode, Failure};

/// A function that changes the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Display, VariantArray)]
#[strum(serialize_all = "camelCase")]
#[value(rename_all = "camelCase")]
pub enum RegistryFunction {
    /// Registers an agent.
    RegisterAgent,
    /// Attests an agent's compliance.
    AttestCompliance,
    /// Reports revenue.
    ReportRevenue,
    /// Ends an agent for good, by its wallet, creator or liable person.
    TerminateSelf,
    /// Regulator: suspends an agent.
    SuspendAgent,
    /// Regulator: ends an agent for good.
    RevokeAgent,
    /// Regulator: ends a suspension.
    ReactivateAgent,
    /// Owner: how long an attestation lasts.
    SetAttestationGracePeriod,
    /// Owner: names or dismisses a regulator.
    SetRegulator,
}

impl RegistryFunction {
    /// All of them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The first four bytes of a call's data.
    pub const fn selector(self) -> [u8; 4] {
        match self {
            Self::RegisterAgent => IAgentRegistry::registerAgentCall::SELECTOR,
            Self::AttestCompliance => IAgentRegistry::attestComplianceCall::SELECTOR,
            Self::ReportRevenue => IAgentRegistry::reportRevenueCall::SELECTOR,
            Self::TerminateSelf => IAgentRegistry::terminateSelfCall::SELECTOR,
            Self::SuspendAgent => IAgentRegistry::suspendAgentCall::SELECTOR,
            Self::RevokeAgent => IAgentRegistry::revokeAgentCall::SELECTOR,
            Self::ReactivateAgent => IAgentRegistry::reactivateAgentCall::SELECTOR,
            Self::SetAttestationGracePeriod => IAgentRegistry::setAttestationGracePeriodCall::SELECTOR,
            Self::SetRegulator => IAgentRegistry::setRegulatorCall::SELECTOR,
        }
    }
}

/// The functions that one relayer relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedFunctions(Vec<RegistryFunction>);

impl RelayedFunctions {
    /// Relays only these.
    pub const fn new(functions: Vec<RegistryFunction>) -> Self {
        Self(functions)
    }

    /// Checks that `data` calls one of them.
    ///
    /// # Errors
    /// 403 `FUNCTION_NOT_ALLOWED`.
    pub fn check(&self, data: &[u8]) -> Result<(), Failure> {
        let known = |function: &RegistryFunction| data.starts_with(&function.selector());
        if self.0.iter().any(known) {
            return Ok(());
        }
        Err(Failure::of(ErrorCode::FunctionNotAllowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_relayed_and_views_are_not() {
        let functions = RelayedFunctions::new(RegistryFunction::ALL.to_vec());
        for function in RegistryFunction::ALL {
            assert_eq!(functions.check(&function.selector()), Ok(()), "{function:?}");
        }
        for view in [
            IAgentRegistry::getAgentCall::SELECTOR,
            IAgentRegistry::getAgentByWalletCall::SELECTOR,
            IAgentRegistry::isRegisteredCall::SELECTOR,
            IAgentRegistry::complianceStatusCall::SELECTOR,
        ] {
            assert_eq!(functions.check(&view).unwrap_err().code, ErrorCode::FunctionNotAllowed);
        }
        let selector = RegistryFunction::AttestCompliance.selector();
        for short in [&[][..], &selector[..3]] {
            assert!(functions.check(short).is_err(), "{short:?}");
        }
        let fewer = RelayedFunctions::new(vec![RegistryFunction::AttestCompliance]);
        assert!(fewer.check(&selector).is_ok());
        assert!(fewer.check(&RegistryFunction::SetRegulator.selector()).is_err());
    }

    #[test]
    fn a_name_is_the_contracts() {
        use RegistryFunction::{RegisterAgent, SetAttestationGracePeriod};
        let long = IAgentRegistry::setAttestationGracePeriodCall::SIGNATURE;
        let short = IAgentRegistry::registerAgentCall::SIGNATURE;
        for (function, signature) in [(RegisterAgent, short), (SetAttestationGracePeriod, long)] {
            assert_eq!(signature.split('(').next(), Some(&*function.to_string()));
        }
    }
}
