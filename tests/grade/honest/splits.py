"""Right answers whose cells were split, merged, moved, copied or stripped."""

import copy

from tests.grade.honest import HELPED, HELPER, RIGHT, cell, hand_in, notebook, own

ABOVE, MIDDLE, BELOW = RIGHT.partition("    received = torch")
WITH_HELPER = RIGHT.partition("\n")[0] + "\n" + HELPER
CALLER = HELPED.partition("\n")[2]


def halves(name: str, first: str, second: str, which: str) -> None:
    """The exercise's cell in two: `which` of them keep its name and its id."""
    made = notebook()
    one = cell(made, "pass_right")
    other = copy.deepcopy(one)
    one["source"], other["source"] = first, second
    made["cells"].insert(made["cells"].index(one) + 1, other)
    for half, kept in ((one, which in ("both", "first")), (other, which in ("both", "second"))):
        if not kept:
            half.update(metadata={}, id=f"{name}-x")
    hand_in(name, made)


for which in ("first", "second", "both"):
    halves(f"split_in_the_function_{which}", ABOVE, MIDDLE + BELOW, which)
    halves(f"split_after_a_helper_{which}", WITH_HELPER, CALLER, which)
halves("split_with_a_blank_half", "", RIGHT, "both")
halves("split_off_the_title", RIGHT.partition("\n")[0], RIGHT.partition("\n")[2], "first")

_made = notebook()
cell(_made, "pass_right")["source"] = RIGHT + "\ncheck.pass_right(pass_right)"
hand_in("merged_with_its_check", _made)

_made = notebook(RIGHT)
_one = cell(_made, "pass_right")
_one.update(metadata={}, id="merged", source="notes = [1, 2]\n" + RIGHT)
hand_in("merged_into_an_own_cell", _made)

_made = notebook(HELPED, above=HELPER)
_made["cells"] = [c for c in _made["cells"] if c["cell_type"] == "code"]
hand_in("markdown_deleted", _made)

_made = notebook(HELPED, above=HELPER)
_made["cells"] = _made["cells"][::-1]
hand_in("cells_in_another_order", _made)

_made = notebook(HELPED, above=HELPER)
_made["cells"] += [own(HELPER), own(HELPER), own("# Example 0.2\nprint(1)")]
hand_in("own_cells_twice", _made)

_made = notebook(HELPED, above=HELPER)
for _one in _made["cells"]:
    _one.pop("id", None)
    _one["metadata"] = {}
hand_in("ids_and_metadata_cleared", _made)

_made = notebook()
_made["cells"].insert(3, own(RIGHT.replace("received", "x * 0"), id="scratch"))
hand_in("a_scratch_copy_above", _made)
