// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {Forwarder} from "../src/Forwarder.sol";
import {Requests} from "./ForwarderFixture.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {account, expectError, vm} from "./Vm.sol";

/// The registry through its forwarder (ERC-2771): whoever signed is the caller, and nobody else can claim to be.
contract ForwardedCallsTest is RegistryFixture {
    uint256 private constant KEY = uint256(keccak256("the signer's key"));
    address private immutable signer = vm.addr(KEY);
    address private immutable relayer = account("relayer");

    function relay(uint256 key, bytes memory data) private returns (bool success, bytes memory returnData) {
        return relayThrough(forwarder, key, data);
    }

    function relayThrough(Forwarder through, uint256 key, bytes memory data)
        private
        returns (bool success, bytes memory returnData)
    {
        Forwarder.ForwardRequest memory req = Forwarder.ForwardRequest({
            from: vm.addr(key),
            to: address(registry),
            value: 0,
            gas: 500_000,
            nonce: through.getNonce(vm.addr(key)),
            deadline: uint48(block.timestamp + 60),
            data: data
        });
        bytes memory signature = Requests.sign(key, Requests.domainOf(through), req);
        vm.prank(relayer);
        return through.execute(req, signature);
    }

    function registration() private view returns (bytes memory) {
        return abi.encodeCall(
            AgentRegistry.registerAgent, (haftungsperson, wallet, CONSTITUTION, CAPABILITIES, SCOPE, 0, true)
        );
    }

    function test_a_relayed_registration_has_the_signer_as_creator() public {
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentRegistered(1, wallet, signer, haftungsperson, 0, 0);
        (bool success, bytes memory returnData) = relay(KEY, registration());
        vm.assertTrue(success);
        vm.assertEq(abi.decode(returnData, (uint256)), 1);

        AgentRegistry.AgentRecord memory agent = registry.getAgent(1);
        vm.assertEq(agent.creator, signer);
        vm.assertEq(agent.agentWallet, wallet);
        vm.assertEq(agent.haftungsperson, haftungsperson);
        vm.assertEq(agent.operationalScope, SCOPE, "the sender behind the calldata changes nothing in it");
    }

    function test_the_signer_runs_its_agent_without_gas_of_its_own() public {
        relay(KEY, registration());
        vm.warp(START + 8 days);
        vm.assertFalse(registry.isRegisteredAndCompliant(wallet));

        vm.expectEmit(address(registry));
        emit AgentRegistry.ComplianceAttested(1, signer, uint64(START + 8 days));
        (bool success,) = relay(KEY, abi.encodeCall(AgentRegistry.attestCompliance, (1)));
        vm.assertTrue(success);
        vm.assertTrue(registry.isRegisteredAndCompliant(wallet));

        vm.expectEmit(address(registry));
        emit AgentRegistry.RevenueReported(1, signer, 100, "EUR", "sales");
        (success,) = relay(KEY, abi.encodeCall(AgentRegistry.reportRevenue, (1, 100, "EUR", "sales", 1, 2)));
        vm.assertTrue(success);

        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentTerminated(1, signer);
        (success,) = relay(KEY, abi.encodeCall(AgentRegistry.terminateSelf, (1)));
        vm.assertTrue(success);
        vm.assertEq(signer.balance, 0);
    }

    function test_a_registry_revert_comes_back_through_the_forwarder() public {
        (bool success, bytes memory returnData) = relay(KEY, abi.encodeCall(AgentRegistry.attestCompliance, (7)));
        vm.assertFalse(success);
        vm.assertEq(returnData, abi.encodeWithSignature("Error(string)", "Agent not found"));
    }

    /// The relayer's own rights are not the signer's, and the forwarder has none.
    function test_a_relayed_call_has_the_signers_rights_only() public {
        uint256 agentId = register();
        vm.prank(owner);
        registry.setRegulator(relayer, true);
        vm.prank(owner);
        registry.setRegulator(address(forwarder), true);

        (bool success, bytes memory returnData) = relay(KEY, abi.encodeCall(AgentRegistry.suspendAgent, (agentId, "")));
        vm.assertFalse(success);
        vm.assertEq(returnData, abi.encodeWithSignature("Error(string)", "Only regulator"));
        (success, returnData) = relay(KEY, abi.encodeCall(AgentRegistry.terminateSelf, (agentId)));
        vm.assertFalse(success);
        vm.assertEq(returnData, abi.encodeWithSignature("Error(string)", "Not authorized for this agent"));
    }

    function test_owner_and_regulator_may_be_relayed_too() public {
        vm.prank(owner);
        registry.transferOwnership(signer);
        (bool success,) = relay(KEY, abi.encodeCall(AgentRegistry.setRegulator, (account("deputy"), true)));
        vm.assertTrue(success);
        vm.assertTrue(registry.isRegulator(account("deputy")));

        uint256 agentId = register();
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentSuspended(agentId, signer, "audit");
        (success,) = relay(KEY, abi.encodeCall(AgentRegistry.suspendAgent, (agentId, "audit")));
        vm.assertTrue(success);
    }

    function test_an_address_behind_a_direct_call_is_not_believed() public {
        vm.prank(stranger);
        (bool success, bytes memory returnData) = address(registry).call(abi.encodePacked(registration(), owner));
        vm.assertTrue(success);
        vm.assertEq(registry.getAgent(abi.decode(returnData, (uint256))).creator, stranger);

        vm.prank(stranger);
        (success, returnData) = address(registry)
            .call(abi.encodePacked(abi.encodeCall(AgentRegistry.setRegulator, (stranger, true)), owner));
        vm.assertFalse(success);
        vm.assertEq(returnData, abi.encodeWithSignature("Error(string)", "Only owner"));
    }

    function test_another_forwarder_is_not_believed() public {
        Forwarder other = new Forwarder();
        (bool success,) = relayThrough(other, KEY, registration());
        vm.assertTrue(success);
        vm.assertEq(registry.getAgent(1).creator, address(other), "to the registry it is just a caller");
    }

    function test_a_relayed_registration_cannot_be_replayed() public {
        Forwarder.ForwardRequest memory req =
            Forwarder.ForwardRequest(signer, address(registry), 0, 500_000, 0, 0, registration());
        bytes memory signature = Requests.sign(KEY, Requests.domainOf(forwarder), req);
        forwarder.execute(req, signature);
        vm.prank(regulator);
        registry.revokeAgent(1, "fraud"); // the wallet is free: only the nonce stands against it
        expectError("Forwarder: invalid signature");
        forwarder.execute(req, signature);
        vm.assertEq(registry.nextAgentId(), 2);
    }
}
