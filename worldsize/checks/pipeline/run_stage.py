"""Check of lab 03's `run_stage`: a model that is split over ranks has the gradients of the whole model.

Each case is a small MLP, cut at random, with a drawn schedule that does not deadlock. Gradients are compared with
autograd's on the unsplit model; each boundary must carry one activation and one gradient a micro-batch, in the
schedule's order. The split is from Y. Huang et al. ("GPipe", arXiv:1811.06965, 2019).
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from worldsize.arrays import plain, tensors
from worldsize.checks.arena import Arena, ArenaResult
from worldsize.checks.drivers import on_ranks
from worldsize.checks.kit import evidence
from worldsize.checks.kit.exercise import exercise
from worldsize.checks.kit.judge import Case, first_complaint, none_sent, ranks_in_words, though_right
from worldsize.checks.kit.transfers import by_sender, sizes_on
from worldsize.checks.kit.values import kind_in_words, same
from worldsize.checks.pipeline.drawn_orders import EAGER, FILLED, REVERSED, SHUFFLED, Schedules, drawn_orders
from worldsize.checks.verdict import UNEXAMINED, Complaint
from worldsize.formulas.pipeline import BACKWARD, FORWARD
from worldsize.pytorch.stages import build, cut
from worldsize.trace import Trace
from worldsize.units import count, number

GRADIENTS = "every stage returns the gradients of the unsplit model"
MESSAGES = "one activation and one gradient for each micro-batch and neighbour"
ORDER = "so it does in the order of its schedule"
# (ranks, micro-batches, way, dtype). A `send` that blocks passes in one direction alone: EAGER with four micro-batches goes
# forward four times before a backward, so `send` in both directions deadlocks in any draw. SHUFFLED has a backward that takes
# neither the oldest nor the newest micro-batch in flight.
SIZES = (
    (3, 1, EAGER, torch.float32),
    (2, 4, EAGER, torch.float32),
    (3, 4, REVERSED, torch.float64),
    (4, 4, EAGER, torch.float32),
    (5, 2, EAGER, torch.float32),
    (1, 2, EAGER, torch.float32),
    (3, 5, SHUFFLED, torch.float32),
)
TIMED = (2, 3, FILLED, torch.float32)  # a declared time shows a backward where it is done, not only where its gradient is sent
ROWS = 3  # of a micro-batch; unlike the micro-batches in SIZES, so that a factor names its mistake
TOLERANCE = 1e-5  # float32, relative to the tensor's largest gradient: small ones are sums of large terms
SMALLEST = 1e-3  # lower bound for that largest gradient

_ADVICE = {
    "'NoneType' object has no attribute 'compute'": (
        "This stage's layers declare a time on the fabric, as in the lab's later cells: call build(part, fabric)."
    ),
    "backward through the graph a second time": (
        "Several micro-batches are in flight at once: keep each one's input and output under its number k until its own "
        "backward."
    )
}


@exercise({GRADIENTS: 1.5, MESSAGES: 0.3, ORDER: 0.7}, seen={MESSAGES: evidence.MESSAGES, ORDER: evidence.MESSAGES})
def run_stage(arena: Arena, fn: Callable) -> Iterator[Case]:
    """Check that one stage of a pipeline runs its micro-batches as the schedules say.

    `run_stage(fabric, part, schedules)` returns the gradients of the part's weights and biases, in their order. Sends
    must stay unchanged until their wait, and every handle must be waited for. Two micro-batches that all stages
    exchange change no sum, and pass.
    """
    for size in (*SIZES, TIMED):
        ranks, micro_batches, way, dtype = size
        generator = np.random.default_rng(arena.draws.getrandbits(32))
        parts = _parts(ranks, micro_batches, dtype, generator, timed=size == TIMED)
        orders = drawn_orders(ranks, micro_batches, way, generator)

        name = f"{ranks_in_words(ranks)}, {micro_batches} micro-batch{'es' * (micro_batches > 1)}"
        if dtype is not torch.float32:
            name += f" of {str(dtype).removeprefix('torch.')}"
        yield Case(
            name + ", with a declared time" * (size == TIMED),
            partial(arena.ranks, fn, parts, orders, driver=on_ranks.listed),
            partial(_examine, parts=parts, orders=orders),
            _ADVICE,
        )


def _parts(
    ranks: int, micro_batches: int, dtype: torch.dtype, generator: np.random.Generator, timed: bool
) -> list[dict[str, Any]]:
    """Return an MLP to run as plain arrays, by stage, with one or two layers a stage and a different width at each boundary.

    `timed`: layers declare a time of 0 s, so that their work has a place between the messages.
    """
    layers = generator.integers(1, 3, ranks).tolist()
    widths = (3 + generator.permutation(sum(layers) + 1)).tolist()
    torch_generator = torch.Generator().manual_seed(int(generator.integers(2**31)))

    model = torch.nn.Sequential(*(torch.nn.Linear(*pair, dtype=dtype) for pair in pairwise(widths)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.6, 0.9, generator=torch_generator)  # mostly above 0, so that few ReLUs are shut

    rows = ROWS * micro_batches
    x = torch.randn(rows, widths[0], generator=torch_generator, dtype=dtype)
    y = torch.randint(widths[-1], (rows,), generator=torch_generator)
    edges = list(accumulate(layers, initial=0))
    seconds = [(0.0, 0.0)] * ranks if timed else None

    parts = []
    for part in cut(model, edges, x, y, micro_batches, seconds):
        layers = [{name: plain(value) for name, value in layer.items()} for layer in part["layers"]]
        parts.append({**part, "layers": layers, "xs": list(map(plain, part["xs"])), "ys": list(map(plain, part["ys"]))})
    return parts


def _examine(ended: ArenaResult, parts: list[dict], orders: Schedules) -> dict[str, Complaint]:
    sent = first_complaint([none_sent(ended.trace), _wrong_messages(ended.trace, parts)])
    order = UNEXAMINED
    if not sent:
        order = _out_of_order(ended.trace, orders) or _worked_early(ended.trace, orders)

    wrong = _wrong_gradients(ended.returned, parts)
    if wrong:
        if order:
            wrong += f" Besides, {order}."
        return {GRADIENTS: wrong, MESSAGES: sent, ORDER: UNEXAMINED}  # the order of wrong work earns nothing
    return {
        GRADIENTS: None,
        MESSAGES: though_right("the gradients", sent),
        ORDER: though_right("the gradients", order),
    }


def _wrong_gradients(returned: Sequence[Any], parts: list[dict]) -> Complaint:
    by_micro = [_unsplit(parts, k) for k in range(len(parts[-1]["ys"]))]
    for rank in reversed(range(len(parts))):  # a mistake travels backward, so the last wrong rank is the first to blame
        by_parameter = list(zip(*(gradients[rank] for gradients in by_micro), strict=True))
        expected = [sum(grads) / len(grads) for grads in by_parameter]
        complaint = _wrong_list(returned[rank], expected, rank)
        if complaint:
            return complaint

        for i, (got, want) in enumerate(zip(returned[rank], expected, strict=True)):
            if not _close(got, want):
                k = int(np.argmax(np.abs(got - want)))
                return (
                    f"rank {rank}, the gradient of {_name(i)}, element {k}: expected {want.reshape(-1)[k]:.4g}, got "
                    f"{got.reshape(-1)[k]:.4g}. {_why(got, want, by_parameter[i], rank, len(parts))}"
                )

    return None


def _unsplit(parts: list[dict], micro: int) -> list[list[np.ndarray]]:
    """Return autograd's gradients of the unsplit model's loss on one micro-batch, by rank and parameter."""
    stages = [build(tensors({"layers": part["layers"]})) for part in parts]
    out = torch.from_numpy(parts[0]["xs"][micro])
    for stage in stages:
        out = stage(out)

    labels = torch.from_numpy(parts[-1]["ys"][micro])
    functional.cross_entropy(out, labels).backward()
    return [[p.grad.numpy() for p in stage.parameters()] for stage in stages]


def _wrong_list(got: Any, expected: list[np.ndarray], rank: int) -> Complaint:
    if not isinstance(got, tuple):
        return f"rank {rank}: expected a list of {count(len(expected), 'gradient')}, got {kind_in_words(got)}"
    if len(got) != len(expected):
        return f"rank {rank}: expected {count(len(expected), 'gradient')}, one for each weight and bias, got {len(got)}"

    for i, (gradient, want) in enumerate(zip(got, expected, strict=True)):
        if gradient is None:
            return f"rank {rank}: the gradient of {_name(i)} is None: no backward reached this stage's layers"

        wanted = f"rank {rank}: expected the gradient of {_name(i)} with shape {list(want.shape)}"
        if not isinstance(gradient, np.ndarray):
            return f"{wanted}, got {kind_in_words(gradient)}"
        if gradient.shape != want.shape:
            return f"{wanted}, got shape {list(gradient.shape)}"

    return None


def _name(index: int) -> str:
    layer, which = divmod(index, 2)
    return f"layer {layer}'s {('weight', 'bias')[which]}"


def _close(got: np.ndarray, want: np.ndarray) -> bool:
    largest = max(float(np.abs(want).max()), SMALLEST)
    return same(got, want, tolerance=0.0, near_zero=TOLERANCE * largest)


def _why(got: np.ndarray, want: np.ndarray, by_micro: Sequence[np.ndarray], rank: int, ranks: int) -> str:
    complaint = _wrong_sum(got, by_micro)
    if complaint:
        return complaint
    if not np.isfinite(got).all():
        return "It is not finite: was a tensor used before anything was received into it?"
    if not got.any():
        return "It is zero everywhere: no gradient came back to this stage."
    shown, times = want != 0, ""
    factor = float(np.median(got[shown] / want[shown])) if shown.any() else 0.0
    if _close(got, factor * want):
        times = f"All its numbers are {number(factor)} times the right ones. "
    if rank == ranks - 1:
        return (
            f"{times}Rank {rank} is the last stage, and no gradient comes to it: the mistake is in its own loss, or in the "
            f"input or the labels that a micro-batch goes forward with."
        )
    return (
        f"{times}Rank {rank + 1} has the right gradients. So the mistake is in the gradient that it sends back, or in the "
        f"output through which rank {rank} runs that backward: both must be of one micro-batch."
    )


def _wrong_sum(got: np.ndarray, by_micro: Sequence[np.ndarray]) -> Complaint:
    """Return a complaint if a stage's gradient is right but for a known factor, or lacks some micro-batches'; else None."""
    m, total = len(by_micro), sum(by_micro)
    mean = total / m
    for factor in (ROWS, ROWS * m):
        if _close(got, factor * mean):
            return (
                f'It is {factor} times too large: reduction="sum" adds up the losses of the {count(factor, "image")}, '
                f"but the loss is their mean."
            )

    if m == 1:
        return None
    if _close(got, m * mean):
        return f"It is {m} times too large: a batch's loss is the mean of its {m} micro-batches' losses."
    if _close(got, mean / m):
        return f"It is {m} times too small: was it divided by m = {m} twice, in the loss and once more?"

    for k, grad in reversed(list(enumerate(by_micro))):  # the last one remains if each clears those before
        if _close(got, grad) or _close(got, grad / m):
            return f"This is micro-batch {k}'s gradient alone: add up the gradients of all micro-batches."

    if any(_close(got, (total - grad) / m) for grad in by_micro):
        return "One micro-batch's gradient is missing from the sum."
    return None


def _wrong_messages(trace: Trace, parts: list[dict]) -> Complaint:
    for t in by_sender(trace):
        if abs(t.src - t.dst) != 1:
            return f"rank {t.src} sent a message to rank {t.dst}: a stage talks only to its neighbours, not in a ring."

    for left, right in pairwise(range(len(parts))):
        xs = parts[right]["xs"]
        for src, dst, what in ((left, right, "activation"), (right, left, "gradient")):
            sizes = sizes_on(trace, src, dst)
            if sizes != [x.nbytes for x in xs]:
                moved = f"{count(len(sizes), 'message')}, {sum(sizes)} bytes in all"
                each = f"{count(len(xs), what)} of {xs[0].nbytes} bytes"
                return f"rank {src} sent rank {dst} {moved}; expected {each}, one for each micro-batch."

    return None


def _out_of_order(trace: Trace, orders: Schedules) -> Complaint:
    if trace.world_size == 1:
        return None

    for rank, order in enumerate(orders):
        for place, (got, (want, _)) in enumerate(zip(_ways_seen(trace, rank), order, strict=True)):
            if got != want:
                return (
                    f"rank {rank} went {got} in action {place}, where its schedule says {want}: "
                    f"{' '.join(f'{way[0].upper()}{k}' for way, k in order)}"
                )

    return None


def _ways_seen(trace: Trace, rank: int) -> list[str]:
    """Return the forwards and backwards that a rank's stage ran, in their order.

    An action is seen in the message that it sends or, if it sends none, in the message that it received.
    """
    seen = []
    for t in trace.transfers:
        if t.src == rank < t.dst:
            seen.append((t.start_s, FORWARD))
        elif t.src == rank:
            seen.append((t.start_s, BACKWARD))
        elif t.dst == rank == 0:
            seen.append((t.end_s, BACKWARD))
        elif t.dst == rank == trace.world_size - 1:
            seen.append((t.end_s, FORWARD))

    return [way for _, way in sorted(seen)]


def _worked_early(trace: Trace, orders: Schedules) -> Complaint:
    """Return a complaint if the last stage worked more often than it went forward, before any backward was due; else None."""
    last = trace.world_size - 1
    if last == 0:  # nothing arrives at one rank alone
        return None

    arrived_s = sorted(t.end_s for t in trace.transfers if t.dst == last)
    begun_s = sorted(span.start_s for span in trace.spans if span.declared and span.rank == last)

    ways = [way for way, _ in orders[last]]
    for forwards in range(1, ways.index(BACKWARD)):
        worked = sum(start_s < arrived_s[forwards] for start_s in begun_s)
        if worked > forwards:
            return (
                f"rank {last} had worked {worked} times after going forward {count(forwards, 'time')}: it ran a backward "
                f"inside a forward, or before its turn. The last stage, too, must go backward where its schedule says so"
            )
    return None
