//! Reactions to a fault: the next endpoint, another block, or the run's end.

use super::Engine;
use crate::{
    chain::{
        block::ReadBlock,
        error::{QueryError, RunError},
    },
    eth::as_of::BlockId,
};

impl Engine {
    /// Returns whether the run ends with the next fault.
    pub(super) const fn is_last_attempt(&self) -> bool {
        self.idle_rounds >= self.limits.retries + self.rotation.others()
    }

    /// Counts a fault against the current endpoint and fails over.
    pub(super) fn fault(&mut self, error: RunError, lasting: bool) -> Result<(), QueryError> {
        self.idle_rounds += 1;
        let before = self.rotation.current();
        let anyone_left = self.rotation.fault(error, lasting);
        self.after_switch(before);
        if anyone_left && self.idle_rounds <= self.limits.retries + self.rotation.others() {
            return Ok(());
        }
        Err(self.conclude(RunError::Stalled))
    }

    /// Drops the results of the endpoint `before` after failover, unless they are pinned by block hash.
    pub(super) fn after_switch(&mut self, before: usize) {
        if self.rotation.current() == before {
            return;
        }
        self.works_at_newest = None;
        let by_number = |endpoint| self.rotation.pins_by_number(endpoint);
        if self.block.pin().is_none() || by_number(before) || by_number(self.rotation.current()) {
            self.restart();
        }
    }

    /// Handles a node that does not know the block: retries once, then steps back, or starts over if another
    /// endpoint than the current one named the block.
    pub(super) fn repin(&mut self) -> Result<(), QueryError> {
        self.repins += 1;
        self.rotation.note(RunError::BlockUnavailable, false);
        // A block asked about has no substitute: each endpoint gets one more try.
        let most = if self.asked.is_some() { 1 + self.rotation.others() } else { self.limits.repins };
        if self.repins > most {
            // A node that takes no hashes may say so with the message for a missing block.
            let is_by_number = matches!(self.asked, Some(BlockId::Number(_)));
            if self.block.pin().is_some() && !is_by_number && self.rotation.may_try_numbers() {
                self.rotation.try_numbers(true);
                self.repins = 0;
                return Ok(());
            }
            return Err(self.conclude(RunError::BlockUnavailable));
        }
        let before = self.rotation.current();
        self.rotation.lacks_block();
        self.after_switch(before);
        if self.repins > 1
            && self.asked.is_none()
            && let Some(pin) = self.block.pin()
        {
            if pin.source == self.rotation.current() {
                self.block.step_back();
            } else {
                self.restart();
            }
        }
        Ok(())
    }

    /// Returns the run's final error, the most telling one of any endpoint.
    pub(super) fn conclude(&mut self, otherwise: RunError) -> QueryError {
        let error = self.rotation.conclude().unwrap_or(otherwise);
        match self.asked {
            Some(block) if error.is_about_the_block() => QueryError::BlockNotAvailable(block),
            _ => error.into(),
        }
    }

    /// Starts over at the initial block.
    pub(super) fn restart(&mut self) {
        self.block = ReadBlock::begin(self.asked);
        self.queue.clear();
        self.view.forget();
    }
}
