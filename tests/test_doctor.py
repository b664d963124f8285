"""The capability sheet: what it finds, how it is shown, and what it says when ranks do not run."""

import importlib.metadata
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from worldsize import doctor, machine
from worldsize.course import shipped_files
from worldsize.doctor import Capability, CapabilitySheet, examine
from worldsize.engines import host_ranks

pytestmark = pytest.mark.quick

FACTS = {"sum": [3.0, 30.0], "expected": [3.0, 30.0], "backends": ["gloo"]}


@dataclass
class FakeRun:
    results: list
    wall_s: float = 0.25
    startup_s: float = 0.2
    setup: str = "2 ranks"
    network: str = "own"
    why_shared: str = ""

    def __getitem__(self, rank: int) -> object:
        return self.results[rank]


def launch_with(gpus: tuple[str, ...] = (), **facts: object):
    """Ranks that say `facts`; one that is alone is asked for the GPUs."""

    def launch(fn: object, world_size: int, timeout_s: float) -> FakeRun:
        return FakeRun([list(gpus)] if world_size == 1 else [FACTS | facts] * world_size)

    return launch


def launch_that_fails(fn: object, world_size: int, timeout_s: float) -> FakeRun:
    raise RuntimeError("rank 1 of 2 failed first: no shared memory")


def test_two_real_ranks_add_up() -> None:
    sheet = examine()
    assert sheet["two ranks"].state == "ok", str(sheet)
    assert "gloo" in sheet["backends"].value
    assert sheet.ok


def test_the_caller_imports_neither_torch_nor_tensorflow() -> None:
    code = (
        "import sys; from worldsize.doctor import examine; examine();"
        "print({'torch', 'tensorflow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "set()", done.stderr


def test_ranks_that_do_not_run_fail_the_sheet_with_reason_and_next_step() -> None:
    sheet = examine(launch_that_fails)
    row = sheet["two ranks"]
    assert not sheet.ok
    assert "no shared memory" in row.value
    assert "make setup" in row.remark


def test_a_wrong_sum_fails_the_sheet() -> None:
    sheet = examine(launch_with(sum=[1.0, 10.0]))
    assert not sheet.ok
    assert "rank 0: expected the sum [3.0, 30.0], got [1.0, 10.0]" in sheet["two ranks"].value


def test_observers_that_print_do_not_print_into_the_sheets_cell(capsys: pytest.CaptureFixture[str]) -> None:
    def launch(fn: object, world_size: int, timeout_s: float) -> FakeRun:
        print("2 ranks")
        return launch_with()(fn, world_size, timeout_s)

    examine(launch)
    assert capsys.readouterr().out == ""


def test_equal_gpus_are_counted() -> None:
    assert examine(launch_with(gpus=("H200", "H200")))["GPUs"].value == "2 × H200"


def test_one_gpu_says_that_nccl_needs_one_a_rank() -> None:
    assert "a GPU for each rank" in examine(launch_with(gpus=("H200",)))["GPUs"].remark


def test_ranks_with_a_network_of_their_own_are_well() -> None:
    row = examine(launch_with())["ranks' network"]
    assert (row.value, row.state) == ("their own", "ok")


def test_ranks_on_the_machines_network_are_a_note_with_the_reason_and_who_can_reach_them() -> None:
    def launch(fn: object, world_size: int, timeout_s: float) -> FakeRun:
        run = launch_with()(fn, world_size, timeout_s)
        run.network, run.why_shared = "shared", "this machine has GPUs"
        return run

    sheet = examine(launch)
    row = sheet["ranks' network"]
    assert (row.value, row.state, sheet.ok) == ("the machine's", "note", True)
    assert row.remark == "this machine has GPUs; other users of this machine can reach the ports that ranks listen on"


def test_the_network_of_real_ranks_is_the_one_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLDSIZE_NETWORK", "shared")
    row = examine()["ranks' network"]
    assert row.value == "the machine's"
    assert row.remark.startswith("WORLDSIZE_NETWORK=shared; ")


def test_a_package_that_is_missing_fails_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    sheet = examine(launch_with())
    row = sheet["PyTorch"]
    assert (row.state, row.remark) == ("fails", "run `make setup` in the course's folder")
    assert (sheet["TensorFlow"].value, sheet.ok) == ("1.0", False)


def test_without_tensorflow_the_labs_that_need_it_are_named_and_the_sheet_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(name: str) -> str:
        if name == "tensorflow":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr("importlib.metadata.version", version)
    sheet = examine(launch_with())
    assert (sheet["TensorFlow"].state, sheet.ok) == ("note", True)
    root = Path(doctor.__file__).parents[1]
    need_it = [path.name[:2] for path in sorted(root.glob("solutions/*.py")) if "import tensorflow" in path.read_text()]
    assert f"labs {need_it[0]} to {need_it[-1]} need it" in sheet["TensorFlow"].remark


def test_no_bubblewrap_is_a_note_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    row = doctor.sandbox()
    assert row.state == "note"
    assert "install the package bubblewrap" in row.remark


def test_a_bubblewrap_that_does_not_start_is_a_note_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho no user namespaces >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    row = doctor.sandbox()
    assert row.state == "note"
    assert "no user namespaces" in row.value


def test_a_notebook_shows_a_table_with_escaped_text() -> None:
    html = CapabilitySheet((Capability("a", "<b>", "c", "fails"),))._repr_html_()
    assert "<table>" in html
    assert "FAILS: &lt;b&gt;" in html


def test_a_notebook_shows_the_cores_and_what_fails_and_folds_the_rest() -> None:
    rows = (Capability("system", "Linux"), Capability("cores", "2"), Capability("disk", "full", state="fails"))
    shown, folded = CapabilitySheet(rows)._repr_html_().split("<details ")
    assert "Linux" not in shown and ">2<" in shown and "FAILS: full" in shown
    assert "<summary>the rest: system</summary>" in folded and "Linux" in folded


def test_plain_text_has_one_entry_a_row_and_no_line_over_100_characters() -> None:
    lines = str(CapabilitySheet((Capability("cores", "2"), Capability("memory", "word " * 40, state="fails")))).splitlines()
    assert lines[0] == "  cores   2"
    assert lines[1].startswith("! memory  word")
    assert max(map(len, lines)) <= 100


def test_a_row_that_is_not_there_is_named() -> None:
    with pytest.raises(KeyError, match="no row 'disk'; rows: cores"):
        CapabilitySheet((Capability("cores", "2"),))["disk"]


@pytest.mark.parametrize(
    ("file", "text", "cores"),
    [("cpu.max", "50000 100000\n", 0.5), ("cpu.max", "max 100000\n", None), (None, "", None)],
    ids=["half a core", "no quota", "no control group"],
)
def test_a_quota_of_the_control_group_limits_the_cores(
    tmp_path: Path, file: str | None, text: str, cores: float | None
) -> None:
    if file:
        (tmp_path / file).write_text(text)
    assert machine.usable_cores(tmp_path) == (cores or machine.usable_cores(tmp_path / "absent"))


def test_the_quota_of_control_groups_version_1_counts_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text("25000\n")
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert machine.usable_cores(tmp_path) == 0.25


def test_a_memory_limit_of_the_control_group_is_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert machine.memory_bytes(tmp_path) == (1_000_000, 600_000)


@pytest.mark.parametrize(("said", "cores"), [("0.5", 0.5), ("0", None), ("inf", None), ("two", None), ("", None)])
def test_a_hubs_cpu_limit_counts_where_it_is_a_positive_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, cores: float | None
) -> None:
    monkeypatch.setenv("CPU_LIMIT", said)
    granted = machine.usable_cores(tmp_path)
    monkeypatch.delenv("CPU_LIMIT")
    assert granted == (cores or machine.usable_cores(tmp_path))


def test_the_lowest_of_container_and_hub_holds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CPU_LIMIT", "0.5")
    (tmp_path / "cpu.max").write_text("25000 100000\n")
    assert machine.usable_cores(tmp_path) == 0.25


def test_a_hubs_memory_limit_is_what_there_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEM_LIMIT", "1073741824")
    assert machine.memory_bytes(tmp_path)[0] == 2**30
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine.memory_bytes(tmp_path)[0] == 1_000_000


def test_ranks_share_the_whole_cores_that_a_hub_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPU_LIMIT", "1.5")
    assert host_ranks.cores() == 1


def test_windows_itself_fails_with_the_way_to_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: "Windows")
    row = doctor.system()
    assert row.state == "fails" and "WSL2" in row.remark


@pytest.mark.parametrize(("in_a_wheel", "command"), [(False, "make setup"), (True, "pip install")])
def test_what_is_missing_comes_as_the_course_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_a_wheel: bool, command: str
) -> None:
    def missing(distribution: str) -> str:
        raise importlib.metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(doctor.importlib.metadata, "version", missing)
    monkeypatch.setattr(shipped_files, "CARRIED_FOLDER", tmp_path if in_a_wheel else tmp_path / "absent")
    rows = examine(launch_with())
    assert all(f"`{command}" in rows[name].remark for name in ("PyTorch", "TensorFlow"))
    assert ("worldsize[tensorflow]" in rows["TensorFlow"].remark) == in_a_wheel
