// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {ERC2771Context} from "@openzeppelin/contracts/metatx/ERC2771Context.sol";

/// @title Agent registry
/// @notice Who an agent is, who answers for it, and whether it still attests that it complies.
///
///            registerAgent
///                 |
///                 v      suspendAgent
///              Active <----------------> Suspended
///              |    |   reactivateAgent      |
///   terminateSelf   revokeAgent              | revokeAgent
///              v    v                        |
///     Terminated   Revoked <-----------------+
///
/// Suspended keeps the agent's wallet; Revoked and Terminated are final and free it for another registration.
///
/// Every function checks in one order: the caller's office (`Only owner`, `Only regulator`), then that the agent
/// exists, then that the caller may act for it, then its status, then the rest. The caller is `_msgSender()` throughout:
/// for a call through the trusted forwarder, whoever signed the request.
contract AgentRegistry is ERC2771Context {
    enum Status {
        Active,
        Suspended,
        Revoked,
        Terminated
    }

    /// Times are unix seconds.
    struct AgentRecord {
        uint256 agentId; // counts up from 1
        address creator; // wallet that registered the agent
        address haftungsperson; // legally responsible person or entity
        address agentWallet; // the agent's own wallet
        bytes32 constitutionHash; // keccak256 of the constitution document
        bytes32 capabilityHash; // keccak256 of the capability manifest
        string operationalScope;
        uint256 parentAgentId; // 0 = root
        uint256 generation; // 0 = root, else the parent's + 1
        bool selfModifying;
        uint64 registeredAt;
        uint64 lastAttestation; // registration counts as the first
        uint64 lastRevenueReport; // 0 = never
        Status status;
    }

    /// `amount` is in cents of `currency`; the period is as the agent states it, times are unix seconds.
    struct RevenueReport {
        uint256 agentId;
        uint256 amount;
        string currency;
        string category;
        uint64 periodStart;
        uint64 periodEnd;
        uint64 reportedAt;
    }

    address public owner;
    /// The id that the next registration gets: there are `nextAgentId - 1` agents.
    uint256 public nextAgentId = 1;
    /// An attestation is current while it is at most this many seconds old.
    uint256 public attestationGracePeriod = 7 days;
    /// The highest generation that can be registered; agents that exist already are not affected by a change.
    uint256 public maxGenerationDepth = 10;
    mapping(address account => bool) public isRegulator;
    /// The Active or Suspended agent that a wallet belongs to, 0 for none.
    mapping(address wallet => uint256 agentId) public walletToAgent;

    mapping(uint256 agentId => AgentRecord) private _agents;
    mapping(uint256 agentId => uint256[]) private _children;
    mapping(uint256 agentId => RevenueReport[]) private _revenue;

    event AgentRegistered(
        uint256 indexed agentId,
        address indexed agentWallet,
        address indexed creator,
        address haftungsperson,
        uint256 parentAgentId,
        uint256 generation
    );
    event ComplianceAttested(uint256 indexed agentId, address indexed by, uint64 attestedAt);
    event RevenueReported(
        uint256 indexed agentId, address indexed by, uint256 amount, string currency, string category
    );
    event AgentSuspended(uint256 indexed agentId, address indexed by, string reason);
    event AgentRevoked(uint256 indexed agentId, address indexed by, string reason);
    event AgentReactivated(uint256 indexed agentId, address indexed by);
    event AgentTerminated(uint256 indexed agentId, address indexed by);

    event OwnershipTransferred(address indexed previousOwner, address indexed newOwner);
    event RegulatorSet(address indexed account, bool allowed);
    event AttestationGracePeriodSet(uint256 gracePeriodSeconds);
    event MaxGenerationDepthSet(uint256 depth);

    modifier onlyOwner() {
        require(_msgSender() == owner, "Only owner");
        _;
    }

    modifier onlyRegulator() {
        require(isRegulator[_msgSender()] || _msgSender() == owner, "Only regulator");
        _;
    }

    modifier agentExists(uint256 agentId) {
        require(_exists(agentId), "Agent not found");
        _;
    }

    modifier onlyAgentOrCreator(uint256 agentId) {
        AgentRecord storage agent = _agents[agentId];
        address sender = _msgSender();
        require(
            sender == agent.agentWallet || sender == agent.creator || sender == agent.haftungsperson,
            "Not authorized for this agent"
        );
        _;
    }

    modifier agentActive(uint256 agentId) {
        require(_agents[agentId].status == Status.Active, "Agent not active");
        _;
    }

    /// The deployer is the first owner. The forwarder is trusted for good; the zero address stands for none.
    constructor(address trustedForwarder_) ERC2771Context(trustedForwarder_) {
        owner = _msgSender();
        emit OwnershipTransferred(address(0), owner);
    }

    // Agents

    /// @notice Registers an agent; the caller is its creator. Anyone may register, under any Active parent.
    /// @param parentAgentId 0 for a root agent
    /// @dev Checks, in this order: agent wallet, haftungsperson, parent found, parent active, depth, wallet free.
    function registerAgent(
        address haftungsperson,
        address agentWallet,
        bytes32 constitutionHash,
        bytes32 capabilityHash,
        string calldata operationalScope,
        uint256 parentAgentId,
        bool selfModifying
    ) external returns (uint256 agentId) {
        require(agentWallet != address(0), "Agent wallet is the zero address");
        require(haftungsperson != address(0), "Haftungsperson is the zero address");

        uint256 generation = 0;
        if (parentAgentId != 0) {
            require(_exists(parentAgentId), "Parent agent not found");
            require(_agents[parentAgentId].status == Status.Active, "Parent agent not active");
            generation = _agents[parentAgentId].generation + 1;
            require(generation <= maxGenerationDepth, "Max generation depth exceeded");
        }
        require(walletToAgent[agentWallet] == 0, "Wallet already registered to another agent");

        agentId = nextAgentId++;
        walletToAgent[agentWallet] = agentId;
        if (parentAgentId != 0) _children[parentAgentId].push(agentId);

        AgentRecord storage agent = _agents[agentId];
        agent.agentId = agentId;
        agent.creator = _msgSender();
        agent.haftungsperson = haftungsperson;
        agent.agentWallet = agentWallet;
        agent.constitutionHash = constitutionHash;
        agent.capabilityHash = capabilityHash;
        agent.operationalScope = operationalScope;
        agent.parentAgentId = parentAgentId;
        agent.generation = generation;
        agent.selfModifying = selfModifying;
        agent.registeredAt = uint64(block.timestamp);
        agent.lastAttestation = uint64(block.timestamp);

        emit AgentRegistered(agentId, agentWallet, _msgSender(), haftungsperson, parentAgentId, generation);
    }

    /// @notice States that the agent complies, as of now.
    function attestCompliance(uint256 agentId)
        external
        agentExists(agentId)
        onlyAgentOrCreator(agentId)
        agentActive(agentId)
    {
        _agents[agentId].lastAttestation = uint64(block.timestamp);
        emit ComplianceAttested(agentId, _msgSender(), uint64(block.timestamp));
    }

    /// @notice Puts a revenue report on record, as stated.
    function reportRevenue(
        uint256 agentId,
        uint256 amount,
        string calldata currency,
        string calldata category,
        uint64 periodStart,
        uint64 periodEnd
    ) external agentExists(agentId) onlyAgentOrCreator(agentId) agentActive(agentId) {
        _revenue[agentId].push(
            RevenueReport(agentId, amount, currency, category, periodStart, periodEnd, uint64(block.timestamp))
        );
        _agents[agentId].lastRevenueReport = uint64(block.timestamp);
        emit RevenueReported(agentId, _msgSender(), amount, currency, category);
    }

    /// @notice Ends the agent for good and frees its wallet.
    function terminateSelf(uint256 agentId)
        external
        agentExists(agentId)
        onlyAgentOrCreator(agentId)
        agentActive(agentId)
    {
        _end(agentId, Status.Terminated);
        emit AgentTerminated(agentId, _msgSender());
    }

    // Regulators

    function suspendAgent(uint256 agentId, string calldata reason)
        external
        onlyRegulator
        agentExists(agentId)
        agentActive(agentId)
    {
        _agents[agentId].status = Status.Suspended;
        emit AgentSuspended(agentId, _msgSender(), reason);
    }

    /// @notice Ends an Active or Suspended agent for good and frees its wallet.
    function revokeAgent(uint256 agentId, string calldata reason) external onlyRegulator agentExists(agentId) {
        Status status = _agents[agentId].status;
        require(status == Status.Active || status == Status.Suspended, "Agent not active");
        _end(agentId, Status.Revoked);
        emit AgentRevoked(agentId, _msgSender(), reason);
    }

    function reactivateAgent(uint256 agentId) external onlyRegulator agentExists(agentId) {
        require(_agents[agentId].status == Status.Suspended, "Only suspended agents can be reactivated");
        _agents[agentId].status = Status.Active;
        emit AgentReactivated(agentId, _msgSender());
    }

    // Owner

    function setRegulator(address account, bool allowed) external onlyOwner {
        isRegulator[account] = allowed;
        emit RegulatorSet(account, allowed);
    }

    function setAttestationGracePeriod(uint256 gracePeriodSeconds) external onlyOwner {
        attestationGracePeriod = gracePeriodSeconds;
        emit AttestationGracePeriodSet(gracePeriodSeconds);
    }

    function setMaxGenerationDepth(uint256 depth) external onlyOwner {
        maxGenerationDepth = depth;
        emit MaxGenerationDepthSet(depth);
    }

    function transferOwnership(address newOwner) external onlyOwner {
        require(newOwner != address(0), "New owner is the zero address");
        emit OwnershipTransferred(owner, newOwner);
        owner = newOwner;
    }

    // Reads

    function getAgent(uint256 agentId) external view agentExists(agentId) returns (AgentRecord memory) {
        return _agents[agentId];
    }

    function getAgentByWallet(address wallet) external view returns (AgentRecord memory) {
        uint256 agentId = walletToAgent[wallet];
        require(agentId != 0, "No agent registered for this wallet");
        return _agents[agentId];
    }

    /// @notice Ids of the direct children, oldest first, whatever their status; none for an unknown agent.
    function getChildren(uint256 agentId) external view returns (uint256[] memory) {
        return _children[agentId];
    }

    /// @notice All reports, oldest first; none for an unknown agent.
    function getRevenueHistory(uint256 agentId) external view returns (RevenueReport[] memory) {
        return _revenue[agentId];
    }

    /// @notice An agent is compliant if `isActive` and `attestationCurrent`.
    /// @dev Reverts for an unknown agent: the zeros of an empty record would read as Active.
    function complianceStatus(uint256 agentId)
        external
        view
        agentExists(agentId)
        returns (
            bool isActive,
            bool attestationCurrent,
            uint64 secondsSinceAttestation,
            uint256 childCount,
            Status status
        )
    {
        status = _agents[agentId].status;
        isActive = status == Status.Active;
        secondsSinceAttestation = _attestationAge(agentId);
        attestationCurrent = secondsSinceAttestation <= attestationGracePeriod;
        childCount = _children[agentId].length;
    }

    function isRegistered(address agentWallet) external view returns (bool) {
        return walletToAgent[agentWallet] != 0;
    }

    function isRegisteredAndCompliant(address agentWallet) external view returns (bool) {
        uint256 agentId = walletToAgent[agentWallet];
        return
            agentId != 0 && _agents[agentId].status == Status.Active
                && _attestationAge(agentId) <= attestationGracePeriod;
    }

    function _exists(uint256 agentId) private view returns (bool) {
        return agentId != 0 && agentId < nextAgentId;
    }

    function _attestationAge(uint256 agentId) private view returns (uint64) {
        return uint64(block.timestamp) - _agents[agentId].lastAttestation;
    }

    /// Revoked and Terminated have this in common: the wallet is free again.
    function _end(uint256 agentId, Status status) private {
        _agents[agentId].status = status;
        delete walletToAgent[_agents[agentId].agentWallet];
    }
}
