//! A wallet's past, as far as an index or a scan and this question's own reads tell it; [`Past`] says when they do.

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

/// What the pasts of some wallets are told from.
pub(super) struct Pasts<'a> {
    /// The scan at hand, and who has or had the wallets by it; or why there is none to ask.
    scan: Result<Known<'a>, UnknownBecause>,
    /// How many agents there are at the block of the verdict.
    total: Option<Result<U256, Halt>>,
    /// What is not known is read.
    reads_on: bool,
    /// The whole registry is read where that is what it takes.
    history: bool,
}

/// Consecutive agents from the first on, and those that have or had certain wallets.
struct Known<'a> {
    /// What an index knows of the first of them.
    excerpt: Option<&'a Excerpt>,
    /// All that there is of the others.
    rows: Vec<&'a Rows>,
    of_wallet: BTreeMap<Address, Vec<u64>>,
    /// Every record is readable.
    is_whole: bool,
}

impl<'a> Known<'a> {
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

    /// Who has or had the wallet, newest first.
    fn agents_of(&self, wallet: Address) -> impl Iterator<Item = (u64, &'a Row)> {
        let ids = self.of_wallet.get(&wallet).into_iter().flatten().rev();
        ids.filter_map(|id| Some((*id, self.row(*id)?)))
    }

    /// The ids from a parent up to its root, as far as the levels of a lineage go.
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
    /// Begins to read the pasts of these wallets: all that can be asked for along with their verdicts is noted.
    pub(super) fn pasts<'a>(
        &'a self,
        registry: &Registry<'_>,
        wallets: impl IntoIterator<Item = Address>,
        history: bool,
    ) -> Pasts<'a> {
        if self.route.block().is_some() {
            return Pasts::unknown(UnknownBecause::PastBlock);
        }
        let excerpt = self.excerpt.as_ref();
        let scan = self.scan.as_ref().filter(|_| excerpt.is_none());
        if excerpt.is_none() && scan.is_none() && !history {
            return Pasts::unknown(UnknownBecause::NotScanned);
        }
        let rows = scan.iter().map(|scan| scan.rows()).collect();
        let known = Known::of(excerpt, rows, &wallets.into_iter().collect());
        for wallet in known.of_wallet.keys() {
            // Whoever has it by the scan has it still, if the scan holds: so its ancestors are known before it is.
            let holder = known.agents_of(*wallet).find(|(_, row)| !has_ended(row));
            let path = holder.map(|(_, row)| known.path(row.parent)).into_iter().flatten();
            // Whoever is alive by the index may have ended since.
            let holder = holder.map(|(id, _)| id).filter(|_| excerpt.is_some());
            for id in path.chain(holder) {
                // Only noted: who needs the answer asks again.
                let _ = registry.status(id);
            }
        }
        let reads_on = history || excerpt.is_some();
        if reads_on && scan.is_none() {
            // The first rows that are not known come along with the count.
            let _ = registry.rows(known.count() + 1, Detail::Rows, None);
        }
        Pasts { scan: Ok(known), total: Some(registry.total()), reads_on, history }
    }
}

impl<'a> Pasts<'a> {
    const fn unknown(because: UnknownBecause) -> Self {
        Self { scan: Err(because), total: None, reads_on: false, history: false }
    }

    /// The past of one of the wallets, whose agent is this.
    pub(super) fn of(
        &self,
        registry: &Registry<'a>,
        wallet: Address,
        agent: Option<&Agent>,
    ) -> Result<Past, Halt> {
        let (known, total) = match (&self.scan, &self.total) {
            (Ok(known), Some(total)) => (known, total),
            (Err(because), _) => return Ok(Past::unknown(*because)),
            (Ok(_), None) => return Ok(Past::unknown(UnknownBecause::NotScanned)),
        };
        let total = match total {
            Ok(total) => u64::try_from(*total).unwrap_or(u64::MAX),
            // It was noted, and is missed now.
            Err(_) => u64::try_from(registry.total()?).unwrap_or(u64::MAX),
        };
        let count = known.count();
        if count == total {
            return self.told_by(known, registry, wallet, agent);
        }
        // Of a chain that was reorganised to fewer agents nothing that is known holds.
        let (excerpt, mut rows, first) = match count < total {
            true => (known.excerpt, known.rows.clone(), count + 1),
            false => (None, Vec::new(), 1),
        };
        let unread = if excerpt.is_some() { total - count } else { total };
        if unread > MAX_AGENTS {
            return Ok(Past::unknown(UnknownBecause::TooManyAgents));
        }
        if !self.reads_on || first == 1 && !self.history {
            return Ok(Past::unknown(UnknownBecause::ScanOutdated));
        }
        if total > 0 {
            rows.push(registry.rows(first, Detail::Rows, Some(total))?);
        }
        // Not `from`, as in `lineage::grow`.
        let mut wallets = BTreeSet::new();
        wallets.insert(wallet);
        self.told_by(&Known::of(excerpt, rows, &wallets), registry, wallet, agent)
    }

    fn told_by(
        &self,
        known: &Known<'_>,
        registry: &Registry<'_>,
        wallet: Address,
        agent: Option<&Agent>,
    ) -> Result<Past, Halt> {
        let number = |id: AgentId| u64::try_from(id.0).unwrap_or(u64::MAX);
        let path = agent.map(|agent| known.path(number(agent.parent_agent_id))).unwrap_or_default();
        // All are asked for before one is missed.
        let statuses: Vec<_> = path.iter().map(|id| (*id, registry.status(*id))).collect();
        let holder = agent.map(|agent| number(agent.agent_id));
        let before: Vec<_> = known.agents_of(wallet).filter(|(id, _)| Some(*id) != holder).collect();
        let mut former = Ok(Vec::new());
        for (id, row) in before {
            let row = match has_ended(row) {
                true => *row,
                // Alive by the scan, and not any more.
                false if self.reads_on => Row { status: registry.status(id)? as u8, ..*row },
                false => {
                    former = Err(UnknownBecause::ScanOutdated);
                    break;
                }
            };
            if let Ok(former) = &mut former {
                let ended_at = known.excerpt.and_then(|excerpt| excerpt.ends.get(&id).copied());
                former.extend(FormerAgent::of(AgentId(U256::from(id)), &row, ended_at));
            }
        }
        if !known.is_whole {
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
