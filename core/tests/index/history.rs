//! A chain that changes by chance: registrations, transitions, reports, and reorganisations of any depth.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use alloy_primitives::{Address, B256, U256, keccak256};

use crate::common::{Mined, NOW, PlainRegistry, record, report, split_mix};

/// A seed, and the same history each time.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        split_mix::next(&mut self.0)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in so many times.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The chain, and every block that ever was one of it.
pub(crate) struct History {
    pub(crate) blocks: BTreeMap<u64, Mined>,
    pub(crate) ever: HashMap<B256, Rc<PlainRegistry>>,
    mined: u64,
    /// Events are left out once in so many times; 0 is never.
    pub(crate) lies: u64,
    /// Changes without an event.
    pub(crate) silent: u64,
    /// Those of them in blocks with other events.
    pub(crate) hidden: u64,
}

impl History {
    /// A chain of one block with so many agents.
    pub(crate) fn new(agents: u64, chance: &mut Chance) -> Self {
        let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
        for _ in 0..agents {
            change(&mut registry, 0, NOW - 900_000, chance);
        }
        let mut history =
            Self { blocks: BTreeMap::new(), ever: HashMap::new(), mined: 0, lies: 0, silent: 0, hidden: 0 };
        history.push(1, NOW - 100_000, registry, Vec::new());
        history
    }

    pub(crate) fn newest(&self) -> u64 {
        *self.blocks.keys().last().unwrap()
    }

    pub(crate) fn push(&mut self, number: u64, seconds: u64, registry: PlainRegistry, events: Vec<u64>) {
        self.mined += 1;
        let hash = keccak256([number.to_be_bytes(), self.mined.to_be_bytes()].concat());
        let registry = Rc::new(registry);
        self.ever.insert(hash, registry.clone());
        self.blocks.insert(number, Mined { hash, seconds, registry, events });
    }

    /// Mines a block with up to `most` changes.
    pub(crate) fn mine(&mut self, most: u64, chance: &mut Chance) {
        let number = self.newest();
        let parent = &self.blocks[&number];
        let (mut registry, seconds) = ((*parent.registry).clone(), parent.seconds + 1 + chance.below(40));
        let (mut events, mut silent) = (Vec::new(), 0);
        for _ in 0..chance.below(most + 1) {
            let kind = chance.below(12);
            let Some(id) = change(&mut registry, kind, seconds, chance) else { continue };
            if self.lies > 0 && chance.once_in(self.lies) {
                silent += 1;
            } else {
                events.push(id);
            }
        }
        if chance.once_in(40) {
            registry.grace_seconds = Some(600 + chance.below(1_000_000));
            events.push(0);
        }
        self.silent += silent;
        self.hidden += if events.is_empty() { 0 } else { silent };
        self.push(number + 1, seconds, registry, events);
    }

    /// Undoes so many blocks, and mines others in their place.
    pub(crate) fn reorganise(&mut self, depth: u64, chance: &mut Chance) {
        let newest = self.newest();
        let kept = newest.saturating_sub(depth).max(1);
        // What comes instead is as young as what it replaces.
        let seconds = self.blocks[&newest].seconds + 1;
        self.blocks.retain(|number, _| *number <= kept);
        let length = (newest - kept + chance.below(3)).saturating_sub(chance.below(2)).max(1);
        for _ in 0..length {
            self.mine(2, chance);
        }
        let newest = self.newest();
        let mined = self.blocks.get_mut(&newest).unwrap();
        mined.seconds = mined.seconds.max(seconds);
    }
}

/// What agents say that they are for.
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

/// Changes the registry in one way of 12; whom it is about.
fn change(registry: &mut PlainRegistry, kind: u64, seconds: u64, chance: &mut Chance) -> Option<u64> {
    let total = registry.agents.len() as u64;
    if kind < 3 {
        let id = total + 1;
        let mut agent = record(id, chance.below(total + 1));
        let parent = usize::try_from(agent.parentAgentId).unwrap();
        agent.generation =
            if parent == 0 { U256::ZERO } else { registry.agents[parent - 1].generation + U256::from(1) };
        agent.operationalScope = SCOPES[usize::try_from(id).unwrap() % SCOPES.len()].to_owned();
        agent.creator = Address::repeat_byte(chance.below(4) as u8);
        agent.haftungsperson = Address::repeat_byte(0x10 + chance.below(3) as u8);
        (agent.registeredAt, agent.lastAttestation) = (seconds, seconds);
        registry.agents.push(agent);
        return Some(id);
    }
    let id = 1 + chance.below(total.max(1));
    let agent = registry.agents.get_mut(usize::try_from(id).unwrap() - 1)?;
    match kind {
        3..6 => agent.lastAttestation = seconds,
        6 => agent.status = 1,
        7 => agent.status = 0,
        8 => agent.status = chance.pick(&[2, 3]),
        _ => {
            let mut report = report(id, chance.below(5));
            report.currency = chance.pick(&["EUR", "USD", "ETH", ""]).into();
            report.category = chance.pick(&["api", "consulting"]).into();
            report.reportedAt = seconds;
            if chance.once_in(8) {
                report.amount = U256::MAX;
            }
            agent.lastRevenueReport = seconds;
            registry.reports.push(report);
        }
    }
    Some(id)
}
