"""The zip of a Gradescope autograder for one lab: two scripts, and the files of the course that grading needs.

Gradescope runs `setup.sh` once, as root, to build an image, and `run_autograder` for each submission (its "Autograder
Specifications"). An allow-list chooses the files; it includes the answers, for exercises that build on others, but the user
that runs submissions cannot read them.
"""

from pathlib import Path

from worldsize.authoring import release
from worldsize.authoring.release import Refused, pack, stale
from worldsize.grade import course

NAMED = ("LICENSE", "README.md", "constraints.txt", "pyproject.toml", "datasets/README.md")
# `autograder` adds the one lab
PATTERNS = tuple(pattern for pattern in release.PATTERNS if not pattern.startswith("labs/"))

SETUP = """\
#!/usr/bin/env bash
# Run once, as root, when the image is made: bubblewrap, a Python, and the course's package at the versions that its
# tests passed with. AUTOGRADER and WORLDSIZE_HOME name other folders, for a try elsewhere.
set -euo pipefail
umask 022
given=${AUTOGRADER:-/autograder}/source
home=${WORLDSIZE_HOME:-/opt/worldsize}

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends bubblewrap ca-certificates libseccomp2 python3 python3-venv

mkdir -p "$home"
cp -R "$given/course" "$home/"
# uv finds Python 3.11, with which constraints.txt was made, or brings it; and of PyTorch it takes the build from
# PyTorch's own index that has no CUDA and is gigabytes smaller
python3 -m venv "$home/tools"
"$home/tools/bin/pip" install -q uv
export UV_PYTHON_INSTALL_DIR="$home/python" UV_LINK_MODE=copy UV_NO_CACHE=1
"$home/tools/bin/uv" venv -q --python 3.11 "$home/venv"
"$home/tools/bin/uv" pip install -q --python "$home/venv/bin/python" --torch-backend=cpu \\
  -c "$home/course/constraints.txt" -e "$home/course[tensorflow]"

# a submission runs as another user, who reads the Python and the package, and neither the answers nor this zip;
# they are nobody's, who grades where root may not make a sandbox and an ordinary user may
chmod -R a+rX "$home"
chown -R nobody "$home/course/solutions"
chmod -R go-rwx "$home/course/solutions" "$given"
"$home/venv/bin/python" -s -P -m worldsize.grade.gradescope.results --look || true
"""

RUN = """\
#!/usr/bin/env bash
# Grades what is in submission/ and writes results/results.json, whatever happens. AUTOGRADER and WORLDSIZE_HOME name
# other folders, for a try elsewhere; WORLDSIZE_LIMIT_S is less than the time limit in the assignment's settings.
# Arguments go to the grader: --seed 7 replays a result.
set -u
autograder=${AUTOGRADER:-/autograder}
home=${WORLDSIZE_HOME:-/opt/worldsize}
results=$autograder/results/results.json

mkdir -p "$autograder/results"
cat > "$results" << 'END'
@UNFINISHED@
END
cd /
grader=("$home/venv/bin/python" -s -P -m worldsize.grade.gradescope.results)
room=$(mktemp -d)
cp -R "$autograder/submission" "$room/submission"
as=()
nobody=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
if [ "$(id -u)" = 0 ] && ! "${grader[@]}" --look && "${nobody[@]}" "${grader[@]}" --look; then
  chown -hR nobody "$room"
  as=("${nobody[@]}")
fi
HOME=$room timeout --kill-after=10 "${WORLDSIZE_LIMIT_S:-570}" "${as[@]}" "${grader[@]}" \\
  --course "$home/course" --lab @LAB@ --submission "$room/submission" --results "$room/results.json" @MORE@ "$@"
code=$?
if [ -f "$room/results.json" ] && [ ! -L "$room/results.json" ]; then cat "$room/results.json" > "$results"; fi
if [ "$code" != 0 ]; then echo "the grader ended with code $code"; fi
rm -rf "$room"
exit 0
"""


def autograder(root: Path, out: Path, lab: str, unsafe: bool = False) -> list[str]:
    """Write the autograder zip for `lab`, "06" or "06_ring_all_reduce", to `out`; return the names in it.

    `unsafe`: grade without a sandbox if the container refuses one. Raises Refused, ValueError, OSError.
    """
    from worldsize.grade.gradescope.results import UNFINISHED, as_text, nothing_graded

    stem = course.stem_of(root, lab, "gradescope")
    wrong = stale(root)
    if wrong:
        raise Refused("\n".join(["gradescope: nothing was written, because", *wrong]))

    run = RUN.replace("@UNFINISHED@", as_text(nothing_graded(UNFINISHED)))
    run = run.replace("@LAB@", stem).replace(" @MORE@", " --unsafe" if unsafe else "")
    entries = [("run_autograder", run.encode(), 0o755), ("setup.sh", SETUP.encode(), 0o755)]

    named = [root / name for name in (*NAMED, f"labs/{stem}.ipynb", f"solutions/{stem}.ipynb")]
    missing = [str(path) for path in named if not path.is_file()]
    if missing:
        raise Refused(
            f"gradescope: expected the whole repository, but {', '.join(missing)} is missing. Name the repository with --course."
        )

    found = set(named)
    for pattern in PATTERNS:
        found.update(root.glob(pattern))
    for path in sorted(found):
        if path.is_file() and not path.is_symlink():
            entries.append((f"course/{path.relative_to(root).as_posix()}", path.read_bytes(), 0o644))
    pack(out, entries)  # the same files make the same zip
    return [name for name, _, _ in entries]
