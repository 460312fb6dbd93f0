//! `ctl export`: relays that have ended, a line each.

use std::{process::ExitCode, sync::Arc};

use host_kit::print;

use crate::store::{
    Store,
    control::{ExportFormat, ExportedRelay, Order},
};

/// Writes the relays to standard output, in the order of their ends.
pub(super) async fn run(store: &Arc<Store>, since: u64, format: ExportFormat) -> anyhow::Result<ExitCode> {
    let operator = super::own_operator();
    store.run(move |store| store.order(Order::Export { since, format }, &operator)).await?;
    if format == ExportFormat::Csv {
        print(format_args!("{}\n", ExportedRelay::CSV_HEADER))?;
    }
    let mut after = None;
    loop {
        let relays = store.run(move |store| store.ended_relays(since, after)).await?;
        let Some(last) = relays.last() else { break };
        after = Some((last.ended_at, last.relay));
        for relay in &relays {
            let line = match format {
                ExportFormat::Csv => relay.csv(),
                ExportFormat::Jsonl => serde_json::to_string(relay)?,
            };
            if !print(format_args!("{line}\n"))? {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
