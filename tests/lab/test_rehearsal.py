"""Which answers to exercise 16.3 may be sealed: judged by the 26 rows whose seconds are open."""

import pytest

from tests.checks.mutants import predict_steps as mutants
from worldsize import data
from worldsize.lab.rehearsal import rehearsed

ROWS = [vars(row) for row in data.measured_iterations("multi")]
FEW = [row for row in ROWS if row["gpus"] == 64]
SINGLE = [vars(row) for row in data.measured_iterations("single")]
ASKED = FEW + [row for row in ROWS if row["gpus"] > 64]
KNOWN = [row["iteration_s"] if row["gpus"] == 64 else None for row in ASKED]
UNSEEN = [{key: value for key, value in row.items() if key != "iteration_s"} for row in ASKED]

HELD_BACK = {
    "one_share_of_the_peak",
    "no_interval",
    "twice_as_long_or_half",
    "an_interval_of_the_mean",
    "middles_alone",
    "in_milliseconds",
    "leaves_out_what_it_was_fitted_to",
    "no_bytes_over_the_network",
    "no_tensor_messages",
    "every_constant_from_the_node",
    "gradients_in_each_layer_turn",
    "every_stage_has_all_layers",
    "a_micro_batch_is_one_sequence",
}


@pytest.mark.parametrize("fn", mutants.answers.right)
def test_a_right_answer_may_be_sealed(fn):
    assert rehearsed(fn(FEW, SINGLE, UNSEEN), KNOWN).complaint is None


@pytest.mark.parametrize("fn", [fn for fn, _, _ in mutants.answers.wrong])
def test_a_wrong_answer_is_held_back_where_the_open_rows_can_tell(fn):
    assert (rehearsed(fn(FEW, SINGLE, UNSEEN), KNOWN).complaint is not None) == (fn.__name__ in HELD_BACK)
