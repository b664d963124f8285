"""`launch` in a plain script: what it prints, and what an error says when the script ends with it."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import LONG_S

SCRIPT = """\
import os
from worldsize.launch import launch

def hello():
    print("hello")
    if os.environ["RANK"] == "1":
        raise ValueError("no more data")

if __name__ == "__main__":
    launch(hello, 2)
"""


def test_a_script_prints_what_ranks_print_and_its_error_names_no_folder_that_is_gone(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=4 * LONG_S, env=environment, cwd=tmp_path
    )
    assert done.returncode == 1
    assert sorted(done.stdout.splitlines()) == ["[rank 0] hello", "[rank 1] hello"]
    assert "rank 1 of 2 failed first: ValueError: no more data" in done.stderr
    assert "full logs" not in done.stderr
