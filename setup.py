"""Put the course beside the package in a wheel; an editable installation has it in the checkout. pyproject.toml says the rest.

What goes along is the allow-list of `worldsize/course/shipped_files.py`: no solutions, no tests.
"""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from worldsize.course.shipped_files import carry  # noqa: E402  (the line above finds it)


class BuildWithCourse(build_py):
    """Copies the modules as ever, into an empty folder, and then the course as it is in labs/ now."""

    def run(self) -> None:
        if self.editable_mode:
            return super().run()

        shutil.rmtree(self.build_lib, ignore_errors=True)  # what an earlier build left there would go out too
        super().run()
        try:
            carry(ROOT, Path(self.build_lib))
        except ValueError as error:
            sys.exit(f"setup.py: {error}")


setup(cmdclass={"build_py": BuildWithCourse})
