//! One line of JSON per request, for whoever runs the Worker. It names no client and no wallet: the route stands for the path.

use worker::{Date, Request, console_log, js_sys::Math};

/// The longest id taken over from a client.
const LONGEST_ID: usize = 64;

/// What is known of a request when it is answered.
pub(crate) struct Record {
    /// `X-Request-Id`.
    pub(crate) id: String,
    method: String,
    /// The route, parameters by name; `none` where there is no such route.
    pub(crate) route: &'static str,
    /// `HIT` or `MISS`, where there was a question.
    pub(crate) cache: &'static str,
    /// Requests sent to RPC endpoints.
    pub(crate) rpc_calls: u32,
    /// The code of the error answered with.
    pub(crate) error: &'static str,
    started_at: u64,
}

impl Record {
    /// A request that just came in.
    pub(crate) fn begin(request: &Request, method: &str) -> Self {
        Self {
            id: request_id(request),
            method: method.to_owned(),
            route: "none",
            cache: "",
            rpc_calls: 0,
            error: "",
            started_at: Date::now().as_millis(),
        }
    }

    /// Writes the line. Clocks stand still in a Worker while it only computes: the milliseconds are those spent waiting.
    pub(crate) fn write(&self, status: u16) {
        // Nothing here needs escaping: methods are tokens, ids are checked, the rest is ours.
        console_log!(
            r#"{{"requestId":"{}","method":"{}","route":"{}","status":{status},"error":"{}","cache":"{}","rpcCalls":{},"ms":{}}}"#,
            self.id,
            self.method,
            self.route,
            self.error,
            self.cache,
            self.rpc_calls,
            Date::now().as_millis().saturating_sub(self.started_at),
        );
    }
}

/// The client's own id where it sent a plain one, else Cloudflare's, else a random one.
fn request_id(request: &Request) -> String {
    let header = |name| {
        let id = request.headers().get(name).ok().flatten()?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        ((1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)).then_some(id)
    };
    // An id tells requests apart, and need not be hard to guess. 2^52: as many random bits as a double has.
    let random = || format!("{:013x}", (Math::random() * (1_u64 << 52) as f64) as u64);
    header("X-Request-Id").or_else(|| header("CF-Ray")).unwrap_or_else(random)
}
