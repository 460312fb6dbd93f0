//! Broadcasts to every endpoint: the first acceptance decides, the other sends go on in the background.
//!
//! ```text
//! send to all not resting ──▶ first acceptance ──────────────────────────▶ Accepted
//!                        └──▶ another verdict, then GRACE for a better one ──▶ the best of them
//! ```
//!
//! At shutdown [`Rpc::finish_broadcasts`] gives sends in the background a moment; what it cuts off is in
//! the store, and the next start sends it again.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::{BroadcastVerdict, Rpc, RpcError, broadcast_verdict, endpoint::EndpointState};

/// Time that a verdict other than acceptance waits for another endpoint's acceptance.
const GRACE: Duration = Duration::from_secs(1);

impl Rpc {
    /// Sends a signed transaction to every endpoint. Returns the verdict, and a node's message for the log.
    pub async fn broadcast(&self, raw: &[u8]) -> (BroadcastVerdict, String) {
        let params = json!([alloy::hex::encode_prefixed(raw)]);
        let mut sends: FuturesUnordered<_> = self
            .awake()
            .into_iter()
            .filter_map(|index| {
                let permit = self.endpoint(index)?.start_send()?;
                let (rpc, params) = (self.clone(), params.clone());
                Some(tokio::spawn(async move {
                    let answer = rpc.send(index, &params).await;
                    drop(permit);
                    answer
                }))
            })
            .collect();

        let mut heard: Vec<(BroadcastVerdict, String)> = Vec::new();
        let mut decided_at: Option<Instant> = None;
        loop {
            let answer = tokio::select! {
                biased;
                answer = sends.next() => answer,
                () = sleep_until(decided_at.unwrap_or_else(Instant::now)), if decided_at.is_some() => None,
            };
            match answer {
                Some(Ok((BroadcastVerdict::Accepted, text))) => return (BroadcastVerdict::Accepted, text),
                Some(Ok(answer)) => {
                    if answer.0 != BroadcastVerdict::Unknown {
                        decided_at.get_or_insert_with(|| Instant::now() + GRACE);
                    }
                    heard.push(answer);
                }
                // A task that panicked has no verdict.
                Some(Err(_)) => {}
                None => break,
            }
        }
        let verdict = broadcast_verdict::combine(heard.iter().map(|(verdict, _)| *verdict));
        let text = heard.into_iter().find(|(found, _)| *found == verdict).map(|(_, text)| text);
        (verdict, text.unwrap_or_else(|| "every endpoint is busy".to_owned()))
    }

    /// Waits at most `within` for sends in the background. Returns how many are cut off.
    pub async fn finish_broadcasts(&self, within: Duration) -> usize {
        let all = join_all(self.endpoints().iter().map(EndpointState::all_answered));
        match timeout(within, all).await {
            Ok(_) => 0,
            Err(_) => self.endpoints().iter().map(EndpointState::unanswered).sum(),
        }
    }

    async fn send(&self, index: usize, params: &Value) -> (BroadcastVerdict, String) {
        match self.ask(index, "eth_sendRawTransaction", params).await {
            Ok(_) => (BroadcastVerdict::Accepted, "accepted".to_owned()),
            Err(RpcError::Node(error)) => (broadcast_verdict::send_error(&error), error.message.into_owned()),
            Err(error) => (BroadcastVerdict::Unknown, error.to_string()),
        }
    }
}
