"""Lab 01: the bytes that a training step needs."""

import math

import numpy as np

from tests.checks.mutants import Answers

answers = Answers("training_bytes")


def parts(count, kept, weight_bytes, optimizer_bytes):
    return {
        "weights": count * weight_bytes,
        "gradients": count * weight_bytes,
        "optimizer": count * optimizer_bytes,
        "activations": kept,
    }


def numbers(shapes):
    return sum(math.prod(shape) for shape in shapes)


def kept_bytes(saved):
    return sum(math.prod(shape) * width for shape, width in saved)


@answers.is_right
def plain(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    count = sum(math.prod(shape) for shape in weights)
    kept = batch * sum(math.prod(shape) * width for shape, width in saved)
    return parts(count, kept, weight_bytes, optimizer_bytes)


@answers.is_right
def counts_with_numpy(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    count = sum(np.prod(shape, dtype=np.int64) for shape in weights)
    kept = sum(np.prod((batch, *shape), dtype=np.int64) * width for shape, width in saved)
    return parts(count, kept, weight_bytes, optimizer_bytes)


@answers.is_right
def measures_meta_tensors(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    import torch

    count = sum(torch.empty(shape, device="meta").numel() for shape in weights)
    kept = sum(batch * torch.empty(shape, device="meta").numel() * width for shape, width in saved)
    return parts(float(count), float(kept), weight_bytes, optimizer_bytes)


@answers.is_right
def adds_up_in_loops(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    found = dict.fromkeys(("activations", "optimizer", "gradients", "weights"), 0)
    for shape in weights:
        size = 1
        for length in shape:
            size *= length
        found["weights"] += size * weight_bytes
        found["gradients"] += size * weight_bytes
        found["optimizer"] += size * optimizer_bytes
    for shape, width in saved:
        found["activations"] += batch * width * math.prod(shape)
    return found


@answers.is_right
def returns_tensors(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    import torch

    found = parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes)
    return {part: torch.tensor(size) for part, size in found.items()}


answers.mistake("forgets_the_gradients", {
    "parts(count, kept, weight_bytes, optimizer_bytes)":
        'parts(count, kept, weight_bytes, optimizer_bytes) | {"gradients": 0}',
}, '"gradients"', "It is 0: has this part been left out?")
answers.mistake("forgets_the_batch", {"batch * sum": "sum"},
    '"activations"', "It is for one example; the step has a whole batch")
answers.mistake("a_copy_of_the_weights_for_each_image", {"count = sum": "count = batch * sum"},
    '"weights"', "Weights do not grow with the batch")
answers.mistake("takes_every_activation_for_four_bytes", {" * width": " * 4"},
    '"activations"', "Every number was counted as 4 bytes; saved says how many each has")
answers.mistake("takes_every_weight_for_four_bytes", {"kept, weight_bytes": "kept, 4"},
    "mixed precision", '"weights"', "Every weight was counted as 4 bytes; use weight_bytes")
answers.mistake("multiplies_the_optimizers_bytes",
    {"kept, weight_bytes, optimizer_bytes": "kept, weight_bytes, optimizer_bytes * weight_bytes"},
    '"optimizer"', "optimizer_bytes is already per parameter: do not multiply it by weight_bytes")
answers.mistake("always_takes_adam", {"kept, weight_bytes, optimizer_bytes": "kept, weight_bytes, 8"},
    "mixed precision", '"optimizer"', "Adam's 8 bytes were taken; use optimizer_bytes")
answers.mistake("adds_dimensions_up", {"math.prod(shape) for": "sum(shape) for"},
    '"weights"', "Dimensions were added up")
answers.mistake("forgets_the_biases", {"for shape in weights": "for shape in weights if len(shape) > 1"},
    '"weights"', "Vectors were left out; a bias has numbers too")
answers.mistake("counts_numbers", {"kept, weight_bytes": "kept, 1"}, '"weights"', "These are numbers, not bytes")
answers.mistake("returns_the_sum", {
    "parts(count, kept, weight_bytes, optimizer_bytes)":
        "sum(parts(count, kept, weight_bytes, optimizer_bytes).values())",
}, 'expected a dict with "weights", "gradients", "optimizer", "activations", got the number')
answers.mistake("has_no_optimizer", {
    "return parts(count, kept, weight_bytes, optimizer_bytes)": """
        found = parts(count, kept, weight_bytes, optimizer_bytes)
        del found["optimizer"]
        return found
    """,
}, 'the dict has no "optimizer"')


answers.mistake("takes_no_optimizer_for_not_given",
    {"kept, weight_bytes, optimizer_bytes": "kept, weight_bytes, optimizer_bytes or 8"},
    "plain SGD", '"optimizer"')
answers.mistake("counts_what_has_no_shape_once",
    {"batch * sum(math.prod(shape) * width": "sum((batch if shape else 1) * math.prod(shape) * width"},
    '"activations"', "arrays of these shapes have")
answers.mistake("counts_in_32_bits", {
    "sum(math.prod(shape) for shape in weights)":
        "int(np.sum([np.prod(shape, dtype=np.int32) for shape in weights], dtype=np.int32))",
}, "billions of weights", '"weights"')
answers.mistake("keeps_gradients_in_float32", {
    "parts(count, kept, weight_bytes, optimizer_bytes)":
        'parts(count, kept, weight_bytes, optimizer_bytes) | {"gradients": 4 * count}',
}, "mixed precision", '"gradients"', "Every weight was counted as 4 bytes; use weight_bytes")


answers.mistake("adds_a_total", {
    "return parts(count, kept, weight_bytes, optimizer_bytes)": """
        found = parts(count, kept, weight_bytes, optimizer_bytes)
        return {**found, "total": sum(found.values())}
    """,
}, "the dict also has 'total'; the lab adds up all its entries: return only the four parts")
answers.mistake("returns_rows_of_one", {"torch.tensor(size)": "torch.tensor([size])"},
    '"weights": expected bytes, one number, got a tensor of shape [1] with the number in it', of=returns_tensors)
answers.mistake("counts_in_float32", {
    "sum(math.prod(shape) for shape in weights)": "np.sum([math.prod(shape) for shape in weights], dtype=np.float32)",
}, "billions of weights", '"weights"', "arrays of these shapes have")
answers.mistake("empties_the_callers_weights", {
    "count = sum(math.prod(shape) for shape in weights)": "count = sum(math.prod(weights.pop()) for _ in range(len(weights)))",
}, "weights was changed in place: the caller still needs it unchanged")
answers.mistake("empties_what_the_caller_has_saved", {
    "return parts": "saved.clear()\nreturn parts",
}, "saved was changed in place: the caller still needs it unchanged")


def counts_four_and_eight_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * 4 * numbers(shape for shape, _ in saved), 4, 8)


answers.spoil("counts_four_and_eight_bytes_and_no_weights", {", 4, 8)": ', 4, 8) | {"weights": 0}'},
    of=counts_four_and_eight_bytes)
answers.spoil("returns_a_number_where_it_counts_wrong", {
    "return parts": "if not all(shape for shape, _ in saved):\n    return 0\nreturn parts",
}, of=answers["counts_what_has_no_shape_once"])
