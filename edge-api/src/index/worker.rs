//! The Worker that the objects belong to. It looks after their alarms, and answers nobody else than the Worker of the API, through the
//! binding.

use worker::{Context, Env, Request, Response, Result, ScheduleContext, ScheduledEvent, console_warn, event};

use super::{BINDING, TICK, send};
use crate::settings::Settings;

#[event(fetch)]
async fn fetch(_request: Request, _env: Env, _context: Context) -> Result<Response> {
    Response::error("Not found", 404)
}

/// Alarms have been seen to stall.
#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    let Ok(settings) = Settings::of(&env) else { return };
    let Ok(objects) = env.durable_object(BINDING) else { return };
    if let Err(error) = send(&objects, &settings, TICK).await {
        console_warn!("index not looked after: {error}");
    }
}
