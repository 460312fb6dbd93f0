// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {Forwarder} from "../src/Forwarder.sol";
import {ForwarderFixture, Requests, Target} from "./ForwarderFixture.sol";
import {account, vm} from "./Vm.sol";

/// What the forwarder executes and how it reports it. What it refuses is in ForwarderErrorsTest.
contract ForwarderTest is ForwarderFixture {
    function test_executes_as_signed_and_reports_it() public {
        Forwarder.ForwardRequest memory req = request(hex"c0ffee");
        vm.assertTrue(forwarder.verify(req, sign(req)));
        vm.expectEmit(address(forwarder));
        emit Forwarder.RequestExecuted(signer, 0, true, "");
        (bool success, bytes memory returnData) = forwarder.execute(req, sign(req));

        vm.assertTrue(success);
        vm.assertEq(returnData.length, 0);
        vm.assertEq(target.calls(), 1);
        vm.assertEq(target.lastData(), abi.encodePacked(hex"c0ffee", signer), "ERC-2771: the sender is appended");
        vm.assertEq(forwarder.getNonce(signer), 1);
    }

    function testFuzz_executes_any_signers_request(uint256 key, bytes memory data, uint48 deadline, address relayer)
        public
    {
        key = 1 + key % (SECP256K1_ORDER - 1);
        Forwarder.ForwardRequest memory req = request(data);
        req.from = vm.addr(key);
        req.data = abi.encodePacked(bytes4(0), data);
        req.gas = 3_000_000;
        req.deadline = deadline;
        vm.warp(deadline == 0 ? START : deadline);
        bytes memory signature = Requests.sign(key, Requests.domainOf(forwarder), req);
        vm.prank(relayer);
        (bool success,) = forwarder.execute(req, signature);
        vm.assertTrue(success);
        vm.assertEq(target.lastData(), abi.encodePacked(req.data, req.from));
    }

    uint256 private constant SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141;

    function test_returns_what_the_call_returned() public {
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.answer, (41)));
        vm.expectEmit(address(forwarder));
        emit Forwarder.RequestExecuted(signer, 0, true, abi.encode(42));
        (bool success, bytes memory returnData) = forwarder.execute(req, sign(req));
        vm.assertTrue(success);
        vm.assertEq(abi.decode(returnData, (uint256)), 42);
    }

    function test_an_inner_revert_is_reported_and_uses_up_its_nonce() public {
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.fail, ("no")));
        bytes memory reason = abi.encodeWithSignature("Error(string)", "no");
        vm.expectEmit(address(forwarder));
        emit Forwarder.RequestExecuted(signer, 0, false, reason);
        (bool success, bytes memory returnData) = forwarder.execute(req, sign(req));
        vm.assertFalse(success);
        vm.assertEq(returnData, reason);
        vm.assertEq(forwarder.getNonce(signer), 1);
    }

    /// With its own gas limit: that was what the signer asked for.
    function test_an_inner_call_out_of_gas_is_reported() public {
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.burn, ()));
        (bool success, bytes memory returnData) = forwarder.execute(req, sign(req));
        vm.assertFalse(success);
        vm.assertEq(returnData.length, 0);
        vm.assertEq(forwarder.getNonce(signer), 1);
    }

    function test_nonces_count_per_signer() public {
        address other = vm.addr(OTHER_KEY);
        for (uint256 i = 0; i < 3; ++i) {
            Forwarder.ForwardRequest memory req = request("");
            vm.assertEq(req.nonce, i);
            forwarder.execute(req, sign(req));
        }
        vm.assertEq(forwarder.getNonce(signer), 3);
        vm.assertEq(forwarder.getNonce(other), 0);
    }

    function test_a_deadline_is_the_last_valid_second() public {
        Forwarder.ForwardRequest memory req = request("");
        req.deadline = uint48(START);
        bytes memory signature = sign(req);
        vm.assertTrue(forwarder.verify(req, signature));
        vm.warp(START + 1);
        vm.assertFalse(forwarder.verify(req, signature));
        vm.warp(START);
        forwarder.execute(req, signature);
    }

    function test_deadline_0_never_expires() public {
        Forwarder.ForwardRequest memory req = request("");
        bytes memory signature = sign(req);
        vm.warp(uint256(type(uint64).max));
        vm.assertTrue(forwarder.verify(req, signature));
        forwarder.execute(req, signature);
    }

    function test_value_reaches_the_target() public {
        Forwarder.ForwardRequest memory req = request("");
        req.value = 3;
        vm.deal(address(this), 3);
        (bool success,) = forwarder.execute{value: 3}(req, sign(req));
        vm.assertTrue(success);
        vm.assertEq(target.lastValue(), 3);
        vm.assertEq(address(target).balance, 3);
    }

    function test_value_of_a_failed_call_goes_back_to_the_relayer() public {
        address relayer = account("relayer");
        Forwarder.ForwardRequest memory req = request(abi.encodeCall(Target.fail, ("no")));
        req.value = 3;
        bytes memory signature = sign(req);
        vm.deal(relayer, 10);
        vm.prank(relayer);
        (bool success,) = forwarder.execute{value: 3}(req, signature);
        vm.assertFalse(success);
        vm.assertEq(relayer.balance, 10);
        vm.assertEq(address(forwarder).balance, 0);
    }

    /// The nonce is used up before the call: a target that calls back finds the request executed already.
    function test_a_target_cannot_replay_the_request_it_is_called_by() public {
        Reentrant reentrant = new Reentrant(forwarder);
        Forwarder.ForwardRequest memory req = request("");
        req.to = address(reentrant);
        req.gas = 1_000_000;
        bytes memory signature = sign(req);
        reentrant.prepare(abi.encodeCall(Forwarder.execute, (req, signature)));
        (bool success,) = forwarder.execute(req, signature);
        vm.assertTrue(success);
        vm.assertEq(reentrant.answer(), abi.encodeWithSignature("Error(string)", "Forwarder: invalid signature"));
        vm.assertEq(forwarder.getNonce(signer), 1);
    }

    /// EIP-5267: what a wallet or a relayer reads to build the domain.
    function test_eip712Domain_is_the_published_one() public view {
        (
            bytes1 fields,
            string memory name,
            string memory version,
            uint256 chainId,
            address verifyingContract,
            bytes32 salt,
            uint256[] memory extensions
        ) = forwarder.eip712Domain();
        vm.assertEq(bytes32(fields), bytes32(bytes1(0x0f)));
        vm.assertEq(name, "MinimalForwarder");
        vm.assertEq(version, "1");
        vm.assertEq(chainId, block.chainid);
        vm.assertEq(verifyingContract, address(forwarder));
        vm.assertEq(salt, bytes32(0));
        vm.assertEq(extensions.length, 0);
    }
}

/// Calls the forwarder back when it is called, and keeps the answer.
contract Reentrant {
    Forwarder private immutable _forwarder;
    bytes private _call;
    bytes public answer;

    constructor(Forwarder forwarder) {
        _forwarder = forwarder;
    }

    function prepare(bytes calldata call) external {
        _call = call;
    }

    fallback() external {
        (, answer) = address(_forwarder).call(_call);
    }
}
