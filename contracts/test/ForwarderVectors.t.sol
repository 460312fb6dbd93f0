// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {Forwarder} from "../src/Forwarder.sol";
import {Requests} from "./ForwarderFixture.sol";
import {vm} from "./Vm.sol";

/// The forwarder against requests that were signed elsewhere (vectors/forward_requests.json): for other chains, at
/// other addresses, with nonces and deadlines up to their limits.
contract ForwarderVectorsTest {
    using Requests for Requests.Domain;

    struct Vector {
        uint256 privateKey;
        Requests.Domain domain;
        bytes32 domainSeparator;
        Forwarder.ForwardRequest request;
        bytes32 digest;
        bytes signature;
    }

    uint256 private constant COUNT = 8;
    string private _json;

    function setUp() public {
        vm.warp(1_700_000_000);
        _json = vm.readFile(string.concat(vm.projectRoot(), "/test/vectors/forward_requests.json"));
    }

    function test_every_vector_is_read() public view {
        vm.assertTrue(vm.keyExistsJson(_json, at(COUNT - 1)));
        vm.assertFalse(vm.keyExistsJson(_json, at(COUNT)));
    }

    function test_separator_digest_and_signature_are_those_of_the_vector() public view {
        for (uint256 i = 0; i < COUNT; ++i) {
            Vector memory v = read(i);
            vm.assertEq(v.domain.separator(), v.domainSeparator, "domain separator");
            vm.assertEq(v.domain.digest(v.request), v.digest, "digest");
            vm.assertEq(vm.addr(v.privateKey), v.request.from, "key");
            vm.assertEq(Requests.sign(v.privateKey, v.domain, v.request), v.signature, "signature");
        }
    }

    /// `verify` says yes only if its own digest is the signed one, so this pins the contract's hash to the vectors'.
    function test_the_forwarder_accepts_every_vector_in_its_place() public {
        bytes memory code = address(new Forwarder()).code;
        for (uint256 i = 0; i < COUNT; ++i) {
            Vector memory v = read(i);
            Forwarder forwarder = Forwarder(v.domain.verifyingContract);
            vm.chainId(v.domain.chainId);
            vm.etch(address(forwarder), code);
            vm.assertFalse(forwarder.verify(v.request, v.signature), "its nonce is not 0");
            setNonce(forwarder, v.request.from, v.request.nonce);
            vm.assertTrue(forwarder.verify(v.request, v.signature), "verify");
            v.request.gas ^= 1;
            vm.assertFalse(forwarder.verify(v.request, v.signature), "another request");
        }
    }

    /// `_nonces` is in slot 2, behind two slots of EIP712.
    function setNonce(Forwarder forwarder, address from, uint256 nonce) private {
        vm.store(address(forwarder), keccak256(abi.encode(from, uint256(2))), bytes32(nonce));
        vm.assertEq(forwarder.getNonce(from), nonce, "the slot of the nonces");
    }

    function read(uint256 i) private view returns (Vector memory v) {
        v.privateKey = uint256(vm.parseJsonBytes32(_json, key(i, "privateKey")));
        v.domain.name = vm.parseJsonString(_json, key(i, "domain.name"));
        v.domain.version = vm.parseJsonString(_json, key(i, "domain.version"));
        v.domain.chainId = vm.parseJsonUint(_json, key(i, "domain.chainId"));
        v.domain.verifyingContract = vm.parseJsonAddress(_json, key(i, "domain.verifyingContract"));
        v.domainSeparator = vm.parseJsonBytes32(_json, key(i, "domainSeparator"));
        v.request.from = vm.parseJsonAddress(_json, key(i, "request.from"));
        v.request.to = vm.parseJsonAddress(_json, key(i, "request.to"));
        v.request.value = vm.parseJsonUint(_json, key(i, "request.value"));
        v.request.gas = vm.parseJsonUint(_json, key(i, "request.gas"));
        v.request.nonce = vm.parseJsonUint(_json, key(i, "request.nonce"));
        v.request.deadline = uint48(vm.parseJsonUint(_json, key(i, "request.deadline")));
        v.request.data = vm.parseJsonBytes(_json, key(i, "request.data"));
        v.digest = vm.parseJsonBytes32(_json, key(i, "digest"));
        v.signature = vm.parseJsonBytes(_json, key(i, "signature"));
    }

    function at(uint256 i) private pure returns (string memory) {
        return string.concat("[", vm.toString(i), "]");
    }

    function key(uint256 i, string memory name) private pure returns (string memory) {
        return string.concat(at(i), ".", name);
    }
}
