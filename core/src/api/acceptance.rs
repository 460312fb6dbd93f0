//! Acceptances that requests for a verdict present in the header `Liability-Acceptance`.
//!
//! ```text
//!   header --read--> document, chain, registry, wallet, time          nothing is read from the chain yet
//!        |             (the liable wallet's code rides in the first batch of a verdict at the newest block)
//!        +--judge---> the verdict's record and block's time --> no code: the signature is recovered
//!                                                           \-> code: it is asked, at the verdict's block
//! ```
//!
//! An acceptance that does not hold only adds `acceptanceProblem` to the verdict. The verdict comes from its
//! cache as without the header, and the acceptance is judged anew for each request.

use alloy_primitives::{Address, B256, U256, keccak256};

use super::document::member;
use crate::{
    chain::{Halt, Query, SignerCode, SignerQuery, View, signer_code},
    eth::{as_of::BlockId, timestamp::Timestamp},
    liability::{Acceptance, Basis, Liability, Moment, Problem},
    registry::kya::KyaAnswer,
};

/// An acceptance, checked as far as possible without the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentedAcceptance(Result<Acceptance, Problem>);

/// The next step in judging an acceptance, or the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The query for the liable wallet's code, which decides on the signature.
    Ask(SignerQuery),
    /// The verdict with its judgement.
    Judged(JudgedVerdict),
}

/// A verdict that was judged together with an acceptance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JudgedVerdict {
    /// The JSON.
    pub body: String,
    /// The last second at which the acceptance holds; `None` if it does not.
    pub not_after: Option<Timestamp>,
}

impl PresentedAcceptance {
    /// Reads the header's value for a verdict on `wallet` by the registry at `place`, a chain id and an
    /// address. A service that does not know its chain's id accepts none.
    pub fn read(value: &str, place: (Option<u64>, Address), wallet: Address, now: Timestamp) -> Self {
        let read = || {
            let acceptance = Acceptance::from_header(value)?;
            let chain_id = place.0.ok_or(Problem::Member("chainId".into()))?;
            let moment = Moment { now: now.seconds(), block_time: now.seconds() };
            acceptance.check_place_and_time((chain_id, place.1), moment)?;
            if acceptance.agent_wallet != wallet {
                return Err(Problem::Member("agentWallet".into()));
            }
            Ok(acceptance)
        };
        Self(read())
    }

    /// Returns the liable wallet, which is checked for code before its signature; `None` if nothing has to be
    /// read.
    pub fn signer(&self) -> Option<Address> {
        self.0.as_ref().ok().map(|acceptance| acceptance.haftungsperson)
    }

    /// Judges the acceptance by a verdict, the answer of `/kya/:wallet`. `has_code` says whether the
    /// [`signer`](Self::signer) has code at the verdict's block, if that is known. Returns `None` if the text
    /// is not a verdict.
    pub fn judge(&self, verdict: &str, has_code: Option<bool>, now: Timestamp) -> Option<Judgement> {
        let answer = KyaAnswer::parse(verdict.as_bytes())?;
        Some(match (self.checked(&answer, now), has_code) {
            (Err(problem), _) => Judgement::Judged(refused(verdict, &problem)),
            (Ok(_), Some(false)) => Judgement::Judged(self.conclude(
                verdict,
                SignerCode { has_code: false, accepts: false },
                now,
            )?),
            (Ok((acceptance, scope_hash)), _) => {
                Judgement::Ask(SignerQuery::of(acceptance, scope_hash, answer.as_of.block_number))
            }
        })
    }

    /// Judges the acceptance with the answer to [`Judgement::Ask`].
    pub fn conclude(&self, verdict: &str, code: SignerCode, now: Timestamp) -> Option<JudgedVerdict> {
        let answer = KyaAnswer::parse(verdict.as_bytes())?;
        Some(match self.checked(&answer, now) {
            Err(problem) => refused(verdict, &problem),
            Ok((acceptance, scope_hash)) => {
                concluded(verdict, &answer, acceptance, code.check(acceptance, scope_hash))
            }
        })
    }

    /// Checks everything but the signature. Returns the Keccak-256 of the agent's scope.
    fn checked(&self, answer: &KyaAnswer, now: Timestamp) -> Result<(&Acceptance, B256), Problem> {
        let acceptance = self.0.as_ref().map_err(Clone::clone)?;
        let no_agent = || Problem::Member("agentId".into());
        let agent = answer.agent.as_ref().ok_or_else(no_agent)?;
        acceptance.check_record(&agent.pinned().ok_or_else(no_agent)?)?;
        let block_time = answer.as_of.block_timestamp.seconds();
        acceptance.check_time(Moment { now: now.seconds(), block_time })?;
        Ok((acceptance, keccak256(&agent.operational_scope)))
    }
}

/// Returns a verdict with an acceptance and the result of its signature's check.
fn concluded(
    verdict: &str,
    answer: &KyaAnswer,
    acceptance: &Acceptance,
    result: Result<(), Problem>,
) -> JudgedVerdict {
    match (result, answer.liability) {
        (Err(problem), _) => refused(verdict, &problem),
        (Ok(()), liability) => {
            let accepted = |before: Liability| {
                let after = Liability { basis: Basis::Accepted, attested_at: None, ..before };
                verdict.replacen(&member("liability", &before), &member("liability", &after), 1)
            };
            JudgedVerdict {
                body: liability.map_or_else(|| verdict.to_owned(), accepted),
                not_after: Some(Timestamp::from_seconds(acceptance.not_after)),
            }
        }
    }
}

/// Returns a verdict with an acceptance that does not hold.
fn refused(verdict: &str, problem: &Problem) -> JudgedVerdict {
    let problem = member("acceptanceProblem", &problem.to_string());
    JudgedVerdict { body: verdict.replacen('{', &["{", &problem, ","].concat(), 1), not_after: None }
}

/// A query that also reads in the same round trip whether an account has code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithCodeOf<Q> {
    /// The query.
    pub query: Q,
    /// The account.
    pub account: Address,
}

impl<Q: Query> Query for WithCodeOf<Q> {
    /// The query's output, and whether there is code; `None` if the node cannot tell.
    type Output = (Q::Output, Option<bool>);
    type Error = Q::Error;

    fn resolve(&self, view: &View) -> Result<Self::Output, Halt<Self::Error>> {
        let code = signer_code(view, self.account, None, U256::ZERO);
        let output = self.query.resolve(view)?;
        match code {
            Err(Halt::Need(need)) => Err(need.into()),
            code => Ok((output, code.ok().map(|code| code.has_code))),
        }
    }

    fn block(&self) -> Option<BlockId> {
        self.query.block()
    }

    fn is_one_round(&self) -> bool {
        self.query.is_one_round()
    }

    fn reads_other_blocks(&self) -> bool {
        self.query.reads_other_blocks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liability::fixture::{self, agent};
    use crate::{eth::as_of::AsOf, registry::agent::Agent, registry::kya::Kya};

    const NOW: u64 = 1_790_000_000;
    const REGISTRY: Address = Address::repeat_byte(9);

    fn verdict(agent: Option<Agent>, block_time: u64) -> String {
        let as_of = AsOf { block_timestamp: Timestamp::from_seconds(block_time), ..AsOf::default() };
        let wallet = agent.as_ref().map_or(Address::ZERO, |agent| agent.agent_wallet);
        serde_json::to_string(&Kya::of(wallet, agent, U256::MAX, Timestamp::from_seconds(NOW), as_of))
            .unwrap()
    }

    fn acceptance(change: impl FnOnce(&mut Acceptance)) -> Acceptance {
        fixture::acceptance((5, REGISTRY), NOW, change)
    }

    fn read(header: &str) -> PresentedAcceptance {
        let now = Timestamp::from_seconds(NOW);
        PresentedAcceptance::read(header, (Some(5), REGISTRY), agent().agent_wallet, now)
    }

    fn judge(presented: &PresentedAcceptance, verdict: &str, code: SignerCode) -> JudgedVerdict {
        let now = Timestamp::from_seconds(NOW);
        let known = (!code.has_code).then_some(false);
        let judged = match presented.judge(verdict, known, now).unwrap() {
            Judgement::Judged(judged) => judged,
            Judgement::Ask(_) => presented.conclude(verdict, code, now).unwrap(),
        };
        // The result is the same if it was not known before.
        assert_eq!(presented.conclude(verdict, code, now).unwrap(), judged);
        judged
    }

    const NO_CODE: SignerCode = SignerCode { has_code: false, accepts: false };

    #[test]
    fn an_acceptance_that_holds_is_the_basis_and_nothing_else_of_the_verdict_changes() {
        let plain = verdict(Some(agent()), NOW);
        let valid = acceptance(|_| {});
        let contract = Acceptance { signature: vec![1, 2, 3].into(), ..valid.clone() };
        for (document, code) in
            [(valid.clone(), NO_CODE), (contract, SignerCode { has_code: true, accepts: true })]
        {
            let presented = read(&document.to_header());
            assert_eq!(presented.signer(), Some(agent().haftungsperson));
            let judged = judge(&presented, &plain, code);
            assert_eq!(judged.body, plain.replace(r#""basis":"unknown""#, r#""basis":"accepted""#));
            assert_eq!(judged.not_after, Some(Timestamp::from_seconds(NOW + 100)));
        }
    }

    #[test]
    fn one_that_does_not_hold_is_named_and_changes_nothing_else() {
        let plain = verdict(Some(agent()), NOW);
        let valid = acceptance(|_| {}).to_header();
        let code = |accepts| SignerCode { has_code: true, accepts };
        let other = Agent { creator: Address::repeat_byte(1), ..agent() };
        for (header, verdict, code, problem) in [
            ("*".to_owned(), plain.clone(), NO_CODE, "header"),
            // Two headers arrive as one value.
            (format!("{valid}, {valid}"), plain.clone(), NO_CODE, "header"),
            (acceptance(|a| a.chain_id = 6).to_header(), plain.clone(), NO_CODE, "chainId"),
            (acceptance(|a| a.agent_wallet = REGISTRY).to_header(), plain.clone(), NO_CODE, "agentWallet"),
            (acceptance(|a| a.not_before = NOW + 61).to_header(), plain.clone(), NO_CODE, "time"),
            (valid.clone(), self::verdict(Some(agent()), NOW - 200), NO_CODE, "time"),
            (valid.clone(), self::verdict(Some(other), NOW), NO_CODE, "creator"),
            (valid.clone(), self::verdict(None, NOW), NO_CODE, "agentId"),
            // A wallet with code is called, and its signature is never recovered.
            (valid.clone(), plain.clone(), code(false), "signature"),
            (acceptance(|_| {}).to_header().replace('A', "B"), plain.clone(), NO_CODE, "header"),
        ] {
            let judged = judge(&read(&header), &verdict, code);
            let expected = verdict.replacen('{', &format!("{{\"acceptanceProblem\":\"{problem}\","), 1);
            assert_eq!((judged.body, judged.not_after), (expected, None), "{header}");
        }
        let (wallet, now) = (agent().agent_wallet, Timestamp::from_seconds(NOW));
        let unknown_chain = PresentedAcceptance::read(&valid, (None, REGISTRY), wallet, now);
        assert_eq!((unknown_chain.signer(), read("*").signer()), (None, None), "nothing is read for it");
    }
}
