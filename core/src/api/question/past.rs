//! A wallet's past: its former agents and inactive ancestors, from an index or a scan, and from the
//! question's own reads of what those do not cover. [`Past`] says when it is covered.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, U256};

use super::Question;
use crate::{
    chain::{Halt, MAX_AGENTS, lens::Detail, reader::Registry, rows::Rows},
    index::Excerpt,
    registry::{
        agent::{Agent, AgentId, Status},
        kya::{FormerAgent, InactiveAncestor, Past, UnknownBecause},
        lineage::MAX_LEVELS,
        row::Row,
    },
};

/// The sources for the pasts of some wallets.
pub(super) struct PastSources<'a> {
    /// The agents that the excerpt or the scan covers, or why neither is there.
    covered: Result<CoveredAgents<'a>, UnknownBecause>,
    /// The number of agents at the block of the verdict.
    total: Option<Result<U256, Halt>>,
    /// Whether agents that are not covered are read.
    reads_missing: bool,
    /// Whether the whole registry may be read.
    history: bool,
}

/// Consecutive agents from the first on, and the past and present holders of certain wallets.
struct CoveredAgents<'a> {
    /// The index's excerpt, which covers the first of them.
    excerpt: Option<&'a Excerpt>,
    /// The rows of the others.
    rows: Vec<&'a Rows>,
    of_wallet: BTreeMap<Address, Vec<u64>>,
    /// Whether every record is readable.
    is_whole: bool,
}

impl<'a> CoveredAgents<'a> {
    fn of(excerpt: Option<&'a Excerpt>, rows: Vec<&'a Rows>, wallets: &BTreeSet<Address>) -> Self {
        let mut of_wallet = BTreeMap::<Address, Vec<u64>>::new();
        let mut is_whole = excerpt.is_none_or(|excerpt| excerpt.is_whole);
        let indexed = excerpt.iter().flat_map(|excerpt| &excerpt.rows).map(|(id, row)| (*id, row));
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
        let indexed = self.excerpt.and_then(|excerpt| excerpt.get(id));
        let found = indexed.or_else(|| self.rows.iter().find_map(|rows| rows.get(id)));
        found.filter(|row| row.record_is_readable())
    }

    /// The past and present holders of the wallet, newest first.
    fn agents_of(&self, wallet: Address) -> impl Iterator<Item = (u64, &'a Row)> {
        let ids = self.of_wallet.get(&wallet).into_iter().flatten().rev();
        ids.filter_map(|id| Some((*id, self.row(*id)?)))
    }

    /// The ids from a parent up to its root, up to the depth limit of a lineage.
    fn path(&self, parent: u64) -> Vec<u64> {
        let mut path = Vec::new();
        let mut next = parent;
        while next != 0 && path.len() + 1 < MAX_LEVELS && !path.contains(&next) {
            path.push(next);
            next = self.row(next).map_or(0, |row| row.parent);
        }
        path
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
        let excerpt = self.excerpt.as_ref();
        let scan = self.scan.as_ref().filter(|_| excerpt.is_none());
        if excerpt.is_none() && scan.is_none() && !history {
            return PastSources::unavailable(UnknownBecause::NotScanned);
        }
        let rows = scan.iter().map(|scan| scan.rows()).collect();
        let covered = CoveredAgents::of(excerpt, rows, &wallets.into_iter().collect());
        for wallet in covered.of_wallet.keys() {
            // The holder by the scan is still the holder if the scan is current: so its ancestors are read
            // along.
            let holder = covered.agents_of(*wallet).find(|(_, row)| !has_ended(row));
            let path = holder.map(|(_, row)| covered.path(row.parent)).into_iter().flatten();
            // An agent that is active by the index may have ended since.
            let holder = holder.map(|(id, _)| id).filter(|_| excerpt.is_some());
            for id in path.chain(holder) {
                // Only requested here; the answer is read in `assemble`.
                let _ = registry.status(id);
            }
        }
        let reads_missing = history || excerpt.is_some();
        if reads_missing && scan.is_none() {
            // The first rows that are not covered share the round trip of the count.
            let _ = registry.rows(covered.count() + 1, Detail::Rows, None);
        }
        PastSources { covered: Ok(covered), total: Some(registry.total()), reads_missing, history }
    }
}

impl<'a> PastSources<'a> {
    const fn unavailable(because: UnknownBecause) -> Self {
        Self { covered: Err(because), total: None, reads_missing: false, history: false }
    }

    /// The past of one of the wallets. `agent` is its holder.
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
        // After a reorg to fewer agents the covered ones prove nothing.
        let (excerpt, mut rows, first) = match count < total {
            true => (covered.excerpt, covered.rows.clone(), count + 1),
            false => (None, Vec::new(), 1),
        };
        let unread = if excerpt.is_some() { total - count } else { total };
        if unread > MAX_AGENTS {
            return Ok(Past::unknown(UnknownBecause::TooManyAgents));
        }
        if !self.reads_missing || first == 1 && !self.history {
            return Ok(Past::unknown(UnknownBecause::ScanOutdated));
        }
        if total > 0 {
            rows.push(registry.rows(first, Detail::Rows, Some(total))?);
        }
        // Not `from`, as in `lineage::grow`.
        let mut wallets = BTreeSet::new();
        wallets.insert(wallet);
        self.assemble(&CoveredAgents::of(excerpt, rows, &wallets), registry, wallet, agent)
    }

    fn assemble(
        &self,
        covered: &CoveredAgents<'_>,
        registry: &Registry<'_>,
        wallet: Address,
        agent: Option<&Agent>,
    ) -> Result<Past, Halt> {
        let number = |id: AgentId| u64::try_from(id.0).unwrap_or(u64::MAX);
        let path = agent.map(|agent| covered.path(number(agent.parent_agent_id))).unwrap_or_default();
        // All are requested before the first missing one ends the round.
        let statuses: Vec<_> = path.iter().map(|id| (*id, registry.status(*id))).collect();
        let holder = agent.map(|agent| number(agent.agent_id));
        let before: Vec<_> = covered.agents_of(wallet).filter(|(id, _)| Some(*id) != holder).collect();
        let mut former = Ok(Vec::new());
        for (id, row) in before {
            let row = match has_ended(row) {
                true => *row,
                // Active by the scan, and ended since.
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
        let mut ancestors = Ok(Vec::new());
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
}

fn has_ended(row: &Row) -> bool {
    Status::from_number(row.status).is_some_and(Status::has_ended)
}
