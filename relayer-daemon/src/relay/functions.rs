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
    /// Owner: sets how long an attestation lasts.
    SetAttestationGracePeriod,
    /// Owner: names or dismisses a regulator.
    SetRegulator,
}

/// The selector of a call, and whether data is the ABI's own encoding of it: nothing after the arguments,
/// which would be paid for as calldata without being of use, and no other spelling of them.
type CallEncoding = ([u8; 4], fn(&[u8]) -> bool);

impl RegistryFunction {
    /// All functions.
    pub const ALL: &[Self] = Self::VARIANTS;

    const fn call(self) -> CallEncoding {
        const fn of<C: SolCall>() -> CallEncoding {
            (C::SELECTOR, |data| C::abi_decode(data).is_ok_and(|call| call.abi_encode() == data))
        }
        match self {
            Self::RegisterAgent => of::<IAgentRegistry::registerAgentCall>(),
            Self::AttestCompliance => of::<IAgentRegistry::attestComplianceCall>(),
            Self::ReportRevenue => of::<IAgentRegistry::reportRevenueCall>(),
            Self::TerminateSelf => of::<IAgentRegistry::terminateSelfCall>(),
            Self::SuspendAgent => of::<IAgentRegistry::suspendAgentCall>(),
            Self::RevokeAgent => of::<IAgentRegistry::revokeAgentCall>(),
            Self::ReactivateAgent => of::<IAgentRegistry::reactivateAgentCall>(),
            Self::SetAttestationGracePeriod => of::<IAgentRegistry::setAttestationGracePeriodCall>(),
            Self::SetRegulator => of::<IAgentRegistry::setRegulatorCall>(),
        }
    }

    /// Returns the first four bytes of a call's data.
    pub const fn selector(self) -> [u8; 4] {
        self.call().0
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

    /// Checks that `data` is a call of one of them, as the ABI encodes it.
    ///
    /// # Errors
    /// 403 `FUNCTION_NOT_ALLOWED`.
    pub fn check(&self, data: &[u8]) -> Result<(), Failure> {
        let called = self.0.iter().find(|function| data.starts_with(&function.selector()));
        match called {
            Some(function) if function.call().1(data) => Ok(()),
            Some(function) => {
                let message = format!("request.data is not the ABI's encoding of a call of {function}");
                Err(Failure::new(ErrorCode::FunctionNotAllowed, message))
            }
            None => Err(Failure::of(ErrorCode::FunctionNotAllowed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::primitives::{Address, B256, U256};

    /// Returns a call of each function.
    fn calls() -> [Vec<u8>; 9] {
        use IAgentRegistry::*;
        let (id, text, wallet) = (U256::from(1), || "a text".to_owned(), Address::repeat_byte(1));
        [
            registerAgentCall::new((wallet, wallet, B256::ZERO, B256::ZERO, text(), id, true)).abi_encode(),
            attestComplianceCall::new((id,)).abi_encode(),
            reportRevenueCall::new((id, id, text(), text(), 1, 2)).abi_encode(),
            terminateSelfCall::new((id,)).abi_encode(),
            suspendAgentCall::new((id, text())).abi_encode(),
            revokeAgentCall::new((id, text())).abi_encode(),
            reactivateAgentCall::new((id,)).abi_encode(),
            setAttestationGracePeriodCall::new((id,)).abi_encode(),
            setRegulatorCall::new((wallet, true)).abi_encode(),
        ]
    }

    #[test]
    fn writes_are_relayed_as_the_abi_encodes_them_and_views_are_not() {
        let functions = RelayedFunctions::new(RegistryFunction::ALL.to_vec());
        for data in calls() {
            assert_eq!(functions.check(&data), Ok(()), "{data:?}");
            for other in [&data[..4], &data[..data.len() - 1], &[&data[..], &[0]].concat()] {
                assert_eq!(functions.check(other).unwrap_err().code, ErrorCode::FunctionNotAllowed);
            }
        }
        for view in [
            IAgentRegistry::getAgentCall::SELECTOR,
            IAgentRegistry::getAgentByWalletCall::SELECTOR,
            IAgentRegistry::isRegisteredCall::SELECTOR,
            IAgentRegistry::complianceStatusCall::SELECTOR,
        ] {
            assert_eq!(functions.check(&view).unwrap_err().code, ErrorCode::FunctionNotAllowed);
        }
        let [_, attestation, .., set_regulator] = calls();
        for short in [&[][..], &attestation[..3]] {
            assert!(functions.check(short).is_err(), "{short:?}");
        }
        let fewer = RelayedFunctions::new(vec![RegistryFunction::AttestCompliance]);
        assert!(fewer.check(&attestation).is_ok());
        assert!(fewer.check(&set_regulator).is_err());
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
