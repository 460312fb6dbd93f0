//! The read API against the real contracts' bytecode in an in-process EVM, compared with a plain model after
//! random registry operations.
mod accounts;
mod chain;
mod crowded;
mod layout;
mod model;

use alloy_sol_types::SolCall as _;
use chain::EvmChain;
use model::{Model, Op, WALLETS};
use proptest::prelude::*;
use registry_core::eth::abi::IAgentRegistry::{
    IAgentRegistryCalls as Calls, attestComplianceCall, complianceStatusCall, isRegisteredAndCompliantCall,
    reactivateAgentCall, registerAgentCall, reportRevenueCall, revokeAgentCall, suspendAgentCall,
    terminateSelfCall,
};
use registry_core::index;

use crate::common::{database::Database, database::config, database::upkeep, prelude::*, random::cases};

const EVERY_WAY: [Undeployed; 3] = [Undeployed::Override, Undeployed::Creation, Undeployed::Refused];

fn op() -> impl Strategy<Value = Op> {
    // Small numbers, so that operations meet: few wallets, few actors, ids around those there are.
    let (by, agent) = (|| 0usize..5, || (0u64..9).prop_map(U256::from));
    prop_oneof![
        6 => (by(), 0..WALLETS, 0u64..9, any::<bool>(), "[a-zé🤖\"\\\\]{0,40}").prop_map(|(by, wallet, parent, changes, scope)| {
            let call = model::registration(model::wallet(wallet), parent, &scope);
            Op::Call(by, Calls::registerAgent(registerAgentCall { selfModifying: changes, ..call }))
        }),
        2 => (by(), agent()).prop_map(|(by, id)| Op::Call(by, Calls::attestCompliance(attestComplianceCall { agentId: id }))),
        3 => (by(), agent(), any::<u64>(), 0usize..3, 0usize..3).prop_map(|(by, agent, amount, currency, category)| {
            report(by, agent, amount, ["EUR", "USD", "ETH"][currency], ["api", "consulting", ""][category])
        }),
        4 => (by(), agent(), 0..4).prop_map(|(by, id, kind)| Op::Call(by, match kind {
            0 => Calls::suspendAgent(suspendAgentCall { agentId: id, reason: String::new() }),
            1 => Calls::revokeAgent(revokeAgentCall { agentId: id, reason: String::new() }),
            2 => Calls::reactivateAgent(reactivateAgentCall { agentId: id }),
            _ => Calls::terminateSelf(terminateSelfCall { agentId: id }),
        })),
        2 => prop_oneof![Just(302_400), Just(604_800), Just(604_801), 1u64..100_000].prop_map(Op::Wait),
    ]
}

fn report(by: usize, agent_id: U256, amount: u64, currency: &str, category: &str) -> Op {
    let (currency, category, amount) = (currency.to_owned(), category.to_owned(), U256::from(amount));
    let call =
        reportRevenueCall { agentId: agent_id, amount, currency, category, periodStart: 5, periodEnd: 7 };
    Op::Call(by, Calls::reportRevenue(call))
}

fn ask(chain: &mut EvmChain, target: &str) -> Result<Value, Error> {
    let now = Timestamp::from_seconds(chain.now);
    let question = Question { registry: chain.registry, chain: "http://evm".into(), now, ..question(target) };
    drive(Run::new(question, CANONICAL_ADDRESS, Limits::default()), |batch| chain.post(batch)).map(read)
}

/// Returns the answers of an index that is filled now; `None` if it does not cover the question.
fn ask_index(chain: &mut EvmChain, targets: &[String]) -> Vec<Option<Result<Value, String>>> {
    let (database, registry, now) = (Database::new(), chain.registry, chain.now);
    let state = upkeep(&database, config(registry, 1_000, 0), now, |batch| Ok(chain.post(batch))).unwrap();
    let index = index::Index::new(&database, &state, registry, "http://evm");
    let now = Timestamp::from_seconds(chain.now);
    let answer = |target: &String| match index.document(&Route::parse(target).unwrap(), now) {
        Err(index::IndexError::Uncovered) => None,
        document => Some(document.map(read).map_err(|error| error.to_string())),
    };
    targets.iter().map(answer).collect()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn every_answer_is_the_models_after_any_operations(
        ops in prop::collection::vec(op(), 1..60),
        gas_cap in prop::sample::select(vec![10_000_000, 50_000_000]),
        undeployed in prop::sample::select(EVERY_WAY.to_vec()),
    ) {
        let (mut chain, mut model) = (EvmChain::deploy(), Model::default());
        (chain.gas_cap, chain.undeployed) = (gas_cap, undeployed);
        for op in &ops {
            let expected = model.apply(op, chain.now);
            prop_assert_eq!(chain.apply(op), expected, "{:?}", op);
        }
        let indexed = ask_index(&mut chain, &model.questions());
        prop_assert!(indexed.iter().flatten().count() > 8);
        for (target, indexed) in model.questions().into_iter().zip(indexed) {
            if let Some(indexed) = indexed {
                let mut live = ask(&mut chain, &target).map_err(|error| error.to_string());
                let mut indexed = indexed;
                for item in [&mut indexed, &mut live].into_iter().flatten().filter_map(|it| it["data"].as_array_mut()) {
                    // A scan's rows have no liable wallets.
                    item.iter_mut().filter_map(Value::as_object_mut).for_each(|item| drop(item.remove("liability")));
                }
                prop_assert_eq!(indexed, live, "{}", target);
            }
            let (answer, mut expected) = (ask(&mut chain, &target), model.answer(&target, chain.now));
            if let Some(expected) = expected.as_mut().filter(|_| target.contains("/kya/") || target.ends_with("/ancestors")) {
                expected["asOf"] = chain.as_of();
            }
            match (answer, expected) {
                (Ok(mut answer), Some(expected)) => {
                    // The model has no address of its own.
                    answer.as_object_mut().unwrap().remove("registryAddress");
                    prop_assert_eq!(answer, expected, "{}", target)
                }
                (Err(Error::Query(QueryError::AgentNotFound(_))), None) => {}
                (answer, expected) => prop_assert!(false, "{target}: {answer:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn the_contracts_own_compliance_agrees_to_the_second() {
    let (mut chain, wallet) = (EvmChain::deploy(), model::wallet(0));
    chain.register(wallet);
    for wait in [604_799, 1, 1] {
        chain.now += wait;
        let answer = ask(&mut chain, "/api/v1/agent/1").unwrap();
        let status = chain
            .call(chain.registry, &complianceStatusCall { agentId: U256::from(1) }.abi_encode())
            .unwrap();
        let status = complianceStatusCall::abi_decode_returns(&status).unwrap();
        assert_eq!(answer["compliance"]["attestationCurrent"], status.attestationCurrent);
        assert_eq!(answer["compliance"]["secondsSinceAttestation"], status.secondsSinceAttestation);
        let compliant =
            chain.call(chain.registry, &isRegisteredAndCompliantCall { agentWallet: wallet }.abi_encode());
        let compliant = isRegisteredAndCompliantCall::abi_decode_returns(&compliant.unwrap()).unwrap();
        assert_eq!(ask(&mut chain, &format!("/api/v1/kya/{wallet}")).unwrap()["isCompliant"], compliant);
    }
    assert_eq!(ask(&mut chain, "/api/v1/agent/1").unwrap()["compliance"]["attestationCurrent"], false);
}
