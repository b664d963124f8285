"""What the processes of a TensorFlow cluster are told."""

import pytest

from worldsize.engines.cluster_spec import Cluster, fail_fast

pytestmark = pytest.mark.quick

COORDINATED = Cluster(chief=1, worker=2, ps=1)


def test_a_call_to_a_lost_server_fails_at_once_where_a_chief_coordinates_servers() -> None:
    assert fail_fast(COORDINATED, ("worker", "ps")) == {"GRPC_FAIL_FAST": "use_caller"}  # TensorFlow's guide to fault tolerance


@pytest.mark.parametrize(
    ("cluster", "servers"), [(COORDINATED, ("ps",)), (COORDINATED, ()), (Cluster(worker=2), ("worker", "ps"))]
)
def test_elsewhere_a_call_waits_for_tasks_that_start_later(cluster: Cluster, servers: tuple[str, ...]) -> None:
    assert fail_fast(cluster, servers) == {}
