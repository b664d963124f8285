"""A contributor: a typo mended in a lab and built, a new export, a cover drawn, and everything generated cleaned away."""

from collections.abc import Iterator

import pytest

from tests.journeys.doors import Entered, block
from tests.journeys.person import Person, environment, repository_copy
from tests.support.sample_source import course

EXPORT = block("CONTRIBUTING.md", "def plain(")
DOORS = [EXPORT.door, "make build", "make clean", "worldsize build", "worldsize covers"]
HERE = "-o .venv/.dev"  # with the packages that are installed
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def contributor(tmp_path_factory: pytest.TempPathFactory, entered: Entered) -> Iterator[Person]:
    """A person with a checkout, whose package runs."""
    with repository_copy(tmp_path_factory.mktemp("contributor") / "checkout") as copy:
        yield Person(copy, entered, environment(PYTHONPATH=str(copy)))


def test_a_typo_is_mended_in_the_source_and_built_into_both_notebooks(contributor: Person) -> None:
    source = next((contributor.folder / "solutions").glob("00_*.py"))
    source.write_text(source.read_text().replace("# # Lab 00. Start here", "# # Lab 00. Begin here"))
    said = contributor.types(f"make {HERE} build")
    contributor.entered.enter("worldsize build")
    made = [f"{folder}/{source.stem}.ipynb" for folder in ("labs", "solutions")]
    assert [path for path in made if f"wrote {path}" not in said] == []
    assert [path for path in made if "Begin here" not in (contributor.folder / path).read_text()] == []


ROWS = """\
from tests.support import sample_grades
print(plain(sample_grades.rows()[:1], {}))
"""
IMPORTS = """\
from collections.abc import Iterable
from worldsize.grade.marking.by_hand import Given
from worldsize.grade.marking.rows import NO_MARK, GradeRow
from worldsize.grade.reports import safe_csv
"""


def test_the_new_export_of_the_guide_makes_a_csv(contributor: Person) -> None:
    (contributor.folder / "export.py").write_text(f"{IMPORTS}\n{EXPORT.text}\n{ROWS}")
    made = contributor.types("python export.py").splitlines()
    assert made[:2] == ['"student","lab","points"', '"Student 0_4700","06_ring_all_reduce","6.0"']
    contributor.entered.enter(EXPORT.door)


COVER = '''\
# %% [markdown]
# ![an old picture](../labs/covers/06.png)

# %% tags=["cover"]
from worldsize import figures
figures.curves([figures.Curve("a ring", [(1, 1.0), (2, 2.0)])], "Does it grow?", x="ranks", y="s")
'''


def test_a_cover_is_drawn_from_a_run_and_its_words_are_written_into_the_source(contributor: Person) -> None:
    small = contributor.folder.parent / "small"
    small.mkdir()
    source = course(small, COVER)
    assert "06.png" in contributor.types(f"worldsize covers 06 --course {small}")
    assert (small / "labs" / "covers" / "06.png").read_bytes().startswith(b"\x89PNG")
    assert "![an old picture]" not in source.read_text() and "](../labs/covers/06.png)" in source.read_text()


def test_cleaning_leaves_no_generated_file_and_no_environment(contributor: Person) -> None:
    contributor.types("make clean")  # of .venv, a link, the link alone
    assert [name for name in (".venv", "build", "worldsize.egg-info") if (contributor.folder / name).exists()] == []


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
