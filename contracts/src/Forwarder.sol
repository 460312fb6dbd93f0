// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/// @title ERC-2771 forwarder
/// @notice Executes calls that somebody signed (EIP-712) and somebody else pays the gas for. The target finds the
/// signer in the last 20 bytes of its calldata and believes them because this contract is its trusted forwarder.
///
/// What holds, whoever the relayer is:
/// - A signed request is executed at most once: its nonce is used up before its call is made.
/// - A request is executed as signed, with all of the gas its signer asked for, or `execute` reverts and the request
///   stays valid. A relayer cannot burn a nonce by starving the call.
/// - A call that reverts in itself uses up its nonce and is reported, not reverted: read `success`, not the status of
///   the transaction.
contract Forwarder is EIP712 {
    /// What `from` signs. `gas` is the limit of the inner call, `nonce` counts up per `from`, `deadline` is the last
    /// unix second in which the request is valid, 0 for no limit.
    struct ForwardRequest {
        address from;
        address to;
        uint256 value;
        uint256 gas;
        uint256 nonce;
        uint48 deadline;
        bytes data;
    }

    bytes32 private constant REQUEST_TYPEHASH = keccak256(
        "ForwardRequest(address from,address to,uint256 value,uint256 gas,uint256 nonce,uint48 deadline,bytes data)"
    );

    /// Gas that must be there on top of the inner call's. The CALL itself costs up to 39,200: a cold target 2,600, its
    /// EIP-7702 delegate 2,600, value 9,000, a new account 25,000. What it leaves pays for the event and the answer.
    uint256 private constant RESERVED_GAS = 40_000;

    mapping(address from => uint256 nonce) private _nonces;

    /// A request was executed: its nonce is used up, and this is how its call ended.
    event RequestExecuted(address indexed from, uint256 nonce, bool success, bytes returnData);

    constructor() EIP712("MinimalForwarder", "1") {}

    /// @notice The nonce that `from`'s next request must carry.
    function getNonce(address from) external view returns (uint256) {
        return _nonces[from];
    }

    /// @notice Whether `execute` would accept the signature now: `from` signed the request for this contract on this
    /// chain, its nonce is the next one, and its deadline has not passed. Says nothing about how the call will end.
    /// Reverts with `Forwarder: invalid signature length` unless the signature is 65 bytes.
    function verify(ForwardRequest calldata req, bytes calldata signature) public view returns (bool) {
        require(signature.length == 65, "Forwarder: invalid signature length");
        // Refuses a high `s`, so that there is one signature only that `from` can have made.
        (address signer, ECDSA.RecoverError err,) = ECDSA.tryRecoverCalldata(_digest(req), signature);
        return err == ECDSA.RecoverError.NoError && signer == req.from && req.nonce == _nonces[req.from]
            && (req.deadline == 0 || block.timestamp <= req.deadline);
    }

    /// @notice Executes a signed request; anyone may send it. `msg.value` must be the request's `value`, which goes
    /// back to the sender if the call fails.
    /// @dev The return data is copied and logged at the sender's expense: simulate before sending to a target that is
    /// not known to keep its answers short.
    /// Checks, in this order: signature length, then signature, nonce and deadline, then value, then gas.
    /// @return success whether the inner call succeeded
    /// @return returnData what it returned, or its revert data
    function execute(ForwardRequest calldata req, bytes calldata signature)
        external
        payable
        returns (bool success, bytes memory returnData)
    {
        require(verify(req, signature), "Forwarder: invalid signature");
        require(msg.value == req.value, "Forwarder: value mismatch");

        _nonces[req.from] = req.nonce + 1;

        bytes memory data = abi.encodePacked(req.data, req.from);
        require(_canForward(req.gas), "Forwarder: insufficient gas");
        (success, returnData) = req.to.call{gas: req.gas, value: req.value}(data);
        emit RequestExecuted(req.from, req.nonce, success, returnData);

        if (!success && req.value != 0) {
            (bool refunded,) = msg.sender.call{value: req.value}("");
            require(refunded, "Forwarder: refund failed");
        }
    }

    /// A call can be given at most 63/64 of the gas that is left (EIP-150); asked for more, the EVM gives less without
    /// a word.
    function _canForward(uint256 innerGas) private view returns (bool) {
        uint256 available = gasleft();
        if (available < RESERVED_GAS) return false;
        available -= RESERVED_GAS;
        return available - available / 64 >= innerGas;
    }

    function _digest(ForwardRequest calldata req) private view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(
                abi.encode(
                    REQUEST_TYPEHASH, req.from, req.to, req.value, req.gas, req.nonce, req.deadline, keccak256(req.data)
                )
            )
        );
    }
}
