"""labsource: the ids of cells, and every way in which a source can be wrong."""

from pathlib import Path

import nbformat
import pytest

from tests.support.sample_source import BEGIN, CHECK, END, EXERCISE, RING, course
from worldsize.authoring.build import notebooks
from worldsize.authoring.source import BuildError, read_source

pytestmark = pytest.mark.quick


def ids_of(source: Path) -> list[str]:
    return [cell.id for cell in read_source(source).cells]


def test_cells_are_named_by_exercise_or_by_lab_heading_and_ordinal(tmp_path):
    assert ids_of(course(tmp_path)) == [
        "06-rings-and-quotes-1",
        "06-rings-and-quotes-2",
        "06-reduce-scatter-at-last-1",
        "ring",
        "check_ring",
        "06-reduce-scatter-at-last-2",
        "06-reduce-scatter-at-last-3",
    ]


def test_two_sections_of_one_name_share_a_count(tmp_path):
    source = course(tmp_path, "# %%\nx\n\n# %% [markdown]\n# # A\n\n# %% [markdown]\n# # A\n")
    assert ids_of(source) == ["06-top-1", "06-a-1", "06-a-2"]


@pytest.mark.parametrize("heading", ["# " + "long " * 60, "# 環", "# ---"])
def test_any_heading_gives_a_valid_id(tmp_path, heading):
    nbformat.validate(nbformat.reads(notebooks(course(tmp_path, f"# %% [markdown]\n# {heading}\n"))[1], 4))


@pytest.mark.parametrize("line", ["# begin solving here", "# End of the round", "# ## end", "### Ring, ended"])
def test_an_ordinary_comment_is_no_marker(tmp_path, line):
    assert line in notebooks(course(tmp_path, RING.replace("given = 1", f"given = 1\n    {line}")))[1]


@pytest.mark.parametrize("line", ["### Begin with two ranks", "The solution ends here", "## End"])
def test_an_ordinary_heading_is_no_marker(tmp_path, line):
    assert line in notebooks(course(tmp_path, RING.replace("A first paragraph.", line)))[1]


def complaint(folder: Path, text: str) -> str:
    with pytest.raises(BuildError) as caught:
        notebooks(course(folder, text))
    return str(caught.value)


def line_of(text: str, wanted: str) -> int:
    return text[: text.index(wanted)].count("\n") + 1


# with "end" in the place of "begin" these are wrong ends
WRONG_MARKERS = [
    "### BEGIN SOLUTON",
    "###BEGIN SOLUTION",
    "### BEGIN  SOLUTION",
    "# ### begin solution",
    "### Begin Solution",
    "### BEGIN SOLUTION:",
    "### BEGIN_SOLUTION",
    "###BEGINSOLUTION",
    "#### BEGIN SOLUTION",
    "## BEGIN SOLUTION",
    "# BEGIN SOLUTION",
    "#BEGIN SOLUTION",
    "### BEGIN ANSWER",
    "### BEGIN HIDDEN TESTS",
    "# BEGIN MARK SCHEME",
    "x = 1  ### BEGIN SOLUTION",
]


@pytest.mark.parametrize("marker", WRONG_MARKERS)
def test_an_unknown_begin_is_named_with_file_cell_and_line(tmp_path, marker):
    text = RING.replace("### BEGIN SOLUTION", marker)
    line = line_of(text, marker)
    assert complaint(tmp_path, text).startswith(
        f"solutions/06_ring.py, cell 4 (exercise:ring), line 5 (line {line} of the file):"
        f" expected '### BEGIN SOLUTION' or '### END SOLUTION', got {marker!r}; write "
    )


@pytest.mark.parametrize("marker", WRONG_MARKERS)
def test_an_unknown_end_is_named(tmp_path, marker):
    marker = marker.replace("BEGIN", "END").replace("Begin", "End").replace("begin", "end")
    said = complaint(tmp_path, RING.replace("### END SOLUTION", marker))
    assert "(exercise:ring)" in said and f"got {marker!r}" in said


# name: (source, what the complaint must hold: the cell, expected, got, the next step)
WRONG = {
    "nested": (
        RING.replace(BEGIN, BEGIN + BEGIN),
        ["cell 4 (exercise:ring), line 6", "the region opened on line 5", "nested", "close"],
    ),
    "unclosed": (
        RING.replace(END, ""),
        ["cell 4 (exercise:ring), line 5", "'### END SOLUTION' after", "the end of the cell", "close it"],
    ),
    "stray end": (
        RING.replace(BEGIN, ""),
        [
            "cell 4 (exercise:ring), line 8",
            "'### BEGIN SOLUTION' above",
            "a stray '### END SOLUTION'",
            "remove",
        ],
    ),
    "second end": (RING.replace(END, END + END), ["cell 4", "line 10", "stray"]),
    "marker in prose": (
        RING.replace("A first paragraph.", "### BEGIN SOLUTION"),
        ["cell 1 (markdown), line 3 (line 4 of the file)", "no marker in a markdown cell", "reword"],
    ),
    "lower-case marker in prose": (
        RING.replace("A first paragraph.", "# begin solution"),
        ["cell 1 (markdown)", "got '# begin solution'"],
    ),
    "marker outside an exercise": (
        RING.replace("ranks = 4", "### BEGIN SOLUTION\nranks = 4\n### END SOLUTION"),
        ["cell 2 (parameters), line 1", "only in an exercise cell", 'tag the cell "exercise:<id>"'],
    ),
    "marker in a check": (
        RING.replace("check.ring(ring)", "### BEGIN SOLUTION\ncheck.ring(ring)\n### END SOLUTION"),
        ["cell 5 (check:ring)", "only in an exercise cell"],
    ),
    "exercise without markers": (
        RING.replace(BEGIN, "").replace(END, ""),
        ["cell 4 (exercise:ring)", "an answer between", "got none", "put the markers"],
    ),
    "empty region": (
        RING.replace("    secret = x + 1\n\n    total = secret * 2\n", "\n"),
        ["cell 4 (exercise:ring)", "an answer between", "got an empty region"],
    ),
    "no title": (
        RING.replace("# Exercise 6.2: send", "# send"),
        [
            "cell 4 (exercise:ring), line 1",
            "'# Exercise 6.<number>: <title>'",
            "got '# send",
            "number and name",
        ],
    ),
    "title without words": (RING.replace('6.2: send it "round" the ring', "6.2:"), ["got '# Exercise 6.2:'"]),
    "number of another lab": (RING.replace("6.2", "7.2"), ["'# Exercise 6.<number>", "Exercise 7.2"]),
    "one id twice": (
        RING + "\n" + EXERCISE.replace("6.2", "6.3"),
        ["cell 8 (exercise:ring)", "a unique id and number", "id ring again, first used in cell 4", "rename"],
    ),
    "one number twice": (
        RING + "\n" + (EXERCISE + CHECK).replace(":ring", ":other"),
        ["cell 8 (exercise:other)", "number 6.2 again, first used in cell 4", "rename"],
    ),
    "number with a nought before it": (RING.replace("6.2", "6.02"), ["'# Exercise 6.<number>", "Exercise 6.02"]),
    "check without points": (
        RING.replace(" points=2", ""),
        ["cell 5 (check:ring)", "points of 0 or more", "got none", "points=<number>"],
    ),
    "points that are no number": (RING.replace("points=2", 'points="two"'), ["got points='two'"]),
    "negative points": (RING.replace("points=2", "points=-2"), ["got points=-2"]),
    "points that are a truth value": (RING.replace("points=2", "points=true"), ["got points=True"]),
    "points on an exercise": (
        RING.replace('["exercise:ring"]', '["exercise:ring"] points=2'),
        ["cell 4 (exercise:ring)", "points only on a check cell", "move the points"],
    ),
    "points elsewhere": (
        RING.replace("# %%\nprint", "# %% points=1\nprint"),
        ["points only on a check cell"],
    ),
    "check of an unknown exercise": (
        RING.replace("check:ring", "check:rign"),
        ["cell 5 (check:rign)", "an exercise above it (ring)", "got check:rign", "fix the id"],
    ),
    "check above its exercise": (CHECK + "\n" + RING, ["cell 1 (check:ring)", "(no exercise)"]),
    "two checks of one exercise": (RING + "\n" + CHECK, ["cell 8 (check:ring)", "check:ring again"]),
    "exercise without a check": (
        RING.replace(CHECK, ""),
        ["cell 4 (exercise:ring)", "'check:ring' below it", "points=0"],
    ),
    "two roles for one cell": (
        RING.replace('["exercise:ring"]', '["exercise:ring", "check:ring"]'),
        ["cell 4 (exercise:ring)", "one tag", "exercise:ring, check:ring"],
    ),
    "prose tagged as an exercise": (
        RING.replace("# %% [markdown]\n# #", '# %% [markdown] tags=["exercise:a"]\n# #', 1),
        ["cell 1 (exercise:a)", "on a code cell", "on a markdown cell"],
    ),
    "an id that is none": (
        RING.replace(":ring", ":Ring-All"),
        ["lower-case", "'exercise:Ring-All'", "rename"],
    ),
    "an id like that of a check": (
        RING.replace(":ring", ":check_ring"),
        ["does not begin with check_", "exercise:check_ring"],
    ),
    "endless points": (RING.replace("points=2", "points=1e999"), ["got points=inf"]),
    "a broken header": (
        RING.replace('tags=["check:ring"] points', 'tags=["check:ring" points'),
        ["cell 5", "a header such as", "fix the cell's header"],
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_is_one_paragraph_with_where_expected_got_and_next_step(tmp_path, mistake):
    text, wanted = WRONG[mistake]
    said = complaint(tmp_path, text)
    assert said.startswith("solutions/06_ring.py, cell ")
    assert [part for part in [*wanted, ": expected ", ", got ", "; "] if part not in said] == [], said
    assert "\n" not in said


def test_a_header_inside_a_string_costs_only_the_line_of_the_file(tmp_path):
    text = RING.replace("ranks = 4", 's = """\n# %%\n"""').replace(END, "")
    said = complaint(tmp_path, text)
    assert said.startswith("solutions/06_ring.py, cell 4 (exercise:ring), line 5: expected")
