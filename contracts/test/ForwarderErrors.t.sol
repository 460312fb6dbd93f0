// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {Forwarder} from "../src/Forwarder.sol";
import {ForwarderFixture, Requests, Target} from "./ForwarderFixture.sol";
import {account, expectError, vm} from "./Vm.sol";

/// Every way in which a request is refused: the two rows of the forwarder's error table (service.md section 7), each
/// with all of its causes, then the rows this contract adds. A refusal leaves the nonce as it is.
contract ForwarderErrorsTest is ForwarderFixture {
    uint256 private constant SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;

    /// Not for the reason given only: `verify` says no, `execute` reverts, nothing is called.
    function refuses(Forwarder.ForwardRequest memory req, bytes memory signature) private {
        uint256 nonce = forwarder.getNonce(signer);
        uint256 calls = target.calls();
        vm.assertFalse(forwarder.verify(req, signature));
        expectError("Forwarder: invalid signature");
        forwarder.execute(req, signature);
        vm.assertEq(forwarder.getNonce(signer), nonce);
        vm.assertEq(target.calls(), calls);
    }

    // `Forwarder: invalid signature`

    function test_a_replay() public {
        Forwarder.ForwardRequest memory req = request("");
        bytes memory signature = sign(req);
        forwarder.execute(req, signature);
        refuses(req, signature);
    }

    function test_a_replay_of_a_failed_call() public {
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.fail, ("no")));
        bytes memory signature = sign(req);
        forwarder.execute(req, signature);
        refuses(req, signature);
    }

    function test_a_nonce_from_the_future() public {
        Forwarder.ForwardRequest memory req = request("");
        req.nonce = 1;
        refuses(req, sign(req));
        req.nonce = type(uint256).max;
        refuses(req, sign(req));
    }

    function test_a_deadline_that_has_passed() public {
        Forwarder.ForwardRequest memory req = request("");
        req.deadline = uint48(START - 1);
        refuses(req, sign(req));
        req.deadline = 1;
        refuses(req, sign(req));
    }

    function test_a_signature_by_somebody_else() public {
        Forwarder.ForwardRequest memory req = request("");
        refuses(req, Requests.sign(OTHER_KEY, Requests.domainOf(forwarder), req));
    }

    function test_any_field_changed_after_signing() public {
        Forwarder.ForwardRequest memory signed = request(hex"01");
        bytes memory signature = sign(signed);
        Forwarder.ForwardRequest memory req = request(hex"01");
        vm.assertTrue(forwarder.verify(req, signature));
        req.from = account("stranger");
        refuses(req, signature);
        req = request(hex"01");
        req.to = account("stranger");
        refuses(req, signature);
        req = request(hex"01");
        req.value = 1;
        refuses(req, signature);
        req = request(hex"01");
        req.gas += 1;
        refuses(req, signature);
        req = request(hex"01");
        req.deadline = uint48(START + 1 days);
        refuses(req, signature);
        refuses(request(hex"02"), signature);
    }

    function test_another_chain() public {
        Forwarder.ForwardRequest memory req = request("");
        bytes memory signature = sign(req);
        uint256 home = block.chainid;
        vm.chainId(home + 1);
        refuses(req, signature);
        vm.chainId(home);
        vm.assertTrue(forwarder.verify(req, signature));
    }

    function test_another_forwarder_name_or_version() public {
        Forwarder.ForwardRequest memory req = request("");
        Requests.Domain memory domain = Requests.domainOf(new Forwarder());
        refuses(req, Requests.sign(KEY, domain, req));
        domain = Requests.domainOf(forwarder);
        domain.name = "Forwarder";
        refuses(req, Requests.sign(KEY, domain, req));
        domain = Requests.domainOf(forwarder);
        domain.version = "2";
        refuses(req, Requests.sign(KEY, domain, req));
    }

    /// The same signature in its other form, with s above half the group's order: the curve accepts it.
    function test_a_malleable_signature() public {
        Forwarder.ForwardRequest memory req = request("");
        bytes32 digest = Requests.digest(Requests.domainOf(forwarder), req);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(KEY, digest);
        bytes32 highS = bytes32(SECP256K1_ORDER - uint256(s));
        uint8 otherV = v == 27 ? 28 : 27;
        vm.assertEq(ecrecover(digest, otherV, r, highS), signer, "ecrecover takes it");
        refuses(req, abi.encodePacked(r, highS, otherV));
    }

    function test_v_other_than_27_and_28() public {
        Forwarder.ForwardRequest memory req = request("");
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(KEY, Requests.digest(Requests.domainOf(forwarder), req));
        refuses(req, abi.encodePacked(r, s, v - 27));
        refuses(req, abi.encodePacked(r, s, uint8(29)));
    }

    /// ecrecover answers zero for nonsense; that must not make the zero address a signer.
    function test_nobody_signs_for_the_zero_address() public {
        Forwarder.ForwardRequest memory req = request("");
        req.from = address(0);
        refuses(req, new bytes(65));
        refuses(req, abi.encodePacked(bytes32(uint256(1)), bytes32(uint256(1)), uint8(99)));
    }

    function testFuzz_any_65_bytes_that_the_signer_did_not_make(bytes32 r, bytes32 s, uint8 v) public {
        refuses(request(""), abi.encodePacked(r, s, v));
    }

    // `Forwarder: invalid signature length`

    function test_signature_lengths_other_than_65() public {
        Forwarder.ForwardRequest memory req = request("");
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(KEY, Requests.digest(Requests.domainOf(forwarder), req));
        bytes32 vs = bytes32(uint256(s) | (uint256(v - 27) << 255));
        // 64: the compact form of EIP-2098, right in itself. 66: the right one and a byte.
        bytes[5] memory signatures =
            [abi.encodePacked(r, vs), abi.encodePacked(r, s, v, uint8(0)), bytes(""), new bytes(1), new bytes(130)];
        for (uint256 i = 0; i < signatures.length; ++i) {
            expectError("Forwarder: invalid signature length");
            forwarder.verify(req, signatures[i]);
            expectError("Forwarder: invalid signature length");
            forwarder.execute(req, signatures[i]);
        }
        vm.assertEq(forwarder.getNonce(signer), 0);
        forwarder.execute(req, sign(req));
    }

    // Rows this contract adds.

    function test_value_mismatch() public {
        vm.deal(address(this), 10);
        Forwarder.ForwardRequest memory req = request("");
        bytes memory signature = sign(req);
        expectError("Forwarder: value mismatch");
        forwarder.execute{value: 1}(req, signature);
        req.value = 2;
        signature = sign(req);
        expectError("Forwarder: value mismatch");
        forwarder.execute{value: 1}(req, signature);
        expectError("Forwarder: value mismatch");
        forwarder.execute(req, signature);
        vm.assertEq(forwarder.getNonce(signer), 0);
    }

    /// This contract cannot be paid, so a refund to it fails: nothing of the request must remain.
    function test_refund_failed() public {
        vm.deal(address(this), 1);
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.fail, ("no")));
        req.value = 1;
        bytes memory signature = sign(req);
        expectError("Forwarder: refund failed");
        forwarder.execute{value: 1}(req, signature);
        vm.assertEq(forwarder.getNonce(signer), 0);
        vm.assertEq(address(this).balance, 1);
    }

    function test_insufficient_gas() public {
        Forwarder.ForwardRequest memory req = request("");
        req.gas = 1_000_000;
        bytes memory signature = sign(req);
        expectError("Forwarder: insufficient gas");
        forwarder.execute{gas: 1_000_000}(req, signature);
        vm.assertEq(forwarder.getNonce(signer), 0);

        // More than any block has, and more than arithmetic without care can take.
        req.gas = type(uint256).max;
        signature = sign(req);
        expectError("Forwarder: insufficient gas");
        forwarder.execute(req, signature);
    }

    /// The border itself, where the call's own cost weighs most: a cold target, with and without value.
    function test_the_least_gas_that_is_accepted_is_enough() public {
        vm.deal(address(this), 1);
        for (uint256 value = 0; value < 2; ++value) {
            Forwarder.ForwardRequest memory req = request(hex"00000000");
            req.gas = 2_000_000;
            req.value = value;
            bytes memory signature = sign(req);
            uint256 snapshot = vm.snapshotState();
            uint256 refused = req.gas;
            uint256 accepted = 2 * req.gas;
            while (accepted - refused > 1) {
                uint256 outer = (accepted + refused) / 2;
                if (executesCold(req, signature, outer)) accepted = outer;
                else refused = outer;
                vm.revertToState(snapshot);
            }
            vm.assertTrue(executesCold(req, signature, accepted));
            uint256 stipend = value == 0 ? 0 : 2300; // added by the EVM to a call with value
            vm.assertGe(target.gasAtEntry() + 200, req.gas + stipend, "starved");
            vm.revertToState(snapshot);
        }
    }

    function executesCold(Forwarder.ForwardRequest memory req, bytes memory signature, uint256 outer)
        private
        returns (bool executed)
    {
        vm.cool(address(target));
        try forwarder.execute{gas: outer, value: req.value}(req, signature) {
            executed = true;
        } catch {}
    }

    /// The gas trap: whatever gas the relayer gives, the call gets all that was signed for, or nothing happens at all.
    function testFuzz_a_relayer_cannot_starve_the_call(uint256 outer, uint256 inner, bool withValue) public {
        // Around the border, and large enough for the 64th that the EVM keeps back to outweigh the forwarder's reserve.
        inner = 100_000 + inner % 20_000_000;
        outer = inner - inner / 32 + outer % (inner / 16 + 200_000);
        vm.deal(address(this), 1);
        uint256 value = withValue ? 1 : 0;
        Forwarder.ForwardRequest memory req = request(hex"00000000");
        req.gas = inner;
        req.value = value;
        bytes memory signature = sign(req);

        try forwarder.execute{gas: outer, value: value}(req, signature) returns (bool success, bytes memory) {
            vm.assertTrue(success, "the call had gas for a record");
            // The target's first instructions, before it looks, cost less than this.
            vm.assertGe(target.gasAtEntry() + 200, inner, "starved");
            vm.assertEq(forwarder.getNonce(signer), 1);
        } catch {
            vm.assertEq(forwarder.getNonce(signer), 0);
            vm.assertEq(target.calls(), 0);
            vm.assertLe(outer, inner * 64 / 63 + 150_000, "refused though the gas was ample");
        }
    }
}
