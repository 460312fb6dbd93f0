//! The Worker that the objects belong to. It sets stalled alarms again, and serves no requests: the objects
//! are reached through the binding.

use edge_shared::{index::IndexObject, settings::WorkerSettings};
use registry_core::index::protocol::IndexQuestion;
use worker::{Context, Env, Request, Response, Result, ScheduleContext, ScheduledEvent, console_warn, event};

#[event(fetch)]
async fn fetch(_request: Request, _env: Env, _context: Context) -> Result<Response> {
    Response::error("Not found", 404)
}

/// Sets the alarm again: alarms have been seen to stall.
#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    let Ok(settings) = WorkerSettings::of(&env) else { return };
    // Without an index the object is not woken: that would be billed.
    let Some(index) = IndexObject::of(&settings, &env) else { return };
    if let Err(error) = index.ask(IndexQuestion::Tick).await {
        console_warn!("index not looked after: {error}");
    }
}
