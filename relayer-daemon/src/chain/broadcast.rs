//! Sending a transaction to every endpoint: the first acceptance decides, the others finish in the background.
//!
//! ```text
//! send to all that do not rest ──▶ first acceptance ──────────────────────────▶ Accepted
//!                             └──▶ another verdict, then GRACE for a better one ──▶ the best of them
//! ```
//!
//! A send that nobody waits for any more goes on by itself. At shutdown [`Rpc::finish_broadcasts`] gives it a moment;
//! whatever is cut off then is in the store, and the next start sends it again.

use std::time::Duration;

use futures_util::{StreamExt as _, future::join_all, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use super::rpc::{Fault, Rpc};
use crate::classify::{self, Verdict};

/// How long a verdict other than acceptance waits for another endpoint's acceptance.
const GRACE: Duration = Duration::from_secs(1);

impl Rpc {
    /// Sends a signed transaction to every endpoint at once, and says what became of it, with the node's words.
    pub async fn broadcast(&self, raw: &[u8]) -> (Verdict, String) {
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

        let mut heard: Vec<(Verdict, String)> = Vec::new();
        let mut decided_at: Option<Instant> = None;
        loop {
            let answer = tokio::select! {
                biased;
                answer = sends.next() => answer,
                () = sleep_until(decided_at.unwrap_or_else(Instant::now)), if decided_at.is_some() => None,
            };
            match answer {
                Some(Ok((Verdict::Accepted, text))) => return (Verdict::Accepted, text),
                Some(Ok(answer)) => {
                    if answer.0 != Verdict::Unknown {
                        decided_at.get_or_insert_with(|| Instant::now() + GRACE);
                    }
                    heard.push(answer);
                }
                // A task that died has said nothing.
                Some(Err(_)) => {}
                None => break,
            }
        }
        let verdict = classify::combine(heard.iter().map(|(verdict, _)| *verdict));
        let text = heard.into_iter().find(|(found, _)| *found == verdict).map(|(_, text)| text);
        (verdict, text.unwrap_or_else(|| "every endpoint is busy".to_owned()))
    }

    /// Waits at most `within` for sends that go on in the background. Returns how many are cut off.
    pub async fn finish_broadcasts(&self, within: Duration) -> usize {
        let all = join_all(self.endpoints().iter().map(super::endpoint::Endpoint::all_answered));
        match timeout(within, all).await {
            Ok(_) => 0,
            Err(_) => self.endpoints().iter().map(super::endpoint::Endpoint::unanswered).sum(),
        }
    }

    async fn send(&self, index: usize, params: &Value) -> (Verdict, String) {
        match self.ask(index, "eth_sendRawTransaction", params).await {
            Ok(_) => (Verdict::Accepted, "accepted".to_owned()),
            Err(Fault::Transport(error)) => (Verdict::Unknown, error.to_string()),
            Err(Fault::Node(error)) => (classify::send_error(&error), error.message.into_owned()),
        }
    }
}
