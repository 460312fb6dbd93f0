// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

/// @title Runs a contract without deploying it
/// @notice For nodes that offer no state override: an `eth_call` without `to` runs this constructor, which creates a contract,
/// calls it once and gives its answer as the code of the new contract. So the answer is at most 24,576 bytes long
/// (EIP-170), costs 200 gas a byte, and must not begin with 0xEF (EIP-3541).
contract Deployless {
    /// @param code runtime code of the contract, less than 64 KiB
    /// @param data what to call it with
    constructor(bytes memory code, bytes memory data) {
        assembly ("memory-safe") {
            // Init code in place of the end of the length: PUSH2 size DUP1 PUSH1 10 PUSH0 CODECOPY PUSH0 RETURN.
            let size := mload(code)
            mstore(code, or(0x61000080600a5f395ff3, shl(56, size)))
            let created := create(0, add(code, 22), add(size, 10))
            let success := staticcall(gas(), created, add(data, 32), mload(data), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(success) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}
