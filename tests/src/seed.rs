//! Seeded registries: the showcase, which has one of everything, and plain ones of any size.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, U256, keccak256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Result, ensure};
use registry_core::eth::abi::IAgentRegistry::{self, registerAgentCall, reportRevenueCall, suspendAgentCall};

use crate::anvil::{AnvilOptions, dev_account, wall_clock};
use crate::chain::{Chain, Write};
use crate::daemon::RelayerDaemon;
use crate::relay::RequestFactory;
use crate::story::{BEGINS, BUSY, BUSY_CHILDREN, DAY, RELAYED, STORY, StoryEvent};

/// Accounts that register agents. Account 0 owns the registry, 1 is its regulator.
const OPERATORS: std::ops::Range<usize> = 2..10;

/// Seconds by which the showcase's chain stays behind the wall clock. Blocks of one second get times a second
/// apart, and a chain ahead of its readers would show them agents of the future; a relayer takes one a minute
/// behind for stuck.
const MARGIN: u64 = 30;

#[derive(Debug, Clone)]
pub struct Showcase {
    /// Ids that the registry gave to the story's agents, by name.
    pub ids: BTreeMap<String, u64>,
    pub total: u64,
}

impl Showcase {
    pub fn id(&self, agent: &str) -> u64 {
        *self.ids.get(agent).unwrap_or_else(|| panic!("the story has no {agent}"))
    }

    pub fn path(&self, agent: &str) -> String {
        format!("/api/v1/agent/{}", self.id(agent))
    }

    pub fn lineage(&self, agent: &str) -> String {
        self.path(agent) + "/lineage"
    }
}

/// Returns a genesis time that leaves room for the showcase's history, for
/// [`AnvilOptions::genesis_time`](crate::anvil::AnvilOptions::genesis_time).
pub fn showcase_genesis() -> u64 {
    wall_clock() - BEGINS - DAY
}

pub async fn chain_of_one() -> Result<Chain> {
    let chain = Chain::start(AnvilOptions::default()).await?;
    chain.send(chain.owner(), registration_call(1, wallet("good").address(), "guarded", 0)).await?;
    Ok(chain)
}

pub async fn showcase_chain() -> Result<(Chain, Showcase)> {
    let chain = Chain::start(AnvilOptions::since(showcase_genesis())).await?;
    let showcase = showcase(&chain).await?;
    Ok((chain, showcase))
}

pub fn kya(agent: &str) -> String {
    format!("/api/v1/kya/{}", wallet(agent).address())
}

/// Derives a wallet's key from its name: the same on every local chain.
pub fn wallet(agent: &str) -> PrivateKeySigner {
    let key = keccak256(format!("agent-registry-edge local wallet: {agent}"));
    PrivateKeySigner::from_bytes(&key).expect("a hash is a key, but for one chance in 2^128")
}

/// Fills an empty registry with the showcase, on a chain that began at [`showcase_genesis`] or before. The
/// chain's last block is a little behind the wall clock.
pub async fn showcase(chain: &Chain) -> Result<Showcase> {
    ensure!(chain.total().await? == 0, "the registry is not empty");
    chain
        .send(chain.owner(), IAgentRegistry::setRegulatorCall { account: dev_account(1), isRegulator: true })
        .await?;

    let now = wall_clock();
    let mut cast = StoryWriter::default();
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

/// Adds the agents without ETH, each by a request that its own wallet signs and the daemon relays.
pub async fn relayed(chain: &Chain, daemon: &RelayerDaemon, showcase: &mut Showcase) -> Result<()> {
    let (desk, client) = (RequestFactory::of(chain), daemon.client());
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

/// Adds `count` agents as fast as the node takes them: five children each in registration order, every tenth
/// suspended, every fourth with a revenue report, all attested at the chain's present.
pub async fn many(chain: &Chain, count: u64) -> Result<()> {
    let first = chain.total().await? + 1;
    let now = chain.node.time().await?;
    let mut writes = Vec::new();
    for index in 0..count {
        // The root's children are 1 to 5 after it, theirs 6 to 30, and so on.
        let parent = if index == 0 { 0 } else { first + (index - 1) / 5 };
        let id = first + index;
        let wallet = wallet(&format!("many {id}")).address();
        writes.push(registration(id, wallet, &format!("Number {id}"), parent));
    }
    for id in first..first + count {
        if id.is_multiple_of(4) {
            let report = report(id, id * 100, "EUR", "fees", now);
            writes.push(Write::new(operator(id), &report));
        }
        if id.is_multiple_of(10) {
            writes.push(Write::new(chain.owner(), &suspension(id, "every tenth")));
        }
    }
    chain.send_all(&writes, None).await
}

#[derive(Debug, Default)]
struct StoryWriter {
    ids: BTreeMap<String, u64>,
    next: u64,
}

impl StoryWriter {
    fn play(&mut self, event: &StoryEvent, now: u64) -> Vec<Write> {
        let regulator = dev_account(1);
        let write = match *event {
            StoryEvent::Register(agent, scope, parent) => {
                let parent = parent.map_or(0, |parent| self.ids[parent]);
                self.register(agent, wallet(agent).address(), scope, parent)
            }
            StoryEvent::Inherit(agent, scope, from) => self.register(agent, wallet(from).address(), scope, 0),
            StoryEvent::Fleet => return (1..=BUSY_CHILDREN).map(|berth| self.berth(berth)).collect(),
            StoryEvent::Attest(agent) => {
                let id = self.ids[agent];
                Write::new(operator(id), &IAgentRegistry::attestComplianceCall { agentId: U256::from(id) })
            }
            StoryEvent::Report(agent, cents, currency, category) => {
                let id = self.ids[agent];
                Write::new(operator(id), &report(id, cents, currency, category, now))
            }
            StoryEvent::Suspend(agent, reason) => Write::new(regulator, &suspension(self.ids[agent], reason)),
            StoryEvent::Revoke(agent, reason) => {
                let (id, reason) = (U256::from(self.ids[agent]), reason.to_owned());
                Write::new(regulator, &IAgentRegistry::revokeAgentCall { agentId: id, reason })
            }
            StoryEvent::Reactivate(agent) => {
                let id = U256::from(self.ids[agent]);
                Write::new(regulator, &IAgentRegistry::reactivateAgentCall { agentId: id })
            }
            StoryEvent::Terminate(agent) => {
                let id = self.ids[agent];
                Write::new(operator(id), &IAgentRegistry::terminateSelfCall { agentId: U256::from(id) })
            }
        };
        vec![write]
    }

    /// Builds the registration of one agent of the fleet; the same person is liable for all of it.
    fn berth(&mut self, berth: usize) -> Write {
        let name = format!("berth {berth}");
        let id = self.enter(&name);
        let scope = format!("Berth {berth}");
        let call = registration_call(id, wallet(&name).address(), &scope, self.ids[BUSY]);
        let haftungsperson = person(self.ids[BUSY]);
        Write::new(operator(id), &registerAgentCall { haftungsperson, ..call })
    }

    fn register(&mut self, agent: &str, wallet: Address, scope: &str, parent: u64) -> Write {
        registration(self.enter(agent), wallet, scope, parent)
    }

    /// Assigns the next id to an agent.
    fn enter(&mut self, agent: &str) -> u64 {
        self.next += 1;
        self.ids.insert(agent.to_owned(), self.next);
        self.next
    }
}

/// Returns the account that registers the agent of this id: the ids go round the operators.
pub fn operator(id: u64) -> Address {
    let count = OPERATORS.len() as u64;
    dev_account(OPERATORS.start + usize::try_from(id % count).expect("a remainder of eight"))
}

fn registration(id: u64, wallet: Address, scope: &str, parent: u64) -> Write {
    Write::new(operator(id), &registration_call(id, wallet, scope, parent))
}

/// Builds a registration of the agent of this id.
pub fn registration_call(id: u64, wallet: Address, scope: &str, parent: u64) -> registerAgentCall {
    let document = |kind: &str| -> B256 { keccak256(format!("{kind} of agent {id}")) };
    registerAgentCall {
        haftungsperson: person(id),
        agentWallet: wallet,
        constitutionHash: document("constitution"),
        capabilityHash: document("capabilities"),
        operationalScope: scope.to_owned(),
        parentAgentId: U256::from(parent),
        selfModifying: id.is_multiple_of(3),
    }
}

/// Returns the address of the person liable for the agent of this id, unless the story names another.
fn person(id: u64) -> Address {
    Address::from_word(keccak256(format!("person liable for agent {id}")))
}

pub fn suspension(id: u64, reason: &str) -> suspendAgentCall {
    suspendAgentCall { agentId: U256::from(id), reason: reason.to_owned() }
}

/// Builds a revenue report of an agent for the week before `now`.
pub fn report(id: u64, cents: u64, currency: &str, category: &str, now: u64) -> reportRevenueCall {
    reportRevenueCall {
        agentId: U256::from(id),
        amount: U256::from(cents),
        currency: currency.to_owned(),
        category: category.to_owned(),
        periodStart: now - 7 * DAY,
        periodEnd: now,
    }
}
