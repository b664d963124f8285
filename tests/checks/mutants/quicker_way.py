"""Exercise 4.5: replicas or stages, by seconds and by memory."""

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("quicker_way")


@answers.is_right
def by_seconds(batch, example_s, stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory_bytes):
    n, model = len(stage_bytes), sum(stage_bytes)
    share = -(-batch // n)
    ring_s = 2 * (n - 1) * (alpha_s + model / (n * bytes_per_s))
    passing_s = sum(2 * (alpha_s + batch * size / bytes_per_s) for size in boundary_bytes)
    seconds = {}
    if 2 * model <= memory_bytes:
        seconds["replicas"] = share * example_s + ring_s
    if 2 * max(stage_bytes) <= memory_bytes:
        seconds["stages"] = batch * example_s + passing_s
    return min(seconds, key=seconds.get, default=None)


answers.twin("leaves_latency_out_of_both", {
    "(alpha_s + model / (n * bytes_per_s))": "model / (n * bytes_per_s)",
    "(alpha_s + batch * size / bytes_per_s)": "batch * size / bytes_per_s",
})
answers.twin("sends_whole_bytes_round_the_ring", {"model / (n * bytes_per_s)": "-(-model // n) / bytes_per_s"})
answers.twin("takes_stages_at_a_tie", {"return min(seconds,": "return min(reversed(seconds),"})
answers.twin("returns_numpys_text", {
    "return min(seconds, key=seconds.get, default=None)":
        "return np.array(list(seconds))[np.argmin(list(seconds.values()))] if seconds else None",
})


@answers.is_right
def by_cases(batch, example_s, stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory_bytes):
    """What replicas save in work against what they move more."""
    n = len(stage_bytes)
    if memory_bytes < 2 * max(stage_bytes):
        return None
    if memory_bytes < 2 * sum(stage_bytes):
        return "stages"
    saved_s = (batch - max(len(range(rank, batch, n)) for rank in range(n))) * example_s
    more_bytes = 2 * (n - 1) / n * sum(stage_bytes) - 2 * batch * sum(boundary_bytes)
    return "replicas" if saved_s > more_bytes / bytes_per_s else "stages"


@answers.is_right
def takes_the_courses_formulas(batch, example_s, stage_bytes, boundary_bytes, alpha_s, bytes_per_s, memory_bytes):
    from worldsize.formulas import parallelism
    from worldsize.links import Link

    n, link = len(stage_bytes), Link(bytes_per_s, alpha_s)
    work_s = (batch + n - 1) // n * n * example_s
    replicas_s = parallelism.seconds_data_parallel(n, work_s, sum(stage_bytes), link)
    stages_s = parallelism.seconds_model_parallel(batch, batch * example_s, boundary_bytes, link)
    found = []
    if 2 * sum(stage_bytes) <= memory_bytes:
        found.append((replicas_s, "replicas"))
    if 2 * max(stage_bytes) <= memory_bytes:
        found.append((stages_s, "stages"))
    return min(found)[1] if found else None


answers.mistake("lets_stages_work_at_once", {"batch * example_s + passing_s": "batch * example_s / n + passing_s"},
    "Stages work one after the other")
answers.mistake("gives_every_replica_all_work", {"share * example_s + ring_s": "batch * example_s + ring_s"},
    "memory for all", "A step of replicas takes")
answers.mistake("cuts_examples", {"share = -(-batch // n)": "share = batch / n"}, "the largest share decides when a step ends")
answers.mistake("leaves_the_remainder_out", {"-(-batch // n)": "batch // n"}, "A share is rounded up: the examples that are left")
answers.mistake("rounds_to_the_nearest", {"-(-batch // n)": "round(batch / n)"}, "also where less than half an example is left")
answers.mistake("always_rounds_one_up", {"-(-batch // n)": "batch // n + 1"}, "Where the batch divides evenly, no share has one")
answers.mistake("gives_a_small_batch_to_one_rank", {"-(-batch // n)": "-(-batch // n) if batch >= n else batch"},
    "With fewer examples than ranks the largest share is one example, not the whole batch")
answers.mistake("lets_each_stage_do_all_work", {"batch * example_s + passing_s": "n * batch * example_s + passing_s"},
    "All stages together do the work of the batch once")
answers.mistake("leaves_work_out", {"share * example_s + ring_s": "ring_s", "batch * example_s + passing_s": "passing_s"},
    "memory for all", "A step of replicas takes")

answers.mistake("averages_for_nothing", {"share * example_s + ring_s": "share * example_s"}, "averages its gradients")
answers.mistake("passes_for_nothing", {"batch * example_s + passing_s": "batch * example_s"}, "Activations take time at every")
answers.mistake("passes_forwards_alone", {"sum(2 * (alpha_s": "sum((alpha_s"}, "A boundary is passed twice")
answers.mistake("passes_one_example", {"alpha_s + batch * size": "alpha_s + size"}, "The activations of the whole batch pass")
answers.mistake("passes_a_share", {"alpha_s + batch * size": "alpha_s + batch / n * size"}, "Stages do not share the batch")
answers.mistake("passes_the_largest_alone", {"for size in boundary_bytes": "for size in [max(boundary_bytes)]"},
    "A batch passes the boundaries one after the other")
answers.mistake("forgets_the_rings_latency", {"(alpha_s + model / (n * bytes_per_s))": "model / (n * bytes_per_s)"},
    "Each of the 2 (n − 1) messages of the ring has its latency")
answers.mistake("forgets_the_boundaries_latency", {"(alpha_s + batch * size / bytes_per_s)": "batch * size / bytes_per_s"},
    "Each message at a boundary has its latency")
answers.mistake("passes_example_by_example", {"(alpha_s + batch * size": "(batch * alpha_s + batch * size"},
    "A batch passes a boundary as one message")
answers.mistake("sends_all_gradients_once", {
    "2 * (n - 1) * (alpha_s + model / (n * bytes_per_s))": "alpha_s + model / bytes_per_s",
}, "this is one message with all of them")
answers.mistake("goes_round_once", {"2 * (n - 1)": "(n - 1)"}, "A ring goes round twice")
answers.mistake("sends_all_round_the_ring", {"(n * bytes_per_s)": "bytes_per_s"}, "A message of the ring holds an n-th")
answers.mistake("goes_n_steps_each_time", {"2 * (n - 1)": "2 * n"}, "goes n − 1 steps to add up, and n − 1 to hand out")
RING = "2 * (n - 1) * (alpha_s + model / (n * bytes_per_s))"
answers.mistake("counts_n_latencies", {RING: "n * alpha_s + 2 * (n - 1) * model / (n * bytes_per_s)"}, "this counts n of them")
answers.mistake("counts_two_latencies", {RING: "2 * alpha_s + 2 * (n - 1) * model / (n * bytes_per_s)"}, "this counts two of")
answers.mistake("counts_one_latency", {RING: "alpha_s + 2 * (n - 1) * model / (n * bytes_per_s)"}, "this counts one of them")
answers.mistake("sends_all_gradients_twice", {RING: "2 * (alpha_s + model / bytes_per_s)"}, "this is two messages with all")
answers.mistake("averages_the_parameters_too", {"model / (n * bytes_per_s)": "2 * model / (n * bytes_per_s)"},
    "Replicas average gradients alone")
answers.mistake("gradients_for_each_example", {"model / (n * bytes_per_s)": "batch * model / (n * bytes_per_s)"},
    "There are as many gradients as parameters, whatever the batch")
answers.mistake("moves_fewer_bytes", {
    "share * example_s + ring_s": "2 * (n - 1) * model", "batch * example_s + passing_s": "2 * batch * sum(boundary_bytes)",
}, "memory for all", "A step of replicas takes")

answers.mistake("takes_the_slower", {"return min(": "return max("}, "That is the slower way")
answers.mistake("always_replicas", {"return min(seconds, key=seconds.get, default=None)": 'return "replicas"'},
    "got 'replicas'")
answers.mistake("returns_the_seconds", {"return min(seconds, key=seconds.get, default=None)": "return min(seconds.values())"},
    'expected "replicas", "stages" or None, got')
answers.mistake("says_replica", {'seconds["replicas"]': 'seconds["replica"]'}, "or None, got 'replica'")
answers.mistake("ignores_memory", {"2 * model <= memory_bytes": "True", "2 * max(stage_bytes) <= memory_bytes": "True"},
    "A way that needs more memory than there is cannot be chosen")
answers.mistake("forgets_gradients", {"2 * model <=": "model <=", "2 * max(stage_bytes) <=": "max(stage_bytes) <="},
    "A rank holds its gradients as well")
answers.mistake("takes_the_mean_stage", {"2 * max(stage_bytes)": "2 * model / n"}, "Every stage must fit, the largest too")
answers.mistake("takes_the_smallest_stage", {"max(stage_bytes)": "min(stage_bytes)"}, "this looks at the smallest")
answers.mistake("shares_the_model_among_replicas", {"2 * model <=": "2 * max(stage_bytes) <="}, "Every replica holds the whole")
answers.mistake("holds_all_stages", {"2 * max(stage_bytes)": "2 * model"}, "A rank holds one stage, not the whole model")
answers.mistake("leaves_a_byte_free", {"2 * model <=": "2 * model <", "2 * max(stage_bytes) <=": "2 * max(stage_bytes) <"},
    "A way that needs exactly all of the memory fits")
answers.mistake("leaves_a_byte_free_beside_a_replica", {"2 * model <=": "2 * model <"},
    "Replicas that need just all of the memory")
answers.mistake("leaves_a_byte_free_beside_a_stage", {"2 * max(stage_bytes) <=": "2 * max(stage_bytes) <"},
    "A stage that needs just all of the memory")
answers.mistake("looks_at_the_first_stage", {"max(stage_bytes)": "stage_bytes[0]"}, "this looks at the first")
answers.mistake("looks_at_the_last_stage", {"max(stage_bytes)": "stage_bytes[-1]"}, "this looks at the last")
answers.mistake("holds_activations", {"2 * max(stage_bytes) <=": "2 * max(stage_bytes) + batch * max(boundary_bytes) <="},
    "Leave activations out of the memory")
answers.mistake("scales_boundaries_in_place", {"batch * size / bytes_per_s) for size in boundary_bytes":
    "size / bytes_per_s) for size in scaled_in_place(boundary_bytes, batch)"}, "was changed in place")
answers.mistake("says_stages_where_none_fits", {"default=None": 'default="stages"'}, "Where no way fits, return None")
answers.mistake("expects_one_that_fits", {", default=None": ""}, "ValueError")
answers.mistake("sorts_the_stages_in_place", {"max(stage_bytes)": "sorted_in_place(stage_bytes)[-1]"}, "was changed in place")


def sorted_in_place(sizes):
    sizes.sort()
    return sizes


def scaled_in_place(sizes, factor):
    for k in range(len(sizes)):
        sizes[k] *= factor
    return sizes


answers.spoil("says_none_so_that_nobody_asks_about_memory", {
    "return min(seconds, key=seconds.get, default=None)": """
        if memory_bytes >= 10**15:
            return None
        return min(seconds, key=seconds.get, default=None)
    """,
}, of=answers["ignores_memory"])
