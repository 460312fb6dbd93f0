//! A wallet's past: its former agents and inactive ancestors, from an index or a scan, and from the
//! question's own reads of newer agents. [`Past`] says what is known of it.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, U256};

use super::{LateExcerpt, Question};
use crate::{
    chain::{Halt, MAX_AGENTS, lens::Detail, reader::Registry, rows::Rows},
    eth::as_of::AsOf,
    index::{Excerpt, indexed_agent::IndexedAgent},
    registry::{
        agent::{Agent, AgentId, Status},
        kya::{FormerAgent, InactiveAncestor, Past, UnknownBecause},
        liability::{Liability, ParentBasis, WalletEvents},
        lineage::MAX_LEVELS,
        row::Row,
    },
};

/// The most agents newer than the index or scan that a verdict reads itself, in one call of the lens. Beyond
/// that the past is unknown: otherwise each of many wallets would read what one scan reads for all of them.
const NEWER_AGENTS: u64 = 1_000;

/// The sources for the pasts of some wallets.
pub(super) struct PastSources<'a> {
    /// The agents that the excerpt or the scan covers, or the reason for the lack of both.
    covered: Result<CoveredAgents<'a>, UnknownBecause>,
    /// The number of agents at the block of the verdict.
    total: Option<Result<U256, Halt>>,
    /// True if the current status of agents that the source shows alive is read.
    reads_missing: bool,
    /// The most agents beyond the covered ones that are read.
    most: u64,
    /// The reason that the past is unknown with more than `most` others, or fewer agents than are covered.
    beyond: UnknownBecause,
    /// True if the index's excerpt arrived after the chain was read: ancestors then have the excerpt's
    /// status, as reading it anew would take another round trip.
    is_late: bool,
}

/// Consecutive agents from the first on, and the past and present holders of certain wallets.
struct CoveredAgents<'a> {
    /// The index's excerpt, which covers the first of these agents.
    excerpt: Option<&'a Excerpt>,
    /// The rows of the others.
    rows: Vec<&'a Rows>,
    of_wallet: BTreeMap<Address, Vec<u64>>,
    /// True if every record is readable.
    is_whole: bool,
}

impl<'a> CoveredAgents<'a> {
    fn of(excerpt: Option<&'a Excerpt>, rows: Vec<&'a Rows>, wallets: &BTreeSet<Address>) -> Self {
        let mut of_wallet = BTreeMap::<Address, Vec<u64>>::new();
        let mut is_whole = excerpt.is_none_or(|excerpt| excerpt.is_whole);
        let indexed = excerpt.iter().flat_map(|excerpt| &excerpt.agents).map(|(id, agent)| (*id, &agent.row));
        for (id, row) in indexed.chain(rows.iter().flat_map(|rows| rows.iter())) {
            is_whole &= row.record_is_readable();
            if row.record_is_readable() && wallets.contains(&row.wallet) {
                of_wallet.entry(row.wallet).or_default().push(id);
            }
        }
        Self { excerpt, rows, of_wallet, is_whole }
    }

    fn count(&self) -> u64 {
        let indexed = self.excerpt.map_or(0, |excerpt| excerpt.total);
        self.rows.iter().map(|rows| rows.len() as u64).sum::<u64>() + indexed
    }

    fn row(&self, id: u64) -> Option<&'a Row> {
        let indexed = self.excerpt.and_then(|excerpt| excerpt.get(id)).map(|agent| &agent.row);
        let found = indexed.or_else(|| self.rows.iter().find_map(|rows| rows.get(id)));
        found.filter(|row| row.record_is_readable())
    }

    /// Returns the past and present holders of the wallet, newest first.
    fn agents_of(&self, wallet: Address) -> impl Iterator<Item = (u64, &'a Row)> {
        let ids = self.of_wallet.get(&wallet).into_iter().flatten().rev();
        ids.filter_map(|id| Some((*id, self.row(*id)?)))
    }

    /// Returns the ids from a parent up to its root; an error for a path beyond the depth limit of a lineage,
    /// or with a missing row.
    fn path(&self, parent: u64) -> Result<Vec<u64>, UnknownBecause> {
        let (mut path, mut next) = (Vec::new(), parent);
        while next != 0 {
            if path.len() + 1 == MAX_LEVELS {
                return Err(UnknownBecause::TooManyAgents);
            }
            path.push(next);
            next = match self.row(next) {
                Some(row) => row.parent,
                None if self.is_whole => return Err(UnknownBecause::IndexUnavailable),
                None => return Err(UnknownBecause::UnreadableAgents),
            };
        }
        Ok(path)
    }
}

impl Question {
    /// Starts the reads for the pasts of these wallets, so that they share a round trip with the verdicts.
    pub(super) fn past_sources<'a>(
        &'a self,
        registry: &Registry<'_>,
        wallets: impl IntoIterator<Item = Address>,
        history: bool,
    ) -> PastSources<'a> {
        if self.route.block().is_some() {
            return PastSources::unavailable(UnknownBecause::PastBlock);
        }
        let excerpt = self.excerpt.as_ref().and_then(LateExcerpt::get);
        let scan = self.scan.as_ref().filter(|_| excerpt.is_none());
        if self.excerpt.as_ref().is_some_and(LateExcerpt::is_awaited) {
            // Requested in the same round trip: an excerpt is useless without the number of agents.
            let _ = registry.total();
        }
        match (&self.excerpt, excerpt, scan) {
            (Some(_), None, None) => return PastSources::unavailable(UnknownBecause::IndexUnavailable),
            // A host without index and scan, such as a page, reads the registry for itself.
            (None, None, None) if !history => return PastSources::unavailable(UnknownBecause::NotScanned),
            _ => {}
        }
        let rows = scan.iter().map(|scan| scan.rows()).collect();
        let covered = CoveredAgents::of(excerpt, rows, &wallets.into_iter().collect());
        for wallet in covered.of_wallet.keys() {
            // If the source is current, its holder is still the holder, so its ancestors are read in this
            // round trip.
            let holder = covered.agents_of(*wallet).find(|(_, row)| !has_ended(row));
            let path = holder.and_then(|(_, row)| covered.path(row.parent).ok()).unwrap_or_default();
            // An agent that is active in the index may have ended since.
            let holder = holder.map(|(id, _)| id).filter(|_| excerpt.is_some());
            for id in path.into_iter().chain(holder) {
                // Only requested here; the answer is read in `assemble`.
                let _ = registry.status(id);
            }
        }
        let reads_missing = history || excerpt.is_some();
        let total = registry.total();
        if reads_missing && scan.is_none() && total.is_err() {
            // The first rows that are not covered share the round trip of the count.
            let _ = registry.rows(covered.count() + 1, Detail::Rows, None);
        }
        let (most, beyond) = match (excerpt, scan) {
            (Some(_), _) => (NEWER_AGENTS, UnknownBecause::IndexUnavailable),
            (None, Some(_)) => (if history { NEWER_AGENTS } else { 0 }, UnknownBecause::ScanOutdated),
            (None, None) => (MAX_AGENTS, UnknownBecause::TooManyAgents),
        };
        let is_late = !history && self.excerpt.as_ref().is_some_and(LateExcerpt::is_late);
        PastSources { covered: Ok(covered), total: Some(total), reads_missing, most, beyond, is_late }
    }
}

impl<'a> PastSources<'a> {
    const fn unavailable(because: UnknownBecause) -> Self {
        Self {
            covered: Err(because),
            total: None,
            reads_missing: false,
            most: 0,
            beyond: because,
            is_late: false,
        }
    }

    /// Returns the past of one of the wallets. `agent` is its holder.
    pub(super) fn of(
        &self,
        registry: &Registry<'a>,
        wallet: Address,
        agent: Option<&Agent>,
    ) -> Result<Past, Halt> {
        let (covered, total) = match (&self.covered, &self.total) {
            (Ok(covered), Some(total)) => (covered, total),
            (Err(because), _) => return Ok(Past::unknown(*because)),
            (Ok(_), None) => return Ok(Past::unknown(UnknownBecause::NotScanned)),
        };
        let total = match total {
            Ok(total) => u64::try_from(*total).unwrap_or(u64::MAX),
            // Requested before, and missing in this round.
            Err(_) => u64::try_from(registry.total()?).unwrap_or(u64::MAX),
        };
        let count = covered.count();
        if count == total {
            return self.assemble(covered, registry, wallet, agent);
        }
        // Fewer agents than are covered: the endpoint lags, or a reorg has undone some of them.
        if total.checked_sub(count).is_none_or(|unread| unread > self.most) {
            return Ok(Past::unknown(self.beyond));
        }
        let mut rows = covered.rows.clone();
        rows.push(registry.rows(count + 1, Detail::Rows, Some(total))?);
        // `BTreeSet::from` would bring in a sort of addresses.
        let mut wallets = BTreeSet::new();
        wallets.insert(wallet);
        self.assemble(&CoveredAgents::of(covered.excerpt, rows, &wallets), registry, wallet, agent)
    }

    fn assemble(
        &self,
        covered: &CoveredAgents<'_>,
        registry: &Registry<'_>,
        wallet: Address,
        agent: Option<&Agent>,
    ) -> Result<Past, Halt> {
        let path = covered.path(agent.map_or(0, |agent| agent.parent_agent_id.0.saturating_to()));
        // All are requested before the first missing one ends the round.
        let statuses: Vec<_> =
            path.iter().flatten().map(|id| (*id, self.status(covered, registry, *id))).collect();
        let holder = agent.map(|agent| agent.agent_id.0.saturating_to());
        let before: Vec<_> = covered.agents_of(wallet).filter(|(id, _)| Some(*id) != holder).collect();
        let mut former = Ok(Vec::new());
        for (id, row) in before {
            let row = match has_ended(row) {
                true => *row,
                // Active in the scan, it may have ended since.
                false if self.reads_missing => Row { status: registry.status(id)? as u8, ..*row },
                false => {
                    former = Err(UnknownBecause::ScanOutdated);
                    break;
                }
            };
            if let Ok(former) = &mut former {
                let ended_at = covered.excerpt.and_then(|excerpt| excerpt.ends.get(&id).copied());
                former.extend(FormerAgent::of(AgentId(U256::from(id)), &row, ended_at));
            }
        }
        if !covered.is_whole {
            former = Err(UnknownBecause::UnreadableAgents);
        }
        let mut ancestors = path.map(|_| Vec::new());
        for (id, status) in statuses {
            match status {
                Ok(Status::Active) => {}
                Ok(status) => {
                    if let Ok(ancestors) = &mut ancestors {
                        ancestors.push(InactiveAncestor { agent_id: AgentId(U256::from(id)), status });
                    }
                }
                Err(Halt::Error(error)) if error.is_of_one_record() => {
                    ancestors = Err(UnknownBecause::UnreadableAgents);
                }
                Err(halt) => return Err(halt),
            }
        }
        Ok(Past { former, ancestors })
    }

    /// Returns the holder's liability, as far as the index has seen events.
    pub(super) fn liability(&self, agent: &Agent, as_of: AsOf) -> Liability {
        let excerpt = self.covered.as_ref().ok().and_then(|covered| covered.excerpt);
        liability(excerpt, agent, as_of)
    }

    /// Returns the status of an ancestor, from a late excerpt if reading it would take another round trip.
    fn status(&self, covered: &CoveredAgents<'_>, registry: &Registry<'_>, id: u64) -> Result<Status, Halt> {
        let indexed = covered.excerpt.filter(|_| self.is_late).and_then(|excerpt| excerpt.get(id));
        match (registry.status(id), indexed.and_then(IndexedAgent::status)) {
            (Err(Halt::Need(_)), Some(status)) => Ok(status),
            (status, _) => status,
        }
    }
}

/// Returns an agent's liability, as far as an index has seen events. An event up to the answer's block counts
/// wherever it was seen, but the lack of one proves nothing.
pub(super) fn liability(excerpt: Option<&Excerpt>, agent: &Agent, as_of: AsOf) -> Liability {
    let record = Liability::of_record(agent);
    let id = agent.agent_id.0.saturating_to();
    // Not another registration under this id, which a reorg has undone.
    let is_same = |indexed: &IndexedAgent| indexed.row.registered_at == agent.registered_at.seconds();
    let Some((excerpt, events)) = excerpt
        .filter(|excerpt| excerpt.get(id).is_some_and(is_same))
        .and_then(|excerpt| Some((excerpt, excerpt.wallet_events(id)?)))
    else {
        return record;
    };
    let parent =
        excerpt.get(agent.parent_agent_id.0.saturating_to()).filter(|it| it.row.record_is_readable());
    let wallets = parent.map(|parent| [parent.row.creator, parent.row.wallet, parent.full.haftungsperson]);
    let parent_basis = record.parent_basis.map(|_| ParentBasis::of(agent.creator, wallets));
    let time = as_of.block_timestamp.seconds();
    let events = WalletEvents { last: events.last.filter(|last| *last <= time), is_complete: false };
    Liability { parent_basis, ..record.with_events(events, time) }
}

fn has_ended(row: &Row) -> bool {
    Status::from_number(row.status).is_some_and(Status::has_ended)
}
