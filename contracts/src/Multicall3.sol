// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

/// @title Multicall3 stand-in for local chains
/// @notice Public chains carry the canonical Multicall3 at 0xcA11bde05977b3631167028862bE2a173976CA11; a fresh local
/// chain has nothing there. This contract answers the same calls in the same encoding, as far as they are used here:
/// put its runtime code at that address. It has no constructor and no storage, so the code works wherever it is put.
contract Multicall3 {
    /// One call; with `allowFailure` its revert is reported in its `Result` and the others go on.
    struct Call3 {
        address target;
        bool allowFailure;
        bytes callData;
    }

    /// One outcome, in the order of the calls. For a failed call `returnData` is its revert data.
    struct Result {
        bool success;
        bytes returnData;
    }

    /// @notice Makes all calls, in order, in one transaction or `eth_call`. Value sent along is not passed on.
    function aggregate3(Call3[] calldata calls) external payable returns (Result[] memory returnData) {
        returnData = new Result[](calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            (bool success, bytes memory data) = calls[i].target.call(calls[i].callData);
            require(success || calls[i].allowFailure, "Multicall3: call failed");
            returnData[i] = Result(success, data);
        }
    }

    /// @notice Hash of the block before the one the call runs in.
    function getLastBlockHash() external view returns (bytes32 blockHash) {
        unchecked {
            blockHash = blockhash(block.number - 1);
        }
    }

    function getBlockNumber() external view returns (uint256 blockNumber) {
        blockNumber = block.number;
    }

    function getCurrentBlockTimestamp() external view returns (uint256 timestamp) {
        timestamp = block.timestamp;
    }

    function getChainId() external view returns (uint256 chainid) {
        chainid = block.chainid;
    }
}
