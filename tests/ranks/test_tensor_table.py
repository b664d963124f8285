"""`world.table` and `world.differ`: tensors of all ranks side by side, and the first one in which ranks differ."""

import pytest
import torch

from worldsize.engines.ranks.tensor_rows import TensorRow
from worldsize.errors import RankFailed
from worldsize.ranks.tensor_table import MOST_RANKS, MOST_ROWS, TensorOnRanks, TensorTable

NET = """\
torch.manual_seed(3)
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
optimizer = torch.optim.Adam(net.parameters())
net(torch.ones(4, 3)).sum().backward()
optimizer.step()
"""


def row(name: str, digest: bytes = b"a", shape=(2,), dtype="float32") -> TensorRow:
    return TensorRow(name, shape, dtype, "cpu", 1.0, digest)


def test_a_model_that_is_the_same_everywhere_has_one_letter_a_row(four):
    four.run(NET)
    found = four.table("net")
    assert found.same and [r.name for r in found.rows] == [
        *torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).state_dict()
    ]
    assert {letter for r in found.rows for letter in r.letters} == {"A"}
    assert four.differ("net").sentence() == "net: 7 tensors, the same on ranks 0, 1, 2, 3"


@pytest.mark.parametrize("changed", [[1], [3], [1, 2]])
def test_the_first_tensor_that_differs_is_named_with_by_how_much(four, changed):
    four.run(NET)
    four.run("with torch.no_grad():\n    net[0].bias += 0.5\n    net[1].weight -= 7", changed)
    found = four.differ("net")
    assert not found.same and found.first_difference.name == "0.bias" and found.difference == pytest.approx(0.5)
    assert found.first_difference.letters == tuple("B" if rank in changed else "A" for rank in range(4))
    assert found.sentence() == "net: 2 of 7 tensors differ between ranks; the first is 0.bias, by at most 0.5"
    assert "0.weight" not in repr(found) and "1.weight" in repr(found) and "0.weight" in repr(four.table("net"))


def test_the_difference_told_is_the_largest_between_any_two_ranks(four):
    four.run("x = torch.tensor([0.0, {1: 0.5, 2: -0.75}.get(rank, 0.0)])")
    assert four.differ("x").difference == 1.25


def test_a_difference_in_the_last_bit_is_one(four):
    four.run("x = torch.ones(5)\nif rank == 2:\n    x[4] = torch.nextafter(x[4], torch.tensor(2.0))")
    assert 0 < four.differ("x").difference < 1e-6


@pytest.mark.parametrize(
    "value",
    ["torch.ones(2, dtype=torch.bfloat16)", "torch.tensor([True])", "torch.ones(2, dtype=torch.complex64).conj()",
     "torch.ones(0)", "torch.tensor(3)", "{'a': [torch.ones(1), (torch.zeros(2),)]}", "torch.ones(4, 4).t()[::2]"],
)  # fmt: skip
def test_any_tensor_can_be_looked_at(four, value):
    assert four.table(value).same and four.differ(value).difference is None


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("[x, y]", ["x", "y"]),
        ("(x, 2 * y)", ["x", "2 * y"]),
        ("[x, x]", ["0", "1"]),
        ("[*both, x]", ["0", "1", "2"]),
        ("both", ["0", "1"]),
        ("[both, y]", ["both.0", "both.1", "y"]),
        ("{'a': x}", ["a"]),
        ("x", ["x"]),
    ],
)
def test_the_tensors_of_a_list_that_is_written_out_have_the_names_that_stand_in_it(four, expression, names):
    four.run("import torch\nx = torch.ones(2)\ny = torch.full((3,), float(rank))\nboth = [x, y]")
    table = four.table(expression)
    assert [row.name for row in table.rows] == names
    if names[-1] == "y":
        assert four.differ(expression).difference == 3


def test_an_optimizer_is_looked_at_by_its_state(four):
    four.run(NET)
    four.run("optimizer.state[net[0].weight]['exp_avg'] += 1", [2])
    assert four.differ("optimizer").first_difference.name == "0.exp_avg"


def test_the_parts_of_a_sharded_tensor_are_those_of_their_rank(four):
    four.run(
        f"{NET}from torch.distributed.fsdp import fully_shard\nsharded = torch.nn.Linear(3, 5)\nfully_shard(sharded)"
    )
    weight = four.table("sharded").rows[0]
    assert [r.shape for r in weight.by_rank] == [(2, 3), (2, 3), (1, 3), (0, 3)]
    assert "of (5, 3)" in weight.words()[0]
    assert four.differ("sharded").sentence().endswith("nothing to compare: each rank has its own part")


def test_what_has_no_tensor_is_an_error_that_says_so(four):
    with pytest.raises(RankFailed, match="number: expected tensors, or a value that contains tensors, got int"):
        four.run("number = 3")
        four.table("number")


quick = pytest.mark.quick


@quick
def test_a_rank_without_the_tensor_has_a_dash():
    found = TensorOnRanks("x", (row("x"), None, row("x")))
    assert found.letters == ("A", "–", "A") and not found.same and found.norms()[1] == "–"


@quick
def test_the_same_bytes_of_another_shape_or_dtype_are_another_tensor():
    assert TensorOnRanks("x", (row("x"), row("x", shape=(1, 2)), row("x", dtype="int32"))).letters == ("A", "B", "C")


@quick
def test_letters_go_on_after_z():
    found = TensorOnRanks("x", tuple(row("x", digest=bytes([k])) for k in range(54)))
    assert found.letters[25:28] == ("Z", "AA", "AB") and len(set(found.letters)) == 54


@quick
def test_large_tables_are_bounded_and_say_what_is_left_out():
    rows = tuple(TensorOnRanks(f"t{k}", (row(f"t{k}"),) * 64) for k in range(100))
    table = TensorTable("model", tuple(range(64)), rows)
    assert repr(table).count("\nt") == MOST_ROWS + 1 and "and 40 more tensors" in repr(table)
    page = table._repr_html_()
    assert f"only the first {MOST_RANKS} of " in page and page.count("<tr>") == MOST_ROWS + 1


@quick
def test_names_in_a_table_are_no_html():
    page = TensorTable("<i>", (0,), (TensorOnRanks("<b>", (row("<b>"),)),))._repr_html_()
    assert "<b>&lt;b" not in page and "&lt;b&gt;" in page and "&lt;i&gt;" in page


SHARDED = """\
from torch.distributed.fsdp import fully_shard
sharded = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 8))
fully_shard(sharded)
adam = torch.optim.Adam(sharded.parameters())
sharded(torch.ones(1, 4)).sum().backward()
adam.step()
plain = torch.optim.SGD(sharded.parameters(), lr=0.1)
"""


def test_shards_are_not_compared(four):
    four.run(SHARDED)
    table = four.differ("sharded")
    assert table.same and table.sentence() == (
        "sharded: 4 tensors, sharded, nothing to compare: each rank has its own part"
    )
    row = four.table("sharded").rows[0]
    assert row.is_sharded and set(row.letters) == {"·"} and len(set(row.norms())) > 1
    assert four.differ("adam").sentence() == (
        "adam: 4 tensors, the same on ranks 0, 1, 2, 3; 8 more sharded, nothing to compare: each rank has its own part"
    )


def test_an_optimizer_without_state_is_said_to_have_none(four):
    four.run(SHARDED)
    for expression in ("plain", "plain.state_dict()"):
        assert "no tensors on ranks 0, 1, 2, 3: an optimizer may keep none" in four.differ(expression).sentence()
        assert four.table(expression).rows == ()
