//! `ctl export`: relays that have ended, a line each.

use std::{io::Write as _, process::ExitCode, sync::Arc};

use crate::store::{
    Store,
    control::{ExportFormat, ExportedRelay, Order},
};

/// Writes the relays to standard output, in the order of their ends.
pub(super) async fn run(store: &Arc<Store>, since: u64, format: ExportFormat) -> anyhow::Result<ExitCode> {
    let operator = super::own_operator();
    store.run(move |store| store.order(Order::Export { since, format }, &operator)).await?;
    let mut out = std::io::stdout();
    if format == ExportFormat::Csv {
        writeln!(out, "{}", ExportedRelay::CSV_HEADER)?;
    }
    let mut after = None;
    loop {
        let relays = store.run(move |store| store.ended_relays(since, after)).await?;
        let Some(last) = relays.last() else { break };
        after = Some((last.ended_at, last.relay));
        for relay in &relays {
            match format {
                ExportFormat::Csv => writeln!(out, "{}", relay.csv())?,
                ExportFormat::Jsonl => writeln!(out, "{}", serde_json::to_string(relay)?)?,
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
