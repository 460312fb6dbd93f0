// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";

/// @title A registry of any size, for tests
/// @notice Agents are computed from their ids, so that a million cost as much to make as one; storage keeps what was changed since.
/// Reads, writes and events are those of `AgentRegistry`, for anybody: nobody's office is checked.
///
/// Of a hundred agents 90 are Active, 5 Suspended, 3 Revoked, 2 Terminated. Each tenth has one revenue report. An agent above 16 with
/// an even id is a child of id / 16, which gives eight children to whoever has any.
contract SyntheticRegistry {
    /// An agent's wallet is this and its id.
    uint160 public constant WALLETS = 0x5ca1ab1e << 128;
    uint160 private constant CREATORS = 0xc4ea704 << 128;
    uint160 private constant PERSONS = 0x9e450a << 128;
    /// How many creators and liable persons there are.
    uint256 private constant PEOPLE = 673;
    /// Registrations are spread over so many seconds before the deployment; later ones count as of its second.
    uint256 private constant HISTORY = 40 days;
    /// Attestations are up to this old at the deployment.
    uint256 private constant OLDEST_ATTESTATION = 9 days;

    /// What differs from what the id says.
    struct Change {
        bool hasStatus;
        AgentRegistry.Status status;
        uint64 attestedAt;
    }

    uint256 public nextAgentId;
    uint256 public constant attestationGracePeriod = 7 days;
    uint256 public constant maxGenerationDepth = 10;
    uint256 private immutable deployedAt = block.timestamp;
    uint256 private immutable spacing;
    mapping(uint256 agentId => Change) private changes;

    modifier exists(uint256 agentId) {
        require(agentId != 0 && agentId < nextAgentId, "Agent not found");
        _;
    }

    constructor(uint256 agents) {
        nextAgentId = agents + 1;
        spacing = (HISTORY << 32) / (agents + 1);
    }

    // Writes

    /// @notice Registers so many agents at once.
    function register(uint256 count) external {
        for (; count > 0; --count) {
            uint256 id = nextAgentId++;
            AgentRegistry.AgentRecord memory agent = record(id);
            emit AgentRegistry.AgentRegistered(
                id, agent.agentWallet, agent.creator, agent.haftungsperson, agent.parentAgentId, agent.generation
            );
        }
    }

    /// @notice Suspends so many agents, or reactivates those that are suspended, from this one on; final ones stay as they are.
    function toggle(uint256 first, uint256 count) external {
        for (uint256 id = first; id < first + count; ++id) {
            if (status(id) == AgentRegistry.Status.Active) {
                set(id, AgentRegistry.Status.Suspended);
                emit AgentRegistry.AgentSuspended(id, msg.sender, "test");
            } else if (status(id) == AgentRegistry.Status.Suspended) {
                set(id, AgentRegistry.Status.Active);
                emit AgentRegistry.AgentReactivated(id, msg.sender);
            }
        }
    }

    function attestCompliance(uint256 agentId) external exists(agentId) {
        require(status(agentId) == AgentRegistry.Status.Active, "Agent not active");
        changes[agentId].attestedAt = uint64(block.timestamp);
        emit AgentRegistry.ComplianceAttested(agentId, msg.sender, uint64(block.timestamp));
    }

    function suspendAgent(uint256 agentId, string calldata reason) external exists(agentId) {
        require(status(agentId) == AgentRegistry.Status.Active, "Agent not active");
        set(agentId, AgentRegistry.Status.Suspended);
        emit AgentRegistry.AgentSuspended(agentId, msg.sender, reason);
    }

    function reactivateAgent(uint256 agentId) external exists(agentId) {
        require(status(agentId) == AgentRegistry.Status.Suspended, "Only suspended agents can be reactivated");
        set(agentId, AgentRegistry.Status.Active);
        emit AgentRegistry.AgentReactivated(agentId, msg.sender);
    }

    function revokeAgent(uint256 agentId, string calldata reason) external exists(agentId) {
        require(status(agentId) < AgentRegistry.Status.Revoked, "Agent not active");
        set(agentId, AgentRegistry.Status.Revoked);
        emit AgentRegistry.AgentRevoked(agentId, msg.sender, reason);
    }

    // Reads

    function getAgent(uint256 agentId) external view exists(agentId) returns (AgentRegistry.AgentRecord memory) {
        return record(agentId);
    }

    function getAgentByWallet(address wallet) external view returns (AgentRegistry.AgentRecord memory) {
        uint256 agentId = walletToAgent(wallet);
        require(agentId != 0, "No agent registered for this wallet");
        return record(agentId);
    }

    function getChildren(uint256 agentId) external view returns (uint256[] memory children) {
        uint256 first = agentId * 16 < 18 ? 18 : agentId * 16;
        uint256 end = (agentId + 1) * 16;
        if (end > nextAgentId) end = nextAgentId;
        if (agentId == 0 || first >= end) return children;
        children = new uint256[]((end - first + 1) / 2);
        for (uint256 i = 0; i < children.length; ++i) {
            children[i] = first + 2 * i;
        }
    }

    function getRevenueHistory(uint256 agentId) external view returns (AgentRegistry.RevenueReport[] memory history) {
        if (!hasReport(agentId)) return history;
        history = new AgentRegistry.RevenueReport[](1);
        history[0] = AgentRegistry.RevenueReport({
            agentId: agentId,
            amount: agentId * 100,
            currency: agentId % 20 == 0 ? "EUR" : "USD",
            category: "fees",
            periodStart: uint64(deployedAt - 30 days),
            periodEnd: uint64(deployedAt - 1 days),
            reportedAt: uint64(deployedAt - 1 days)
        });
    }

    function complianceStatus(uint256 agentId)
        external
        view
        exists(agentId)
        returns (bool isActive, bool attestationCurrent, uint64 age, uint256 childCount, AgentRegistry.Status status_)
    {
        status_ = status(agentId);
        isActive = status_ == AgentRegistry.Status.Active;
        age = uint64(block.timestamp - attestedAt(agentId));
        attestationCurrent = age <= attestationGracePeriod;
        childCount = this.getChildren(agentId).length;
    }

    function isRegistered(address wallet) external view returns (bool) {
        return walletToAgent(wallet) != 0;
    }

    function isRegisteredAndCompliant(address wallet) external view returns (bool) {
        uint256 agentId = walletToAgent(wallet);
        return
            agentId != 0 && status(agentId) == AgentRegistry.Status.Active
                && block.timestamp - attestedAt(agentId) <= attestationGracePeriod;
    }

    function isTrustedForwarder(address) external pure returns (bool) {
        return false;
    }

    function walletToAgent(address wallet) public view returns (uint256) {
        uint256 agentId = uint256(uint160(wallet)) ^ WALLETS;
        bool keepsWallet = agentId != 0 && agentId < nextAgentId && status(agentId) < AgentRegistry.Status.Revoked;
        return keepsWallet ? agentId : 0;
    }

    function record(uint256 id) private view returns (AgentRegistry.AgentRecord memory agent) {
        agent.agentId = id;
        agent.creator = address(CREATORS + uint160(id % PEOPLE));
        agent.haftungsperson = address(PERSONS + uint160((id / 7) % PEOPLE));
        agent.agentWallet = address(WALLETS + uint160(id));
        agent.constitutionHash = keccak256(abi.encode("constitution", id % 100));
        agent.capabilityHash = keccak256(abi.encode("capabilities", id % 1000));
        agent.operationalScope = id % 3 == 0 ? "Translation of contracts" : id % 3 == 1 ? "Trading of carbon rights" : "Data labelling";
        (agent.parentAgentId, agent.generation) = (parent(id), generation(id));
        agent.selfModifying = id % 8 == 0;
        agent.registeredAt = uint64(registeredAt(id));
        agent.lastAttestation = uint64(attestedAt(id));
        agent.lastRevenueReport = hasReport(id) ? uint64(deployedAt - 1 days) : 0;
        agent.status = status(id);
    }

    function parent(uint256 id) private pure returns (uint256) {
        return id > 16 && id % 2 == 0 ? id / 16 : 0;
    }

    function generation(uint256 id) private pure returns (uint256 depth) {
        for (id = parent(id); id != 0; id = parent(id)) {
            ++depth;
        }
    }

    function registeredAt(uint256 id) private view returns (uint256) {
        uint256 since = (id * spacing) >> 32;
        return since < HISTORY ? deployedAt + since - HISTORY : deployedAt;
    }

    function attestedAt(uint256 id) private view returns (uint256) {
        uint256 changed = changes[id].attestedAt;
        if (changed != 0) return changed;
        uint256 first = deployedAt - (id * 7919) % OLDEST_ATTESTATION;
        return first < registeredAt(id) ? registeredAt(id) : first;
    }

    function status(uint256 id) private view returns (AgentRegistry.Status) {
        Change storage change = changes[id];
        if (change.hasStatus) return change.status;
        uint256 place = id % 100;
        if (place < 90) return AgentRegistry.Status.Active;
        if (place < 95) return AgentRegistry.Status.Suspended;
        return place < 98 ? AgentRegistry.Status.Revoked : AgentRegistry.Status.Terminated;
    }

    function set(uint256 id, AgentRegistry.Status to) private {
        changes[id].hasStatus = true;
        changes[id].status = to;
    }

    function hasReport(uint256 id) private view returns (bool) {
        return id != 0 && id < nextAgentId && id % 10 == 0;
    }
}
