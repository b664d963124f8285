"""Takes the README's pictures of a lab in JupyterLab, light and dark: `python -m tests.browser.picture_of_a_lab`.

Lab 06 runs with small sizes; a guess is typed and its cell is run, as a student would do, in JupyterLab as a student has it.
Nothing is drawn by hand.
"""

import tempfile
from pathlib import Path

import nbformat

from tests.support.lab06 import RUN, write
from tests.support.lab_page import LabTab, chromium
from tests.support.lab_server import LabServer

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "lab.png"
DARK = PICTURE.with_name("lab-dark.png")
SIZE = {"width": 960, "height": 800}  # the README shows a picture 830 pixels wide: its text stays readable
RUN_S = 500
GUESS = "2"
ASKED, ANSWERED = 'lab.predict("turns"', 'lab.measure("turns"'
OF_CONTRIBUTORS = ("@jupyter/nbgrader", "ipyparallel-labextension", "jupyterlab-jupytext")


def take(light: Path, dark: Path) -> None:
    """Write the pictures, with two pixels for each of the page's, to `light` and `dark`."""
    with tempfile.TemporaryDirectory() as folder, LabServer(Path(folder), OF_CONTRIBUTORS) as server, chromium() as browser:
        notebook = server.work / "06_ring_all_reduce.ipynb"
        write(notebook, {}, sections=(*RUN, "Break it"))
        cells = nbformat.read(notebook, as_version=4).cells
        asks, answers = (next(cell.id for cell in cells if start in cell.source) for start in (ASKED, ANSWERED))
        context = browser.new_context(viewport=SIZE, device_scale_factor=2)
        tab = LabTab(context)
        tab.open(server.notebook_url(notebook.name))
        tab.run_all(RUN_S)
        tab.cell(asks).query_selector("input").fill(GUESS)
        tab.cell(asks).query_selector("input").press("Enter")
        tab.page.get_by_text(f"saved: {GUESS}").first.wait_for()
        tab.run_cell(answers)
        tab.page.get_by_text(f"you said {GUESS} ").first.wait_for()
        tab.ended(RUN_S)
        film = tab.cell(answers).query_selector("input[type=range]")
        film.evaluate("(slider) => { slider.value = slider.max * 0.4; slider.dispatchEvent(new Event('input')); }")
        tab.command("application:toggle-left-area")
        for path, scheme, theme in ((light, "light", "JupyterLab Light"), (dark, "dark", "JupyterLab Dark")):
            tab.page.emulate_media(color_scheme=scheme)
            tab.theme(theme)
            tab.cell(asks).evaluate("(node) => node.scrollIntoView({ block: 'start' })")
            tab.page.screenshot(path=path)


if __name__ == "__main__":
    take(PICTURE, DARK)
    print(f"written: {PICTURE}, {DARK}")
