//! `eth_getLogs` as a [`Node`] answers it.

use alloy_sol_types::SolEvent as _;
use registry_core::eth::abi::IAgentRegistry::ComplianceAttested;

use super::range_of;
use crate::common::prelude::*;

impl Node {
    pub(super) fn logs(&self, filter: &Value) -> Result<Value, Value> {
        assert_eq!(filter["address"], format!("{REGISTRY:#x}"));
        let [from, to] = range_of(filter);
        let refusal = |code: i64, message: String| {
            let hint = format!("{message}. Try with this block range [{from:#x}, {to:#x}].");
            Err(json!({"code": code, "message": hint}))
        };
        if self.quirks.logs_behind && to >= self.block {
            return refusal(-32602, "block range extends beyond current head block".into());
        }
        let first = match self.quirks.logs {
            Logs::Unsupported => {
                return refusal(-32601, "the method eth_getLogs does not exist/is not available".into());
            }
            Logs::Blocks(most) if to - from + 1 > most => {
                if let Some((code, message)) = self.quirks.range_refusal {
                    return Err(json!({"code": code, "message": message}));
                }
                return refusal(-32005, format!("query exceeds max block range {most}"));
            }
            Logs::Empty => u64::MAX,
            Logs::From(first) => first,
            _ => 0,
        };
        let listed = from.max(first)..=to.min(self.block.saturating_sub(self.quirks.late_logs));
        let mut logs: Vec<Value> = Vec::new();
        if !listed.is_empty() {
            for (number, mined) in self.chain.range(listed.clone()) {
                // Each log has the event that is asked for.
                let asked = &filter["topics"][0][0];
                let event = |id: &u64| match asked.is_null() {
                    true => json!(self.event_of(*number, *id)),
                    false => asked.clone(),
                };
                let of = |id: &u64| (*id > 0).then(|| json!(B256::from(U256::from(*id))));
                let by = |id: &u64| self.made_by(*number, *id).map(|by| json!(by.into_word()));
                let topics = |id| [event(id)].into_iter().chain(of(id)).chain(by(id)).collect();
                let data = |id: &u64| match self.event_of(*number, *id) {
                    ComplianceAttested::SIGNATURE_HASH => json!(B256::from(U256::from(mined.seconds))),
                    _ => json!("0x"),
                };
                let log = |(index, id)| self.event(*number, index, &[topics(id), data(id)]);
                logs.extend((0..).zip(&mined.events).map(log));
            }
        }
        let is_asked = |log: &Value, position: usize| {
            let any = filter["topics"][position].as_array();
            any.is_none_or(|any| any.contains(&log["topics"][position]))
        };
        let emitted = self.emitted.iter().filter(|(number, _)| listed.contains(number)).map(|(_, log)| log);
        logs.extend(emitted.filter(|log| is_asked(log, 0) && is_asked(log, 1)).cloned());
        if self.quirks.doubles_logs {
            logs.extend(logs.clone());
        }
        if let Logs::Results(most) = self.quirks.logs
            && logs.len() > most
        {
            return refusal(-32602, format!("query returned more than {most} results"));
        }
        for log in &mut logs {
            if !self.quirks.times_logs {
                log.as_object_mut().unwrap().remove("blockTimestamp");
            }
            self.quirks.changes_logs.iter().for_each(|change| change(log));
        }
        Ok(logs.into())
    }
}
