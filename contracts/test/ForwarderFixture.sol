// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {Forwarder} from "../src/Forwarder.sol";
import {vm} from "./Vm.sol";

/// Signs forward requests with keys of its own, by its own reading of EIP-712: nothing here calls the forwarder's hash.
library Requests {
    struct Domain {
        string name;
        string version;
        uint256 chainId;
        address verifyingContract;
    }

    function domainOf(Forwarder forwarder) internal view returns (Domain memory) {
        return Domain("MinimalForwarder", "1", block.chainid, address(forwarder));
    }

    function separator(Domain memory domain) internal pure returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"),
                keccak256(bytes(domain.name)),
                keccak256(bytes(domain.version)),
                domain.chainId,
                domain.verifyingContract
            )
        );
    }

    function digest(Domain memory domain, Forwarder.ForwardRequest memory req) internal pure returns (bytes32) {
        bytes32 structHash = keccak256(
            abi.encode(
                keccak256(
                    "ForwardRequest(address from,address to,uint256 value,uint256 gas,uint256 nonce,uint48 deadline,bytes data)"
                ),
                req.from,
                req.to,
                req.value,
                req.gas,
                req.nonce,
                req.deadline,
                keccak256(req.data)
            )
        );
        return keccak256(abi.encodePacked(hex"1901", separator(domain), structHash));
    }

    function sign(uint256 privateKey, Domain memory domain, Forwarder.ForwardRequest memory req)
        internal
        pure
        returns (bytes memory signature)
    {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(privateKey, digest(domain, req));
        return abi.encodePacked(r, s, v);
    }
}

/// A forwarder, a signer who owns nothing but a key, and a target that tells what it was called with.
abstract contract ForwarderFixture {
    uint256 internal constant KEY = uint256(keccak256("the signer's key"));
    uint256 internal constant OTHER_KEY = uint256(keccak256("another key"));
    uint256 internal constant START = 1_700_000_000;

    address internal immutable signer = vm.addr(KEY);
    Forwarder internal forwarder;
    Target internal target;

    function setUp() public virtual {
        vm.warp(START);
        forwarder = new Forwarder();
        target = new Target();
    }

    function request(bytes memory data) internal view returns (Forwarder.ForwardRequest memory) {
        return Forwarder.ForwardRequest({
            from: signer,
            to: address(target),
            value: 0,
            gas: 100_000,
            nonce: forwarder.getNonce(signer),
            deadline: 0,
            data: data
        });
    }

    function sign(Forwarder.ForwardRequest memory req) internal view returns (bytes memory) {
        return Requests.sign(KEY, Requests.domainOf(forwarder), req);
    }
}

/// A target that records its last call, or fails as it is told.
contract Target {
    uint256 public calls;
    bytes public lastData;
    uint256 public lastValue;
    uint256 public gasAtEntry;

    receive() external payable {}

    fallback() external payable {
        gasAtEntry = gasleft();
        ++calls;
        lastData = msg.data;
        lastValue = msg.value;
    }

    function answer(uint256 number) external returns (uint256) {
        ++calls;
        return number + 1;
    }

    function fail(string calldata why) external payable {
        revert(why);
    }

    function burn() external pure {
        while (true) {}
    }
}
