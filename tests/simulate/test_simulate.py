"""Simulated time: the conformance suite of every fabric, exact seconds, and what is refused."""

import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.checks.mutants import ring_all_reduce
from tests.support.conformance import RUNS, SUITE
from worldsize.checks.simulated_arena import SimulatedArena
from worldsize.errors import Deadlock, Interrupted, NotYet, RankFailed, RunTimedOut
from worldsize.links import Link
from worldsize.simulate import Nodes, simulate

LINK = Link("10 GB/s", "5 us")


@pytest.mark.parametrize("world_size", [pytest.param(2, marks=pytest.mark.quick), 3, 4, 7])
@pytest.mark.parametrize("link", [None, LINK], ids=["bare", "linked"])
@pytest.mark.parametrize("rule", [*SUITE, *RUNS], ids=lambda rule: rule.__name__)
def test_conformance(rule, world_size, link):
    rule(lambda fn, n, *args: simulate(fn, n, args=args, link=link), world_size)


def ring(fabric, x):
    ring_all_reduce.the_usual_way(fabric, x)
    return x


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 64])
def test_a_ring_takes_the_seconds_of_the_formula_and_sums(n):
    x = torch.arange(5.0 * n)
    run = simulate(ring, n, args=(x,), link=LINK)
    assert run.simulated_s == pytest.approx(2 * (n - 1) * LINK.seconds(4 * 5), rel=1e-9)
    assert all(torch.equal(result, n * x) for result in run.results) and run.messages == 2 * n * (n - 1)


def everybody_to_0(fabric, x):
    if fabric.rank:
        fabric.send(x, 0)
        return None
    return [fabric.recv(x) for _ in range(fabric.world_size - 1)]


@pytest.mark.parametrize("n", [2, 3, 4, 7, 1000])
def test_a_fan_in_queues_up_at_the_receivers_link(n):
    run = simulate(everybody_to_0, n, args=(torch.zeros(2_500),), link=LINK)
    assert run.simulated_s == pytest.approx(LINK.latency_s + (n - 1) * 1e4 / LINK.bandwidth_bytes_per_s, rel=1e-9)


def by_moments(fabric):
    """Rank r sends after n - r of work, so the last comes first."""
    if fabric.rank:
        fabric.compute(float(fabric.world_size - fabric.rank))
        fabric.send(torch.zeros(1), 0)
        return None
    return [fabric.recv(torch.zeros(1)) for _ in range(fabric.world_size - 1)]


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_a_receive_from_anyone_takes_what_is_there_first(n):
    assert simulate(by_moments, n)[0] == list(range(n - 1, 0, -1))


def work_alone(fabric, seconds):
    fabric.compute(seconds)


def test_a_straggler_takes_its_factor_of_declared_work():
    run = simulate(work_alone, 4, args=(2.0,), stragglers={1: 1.5, 3: 4.0})
    assert run.ended_s.tolist() == [2.0, 3.0, 2.0, 8.0]


def test_factors_that_are_drawn_are_those_of_the_seed():
    def drawn(generator, n):
        return 1 + generator.exponential(0.1, n)

    one, again, other = (simulate(work_alone, 4, args=(1.0,), stragglers=drawn, seed=seed) for seed in (3, 3, 4))
    assert one.ended_s.tolist() == again.ended_s.tolist() != other.ended_s.tolist()
    assert len(set(one.ended_s.tolist())) == 4


def test_a_rank_fails_when_its_failure_rate_has_it_drawn():
    with pytest.raises(RankFailed, match="fails at") as caught:
        simulate(work_alone, 3, args=(1000.0,), failures_per_s=1.0, seed=1)
    assert caught.value.failure.at_s == min(caught.value.run.ended_s)


def test_a_trace_is_the_same_each_time():
    one, other = (simulate(by_moments, 7, link=LINK).trace for _ in range(2))
    assert one == other and [t.recv_start_s for t in one.transfers] == [t.recv_start_s for t in other.transfers]


NODES = Nodes(2, inside=Link("100 GB/s", "1 us"), between=Link("1 GB/s", "10 us"))


def to_the_other_node(fabric, x):
    n, r = fabric.world_size, fabric.rank
    handle = fabric.isend(x, (r + 2) % n)
    fabric.recv(torch.empty_like(x), (r - 2) % n)
    handle.wait()


def test_the_ranks_of_a_node_share_its_network_card():
    run = simulate(to_the_other_node, 6, args=(torch.zeros(250_000),), nodes=NODES)
    assert run.simulated_s == pytest.approx(NODES.between.latency_s + 2e6 / 1e9, rel=1e-9)


def test_ranks_with_a_card_each_send_to_another_node_at_once():
    run = simulate(to_the_other_node, 6, args=(torch.zeros(250_000),), nodes=replace(NODES, cards=2))
    assert run.simulated_s == pytest.approx(NODES.between.latency_s + 1e6 / 1e9, rel=1e-9)


@pytest.mark.parametrize("cards", [0, 3, 1.0, True])
def test_cards_that_do_not_divide_a_node_are_refused(cards):
    with pytest.raises(ValueError, match="cards"):
        replace(NODES, cards=cards)


def test_a_message_inside_a_node_takes_its_own_link():
    run = simulate(one_message, 2, args=(torch.zeros(250_000),), nodes=NODES)
    assert run.simulated_s == pytest.approx(NODES.inside.seconds(1e6), rel=1e-9)


def one_message(fabric, x):
    if fabric.rank == 0:
        fabric.send(x, 1)
    elif fabric.rank == 1:
        fabric.recv(x, 0)


def late_and_early(fabric):
    """Rank 2 (node 1) waits first, for what comes late; rank 3, of the same node, waits later for what comes early."""
    x = torch.zeros(250_000)
    if fabric.rank == 0:
        fabric.compute(1.0)
        fabric.send(x, 2)
    elif fabric.rank == 4:
        fabric.send(x, 3)
    elif fabric.rank == 2:
        fabric.recv(x, 0)
    elif fabric.rank == 3:
        fabric.compute(0.1)
        fabric.recv(x, 4)


def test_what_comes_early_does_not_queue_behind_what_comes_late():
    run = simulate(late_and_early, 6, nodes=NODES)
    assert run.ended_s[3] < 0.2 and run.ended_s[2] == pytest.approx(1.0 + NODES.between.seconds(1e6), rel=1e-9)


def test_tensors_without_values_have_their_bytes_and_no_memory():
    x = torch.empty(10**10, device="meta")
    assert simulate(one_message, 2, args=(x,), link=LINK).simulated_s == pytest.approx(LINK.seconds(4e10), rel=1e-9)


def everybody_receives(fabric):
    fabric.recv(torch.zeros(1), (fabric.rank - 1) % fabric.world_size, tag=3)


def test_a_deadlock_names_who_waits_for_whom_and_where():
    with pytest.raises(Deadlock, match=r"rank 0 waits for 2 \(recv, tag 3\), rank 1 waits for 0") as caught:
        simulate(everybody_receives, 3)
    assert "in everybody_receives" in str(caught.value)


def one_fails(fabric):
    fabric.compute(float(fabric.rank))
    if fabric.rank:
        raise KeyError("loss")
    fabric.recv(torch.zeros(1), 1)


def test_the_first_failure_in_simulated_time_is_named_with_its_line():
    with pytest.raises(RankFailed, match=r"rank 1 of 3 failed first: KeyError: 'loss'") as caught:
        simulate(one_fails, 3)
    assert "in one_fails" in str(caught.value) and "rank 0 waits in recv from rank 1" in str(caught.value)


def a_stub(fabric):
    raise NotYet("Exercise 6.2: reduce-scatter")


def test_a_stub_is_not_yet():
    run = simulate(a_stub, 4)
    assert (run.state, run.not_yet) == ("not yet", "Exercise 6.2: reduce-scatter")


def waits_for_a_lock(fabric):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.fixture
def quick_ticks(monkeypatch):
    monkeypatch.setattr("worldsize.simulate.watch._TICK_S", 0.05)


def test_a_wait_for_a_lock_is_told_with_its_line(quick_ticks):
    with pytest.raises(Deadlock, match=r"rank 0 waits for something other than a message.*in waits_for_a_lock"):
        simulate(waits_for_a_lock, 2)


def for_ever(fabric):
    while True:
        fabric.compute(1.0)


def test_a_real_time_limit_ends_a_simulation(quick_ticks):
    with pytest.raises(RunTimedOut, match="after timeout_s=0.2 real s the simulation had reached"):
        simulate(for_ever, 2, timeout_s=0.2)


class SlowToGo:
    def __del__(self):
        compute_s(0.05)


def compute_s(seconds):
    until_s = time.process_time() + seconds
    while time.process_time() < until_s:
        pass


def drops_for_ever(fabric):
    while True:
        SlowToGo()
        compute_s(0.02)


def test_a_time_limit_that_passes_in_a_finaliser_ends_a_simulation(quick_ticks):
    with pytest.raises(RunTimedOut):
        simulate(drops_for_ever, 2, timeout_s=0.2)


def test_a_time_limit_that_passes_in_an_import_lets_the_import_end(quick_ticks, tmp_path, monkeypatch):
    slow = "from tests.simulate.test_simulate import compute_s\ncompute_s(0.6)\nended = True\n"
    (tmp_path / "imported_slowly.py").write_text(slow)
    monkeypatch.syspath_prepend(tmp_path)

    def imports_it(fabric):
        while True:
            import imported_slowly  # noqa: F401
            compute_s(0.01)

    with pytest.raises(RunTimedOut):
        simulate(imports_it, 2, timeout_s=0.2)
    assert sys.modules.pop("imported_slowly").ended


def is_interrupted(fabric):
    fabric.compute(2.0)
    signal.raise_signal(signal.SIGINT)


def test_the_stop_button_ends_a_simulation_with_what_there_is_of_it():
    with pytest.raises(Interrupted, match="stopped after .* at 2 simulated s") as caught:
        simulate(is_interrupted, 3)
    assert caught.value.run.state == "interrupted" and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def opens_a_group(fabric):
    dist.init_process_group("gloo", rank=fabric.rank, world_size=fabric.world_size)


def starts_a_thread(fabric):
    threading.Thread(target=print).start()


@pytest.mark.parametrize("fn, words", [(opens_a_group, "opens a process group"), (starts_a_thread, "starts a thread")])
def test_what_needs_processes_is_refused_with_the_way_out(fn, words):
    with pytest.raises(RankFailed, match=f"{words}.*launch\\(fn, world_size=2\\)"):
        simulate(fn, 2)


def in_a_check(fn, world_size):
    assert SimulatedArena(1).ranks(fn, [0] * world_size).state == "done"


@pytest.mark.parametrize("run", [simulate, in_a_check])
def test_a_thread_that_is_no_rank_may_start_threads_while_ranks_have_their_turns(run):
    turn, tried = threading.Event(), threading.Event()

    def outside():
        turn.wait()
        try:
            return threading.Thread(target=int).start()
        finally:
            tried.set()

    def has_its_turn(fabric, *given):
        turn.set()
        while not tried.is_set():
            compute_s(0.001)

    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(outside)
        run(has_its_turn, 2)
    assert started.result() is None


def without_a_fabric(x):
    return x


@pytest.mark.parametrize(
    "given, words",
    [
        ({"world_size": 10**9}, "from 1 to 1,000,000"),
        ({"world_size": True}, "from 1 to"),
        ({"link": "fast"}, "expected link=Link"),
        ({"nodes": 8}, "expected nodes=Nodes"),
        ({"nodes": NODES, "link": LINK}, "got both"),
        ({"world_size": 7, "nodes": NODES}, "Take 6 or 8"),
        ({"stragglers": {9: 2.0}}, "ranks from 0 to 3"),
        ({"stragglers": {1: 0.0}}, "a finite factor above 0"),
        ({"failures_per_s": -1}, "0 or more"),
        ({"seed": -1}, "seed"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"most_messages": 0}, "most_messages from 1"),
    ],
)
def test_bad_input_is_a_value_error_that_says_what_to_do(given, words):
    with pytest.raises(ValueError, match=words):
        simulate(work_alone, **{"world_size": 4, "args": (1.0,), **given})


def test_a_function_without_a_fabric_is_refused():
    with pytest.raises(ValueError, match="first parameter is named fabric"):
        simulate(without_a_fabric, 2, args=(1,))


def stops_without_grad(fabric):
    torch._C._set_grad_enabled(False)
    fabric.recv(torch.zeros(1), 0 if fabric.rank else 1)


def test_the_caller_s_grad_mode_is_as_it_was():
    with pytest.raises(Deadlock):
        simulate(stops_without_grad, 2)
    assert torch.is_grad_enabled()
    with torch.no_grad():
        simulate(draws, 2)
        assert not torch.is_grad_enabled()


def test_generators_clocks_and_output_of_the_caller_are_as_they_were():
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), time.sleep, time.monotonic  # noqa: NPY002

    simulate(draws, 3)

    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == np.random.get_state()[1].tolist()  # noqa: NPY002
    assert before[2:] == (time.sleep, time.monotonic)


def draws(fabric):
    return float(torch.rand(1)), float(np.random.rand())  # noqa: NPY002


def test_the_same_seed_draws_the_same_and_another_does_not():
    one, again, other = (simulate(draws, 3, seed=seed).results for seed in (1, 1, 2))
    assert one == again != other and len(set(one)) == 3


def test_a_numpy_program_needs_no_torch():
    program = (
        "import sys, numpy as np\n"
        "from worldsize.simulate import simulate\n"
        "def f(fabric):\n"
        "    x = np.full(3, float(fabric.rank))\n"
        "    if fabric.rank: fabric.send(x, 0)\n"
        "    else: fabric.recv(x, 1)\n"
        "    return x.tolist()\n"
        "assert simulate(f, 2)[0] == [1.0] * 3\n"
        "assert 'torch' not in sys.modules, 'torch was imported'\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def mixed(fabric, sends, receives):
    if fabric.rank == 0:
        fabric.send(sends([1.0, 2.0]), 1)
        return None
    out = receives([0.0, 0.0])
    fabric.recv(out, 0)
    return [float(value) for value in out]


@pytest.mark.parametrize("pair", [(np.array, lambda row: torch.tensor(row, dtype=torch.float64)), (torch.tensor, np.float32)])
def test_an_array_is_received_into_a_tensor_and_a_tensor_into_an_array(pair):
    assert simulate(mixed, 2, pair)[1] == [1.0, 2.0]


RING = """
import sys, time, torch
from pathlib import Path
from tests.support.lab_functions import lab_functions
from worldsize.links import Link
from worldsize.simulate import simulate
ring = lab_functions("06_ring_all_reduce.ipynb").ring_all_reduce
torch.set_num_threads(1)
n = int(sys.argv[1])
began_s = time.process_time()
run = simulate(ring, n, args=(torch.ones(n),), link=Link("10 GB/s", "5 us"), timeout_s=600)
assert run.results[0][0] == n and run.messages == 2 * n * (n - 1)
kb = next(row.split()[1] for row in Path("/proc/self/status").read_text().splitlines() if row.startswith("VmHWM"))
print(time.process_time() - began_s, int(kb) / 1e3)
"""


@pytest.mark.parametrize(
    ("n", "most_s"),
    [
        pytest.param(64, 0.5, marks=pytest.mark.soak),
        pytest.param(256, 3.0, marks=pytest.mark.soak),
        pytest.param(1024, 60.0, marks=[pytest.mark.soak, pytest.mark.timeout(600)]),
    ],
)
def test_lab_06_s_ring_in_full_takes_so_much_cpu_time_and_memory_at_most(n, most_s):
    ended = subprocess.run([sys.executable, "-c", RING, str(n)], capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr
    seconds, mb = map(float, ended.stdout.splitlines()[-1].split())
    assert seconds <= most_s and mb <= 800, f"{seconds:.2f} s of CPU, {mb:.0f} MB"
