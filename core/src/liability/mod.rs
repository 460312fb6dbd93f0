//! Liability for agents, and its proofs.
//!
//! `registerAgent` takes the liable wallet from the caller without the wallet's consent, so a record alone
//! only names a wallet. A [`Basis`] says what the wallet itself did. The wallet may sign an [`Acceptance`] of
//! one registration, and a [`LiableDomain`] that binds it to a domain. The domain's [`DomainFile`] names the
//! wallet in turn.

mod acceptance;
mod domain;
#[cfg(test)]
pub(crate) mod fixture;
mod signed;

pub use crate::registry::liability::{
    ATTESTED_SECONDS, Basis, Liability, ParentBasis, PinnedRecord, WalletEvents, parent_basis,
};
pub use acceptance::{Acceptance, DecimalId, FIELD, HEADER, MAX_HEADER_BYTES};
pub use domain::{DomainFile, DomainName, LiableWallet, MAX_FILE_BYTES, WELL_KNOWN};
pub use signed::{DOMAIN_NAME, DOMAIN_VERSION, LiabilityAcceptance, LiableDomain, Moment, Problem, domain};

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn vectors() -> Value {
        serde_json::from_str(include_str!("../../../docs/liability/vectors.json")).unwrap()
    }

    #[test]
    fn a_document_that_breaks_one_rule_is_refused_by_its_name() {
        let vectors = vectors();
        let first = &vectors["acceptances"][0];
        let (good, scope) =
            (Acceptance::from_json(&first["document"].to_string()).unwrap(), &first["operationalScope"]);
        let record = PinnedRecord {
            agent_id: good.agent_id.0,
            creator: good.creator,
            agent_wallet: good.agent_wallet,
            haftungsperson: good.haftungsperson,
            registered_at: good.registered_at,
        };
        let now = vectors["refused"]["at"].as_u64().unwrap();
        let moment = Moment { now, block_time: now };
        let check = |text: &str| {
            let acceptance = Acceptance::from_json(text)?;
            acceptance.check_place_and_time((good.chain_id, good.registry), moment)?;
            acceptance.check_record(&record)?;
            acceptance.check_signature(scope.as_str().unwrap())
        };
        assert_eq!(check(&good.to_json()), Ok(()));
        for row in vectors["refused"]["documents"].as_array().unwrap() {
            let text = row["text"].as_str().map_or_else(|| row["document"].to_string(), str::to_owned);
            let problem = check(&text).map_err(|problem| problem.to_string());
            assert_eq!(problem, Err(row["problem"].as_str().unwrap().to_owned()), "{}", row["rule"]);
        }
    }

    /// The vectors are of another implementation.
    #[test]
    fn digests_and_signatures_are_those_of_eth_account() {
        let vectors = vectors();
        for vector in vectors["acceptances"].as_array().unwrap() {
            let acceptance = Acceptance::from_json(&vector["document"].to_string()).unwrap();
            let scope = vector["operationalScope"].as_str().unwrap();
            assert_eq!(acceptance.digest(scope).to_string(), vector["digest"].as_str().unwrap());
            assert_eq!(acceptance.check_signature(scope), Ok(()));
        }
        for vector in vectors["domains"].as_array().unwrap() {
            let file = DomainFile::read(&format!("{{\"liable\":[{}]}}", vector["entry"])).unwrap();
            let domain = DomainName::parse(vector["domain"].as_str().unwrap()).unwrap();
            let liable = &file.liable[0];
            assert_eq!(liable.digest(&domain).to_string(), vector["digest"].as_str().unwrap());
            assert_eq!(liable.check_signature(&domain), Ok(()));
            let other = DomainName::parse("acme.example.evil.example").unwrap();
            assert_eq!(liable.check_signature(&other), Err(Problem::Signature));
        }
    }
}
