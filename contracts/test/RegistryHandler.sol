// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

import {AgentRegistry} from "../src/AgentRegistry.sol";
import {account, vm} from "./Vm.sol";

/// Drives a registry at random and keeps a model of it beside. Every call is made, allowed or not, and must end as the
/// model says: so no rule is looser or stricter than the model, and the invariants below are about reachable states.
///
/// Few wallets and a low maximum depth make the rules meet often.
contract RegistryHandler {
    uint256 public constant WALLETS = 6;
    uint256 public constant DEPTH = 3;

    AgentRegistry public immutable registry;
    address private immutable _owner = account("owner");
    address private immutable _creator = account("creator");
    address private immutable _person = account("haftungsperson");

    /// The model: by agent id, from 1; index 0 is unused.
    AgentRegistry.Status[] private _status;
    uint256[] private _wallet;
    uint256[] private _parent;
    uint256[] private _generation;
    /// Hash of a Revoked or Terminated agent's record as it was when it ended; 0 before.
    bytes32[] private _final;
    /// How often each operation was allowed.
    mapping(bytes4 selector => uint256) public allowed;
    /// The highest generation that was ever registered.
    uint256 public deepest;

    constructor() {
        vm.prank(_owner);
        registry = new AgentRegistry(address(0));
        vm.prank(_owner);
        registry.setMaxGenerationDepth(DEPTH);
        _push(0, 0, 0);
    }

    function agents() public view returns (uint256) {
        return _status.length - 1;
    }

    function walletAt(uint256 index) public pure returns (address) {
        return account(string.concat("wallet ", vm.toString(index)));
    }

    function parentOf(uint256 agentId) external view returns (uint256) {
        return _parent[agentId];
    }

    function finalHash(uint256 agentId) external view returns (bytes32) {
        return _final[agentId];
    }

    function isLive(uint256 agentId) public view returns (bool) {
        return _status[agentId] == AgentRegistry.Status.Active || _status[agentId] == AgentRegistry.Status.Suspended;
    }

    function registerAgent(uint256 walletSeed, uint256 parentSeed) external {
        uint256 index = walletSeed % WALLETS;
        // A root, a child of the youngest (so that lines grow to the maximum), or a child of any.
        uint256 parent = [0, agents(), _anyId(parentSeed >> 8)][parentSeed % 3];
        bool allow = _holder(index) == 0;
        uint256 generation = 0;
        if (parent != 0) {
            bool known = parent <= agents();
            allow = allow && known && _status[parent] == AgentRegistry.Status.Active && _generation[parent] < DEPTH;
            generation = known ? _generation[parent] + 1 : 0;
        }
        bytes memory call = abi.encodeCall(
            AgentRegistry.registerAgent, (_person, walletAt(index), bytes32(0), bytes32(0), "", parent, false)
        );
        if (!_try(_creator, call, allow)) return;
        _push(index, parent, generation);
        if (generation > deepest) deepest = generation;
    }

    function attestCompliance(uint256 seed, uint256 callerSeed) external {
        (uint256 id, address caller, bool allow) = _agentCall(seed, callerSeed);
        _try(caller, abi.encodeCall(AgentRegistry.attestCompliance, (id)), allow);
    }

    function reportRevenue(uint256 seed, uint256 callerSeed, uint256 amount) external {
        (uint256 id, address caller, bool allow) = _agentCall(seed, callerSeed);
        _try(caller, abi.encodeCall(AgentRegistry.reportRevenue, (id, amount, "EUR", "sales", 1, 2)), allow);
    }

    function terminateSelf(uint256 seed, uint256 callerSeed) external {
        // Half as often as the rest: agents should live to be suspended and revoked.
        if (callerSeed % 2 != 0) return;
        (uint256 id, address caller, bool allow) = _agentCall(seed, callerSeed);
        if (_try(caller, abi.encodeCall(AgentRegistry.terminateSelf, (id)), allow)) {
            _end(id, AgentRegistry.Status.Terminated);
        }
    }

    function suspendAgent(uint256 seed) external {
        uint256 id = _anyId(seed);
        bool allow = _known(id) && _status[id] == AgentRegistry.Status.Active;
        if (_try(_owner, abi.encodeCall(AgentRegistry.suspendAgent, (id, "")), allow)) {
            _status[id] = AgentRegistry.Status.Suspended;
        }
    }

    function reactivateAgent(uint256 seed) external {
        uint256 id = _anyId(seed);
        bool allow = _known(id) && _status[id] == AgentRegistry.Status.Suspended;
        if (_try(_owner, abi.encodeCall(AgentRegistry.reactivateAgent, (id)), allow)) {
            _status[id] = AgentRegistry.Status.Active;
        }
    }

    function revokeAgent(uint256 seed) external {
        uint256 id = _anyId(seed);
        bool allow = _known(id) && isLive(id);
        if (_try(_owner, abi.encodeCall(AgentRegistry.revokeAgent, (id, "")), allow)) {
            _end(id, AgentRegistry.Status.Revoked);
        }
    }

    function passTime(uint32 seconds_) external {
        vm.warp(block.timestamp + seconds_);
    }

    /// Half the time an agent that holds a wallet, since most ids are soon those of agents that have ended; else every
    /// known id and the two beside them.
    function _anyId(uint256 seed) private view returns (uint256) {
        uint256 holder = _holder((seed >> 8) % WALLETS);
        return seed % 2 == 0 && holder != 0 ? holder : (seed >> 8) % (agents() + 2);
    }

    function _known(uint256 id) private view returns (bool) {
        return id != 0 && id <= agents();
    }

    /// A call for an agent, by somebody who may act for it or by the owner, who may not.
    function _agentCall(uint256 seed, uint256 callerSeed)
        private
        view
        returns (uint256 id, address caller, bool allow)
    {
        id = _anyId(seed);
        caller = [_creator, _person, walletAt(_known(id) ? _wallet[id] : 0), _owner][(callerSeed >> 8) % 4];
        allow = _known(id) && caller != _owner && _status[id] == AgentRegistry.Status.Active;
    }

    function _holder(uint256 index) private view returns (uint256) {
        for (uint256 id = agents(); id != 0; --id) {
            if (isLive(id) && _wallet[id] == index) return id;
        }
        return 0;
    }

    function _try(address caller, bytes memory call, bool expected) private returns (bool success) {
        vm.prank(caller);
        (success,) = address(registry).call(call);
        vm.assertTrue(success == expected, expected ? "refused what is allowed" : "allowed what is forbidden");
        if (success) ++allowed[bytes4(call)];
    }

    function _push(uint256 wallet, uint256 parent, uint256 generation) private {
        _status.push(AgentRegistry.Status.Active);
        _wallet.push(wallet);
        _parent.push(parent);
        _generation.push(generation);
        _final.push(bytes32(0));
    }

    function _end(uint256 id, AgentRegistry.Status status) private {
        _status[id] = status;
        _final[id] = keccak256(abi.encode(registry.getAgent(id), registry.getRevenueHistory(id)));
        vm.assertTrue(registry.getAgent(id).status == status);
    }
}
