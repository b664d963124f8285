"""The notebook's check: most cases in simulated time, some again on real ranks, and the verdict that real ranks would give."""

from typing_extensions import override

from tests.checks.mutants import ring_all_reduce, train_to_the_end
from tests.support import slips
from worldsize.checks import run_check
from worldsize.checks.arena import ArenaResult, LaunchArena, Trial
from worldsize.checks.confirming_arena import confirmed_check

SEED = 7


class CountedLaunches(LaunchArena):
    """A `LaunchArena` that notes the world size of each launch over the fabric."""

    def __init__(self) -> None:
        super().__init__(seed=SEED)
        self.world_sizes: list[int] = []

    @override
    def run(self, trial: Trial) -> ArenaResult:
        if trial.way == "ranks":
            self.world_sizes.append(len(trial.inputs))
        return super().run(trial)


def confirmed(fn, exercise="ring_all_reduce"):
    launches = CountedLaunches()
    return confirmed_check(exercise, fn, launches=launches), launches.world_sizes


def test_a_right_answer_runs_on_real_ranks_twice_and_says_so():
    verdict, world_sizes = confirmed(ring_all_reduce.the_usual_way)
    assert (verdict.state, verdict.points, world_sizes) == ("pass", 1.5, [3, 3])
    assert verdict.tried.confirmed == (3, 3) and verdict.tried.simulated >= 9
    assert "2 of them also on real processes (3 ranks, twice)" in str(verdict)


def test_a_mistake_that_the_first_case_shows_takes_one_launch():
    verdict, world_sizes = confirmed(ring_all_reduce.whole_tensors_round_the_ring)
    assert (verdict.state, world_sizes) == ("fail", [3])


def test_a_mistake_in_a_later_case_is_seen_on_real_ranks_before_it_is_told():
    verdict, world_sizes = confirmed(slips.wrong_with_nine_ranks)
    assert world_sizes == [3, 9]
    plain = run_check("ring_all_reduce", LaunchArena(seed=SEED), slips.wrong_with_nine_ranks)
    assert (verdict.state, verdict.points, verdict.mismatch) == (plain.state, plain.points, plain.mismatch)


def test_what_ends_a_process_ends_no_notebook_and_is_told_as_on_real_ranks():
    verdict, world_sizes = confirmed(slips.kills_its_process_with_four_ranks)
    assert verdict.state == "fail" and "SIGKILL" in verdict.mismatch
    assert world_sizes == [3, 3, 4]  # it cannot be played, so every case is real


def test_memory_of_a_ranks_own_is_left_to_real_ranks():
    verdict, _ = confirmed(train_to_the_end.keeps_the_checkpoint_in_memory, "train_to_the_end")
    assert verdict.state == "fail" and verdict.tried is None


def test_a_race_is_found_by_a_seeded_order_of_events():
    verdict, _ = confirmed(slips.adds_up_what_comes_first, "parameter_server")
    assert verdict.state == "fail"


def test_a_stub_is_not_yet_after_one_launch():
    verdict, world_sizes = confirmed(slips.stub)
    assert (verdict.state, len(world_sizes)) == ("not yet", 1)
