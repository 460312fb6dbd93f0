//! The read API against the real contracts' bytecode in an in-process EVM, compared with a plain model after
//! random registry operations.
//!
//! 1. Every write does what the model says, or reverts with the message the model says.
//! 2. Every endpoint's answer is the model's, whatever the registry holds, on nodes of 10 and of 50 million
//!    gas that run code which is not deployed in one way, another, or none.
//! 3. An index that is filled from them answers the same.
//! 4. No agent spoils the answer about the others.
//! 5. An account's code, its signature and the verdict on it are of one block, and its code changes none of
//!    them.
//! 6. Evidence knows the registry's code and storage as the compiler laid them out.
mod accounts;
mod chain;
mod crowded;
mod layout;
mod model;

use alloy_sol_types::SolCall as _;
use chain::EvmChain;
use model::{Action, Model, Op, WALLETS};
use proptest::prelude::*;
use registry_core::{
    eth::abi::IAgentRegistry::{complianceStatusCall, isRegisteredAndCompliantCall},
    index,
};

use crate::common::{
    Undeployed, database::Database, database::config, host::read, prelude::*, random::cases,
};

const EVERY_WAY: [Undeployed; 3] = [Undeployed::Override, Undeployed::Creation, Undeployed::Refused];

fn op() -> impl Strategy<Value = Op> {
    // Small numbers, so that operations meet: few wallets, few actors, ids around those there are.
    let action = prop_oneof![
        6 => (0usize..WALLETS, 0u64..9, any::<bool>(), "[a-zé🤖\"\\\\]{0,40}").prop_map(
            |(wallet, parent, self_modifying, scope)| Action::Register { wallet, parent, self_modifying, scope }
        ),
        2 => Just(Action::Attest),
        3 => (any::<u64>(), 0usize..3, 0usize..3)
            .prop_map(|(amount, currency, category)| Action::Report { amount, currency, category }),
        4 => prop::sample::select(vec![Action::Suspend, Action::Revoke, Action::Reactivate, Action::Terminate]),
        2 => prop_oneof![Just(302_400), Just(604_800), Just(604_801), 1u64..100_000].prop_map(Action::Wait),
    ];
    (0usize..5, 0u64..9, action).prop_map(|(by, id, action)| Op { by, id, action })
}

fn ask(chain: &mut EvmChain, target: &str) -> Result<Value, Error> {
    let now = Timestamp::from_seconds(chain.now);
    let question = Question { registry: chain.registry, chain: "http://evm".into(), now, ..question(target) };
    drive(Run::new(question, CANONICAL_ADDRESS, Limits::default()), |batch| chain.post(batch)).map(read)
}

/// The answer of an index that is filled now; `None` where it does not cover the question.
fn ask_index(chain: &mut EvmChain, targets: &[String]) -> Vec<Option<Result<Value, String>>> {
    let (database, config) = (Database::new(), config(chain.registry, 1_000, 0));
    let mut work =
        index::Work::begin(&database, None, config, Endpoints::new(1, None), chain.now * 1_000).unwrap();
    while let Some(Step::Send(batch)) = database.transaction(|database| work.step(database).ok()) {
        let (status, body) = chain.post(&batch);
        work.feed(Reply { status, body: &body }).unwrap();
    }
    let index = index::Index::new(&database, work.state(), chain.registry, "http://evm");
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
                let live = ask(&mut chain, &target).map_err(|error| error.to_string());
                prop_assert_eq!(indexed, live, "{}", target);
            }
            let (answer, mut expected) = (ask(&mut chain, &target), model.answer(&target, chain.now));
            if let Some(expected) = expected.as_mut().filter(|_| target.contains("/kya/") || target.ends_with("/ancestors")) {
                expected["asOf"] = chain.as_of();
            }
            match (answer, expected) {
                (Ok(answer), Some(expected)) => prop_assert_eq!(model::plain_times(answer), expected, "{}", target),
                (Err(Error::Query(QueryError::AgentNotFound(_))), None) => {}
                (answer, expected) => prop_assert!(false, "{target}: {answer:?}, not {expected:?}"),
            }
        }
    }
}

#[test]
fn the_contracts_own_compliance_agrees_to_the_second() {
    let (mut chain, mut model) = (EvmChain::deploy(), Model::default());
    let register = Op::register(1, 0, 0, "");
    assert_eq!(chain.apply(&register), model.apply(&register, chain.now));
    for wait in [604_799, 1, 1] {
        chain.apply(&Op::wait(wait)).unwrap();
        let answer = ask(&mut chain, "/api/v1/agent/1").unwrap();
        let status = chain
            .call(chain.registry, &complianceStatusCall { agentId: U256::from(1) }.abi_encode())
            .unwrap();
        let status = complianceStatusCall::abi_decode_returns(&status).unwrap();
        assert_eq!(answer["compliance"]["attestationCurrent"], status.attestationCurrent);
        assert_eq!(answer["compliance"]["secondsSinceAttestation"], status.secondsSinceAttestation);
        let wallet: Address = model::wallet(0);
        let compliant =
            chain.call(chain.registry, &isRegisteredAndCompliantCall { agentWallet: wallet }.abi_encode());
        let compliant = isRegisteredAndCompliantCall::abi_decode_returns(&compliant.unwrap()).unwrap();
        assert_eq!(ask(&mut chain, &format!("/api/v1/kya/{wallet}")).unwrap()["isCompliant"], compliant);
    }
    assert_eq!(ask(&mut chain, "/api/v1/agent/1").unwrap()["compliance"]["attestationCurrent"], false);
}
