//! Registries to look at: the showcase, which has one of everything, and plain ones of any size.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Result, ensure};
use registry_core::eth::abi::IAgentRegistry;

use crate::anvil::{dev_account, wall_clock};
use crate::chain::{Chain, Write};
use crate::daemon::Daemon;
use crate::relay::Desk;
use crate::story::{BEGINS, BUSY, BUSY_CHILDREN, DAY, Event, RELAYED, STORY};

/// Accounts 2 to 9 register agents; 0 owns the registry, 1 is its regulator.
const OPERATORS: std::ops::Range<usize> = 2..10;

/// Seconds by which the showcase's chain stays behind the wall clock. Blocks that follow one another within a second may
/// be a second apart, and a chain ahead of its readers would show them agents of tomorrow; but more than a minute behind, a
/// relayer takes it for stuck.
const MARGIN: u64 = 30;

/// A registry that has one of everything.
#[derive(Debug, Clone)]
pub struct Showcase {
    /// The story's names, and the ids the registry gave them.
    pub ids: BTreeMap<String, u64>,
    /// The number of agents.
    pub total: u64,
}

impl Showcase {
    /// The id of an agent of the story.
    ///
    /// # Panics
    /// When the story has none of this name.
    pub fn id(&self, agent: &str) -> u64 {
        *self.ids.get(agent).unwrap_or_else(|| panic!("the story has no {agent}"))
    }
}

/// When a chain has to begin to have room for the showcase's history: a value for
/// [`AnvilOptions::genesis_time`](crate::anvil::AnvilOptions::genesis_time).
pub fn showcase_genesis() -> u64 {
    wall_clock() - BEGINS - DAY
}

/// The key of an agent's wallet: derived from its name, so that anybody can sign as it on a local chain.
pub fn wallet(agent: &str) -> PrivateKeySigner {
    let key = keccak256(format!("agent-registry-edge local wallet: {agent}"));
    PrivateKeySigner::from_bytes(&key).expect("a hash is a key, but for one chance in 2^128")
}

/// Fills an empty registry with the showcase. The chain ends a little behind the wall clock.
///
/// # Errors
/// When the registry is not empty, the chain began later than [`showcase_genesis`], or a write fails.
pub async fn showcase(chain: &Chain) -> Result<Showcase> {
    let next = chain.read(chain.contracts.registry, IAgentRegistry::nextAgentIdCall {}).await?;
    ensure!(next == U256::ONE, "the registry is not empty");
    chain
        .send(chain.owner(), IAgentRegistry::setRegulatorCall { account: dev_account(1), isRegulator: true })
        .await?;

    let now = wall_clock();
    let mut cast = Cast::default();
    for (age, events) in STORY {
        let time = now - age;
        let writes: Vec<Write> = events.iter().flat_map(|event| cast.play(event, time)).collect();
        chain.send_all(&writes, Some(time)).await?;
    }
    // From the last block to now, less a margin.
    chain.node.set_next_block_time(wall_clock() - MARGIN).await?;
    chain.node.mine(1).await?;
    Ok(Showcase { total: cast.next, ids: cast.ids })
}

/// Adds the agents that have no ETH, each by a request its own wallet signs and the daemon relays.
///
/// # Errors
/// When a relay fails.
pub async fn relayed(chain: &Chain, daemon: &Daemon, showcase: &mut Showcase) -> Result<()> {
    let (desk, client) = (Desk::of(chain), daemon.client());
    for (agent, parent, scope) in RELAYED {
        let (wallet, parent) = (wallet(agent), parent.map_or(0, |parent| showcase.id(parent)));
        let call = registration_call(showcase.total + 1, wallet.address(), scope, parent);
        let answer = client.relay(&desk.request(&wallet, 0, &call)).await;
        ensure!(answer.status == 200, "{agent} was not registered: {}", answer.text);
        showcase.total += 1;
        showcase.ids.insert((*agent).to_owned(), showcase.total);
    }
    Ok(())
}

/// Adds `count` agents as fast as the node takes them: five children each, in registration order, every tenth
/// suspended, every fourth with a revenue report, all attested at the chain's present.
///
/// # Errors
/// When a write fails.
pub async fn many(chain: &Chain, count: u64) -> Result<()> {
    let next: U256 = chain.read(chain.contracts.registry, IAgentRegistry::nextAgentIdCall {}).await?;
    let first: u64 = next.to();
    let now = chain.node.time().await?;
    let mut writes = Vec::new();
    for index in 0..count {
        // The root's children are 1 to 5 after it, theirs 6 to 30, and so on.
        let parent = if index == 0 { 0 } else { first + (index - 1) / 5 };
        writes.push(registration(
            first + index,
            wallet(&format!("many {}", first + index)).address(),
            &format!("Number {}", first + index),
            parent,
        ));
    }
    for id in first..first + count {
        if id.is_multiple_of(4) {
            let report = report(id, id * 100, "EUR", "fees", now);
            writes.push(Write::new(operator(id), &report));
        }
        if id.is_multiple_of(10) {
            let suspend = IAgentRegistry::suspendAgentCall {
                agentId: U256::from(id),
                reason: "every tenth".to_owned(),
            };
            writes.push(Write::new(chain.owner(), &suspend));
        }
    }
    chain.send_all(&writes, None).await
}

/// Who the agents are while the story is played.
#[derive(Debug, Default)]
struct Cast {
    ids: BTreeMap<String, u64>,
    /// The number of agents so far.
    next: u64,
}

impl Cast {
    fn play(&mut self, event: &Event, now: u64) -> Vec<Write> {
        let regulator = dev_account(1);
        match *event {
            Event::Register { agent, scope, parent } => {
                let parent = parent.map_or(0, |parent| self.ids[parent]);
                vec![self.register(agent, wallet(agent).address(), scope, parent)]
            }
            Event::Inherit { agent, scope, from } => {
                vec![self.register(agent, wallet(from).address(), scope, 0)]
            }
            Event::Fleet => (1..=BUSY_CHILDREN)
                .map(|berth| {
                    let name = format!("berth {berth}");
                    let id = self.enter(&name);
                    let scope = format!("Berth {berth}");
                    let call = registration_call(id, wallet(&name).address(), &scope, self.ids[BUSY]);
                    // One person answers for the whole harbour.
                    let haftungsperson = person(self.ids[BUSY]);
                    let call = IAgentRegistry::registerAgentCall { haftungsperson, ..call };
                    Write::new(operator(id), &call)
                })
                .collect(),
            Event::Attest(agent) => {
                let id = self.ids[agent];
                vec![Write::new(
                    operator(id),
                    &IAgentRegistry::attestComplianceCall { agentId: U256::from(id) },
                )]
            }
            Event::Report(agent, cents, currency, category) => {
                let id = self.ids[agent];
                vec![Write::new(operator(id), &report(id, cents, currency, category, now))]
            }
            Event::Suspend(agent, reason) => {
                let id = U256::from(self.ids[agent]);
                let call = IAgentRegistry::suspendAgentCall { agentId: id, reason: reason.to_owned() };
                vec![Write::new(regulator, &call)]
            }
            Event::Revoke(agent, reason) => {
                let id = U256::from(self.ids[agent]);
                let call = IAgentRegistry::revokeAgentCall { agentId: id, reason: reason.to_owned() };
                vec![Write::new(regulator, &call)]
            }
            Event::Reactivate(agent) => {
                let id = U256::from(self.ids[agent]);
                vec![Write::new(regulator, &IAgentRegistry::reactivateAgentCall { agentId: id })]
            }
            Event::Terminate(agent) => {
                let id = self.ids[agent];
                vec![Write::new(operator(id), &IAgentRegistry::terminateSelfCall { agentId: U256::from(id) })]
            }
        }
    }

    fn register(&mut self, agent: &str, wallet: Address, scope: &str, parent: u64) -> Write {
        registration(self.enter(agent), wallet, scope, parent)
    }

    /// Gives the next id to an agent.
    fn enter(&mut self, agent: &str) -> u64 {
        self.next += 1;
        self.ids.insert(agent.to_owned(), self.next);
        self.next
    }
}

/// Agents are dealt to the operators by id.
fn operator(id: u64) -> Address {
    let count = OPERATORS.len() as u64;
    dev_account(OPERATORS.start + usize::try_from(id % count).expect("a remainder of eight"))
}

fn registration(id: u64, wallet: Address, scope: &str, parent: u64) -> Write {
    Write::new(operator(id), &registration_call(id, wallet, scope, parent))
}

/// A registration of the `id`th agent, whoever sends it.
pub fn registration_call(
    id: u64,
    wallet: Address,
    scope: &str,
    parent: u64,
) -> IAgentRegistry::registerAgentCall {
    let document = |kind: &str| -> B256 { keccak256(format!("{kind} of agent {id}")) };
    IAgentRegistry::registerAgentCall {
        haftungsperson: person(id),
        agentWallet: wallet,
        constitutionHash: document("constitution"),
        capabilityHash: document("capabilities"),
        operationalScope: scope.to_owned(),
        parentAgentId: U256::from(parent),
        selfModifying: id.is_multiple_of(3),
    }
}

/// Who is liable for the `id`th agent, unless the story says otherwise.
fn person(id: u64) -> Address {
    Address::from_word(keccak256(format!("person liable for agent {id}")))
}

/// A report for the week before `now`.
fn report(
    id: u64,
    cents: u64,
    currency: &str,
    category: &str,
    now: u64,
) -> IAgentRegistry::reportRevenueCall {
    IAgentRegistry::reportRevenueCall {
        agentId: U256::from(id),
        amount: U256::from(cents),
        currency: currency.to_owned(),
        category: category.to_owned(),
        periodStart: now - 7 * DAY,
        periodEnd: now,
    }
}
