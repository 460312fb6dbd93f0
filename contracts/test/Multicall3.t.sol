// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {Multicall3} from "../src/Multicall3.sol";
import {AgentRegistry} from "../src/AgentRegistry.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {account, expectError, vm} from "./Vm.sol";

/// The stand-in behaves as the canonical Multicall3 does, at the canonical address.
contract Multicall3Test is RegistryFixture {
    Multicall3 private constant MULTICALL = Multicall3(0xcA11bde05977b3631167028862bE2a173976CA11);

    function setUp() public override {
        super.setUp();
        // As on a local chain: the code is put there, no constructor runs.
        vm.etch(address(MULTICALL), address(new Multicall3()).code);
    }

    function getAgent(uint256 agentId, bool allowFailure) private view returns (Multicall3.Call3 memory) {
        return Multicall3.Call3(address(registry), allowFailure, abi.encodeCall(AgentRegistry.getAgent, (agentId)));
    }

    function test_answers_come_in_the_order_of_the_calls() public {
        Multicall3.Call3[] memory calls = new Multicall3.Call3[](3);
        calls[0] = getAgent(register(), false);
        calls[1] = getAgent(register(stranger, 1), false);
        calls[2] = Multicall3.Call3(address(registry), false, abi.encodeCall(AgentRegistry.isRegistered, (wallet)));
        Multicall3.Result[] memory results = MULTICALL.aggregate3(calls);
        vm.assertEq(results.length, 3);
        for (uint256 i = 0; i < 2; ++i) {
            vm.assertTrue(results[i].success);
            vm.assertEq(results[i].returnData, abi.encode(registry.getAgent(i + 1)));
        }
        vm.assertTrue(abi.decode(results[2].returnData, (bool)));
    }

    function test_an_allowed_failure_is_reported_with_its_reason() public {
        register();
        Multicall3.Call3[] memory calls = new Multicall3.Call3[](2);
        calls[0] = getAgent(9, true);
        calls[1] = getAgent(1, false);
        Multicall3.Result[] memory results = MULTICALL.aggregate3(calls);
        vm.assertFalse(results[0].success);
        vm.assertEq(results[0].returnData, abi.encodeWithSignature("Error(string)", "Agent not found"));
        vm.assertTrue(results[1].success);
    }

    function test_any_other_failure_fails_all() public {
        register();
        Multicall3.Call3[] memory calls = new Multicall3.Call3[](2);
        calls[0] = getAgent(1, true);
        calls[1] = getAgent(9, false);
        expectError("Multicall3: call failed");
        MULTICALL.aggregate3(calls);
    }

    function test_a_target_without_code_answers_nothing() public {
        Multicall3.Call3[] memory calls = new Multicall3.Call3[](1);
        calls[0] = Multicall3.Call3(account("no code"), false, hex"12345678");
        Multicall3.Result[] memory results = MULTICALL.aggregate3(calls);
        vm.assertTrue(results[0].success);
        vm.assertEq(results[0].returnData.length, 0);
    }

    function test_no_calls_no_answers() public {
        vm.assertEq(MULTICALL.aggregate3(new Multicall3.Call3[](0)).length, 0);
    }

    function test_tells_the_block_it_runs_in() public {
        vm.roll(1234);
        vm.setBlockhash(1233, keccak256("block 1233"));
        vm.assertEq(MULTICALL.getBlockNumber(), 1234);
        vm.assertEq(MULTICALL.getLastBlockHash(), keccak256("block 1233"));
        vm.assertEq(MULTICALL.getCurrentBlockTimestamp(), START);
        vm.assertEq(MULTICALL.getChainId(), block.chainid);
    }

    function test_block_0_has_no_block_before_it() public {
        vm.roll(0);
        vm.assertEq(MULTICALL.getLastBlockHash(), bytes32(0));
    }
}
