// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

/// The cheatcodes of forge that these tests use, and no more. Forge finds tests by their names, so no test library is
/// needed beside this.
interface Vm {
    // State of the chain and of the next call.
    function prank(address sender) external;
    function warp(uint256 timestamp) external;
    function roll(uint256 blockNumber) external;
    function chainId(uint256 id) external;
    function deal(address account, uint256 wei_) external;
    function etch(address account, bytes calldata code) external;
    function store(address account, bytes32 slot, bytes32 value) external;
    function cool(address account) external;
    function snapshotState() external returns (uint256 id);
    function revertToState(uint256 id) external returns (bool);
    function setBlockhash(uint256 blockNumber, bytes32 hash) external;

    // Expectations of the next call.
    function expectRevert(bytes calldata revertData) external;
    function expectEmit() external;
    function expectEmit(address emitter) external;

    // Keys.
    function addr(uint256 privateKey) external pure returns (address);
    function sign(uint256 privateKey, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);

    // Fuzzing and assertions.
    function assume(bool condition) external pure;
    function assertTrue(bool condition) external pure;
    function assertTrue(bool condition, string calldata why) external pure;
    function assertFalse(bool condition) external pure;
    function assertFalse(bool condition, string calldata why) external pure;
    function assertEq(uint256 left, uint256 right) external pure;
    function assertEq(uint256 left, uint256 right, string calldata why) external pure;
    function assertEq(address left, address right) external pure;
    function assertEq(address left, address right, string calldata why) external pure;
    function assertEq(bytes32 left, bytes32 right) external pure;
    function assertEq(bytes32 left, bytes32 right, string calldata why) external pure;
    function assertEq(string calldata left, string calldata right) external pure;
    function assertEq(string calldata left, string calldata right, string calldata why) external pure;
    function assertEq(bytes calldata left, bytes calldata right) external pure;
    function assertEq(bytes calldata left, bytes calldata right, string calldata why) external pure;
    function assertGe(uint256 left, uint256 right, string calldata why) external pure;
    function assertLe(uint256 left, uint256 right, string calldata why) external pure;

    // Fixtures.
    function readFile(string calldata path) external view returns (string memory);
    function projectRoot() external view returns (string memory);
    function toString(uint256 value) external pure returns (string memory);
    function keyExistsJson(string calldata json, string calldata key) external view returns (bool);
    function parseJsonUint(string calldata json, string calldata key) external pure returns (uint256);
    function parseJsonAddress(string calldata json, string calldata key) external pure returns (address);
    function parseJsonBytes(string calldata json, string calldata key) external pure returns (bytes memory);
    function parseJsonBytes32(string calldata json, string calldata key) external pure returns (bytes32);
    function parseJsonString(string calldata json, string calldata key) external pure returns (string memory);
}

// Where forge answers them: the last 20 bytes of keccak256("hevm cheat code").
Vm constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

/// Expects the next call to revert with `Error(string)`, which is what nodes and clients decode, and this message.
function expectError(string memory message) {
    vm.expectRevert(abi.encodeWithSignature("Error(string)", message));
}

/// An account that differs for each name.
function account(string memory name) pure returns (address) {
    return address(uint160(uint256(keccak256(bytes(name)))));
}
