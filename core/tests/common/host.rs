//! A host with several nodes, and with a clock that only the test moves.

use std::collections::BTreeSet;

use registry_core::api::document::Document;

use super::{prelude::*, signature};

/// Returns a node with records that name the block they were read in, after a change.
pub(crate) fn node_with(change: impl FnOnce(&mut Node)) -> Node {
    let mut node = Node::new(PlainRegistry::with_agents(12));
    node.quirks.signs_records = true;
    change(&mut node);
    node
}

pub(crate) fn good() -> Node {
    node_with(|_| {})
}

/// Returns a node with these faults of its first posts, one after another.
pub(crate) fn with_faults(faults: impl IntoIterator<Item = Fault>) -> Node {
    node_with(|node| node.faults.extend(faults))
}

pub(crate) fn failing(fault: Fault) -> Node {
    with_faults(vec![fault; 100])
}

pub(crate) fn on_chain(chain_id: u64) -> Node {
    node_with(|node| node.chain_id = chain_id)
}

/// Returns a good node with this newest block.
pub(crate) fn at_block(number: u64) -> Node {
    node_with(|node| node.block = number)
}

/// Drives a run to its end, without a clock. `post` returns each reply or the failure.
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

/// Drives a run to its end by a clock that each reply moves: `took` is in milliseconds. Merges what the run
/// learns of the endpoints into `known`.
pub(crate) fn finish_in_time<Q: Query>(
    run: &mut Run<Q>,
    known: &mut Endpoints,
    took: &mut u32,
    mut reply: impl FnMut(&Batch) -> (Result<(u16, Vec<u8>), Failure>, u32),
) -> Result<Q::Output, Q::Error> {
    *took = 0;
    loop {
        run.passed(*took);
        let batch = match run.step()? {
            Step::Done(answer) => return Ok(answer),
            Step::Send(batch) => batch,
        };
        let (outcome, millis) = reply(&batch);
        *took += batch.delay_ms + millis;
        let fed = match &outcome {
            Ok((status, body)) => run.feed(Reply { status: *status, body }),
            Err(failure) => run.fail(*failure),
        };
        known.merge(&run.update());
        fed?;
    }
}

/// A host with several endpoints and a clock.
#[derive(Clone)]
pub(crate) struct Host {
    pub(crate) nodes: Vec<Node>,
    pub(crate) known: Endpoints,
    pub(crate) limits: Limits,
    /// Time at which runs begin, in unix milliseconds.
    pub(crate) now: u64,
    /// Milliseconds the last question took.
    pub(crate) took: u32,
}

impl Host {
    pub(crate) fn new(nodes: impl IntoIterator<Item = Node>) -> Self {
        let nodes: Vec<Node> = nodes.into_iter().collect();
        let known = Endpoints::new(nodes.len(), Some(CHAIN_ID));
        Self { nodes, known, limits: Limits { walk_ms: 0, ..Limits::default() }, now: 0, took: 0 }
    }

    pub(crate) fn ask(&mut self, target: &str) -> Result<Value, Error> {
        let known = self.known.for_run(self.now);
        let mut run = Run::new(question(target), CANONICAL_ADDRESS, self.limits).over(known);
        let Self { nodes, known, took, .. } = self;
        finish_in_time(&mut run, known, took, |batch| nodes[batch.endpoint].reply(batch)).map(read)
    }

    /// Takes the number of posts to each endpoint since the last call.
    pub(crate) fn posts(&mut self) -> Vec<u32> {
        self.nodes.iter_mut().map(|node| std::mem::take(&mut node.log).len() as u32).collect()
    }
}

pub(crate) fn read(answer: Document) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

/// Returns the blocks that the records in an answer were read in.
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
