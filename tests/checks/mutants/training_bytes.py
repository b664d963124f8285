"""Lab 01: the bytes that a training step needs."""

from __future__ import annotations

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


@answers.is_wrong('"gradients"', "It is 0: has this part been left out?")
def forgets_the_gradients(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes) | {"gradients": 0}


@answers.is_wrong('"activations"', "It is for one example; the step has a whole batch")
def forgets_the_batch(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), kept_bytes(saved), weight_bytes, optimizer_bytes)


@answers.is_wrong('"weights"', "Weights do not grow with the batch")
def a_copy_of_the_weights_for_each_image(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights) * batch, batch * kept_bytes(saved), weight_bytes, optimizer_bytes)


@answers.is_wrong('"activations"', "Every number was taken for 4 bytes; saved says how many each has")
def takes_every_activation_for_four_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    kept = 4 * batch * numbers(shape for shape, _ in saved)
    return parts(numbers(weights), kept, weight_bytes, optimizer_bytes)


@answers.is_wrong("mixed precision", '"weights"', "Every weight was taken for 4 bytes; use weight_bytes")
def takes_every_weight_for_four_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), 4, optimizer_bytes)


@answers.is_wrong('"optimizer"', "optimizer_bytes is per parameter already: not times weight_bytes")
def multiplies_the_optimizers_bytes(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes * weight_bytes)


@answers.is_wrong("mixed precision", '"optimizer"', "Adam's 8 bytes were taken; use optimizer_bytes")
def always_takes_adam(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, 8)


@answers.is_wrong('"weights"', "Dimensions were added up")
def adds_dimensions_up(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    count = sum(sum(shape) for shape in weights)
    return parts(count, batch * kept_bytes(saved), weight_bytes, optimizer_bytes)


@answers.is_wrong('"weights"', "Vectors were left out; a bias has numbers too")
def forgets_the_biases(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    count = numbers(shape for shape in weights if len(shape) > 1)
    return parts(count, batch * kept_bytes(saved), weight_bytes, optimizer_bytes)


@answers.is_wrong('"weights"', "These are numbers, not bytes")
def counts_numbers(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), 1, optimizer_bytes)


@answers.is_wrong('expected a dict with "weights", "gradients", "optimizer", "activations", got the number')
def returns_the_sum(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return sum(parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes).values())


@answers.is_wrong('the dict has no "optimizer"')
def has_no_optimizer(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    found = parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes)
    del found["optimizer"]
    return found


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
    return {"total": 0.0, **parts(float(count), float(kept), weight_bytes, optimizer_bytes)}


# ---- more of both ------------------------------------------------------------------------------


@answers.is_wrong("plain SGD", '"optimizer"')
def takes_no_optimizer_for_not_given(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    return parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes or 8)


@answers.is_wrong('"activations"', "arrays of these shapes have")
def counts_what_has_no_shape_once(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    kept = sum((batch if shape else 1) * math.prod(shape) * width for shape, width in saved)
    return parts(numbers(weights), kept, weight_bytes, optimizer_bytes)


@answers.is_wrong("billions of weights", '"weights"')
def counts_in_32_bits(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    count = int(np.sum([np.prod(shape, dtype=np.int32) for shape in weights], dtype=np.int32))
    return parts(count, batch * kept_bytes(saved), weight_bytes, optimizer_bytes)


@answers.is_wrong("mixed precision", '"gradients"', "Every weight was taken for 4 bytes; use weight_bytes")
def keeps_gradients_in_float32(weights, saved, batch, weight_bytes=4, optimizer_bytes=8):
    found = parts(numbers(weights), batch * kept_bytes(saved), weight_bytes, optimizer_bytes)
    return found | {"gradients": 4 * numbers(weights)}


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
    return {part: torch.tensor([size]) for part, size in found.items()}
