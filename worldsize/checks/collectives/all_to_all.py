"""Check of lab 02's all-to-all: row j of rank r's table becomes row r of rank j's, over the fabric.

Values must be exact; each rank sends every other rank one message, its block, in n − 1 rounds, which carry most of the
points. An exchange in fewer rounds that sends blocks more than once does not pass (J. Bruck et al., "Efficient
algorithms for all-to-all communications in multiport message-passing systems", IEEE Transactions on Parallel and
Distributed Systems 8, 1997).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations, product

import numpy as np

from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.collectives import chunks
from worldsize.checks.collectives.long_tensors import Runs
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, none_sent, ranks_in_words, values_first
from worldsize.checks.kit.transfers import by_sender, links
from worldsize.checks.kit.values import first_difference, inputs_for, same
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.trace import Trace
from worldsize.units import count

VALUES = "row r of rank j's table is row j of rank r's"
MESSAGES = "one message from each rank to every other, one block"
ROUNDS = "n − 1 rounds"

# (world size, numbers in a block, dtype). A block of 40,001 numbers is too long to be copied when it is sent.
SIZES = (
    (4, 3, "float32"), (3, 4, "int64"), (2, 40_001, "float32"), (1, 3, "float32"), (5, 3, "float64"), (6, 2, "float32"),
    (9, 2, "float32"),
)  # fmt: skip


@exercise({VALUES: 0.25, MESSAGES: 0.25, ROUNDS: 1.0}, seen={MESSAGES: evidence.MESSAGES, ROUNDS: evidence.MESSAGES})
def all_to_all(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check an all-to-all.

    `all_to_all(fabric, x)` returns a table of the shape and dtype of x, [world size, elements]; row r came from rank r.
    """
    seed, runs = arena.draws.getrandbits(32), Runs(arena, fn)
    for world_size, length, dtype in SIZES:
        tables = [x.reshape(world_size, length) for x in inputs_for(world_size, world_size * length, seed, dtype)]
        if dtype == "float64":  # not whole, and nothing that fits float32: all tables have fewer than 7 ranks
            for rank, x in enumerate(tables):
                x += (rank + 1) / 7
        tables = tables[1::2] + tables[::2]  # sorting by value does not give rank order
        if runs.would_take_minutes(tables):
            continue
        yield Case(
            f"{ranks_in_words(world_size)}, blocks of {length} {dtype}",
            partial(runs.on, tables),
            partial(_examine, tables=tables),
        )


def _examine(ended: ArenaResult, tables: Sequence[np.ndarray]) -> dict[str, Complaint]:
    """Return complaints about an all-to-all by property. Rounds are counted only if values and messages are right.

    Another dtype tries buffers: digits that are lost there leave the rounds as they are, which the other cases show.
    """
    astray = none_sent(ended.trace) or _wrong_links(ended.trace)
    complaints = {
        VALUES: _wrong_values(ended, tables),
        MESSAGES: astray or _wrong_sizes(ended.trace, tables[0][0].nbytes),
        ROUNDS: UNEXAMINED,
    }
    tries_digits = tables[0].dtype != "float32"
    if not astray and (tries_digits or not any(complaints.values())):
        complaints[ROUNDS] = more_rounds(ended.trace)
    return values_first(complaints)


def _wrong_values(ended: ArenaResult, tables: Sequence[np.ndarray]) -> Complaint:
    for rank, got in enumerate(ended.returned):
        expected = np.stack([table[rank] for table in tables])
        if not isinstance(got, np.ndarray) or (got.shape, got.dtype) != (expected.shape, expected.dtype):
            return first_difference(got, expected, rank, "the table of blocks")

        for row in range(len(tables)):
            if not same(got[row], expected[row], tolerance=0.0):
                return f"rank {rank}, row {row}: expected rank {row}'s block {rank}. {_whose(got[row], rank, row, tables)}"

    return None


def _whose(got: np.ndarray, rank: int, row: int, tables: Sequence[np.ndarray]) -> str:
    places = product(range(len(tables)), repeat=2)  # (rank, block)
    for owner, block in places:
        if not same(got, tables[owner][block], tolerance=0.0):
            continue
        if (owner, block) == (rank, rank):
            return f"It holds rank {rank}'s own block, which belongs only in row {rank}."
        if (owner, block) == (rank, row):
            return f"It holds rank {rank}'s own block {row}, which was for rank {row}: nothing arrived here."
        if block == rank:
            return f"It holds the block from rank {owner}: row r is for the block from rank r."
        return f"It holds rank {owner}'s block {block}, which was for rank {block}."

    expected = tables[row][rank]
    if chunks.is_whole_part(got, expected):
        return chunks.WHOLE.rstrip()
    if same(got, expected.astype("float32").astype(expected.dtype), tolerance=1e-12):
        return chunks.LOST_DIGITS
    if row == rank:
        return "A rank's own block does not travel: copy it."
    return f"It holds no rank's block: {got[:3]} …"


def _wrong_links(trace: Trace) -> Complaint:
    many = Counter(links(trace))
    for src, dst in permutations(range(trace.world_size), 2):
        if many[src, dst] != 1:
            sent = count(many[src, dst], "message")
            return f"rank {src} sent rank {dst} {sent}; expected 1, the block for rank {dst}."

    return None


def _wrong_sizes(trace: Trace, block_bytes: int) -> Complaint:
    for t in by_sender(trace):
        if t.size_bytes != block_bytes:
            return (
                f"rank {t.src} sent rank {t.dst} a message of {t.size_bytes} bytes; "
                f"expected only its block, {block_bytes} bytes."
            )

    return None


def more_rounds(trace: Trace) -> Complaint:
    """Return a complaint if all-to-all's message for each ordered pair of ranks takes more than n − 1 rounds, or None.

    n − 1 rounds leave no rank idle: each rank's p-th message travels in round p. So no two ranks may send their p-th
    message to the same rank, and before its p-th message a rank can have received p − 1 at most. Only the order of each
    rank's own calls counts, so no busy machine changes a verdict. Shifts by any order of offsets pass, and pairs by XOR
    if n is a power of two. Messages leave when posted, so the order of receives is free once all is sent.
    """
    # first, several ranks that send to the same rank in the same round
    sent: dict[int, int] = defaultdict(int)
    senders: dict[tuple[int, int], list[int]] = defaultdict(list)  # by round and receiver
    for t in by_sender(trace):
        sent[t.src] += 1
        senders[sent[t.src], t.dst].append(t.src)

    for (number, dst), ranks in sorted(senders.items()):
        if len(ranks) > 1:
            who = f"{', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
            return (
                f"it takes more than {count(trace.world_size - 1, 'round')}: ranks {who} all send their message "
                f"{number} to rank {dst}, whose card receives one at a time. Let each start with a different rank."
            )

    # then a rank that receives, before it sends, a message that could travel at the same time
    sent.clear()
    for t in by_sender(trace):
        sent[t.src] += 1
        had = sum(other.dst == t.src and other.end_s <= t.start_s for other in trace.transfers)
        if had >= sent[t.src]:
            return (
                f"it takes more than {count(trace.world_size - 1, 'round')}: rank {t.src} had received "
                f"{count(had, 'message')} before it sent its message {sent[t.src]}. A card sends and receives at the "
                f"same time: isend first, then recv."
            )

    return None
