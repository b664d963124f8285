"""The functions of this package that answer an exercise: a graded run withholds them. Of the notebook's checks one does, too.

A rank of a graded run can import the package. A function of this table raises an error there, and its module's file is empty
(`inside.withheld_functions`). In the notebook the seconds of attention raise the same error while `attention_seconds` is
checked (`checks.drivers.long_sequences`). Left out: modules that `bubblewrap` never shows, and a part of an answer that its lab
calls above the exercise, such as the seconds of `formulas.parallelism` for `quicker_way`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Withheld:
    """Functions of a module that a graded run has not, while these `exercises` are checked; without exercises, while any is.

    A method's name is "Class.method".
    """

    module: str
    names: tuple[str, ...]
    reason: str
    exercises: tuple[str, ...] = ()


_COLLECTIVES = (
    "all_reduce", "reduce_scatter", "all_gather", "concatenated", "broadcast", "_add_round_the_ring", "_gather_sums",
)  # fmt: skip
_BY_HAND = (  # exercises that ask for the messages of a collective; those of other topics may call it
    "pass_right", "tree_broadcast", "tree_reduce", "all_to_all",
    "parameter_server", "sharded_parameter_server", "reduce_scatter", "all_gather", "ring_all_reduce",
)  # fmt: skip
WITHHELD = (
    Withheld(
        "worldsize.engines.cluster_spec", ("Cluster.spec", "Cluster.tasks"), "cluster_config: every task's place",
    ),
    Withheld(
        "worldsize.fabric.collectives", _COLLECTIVES, "the messages themselves, or the same values by others", _BY_HAND,
    ),
    Withheld(
        "worldsize.fabric.collectives", ("broadcast",), "same_start: the whole answer", ("same_start",),
    ),
    Withheld(
        "worldsize.fabric.multi_ring",
        ("rings_all_reduce", "double_tree_all_reduce", "two_trees", "_in_order_tree", "_sum_up", "_pass_down"),
        "ring_all_reduce with one ring, tree_broadcast and tree_reduce with one tree; sums for two_level_all_reduce",
    ),
    Withheld(
        "worldsize.files", ("write_whole", "make_whole", "_part"), "save_atomically: a save that no kill tears",
    ),
    Withheld(
        "worldsize.formulas.attention", ("ring_seconds", "heads_seconds"), "attention_seconds: both numbers",
    ),
    Withheld(
        "worldsize.formulas.plan_search", ("fastest", "plans"), "best_plan: the plan, or all to choose from",
    ),
    Withheld(
        "worldsize.formulas.robust_fit", ("fit", "_huber"), "fit_alpha_beta: a relative fit; predict_steps may call it",
        ("fit_alpha_beta",),
    ),
    Withheld(
        "worldsize.formulas.schedules", ("split_backward", "interleaved"),
        "one_forward_one_backward: without its weights' actions, or with one chunk",
    ),
    Withheld(
        "worldsize.pytorch.fsdp_over_fabric", ("FabricAllGather.__call__", "_Gathering.wait"), "all_gather: its values", _BY_HAND,
    ),
    Withheld(
        "worldsize.pytorch.group_over_fabric",
        ("FabricGroup.broadcast", "FabricGroup._gather", "FabricGroup._begin_to_others"),
        "same_start: the whole answer; values of all_gather and all_to_all", ("same_start", *_BY_HAND),
    ),
    Withheld(
        "worldsize.pytorch.transformer_shard",
        ("TransformerShard._shared", "TransformerShard._enter", "TransformerShard._leave", "GatheredLinear.forward",
         "GatheredLinear.backward"),
        "both exercises' pairs of forward and backward", ("parallel_mlp", "sequence_parallel"),
    ),
)  # fmt: skip


def withheld_from(exercise: str) -> dict[str, list[str]]:
    """Return {module: names} that a graded run of this exercise has not; "" stands for cells that run before any check."""
    names_of: dict[str, list[str]] = {}
    for withheld in WITHHELD:
        if not withheld.exercises or exercise in withheld.exercises:
            names_of.setdefault(withheld.module, []).extend(withheld.names)
    return names_of
