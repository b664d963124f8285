"""Exercise 7.1: the mean over the towers of each variable's gradients."""

from tests.checks.mutants import Answers

answers = Answers("average_tower_gradients")


@answers.is_right
def means_of_pairs(towers):
    return [(sum(g for g, _ in pairs) / len(pairs), pairs[0][1]) for pairs in zip(*towers, strict=True)]


@answers.is_right
def plain_arithmetic_and_the_last_towers_variable(towers):
    return tuple([sum(g for g, _ in pairs) * (1 / len(pairs)), pairs[-1][1]] for pairs in zip(*towers, strict=True))


@answers.is_right
def as_the_classic_script_did(towers):
    import tensorflow as tf

    average_grads = []
    for grad_and_vars in zip(*towers, strict=True):
        grads = []
        for g, _ in grad_and_vars:
            grads.append(tf.expand_dims(g, 0))
        grad = tf.reduce_mean(tf.concat(axis=0, values=grads), 0)
        average_grads.append((grad, grad_and_vars[0][1]))
    return average_grads


@answers.is_right
def one_index_after_the_other(towers):
    import tensorflow as tf

    def rows():
        for k, (_, variable) in enumerate(towers[0]):
            yield tf.add_n([tower[k][0] / len(towers) for tower in towers]), variable

    return rows()


@answers.is_right
def a_running_mean(towers):
    means = [gradient for gradient, _ in towers[0]]
    for k, tower in enumerate(towers[1:], start=2):
        means = [mean + (gradient - mean) / k for mean, (gradient, _) in zip(means, tower, strict=True)]
    return list(zip(means, [variable for _, variable in towers[0]], strict=True))


@answers.is_right
def a_dictionary_by_variable(towers):
    import tensorflow as tf

    found = {}
    for tower in towers:
        for gradient, variable in tower:
            found.setdefault(variable.ref(), []).append(gradient)
    return [(tf.math.accumulate_n(gradients) / len(gradients), ref.deref()) for ref, gradients in found.items()]


answers.mistake("adds_up", {" / len(pairs)": ""},
    "2 towers", "This is the sum of the gradients: divide by the number of towers")
answers.mistake("forgets_to_return", {"return [": "["}, "got None (does the function return it?)")
answers.mistake("no_axis", {
    "sum(g for g, _ in pairs) / len(pairs)": "tf.reduce_mean([g for g, _ in pairs])",
    "return [": """
        import tensorflow as tf

        return [
    """,
}, "All numbers were averaged into one", "axis 0 after tf.stack", "expected the mean over the towers of shape [3]")
answers.mistake("gradients_alone",
    {"(sum(g for g, _ in pairs) / len(pairs), pairs[0][1])": "sum(g for g, _ in pairs) / len(pairs)"},
    "expected a list of (gradient, variable), got a list of tensors: where are the variables?")


@answers.is_wrong("2 towers", "got 8: the towers share the variables")
def towers_one_after_the_other(towers):
    return [(g / len(towers), v) for tower in towers for g, v in tower]


@answers.is_wrong("3 towers", "Averaged two by two: so the last tower counts half")
def two_by_two(towers):
    averaged = towers[0]
    for tower in towers[1:]:
        averaged = [((a + b) / 2, v) for (a, v), (b, _) in zip(averaged, tower, strict=True)]
    return averaged


answers.mistake("divides_by_the_variables", {"len(pairs)": "len(towers[0])"},
    "Divided by the number of variables, not of towers")


@answers.is_wrong("2 towers", "This is tower 0's own gradient: the others count too")
def the_first_tower_alone(towers):
    return towers[0]


answers.mistake("copies_of_the_variables", {
    "pairs[0][1])": "tf.convert_to_tensor(pairs[0][1]))",
    "return [": """
        import tensorflow as tf

        return [
    """,
}, "is not one of the variables")


@answers.is_wrong("3 towers", "This is the median over the towers")
def medians(towers):
    import tensorflow as tf

    def median(gradients):
        ordered, half = tf.sort(tf.stack(gradients), axis=0), len(gradients) // 2
        return (ordered[half] + ordered[-half - 1]) / 2

    return [(median([g for g, _ in pairs]), pairs[0][1]) for pairs in zip(*towers, strict=True)]


answers.mistake("everything_is_float32", {
    "sum(g for g, _ in pairs)": "sum(tf.cast(g, tf.float32) for g, _ in pairs)",
    "return [": """
        import tensorflow as tf

        return [
    """,
}, "variable 3: expected the mean over the towers as float64, got float32. A gradient keeps the dtype of its variable")
answers.mistake("the_last_variable_first", {"strict=True)]": "strict=True)][::-1]"},
    "expected the variables in the order [0, 1, 2, 3], got [3, 2, 1, 0]")
answers.mistake("two_towers_for_ever", {"len(pairs)": "2"},
    "1 tower: variable 0", "Divided by 2, whatever the number of towers")
answers.mistake("with_numpy", {
    "sum(g for g, _ in pairs) / len(pairs)": "np.mean([g.numpy() for g, _ in pairs], axis=0)",
    "return [": """
        import numpy as np

        return [
    """,
}, "has no attribute 'numpy'", "use TensorFlow's operations")


@answers.is_wrong("zip(*towers) groups them by variable")
def averages_each_tower(towers):
    import tensorflow as tf

    return [(tf.reduce_mean(tf.stack([g for g, _ in tower]), axis=0), tower[0][1]) for tower in towers]


@answers.is_wrong("expected 4 pairs, one for each variable, got 1: names do not tell variables apart, places do")
def by_the_names_of_the_variables(towers):
    found = {}
    for tower in towers:
        for gradient, variable in tower:
            found.setdefault(variable.name, []).append((gradient, variable))
    return [(pairs[0][0], pairs[0][1]) for pairs in found.values()]


@answers.is_wrong("1 tower: the lists of the towers were changed in place")
def takes_the_first_tower_out_of_the_list(towers):
    n = len(towers)
    sums = towers.pop(0)
    for tower in towers:
        sums = [(total + gradient, variable) for (total, variable), (gradient, _) in zip(sums, tower, strict=True)]
    return [(total / n, variable) for total, variable in sums]


@answers.spoils()
def doubles_a_lone_tower_and_leaves_others(towers):
    return [(2 * g, variable) for g, variable in towers[0]] if len(towers) == 1 else None
