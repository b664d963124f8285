"""A visitor: the documents' links, the site of `make site` with a lab that a test run has made."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.journeys.doors import DOCUMENTS, ROOT, Entered
from tests.journeys.person import Person
from tests.support.notebook_runs import RUN_TIMEOUT_S, SOURCES, NotebookRuns
from tests.support.site_links import broken_links
from worldsize.authoring.notices import FILE
from worldsize.authoring.site.site_folder import FOR_CONTRIBUTORS

DOORS = ["make site", "worldsize site"]
LAB = SOURCES[0]
LIMIT_S = 240.0

PAGES = [ROOT / name for name in (*DOCUMENTS, FILE, "datasets/README.md")]
LINKS = [(page, link) for page in PAGES for link in sorted(set(re.findall(r"\]\(([^)\s]+)\)", page.read_text())))]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return not target.exists() or bool(anchor) and anchor not in anchors(target)


@pytest.mark.quick
def test_a_link_of_a_document_leads_to_a_file_and_a_heading_of_the_repository() -> None:
    own = [(page, link) for page, link in LINKS if not link.startswith(("http://", "https://"))]
    assert [(page.name, link) for page, link in own if leads_nowhere(page, link)] == []


pytestmark = pytest.mark.timeout(2 * RUN_TIMEOUT_S + 60)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory, notebook_runs: NotebookRuns) -> Path:
    """A folder with the course, in which lab 00 has been run: it has no sizes that a quick run changes."""
    folder = tmp_path_factory.mktemp("course")
    for name in ("docs", "labs", "solutions", "datasets", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    kept = folder / "build" / "executed"
    kept.mkdir(parents=True)
    shutil.copy(notebook_runs.result(LAB, "quick").out, kept / f"{LAB.stem}.ipynb")
    return folder


@pytest.fixture(scope="module")
def contributor(entered: Entered) -> Person:
    """A person in the checkout."""
    return Person(ROOT, entered)


def make(target: str, course: Path) -> str:
    """Return the command that makes one lab's part of a target in `course`, with the environment as it is."""
    return f'make -o {sys.prefix}/.dev VENV={sys.prefix} {target} ARGS="00 --course {course}"'


@pytest.fixture(scope="module")
def site(contributor: Person, course: Path) -> Path:
    """The site's folder."""
    said = contributor.types(make("site", course), limit_s=LIMIT_S)
    assert re.search(r"wrote \S+/build/site/index.html: \d+ pages", said), said
    contributor.entered.enter("worldsize site")
    return course / "build" / "site"


def test_the_site_has_every_document_of_a_reader_and_the_lab_with_its_pictures(site: Path) -> None:
    documents = {path.stem for path in ROOT.glob("docs/*.md") if path.name not in FOR_CONTRIBUTORS}
    assert [name for name in sorted(documents) if not (site / f"{name}.html").is_file()] == []
    page = (site / "labs" / f"{LAB.stem}.html").read_text(encoding="utf-8")
    assert page.count("<svg") > 2


def test_no_link_within_the_site_is_broken(site: Path) -> None:
    assert broken_links(site) == []


def test_every_declared_door_was_entered(entered: Entered) -> None:
    entered.check()
