"""Pictures that explain by formulas or by a recorded run: ZeRO's stages, cut matrices, a collective's steps, bandwidths."""

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.patches import FancyArrowPatch, Rectangle

from worldsize import figures
from worldsize.fabric import Fabric
from worldsize.fabric.collectives import all_reduce, reduce_scatter
from worldsize.fabric.watched import Watched
from worldsize.figures import Bandwidth, tokens
from worldsize.formulas import sharding
from worldsize.links import Link
from worldsize.simulate import simulate
from worldsize.units import size


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 64])
def test_zero_tells_what_the_formula_says(n: int) -> None:
    alt = figures.zero_stages(7.5e9, n).alt
    for stage in sharding.STAGES:
        for held in sharding.memory(7.5e9, n, stage).values():
            assert size(held) in alt
    assert ("nothing to cut" in alt) == (n == 1)


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_in_stage_three_the_filled_parts_of_all_ranks_make_one_whole(n: int) -> None:
    picture = figures.zero_stages(1000, n)
    fills = {tokens.COMPUTE.light, tokens.SEND.light, tokens.COLLECTIVE.light}
    for ax, copies in zip(picture.axes, (n, None, None, 1), strict=True):
        filled = [p for p in ax.patches if p.get_facecolor()[3] and to_hex(p.get_facecolor()) in fills]
        if copies is not None:
            assert sum(p.get_height() for p in filled) == pytest.approx(copies)


def test_zero_refuses_a_world_of_none() -> None:
    with pytest.raises(ValueError):
        figures.zero_stages(1000, 0)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_cut_matrices_have_a_part_for_each_rank_and_tell_when_ranks_meet(n: int) -> None:
    picture = figures.matrix_cuts(5, 6, 84, 10, n)
    parts = [p for p in picture.axes[0].patches if isinstance(p, Rectangle)]
    assert len(parts) == 1 + 4 * n  # x is whole on every rank
    assert f"{84 // n * 16:,} of {84 * 16:,} weights" in picture.alt
    assert ("meet once, in an all-reduce of y" in picture.alt) == (n > 1)


@pytest.mark.parametrize("n", [0, 5, 9])
def test_a_world_that_does_not_divide_the_matrix_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="dividing hidden = 84 evenly"):
        figures.matrix_cuts(5, 6, 84, 10, n)


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (2, 8), (6, 3)])
def test_two_levels_have_a_ring_a_node_and_one_for_each_place(nodes: int, per_node: int) -> None:
    picture = figures.two_level_rings(nodes, per_node)
    arrows = [len([p for p in ax.patches if isinstance(p, FancyArrowPatch)]) for ax in picture.axes]
    assert arrows == [nodes * per_node] * 3


def test_two_levels_tell_what_a_rank_sends_in_each_phase() -> None:
    alt = figures.two_level_rings(4, 8).alt
    assert "a rank sends 3/16 of the tensor to other nodes; in one ring over all, 31/16" in alt
    assert alt.count("a rank sends 7/8 of the tensor") == 2


@pytest.mark.parametrize(("nodes", "per_node"), [(1, 4), (4, 1), (7, 4), (4, 9), (2.0, 2)])
def test_two_levels_refuse_what_is_no_ring_or_too_much_to_draw(nodes: int, per_node: int) -> None:
    with pytest.raises(ValueError, match="expected a whole number from 2 to"):
        figures.two_level_rings(nodes, per_node)


LINK = Link("1 GB/s", "10 us")


def watched(fabric: Fabric, collective) -> list:
    x = torch.full((60,), 10.0**fabric.rank)
    watching = Watched(fabric, x)
    collective(watching, x)
    return watching.notes()


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_strip_shows_every_step_and_what_came_of_it(n: int) -> None:
    run = simulate(watched, n, args=(all_reduce,), link=LINK)
    picture = figures.collective_strip(run)
    steps = 2 * (n - 1)
    assert f"After {steps} steps every rank holds the whole sum of every chunk" in picture.alt
    assert len([ax for ax in picture.axes if ax.patches]) == steps + 1
    assert f"{n} after step {n - 1}" in picture.alt or n == 2


def test_a_strip_says_what_its_rows_columns_and_dots_are() -> None:
    picture = figures.collective_strip(simulate(watched, 3, args=(all_reduce,), link=LINK))
    said = " ".join(text.get_text() for text in picture.texts).replace("\n", " ")
    assert "a row: a rank; a column: a chunk" in said and "dot: the whole sum" in said


def test_a_strip_of_half_a_collective_does_not_call_it_whole() -> None:
    run = simulate(watched, 3, args=(reduce_scatter,), link=LINK)
    assert "After 2 steps 0 of 9 cells hold a whole sum" in figures.collective_strip(run).alt


def test_bandwidths_are_told_from_the_widest_whatever_the_order() -> None:
    rows = [Bandwidth("cable", 1e8, "its name"), Bandwidth("memory", 1e10)]
    for given in (rows, rows[::-1]):
        alt = figures.bandwidth_ladder(given).alt
        assert alt.startswith("memory: 100 times the bandwidth of cable")
        assert "memory: 10 GB/s, measured here" in alt and "cable: 100 MB/s, its name" in alt


def test_equal_bandwidths_have_no_winner() -> None:
    assert " times " not in figures.bandwidth_ladder([Bandwidth("a", 1e9), Bandwidth("b", 1e9)]).alt


def test_a_legend_names_only_what_is_drawn() -> None:
    legend = figures.bandwidth_ladder([Bandwidth("a", 1e9)]).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["measured here"]


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bandwidth_that_is_none_is_refused_by_name(wrong: float) -> None:
    with pytest.raises(ValueError, match="the cable"):
        figures.bandwidth_ladder([Bandwidth("the cable", wrong)])
