// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {RegistryHandler} from "./RegistryHandler.sol";
import {vm} from "./Vm.sol";

/// What holds in every state that operations in any order can reach.
contract RegistryInvariantsTest {
    RegistryHandler private _handler;
    AgentRegistry private _registry;

    function setUp() public {
        vm.warp(1_700_000_000);
        _handler = new RegistryHandler();
        _registry = _handler.registry();
    }

    /// Read by forge: it calls the handler's functions only.
    function targetContracts() public view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(_handler);
    }

    function invariant_ids_are_dense_from_1() public {
        uint256 next = _registry.nextAgentId();
        vm.assertEq(next, _handler.agents() + 1);
        for (uint256 id = 1; id < next; ++id) {
            vm.assertEq(_registry.getAgent(id).agentId, id);
        }
        vm.assertFalse(_exists(0));
        vm.assertFalse(_exists(next));
    }

    function invariant_a_wallet_belongs_to_at_most_one_live_agent() public view {
        for (uint256 i = 0; i < _handler.WALLETS(); ++i) {
            address wallet = _handler.walletAt(i);
            uint256 holder = 0;
            for (uint256 id = 1; id < _registry.nextAgentId(); ++id) {
                AgentRegistry.AgentRecord memory agent = _registry.getAgent(id);
                bool live =
                    agent.status == AgentRegistry.Status.Active || agent.status == AgentRegistry.Status.Suspended;
                if (!live || agent.agentWallet != wallet) continue;
                vm.assertEq(holder, 0, "two live agents on one wallet");
                holder = id;
            }
            vm.assertEq(_registry.walletToAgent(wallet), holder);
            vm.assertTrue(_registry.isRegistered(wallet) == (holder != 0));
        }
    }

    function invariant_generation_is_the_parents_plus_1_and_at_most_the_maximum() public view {
        uint256 childrenInLists = 0;
        uint256 childrenInRecords = 0;
        for (uint256 id = 1; id < _registry.nextAgentId(); ++id) {
            AgentRegistry.AgentRecord memory agent = _registry.getAgent(id);
            vm.assertEq(agent.parentAgentId, _handler.parentOf(id));
            vm.assertLe(agent.generation, _registry.maxGenerationDepth(), "deeper than the maximum");
            if (agent.parentAgentId == 0) {
                vm.assertEq(agent.generation, 0);
            } else {
                ++childrenInRecords;
                vm.assertEq(agent.generation, _registry.getAgent(agent.parentAgentId).generation + 1);
            }
            uint256[] memory children = _registry.getChildren(id);
            childrenInLists += children.length;
            for (uint256 i = 0; i < children.length; ++i) {
                vm.assertEq(_registry.getAgent(children[i]).parentAgentId, id);
            }
        }
        vm.assertEq(childrenInLists, childrenInRecords);
    }

    function invariant_revoked_and_terminated_agents_never_change() public view {
        for (uint256 id = 1; id < _registry.nextAgentId(); ++id) {
            bytes32 expected = _handler.finalHash(id);
            if (expected == bytes32(0)) {
                vm.assertTrue(_handler.isLive(id));
            } else {
                vm.assertEq(keccak256(abi.encode(_registry.getAgent(id), _registry.getRevenueHistory(id))), expected);
            }
        }
    }

    /// The handler can do all it is there for; without this, invariants could hold because nothing happens.
    function test_the_handler_reaches_every_operation() public {
        for (uint256 i = 0; i < 1000; ++i) {
            uint256 a = uint256(keccak256(abi.encode(i, "first seed")));
            uint256 b = uint256(keccak256(abi.encode(i, "second seed")));
            uint256 operation = i % 7;
            if (operation == 0) _handler.registerAgent(a, b);
            if (operation == 1) _handler.attestCompliance(a, b);
            if (operation == 2) _handler.reportRevenue(a, b, i);
            if (operation == 3) _handler.terminateSelf(a, b);
            if (operation == 4) _handler.suspendAgent(a);
            if (operation == 5) _handler.reactivateAgent(a);
            if (operation == 6) _handler.revokeAgent(a);
        }
        bytes4[7] memory operations = [
            AgentRegistry.registerAgent.selector,
            AgentRegistry.attestCompliance.selector,
            AgentRegistry.reportRevenue.selector,
            AgentRegistry.terminateSelf.selector,
            AgentRegistry.suspendAgent.selector,
            AgentRegistry.reactivateAgent.selector,
            AgentRegistry.revokeAgent.selector
        ];
        for (uint256 i = 0; i < operations.length; ++i) {
            vm.assertGe(
                _handler.allowed(operations[i]), 5, string.concat("hardly ever succeeds: operation ", vm.toString(i))
            );
        }
        vm.assertEq(_handler.deepest(), _handler.DEPTH(), "the maximum generation is never reached");
    }

    function _exists(uint256 agentId) private returns (bool success) {
        (success,) = address(_registry).call(abi.encodeCall(AgentRegistry.getAgent, (agentId)));
    }
}
