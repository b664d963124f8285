"""Exercise 9.2: a worker's share of every global batch."""

from tests.checks.mutants import Answers
from tests.checks.mutants._later import Later

tf = Later("tensorflow")
answers = Answers("worker_share")


@answers.is_right
def every_other_example(dataset, global_batch, workers, index):
    batches = dataset.batch(global_batch, drop_remainder=True)
    return batches.map(lambda x, y: (x[index::workers], y[index::workers]))


@answers.is_right
def windows_of_small_batches(dataset, global_batch, workers, index):
    small = dataset.batch(global_batch, drop_remainder=True).unbatch().batch(global_batch // workers)
    return small.shard(workers, index).prefetch(1)


@answers.is_right
def contiguous_slices(dataset, global_batch, workers, index):
    part = global_batch // workers
    cut = slice(index * part, (index + 1) * part)
    return dataset.batch(global_batch, drop_remainder=True).map(lambda x, y: (x[cut], y[cut]))


@answers.is_right
def drops_before_it_shards(dataset, global_batch, workers, index):
    whole = dataset.batch(global_batch, drop_remainder=True).unbatch()
    return whole.shard(workers, index).batch(global_batch // workers)


@answers.is_right
def reshapes_by_worker(dataset, global_batch, workers, index):
    def part(*arrays):
        return tuple(array[index * (global_batch // workers) :][: global_batch // workers] for array in arrays)

    return dataset.batch(global_batch, drop_remainder=True).map(part).prefetch(2)


@answers.is_right
def splits_and_takes_from_the_end(dataset, global_batch, workers, index):
    def part(x, y):
        return tf.split(x, workers)[-1 - index], tf.split(y, workers)[-1 - index]

    return dataset.batch(global_batch, drop_remainder=True).map(part)


@answers.is_right
def batches_again(dataset, global_batch, workers, index):
    return dataset.batch(global_batch, drop_remainder=True).rebatch(global_batch // workers).shard(workers, index)


@answers.is_right
def filters_by_number(dataset, global_batch, workers, index):
    whole = dataset.batch(global_batch, drop_remainder=True).unbatch().enumerate()
    own = whole.filter(lambda number, pair: number % workers == index)
    return own.map(lambda number, pair: pair).batch(global_batch // workers)


@answers.is_wrong("Does every worker go through all examples?")
def no_sharding_at_all(dataset, global_batch, workers, index):
    return dataset.batch(global_batch // workers, drop_remainder=True)


answers.mistake("everybody_takes_the_whole_batch",
    {"return batches.map(lambda x, y: (x[index::workers], y[index::workers]))": "return batches"},
    "Example 0 is taken several times")


@answers.is_wrong("global_batch is for all workers together")
def batches_of_the_global_size_for_each(dataset, global_batch, workers, index):
    return dataset.shard(workers, index).batch(global_batch, drop_remainder=True)


@answers.is_wrong("11 examples", "in its last step worker 0 would wait for ever")
def one_step_more_for_the_first(dataset, global_batch, workers, index):
    return dataset.shard(workers, index).batch(global_batch // workers, drop_remainder=True)


answers.mistake("keeps_what_is_left", {
    "dataset.batch(global_batch, drop_remainder=True).unbatch()": "int(dataset.cardinality()) // workers * workers",
    "whole.shard": "dataset.take(whole).shard",
}, "The last global batch is incomplete: leave it out", "11 examples", of=drops_before_it_shards)


@answers.is_wrong("expected examples 0 to ", "Cut global batches first")
def halves_of_the_data(dataset, global_batch, workers, index):
    steps = int(dataset.cardinality()) // global_batch
    part = global_batch // workers
    return dataset.skip(index * steps * part).take(steps * part).batch(part)


@answers.is_wrong("Cut global batches first, then share each one out; do not shuffle here", chance=True)
def shuffles(dataset, global_batch, workers, index):
    count = int(dataset.cardinality()) // global_batch * global_batch
    mixed = dataset.take(count).shuffle(100, seed=3, reshuffle_each_iteration=False)
    return mixed.shard(workers, index).batch(global_batch // workers)


@answers.is_wrong("got a single example, expected a batch")
def never_batches(dataset, global_batch, workers, index):
    count = int(dataset.cardinality()) // global_batch * global_batch
    return dataset.take(count).shard(workers, index)


@answers.is_wrong("worker 0: expected a tf.data.Dataset, got None (does the function return it?)")
def returns_nothing(dataset, global_batch, workers, index):
    dataset.shard(workers, index).batch(global_batch // workers)


@answers.is_wrong("of unknown length", "cardinality() is negative", "drop_remainder=True")
def takes_whole_batches_by_cardinality(dataset, global_batch, workers, index):
    count = int(dataset.cardinality()) // global_batch * global_batch
    return dataset.take(count).shard(workers, index).batch(global_batch // workers)


@answers.is_wrong("of unknown length", "len() raises", "drop_remainder=True")
def takes_whole_batches_by_len(dataset, global_batch, workers, index):
    return dataset.take(len(dataset) // global_batch * global_batch).shard(workers, index).batch(global_batch // workers)


@answers.is_wrong("14 examples, global batches of 6, 3 workers", "Example 1 is taken several times")
def two_workers_hard_coded(dataset, global_batch, workers, index):
    half = global_batch // 2
    if workers == 2:
        cut = slice(index * half, (index + 1) * half)
    else:
        cut = slice(index, index + global_batch // workers)
    return dataset.batch(global_batch, drop_remainder=True).map(lambda x, y: (x[cut], y[cut]))


answers.mistake("cuts_the_labels_elsewhere", {
    "(x[cut], y[cut])": "(x[index::workers], y[index * part : (index + 1) * part])",
    "dataset.batch(global_batch, drop_remainder=True)": "batches",
    "cut = slice(index * part, (index + 1) * part)": "batches = dataset.batch(global_batch, drop_remainder=True)",
}, "came with labels", "which are not theirs", of=contiguous_slices)
answers.mistake("whole_batches_in_turn", {
    "return batches.map(lambda x, y: (x[index::workers], y[index::workers]))":
        "return batches.shard(workers, index)",
}, "workers take whole global batches in turn", "cut it, then give each worker a slice")
answers.mistake("takes_a_row_of_each_array_reshaped", {
    "(x[index::workers], y[index::workers])":
        "(tf.reshape(x, [workers, -1])[index], tf.reshape(y, [workers, -1])[index])",
}, "of two features each", "cut along the first dimension, and keep an example's features together")
answers.mistake("knows_three_workers_at_most",
    {"return batches": "workers = min(workers, 3)\nreturn batches"},
    "of two features each", ("is taken several times", "That is more than one global batch"))
answers.mistake("slices_what_is_left_too", {", drop_remainder=True": ""},
    "11 examples", "The last global batch is incomplete: leave it out")
answers.mistake("leaves_the_labels_behind", {"(x[index::workers], y[index::workers])": "x[index::workers]"},
    "expected pairs of examples and labels, as in the data set given, got 1 part")
answers.mistake("ignores_the_index", {"(x[index::workers], y[index::workers])": "(x[::workers], y[::workers])"},
    "Example 0 is taken several times")
answers.mistake("never_ends", {
    "batches.map(lambda x, y: (x[index::workers], y[index::workers]))":
        "batches.map(lambda x, y: (x[index::workers], y[index::workers])).repeat()",
}, "The data set does not end: is there a `repeat` in it?")
answers.mistake("a_slice_that_ends_one_too_early", {"(index + 1) * part": "(index + 1) * part - 1"},
    "No worker takes the rest of the batch", of=contiguous_slices)


@answers.spoils()
def returns_nothing_where_a_batch_is_incomplete(dataset, global_batch, workers, index):
    if int(dataset.cardinality()) % global_batch:
        return None
    return dataset.shard(workers, index).batch(global_batch // workers)
