"""What every fabric must do, as functions of (run, world_size): real processes, shaped links, brokers, simulations.

`run(fn, world_size, *args)` runs `fn(fabric, *args)` on every rank and returns a `Run`-like object with `results` and
`trace`. A new fabric passes when every function of `SUITE` passes at world sizes 2, 3 and 4.
"""

import random
import time

import numpy as np
import torch

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64,
]  # fmt: skip


def of_rank(rank: int, length: int = 5, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Values that differ by rank and by element."""
    return (torch.arange(length) + 1000 * rank).to(dtype)


def round_the_ring(fabric):
    """Return (source, whether the values arrived) for each dtype."""
    right, left = (fabric.rank + 1) % fabric.world_size, (fabric.rank - 1) % fabric.world_size
    got = []
    for dtype in DTYPES:
        out = torch.empty(5, dtype=dtype)
        handle = fabric.isend(of_rank(fabric.rank, dtype=dtype), right)
        source = fabric.recv(out, left)
        handle.wait()
        got.append((source, bool(torch.equal(out, of_rank(left, dtype=dtype)))))
    return got


def every_dtype_arrives_unchanged(run, n):
    for rank, got in enumerate(run(round_the_ring, n).results):
        assert dict(zip(DTYPES, got, strict=True)) == dict.fromkeys(DTYPES, ((rank - 1) % n, True))


def shapes_of_any_kind(fabric):
    """0 dimensions, 0 elements, many dimensions, a slice, a transposed view."""
    base = torch.arange(24.0).reshape(2, 3, 4)
    given = [torch.tensor(7.0), torch.empty(0), base, base[:, 1:2], base.permute(2, 0, 1)]
    right = []
    for x in given:
        if fabric.rank == 0:
            fabric.send(x, 1)
        elif fabric.rank == 1:
            out = torch.full_like(x, -1.0)
            fabric.recv(out, 0)
            right.append(bool(torch.equal(out, x)))
    return right


def every_shape_arrives_unchanged(run, n):
    assert run(shapes_of_any_kind, n).results[1] == [True] * 5


def into_a_view(fabric):
    if fabric.rank == 0:
        fabric.send(torch.tensor([1.0, 2.0]), 1)
    elif fabric.rank == 1:
        whole = torch.zeros(2, 3)
        fabric.recv(whole[:, 1], 0)
        return whole.tolist()


def a_message_is_received_into_a_view_that_is_not_contiguous(run, n):
    assert run(into_a_view, n).results[1] == [[0, 1, 0], [0, 2, 0]]


def in_order(fabric, count):
    if fabric.rank == 0:
        for handle in [fabric.isend(torch.tensor([float(i)]), 1) for i in range(count)]:
            handle.wait()
    elif fabric.rank == 1:
        got = []
        for _ in range(count):
            out = torch.empty(1)
            fabric.recv(out, 0)
            got.append(out.item())
        return got


def messages_of_one_tag_arrive_in_the_order_they_were_sent(run, n):
    assert run(in_order, n, 20).results[1] == list(range(20))


def tags_apart(fabric):
    if fabric.rank == 0:
        handles = [fabric.isend(torch.tensor([float(tag)]), 1, tag=tag) for tag in (3, 1, 2)]
        [h.wait() for h in handles]
    elif fabric.rank == 1:
        got = []
        for tag in (1, 2, 3):
            out = torch.empty(1)
            fabric.recv(out, 0, tag=tag)
            got.append(out.item())
        return got


def a_receive_takes_only_its_tag(run, n):
    assert run(tags_apart, n).results[1] == [1, 2, 3]


def from_anyone(fabric):
    if fabric.rank:
        fabric.send(of_rank(fabric.rank), 0)
        return None
    got = {}
    for _ in range(fabric.world_size - 1):
        out = torch.empty(5)
        source = fabric.recv(out)
        got[source] = torch.equal(out, of_rank(source))
    return sorted(source for source, right in got.items() if right)


def a_receive_from_anyone_says_who_sent(run, n):
    assert run(from_anyone, n).results[0] == list(range(1, n))


def send_is_a_rendezvous(fabric):
    if fabric.rank == 0:
        fabric.send(torch.zeros(1), 1)
    elif fabric.rank == 1:
        fabric.compute(0.2)
        fabric.recv(torch.empty(1), 0)


def a_send_returns_only_when_the_receiver_takes_it(run, n):
    trace = run(send_is_a_rendezvous, n).trace
    (sent,) = [s for s in trace.spans if s.kind == "send"]
    (worked,) = [s for s in trace.spans if s.kind == "compute"]
    assert sent.end_s >= worked.end_s


def ping_pong(fabric, count):
    x = torch.zeros(10)
    for _ in range(count):
        if fabric.rank == 0:
            fabric.send(x, 1)
            fabric.recv(x, 1)
        elif fabric.rank == 1:
            fabric.recv(x, 0)
            fabric.send(x, 0)


def every_message_is_recorded_once_with_its_bytes(run, n):
    transfers = run(ping_pong, n, 4).trace.transfers
    assert [(t.src, t.dst, t.size_bytes, t.tag) for t in transfers] == [(0, 1, 40, 0), (1, 0, 40, 0)] * 4
    assert all(t.start_s <= t.end_s for t in transfers)
    assert all(a.end_s <= b.end_s for a, b in zip(transfers, transfers[1:], strict=False))


def says(fabric):
    """Return the words of the ValueError that each wrong call raises on rank 0."""
    calls = {
        "rank": lambda: fabric.send(torch.zeros(1), 9),
        "itself": lambda: fabric.send(torch.zeros(1), fabric.rank),
        "from": lambda: fabric.recv(torch.zeros(1), -1),
        "type": lambda: fabric.send(3.0, 1),
        "sender": lambda: fabric.recv(0),
        "tag": lambda: fabric.send(torch.zeros(1), 1, tag=-1),
        "time": lambda: fabric.compute(-1),
    }
    said = {}
    for what, call in calls.items() if fabric.rank == 0 else ():
        try:
            call()
        except ValueError as error:
            said[what] = str(error)
    return said


def a_wrong_call_is_a_value_error_that_says_expected_and_got(run, n):
    expected = {
        "rank": [f"expected a rank from 0 to {n - 1}", "9"],
        "itself": ["expected another rank", "Copy the tensor instead"],
        "from": [f"expected a rank from 0 to {n - 1}", "-1"],
        "type": ["expected a torch tensor", "float", "torch.tensor([3.0])"],
        "sender": ["expected a torch tensor", "recv(out, 0) where 0 is the sender"],
        "tag": ["expected a tag from 0", "-1"],
        "time": ["0 s or more", "-1"],
    }
    said = run(says, n).results[0]
    assert said.keys() == expected.keys()
    assert {what: said[what] for what, parts in expected.items() if not all(part in said[what] for part in parts)} == {}


def mismatched(fabric, kind):
    """Rank 1 receives what rank 0 sent into a tensor of another kind, and says what it was told."""
    if fabric.rank == 0:
        handle = fabric.isend(torch.zeros(4), 1)
        return handle is not None
    if fabric.rank == 1:
        out = torch.zeros(4, dtype=torch.float64) if kind == "dtype" else torch.zeros(5)
        try:
            fabric.recv(out, 0)
        except ValueError as error:
            return str(error)


def a_mismatch_is_a_value_error_with_both_kinds(run, n):
    said = run(mismatched, n, "dtype").results[1]
    assert "expected float64[4]" in said and "got float32[4]" in said and "rank 0" in said
    said = run(mismatched, n, "shape").results[1]
    assert "expected float32[5]" in said and "got float32[4]" in said


def round_once(fabric):
    """Every other rank has a turn meanwhile, where ranks take turns."""
    x = torch.zeros(1)
    handle = fabric.isend(torch.ones(1), (fabric.rank + 1) % fabric.world_size)
    fabric.recv(x, (fabric.rank - 1) % fabric.world_size)
    handle.wait()


def no_grad_on_rank_0(fabric):
    with torch.set_grad_enabled(fabric.rank != 0):
        round_once(fabric)
        inside = torch.is_grad_enabled()
    round_once(fabric)
    return inside, torch.is_grad_enabled()


def grad_mode_is_a_rank_s_own(run, n):
    assert run(no_grad_on_rank_0, n).results == [(rank != 0, True) for rank in range(n)]


def draws(fabric):
    torch.manual_seed(fabric.rank)
    np.random.seed(fabric.rank)  # noqa: NPY002 - the global generator is what is tried
    random.seed(fabric.rank)
    found = []
    for _ in range(3):
        round_once(fabric)
        found += [torch.rand(()).item(), np.random.rand(), random.random()]  # noqa: NPY002
    return found


def generators_are_a_rank_s_own(run, n):
    for rank, found in enumerate(run(draws, n).results):
        torchs, numpys, pythons = torch.Generator().manual_seed(rank), np.random.RandomState(rank), random.Random(rank)  # noqa: NPY002
        expected = [(torch.rand((), generator=torchs).item(), numpys.rand(), pythons.random()) for _ in range(3)]
        assert found == [number for row in expected for number in row]


def adds_its_rank(fabric, x, rows):
    x += fabric.rank
    rows.append(fabric.rank)
    round_once(fabric)
    return x.tolist(), rows


def arguments_are_a_rank_s_own(run, n):
    x, rows = torch.zeros(2), []
    assert run(adds_its_rank, n, x, rows).results == [([rank, rank], [rank]) for rank in range(n)]
    assert (x.tolist(), rows) == ([0, 0], [])


def sleeps(fabric):
    began = time.monotonic(), time.perf_counter()
    if fabric.rank == 0:
        time.sleep(0.05)  # what is tried
    round_once(fabric)
    return time.monotonic() - began[0], time.perf_counter() - began[1]


def a_sleep_takes_its_time_on_every_clock(run, n):
    assert min(run(sleeps, n).results[0]) >= 0.05


def prints_twice(fabric):
    print(f"rank {fabric.rank} before")
    round_once(fabric)
    print(f"rank {fabric.rank} after")


def what_a_rank_prints_is_in_its_log(run, n):
    done = run(prints_twice, n)
    assert [done.log(rank) for rank in range(n)] == [f"rank {rank} before\nrank {rank} after\n" for rank in range(n)]


met: list[int] = []


def changes_what_is_outside(fabric):
    met.append(fabric.rank)


def a_changed_global_is_named(run, n):
    notes = run(changes_what_is_outside, n).notes
    met.clear()
    assert "a rank changed `met`" in notes[0] and "Return it instead" in notes[0]


SUITE = [
    every_dtype_arrives_unchanged,
    every_shape_arrives_unchanged,
    a_message_is_received_into_a_view_that_is_not_contiguous,
    messages_of_one_tag_arrive_in_the_order_they_were_sent,
    a_receive_takes_only_its_tag,
    a_receive_from_anyone_says_who_sent,
    a_send_returns_only_when_the_receiver_takes_it,
    every_message_is_recorded_once_with_its_bytes,
    a_wrong_call_is_a_value_error_that_says_expected_and_got,
    a_mismatch_is_a_value_error_with_both_kinds,
    grad_mode_is_a_rank_s_own,
    generators_are_a_rank_s_own,
    a_sleep_takes_its_time_on_every_clock,
]

# for what runs whole functions, and keeps their logs and notes: launches and simulations
RUNS = [arguments_are_a_rank_s_own, what_a_rank_prints_is_in_its_log, a_changed_global_is_named]
