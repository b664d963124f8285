"""Exercise 16.4: the fastest plan that fits."""

from dataclasses import asdict
from itertools import product

from tests.checks.mutants import Answers
from worldsize.formulas.training_step import Plan, Transformer, memory, seconds

answers = Answers("best_plan")
RECOMPUTED = ("", "attention", "whole")


def divisors(n):
    return [k for k in range(1, n + 1) if n % k == 0]


def plans(model, gpus, batch, heads=True, recomputed=RECOMPUTED, tensors=None):
    for t, p in product(divisors(gpus) if tensors is None else tensors, divisors(gpus)):
        if gpus % (t * p) or model["layers"] % p or (heads and model["heads"] % t):
            continue
        d = gpus // (t * p)
        if batch % d:
            continue
        for b, kept in product(divisors(batch // d), recomputed):
            yield Plan(t, p, d, b, batch, recomputed=kept)


def chosen(plan):
    if plan is None:
        return None
    return {name: value for name, value in asdict(plan).items() if name not in ("global_batch", "chunks", "zero")}


def held(model, plan):
    return sum(memory(Transformer(**model), plan).values())


def takes(model, plan):
    return sum(seconds(Transformer(**model), plan).values())


def fastest(model, found, memory_bytes, size=held, cost=takes):
    fitting = [plan for plan in found if size(model, plan) <= memory_bytes]
    return chosen(min(fitting, key=lambda plan: cost(model, plan), default=None))


@answers.is_right
def the_fastest_that_fits(model, gpus, global_batch, memory_bytes):
    found = list(plans(model, gpus, global_batch))
    fitting = [plan for plan in found if held(model, plan) <= memory_bytes]
    best = min(fitting, key=lambda plan: takes(model, plan), default=None)
    return chosen(best)


@answers.is_right
def every_plan_in_loops(model, gpus, global_batch, memory_bytes):
    best, least = None, float("inf")
    for t in range(1, gpus + 1):
        for p in range(1, gpus + 1):
            if gpus % (t * p) or model["heads"] % t or model["layers"] % p:
                continue
            d = gpus // (t * p)
            for b in range(1, global_batch // d + 1):
                if global_batch % (d * b):
                    continue
                for recomputed in RECOMPUTED:
                    plan = Plan(t, p, d, b, global_batch, recomputed=recomputed)
                    if held(model, plan) <= memory_bytes and takes(model, plan) < least:
                        best, least = plan, takes(model, plan)
    if best is None:
        return None
    return {"tensor": best.tensor, "pipeline": best.pipeline, "data": best.data, "micro_batch": best.micro_batch,
            "recomputed": best.recomputed}  # fmt: skip


@answers.is_right
def asks_for_forgiveness(model, gpus, global_batch, memory_bytes):
    """Tries all sizes, and leaves out what Plan and memory refuse; the last of equally fast ones."""
    found = []
    for t, p, b in product(divisors(model["heads"]), divisors(gpus), divisors(global_batch)):
        for recomputed in reversed(RECOMPUTED):
            try:
                plan = Plan(t, p, max(1, gpus // (t * p)), b, global_batch, recomputed=recomputed)
                if t * p * plan.data == gpus and held(model, plan) <= memory_bytes:
                    found.append(plan)
            except ValueError:
                continue
    found.sort(key=lambda plan: -takes(model, plan))
    return chosen(found[-1]) if found else None


@answers.is_right
def stops_when_a_larger_micro_batch_does_not_fit(model, gpus, global_batch, memory_bytes):
    """Memory grows with the micro-batch; so the larger ones need not be tried."""
    best = {}
    for t, p, recomputed in product(divisors(gpus), divisors(gpus), RECOMPUTED):
        d, rest = divmod(gpus, t * p)
        if rest or model["heads"] % t or model["layers"] % p or global_batch % d:
            continue
        for b in divisors(global_batch // d):
            plan = Plan(t, p, d, b, global_batch, recomputed=recomputed)
            if held(model, plan) > memory_bytes and global_batch // (d * b) >= p:
                break
            if held(model, plan) <= memory_bytes:
                best[takes(model, plan)] = chosen(plan)
    return best[min(best)] if best else None


answers.mistake("forgets_the_activations",
    {"held(model, plan) <=": 'held(model, plan) - memory(Transformer(**model), plan)["activations"] <='},
    "175 B, 1,024 GPUs of 80 GB", "GB per GPU (parameters", "Activations must fit as well")
answers.mistake("forgets_that_it_has_to_fit", {"held(model, plan) <= memory_bytes": "True"},
    "needs", "GB per GPU", "a GPU has 80 GB")
answers.mistake("each_part_alone_has_to_fit", {"held(model, plan)": "max(memory(Transformer(**model), plan).values())"},
    "needs", "GB per GPU", "a GPU has 80 GB")
answers.mistake("always_recomputes_everything", {
    "list(plans(model, gpus, global_batch))":
        '[plan for plan in plans(model, gpus, global_batch) if plan.recomputed == "whole"]',
}, "175 B, 1,024 GPUs of 80 GB", "s a step, but another plan that fits takes 23.07 s", 'if it always has recomputed "whole"')
answers.mistake("never_recomputes", {
    "list(plans(model, gpus, global_batch))":
        '[plan for plan in plans(model, gpus, global_batch) if plan.recomputed == ""]',
}, "175 B, 1,024 GPUs of 40 GB", "recomputed differ")
answers.mistake("as_much_tensor_parallelism_as_a_node_has", {
    "found = list(plans(model, gpus, global_batch))": """
        most = max(t for t in divisors(gpus) if t <= 8 and model["heads"] % t == 0)
        found = [plan for plan in plans(model, gpus, global_batch) if plan.tensor == most]
    """,
}, "another plan that fits takes", "differ")
answers.mistake("stages_of_the_labs_own_model", {
    "list(plans(model, gpus, global_batch))":
        "[plan for plan in plans(model, gpus, global_batch) if 96 % plan.pipeline == 0]",
}, "18.4 B with 40 layers, 20 GPUs of 24 GB", "try every divisor")
answers.mistake("one_sequence_at_a_time", {
    "list(plans(model, gpus, global_batch))":
        "[plan for plan in plans(model, gpus, global_batch) if plan.micro_batch == 1]",
}, "1.3 B, 8 GPUs of 80 GB", "micro_batch differ", "A search ends at yours if it tries micro_batch 1 alone.")
answers.mistake("the_one_that_needs_least_memory", {"takes(model, plan)": "held(model, plan)"},
    "175 B, 1,024 GPUs of 80 GB", "another plan that fits takes 23.07 s", "if it seeks the least memory")
answers.mistake("the_first_that_fits",
    {"min(fitting, key=lambda plan: takes(model, plan), default=None)": "fitting[0] if fitting else None"},
    "175 B, 1,024 GPUs of 80 GB", "another plan that fits takes 23.07 s")
answers.mistake("forgets_the_bubble",
    {"takes(model, plan)": 'takes(model, plan) - seconds(Transformer(**model), plan)["bubble"]'},
    "another plan that fits takes", "differ", "leaves the bubble out of the seconds")
answers.mistake("counts_compute_alone",
    {"takes(model, plan)": 'seconds(Transformer(**model), plan)["compute"]'},
    "another plan that fits takes", "differ", "counts compute alone")
answers.mistake("forgets_the_recomputed_attention", {
    "list(plans(model, gpus, global_batch))":
        '[plan for plan in plans(model, gpus, global_batch) if plan.recomputed != "attention"]',
}, "another plan that fits takes", 'never tries recomputed "attention"')
answers.mistake("a_card_of_80_gb_in_every_case", {"held(model, plan) <= memory_bytes": "held(model, plan) <= 80e9"},
    "175 B, 1,024 GPUs of 40 GB", "a GPU has 40 GB. In 80 GB it would be the fastest: compare with memory_bytes")
answers.mistake("at_most_64_copies", {
    "list(plans(model, gpus, global_batch))": "[plan for plan in plans(model, gpus, global_batch) if plan.data <= 64]",
}, "0.1 B, 128 GPUs of 80 GB", "data")
answers.mistake("powers_of_two_alone", {
    "fitting =": """
        powers = {2**k for k in range(11)}
        found = [p for p in found if {p.tensor, p.pipeline, p.micro_batch} <= powers]
        fitting =
    """,
}, "another plan that fits takes", "differ", "tries no micro_batch but powers of two")
answers.mistake("cuts_a_head", {"plans(model, gpus, global_batch)": "plans(model, gpus, global_batch, heads=False)"},
    "doesn't divide the 6 heads")
answers.mistake("the_smallest_where_none_fits",
    {"return chosen(best)": "return chosen(best or min(found, key=lambda plan: held(model, plan)))"},
    "175 B, 16 GPUs", "no plan fits here; expected None", "a GPU has 80 GB")
answers.mistake("an_empty_dict_where_none_fits", {"return chosen(best)": "return chosen(best) or {}"},
    "175 B, 16 GPUs", "no plan fits here; expected None, got {}.")
answers.mistake("returns_the_plan_itself", {"return chosen(best)": "return best"},
    "expected a dict, got a Plan: return a dict of its tensor, pipeline, data, micro_batch, recomputed alone")
answers.mistake("shards_the_optimizer_as_well", {
    "list(plans(model, gpus, global_batch))":
        '[Plan(**{**asdict(plan), "zero": 1}) for plan in plans(model, gpus, global_batch)]',
    "return chosen(best)": "return chosen(best) and {**chosen(best), 'zero': 1}",
}, "zero is 1; choose only tensor, pipeline, data, micro_batch, recomputed here")
answers.mistake("leaves_gpus_idle", {"plans(model, gpus, global_batch)": "plans(model, gpus // 2, global_batch)"},
    "tensor · pipeline · data is", "expected 1024, all the GPUs")


@answers.is_wrong("ValueError: training_step: 96 layers don't divide into 64 stages")
def forgets_that_layers_divide(model, gpus, global_batch, memory_bytes):
    found = []
    for t, p in product(divisors(gpus), divisors(gpus)):
        if gpus % (t * p) == 0 and global_batch % (gpus // (t * p)) == 0:
            found.append(Plan(t, p, gpus // (t * p), 1, global_batch))
    return fastest(model, found, memory_bytes)


answers.mistake("a_plan_with_its_seconds",
    {"return chosen(best)": 'return best and {**chosen(best), "seconds": takes(model, best)}'},
    "alone, got seconds too: a Plan has no such field")
answers.mistake("a_dict_of_the_whole_plan", {"return chosen(best)": "return best and asdict(best)"},
    "the dict has global_batch, which is given: the next cell adds it")
answers.mistake("fewer_gpus_where_all_do_not_divide", {
    "found = list(plans(model, gpus, global_batch))":
        "found = [plan for n in range(gpus, 0, -1) if gpus % n == 0 for plan in plans(model, n, global_batch)]",
}, "36 sequences a step", "expected 14, all the GPUs")
answers.mistake("tensor_in_powers_of_two", {
    "plans(model, gpus, global_batch)": "plans(model, gpus, global_batch, tensors=[2**k for k in range(11)])",
}, "175 B, 96 GPUs of 80 GB", "tensor")
answers.mistake("tensor_inside_the_node_alone", {
    "list(plans(model, gpus, global_batch))": "[plan for plan in plans(model, gpus, global_batch) if plan.tensor <= 8]",
}, "6.5 B with 7 layers", "got None", "A plan that fits takes", "try every divisor")
answers.mistake("as_many_micro_batches_as_stages_at_least", {
    "list(plans(model, gpus, global_batch))":
        "[plan for plan in plans(model, gpus, global_batch) if plan.micro_batches >= plan.pipeline]",
}, "39 B, 96 GPUs", "another plan that fits takes", "pipeline")
answers.mistake("at_most_16_sequences_at_a_time", {
    "list(plans(model, gpus, global_batch))": "[plan for plan in plans(model, gpus, global_batch) if plan.micro_batch <= 16]",
}, "0.1 B, 2 GPUs", "micro_batch differs")
answers.mistake("needs_room_to_spare", {"held(model, plan) <= memory_bytes": "held(model, plan) < memory_bytes"},
    "1.3 B, 8 GPUs of 66.9513 GB", "another plan that fits takes", "wants room to spare: at most memory_bytes means")
answers.mistake("the_usual_vocabulary", {
    "found = list(plans(model, gpus, global_batch))": """
        model = {**model, "vocabulary": 51_200}
        found = list(plans(model, gpus, global_batch))
    """,
}, "1.3 B and 256,000 words", "GB per GPU", "a GPU has 16 GB")
answers.mistake("the_usual_number_of_tokens", {
    "found = list(plans(model, gpus, global_batch))": """
        model = {**model, "tokens": 2_048}
        found = list(plans(model, gpus, global_batch))
    """,
}, "1.3 B, 8 GPUs of 80 GB", "micro_batch differs")
answers.mistake("writes_into_the_model", {"return chosen(best)": 'model["gpus"] = gpus\nreturn chosen(best)'},
    "model was changed in place")
answers.mistake("equal_parts_of_the_batch_alone", {
    "list(plans(model, gpus, global_batch))":
        "[plan for plan in plans(model, gpus, global_batch) if plan.micro_batches % plan.pipeline == 0]",
}, "another plan that fits takes", "differ")


@answers.is_right
def takes_whatever_divides_from_the_largest_down(model, gpus, global_batch, memory_bytes):
    """From the largest sizes down, with a running best; NumPy's whole numbers; changes nothing of `model`."""
    import numpy as np

    best = (float("inf"), None)
    for t, p in product(divisors(gpus)[::-1], divisors(gpus)[::-1]):
        d, rest = divmod(gpus, t * p)
        if rest or not d or model["heads"] % t or model["layers"] % p or global_batch % d:
            continue
        for b, kept in product(divisors(global_batch // d)[::-1], RECOMPUTED[::-1]):
            plan = Plan(t, p, d, b, global_batch, recomputed=kept)
            if held(model, plan) <= memory_bytes and takes(model, plan) < best[0]:
                t_, p_, d_, b_ = np.array([t, p, d, b])
                best = takes(model, plan), {"tensor": t_, "pipeline": p_, "data": d_, "micro_batch": b_, "recomputed": kept}
    return best[1]


def the_first_to_fit(model, gpus, global_batch, memory_bytes):
    fitting = [plan for plan in plans(model, gpus, global_batch) if held(model, plan) <= memory_bytes]
    return chosen(fitting[0] if fitting else None)


answers.spoil("the_first_to_fit_with_one_gpu_more", {"return chosen(fitting[0] if fitting else None)": """
    found = chosen(fitting[0] if fitting else None)
    return found and found | {"data": found["data"] + 1}
"""}, of=the_first_to_fit)


@answers.spoils()
def the_fastest_that_fits_on_many_gpus(model, gpus, global_batch, memory_bytes):
    return the_fastest_that_fits(model, gpus, global_batch, memory_bytes) if gpus > 500 else None
