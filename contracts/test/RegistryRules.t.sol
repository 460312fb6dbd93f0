// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {account, vm} from "./Vm.sol";

/// What registration, attestation, compliance, revenue reports and the owner's settings do when they are allowed.
contract RegistryRulesTest is RegistryFixture {
    function test_a_new_registry_is_empty_with_the_documented_defaults() public view {
        vm.assertEq(registry.nextAgentId(), 1);
        vm.assertEq(registry.attestationGracePeriod(), 604800);
        vm.assertEq(registry.maxGenerationDepth(), 10);
        vm.assertEq(registry.owner(), owner);
        vm.assertTrue(registry.isTrustedForwarder(address(forwarder)));
        vm.assertFalse(registry.isTrustedForwarder(owner));
        vm.assertFalse(registry.isRegistered(address(0)));
        vm.assertFalse(registry.isRegisteredAndCompliant(wallet));
        vm.assertEq(registry.getChildren(1).length, 0);
        vm.assertEq(registry.getRevenueHistory(1).length, 0);
    }

    function testFuzz_registration_records_what_it_was_given(
        address sender,
        address person,
        address agentWallet,
        bytes32 constitution,
        bytes32 capabilities,
        string memory scope,
        bool selfModifying,
        uint64 time
    ) public {
        vm.assume(person != address(0) && agentWallet != address(0) && sender != address(forwarder));
        vm.warp(time);
        vm.expectEmit(address(registry));
        emit AgentRegistry.AgentRegistered(1, agentWallet, sender, person, 0, 0);
        vm.prank(sender);
        uint256 agentId =
            registry.registerAgent(person, agentWallet, constitution, capabilities, scope, 0, selfModifying);

        vm.assertEq(agentId, 1);
        vm.assertEq(registry.nextAgentId(), 2);
        vm.assertEq(registry.walletToAgent(agentWallet), 1);
        AgentRegistry.AgentRecord memory expected = AgentRegistry.AgentRecord({
            agentId: 1,
            creator: sender,
            haftungsperson: person,
            agentWallet: agentWallet,
            constitutionHash: constitution,
            capabilityHash: capabilities,
            operationalScope: scope,
            parentAgentId: 0,
            generation: 0,
            selfModifying: selfModifying,
            registeredAt: time,
            lastAttestation: time,
            lastRevenueReport: 0,
            status: AgentRegistry.Status.Active
        });
        vm.assertEq(abi.encode(registry.getAgent(1)), abi.encode(expected));
        vm.assertEq(abi.encode(registry.getAgentByWallet(agentWallet)), abi.encode(expected));
    }

    function testFuzz_a_child_is_one_generation_below_its_parent(uint8 levels, address sender) public {
        vm.assume(sender != address(forwarder));
        uint256 depth = uint256(levels) % 11;
        uint256 parent = register();
        for (uint256 i = 1; i <= depth; ++i) {
            vm.prank(sender); // anyone may register under an Active parent
            uint256 child = registry.registerAgent(
                haftungsperson, account(vm.toString(i)), CONSTITUTION, CAPABILITIES, SCOPE, parent, false
            );
            AgentRegistry.AgentRecord memory record = registry.getAgent(child);
            vm.assertEq(record.parentAgentId, parent);
            vm.assertEq(record.generation, i);
            uint256[] memory children = registry.getChildren(parent);
            vm.assertEq(children.length, 1);
            vm.assertEq(children[0], child);
            parent = child;
        }
    }

    function test_children_are_listed_in_order_and_counted() public {
        uint256 parent = register();
        for (uint256 i = 0; i < 60; ++i) {
            register(account(vm.toString(i)), parent);
        }
        uint256[] memory children = registry.getChildren(parent);
        vm.assertEq(children.length, 60);
        for (uint256 i = 0; i < 60; ++i) {
            vm.assertEq(children[i], parent + 1 + i);
        }
        (,,, uint256 childCount,) = registry.complianceStatus(parent);
        vm.assertEq(childCount, 60);
    }

    /// service.md section 2: current while at most the grace period old, its last second included.
    function testFuzz_compliance_follows_the_age_of_the_attestation(uint32 age, uint32 gracePeriod) public {
        uint256 agentId = register();
        vm.prank(owner);
        registry.setAttestationGracePeriod(gracePeriod);
        vm.warp(START + age);
        assertCompliance(agentId, true, age <= gracePeriod, age);
    }

    function test_an_attestation_lapses_after_its_seventh_day_to_the_second() public {
        uint256 agentId = register();
        vm.warp(START + 7 days);
        assertCompliance(agentId, true, true, 7 days);
        vm.warp(START + 7 days + 1);
        assertCompliance(agentId, true, false, 7 days + 1);
    }

    function test_a_grace_period_of_any_size_is_safe() public {
        uint256 agentId = register();
        vm.warp(type(uint64).max);
        vm.prank(owner);
        registry.setAttestationGracePeriod(type(uint256).max);
        assertCompliance(agentId, true, true, type(uint64).max - START);
        vm.prank(owner);
        registry.setAttestationGracePeriod(0);
        assertCompliance(agentId, true, false, type(uint64).max - START);
    }

    function testFuzz_attestation_restarts_the_clock(uint32 wait, uint32 age, uint8 who) public {
        uint256 agentId = register();
        vm.warp(START + wait);
        address caller = [wallet, creator, haftungsperson][who % 3];
        vm.expectEmit(address(registry));
        emit AgentRegistry.ComplianceAttested(agentId, caller, uint64(START + wait));
        vm.prank(caller);
        registry.attestCompliance(agentId);
        vm.assertEq(registry.getAgent(agentId).lastAttestation, START + wait);
        vm.assertEq(registry.getAgent(agentId).registeredAt, START);

        vm.warp(START + wait + uint256(age));
        assertCompliance(agentId, true, age <= 7 days, age);
    }

    function test_a_suspended_agent_is_not_compliant_however_fresh() public {
        uint256 agentId = suspended();
        assertCompliance(agentId, false, true, 0);
    }

    /// `complianceStatus` and, for the agent that holds the wallet, `isRegisteredAndCompliant` say the same.
    function assertCompliance(uint256 agentId, bool active, bool current, uint256 age) private view {
        (bool isActive, bool attestationCurrent, uint64 secondsSinceAttestation,, AgentRegistry.Status status) =
            registry.complianceStatus(agentId);
        vm.assertTrue(isActive == active, "isActive");
        vm.assertTrue(attestationCurrent == current, "attestationCurrent");
        vm.assertEq(secondsSinceAttestation, age, "secondsSinceAttestation");
        vm.assertTrue(status == registry.getAgent(agentId).status, "status");
        vm.assertTrue(registry.isRegisteredAndCompliant(wallet) == (active && current), "isRegisteredAndCompliant");
    }

    function testFuzz_a_revenue_report_is_kept_as_stated(
        uint256 amount,
        string memory currency,
        string memory category,
        uint64 periodStart,
        uint64 periodEnd
    ) public {
        uint256 agentId = register();
        vm.warp(START + 5);
        vm.expectEmit(address(registry));
        emit AgentRegistry.RevenueReported(agentId, wallet, amount, currency, category);
        vm.prank(wallet);
        registry.reportRevenue(agentId, amount, currency, category, periodStart, periodEnd);

        AgentRegistry.RevenueReport[] memory history = registry.getRevenueHistory(agentId);
        vm.assertEq(history.length, 1);
        vm.assertEq(
            abi.encode(history[0]),
            abi.encode(
                AgentRegistry.RevenueReport(
                    agentId, amount, currency, category, periodStart, periodEnd, uint64(START + 5)
                )
            )
        );
        vm.assertEq(registry.getAgent(agentId).lastRevenueReport, START + 5);
        vm.assertEq(registry.getAgent(agentId).lastAttestation, START, "a report is no attestation");
    }

    function test_reports_are_listed_oldest_first_and_per_agent() public {
        uint256 first = register();
        uint256 second = register(stranger, 0);
        vm.prank(creator);
        registry.reportRevenue(first, 1, "EUR", "sales", 1, 2);
        vm.prank(creator);
        registry.reportRevenue(second, 2, "USD", "sales", 1, 2);
        vm.prank(haftungsperson);
        registry.reportRevenue(first, 3, "EUR", "sales", 1, 2);
        AgentRegistry.RevenueReport[] memory history = registry.getRevenueHistory(first);
        vm.assertEq(history.length, 2);
        vm.assertEq(history[0].amount, 1);
        vm.assertEq(history[1].amount, 3);
    }

    // The owner's settings.

    function test_deployment_makes_the_deployer_the_owner() public {
        vm.expectEmit();
        emit AgentRegistry.OwnershipTransferred(address(0), stranger);
        vm.prank(stranger);
        AgentRegistry other = new AgentRegistry(address(0));
        vm.assertEq(other.owner(), stranger);
    }

    function test_ownership_passes_on_entirely() public {
        vm.expectEmit(address(registry));
        emit AgentRegistry.OwnershipTransferred(owner, stranger);
        vm.prank(owner);
        registry.transferOwnership(stranger);
        vm.assertEq(registry.owner(), stranger);

        vm.prank(stranger);
        registry.setRegulator(creator, true);
        vm.prank(owner);
        (bool success,) = address(registry).call(abi.encodeCall(AgentRegistry.setRegulator, (owner, true)));
        vm.assertFalse(success);
    }

    function test_regulators_come_and_go() public {
        vm.expectEmit(address(registry));
        emit AgentRegistry.RegulatorSet(stranger, true);
        vm.prank(owner);
        registry.setRegulator(stranger, true);
        vm.assertTrue(registry.isRegulator(stranger));

        vm.expectEmit(address(registry));
        emit AgentRegistry.RegulatorSet(stranger, false);
        vm.prank(owner);
        registry.setRegulator(stranger, false);
        vm.assertFalse(registry.isRegulator(stranger));
        vm.assertTrue(registry.isRegulator(regulator));
    }

    function test_settings_report_their_change() public {
        vm.expectEmit(address(registry));
        emit AgentRegistry.AttestationGracePeriodSet(30 days);
        vm.prank(owner);
        registry.setAttestationGracePeriod(30 days);
        vm.assertEq(registry.attestationGracePeriod(), 30 days);

        vm.expectEmit(address(registry));
        emit AgentRegistry.MaxGenerationDepthSet(1);
        vm.prank(owner);
        registry.setMaxGenerationDepth(1);
        vm.assertEq(registry.maxGenerationDepth(), 1);
    }
}
