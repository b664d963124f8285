"""Memory, operations, seconds and days of a training step are those that were published."""

from dataclasses import replace

import pytest

from worldsize import data
from worldsize.formulas import activations, measured_clusters, schedules
from worldsize.formulas import training_step as step
from worldsize.formulas.pipeline import makespan_s, play
from worldsize.formulas.training_step import Plan, Transformer
from worldsize.links import Link
from worldsize.pytorch.rehearsal import Gradients, rehearse
from worldsize.simulate import Nodes, simulate

pytestmark = pytest.mark.quick

# Megatron-LM, 2021, table 1: billions, layers, width, heads
MEGATRON = [
    (1.7, 24, 2304, 24), (3.6, 30, 3072, 32), (7.5, 36, 4096, 32), (18.4, 40, 6144, 48), (39.1, 48, 8192, 64),
    (76.1, 60, 10240, 80), (145.6, 80, 12288, 96), (310.1, 96, 16384, 128), (529.6, 105, 20480, 128),
    (1008.0, 128, 25600, 160),
]  # fmt: skip
GPT3 = Transformer(96, 12288, 96)
TRILLION = Transformer(128, 25600, 160)
# Korthikanti et al., 2022, tables 3 and 5: model, pipeline, chunks, micro-batch, batch, seconds with full and selective
KORTHIKANTI = [
    (Transformer(48, 6144, 64), 1, 1, 4, 4, 1.42, 1.10),
    (GPT3, 8, 3, 1, 64, 18.13, 13.75),
    (Transformer(105, 20480, 128), 35, 3, 1, 280, 49.05, 37.83),
    (TRILLION, 64, 1, 1, 512, 94.42, 71.49),
]


@pytest.mark.parametrize(("billions", "layers", "hidden", "heads"), MEGATRON)
def test_the_formula_counts_the_parameters_of_megatrons_ten_models(billions, layers, hidden, heads):
    assert step.parameters(Transformer(layers, hidden, heads)) / 1e9 == pytest.approx(billions, abs=0.051)


def test_gpt_3_takes_34_days_and_the_trillion_84():
    assert step.training_days(step.parameters(GPT3), 300e9, 1024, 140e12) == pytest.approx(33.8, abs=0.05)
    assert step.training_days(step.parameters(TRILLION), 450e9, 3072, 163e12) == pytest.approx(83.9, abs=0.05)


def test_the_trillions_checkpoint_is_within_3_percent_of_13_8_terabytes():
    assert step.checkpoint_bytes(step.parameters(TRILLION)) / 1e12 == pytest.approx(13.8, rel=0.03)


def test_operations_are_those_of_megatrons_equation_3():
    s, h, l, v, b = 2048, 12288, 96, 51200, 1536  # noqa: E741 - the equation's letters
    assert step.flops(GPT3, b) == pytest.approx(96 * b * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h)))


def test_selective_recomputation_costs_few_operations_and_full_a_third():
    kept, selective, full = (step.flops(GPT3, 1, how) for how in ("", "attention", "whole"))
    assert 1.00 < selective / kept < 1.03
    assert 1.30 < full / kept < 1.34


@pytest.mark.parametrize(("zero", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_a_plan_of_64_replicas_holds_what_zero_says_of_7_5_billion(zero, gigabytes):
    model = Transformer(36, 4096, 32)
    held = step.memory(model, Plan(data=64, global_batch=64, zero=zero))
    del held["activations"]
    assert sum(held.values()) / step.parameters(model) * 7.5 == pytest.approx(gigabytes, abs=0.05)


@pytest.mark.parametrize("model, p, v, b, batch, full_s, _", KORTHIKANTI)
def test_full_recomputation_takes_what_was_measured_within_10_percent(model, p, v, b, batch, full_s, _):
    plan = Plan(tensor=8, pipeline=p, chunks=v, micro_batch=b, global_batch=batch, recomputed="whole")
    assert sum(step.seconds(model, plan).values()) == pytest.approx(full_s, rel=0.1)


@pytest.mark.parametrize("model, p, v, b, batch, _, selective_s", KORTHIKANTI)
def test_selective_recomputation_takes_what_was_measured_within_10_percent(model, p, v, b, batch, _, selective_s):
    plan = Plan(8, p, 1, b, batch, v, recomputed="attention", sequence_parallel=True)
    assert sum(step.seconds(model, plan).values()) == pytest.approx(selective_s, rel=0.1)


def test_an_accelerator_with_fitted_constants_predicts_what_the_fitted_model_predicts():
    rows = data.measured_iterations("multi")
    small = [row for row in rows if row.gpus == 64]
    fit = measured_clusters.fit(small, measured_clusters.fit_memory(data.measured_iterations("single")))
    matmul, memory, nvlink, network, overhead_s = fit.constants
    cluster = step.Accelerator(312e12 / matmul, 2e12 / memory, 300e9 / nvlink, 100e9 / network, overhead_s)

    for row, expected_s in zip(rows, measured_clusters.predict(fit, rows), strict=True):
        model = Transformer(row.layers, row.hidden, row.heads)
        plan = Plan(row.tensor, row.pipeline, row.data, row.micro_batch, row.global_batch, recomputed="whole")
        assert sum(step.seconds(model, plan, cluster).values()) == pytest.approx(expected_s, rel=0.01)


def test_1f1b_holds_a_micro_batch_for_each_stage_and_no_more():
    layer = activations.transformer_layer(2048, 1, 12288, 96, 8, "tensor")
    few, many = (step.memory(GPT3, Plan(8, 8, 1, 1, m))["activations"] for m in (4, 64))
    assert few == pytest.approx(4 * 12 * layer)
    assert many == pytest.approx(8 * 12 * layer)


def test_interleaving_holds_more_activations_and_waits_less():
    plain, interleaved = (Plan(8, 8, 1, 1, 64, chunks) for chunks in (1, 3))
    ratio = step.memory(GPT3, interleaved)["activations"] / step.memory(GPT3, plain)["activations"]
    assert ratio == pytest.approx(1 + 7 / (8 * 3))
    assert step.seconds(GPT3, interleaved)["bubble"] < step.seconds(GPT3, plain)["bubble"] / 2


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_a_step_of_chunks_takes_the_seconds_of_the_schedule_played(chunks):
    plan = Plan(8, 8, 1, 1, 32, chunks, recomputed="whole")
    parts = step.seconds(GPT3, plan)
    stage_s = (parts["compute"] + parts["tensor parallel"]) / 32
    orders = [schedules.interleaved(device, 8, 32, chunks) for device in range(8)]
    played_s = makespan_s(play(orders, stage_s / 4, 3 * stage_s / 4, chunks=chunks))
    hops_s = parts["point to point"] * 39 / 32  # with the bubble's
    assert played_s == pytest.approx(32 * stage_s + parts["bubble"] - hops_s + parts["point to point"], rel=0.01)


@pytest.mark.parametrize("chunks", [2, 4])
def test_chunks_send_as_many_times_the_activations(chunks):
    plain, chunked = (step.seconds(GPT3, Plan(8, 8, 1, 1, 32, v))["point to point"] for v in (1, chunks))
    assert chunked == pytest.approx(chunks * plain)


def test_interleaving_gains_more_than_10_percent_on_96_gpus_and_less_with_larger_batches():
    gains = []
    for batch in (24, 48, 96, 192):
        plain, chunked = (
            sum(step.seconds(GPT3, Plan(8, 12, 1, 1, batch, v, recomputed="whole")).values()) for v in (1, 4)
        )
        gains.append(plain / chunked - 1)
    assert gains[0] > 0.1  # Megatron-LM, 2021, abstract
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("all_reduce_s", [0.01, 0.3, 5.0])
@pytest.mark.parametrize(("p", "chunks"), [(1, 1), (2, 1), (4, 1), (4, 2), (4, 3), (3, 2)])
def test_what_is_left_of_an_all_reduce_is_what_simulated_ranks_wait_for(p, chunks, all_reduce_s):
    layers, layer_s, m = 6, 0.02, 2 * p
    orders = [schedules.interleaved(stage, p, m, chunks) for stage in range(p)]
    link = Link(6e6 / all_reduce_s)
    nodes = Nodes(p, inside=Link(1e15), between=link, cards=p)
    args = (orders, (layers * layer_s / 2, layers * layer_s), 4, chunks, Gradients(6_000_000, layers, overlap=True))
    run = simulate(rehearse, 2 * p, args=args, nodes=nodes)
    worked_s = makespan_s(play(orders, layers * layer_s / 2, layers * layer_s, chunks=chunks))
    assert run.simulated_s - worked_s == pytest.approx(step.exposed_s(all_reduce_s, layers, layer_s, p, chunks), abs=1e-3)


def test_overlap_leaves_at_least_one_layers_sum_and_never_more_than_all():
    for plan in (Plan(8, 8, 2, 1, 32), Plan(8, 8, 2, 1, 32, 4), Plan(8, 1, 16, 1, 32), Plan(1, 1, 2, 1, 32)):
        whole, left = (step.seconds(GPT3, replace(plan, overlap=on))["data parallel"] for on in (False, True))
        assert whole / (96 // plan.pipeline) * 0.999 <= left <= whole


def test_overlap_changes_the_sums_alone():
    plan = Plan(8, 8, 2, 1, 32, 2)
    without, overlapped = step.seconds(GPT3, plan), step.seconds(GPT3, replace(plan, overlap=True))
    assert {name for name in without if without[name] != overlapped[name]} == {"data parallel"}
    assert step.memory(GPT3, plan) == step.memory(GPT3, replace(plan, overlap=True))


def test_each_way_to_recompute_keeps_less():
    kept, selective, full = (
        step.memory(GPT3, Plan(8, 8, 1, 1, 64, recomputed=how))["activations"] for how in step.RECOMPUTED
    )
    assert kept > selective > full


def test_a_plan_on_one_rank_moves_nothing():
    parts = step.seconds(Transformer(24, 1024, 16), Plan())
    assert [parts[name] for name in ("tensor parallel", "bubble", "point to point", "data parallel")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"tensor": 0}, "tensor is 0"),
        ({"data": 3, "global_batch": 4}, "doesn't divide"),
        ({"recomputed": "all"}, "expected recomputed"),
        ({"zero": 4}, "stage of ZeRO"),
        ({"pipeline": 4, "chunks": 2, "global_batch": 6}, "whole groups of 4"),
        ({"overlap": True, "zero": 1}, "only without ZeRO"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(words, said):
    with pytest.raises(ValueError, match=said):
        Plan(**words)


def test_stages_that_do_not_divide_the_layers_are_refused():
    with pytest.raises(ValueError, match="96 layers don't divide into 7 stages"):
        step.memory(GPT3, Plan(pipeline=7))


def test_a_model_without_layers_is_refused():
    with pytest.raises(ValueError, match="layers is 0"):
        step.parameters(Transformer(0, 1, 1))


def test_days_at_no_speed_are_refused():
    with pytest.raises(ValueError, match="above 0"):
        step.training_days(1e9, 1e9, 8, 0)
