// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {SyntheticRegistry} from "./SyntheticRegistry.sol";
import {vm} from "./Vm.sol";

/// The synthetic registry is a registry: what it says of an agent in one place it says in all.
contract SyntheticRegistryTest {
    uint256 private constant AGENTS = 1_000;

    SyntheticRegistry private registry;

    function setUp() public {
        vm.warp(1_800_000_000);
        registry = new SyntheticRegistry(AGENTS);
    }

    function test_every_agent_is_its_parents_child_one_generation_below() public view {
        uint256 children;
        for (uint256 id = 1; id <= AGENTS; ++id) {
            AgentRegistry.AgentRecord memory agent = registry.getAgent(id);
            uint256[] memory ids = registry.getChildren(id);
            for (uint256 i = 0; i < ids.length; ++i) {
                AgentRegistry.AgentRecord memory child = registry.getAgent(ids[i]);
                vm.assertEq(child.parentAgentId, id);
                vm.assertEq(child.generation, agent.generation + 1);
            }
            children += ids.length;
            if (agent.parentAgentId == 0) ++children;
        }
        vm.assertEq(children, AGENTS);
    }

    function test_a_wallet_is_its_agents_while_the_agent_keeps_it() public {
        for (uint256 id = 1; id <= AGENTS; ++id) {
            AgentRegistry.AgentRecord memory agent = registry.getAgent(id);
            bool keeps = agent.status < AgentRegistry.Status.Revoked;
            vm.assertEq(registry.walletToAgent(agent.agentWallet), keeps ? id : 0);
            vm.assertTrue(agent.registeredAt <= agent.lastAttestation);
            vm.assertTrue(agent.lastAttestation <= block.timestamp);
        }
        address wallet = registry.getAgent(1).agentWallet;
        vm.assertTrue(registry.isRegistered(wallet));
        registry.revokeAgent(1, "");
        vm.assertFalse(registry.isRegistered(wallet));
    }

    function test_changes_are_kept_and_new_agents_come_after_the_old() public {
        registry.suspendAgent(1, "audit");
        vm.assertTrue(registry.getAgent(1).status == AgentRegistry.Status.Suspended);
        registry.reactivateAgent(1);
        vm.warp(block.timestamp + 1 days);
        registry.attestCompliance(1);
        vm.assertEq(registry.getAgent(1).lastAttestation, block.timestamp);
        registry.toggle(1, 100);
        vm.assertTrue(registry.getAgent(1).status == AgentRegistry.Status.Suspended);
        vm.assertTrue(registry.getAgent(92).status == AgentRegistry.Status.Active);
        vm.assertTrue(registry.getAgent(96).status == AgentRegistry.Status.Revoked);
        registry.register(2);
        vm.assertEq(registry.nextAgentId(), AGENTS + 3);
        vm.assertEq(registry.getAgent(AGENTS + 2).agentId, AGENTS + 2);
    }
}
