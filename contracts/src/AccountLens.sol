// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

/// @title Reads an account beside contracts, never deployed
/// @notice Whether an account has code, and what that code says to a call: with any other reads in one `eth_call`, so at one
/// block. Nodes run it as the code of an unused address (state override), or through `Deployless`. `registry-core` holds its
/// bytecode.
///
/// Every call is static. The account's code is foreign, and what it changed during the `eth_call` would be what the calls
/// behind it read: an agent could attest its own compliance, or register, for the length of one verdict.
contract AccountLens {
    /// Where the callers of `aggregate3` address this contract, wherever it really runs.
    address private constant SELF = 0x02F9E34504A5c63486EDd977E036Cc4CC5F4363C;

    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    struct Result {
        bool success;
        bytes returnData;
    }

    /// @notice As Multicall3's, with static calls that are all allowed to fail.
    function aggregate3(Call3[] calldata calls) external view returns (Result[] memory results) {
        results = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            address target = calls[i].target == SELF ? address(this) : calls[i].target;
            (results[i].success, results[i].returnData) = target.staticcall(calls[i].callData);
        }
    }

    /// @notice The size of an account's code, and the first word that it answers `data` with: 0 if it fails, answers less
    /// than a word, or takes more than `most` gas or half of what is left.
    function check(address account, bytes calldata data, uint256 most) external view returns (uint256 codeSize, bytes32 answer) {
        codeSize = account.code.length;
        if (codeSize == 0 || data.length == 0) return (codeSize, 0);
        uint256 stipend = gasleft() / 2;
        if (stipend > most) stipend = most;
        assembly ("memory-safe") {
            let input := mload(0x40)
            calldatacopy(input, data.offset, data.length)
            let success := staticcall(stipend, account, input, data.length, 0, 32)
            if and(success, gt(returndatasize(), 31)) { answer := mload(0) }
        }
    }
}
