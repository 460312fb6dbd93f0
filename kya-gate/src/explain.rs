//! `check --explain WALLET`: the findings of each rule of each policy on one wallet's agent.

use std::{fmt::Write as _, sync::Arc};

use alloy_primitives::Address;
use anyhow::anyhow;
use registry_core::{
    chain::SignerQuery,
    eth::timestamp::Timestamp,
    gate::{DomainWord, PolicyRule, RoutePolicy, Verdict},
    liability::{Acceptance, Basis},
};

use crate::{check::Sources, http::now, kya::ReadCause, settings::Settings};

/// Returns the findings, a line for each rule. Only acceptances in domains' files are known: requests may
/// present others. Errors: if there is no verdict, or the chain does not answer about attestations.
pub async fn run(settings: &Settings, sources: &Sources, wallet: Address) -> anyhow::Result<String> {
    let Sources { accounts, domains, .. } = sources;
    let now = now();
    let read = Arc::new(accounts.verdict_now(wallet, now).await.map_err(|error| anyhow!(error))?);
    let mut text = String::new();
    for (name, policy) in &settings.policies {
        let (verdict, listed) = domains.told(&policy.agents, Some(Arc::clone(&read)), now);
        let mut verdict = verdict.as_ref().map_or_else(|| Verdict::clone(&read), |told| Verdict::clone(told));
        let mut problem = None;
        for listed in listed.into_iter().rev().filter(|_| policy.agents.counts(Basis::Accepted)) {
            match accepted(&verdict, listed, wallet, policy, sources, now).await {
                Ok(accepted) => {
                    (verdict, problem) = (accepted, None);
                    break;
                }
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        if let Some(query) = policy.attested_query(&verdict, now)
            && let attested = accounts.attested(&query, ReadCause::Operator, now).await
            && let Some(at) = attested.map_err(|error| anyhow!(error))?
        {
            verdict = verdict.attested(at, now);
        }
        let principals = &policy.rules.principals;
        let is_served = principals.is_empty() || principals.contains(&wallet);
        let denial = policy.agents.judge(&verdict, now).err().map(|denial| denial.code());
        let outcome = if is_served { denial } else { Some("principal_not_allowed") };
        let outcome = outcome.map_or_else(|| "served".to_owned(), |code| format!("refused, {code}"));
        let observed = if policy.observe { ", but only observed" } else { "" };
        writeln!(text, "policy.{name}: {wallet} is {outcome}{observed}")?;
        let mut say = |holds: bool, rule: &str, found: &str| {
            let mark = if holds { '✓' } else { '✗' };
            writeln!(text, "  {mark} {rule}: {found}")
        };
        say(
            is_served,
            "wallets",
            if principals.is_empty() { "all are served" } else { "names those that are served" },
        )?;
        for (rule, holds) in policy.agents.findings(&verdict, now) {
            say(holds, rule.settings(), &found(rule, &verdict, problem.as_deref()))?;
        }
    }
    Ok(text)
}

/// Returns the verdict with an acceptance of a domain's file. Errors: the reason why it does not hold.
async fn accepted(
    verdict: &Verdict,
    acceptance: Acceptance,
    wallet: Address,
    policy: &RoutePolicy,
    Sources { accounts, domains, .. }: &Sources,
    now: Timestamp,
) -> Result<Verdict, String> {
    let scope_hash =
        verdict.check_acceptance(&acceptance, wallet, policy, now).map_err(|error| error.to_string())?;
    let query = SignerQuery::of(&acceptance, scope_hash, verdict.as_of.block_number);
    if domains.has_withdrawn(&query) {
        return Err("withdrawn".to_owned());
    }
    let code = accounts
        .signer(query, ReadCause::Operator, now)
        .await
        .ok_or("the chain does not say whether the liable wallet has code")?;
    code.check(&acceptance, scope_hash).map_err(|error| error.to_string())?;
    Ok(verdict.accepted(acceptance))
}

/// Describes the fact that a rule is about.
fn found(rule: PolicyRule, verdict: &Verdict, problem: Option<&str>) -> String {
    let Some(agent) = &verdict.agent else {
        return format!("{:?} at block {}, and no agent", verdict.decision, verdict.as_of.block_number);
    };
    match rule {
        PolicyRule::Decision => format!("{:?} at block {}", verdict.decision, verdict.as_of.block_number),
        PolicyRule::Creator => format!("the creator of agent {} is {}", agent.id, agent.creator),
        PolicyRule::Remaining => match verdict.compliant_until {
            Some(until) => format!("the attestation is current until {until}"),
            None => "no attestation that lapses".to_owned(),
        },
        PolicyRule::Basis => {
            let since = match (agent.basis, agent.attested_at, &agent.acceptance) {
                (Basis::Attested, Some(at), _) => format!(" at {at}"),
                (Basis::Accepted, _, Some(acceptance)) => {
                    format!(" until {} by its domain's file", Timestamp::from_seconds(acceptance.not_after))
                }
                _ => String::new(),
            };
            let problem = problem
                .map(|problem| format!("; the acceptance of its domain's file does not hold: {problem}"));
            format!("the basis is {}{since}{}", agent.basis.name(), problem.unwrap_or_default())
        }
        PolicyRule::Liable => {
            let word = match agent.domains {
                DomainWord::Silent => "",
                DomainWord::Named => ": its domain is among liable.domains",
                DomainWord::Disowned => ": its domain says that the agent is not its own",
            };
            format!("the liable wallet is {}{word}", agent.liable)
        }
    }
}
