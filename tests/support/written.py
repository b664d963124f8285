"""Write what documents say of exercises, their checks and wrong answers. `make pages` runs this.

    python -m tests.support.written

The page of what earns points, a page for each lab's teacher, and the sample of a graded lab; the picture of its page only where
the page has changed, because that needs Chromium.
"""

from tests.grade import evidence
from tests.labs import teaching_pages
from tests.support import sample_grades


def main() -> None:
    evidence.write()
    for lab in teaching_pages.SOURCES:
        teaching_pages.write(lab)
    sample_grades.write_table()
    if sample_grades.is_stale():
        sample_grades.take_picture()


if __name__ == "__main__":
    main()
