//! Revenue reports of agents, as lists and as sums.

use std::collections::BTreeMap;

use alloy_primitives::{U256, Uint};
use serde::Serialize;

use crate::{
    eth::abi::RevenueReport, eth::json, eth::timestamp::Timestamp, registry::agent::AgentId, registry::page,
};

/// A sum of amounts, 64 bits wider than an amount: a report of `2^256 - 1` must not overflow the totals of
/// other agents.
pub type Total = Uint<320, 5>;

/// One report of revenue (`service.md` section 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevenueRecord {
    /// The amount in cents of the currency.
    #[serde(with = "json::Integer")]
    pub amount: U256,
    /// The currency, in the reporter's own words.
    pub currency: String,
    /// The kind of revenue, in the reporter's own words.
    pub category: String,
    /// The start of the reported period, as the reporter gives it.
    pub period_start: Timestamp,
    /// The end of the reported period, as the reporter gives it.
    pub period_end: Timestamp,
    /// When it was reported.
    pub reported_at: Timestamp,
}

impl From<&RevenueReport> for RevenueRecord {
    fn from(report: &RevenueReport) -> Self {
        Self {
            amount: report.amount,
            currency: report.currency.clone(),
            category: report.category.clone(),
            period_start: Timestamp::from_seconds(report.periodStart),
            period_end: Timestamp::from_seconds(report.periodEnd),
            reported_at: Timestamp::from_seconds(report.reportedAt),
        }
    }
}

/// The answer of `/agent/:id/revenue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RevenueHistory {
    /// How many reports the agent made.
    pub total: usize,
    /// How many reports come before `data`.
    pub offset: u64,
    /// The most reports in `data`.
    pub limit: u64,
    /// The reports, oldest first.
    pub data: Vec<RevenueRecord>,
}

impl RevenueHistory {
    /// At most `limit` of the agent's `reports` from `offset` on.
    pub fn of(reports: &[RevenueReport], offset: u64, limit: u64) -> Self {
        let data = page::slice(reports, u128::from(offset), limit).iter().map(RevenueRecord::from).collect();
        Self { total: reports.len(), offset, limit, data }
    }
}

/// The sums of all revenue (`service.md` section 2): the answer of `/revenue/aggregate`. Amounts are in
/// cents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevenueAggregate {
    /// How many reports all agents made.
    pub total_reports: u64,
    /// The sum of all amounts of all currencies.
    #[serde(with = "json::Integer")]
    pub total_amount: Total,
    /// Amounts by currency.
    #[serde(with = "json::IntegersByKey")]
    pub by_currency: BTreeMap<String, Total>,
    /// Amounts by category.
    #[serde(with = "json::IntegersByKey")]
    pub by_category: BTreeMap<String, Total>,
    /// Agents with too many reports to read, which are not in the sums. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl RevenueAggregate {
    /// Adds up reports of any number of agents.
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a RevenueReport>) -> Self {
        let mut sum = Self::default();
        reports.into_iter().for_each(|report| sum.add(report));
        sum
    }

    /// Adds one report.
    pub(crate) fn add(&mut self, report: &RevenueReport) {
        let amount = Total::from(report.amount);
        self.total_reports += 1;
        self.total_amount += amount;
        *self.by_currency.entry(report.currency.clone()).or_default() += amount;
        *self.by_category.entry(report.category.clone()).or_default() += amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn report(amount: U256, currency: &str, category: &str) -> RevenueReport {
        RevenueReport {
            agentId: U256::from(1),
            amount,
            currency: currency.into(),
            category: category.into(),
            periodStart: 0,
            periodEnd: u64::MAX,
            reportedAt: 5,
        }
    }

    #[test]
    fn the_largest_amounts_add_up_exactly() {
        let aggregate = RevenueAggregate::of(&[report(U256::MAX, "EUR", "a"), report(U256::MAX, "EUR", "b")]);
        let twice = "231584178474632390847141970017375815706539969331281128078915168015826259279870";
        assert_eq!(aggregate.by_currency["EUR"].to_string(), twice);
        let json = serde_json::to_string(&aggregate).unwrap();
        assert!(json.contains(&format!("\"totalAmount\":{twice},")), "{json}");
    }

    proptest! {
        #[test]
        fn both_breakdowns_add_up_to_the_total(reports in prop::collection::vec((any::<u64>(), 0u8..4, 0u8..4), 0..50)) {
            let reports: Vec<_> = reports.iter()
                .map(|(amount, currency, category)| report(U256::from(*amount), &currency.to_string(), &category.to_string()))
                .collect();
            let sum = RevenueAggregate::of(&reports);
            let add = |map: &BTreeMap<String, Total>| map.values().fold(Total::ZERO, |a, b| a + *b);
            prop_assert_eq!(add(&sum.by_currency), sum.total_amount);
            prop_assert_eq!(add(&sum.by_category), sum.total_amount);
            prop_assert_eq!(sum.total_reports as usize, reports.len());
        }
    }
}
