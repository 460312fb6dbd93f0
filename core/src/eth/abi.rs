//! The contracts' interfaces: the only place in the project with a function signature.
//!
//! Registry and forwarder are as published for Base Sepolia; Multicall3 is the canonical one. Names and
//! field order are part of the ABI's meaning: `lastAttestation` here is the word the contract returns there.

use alloy_sol_types::{SolCall, abi::AbiDecoderConfig, sol};

/// Returns limits for decoding a node's bytes in little more memory than the bytes themselves. The default
/// may take a gigabyte, because offsets may refer to the same megabyte a thousand times.
pub const fn bounded(data: &[u8]) -> AbiDecoderConfig {
    AbiDecoderConfig::new().memory_limit(data.len() + 1_024)
}

/// Decodes a call's return value within [`bounded`] memory.
///
/// # Errors
///
/// The errors of the decoder.
pub fn decode_returns<C: SolCall>(data: &[u8]) -> alloy_sol_types::Result<C::Return> {
    C::abi_decode_returns_with_config(data, bounded(data))
}

sol! {
    /// One agent as the registry stores it. Times are unix seconds, `status` is 0 Active, 1 Suspended,
    /// 2 Revoked, 3 Terminated; `parentAgentId` 0 is a root; `lastRevenueReport` 0 is "never".
    #[derive(Debug, PartialEq, Eq)]
    struct AgentRecord {
        uint256 agentId;
        address creator;
        address haftungsperson;
        address agentWallet;
        bytes32 constitutionHash;
        bytes32 capabilityHash;
        string operationalScope;
        uint256 parentAgentId;
        uint256 generation;
        bool selfModifying;
        uint64 registeredAt;
        uint64 lastAttestation;
        uint64 lastRevenueReport;
        uint8 status;
    }

    /// One revenue report; `amount` is in cents of `currency`, times are unix seconds.
    #[derive(Debug, PartialEq, Eq)]
    struct RevenueReport {
        uint256 agentId;
        uint256 amount;
        string currency;
        string category;
        uint64 periodStart;
        uint64 periodEnd;
        uint64 reportedAt;
    }

    /// The agent registry (`AgentRegistry.sol`).
    interface IAgentRegistry {
        function getAgent(uint256 agentId) external view returns (AgentRecord memory);
        function getAgentByWallet(address wallet) external view returns (AgentRecord memory);
        function getChildren(uint256 agentId) external view returns (uint256[] memory);
        function getRevenueHistory(uint256 agentId) external view returns (RevenueReport[] memory);
        function complianceStatus(uint256 agentId) external view
            returns (bool isActive, bool attestationCurrent, uint64 secondsSinceAttestation, uint256 childCount, uint8 status);
        function isRegistered(address agentWallet) external view returns (bool);
        function isRegisteredAndCompliant(address agentWallet) external view returns (bool);
        function nextAgentId() external view returns (uint256);
        function walletToAgent(address wallet) external view returns (uint256);
        function attestationGracePeriod() external view returns (uint256);
        function isTrustedForwarder(address forwarder) external view returns (bool);

        function registerAgent(
            address haftungsperson,
            address agentWallet,
            bytes32 constitutionHash,
            bytes32 capabilityHash,
            string calldata operationalScope,
            uint256 parentAgentId,
            bool selfModifying
        ) external returns (uint256 agentId);
        function attestCompliance(uint256 agentId) external;
        function reportRevenue(
            uint256 agentId,
            uint256 amount,
            string calldata currency,
            string calldata category,
            uint64 periodStart,
            uint64 periodEnd
        ) external;
        function terminateSelf(uint256 agentId) external;
        function suspendAgent(uint256 agentId, string calldata reason) external;
        function revokeAgent(uint256 agentId, string calldata reason) external;
        function reactivateAgent(uint256 agentId) external;
        function setAttestationGracePeriod(uint256 gracePeriodSeconds) external;
        function setRegulator(address account, bool isRegulator) external;

        event AgentRegistered(
            uint256 indexed agentId,
            address indexed agentWallet,
            address indexed creator,
            address haftungsperson,
            uint256 parentAgentId,
            uint256 generation
        );
        event ComplianceAttested(uint256 indexed agentId, address indexed by, uint64 attestedAt);
        event RevenueReported(uint256 indexed agentId, address indexed by, uint256 amount, string currency, string category);
        event AgentSuspended(uint256 indexed agentId, address indexed by, string reason);
        event AgentRevoked(uint256 indexed agentId, address indexed by, string reason);
        event AgentReactivated(uint256 indexed agentId, address indexed by);
        event AgentTerminated(uint256 indexed agentId, address indexed by);
    }

    /// A meta-transaction: what `from` signs (EIP-712) and the forwarder executes in its name. `deadline` is
    /// unix seconds, 0 = no expiry; `gas` is the inner call's limit; `nonce` counts up per `from`.
    #[derive(Debug, PartialEq, Eq)]
    struct ForwardRequest {
        address from;
        address to;
        uint256 value;
        uint256 gas;
        uint256 nonce;
        uint48 deadline;
        bytes data;
    }

    /// The ERC-2771 forwarder (`Forwarder.sol`); its EIP-712 domain is `MinimalForwarder`, version `1`.
    interface IForwarder {
        function getNonce(address from) external view returns (uint256);
        function verify(ForwardRequest calldata req, bytes calldata signature) external view returns (bool);
        function execute(ForwardRequest calldata req, bytes calldata signature)
            external
            payable
            returns (bool success, bytes memory returnData);
        /// EIP-5267: the domain the deployed contract really uses.
        function eip712Domain()
            external
            view
            returns (
                bytes1 fields,
                string memory name,
                string memory version,
                uint256 chainId,
                address verifyingContract,
                bytes32 salt,
                uint256[] memory extensions
            );

        event RequestExecuted(address indexed from, uint256 nonce, bool success, bytes returnData);
    }

    /// The part of Multicall3 that is used here.
    interface IMulticall3 {
        /// One call. With `allowFailure` its revert is in its [`Result`], and the other calls run.
        #[derive(Debug, PartialEq, Eq)]
        struct Call3 {
            address target;
            bool allowFailure;
            bytes callData;
        }
        /// One outcome, in the order of the calls.
        #[derive(Debug, PartialEq, Eq)]
        struct Result {
            bool success;
            bytes returnData;
        }
        function aggregate3(Call3[] calldata calls) external payable returns (Result[] memory returnData);
        function getBlockNumber() external view returns (uint256 blockNumber);
        function getLastBlockHash() external view returns (bytes32 blockHash);
        function getChainId() external view returns (uint256 chainid);
        function getCurrentBlockTimestamp() external view returns (uint256 timestamp);
    }

    /// A contract account that checks its signatures itself (ERC-1271).
    interface IERC1271 {
        function isValidSignature(bytes32 hash, bytes memory signature) external view returns (bytes4 magicValue);
    }

    /// The account lens (`AccountLens.sol`), without the function it shares with Multicall3.
    interface IAccountLens {
        function check(address account, bytes calldata data, uint256 most) external view
            returns (uint256 codeSize, bytes32 answer);
    }

    /// The lens (`RegistryLens.sol`). [`lens`](crate::chain::lens) reads its return data, which is packed,
    /// not ABI-encoded.
    interface IRegistryLens {
        function walk(address registry, uint256 first, uint256 count, uint256 detail, uint256 maxBytes, uint256 gasPerByte)
            external view;
    }
}
