//! Alert rules and dashboards of a daemon's `ops` folder, compared with its metrics.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::repo;

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

/// Returns the metrics with this prefix, labels and values that an expression names and `metrics` lacks.
pub fn unknown(expression: &str, metrics: &str, prefix: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = expression.split(|c| !is_word(c)).filter(|word| word.starts_with(prefix));
    let (mut unknown, mut samples) = (Vec::new(), String::new());
    for name in names {
        let found = metrics.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        let found: Vec<&str> = found.collect();
        samples.push_str(&found.join("\n"));
        unknown.extend(found.is_empty().then(|| name.to_owned()));
    }
    // Values of `status` appear as they occur; the other labels have closed sets of values.
    let has = |label: &str, value: &str| {
        let value = if label == "status" { "" } else { value };
        let is_sample = |before| samples.contains(&format!("{before}{label}=\"{value}"));
        ADDED.contains(&label) || is_sample('{') || is_sample(',')
    };
    let grouped = expression.split(" by (").skip(1).filter_map(|rest| rest.split(')').next());
    let grouped = grouped.flat_map(|labels| labels.split(", ")).filter(|label| !has(label, ""));
    unknown.extend(grouped.map(|label| format!("by {label}")));
    for matcher in expression.split('"').collect::<Vec<_>>().chunks_exact(2) {
        let label = matcher[0].trim_end_matches(['=', '!', '~']).rsplit(|c| !is_word(c)).next();
        let label = label.unwrap_or_default();
        let values = matcher[1].split('|').filter(|value| !has(label, &format!("{value}\"")));
        unknown.extend(values.map(|value| format!("{label}={value}")));
    }
    unknown
}

/// Returns the expressions of a daemon's alerts and dashboard.
pub fn expressions(daemon: &str) -> Result<Vec<String>> {
    let ops = |file: &str| fs::read_to_string(repo::root().join(daemon).join("ops").join(file));
    let alerts = ops("alerts.yaml")?;
    let alerts = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned));
    let dashboard: Value = serde_json::from_str(&ops("dashboard.json")?)?;
    let list = |value: &Value| value.as_array().cloned().context("a list");
    let mut shown = Vec::new();
    for panel in list(&dashboard["panels"])? {
        shown.extend(list(&panel["targets"])?.into_iter().map(|target| target["expr"].clone()));
    }
    shown.extend(list(&dashboard["templating"]["list"])?.into_iter().map(|each| each["query"].clone()));
    Ok(alerts.chain(shown.iter().filter_map(Value::as_str).map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a PromQL duration of one unit; returns seconds.
    fn seconds(duration: &str) -> u64 {
        let (number, unit) = duration.split_at(duration.len() - 1);
        let unit = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            other => panic!("{other} of {duration}"),
        };
        number.parse::<u64>().unwrap() * unit
    }

    #[test]
    fn a_single_event_is_in_its_window_for_longer_than_its_alert_waits() {
        let mut compared = 0;
        for daemon in ["kya-gate", "relayer-daemon"] {
            let alerts = fs::read_to_string(repo::root().join(daemon).join("ops/alerts.yaml")).unwrap();
            for rule in alerts.split("- alert: ").skip(1) {
                let field =
                    |name: &str| rule.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
                let Some(counted) = field("expr:").filter(|expr| expr.contains("increase(")) else {
                    continue;
                };
                let Some(counted) = counted.strip_suffix(" > 0") else { continue };
                let window = counted.split_once('[').unwrap().1.split_once(']').unwrap().0;
                // Prometheus evaluates it at least once a minute.
                let waits = seconds(field("for:").unwrap_or("0s")) + 60;
                assert!(waits < seconds(window), "{rule}");
                compared += 1;
            }
        }
        assert!(compared >= 6, "only {compared} rules: what was read?");
    }
}
