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
    /// Time of the report.
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
    /// Number of reports by the agent.
    pub total: usize,
    /// Number of reports before `data`.
    pub offset: u64,
    /// The most reports in `data`.
    pub limit: u64,
    /// The reports, oldest first.
    pub data: Vec<RevenueRecord>,
}

impl RevenueHistory {
    /// Returns at most `limit` of the agent's `reports` from `offset` on.
    pub fn of(reports: &[RevenueReport], offset: u64, limit: u64) -> Self {
        let data = page::slice(reports, u128::from(offset), limit).iter().map(RevenueRecord::from).collect();
        Self { total: reports.len(), offset, limit, data }
    }
}

/// The most currencies, and the most categories, with a sum of their own: both are free text of the agents.
pub const KEYS_MAX: usize = 100;

/// The largest amounts by text, and the sum of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Largest {
    /// Sorted by descending amount, then by text: the last one is the first to leave.
    largest: Vec<(Total, String)>,
    /// The sum of all others; `None` if there are none.
    others: Option<Total>,
}

impl Largest {
    /// Adds a text with its whole amount.
    pub(crate) fn add(&mut self, text: String, amount: Total) {
        let precedes = |(known, of): &(Total, String)| *known > amount || (*known == amount && *of < text);
        let place = self.largest.partition_point(precedes);
        self.largest.insert(place, (amount, text));
        if self.largest.len() > KEYS_MAX
            && let Some((amount, _)) = self.largest.pop()
        {
            self.others = Some(self.others.unwrap_or_default().saturating_add(amount));
        }
    }

    /// Returns the amounts by text, and the sum of all others.
    pub(crate) fn into_sums(self) -> (BTreeMap<String, Total>, Option<Total>) {
        let mut sums = BTreeMap::<String, Total>::new();
        for (amount, text) in self.largest {
            *sums.entry(text).or_default() = amount;
        }
        (sums, self.others)
    }

    /// Finds the largest of these amounts.
    pub(crate) fn of(sums: &BTreeMap<String, Total>) -> Self {
        let mut largest = Self::default();
        sums.iter().for_each(|(text, amount)| largest.add(text.clone(), *amount));
        largest
    }
}

/// The sums of all revenue (`service.md` section 2): the answer of `/revenue/aggregate`. Amounts are in
/// cents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RevenueAggregate {
    /// Number of reports by all agents.
    pub total_reports: u64,
    /// The sum of all amounts of all currencies.
    #[serde(with = "json::Integer")]
    pub total_amount: Total,
    /// Amounts by currency: the hundred largest.
    #[serde(with = "json::IntegersByKey")]
    pub by_currency: BTreeMap<String, Total>,
    /// The sum of the amounts in all other currencies. Absent where there are none.
    #[serde(with = "json::OptionalInteger", skip_serializing_if = "Option::is_none")]
    pub other_currencies: Option<Total>,
    /// Amounts by category: the hundred largest.
    #[serde(with = "json::IntegersByKey")]
    pub by_category: BTreeMap<String, Total>,
    /// The sum of the amounts in all other categories. Absent where there are none.
    #[serde(with = "json::OptionalInteger", skip_serializing_if = "Option::is_none")]
    pub other_categories: Option<Total>,
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

    /// Returns the answer: the largest sums, with these agents as unreadable.
    pub(crate) fn shown(&self, unreadable: Vec<AgentId>) -> Self {
        let (by_currency, other_currencies) = Largest::of(&self.by_currency).into_sums();
        let (by_category, other_categories) = Largest::of(&self.by_category).into_sums();
        let Self { total_reports, total_amount, .. } = *self;
        Self {
            total_reports,
            total_amount,
            by_currency,
            other_currencies,
            by_category,
            other_categories,
            unreadable,
        }
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

    #[test]
    fn the_hundred_largest_sums_are_stated_and_the_others_together() {
        let reports: Vec<_> = (1..=150_u64)
            .map(|number| report(U256::from(number % 75 + 1), &format!("c{number:03}"), "other"))
            .collect();
        let shown = RevenueAggregate::of(&reports).shown(Vec::new());
        assert_eq!(shown.by_currency.len(), KEYS_MAX);
        // Amounts of 26 to 75 are stated, each twice; those of 1 to 25 are not.
        assert!(shown.by_currency.values().all(|amount| *amount > Total::from(25)));
        assert_eq!(shown.other_currencies, Some(Total::from(2 * 25 * 26 / 2)));
        // A category of that name is a key like any other.
        assert_eq!((shown.by_category["other"], shown.other_categories), (shown.total_amount, None));
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!((&json["otherCurrencies"], json.get("otherCategories")), (&650.into(), None));
        // Of equal sums, those with the first texts are stated.
        let equal = (1..=101).rev().map(|number| report(U256::from(7), &format!("c{number:03}"), "a"));
        let shown = RevenueAggregate::of(&equal.collect::<Vec<_>>()).shown(Vec::new());
        assert_eq!(shown.by_currency.keys().last().unwrap(), "c100");
        assert_eq!(shown.other_currencies, Some(Total::from(7)));
    }
}
