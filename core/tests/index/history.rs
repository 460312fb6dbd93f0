//! A chain with random registrations, transitions, reports, and reorganisations of any depth.

use std::{collections::BTreeMap, collections::HashMap, rc::Rc};

use alloy_primitives::keccak256;

use crate::common::prelude::*;

/// The chain, and every block that was ever part of it.
#[derive(Default)]
pub(crate) struct ChainHistory {
    pub(crate) blocks: BTreeMap<u64, Mined>,
    pub(crate) ever: HashMap<B256, Rc<PlainRegistry>>,
    mined: u64,
    /// Maximum seconds from a block to the next.
    pub(crate) pace: u64,
    /// One in this number of events is left out; none if it is 0.
    pub(crate) lies: u64,
    /// Number of changes without an event.
    pub(crate) silent: u64,
    /// Number of changes without an event in blocks with other events.
    pub(crate) hidden: u64,
}

impl ChainHistory {
    /// Creates a chain of one block with this number of agents.
    pub(crate) fn new(agents: u64, random: &mut Random) -> Self {
        let mut registry = PlainRegistry::with_agents(0);
        for _ in 0..agents {
            change(&mut registry, 0, NOW - 900_000, random);
        }
        Self::of(1, registry)
    }

    /// Creates a chain that has this registry from one block on.
    pub(crate) fn of(number: u64, registry: PlainRegistry) -> Self {
        let mut history = Self { pace: 40, ..Self::default() };
        history.push(number, NOW - 100_000, registry, Vec::new());
        history
    }

    pub(crate) fn number(&self) -> u64 {
        *self.blocks.keys().last().unwrap()
    }

    pub(crate) fn newest(&self) -> &Mined {
        self.blocks.values().last().unwrap()
    }

    pub(crate) fn push(&mut self, number: u64, seconds: u64, registry: PlainRegistry, events: Vec<u64>) {
        self.mined += 1;
        let hash = keccak256([number.to_be_bytes(), self.mined.to_be_bytes()].concat());
        let registry = Rc::new(registry);
        self.ever.insert(hash, registry.clone());
        self.blocks.insert(number, Mined { hash, seconds, registry, events });
    }

    /// Changes the newest block.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Mined)) {
        let mined = self.blocks.values_mut().last().unwrap();
        change(mined);
        self.ever.insert(mined.hash, mined.registry.clone());
    }

    /// Mines a block with up to `most` changes.
    pub(crate) fn mine(&mut self, most: u64, random: &mut Random) {
        let parent = self.newest();
        let (mut registry, seconds) =
            ((*parent.registry).clone(), parent.seconds + 1 + random.below(self.pace));
        let (mut events, mut silent) = (Vec::new(), 0);
        for _ in 0..random.below(most + 1) {
            let kind = random.below(12);
            let Some(id) = change(&mut registry, kind, seconds, random) else { continue };
            if self.lies > 0 && random.once_in(self.lies) {
                silent += 1;
            } else {
                events.push(id);
            }
        }
        if most > 0 && random.once_in(40) {
            registry.grace_seconds = Some(600 + random.below(1_000_000));
            events.push(0);
        }
        self.silent += silent;
        self.hidden += if events.is_empty() { 0 } else { silent };
        self.push(self.number() + 1, seconds, registry, events);
    }

    /// Undoes `depth` blocks, and mines others in their place.
    pub(crate) fn reorganise(&mut self, depth: u64, random: &mut Random) {
        let newest = self.number();
        let kept = newest.saturating_sub(depth).max(1);
        // The new blocks are not older than the replaced ones.
        let seconds = self.newest().seconds + 1;
        self.blocks.retain(|number, _| *number <= kept);
        let length = (newest - kept + random.below(3)).saturating_sub(random.below(2)).max(1);
        (0..length).for_each(|_| self.mine(2, random));
        self.edit(|mined| mined.seconds = mined.seconds.max(seconds));
    }
}

/// Operational scopes of agents.
const SCOPES: [&str; 10] = [
    "",
    "Trades energy; sells carbon rights",
    "trading of CARBON-rights",
    "Übersetzt Verträge: de-DE → en-GB",
    "ubersetzt Vertrage",
    "NOT a \"quoted\" OR NEAR(text, 2) * scope:x",
    "reads papers\u{0}and more",
    "研究 and papers",
    "carbon",
    "’ — …",
];

/// Changes the registry in one of 12 ways, and returns the id of the changed agent.
fn change(registry: &mut PlainRegistry, kind: u64, seconds: u64, random: &mut Random) -> Option<u64> {
    let total = registry.agents.len() as u64;
    if kind < 3 {
        let id = total + 1;
        let mut agent = record(id, random.below(total + 1));
        let parent = usize::try_from(agent.parentAgentId).unwrap();
        let above = parent.checked_sub(1).map(|parent| registry.agents[parent].generation);
        agent.generation = above.map_or(U256::ZERO, |generation| generation + U256::from(1));
        agent.operationalScope = SCOPES[id as usize % SCOPES.len()].to_owned();
        agent.creator = Address::repeat_byte(random.below(4) as u8);
        agent.haftungsperson = Address::repeat_byte(0x10 + random.below(3) as u8);
        (agent.registeredAt, agent.lastAttestation) = (seconds, seconds);
        registry.agents.push(agent);
        return Some(id);
    }
    let id = 1 + random.below(total.max(1));
    let agent = registry.agents.get_mut(id as usize - 1)?;
    match kind {
        3..6 => agent.lastAttestation = seconds,
        6 => agent.status = 1,
        7 => agent.status = 0,
        8 => agent.status = random.pick(&[2, 3]),
        _ => {
            let mut report = report(id, random.below(5));
            report.currency = random.pick(&["EUR", "USD", "ETH", ""]).into();
            report.category = random.pick(&["api", "consulting"]).into();
            report.reportedAt = seconds;
            if random.once_in(8) {
                report.amount = U256::MAX;
            }
            agent.lastRevenueReport = seconds;
            registry.reports.push(report);
        }
    }
    Some(id)
}
