// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {Deployless} from "../src/Deployless.sol";
import {RegistryLens} from "../src/RegistryLens.sol";
import {RegistryFixture} from "./RegistryFixture.sol";
import {account, vm} from "./Vm.sol";

/// The lens reads what the getters say, in packed rows, and no agent spoils it for the others.
contract RegistryLensTest is RegistryFixture {
    uint256 private constant HEAD = 61;
    uint256 private constant ROW = 62;

    RegistryLens private lens;

    function setUp() public override {
        super.setUp();
        lens = new RegistryLens();
    }

    function walk(uint256 first, uint256 count, uint256 gasLimit) private returns (bytes memory) {
        return walk(first, count, 1, gasLimit);
    }

    function walk(uint256 first, uint256 count, uint256 detail, uint256 gasLimit) private returns (bytes memory) {
        vm.cool(address(registry));
        bytes memory call = abi.encodeCall(RegistryLens.walk, (address(registry), first, count, detail, 1_000_000, 0));
        (bool success, bytes memory answer) = address(lens).staticcall{gas: gasLimit}(call);
        vm.assertTrue(success);
        return answer;
    }

    /// Bytes of an answer as a number.
    function number(bytes memory answer, uint256 at, uint256 size) private pure returns (uint256 value) {
        for (uint256 i = 0; i < size; ++i) {
            value = (value << 8) | uint8(answer[at + i]);
        }
    }

    function rows(bytes memory answer) private pure returns (uint256) {
        return number(answer, 49, 4);
    }

    /// Holds the entry at `at` against a scope; where the next one begins.
    function scope(bytes memory answer, uint256 at, bytes memory expected) private pure returns (uint256 next) {
        vm.assertEq(number(answer, at, 1), 2, "kind");
        uint256 length = number(answer, at + 1, 4);
        bytes memory text = new bytes(length);
        for (uint256 i = 0; i < length; ++i) {
            text[i] = answer[at + 5 + i];
        }
        vm.assertEq(string(text), string(expected));
        return at + 5 + length;
    }

    function letters(uint256 length) private pure returns (bytes memory made) {
        made = new bytes(length);
        for (uint256 i = 0; i < length; ++i) {
            made[i] = bytes1(uint8(97 + (i % 26)));
        }
    }

    function report(uint256 agentId, uint256 amount, string memory currency, string memory category) private {
        vm.prank(creator);
        registry.reportRevenue(agentId, amount, currency, category, 1, 2);
    }

    function agents(uint256 count) private {
        for (uint256 i = 0; i < count; ++i) {
            register(account(vm.toString(i)), 0);
        }
    }

    function test_a_row_is_what_the_getter_says() public {
        uint256 parent = register();
        uint256 child = register(stranger, parent);
        vm.prank(regulator);
        registry.suspendAgent(child, "audit");
        bytes memory answer = walk(1, 10, 10_000_000);
        vm.assertEq(number(answer, 0, 1), 1, "version");
        vm.assertEq(number(answer, 1, 32), uint256(blockhash(block.number - 1)), "parent hash");
        vm.assertEq(number(answer, 33, 8), block.chainid, "chain id");
        vm.assertEq(number(answer, 41, 8), block.timestamp, "timestamp");
        vm.assertEq(rows(answer), 2, "as many as there are");
        vm.assertEq(answer.length, HEAD + 2 * ROW);
        uint256 row = HEAD + ROW;
        AgentRegistry.AgentRecord memory record = registry.getAgent(child);
        vm.assertEq(number(answer, row, 1), uint256(record.status), "status");
        vm.assertEq(number(answer, row + 1, 1), 0, "flags");
        vm.assertEq(number(answer, row + 2, 20), uint256(uint160(record.creator)), "creator");
        vm.assertEq(number(answer, row + 22, 8), record.registeredAt, "registeredAt");
        vm.assertEq(number(answer, row + 30, 5), record.lastAttestation, "lastAttestation");
        vm.assertEq(number(answer, row + 35, 5), record.parentAgentId, "parentAgentId");
        vm.assertEq(number(answer, row + 40, 2), record.generation, "generation");
        vm.assertEq(number(answer, row + 42, 20), uint256(uint160(record.agentWallet)), "agentWallet");
    }

    function test_listed_agents_are_read_in_their_order_and_numbered_from_the_first() public {
        agents(4);
        report(4, 5, "EUR", "api");
        vm.prank(regulator);
        registry.suspendAgent(2, "audit");
        bytes memory call = abi.encodeCall(RegistryLens.walk, (address(registry), 7, 9, 2, 1_000_000, 0));
        call = bytes.concat(call, bytes8(uint64(4)), bytes8(uint64(2)), bytes8(uint64(99)));
        (bool success, bytes memory answer) = address(lens).staticcall{gas: 10_000_000}(call);
        vm.assertTrue(success);
        vm.assertEq(rows(answer), 3, "as many as are listed");
        uint64[3] memory ids = [uint64(4), 2, 99];
        for (uint256 place = 0; place < 2; ++place) {
            bytes memory alone = walk(ids[place], 1, 2, 10_000_000);
            for (uint256 at = HEAD; at < HEAD + 86; ++at) {
                vm.assertEq(uint8(answer[at + place * 86]), uint8(alone[at]));
            }
        }
        vm.assertEq(number(answer, HEAD + 2 * 86, 1), 255, "there is no such agent");
        uint256 sum = scope(answer, HEAD + 3 * 86, bytes(SCOPE));
        vm.assertEq(number(answer, sum + 45, 8), 7, "the number of the first");

        call = abi.encodeCall(RegistryLens.walk, (address(registry), 1, 1, 2, 1_000_000, 0));
        (success, answer) = address(lens).staticcall(bytes.concat(call, bytes8(uint64(4)), bytes8(uint64(2))));
        vm.assertEq(rows(answer), 1, "no more than are asked for");
    }

    function test_reports_are_added_up_by_text() public {
        agents(2);
        report(1, type(uint256).max, "EUR", "api");
        report(2, 5, "EUR", "consulting");
        report(2, 7, "USD", "");
        bytes memory answer = walk(1, 10, 10_000_000);
        vm.assertEq(number(answer, 53, 8), 3, "reports");
        uint256 at = HEAD + 2 * ROW;
        uint256 found = 0;
        while (at < answer.length) {
            uint256 length = number(answer, at + 1, 4);
            bytes memory text = new bytes(length);
            for (uint256 i = 0; i < length; ++i) {
                text[i] = answer[at + 45 + i];
            }
            bytes32 key = keccak256(abi.encodePacked(number(answer, at, 1), text));
            uint256 high = number(answer, at + 5, 8);
            uint256 low = number(answer, at + 13, 32);
            if (key == keccak256(abi.encodePacked(uint256(0), "EUR"))) {
                vm.assertEq(high, 1, "a sum of the largest amounts");
                vm.assertEq(low, 4);
            } else if (key == keccak256(abi.encodePacked(uint256(0), "USD"))) {
                vm.assertEq(low, 7);
            } else if (key == keccak256(abi.encodePacked(uint256(1), "api"))) {
                vm.assertEq(low, type(uint256).max);
            } else if (key == keccak256(abi.encodePacked(uint256(1), "consulting"))) {
                vm.assertEq(low, 5);
            } else {
                vm.assertEq(key, keccak256(abi.encodePacked(uint256(1), "")));
                vm.assertEq(low, 7);
            }
            ++found;
            at += 45 + length;
        }
        vm.assertEq(found, 5);
        vm.assertEq(at, answer.length);
    }

    function test_in_full_detail_wallets_come_along_and_sums_are_each_agents_own() public {
        agents(3);
        report(1, type(uint256).max, "EUR", "api");
        report(1, 2, "EUR", "api");
        report(3, 5, "EUR", "");
        bytes memory answer = walk(1, 10, 2, 10_000_000);
        uint256 full = 86;
        vm.assertEq(rows(answer), 3);
        for (uint256 i = 0; i < 3; ++i) {
            AgentRegistry.AgentRecord memory record = registry.getAgent(i + 1);
            uint256 row = HEAD + i * full;
            vm.assertEq(number(answer, row, 2), 0, "status and flags");
            vm.assertEq(number(answer, row + 2, 20), uint256(uint160(record.creator)), "creator");
            vm.assertEq(number(answer, row + 30, 5), record.lastAttestation, "lastAttestation");
            vm.assertEq(number(answer, row + 42, 20), uint256(uint160(record.agentWallet)), "agentWallet");
            vm.assertEq(number(answer, row + 62, 20), uint256(uint160(record.haftungsperson)), "haftungsperson");
        }
        vm.assertEq(number(answer, HEAD + 82, 4), 2, "reports of the first");
        vm.assertEq(number(answer, HEAD + full + 82, 4), 0, "reports of the second");
        vm.assertEq(number(answer, HEAD + 2 * full + 82, 4), 1, "reports of the third");
        uint256 at = HEAD + 3 * full;
        uint256[4] memory ids = [uint256(1), 1, 3, 3];
        uint256[4] memory highs = [uint256(1), 1, 0, 0];
        uint256[4] memory lows = [uint256(1), 1, 5, 5];
        uint256[4] memory lengths = [uint256(11), 11, 11, 8];
        // Each agent's scope comes before its sums.
        at = scope(answer, at, bytes(SCOPE));
        for (uint256 i = 0; i < 4; ++i) {
            if (i == 2) at = scope(answer, scope(answer, at, bytes(SCOPE)), bytes(SCOPE));
            vm.assertEq(number(answer, at, 1), i % 2, "kind");
            vm.assertEq(number(answer, at + 1, 4), lengths[i], "length of the id and the text");
            vm.assertEq(number(answer, at + 5, 8), highs[i]);
            vm.assertEq(number(answer, at + 13, 32), lows[i]);
            vm.assertEq(number(answer, at + 45, 8), ids[i], "whose it is");
            at += 45 + lengths[i];
        }
        vm.assertEq(at, answer.length);
    }

    function test_in_full_detail_a_scope_comes_along_up_to_256_bytes() public {
        uint16[8] memory lengths = [0, 1, 31, 32, 33, 255, 256, 4_000];
        for (uint256 i = 0; i < lengths.length; ++i) {
            vm.prank(creator);
            registry.registerAgent(
                haftungsperson,
                account(vm.toString(i)),
                CONSTITUTION,
                CAPABILITIES,
                string(letters(lengths[i])),
                0,
                true
            );
        }
        bytes memory answer = walk(1, 10, 2, 10_000_000);
        vm.assertEq(rows(answer), lengths.length);
        uint256 at = HEAD + lengths.length * 86;
        for (uint256 i = 0; i < lengths.length; ++i) {
            at = scope(answer, at, letters(lengths[i] < 256 ? lengths[i] : 256));
        }
        vm.assertEq(at, answer.length);
    }

    function test_walks_that_end_before_their_gas_have_a_scope_for_each_row() public {
        agents(60);
        for (uint256 i = 1; i <= 60; ++i) {
            report(i, i, "EUR", "api");
        }
        for (uint256 gasLimit = 700_000; gasLimit < 760_000; gasLimit += 1_000) {
            uint256 next = 1;
            while (next <= 60) {
                bytes memory answer = walk(next, 60, 2, gasLimit);
                uint256 done = rows(answer);
                vm.assertTrue(done > 0 && done < 60);
                uint256 at = HEAD + done * 86;
                for (uint256 i = 0; i < done; ++i) {
                    at = scope(answer, at, bytes(SCOPE));
                    if (number(answer, HEAD + i * 86 + 82, 4) == 1) at += 2 * (45 + 8 + 3);
                }
                vm.assertEq(at, answer.length);
                next += done;
            }
        }
    }

    function test_a_walk_ends_before_its_gas_and_says_how_far_it_came() public {
        agents(60);
        uint256 done = rows(walk(1, 60, 1_000_000));
        vm.assertTrue(done > 10 && done < 60);
        uint256 next = 1 + done;
        while (next <= 60) {
            done = rows(walk(next, 60, 1_000_000));
            vm.assertTrue(done > 0);
            next += done;
        }
        vm.assertEq(next, 61);
    }

    function test_a_history_beyond_the_stipend_is_marked_and_read_alone() public {
        agents(3);
        for (uint256 i = 0; i < 60; ++i) {
            report(2, 1, "EUR", "api");
        }
        bytes memory answer = walk(1, 3, 2_000_000);
        vm.assertEq(rows(answer), 3);
        vm.assertEq(number(answer, HEAD + 1, 1), 0);
        vm.assertEq(number(answer, HEAD + ROW + 1, 1), 1, "too long for a quarter of the gas");
        vm.assertEq(number(answer, HEAD + 2 * ROW + 1, 1), 0);
        vm.assertEq(number(answer, 53, 8), 0);
        answer = walk(2, 1, 2_000_000);
        vm.assertEq(number(answer, HEAD + 1, 1), 0);
        vm.assertEq(number(answer, 53, 8), 60);
        answer = walk(2, 1, 500_000);
        vm.assertEq(number(answer, HEAD + 1, 1), 1, "not even alone");
        vm.assertEq(number(answer, HEAD, 1), 0, "the record is readable all the same");
    }

    function test_beyond_the_last_agent_there_is_nothing() public {
        agents(2);
        vm.assertEq(rows(walk(3, 5, 10_000_000)), 0);
        vm.assertEq(rows(walk(type(uint64).max, 5, 10_000_000)), 0);
    }

    function test_deployless_gives_the_same_answer() public {
        agents(5);
        report(3, 5, "EUR", "api");
        bytes memory call =
            abi.encodeCall(RegistryLens.walk, (address(registry), 1, 10, 1, 24_000, 200));
        (, bytes memory expected) = address(lens).staticcall(call);
        bytes memory creation =
            abi.encodePacked(type(Deployless).creationCode, abi.encode(address(lens).code, call));
        address created;
        assembly ("memory-safe") {
            created := create(0, add(creation, 32), mload(creation))
        }
        vm.assertEq(created.code, expected);
        vm.assertEq(rows(expected), 5);
    }
}
