// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {account, expectError, vm} from "./Vm.sol";

/// One test per row of the registry's error table (service.md section 7), then the rows this contract adds, then the
/// order of the checks.
contract RegistryErrorsTest is RegistryFixture {
    function test_only_owner() public {
        // A regulator is not enough for any of them.
        vm.prank(regulator);
        expectError("Only owner");
        registry.setRegulator(stranger, true);
        vm.prank(regulator);
        expectError("Only owner");
        registry.setAttestationGracePeriod(1);
        vm.prank(regulator);
        expectError("Only owner");
        registry.setMaxGenerationDepth(1);
        vm.prank(regulator);
        expectError("Only owner");
        registry.transferOwnership(regulator);
    }

    function test_only_regulator() public {
        uint256 agentId = register();
        // Not even for those who answer for the agent.
        address[4] memory callers = [stranger, wallet, creator, haftungsperson];
        for (uint256 i = 0; i < callers.length; ++i) {
            vm.prank(callers[i]);
            expectError("Only regulator");
            registry.suspendAgent(agentId, "");
            vm.prank(callers[i]);
            expectError("Only regulator");
            registry.revokeAgent(agentId, "");
            vm.prank(callers[i]);
            expectError("Only regulator");
            registry.reactivateAgent(agentId);
        }
    }

    function test_a_dismissed_regulator_is_none() public {
        uint256 agentId = register();
        vm.prank(owner);
        registry.setRegulator(regulator, false);
        vm.prank(regulator);
        expectError("Only regulator");
        registry.suspendAgent(agentId, "");
    }

    function test_not_authorized_for_this_agent() public {
        uint256 agentId = register();
        address[4] memory callers = [stranger, owner, regulator, address(forwarder)];
        for (uint256 i = 0; i < callers.length; ++i) {
            // The trusted forwarder's own calls carry a sender: here, nobody's.
            bytes memory sender = callers[i] == address(forwarder) ? abi.encodePacked(stranger) : bytes("");
            expectUnauthorized(callers[i], abi.encodeCall(AgentRegistry.attestCompliance, (agentId)), sender);
            expectUnauthorized(
                callers[i], abi.encodeCall(AgentRegistry.reportRevenue, (agentId, 1, "EUR", "sales", 1, 2)), sender
            );
            expectUnauthorized(callers[i], abi.encodeCall(AgentRegistry.terminateSelf, (agentId)), sender);
        }
    }

    function expectUnauthorized(address caller, bytes memory call, bytes memory sender) private {
        vm.prank(caller);
        (bool success, bytes memory data) = address(registry).call(bytes.concat(call, sender));
        vm.assertFalse(success);
        vm.assertEq(data, abi.encodeWithSignature("Error(string)", "Not authorized for this agent"));
    }

    function test_agent_not_found() public {
        register();
        uint256[3] memory unknown = [0, 2, type(uint256).max];
        for (uint256 i = 0; i < unknown.length; ++i) {
            expectError("Agent not found");
            registry.getAgent(unknown[i]);
            expectError("Agent not found");
            registry.complianceStatus(unknown[i]);
            vm.prank(wallet);
            expectError("Agent not found");
            registry.attestCompliance(unknown[i]);
            vm.prank(wallet);
            expectError("Agent not found");
            registry.reportRevenue(unknown[i], 1, "EUR", "sales", 1, 2);
            vm.prank(wallet);
            expectError("Agent not found");
            registry.terminateSelf(unknown[i]);
            vm.prank(regulator);
            expectError("Agent not found");
            registry.suspendAgent(unknown[i], "");
            vm.prank(regulator);
            expectError("Agent not found");
            registry.revokeAgent(unknown[i], "");
            vm.prank(regulator);
            expectError("Agent not found");
            registry.reactivateAgent(unknown[i]);
        }
    }

    function test_agent_not_active() public {
        uint256[3] memory agentIds = inactive();
        for (uint256 i = 0; i < agentIds.length; ++i) {
            vm.prank(creator);
            expectError("Agent not active");
            registry.attestCompliance(agentIds[i]);
            vm.prank(creator);
            expectError("Agent not active");
            registry.reportRevenue(agentIds[i], 1, "EUR", "sales", 1, 2);
            vm.prank(creator);
            expectError("Agent not active");
            registry.terminateSelf(agentIds[i]);
            vm.prank(regulator);
            expectError("Agent not active");
            registry.suspendAgent(agentIds[i], "");
        }
    }

    function test_a_final_agent_cannot_be_revoked() public {
        uint256[3] memory agentIds = inactive();
        for (uint256 i = 1; i < agentIds.length; ++i) {
            vm.prank(regulator);
            expectError("Agent not active");
            registry.revokeAgent(agentIds[i], "");
        }
    }

    function test_parent_agent_not_found() public {
        register();
        uint256[2] memory unknown = [2, type(uint256).max];
        for (uint256 i = 0; i < unknown.length; ++i) {
            expectError("Parent agent not found");
            registry.registerAgent(haftungsperson, stranger, CONSTITUTION, CAPABILITIES, SCOPE, unknown[i], false);
        }
    }

    function test_parent_agent_not_active() public {
        uint256[3] memory parents = inactive();
        for (uint256 i = 0; i < parents.length; ++i) {
            expectError("Parent agent not active");
            registry.registerAgent(haftungsperson, stranger, CONSTITUTION, CAPABILITIES, SCOPE, parents[i], false);
        }
    }

    function test_max_generation_depth_exceeded() public {
        uint256 agentId = register();
        for (uint256 generation = 1; generation <= 10; ++generation) {
            agentId = register(account(string.concat("generation ", vm.toString(generation))), agentId);
            vm.assertEq(registry.getAgent(agentId).generation, generation);
        }
        expectError("Max generation depth exceeded");
        registry.registerAgent(haftungsperson, stranger, CONSTITUTION, CAPABILITIES, SCOPE, agentId, false);
    }

    function test_wallet_already_registered_to_another_agent() public {
        register();
        expectError("Wallet already registered to another agent");
        registry.registerAgent(haftungsperson, wallet, CONSTITUTION, CAPABILITIES, SCOPE, 0, false);
    }

    function test_a_suspended_agent_keeps_its_wallet() public {
        suspended();
        expectError("Wallet already registered to another agent");
        registry.registerAgent(haftungsperson, wallet, CONSTITUTION, CAPABILITIES, SCOPE, 0, false);
    }

    function test_only_suspended_agents_can_be_reactivated() public {
        uint256[3] memory agentIds = inactive();
        agentIds[0] = register();
        for (uint256 i = 0; i < agentIds.length; ++i) {
            vm.prank(regulator);
            expectError("Only suspended agents can be reactivated");
            registry.reactivateAgent(agentIds[i]);
        }
    }

    function test_no_agent_registered_for_this_wallet() public {
        revoked();
        address[3] memory wallets = [wallet, stranger, address(0)];
        for (uint256 i = 0; i < wallets.length; ++i) {
            expectError("No agent registered for this wallet");
            registry.getAgentByWallet(wallets[i]);
        }
    }

    // Rows this contract adds.

    function test_agent_wallet_is_the_zero_address() public {
        expectError("Agent wallet is the zero address");
        registry.registerAgent(haftungsperson, address(0), CONSTITUTION, CAPABILITIES, SCOPE, 0, false);
    }

    function test_haftungsperson_is_the_zero_address() public {
        expectError("Haftungsperson is the zero address");
        registry.registerAgent(address(0), wallet, CONSTITUTION, CAPABILITIES, SCOPE, 0, false);
    }

    function test_new_owner_is_the_zero_address() public {
        vm.prank(owner);
        expectError("New owner is the zero address");
        registry.transferOwnership(address(0));
    }

    // Where several rows apply, the first check speaks.

    function test_registration_checks_in_the_documented_order() public {
        uint256 suspendedId = suspended();
        vm.prank(owner);
        registry.setMaxGenerationDepth(0);

        expectError("Agent wallet is the zero address");
        registry.registerAgent(address(0), address(0), 0, 0, "", 99, false);
        expectError("Haftungsperson is the zero address");
        registry.registerAgent(address(0), wallet, 0, 0, "", 99, false);
        expectError("Parent agent not found");
        registry.registerAgent(haftungsperson, wallet, 0, 0, "", 99, false);
        expectError("Parent agent not active");
        registry.registerAgent(haftungsperson, wallet, 0, 0, "", suspendedId, false);
        vm.prank(regulator);
        registry.reactivateAgent(suspendedId);
        expectError("Max generation depth exceeded");
        registry.registerAgent(haftungsperson, wallet, 0, 0, "", suspendedId, false);
        vm.prank(owner);
        registry.setMaxGenerationDepth(1);
        expectError("Wallet already registered to another agent");
        registry.registerAgent(haftungsperson, wallet, 0, 0, "", suspendedId, false);
    }

    function test_office_then_existence_then_authority_then_status() public {
        vm.prank(stranger);
        expectError("Only regulator");
        registry.suspendAgent(99, "");
        vm.prank(stranger);
        expectError("Agent not found");
        registry.attestCompliance(99);
        uint256 agentId = suspended();
        vm.prank(stranger);
        expectError("Not authorized for this agent");
        registry.attestCompliance(agentId);
        vm.prank(wallet);
        expectError("Agent not active");
        registry.attestCompliance(agentId);
    }
}
