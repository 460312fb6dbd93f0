//! Account facts that a gate reads: code, answer to ERC-1271, and the registry's verdict.

use alloy_primitives::{Bytes, address, hex};
use alloy_sol_types::SolCall as _;
use registry_core::chain::{SignerCode, SignerQuery};
use registry_core::gate::{AccountFacts, AccountQuery, AccountState};
use registry_core::{eth::abi::IAgentRegistry::attestComplianceCall, registry::kya::Decision};

use super::{chain::EvmChain, model::wallet};
use crate::common::prelude::*;

/// `mstore(0, shl(224, 0x1626ba7e)) return(0, 32)`: accepts every signature.
const ACCEPT: &[u8] = &hex!("631626ba7e60e01b60005260206000f3");

fn read(chain: &mut EvmChain, account: Address) -> Result<AccountFacts, QueryError> {
    let signed = Some((B256::repeat_byte(1), Bytes::from(vec![7; 65])));
    let (registry, now) = (Some(chain.registry), Timestamp::from_seconds(chain.now));
    let query = AccountQuery { account, signed, registry, now };
    drive(Run::new(query, CANONICAL_ADDRESS, Limits::default()), |batch| chain.post(batch))
}

/// Returns an account's check of the signature of an acceptance.
fn opinion(chain: &mut EvmChain, account: Address) -> SignerCode {
    let (hash, signature) = (B256::repeat_byte(1), Bytes::from(vec![7; 65]));
    let query = SignerQuery { account, hash, signature, block: None };
    drive(Run::new(query, CANONICAL_ADDRESS, Limits::default()), |batch| chain.post(batch)).unwrap()
}

/// Returns a chain with agent 1, of the wallet 0.
fn with_agent() -> EvmChain {
    let mut chain = EvmChain::deploy();
    chain.register(wallet(0));
    chain
}

#[test]
fn one_round_trip_reads_code_signature_and_verdict() {
    let mut chain = with_agent();
    let facts = read(&mut chain, wallet(0)).unwrap();
    assert_eq!((facts.state, chain.round_trips), (AccountState::NoCode, 1));
    let kya = facts.kya.unwrap();
    assert_eq!((kya.wallet, kya.decision), (wallet(0), Decision::Provision));
    let block = chain.as_of();
    assert_eq!(block["blockNumber"], kya.as_of.block_number);
    assert_eq!(block["parentHash"], kya.as_of.parent_hash.to_string());
    chain.now += GRACE + 1;
    assert_eq!(read(&mut chain, wallet(0)).unwrap().kya.unwrap().decision, Decision::RequestRenewal);
    assert_eq!(read(&mut chain, wallet(1)).unwrap().kya.unwrap().decision, Decision::Deny);
}

#[test]
fn an_account_with_code_says_itself_whether_it_signed() {
    let mut chain = with_agent();
    let [accepting, silent] = [ACCEPT, &[0]].map(|code| chain.put_code(code.to_vec()));
    let nothing = address!("0x00000000000000000000000000000000000dead0");
    let [accepting, silent, nothing] =
        [accepting, silent, nothing].map(|to| [&hex!("ef0100"), to.as_slice()].concat());
    // `mload(2 ** 20)`, which is two million gas, before it accepts.
    let dear = [&hex!("621000005150"), ACCEPT].concat();
    for (what, code, accepts) in [
        ("a delegation to it", &*accepting, true),
        ("the magic value for much gas", &dear, true),
        ("the magic value at the head of 64 KiB", &hex!("631626ba7e60e01b600052620100006000f3"), true),
        ("a delegation to silence", &silent, false),
        ("a delegation to nothing", &nothing, false),
        ("the magic value", ACCEPT, true),
        ("nothing", &hex!("00"), false),
        ("a revert", &hex!("60006000fd"), false),
        ("all of the gas", &hex!("5b600056"), false),
        ("the magic value without its padding", &hex!("631626ba7e60e01b60005260046000f3"), false),
        ("the magic value at the other end", &hex!("631626ba7e60005260206000f3"), false),
        ("a revert with the magic value", &hex!("631626ba7e60e01b60005260206000fd"), false),
    ] {
        let account = chain.put_code(code.to_vec());
        for undeployed in [Undeployed::Override, Undeployed::Creation] {
            chain.undeployed = undeployed;
            let facts = read(&mut chain, account).unwrap();
            assert_eq!(facts.state, AccountState::Code { accepts }, "{what}, {undeployed:?}");
            assert_eq!(facts.kya.unwrap().decision, Decision::Deny, "{what}, {undeployed:?}");
            // An acceptance gets 100,000 gas, and no more.
            let accepts = accepts && code != dear;
            let code = SignerCode { has_code: true, accepts };
            assert_eq!(opinion(&mut chain, account), code, "{what}, {undeployed:?}");
        }
    }
}

#[test]
fn an_account_cannot_change_its_own_verdict() {
    let mut chain = with_agent();
    // The wallet of agent 2 attests that agent's compliance, and accepts every signature.
    let call = attestComplianceCall { agentId: U256::from(2) }.abi_encode();
    let mut code = Vec::new();
    for (place, word) in call.chunks(32).enumerate() {
        code.push(0x7f);
        code.extend(B256::right_padding_from(word));
        code.extend([0x60, 32 * place as u8, 0x52]);
    }
    code.extend(hex!("6000600060246000600073"));
    code.extend(chain.registry);
    code.extend(hex!("5af150"));
    code.extend(ACCEPT);
    let account = chain.put_code(code);
    chain.register(account);
    chain.now += GRACE + 1;
    assert!(chain.calls_registry(account), "in a call that is not static it attests");
    for undeployed in [Undeployed::Override, Undeployed::Creation] {
        chain.undeployed = undeployed;
        let facts = read(&mut chain, account).unwrap();
        assert_eq!(facts.state, AccountState::Code { accepts: true });
        assert_eq!(facts.kya.unwrap().decision, Decision::RequestRenewal, "{undeployed:?}");
    }
}

#[test]
fn a_node_that_runs_no_lens_gives_no_answer_and_never_a_wrong_one() {
    let mut chain = with_agent();
    chain.undeployed = Undeployed::Refused;
    let error = read(&mut chain, wallet(0)).unwrap_err();
    assert!(matches!(error, QueryError::Run(_)), "{error:?}");
}
