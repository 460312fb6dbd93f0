//! The refresh: one query finds the changes, SQL plans the reads, another query reads them (`changed`).
//!
//! ```text
//!   find what changed --+--> nothing: done, and nothing is stored
//!                       +--> agents --> plan --+-> read them --> store --> done
//!                       |                      +-> all proved --> store --> done
//!                       +--> no event tells it: done, and for some seconds a late event is waited for
//!                       +--> still none, no events, or a contradicted record --> a comparison of all agents
//!                       +--> no known block is canonical --> the fill
//! ```
//!
//! A refresh without changes takes one round trip. One with attestations takes three: the storage root, the
//! events, and the proof of the agents' words, if nothing else has changed. Any other takes four: it also
//! reads storage roots between the events, and the agents.

use super::{Work, WorkStage};
use crate::{
    chain::{Limits, Run},
    index::{
        IndexError,
        base::{Base, EventPolicy, ExpectedRecord, SeenRows},
        checkpoint::{self, Checkpoint},
        find_changes::FindChanges,
        found::{ChangeSearchOutcome, ContradictedRecord, FoundChanges, UnexplainedChanges},
        phase::{ComparisonCause, Pass, PendingCheck, Phase, RegistryVersion},
        state::{DAY_MILLIS, Trust},
        store::Store,
        tables,
    },
};

/// Retries in search of changes, in addition to one failover per further endpoint.
const RETRIES: u32 = 5;

impl Work {
    /// Starts the search for changes.
    pub(super) fn find(&mut self, store: &impl Store) -> Result<(), IndexError> {
        let Some((block, _)) = self.state.base() else {
            self.read_slice(&Pass::default());
            return Ok(());
        };
        // Between comparisons that found nothing, the index trusts events that do not tell all changes.
        let is_trusting = self.state.is_complete() && self.state.compared.is_pausing(self.now_millis);
        let records = if is_trusting { Vec::new() } else { self.records_to_prove(store)? };
        let state = &self.state;
        let base = match &state.phase {
            Phase::Complete(rows) => Base::Rows(Box::new(SeenRows {
                version: rows.version,
                ahead: rows.ahead,
                unsettled: rows.unsettled(),
                records,
                asks_at: rows.coverage.asks_again_at(state.node.lateness),
                is_open: rows.coverage.is_open(),
            })),
            phase => {
                let pass = phase.pass().cloned().unwrap_or_default();
                let pinned = pass.header().filter(|_| pass.blocks.len() == 1);
                Base::Slices { blocks: pass.blocks, pinned }
            }
        };
        let query = FindChanges {
            registry: self.config.registry,
            layout: self.config.layout,
            self_contained_code: self.config.self_contained_code,
            block,
            base,
            events: if is_trusting { EventPolicy::Trusted } else { EventPolicy::Checked },
            code: state.node.trust.code(),
            total: state.total,
            from: state.asks_from(block),
            seen: state.asked.seen.clone(),
            was_late: state.node.lateness.is_known(),
            before: None,
            older: None,
            known_event: state.node.canary,
            log_range: state.node.log_range,
        };
        let limits = Limits { retries: RETRIES, ..self.config.limits };
        self.stage = WorkStage::Find(Box::new(self.run(query, limits)));
        Ok(())
    }

    /// Returns the next records to prove, in the order of their ids.
    fn records_to_prove(&mut self, store: &impl Store) -> Result<Vec<ExpectedRecord>, IndexError> {
        let (total, proved) = (self.state.total, self.config.proved);
        let is_provable = self.state.is_complete() && self.state.node.trust.proves_records();
        if !is_provable || total == 0 || proved == 0 {
            return Ok(Vec::new());
        }
        let first = match self.state.asked.next_proved {
            0 => 1 + self.now_millis % total,
            next if next > total => 1,
            next => next,
        };
        let last = total.min(first.saturating_add(proved).saturating_sub(1));
        self.state.asked.next_proved = last + 1;
        let ids: Vec<u64> = (first..=last).collect();
        let records = tables::records(store, &ids)?.into_iter();
        let records = records.filter(|(_, entry)| entry.flaws() == 0);
        Ok(records.map(|(id, entry)| ExpectedRecord { id, row: entry.row, full: entry.full }).collect())
    }

    pub(super) fn take_found(
        &mut self,
        store: &impl Store,
        run: Box<Run<FindChanges>>,
        found: ChangeSearchOutcome,
    ) -> Result<(), IndexError> {
        let ChangeSearchOutcome { version, code, changes } = found;
        let trust = match (version, code.or(self.state.node.trust.code())) {
            (Some(_), Some(code)) => Trust::Proofs(code),
            (_, code) => Trust::Events(code),
        };
        let is_news = std::mem::replace(&mut self.state.node.trust, trust) != trust;
        let cause = self.state.phase.cause();
        let is_pinned = matches!(run.query().base, Base::Slices { pinned: Some(_), .. });
        match (changes, cause) {
            (FoundChanges::Nothing(header), _) => self.stay(store, header.into(), version, is_news),
            (FoundChanges::Named(ids), _) => {
                let ids: Vec<u64> = ids.into_iter().collect();
                let before = tables::records(store, &ids)?.into_iter();
                let before = before.filter(|(_, entry)| entry.row.record_is_readable());
                let before = before.map(|(id, entry)| (id, entry.row)).collect();
                self.find_on(run, |query| FindChanges { before: Some(before), ..query })
            }
            (FoundChanges::NotCanonical, _) => {
                // None of the known ones is.
                let known = run.query().known();
                let below = known.first().map_or(0, |first| first.number.saturating_sub(1));
                let mut older = checkpoint::checkpoints(store, below)?;
                let recent = self.state.phase.rows().map(|rows| rows.recent.as_slice()).unwrap_or_default();
                older.extend(recent.iter().filter(|recent| recent.number <= below));
                older.sort_unstable_by_key(|checkpoint| std::cmp::Reverse(checkpoint.number));
                older.dedup();
                self.find_on(run, |query| FindChanges { older: Some(older), ..query })
            }
            // The rows, or the slices they are compared with, are at least of the slices' block.
            (missing @ (FoundChanges::NoEvents | FoundChanges::Unexplained(_)), _) if is_pinned => {
                self.state.counters.without_events += u64::from(matches!(missing, FoundChanges::NoEvents));
                self.find_on(run, |query| FindChanges { events: EventPolicy::Ignored, ..query })
            }
            (FoundChanges::NoEvents, _) => self.go_without_events(store),
            // Slices of several blocks, and no event tells what lies between them.
            (FoundChanges::Unexplained(_) | FoundChanges::AnotherChain, Some(cause)) => {
                self.compare(store, cause)
            }
            (FoundChanges::AnotherChain, None) => self.refill(store, false),
            (FoundChanges::Unexplained(UnexplainedChanges { ids, seen, newest }), None) => {
                self.announced = ids;
                self.state.note_lateness(&seen, &newest);
                let asked = &mut self.state.asked;
                let first = seen.first().map_or(newest.number, |(number, _)| *number);
                asked.blocks = Some((asked.blocks.map_or(first, |(first, _)| first), newest.number));
                asked.awaited = seen;
                if self.state.node.lateness.is_known() && !run.query().was_late {
                    // Only now is it known that events may be late: the search starts again with that.
                    return self.find(store);
                }
                self.wait_for_events(store)
            }
            (FoundChanges::Changed(changed), _) => self.plan(store, *changed),
        }
    }

    /// Continues a search with a changed query.
    fn find_on(
        &mut self,
        run: Box<Run<FindChanges>>,
        query: impl FnOnce(FindChanges) -> FindChanges,
    ) -> Result<(), IndexError> {
        self.stage = WorkStage::Find(Box::new(run.go_on(query)));
        Ok(())
    }

    /// Advances unchanged rows to a later block.
    fn stay(
        &mut self,
        store: &impl Store,
        block: Checkpoint,
        version: Option<RegistryVersion>,
        mut is_news: bool,
    ) -> Result<(), IndexError> {
        let state = &mut self.state;
        let Phase::Complete(rows) = &mut state.phase else { return Ok(()) };
        let (changes, before) = (state.log.changes, (rows.block.number, state.read_at));
        is_news |=
            version.is_some() && rows.version != version || matches!(rows.doubt, PendingCheck::Late(_));
        rows.version = version.or(rows.version);
        rows.coverage.advance(before, (&block, self.now_millis), true, None, &mut state.node.lateness);
        rows.confirm(block);
        state.listed.skip(before.0, block.number);
        state.read_at = self.now_millis;
        self.change_log(store, block).move_on()?;
        if is_news || self.state.log.changes != changes {
            self.state.save(store)?;
        }
        Ok(())
    }

    /// Waits for the event of a change, which may be late. The rows stay those of their block.
    fn wait_for_events(&mut self, store: &impl Store) -> Result<(), IndexError> {
        let is_first = self.state.late().is_none();
        let since = self.state.wait_for_event(self.now_millis);
        if self.now_millis >= since.saturating_add(self.state.compared.patience_millis(self.now_millis)) {
            return self.compare(store, ComparisonCause::Untold);
        }
        if is_first {
            self.state.save(store)?;
        }
        Ok(())
    }

    /// Reacts to a proof that contradicted an agent's row, which has been read again. If the row was never
    /// true, and reading it changed nothing or this is not the first time that day, all rows are compared,
    /// and answer nothing until then.
    pub(super) fn doubt(
        &mut self,
        store: &impl Store,
        contradicted: ContradictedRecord,
        is_mended: bool,
    ) -> Result<(), IndexError> {
        self.state.counters.unannounced += u64::from(is_mended);
        if let ContradictedRecord::Untrue(id) = contradicted {
            let last = std::mem::replace(&mut self.state.compared.contradicted_at, self.now_millis);
            if !is_mended || self.now_millis < last.saturating_add(DAY_MILLIS) {
                return self.compare(store, ComparisonCause::Contradicted(id));
            }
        }
        Ok(self.state.save(store)?)
    }
}
