"""Scripts as TensorFlow's guides have them: a `TF_CONFIG` by hand, graphs that fail, and what they leave behind."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.support.processes import LONG_S
from worldsize.engines.cluster_spec import corrected_tf_config
from worldsize.errors import RankFailed
from worldsize.tf import Cluster, launch


def config(index: int, **cluster: list[str]) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})


TWO = config(0, worker=["localhost:12345", "localhost:23456"])
OWN = config(1, worker=["127.0.0.1:4001", "127.0.0.1:4002"])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "own", "read"),
    [
        (TWO, OWN, OWN),
        (OWN, OWN, OWN),
        (config(0, worker=["localhost:1"]), "", config(0, worker=["localhost:1"])),
        (config(0, worker=["n1:1", "n2:1"]), "", config(0, worker=["n1:1", "n2:1"])),
        ("no JSON", OWN, "no JSON"),
        ("", "", ""),
    ],
)
def test_a_tf_config_by_hand_means_the_launchs_tasks(text, own, read):
    assert corrected_tf_config(text, own) == read


@pytest.mark.quick
@pytest.mark.parametrize("own", ["", config(0, worker=["127.0.0.1:1"], chief=["127.0.0.1:2"])])
def test_tasks_that_nobody_starts_are_refused_with_the_launch_that_does(own):
    with pytest.raises(ValueError, match=r"nobody starts \(worker=2\).*cluster=Cluster\(worker=2\)"):
        corrected_tf_config(TWO, own)


def test_the_guides_tf_config_runs_as_a_cluster_and_is_refused_alone():
    def train():
        os.environ["TF_CONFIG"] = TWO
        import tensorflow as tf

        return tf.distribute.MultiWorkerMirroredStrategy().num_replicas_in_sync

    assert launch(train, cluster=Cluster(worker=2)).results == [2, 2]
    with pytest.raises(RankFailed, match="TF_CONFIG was set in the function, for tasks that nobody starts"):
        launch(train, timeout_s=LONG_S)


def test_a_graphs_error_keeps_its_message_and_leaves_no_file():
    def compare():
        import tensorflow as tf

        @tf.function
        def less(x):
            tf.debugging.assert_less(x, 0.0, message="the loss is not finite: step 17")
            return x

        less(tf.constant(1.0))

    before = {*Path(tempfile.gettempdir()).glob("__autograph_generated_file*")}
    with pytest.raises(RankFailed, match="the loss is not finite: step 17") as failed:
        launch(compare)
    assert "forkserver" not in str(failed.value)
    assert not {*Path(tempfile.gettempdir()).glob("__autograph_generated_file*")} - before
