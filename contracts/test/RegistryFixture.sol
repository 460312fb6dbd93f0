// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {Forwarder} from "../src/Forwarder.sol";
import {account, vm} from "./Vm.sol";

/// A fresh registry and forwarder, the people around them, and the shortest way to register an agent.
abstract contract RegistryFixture {
    bytes32 internal constant CONSTITUTION = keccak256("constitution");
    bytes32 internal constant CAPABILITIES = keccak256("capabilities");
    string internal constant SCOPE = unicode"Größe 🤖";
    uint256 internal constant START = 1_700_000_000;

    address internal immutable owner = account("owner");
    address internal immutable regulator = account("regulator");
    address internal immutable creator = account("creator");
    address internal immutable haftungsperson = account("haftungsperson");
    address internal immutable wallet = account("wallet");
    address internal immutable stranger = account("stranger");

    Forwarder internal forwarder;
    AgentRegistry internal registry;

    function setUp() public virtual {
        vm.warp(START);
        forwarder = new Forwarder();
        vm.prank(owner);
        registry = new AgentRegistry(address(forwarder));
        vm.prank(owner);
        registry.setRegulator(regulator, true);
    }

    /// A root agent on `wallet`.
    function register() internal returns (uint256 agentId) {
        return register(wallet, 0);
    }

    function register(address agentWallet, uint256 parentAgentId) internal returns (uint256 agentId) {
        vm.prank(creator);
        return
            registry.registerAgent(haftungsperson, agentWallet, CONSTITUTION, CAPABILITIES, SCOPE, parentAgentId, true);
    }

    function suspended() internal returns (uint256 agentId) {
        agentId = register();
        vm.prank(regulator);
        registry.suspendAgent(agentId, "audit");
    }

    function revoked() internal returns (uint256 agentId) {
        agentId = register();
        vm.prank(regulator);
        registry.revokeAgent(agentId, "fraud");
    }

    function terminated() internal returns (uint256 agentId) {
        agentId = register();
        vm.prank(wallet);
        registry.terminateSelf(agentId);
    }

    /// One agent in each status that is not Active, on wallets of their own.
    function inactive() internal returns (uint256[3] memory agentIds) {
        for (uint256 i = 0; i < 3; ++i) {
            agentIds[i] = register(account(string.concat("inactive ", vm.toString(i))), 0);
        }
        vm.prank(regulator);
        registry.suspendAgent(agentIds[0], "audit");
        vm.prank(regulator);
        registry.revokeAgent(agentIds[1], "fraud");
        vm.prank(creator);
        registry.terminateSelf(agentIds[2]);
    }

    function assertStatus(uint256 agentId, AgentRegistry.Status expected) internal view {
        vm.assertEq(uint256(registry.getAgent(agentId).status), uint256(expected), "status");
    }
}
