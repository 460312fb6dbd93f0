// Before EIP-1559 and PUSH0.
module.exports = { solidity: "0.8.24", networks: { hardhat: { hardfork: "berlin" } } };
