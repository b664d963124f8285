"""The map of the course: layers by what a lab stands on, points, and ways into the notebooks."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from worldsize.lab.course_map import CourseMap, MappedLab
from worldsize.lab.lab_list import LABS
from worldsize.lab.progress import map_of_course


def mapped(**after: tuple[str, ...]) -> CourseMap:
    labs = [MappedLab(n[1:], f"Lab {n}", 6, 6.0 * (n == "L00"), needed) for n, needed in after.items()]
    return CourseMap(tuple(labs))


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.found += [value for name, value in attributes if (tag, name) == ("a", "href")]


def test_the_heading_counts_what_is_done() -> None:
    course = mapped(L00=(), L01=("00",), L02=("00", "01"))
    assert course.heading == "1 of 3 labs done, 6 of 18 points"
    assert "✔   00" in str(course) and "02 Lab L02, after 00, 01: 0 of 6 points" in str(course)


def test_a_lab_is_in_the_layer_below_the_last_that_it_stands_on() -> None:
    course = mapped(L00=(), L03=("02", "00"), L01=("00",), L02=("01",))
    assert [[lab.number for lab in layer] for layer in course.layers] == [["00"], ["01"], ["02"], ["03"]]


@pytest.mark.parametrize("wrong", ["07", "01"])
def test_a_lab_on_the_map_stands_on_another_that_is_there(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"lab 01 builds on {wrong}"):
        mapped(L00=(), L01=(wrong,))


def test_every_title_is_whole_and_every_lab_leads_to_its_notebook(root: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(root / "labs")
    course = map_of_course(tmp_path, "06")
    page = course._repr_html_()
    assert sorted(lab.number for lab in course.labs) == sorted(LABS)
    assert all(lab.title in page.replace("&#39;", "'") for lab in course.labs)
    links = Links(page).found
    assert len(links) == len(LABS) and all((root / "labs" / link).is_file() for link in links)
    assert [lab.number for lab in course.labs if lab.here] == ["06"] and "▶ 06" in page


def test_where_no_notebooks_lie_the_map_has_no_links(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Links(map_of_course(tmp_path)._repr_html_()).found == []
