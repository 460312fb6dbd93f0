//! `check --explain WALLET`: what each rule of each policy finds of one wallet's agent.

use std::{fmt::Write as _, sync::Arc};

use alloy_primitives::Address;
use anyhow::anyhow;
use registry_core::{
    chain::SignerQuery,
    eth::timestamp::Timestamp,
    gate::{DomainWord, RoutePolicy, Verdict},
    liability::{Acceptance, Basis},
};

use crate::{domains::Domains, http::now, kya::AccountReader, metrics::Metrics, settings::Settings};

/// The findings, a line for each rule. An acceptance is known where a domain's file has it: requests present others.
///
/// # Errors
/// If there is no verdict, or no HTTP client can be built.
pub async fn run(settings: &Settings, wallet: Address) -> anyhow::Result<String> {
    let (metrics, now) = (Metrics::new()?, now());
    let accounts = Arc::new(AccountReader::new(settings, metrics.clone())?);
    let domains = Domains::new(settings, Arc::clone(&accounts), metrics)?;
    domains.refresh(now).await;
    let read = Arc::new(accounts.verdict_now(wallet, now).await.map_err(|error| anyhow!(error))?);
    let mut text = String::new();
    for (name, policy) in &settings.policies {
        let (verdict, listed) = domains.told(&policy.agents, Some(Arc::clone(&read)), now);
        let mut verdict = verdict.as_ref().map_or_else(|| Verdict::clone(&read), |told| Verdict::clone(told));
        let mut problem = None;
        if let Some(listed) = listed {
            match accepted(&verdict, listed, wallet, policy, &domains, &accounts, now).await {
                Ok(accepted) => verdict = accepted,
                Err(error) => problem = Some(error),
            }
        }
        if let Some(query) = policy.attested_query(&verdict, now)
            && let Some(at) = accounts.attested(&query, now).await
        {
            verdict = verdict.attested(at);
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
        for (rule, _, holds) in policy.agents.findings(&verdict, now) {
            say(holds, rule, &found(rule, &verdict, problem.as_deref()))?;
        }
    }
    Ok(text)
}

/// The verdict on an agent that an acceptance of a domain's file makes accepted, or why it does not.
async fn accepted(
    verdict: &Verdict,
    acceptance: Acceptance,
    wallet: Address,
    policy: &RoutePolicy,
    domains: &Domains,
    accounts: &AccountReader,
    now: Timestamp,
) -> Result<Verdict, String> {
    let scope_hash =
        verdict.check_acceptance(&acceptance, wallet, policy, now).map_err(|error| error.to_string())?;
    let query = SignerQuery::of(&acceptance, scope_hash, verdict.as_of.block_number);
    if domains.has_withdrawn(&query) {
        return Err("withdrawn".to_owned());
    }
    let code = accounts
        .signer(query, now)
        .await
        .ok_or("the chain does not say whether the liable wallet has code")?;
    code.check(&acceptance, scope_hash).map_err(|error| error.to_string())?;
    Ok(verdict.accepted(acceptance))
}

/// What a rule is about, as it was found.
fn found(rule: &str, verdict: &Verdict, problem: Option<&str>) -> String {
    let Some(agent) = &verdict.agent else {
        return format!("{:?} at block {}, and no agent", verdict.decision, verdict.as_of.block_number);
    };
    match rule.split_once('.').map_or(rule, |(table, _)| table) {
        "allow" => format!("{:?} at block {}", verdict.decision, verdict.as_of.block_number),
        "creators" => format!("the creator of agent {} is {}", agent.id, agent.creator),
        "remaining-seconds" => match verdict.compliant_until {
            Some(until) => format!("the attestation is current until {until}"),
            None => "no attestation that lapses".to_owned(),
        },
        _ if rule.contains("basis") => {
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
        _ => {
            let word = match agent.domains {
                DomainWord::Silent => "",
                DomainWord::Named => ", whose domain is among liable.domains",
                DomainWord::Disowned => ", whose domain says that the agent is not its own",
            };
            format!("the liable wallet is {}{word}", agent.liable)
        }
    }
}
