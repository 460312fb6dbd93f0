//! A host with several nodes, each of which fails in its own ways, and with a clock that only the test moves.

use std::collections::{BTreeSet, VecDeque};

use alloy_primitives::Address;
use registry_core::{
    api::document::Document,
    api::error::Error,
    chain::{Batch, Endpoints, Failure, Limits, Query, QueryError, Reply, Run, RunError, Step},
    eth::multicall::CANONICAL_ADDRESS,
};
use serde_json::Value;

use super::{CHAIN_ID, Node, PlainRegistry, question, signature};

/// The outcome of one post.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// An answer after so many milliseconds.
    Slow(u32),
    Unreachable,
    Hangs,
    /// A reply beyond any size limit.
    Endless,
    /// An HTTP status with a page.
    Status(u16),
    /// Status 200, and a page.
    Html,
    /// The beginning of the right answer.
    HalfABody,
    /// The right answer to a request that was not made.
    WrongId,
    /// Of a batch's answers, the first alone and without its array.
    OneObject,
    /// One error object for the whole batch.
    Error(i64, &'static str),
}

/// An endpoint: a node, and the faults of the next posts to it. Later posts succeed.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) node: Node,
    pub(crate) faults: VecDeque<Fault>,
    pub(crate) posts: u32,
}

impl std::fmt::Debug for Upstream {
    /// All but the registry, which is the same everywhere.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Node { quirks, block, chain_id, head_age, .. } = &self.node;
        write!(f, "{{chain {chain_id}, block {block}, {head_age} s old, {quirks:?}, {:?}}}", self.faults)
    }
}

impl Upstream {
    pub(crate) fn good() -> Self {
        let mut node = Node::new(PlainRegistry::with_agents(12));
        node.quirks.signs_records = true;
        Self { node, faults: VecDeque::new(), posts: 0 }
    }

    pub(crate) fn failing(fault: Fault) -> Self {
        Self::with_faults(vec![fault; 100])
    }

    pub(crate) fn on_chain(chain_id: u64) -> Self {
        Self::with(|upstream| upstream.node.chain_id = chain_id)
    }

    /// A good upstream whose newest block is this.
    pub(crate) fn at_block(number: u64) -> Self {
        Self::with(|upstream| upstream.node.block = number)
    }

    /// An upstream whose first posts fail so, one after another.
    pub(crate) fn with_faults(faults: impl IntoIterator<Item = Fault>) -> Self {
        Self { faults: faults.into_iter().collect(), ..Self::good() }
    }

    /// A good upstream, changed.
    pub(crate) fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut upstream = Self::good();
        change(&mut upstream);
        upstream
    }

    /// The reply, and how many milliseconds it took: no more than it may.
    pub(crate) fn post(&mut self, batch: &Batch) -> (Result<(u16, Vec<u8>), Failure>, u32) {
        self.posts += 1;
        match self.reply(batch) {
            (_, took) if took >= batch.timeout_ms => (Err(Failure::TimedOut), batch.timeout_ms),
            in_time => in_time,
        }
    }

    pub(crate) fn reply(&mut self, batch: &Batch) -> (Result<(u16, Vec<u8>), Failure>, u32) {
        let fault = self.faults.pop_front().unwrap_or(Fault::Slow(10));
        let ok = |body: Vec<u8>| (Ok((200, body)), 10);
        match fault {
            Fault::Slow(time) => (Ok(self.node.post(batch)), time),
            Fault::Unreachable => (Err(Failure::Unreachable), 1),
            Fault::Hangs => (Err(Failure::TimedOut), u32::MAX),
            Fault::Endless => (Err(Failure::TooLarge), 10),
            Fault::Status(status) => (Ok((status, b"<html>sorry</html>".to_vec())), 10),
            Fault::Html => ok(b"<html>welcome</html>".to_vec()),
            Fault::HalfABody => {
                let (_, body) = self.node.post(batch);
                ok(body[..body.len() / 2].to_vec())
            }
            Fault::WrongId => {
                let text = String::from_utf8(self.node.post(batch).1).unwrap();
                ok(text.replace("\"id\":", "\"id\":77").into_bytes())
            }
            Fault::OneObject => {
                let (_, body) = self.node.post(batch);
                match serde_json::from_slice::<Vec<Value>>(&body) {
                    Ok(answers) => ok(answers[0].to_string().into_bytes()),
                    Err(_) => ok(body),
                }
            }
            Fault::Error(code, message) => {
                let error = serde_json::json!({"id": null, "error": {"code": code, "message": message}});
                ok(error.to_string().into_bytes())
            }
        }
    }
}

/// Drives a run to its end, without a clock. `post` gives each reply, or why there is none.
pub(crate) fn finish<Q: Query>(
    run: &mut Run<Q>,
    mut post: impl FnMut(&Batch) -> Result<(u16, Vec<u8>), Failure>,
) -> Result<Q::Output, Q::Error> {
    loop {
        match run.step()? {
            Step::Done(answer) => return Ok(answer),
            Step::Send(batch) => match post(&batch) {
                Ok((status, body)) => run.feed(Reply { status, body: &body })?,
                Err(failure) => run.fail(failure)?,
            },
        }
    }
}

/// A host with several endpoints and a clock.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) upstreams: Vec<Upstream>,
    pub(crate) known: Endpoints,
    pub(crate) limits: Limits,
    /// Milliseconds the last question took.
    pub(crate) took: u32,
}

impl Host {
    pub(crate) fn new(upstreams: impl IntoIterator<Item = Upstream>) -> Self {
        let upstreams: Vec<Upstream> = upstreams.into_iter().collect();
        let known = Endpoints::new(upstreams.len(), Some(CHAIN_ID));
        Self { upstreams, known, limits: Limits { walk_ms: 0, ..Limits::default() }, took: 0 }
    }

    /// The answer, or why no endpoint gave one.
    pub(crate) fn ask(&mut self, target: &str) -> Result<Value, RunError> {
        self.answer(target).map_err(run_error)
    }

    /// The answer, or any error.
    pub(crate) fn answer(&mut self, target: &str) -> Result<Value, Error> {
        let mut run = Run::new(question(target), CANONICAL_ADDRESS, self.limits).over(self.known.clone());
        self.took = 0;
        loop {
            run.passed(self.took);
            let fed = match run.step()? {
                Step::Send(batch) => {
                    let (reply, took) = self.upstreams[batch.endpoint].post(&batch);
                    self.took += batch.delay_ms + took;
                    match reply {
                        Ok((status, body)) => run.feed(Reply { status, body: &body }),
                        Err(failure) => run.fail(failure),
                    }
                }
                Step::Done(answer) => return Ok(read(answer)),
            };
            self.known.merge(&run.update());
            fed?;
        }
    }

    /// Posts to each endpoint since the last time.
    pub(crate) fn posts(&mut self) -> Vec<u32> {
        self.upstreams.iter_mut().map(|upstream| std::mem::take(&mut upstream.posts)).collect()
    }
}

pub(crate) fn read(answer: Document) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

pub(crate) fn run_error(error: Error) -> RunError {
    match error {
        Error::Query(QueryError::Run(error)) => error,
        other => panic!("{other}"),
    }
}

/// The blocks that the records in an answer were read in.
pub(crate) fn blocks(answer: &Value) -> BTreeSet<String> {
    let items = answer["data"].as_array().unwrap();
    items.iter().map(|item| item["creator"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn of_block(chain_id: u64, number: u64) -> BTreeSet<String> {
    BTreeSet::from([signature(chain_id, number).to_checksum(None)])
}

pub(crate) fn chain_of(blocks: &BTreeSet<String>) -> u64 {
    let signature: Address = blocks.first().unwrap().parse().unwrap();
    u64::from_be_bytes(signature[4..12].try_into().unwrap())
}
