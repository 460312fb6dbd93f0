//! One line of JSON per request, for the operator. It names no client and no wallet: the route stands for the
//! path.

use worker::{console_log, js_sys::Math};

/// The longest request id that is accepted from a client.
const LONGEST_ID: usize = 64;

/// Log record of a request, filled until it is answered.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// `X-Request-Id`.
    pub(crate) id: String,
    /// Cloudflare's id of the request, which no client chooses; empty where there is none.
    pub(crate) ray: String,
    pub(crate) method: String,
    /// The route, parameters by name; `none` where there is no such route.
    pub(crate) route: &'static str,
    /// `HIT` or `MISS` where the request was answered from the cache or the chain; `RENEWAL` for a read in
    /// the background of another request.
    pub(crate) cache: &'static str,
    /// Requests sent to RPC endpoints.
    pub(crate) rpc_calls: u32,
    /// Source of a verdict: `snapshot` or `chain`.
    pub(crate) source: &'static str,
    /// The code of the error in the response.
    pub(crate) error: &'static str,
    /// Time of arrival, unix milliseconds.
    pub(crate) started_at: u64,
}

impl Record {
    /// Creates the record of a request that just came in.
    pub(crate) const fn begin(id: String, ray: String, method: String, started_at: u64) -> Self {
        Self { id, ray, method, route: "none", cache: "", rpc_calls: 0, source: "", error: "", started_at }
    }

    /// Writes the line. The clock of a Worker stands still while it computes: the milliseconds are those
    /// spent waiting.
    pub(crate) fn write(&self, status: u16, now: u64) {
        // Nothing here needs escaping: methods are tokens, ids are checked, the rest is ours.
        console_log!(
            r#"{{"requestId":"{}","ray":"{}","method":"{}","route":"{}","status":{status},"error":"{}","cache":"{}","source":"{}","rpcCalls":{},"ms":{}}}"#,
            self.id,
            self.ray,
            self.method,
            self.route,
            self.error,
            self.cache,
            self.source,
            self.rpc_calls,
            now.saturating_sub(self.started_at),
        );
    }
}

/// Returns the client's request id if it is a plain one, else Cloudflare's, else a random one.
pub(crate) fn request_id(header: impl Fn(&str) -> Option<String>) -> String {
    // An id need not be hard to guess. 2^52: as many random bits as a double has.
    let random = || format!("{:013x}", (Math::random() * (1_u64 << 52) as f64) as u64);
    let plain = |name| header(name).filter(|id| is_plain(id));
    plain("X-Request-Id").or_else(|| plain("CF-Ray")).unwrap_or_else(random)
}

/// Returns Cloudflare's id of a request; empty where there is none.
pub(crate) fn ray(header: impl Fn(&str) -> Option<String>) -> String {
    header("CF-Ray").filter(|id| is_plain(id)).unwrap_or_default()
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_id_is_taken_over_and_no_other() {
        let id = |header: &str| {
            request_id(|name| Some(if name == "CF-Ray" { "ray-1" } else { header }.to_owned()))
        };
        assert_eq!(id("trace-17.a_b:c"), "trace-17.a_b:c");
        for odd in ["", "a b", "\"quoted\"", "<script>", "é", &"x".repeat(65)] {
            assert_eq!(id(odd), "ray-1", "{odd}");
        }
    }
}
