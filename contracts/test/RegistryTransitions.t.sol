// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {expectError, vm} from "./Vm.sol";

/// One test per transition of an agent's status: who may cause it, its event, and what becomes of the wallet. The
/// transitions that are refused are in RegistryErrorsTest.
contract RegistryTransitionsTest is RegistryFixture {
    function test_none_to_active_by_registerAgent() public {
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentRegistered(1, wallet, creator, haftungsperson, 0, 0);
        uint256 agentId = register();

        assertStatus(agentId, AgentRegistry.Status.Active);
        assertHeld(agentId);
        vm.assertTrue(registry.isRegisteredAndCompliant(wallet));
    }

    function test_active_to_suspended_by_suspendAgent() public {
        uint256 agentId = register();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentSuspended(agentId, regulator, "audit");
        vm.prank(regulator);
        registry.suspendAgent(agentId, "audit");

        assertStatus(agentId, AgentRegistry.Status.Suspended);
        assertHeld(agentId);
        vm.assertFalse(registry.isRegisteredAndCompliant(wallet));
    }

    function test_active_to_revoked_by_revokeAgent() public {
        uint256 agentId = register();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentRevoked(agentId, regulator, "fraud");
        vm.prank(regulator);
        registry.revokeAgent(agentId, "fraud");

        assertStatus(agentId, AgentRegistry.Status.Revoked);
        assertFreed();
    }

    function test_active_to_terminated_by_agent_wallet() public {
        terminatesFor(wallet);
    }

    function test_active_to_terminated_by_creator() public {
        terminatesFor(creator);
    }

    function test_active_to_terminated_by_haftungsperson() public {
        terminatesFor(haftungsperson);
    }

    function terminatesFor(address caller) private {
        uint256 agentId = register();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentTerminated(agentId, caller);
        vm.prank(caller);
        registry.terminateSelf(agentId);

        assertStatus(agentId, AgentRegistry.Status.Terminated);
        assertFreed();
    }

    function test_suspended_to_active_by_reactivateAgent() public {
        uint256 agentId = suspended();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentReactivated(agentId, regulator);
        vm.prank(regulator);
        registry.reactivateAgent(agentId);

        assertStatus(agentId, AgentRegistry.Status.Active);
        assertHeld(agentId);
    }

    function test_suspended_to_revoked_by_revokeAgent() public {
        uint256 agentId = suspended();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentRevoked(agentId, regulator, "fraud");
        vm.prank(regulator);
        registry.revokeAgent(agentId, "fraud");

        assertStatus(agentId, AgentRegistry.Status.Revoked);
        assertFreed();
    }

    function test_the_owner_is_a_regulator_too() public {
        uint256 agentId = register();
        vm.assertFalse(registry.isRegulator(owner));
        vm.prank(owner);
        registry.suspendAgent(agentId, "");
        vm.prank(owner);
        registry.reactivateAgent(agentId);
        vm.prank(owner);
        registry.revokeAgent(agentId, "");
        assertStatus(agentId, AgentRegistry.Status.Revoked);
    }

    function test_a_revoked_agents_wallet_registers_anew() public {
        registersAnewAfter(revoked(), AgentRegistry.Status.Revoked);
    }

    function test_a_terminated_agents_wallet_registers_anew() public {
        registersAnewAfter(terminated(), AgentRegistry.Status.Terminated);
    }

    function registersAnewAfter(uint256 ended, AgentRegistry.Status status) private {
        uint256 successor = register();
        vm.assertEq(successor, ended + 1);
        assertHeld(successor);
        assertStatus(ended, status);
        vm.assertEq(registry.getAgent(ended).agentWallet, wallet, "the record keeps its wallet");
    }

    function test_a_parents_end_leaves_its_children() public {
        uint256 parent = register();
        uint256 child = register(stranger, parent);
        vm.prank(regulator);
        registry.revokeAgent(parent, "");
        assertStatus(child, AgentRegistry.Status.Active);
        vm.assertEq(registry.getChildren(parent)[0], child);
    }

    function assertHeld(uint256 agentId) private view {
        vm.assertTrue(registry.isRegistered(wallet));
        vm.assertEq(registry.walletToAgent(wallet), agentId);
        vm.assertEq(registry.getAgentByWallet(wallet).agentId, agentId);
    }

    function assertFreed() private {
        vm.assertFalse(registry.isRegistered(wallet));
        vm.assertFalse(registry.isRegisteredAndCompliant(wallet));
        vm.assertEq(registry.walletToAgent(wallet), 0);
        expectError("No agent registered for this wallet");
        registry.getAgentByWallet(wallet);
    }
}
