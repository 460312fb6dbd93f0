// SPDX-License-Identifier: MIT OR Apache-2.0
pragma solidity 0.8.24;

/// @title A read-only lens over an agent registry, never deployed
/// @notice Reads many agents in one `eth_call` through the registry's public getters and answers in packed rows. Nodes run it
/// as the code of an unused address (state override), or through `Deployless`. `registry-core` holds its bytecode.
///
/// The agents have consecutive ids, or those listed behind the arguments, 8 bytes each. Listed agents are numbered from `first` on.
///
/// No agent can spoil the answer for the others. Each getter gets a quarter of the gas. An agent that needs more is marked, and
/// the walk goes on; asked for alone, it gets all the gas there is. The walk ends before the gas does, and the answer says
/// how many agents it covers.
///
/// The answer, big-endian and without padding:
///
///   1   version, 1
///   32  hash of the block before the one that was read
///   8   chain id
///   8   the block's timestamp, unix seconds
///   4   number of rows
///   8   number of revenue reports in the readable histories
///   62  each row: status (255: the record is unreadable), flags (1: the history is unreadable), creator (20),
///       registeredAt (8), lastAttestation (5), parentAgentId (5), generation (2), agentWallet (20)
///   ... the rest are sums: kind (1; 0 by currency, 1 by category), length of the text (4), sum (40), text
///
/// In full detail a row goes on, sums are each agent's own, and each agent with a readable record has its scope among them, in the
/// order of the rows:
///
///   86  each row: the 62 bytes above, haftungsperson (20), its number of reports (4)
///   ... each sum's text begins with the agent's id, or its number where ids are listed (8)
///   ... each scope: kind (1; 2), length (4), the first 256 bytes of the operationalScope at most
contract RegistryLens {
    uint256 private constant HEAD = 61;
    uint256 private constant ROW = 62;
    uint256 private constant FULL_ROW = 86;
    /// What is read of each agent: its row; its revenue, too; all of it, with sums of its own.
    uint256 private constant ROWS = 0;
    uint256 private constant FULL = 2;
    /// Bytes of a scope that are answered at most: whoever registers an agent chooses its text.
    uint256 private constant SCOPE = 256;
    uint256 private constant BUCKETS = 128;
    /// Bytes of the selector and the arguments; a list of ids may follow.
    uint256 private constant ARGUMENTS = 196;
    /// The gas that the end of a walk takes at most, beside what depends on the answer's size.
    uint256 private constant TAIL = 30_000;
    /// The gas that it takes at most to add one report to the sums, beside what depends on the size of its texts.
    uint256 private constant PER_REPORT = 2_500;
    uint256 private constant BY_CURRENCY = 0;
    uint256 private constant BY_CATEGORY = 1;

    bytes4 private constant NEXT_AGENT_ID = bytes4(keccak256("nextAgentId()"));
    bytes4 private constant GET_AGENT = bytes4(keccak256("getAgent(uint256)"));
    bytes4 private constant GET_REVENUE_HISTORY = bytes4(keccak256("getRevenueHistory(uint256)"));

    /// The registry answered what its interface does not define.
    error Malformed();

    enum Outcome {
        Read,
        // Refused, malformed, or in need of more gas than any agent gets in this walk.
        Unreadable,
        // Too little gas is left of this walk; the next one begins with this agent.
        OutOfGas
    }

    struct Walk {
        address registry;
        // The gas of one getter.
        uint256 stipend;
        // There is one agent only, and it gets all the gas.
        bool alone;
        uint256 gasPerByte;
        bytes32 parentHash;
        // Memory: where the answer begins, the hash table, the first sum.
        uint256 start;
        uint256 buckets;
        uint256 sums;
        uint256 done;
        uint256 reports;
        // Bytes of a row.
        uint256 row;
        // In full detail: bytes of the id before each sum's text, the id, and where in memory the agent's own sums begin.
        uint256 prefix;
        uint256 agentId;
        uint256 floor;
    }

    /// @param first id of the first agent
    /// @param count how many agents to read at most; where it is 1, this agent gets all the gas
    /// @param detail 0 for rows, 1 for rows and revenue, 2 for full detail
    /// @param maxBytes no agent is read after the answer has reached this size
    /// @param gasPerByte what each byte of the answer costs whoever passes it on
    function walk(
        address registry,
        uint256 first,
        uint256 count,
        uint256 detail,
        uint256 maxBytes,
        uint256 gasPerByte
    ) external view {
        unchecked {
            Walk memory w;
            w.registry = registry;
            w.stipend = gasleft() / 4;
            w.alone = count == 1;
            w.gasPerByte = gasPerByte;
            w.parentHash = blockhash(block.number - 1);
            (w.row, w.prefix) = detail == FULL ? (FULL_ROW, 8) : (ROW, 0);

            uint256 most = (msg.data.length - ARGUMENTS) / 8;
            if (most == 0) {
                uint256 end = _nextAgentId(w);
                if (first < end) most = end - first;
            }
            if (count > most) count = most;
            if (count > maxBytes / w.row) count = maxBytes / w.row;
            _lay(w, count);

            for (; w.done < count; ++w.done) {
                if (!_row(w, first + w.done, detail)) break;
                if (_size(w) >= maxBytes) {
                    ++w.done;
                    break;
                }
            }
            _finish(w);
        }
    }

    /// Memory in this order: head and rows of the answer, hash table, sums.
    function _lay(Walk memory w, uint256 count) private pure {
        assembly ("memory-safe") {
            let start := mload(0x40)
            // Room for the last row's second word, which is longer than the row.
            let buckets := and(add(add(start, mul(count, mload(add(w, 0x140)))), 159), not(31))
            let sums := add(buckets, mul(BUCKETS, 32))
            calldatacopy(buckets, calldatasize(), mul(BUCKETS, 32))
            mstore(0x40, sums)
            mstore(add(w, 0xa0), start)
            mstore(add(w, 0xc0), buckets)
            mstore(add(w, 0xe0), sums)
        }
    }

    /// Reads one agent; false where the walk has to end before it.
    function _row(Walk memory w, uint256 agentId, uint256 detail) private view returns (bool) {
        unchecked {
            uint256 row = w.start + HEAD + w.done * w.row;
            // The first agent has had all that any agent gets.
            bool first = w.done == 0;
            uint256 free;
            assembly ("memory-safe") {
                free := mload(0x40)
            }
            uint256 id = _id(w.done, agentId);
            Outcome outcome = _get(w, GET_AGENT, id);
            if (outcome == Outcome.OutOfGas && !first) return false;
            bool readable = outcome == Outcome.Read && _writeRecord(row, detail);
            if (!readable) _write(row, 255 << 248, 0, 0);
            else if (detail == FULL) _writeScope();
            if (detail == ROWS) return true;

            // A marked agent is asked for alone later. Then its history counts; now it would count twice.
            outcome = Outcome.Unreadable;
            if (readable || w.alone) {
                outcome = _get(w, GET_REVENUE_HISTORY, id);
                if (detail == FULL) _own(w, agentId);
                uint256 before = w.reports;
                if (outcome == Outcome.Read) outcome = _addReports(w);
                if (detail == FULL) _writeReports(row, w.reports - before);
                if (outcome == Outcome.OutOfGas && !first) {
                    // The walk that begins with this agent answers its scope.
                    assembly ("memory-safe") {
                        mstore(0x40, free)
                    }
                    return false;
                }
            }
            if (outcome != Outcome.Read) {
                assembly ("memory-safe") {
                    mstore8(add(row, 1), 1)
                }
            }
            return true;
        }
    }

    /// The id of the agent in this place of the walk: the listed one, where ids are listed.
    function _id(uint256 place, uint256 agentId) private pure returns (uint256 id) {
        id = agentId;
        if (msg.data.length > ARGUMENTS) {
            assembly ("memory-safe") {
                id := shr(192, calldataload(add(ARGUMENTS, mul(place, 8))))
            }
        }
    }

    /// From here on sums are this agent's.
    function _own(Walk memory w, uint256 agentId) private pure {
        w.agentId = agentId;
        assembly ("memory-safe") {
            mstore(add(w, 0x1a0), mload(0x40))
        }
    }

    /// Writes the number of an agent's reports to the end of its row.
    function _writeReports(uint256 row, uint256 reports) private pure {
        assembly ("memory-safe") {
            mstore(add(row, 82), shl(224, reports))
        }
    }

    /// Calls a getter with the stipend, or with what is left of the gas where that is less.
    function _get(Walk memory w, bytes4 selector, uint256 agentId) private view returns (Outcome) {
        unchecked {
            uint256 kept = _tail(w);
            uint256 given = gasleft();
            if (given < kept) return Outcome.OutOfGas;
            given -= kept;
            bool whole = w.alone;
            if (!whole && given >= w.stipend) (given, whole) = (w.stipend, true);
            bool success;
            bool silent;
            address registry = w.registry;
            assembly ("memory-safe") {
                mstore(0, selector)
                mstore(4, agentId)
                success := staticcall(given, registry, 0, 36, 0, 0)
                silent := iszero(returndatasize())
            }
            if (success) return Outcome.Read;
            // Whoever runs out of gas says nothing.
            return silent && !whole ? Outcome.OutOfGas : Outcome.Unreadable;
        }
    }

    function _nextAgentId(Walk memory w) private view returns (uint256) {
        if (_get(w, NEXT_AGENT_ID, 0) != Outcome.Read) revert Malformed();
        return _word(0);
    }

    /// Writes the record that was just returned; false where it is none, or none that fits a row.
    function _writeRecord(uint256 row, uint256 detail) private pure returns (bool) {
        uint256 size;
        assembly ("memory-safe") {
            size := returndatasize()
        }
        // An offset, and 14 words of a record without the text in it.
        if (size < 480) return false;
        (uint256 parent, uint256 generation) = (_word(0x100), _word(0x120));
        if (parent >> 40 != 0 || generation >> 16 != 0) return false;
        (uint256 status, uint256 registeredAt, uint256 attestedAt) = (_word(0x1c0), _word(0x160), _word(0x180));
        if (registeredAt >> 64 != 0 || attestedAt >> 40 != 0) return false;
        // No number above 3 is defined; which one it is does not matter.
        if (status > 254) status = 254;
        uint256 creator = _word(0x40) & type(uint160).max;
        _write(
            row,
            (status << 248) | (creator << 80) | (registeredAt << 16),
            (attestedAt << 216) | (parent << 176) | (generation << 160),
            _word(0x80)
        );
        if (detail == FULL) {
            uint256 haftungsperson = _word(0x60);
            assembly ("memory-safe") {
                mstore(add(row, 62), shl(96, haftungsperson))
            }
        }
        return true;
    }

    /// Keeps the beginning of the scope in the record that was just returned. In memory: the highest bit, which no sum has where its
    /// next one stands, with the length, then the text. A scope that is not within the record is empty.
    function _writeScope() private pure {
        unchecked {
            uint256 size;
            assembly ("memory-safe") {
                size := returndatasize()
            }
            (uint256 offset, uint256 length) = (_word(0xe0), 0);
            // The offset counts from the record's first word, the second of all; there stands the length, and then the text.
            if (offset <= size - 64) {
                length = _word(offset + 32);
                if (length > size - 64 - offset) length = 0;
                if (length > SCOPE) length = SCOPE;
            }
            assembly ("memory-safe") {
                let scope := mload(0x40)
                mstore(scope, or(shl(255, 1), length))
                if length { returndatacopy(add(scope, 32), add(offset, 64), length) }
                mstore(0x40, and(add(add(scope, length), 63), not(31)))
            }
        }
    }

    /// 30 bytes, 12 bytes, and an address.
    function _write(uint256 row, uint256 head, uint256 rest, uint256 wallet) private pure {
        assembly ("memory-safe") {
            mstore(row, head)
            mstore(add(row, 30), rest)
            mstore(add(row, 42), shl(96, wallet))
        }
    }

    /// Adds the history that was just returned to the sums.
    function _addReports(Walk memory w) private view returns (Outcome) {
        unchecked {
            uint256 size;
            assembly ("memory-safe") {
                size := returndatasize()
            }
            uint256 list = _word(0);
            uint256 length = _word(list);
            if (length > size / 32) revert Malformed();
            if (gasleft() < _tail(w) + length * PER_REPORT + size) return Outcome.OutOfGas;
            list += 32;
            for (uint256 i = 0; i < length; ++i) {
                uint256 report = list + _word(list + 32 * i);
                uint256 amount = _word(report + 0x20);
                _add(w, BY_CURRENCY, report + _word(report + 0x40), amount);
                _add(w, BY_CATEGORY, report + _word(report + 0x60), amount);
            }
            w.reports += length;
            return Outcome.Read;
        }
    }

    /// Adds to the sum of the text at `at` in what was returned. A sum in memory: the next one in its bucket, its key, its low and
    /// its high word, kind and length, the text.
    function _add(Walk memory w, uint256 kind, uint256 at, uint256 amount) private pure {
        uint256 length = _word(at);
        // With the block's hash in the key nobody can choose texts that share a bucket.
        bytes32 salt = w.parentHash;
        uint256 buckets = w.buckets;
        bool fits;
        assembly ("memory-safe") {
            let size := returndatasize()
            at := add(at, 32)
            fits := and(iszero(gt(at, size)), iszero(gt(length, sub(size, at))))
        }
        if (!fits) revert Malformed();
        assembly ("memory-safe") {
            let sum := mload(0x40)
            let text := add(sum, 0xa0)
            // In full detail the agent's id comes first; without, the text covers it.
            mstore(text, shl(192, mload(add(w, 0x180))))
            returndatacopy(add(text, mload(add(w, 0x160))), at, length)
            length := add(length, mload(add(w, 0x160)))
            mstore(add(sum, 0x60), salt)
            mstore(add(sum, 0x80), or(shl(32, kind), length))
            let key := keccak256(add(sum, 0x60), add(length, 0x40))
            let bucket := add(buckets, shl(5, mod(key, BUCKETS)))
            let found := mload(bucket)
            for {} found { found := mload(found) } {
                // The newest sum comes first in its bucket: below the floor are other agents'.
                if lt(found, mload(add(w, 0x1a0))) {
                    found := 0
                    break
                }
                if eq(mload(add(found, 0x20)), key) { break }
            }
            if iszero(found) {
                mstore(sum, mload(bucket))
                mstore(add(sum, 0x20), key)
                mstore(add(sum, 0x40), 0)
                mstore(add(sum, 0x60), 0)
                mstore(bucket, sum)
                mstore(0x40, and(add(add(text, length), 31), not(31)))
                found := sum
            }
            let low := add(mload(add(found, 0x40)), amount)
            mstore(add(found, 0x40), low)
            if lt(low, amount) { mstore(add(found, 0x60), add(mload(add(found, 0x60)), 1)) }
        }
    }

    /// Writes the head, moves the sums and scopes to the end of the rows, and returns it all.
    function _finish(Walk memory w) private view {
        uint256 start = w.start;
        uint256 rows = w.done;
        uint256 reports = w.reports;
        uint256 sum = w.sums;
        bytes32 parentHash = w.parentHash;
        uint256 size = rows * w.row;
        assembly ("memory-safe") {
            let ceiling := mload(0x40)
            let end := add(add(start, HEAD), size)
            // The first word of the head ends where the next begins; the last ends where the first row does.
            let first := mload(add(start, HEAD))
            mstore8(start, 1)
            mstore(add(start, 1), parentHash)
            mstore(
                add(start, 33),
                or(or(shl(192, chainid()), shl(128, timestamp())), or(shl(96, rows), shl(32, reports)))
            )
            mstore(add(start, HEAD), first)
            for {} lt(sum, ceiling) {} {
                let length := mload(sum)
                let text := add(sum, 0x20)
                switch shr(255, length)
                case 1 {
                    length := and(length, 0xffffffff)
                    mstore(end, or(shl(249, 1), shl(216, length)))
                    end := add(end, 5)
                }
                default {
                    let low := mload(add(sum, 0x40))
                    let high := mload(add(sum, 0x60))
                    length := mload(add(sum, 0x80))
                    let kind := shr(32, length)
                    length := and(length, 0xffffffff)
                    text := add(sum, 0xa0)
                    mstore(end, or(or(shl(248, kind), shl(216, length)), shl(152, high)))
                    mstore(add(end, 13), low)
                    end := add(end, 45)
                }
                sum := and(add(add(text, length), 31), not(31))
                for { let i := 0 } lt(i, length) { i := add(i, 32) } { mstore(add(end, i), mload(add(text, i))) }
                end := add(end, length)
            }
            return(start, sub(end, start))
        }
    }

    /// The size of the answer so far, or a little more.
    function _size(Walk memory w) private pure returns (uint256) {
        uint256 free;
        assembly ("memory-safe") {
            free := mload(0x40)
        }
        unchecked {
            return HEAD + (w.done + 1) * w.row + free - w.sums;
        }
    }

    /// The gas that has to be left for the end of the walk.
    function _tail(Walk memory w) private pure returns (uint256) {
        unchecked {
            return TAIL + _size(w) * (w.gasPerByte + 2);
        }
    }

    /// A word of what was just returned.
    function _word(uint256 at) private pure returns (uint256 word) {
        bool there;
        assembly ("memory-safe") {
            let size := returndatasize()
            there := and(lt(at, size), gt(sub(size, at), 31))
            if there {
                returndatacopy(0, at, 32)
                word := mload(0)
            }
        }
        if (!there) revert Malformed();
    }
}
