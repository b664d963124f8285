"""The live view: what it knows, what it sends and when, and what stays in the notebook."""

import itertools
import json
import re
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from worldsize.engines.job import Progress
from worldsize.failures import Failure, Outcome, Standing, Wait
from worldsize.live import result
from worldsize.live.run_state import LINE_CHARS, RunState, plain
from worldsize.live.text import SHOWN_LINES, Screenful, TextLines
from worldsize.live.view import LiveView, script
from worldsize.trace import Collective, Span, Trace, Transfer

pytestmark = pytest.mark.quick

SCRIPT = script()


def _no_file(rank, what=""):
    return Path(f"no {what} of rank {rank}")


def finished(run_state, state="done", outcome=None, reports=()):
    reports = list(reports) or [[] for _ in run_state.rows]
    return SimpleNamespace(
        log_path=_no_file, files=SimpleNamespace(of=_no_file), world_size=len(run_state.rows), state=state,
        outcome=outcome, reports=reports, wall_s=1.0, not_yet=None, notes=[],
        setup="2 ranks", tasks=(), hosts=(), function="",
        trace=SimpleNamespace(world_size=0, transfers=(), spans=(), collectives=()),
    )  # fmt: skip


def told(rank=0, *reports, **how):
    return Progress(rank, 0.0, reports, 1000, 2000, **how)


class FrontEnd:
    """What view.js keeps: merges messages as it does."""

    def __init__(self):
        self.tails, self.curves = {}, {}

    def take(self, message):
        for news in message["ranks"]:
            rank = news["rank"]
            if "tail" in news:
                self.tails[rank], self.curves[rank] = news["tail"], {}
            else:
                self.tails[rank] = (self.tails[rank] + news["add"])[-message["keep_lines"] :]
            for name, part in news["curves"].items():
                self.curves[rank].setdefault(name, [])[part["at"] :] = zip(part["x"], part["y"], strict=True)


@pytest.mark.parametrize("burst", [1, 30, 500])
def test_news_put_together_are_the_whole(burst):
    run_state, front, fresh = RunState(2), FrontEnd(), FrontEnd()
    front.take(run_state.whole())
    for number in range(7 * burst):
        run_state.printed(number % 2, [f"line {number}"])
        run_state.rows[0].report({"t": 0.0, "step": number, "loss": float(number)})
        if number % burst == burst - 1:
            front.take(run_state.news())
    fresh.take(run_state.whole())
    assert (front.tails, front.curves) == (fresh.tails, fresh.curves)


def test_a_message_stays_small_whatever_a_rank_prints_and_reports():
    run_state = RunState(4)
    for rank in range(4):
        run_state.printed(rank, ["x" * 10_000] * 10_000)
        for step in range(20_000):
            run_state.rows[rank].report({"t": 1.0, "step": step, "loss": 1 / 3, "accuracy": 2 / 3})
    assert len(json.dumps(run_state.whole())) < 250_000


def test_nothing_new_is_said_of_a_rank_without_news():
    run_state = RunState(3)
    run_state.whole()
    run_state.printed(1, ["hello"])
    assert [row["rank"] for row in run_state.news()["ranks"]] == [1]


def test_every_line_is_counted_though_only_the_last_are_kept():
    run_state = RunState(2)
    run_state.printed(0, ["line"] * 12_345)
    assert run_state.whole()["ranks"][0]["lines"] == 12_345


def test_a_loss_that_is_no_number_travels_as_json():
    run_state = RunState(1)
    run_state.rows[0].report({"t": 0.0, "step": 1, "loss": float("nan")})
    assert json.loads(json.dumps(run_state.whole(), allow_nan=False))["ranks"][0]["curves"]["loss"]["y"] == [None]


def test_a_progress_bar_is_shown_as_a_terminal_leaves_it():
    assert plain("0%|    |\r 50%|##  |\r\x1b[32m100%|####|\x1b[0m\r") == "100%|####|"


def test_of_many_lines_those_that_have_room_are_shown_and_the_others_counted():
    screenful = Screenful()
    shown = screenful.take(1, ["a"] * (SHOWN_LINES - 1)) + screenful.take(2, ["b"] * 4)
    assert len(shown) == SHOWN_LINES and shown[-1] == "[rank 2] b"
    assert screenful.rest() == ["… 3 more lines; all of rank 0's: print(run.log(0))"]


def test_a_long_line_is_cut():
    assert len(plain("x" * 10_000)) == LINE_CHARS


def failed(kind="raised", **more):
    return {"state": "failed", "failure": Failure(0, kind, 0.0, **more)}


@pytest.mark.parametrize(
    ("how", "doing"),
    [
        ({"state": "running"}, "running"),
        ({"state": "waiting", "wait": Wait(0, "recv", 3)}, "waits in recv from rank 3"),
        ({"state": "waiting", "wait": Wait(0, "send", 1, tag=7)}, "waits in send to rank 1 (tag 7)"),
        ({"state": "waiting", "collective": "barrier"}, "waits in barrier"),
        ({"state": "done"}, "done"),
        ({"state": "not yet", "failure": Failure(0, "raised", 0.0, type="NotYet", not_yet=True)}, "not yet"),
        (failed(type="KeyError", message="'loss'\nmore"), "failed: KeyError: 'loss'"),
        (failed("signal", code=9), "failed: killed by SIGKILL (out of memory?) and returned no result"),
        (failed("exit"), "failed: ended with no result, for an unknown reason: its exit code was not seen"),
    ],
)
def test_a_row_says_what_its_rank_does_in_words_made_from_its_state(how, doing):
    run_state = RunState(1)
    run_state.progressed(told(**how))
    assert (run_state.rows[0].state, run_state.rows[0].doing) == (how["state"], doing)


@pytest.mark.parametrize(
    ("how", "short"),
    [
        ({"state": "waiting", "wait": Wait(0, "recv", 3)}, "recv ← 3"),
        ({"state": "waiting", "wait": Wait(0, "recv", None)}, "recv ← any"),
        ({"state": "waiting", "wait": Wait(0, "send", 1)}, "send → 1"),
        ({"state": "waiting", "collective": "barrier"}, "barrier"),
        ({"state": "running"}, ""),
    ],
)
def test_a_chip_says_in_a_word_or_two_what_its_rank_waits_in(how, short):
    run_state = RunState(1)
    run_state.progressed(told(**how))
    assert run_state.whole()["ranks"][0]["short"] == short


def test_a_card_says_how_far_and_how_well():
    run_state = RunState(1)
    run_state.rows[0].report({"t": 0.0, "step": 3, "steps": 12, "loss": 0.5})
    facts = run_state.whole()["ranks"][0]
    assert (facts["place"], facts["values"], facts["share"]) == ("step 3 of 12", "loss 0.5", 0.25)


VIEW = "application/vnd.jupyter.widget-view+json"


class Desk:
    """In place of the notebook: keeps what is displayed and what goes to the browser, on a clock that a test moves."""

    def __init__(self, monkeypatch):
        self.now_s, self.sent, self.outputs, self.at_end = 100.0, [], [], []
        events = SimpleNamespace(
            register=lambda name, act: self.at_end.append(act), unregister=lambda name, act: self.at_end.remove(act)
        )
        monkeypatch.setattr("time.monotonic", lambda: self.now_s)
        pytest.importorskip("comm", reason="ipywidgets 7 accepts the channels of ipykernel alone")
        monkeypatch.setattr("comm.create_comm", self._channel)
        self.hooks = []
        shell = SimpleNamespace(events=events, display_pub=SimpleNamespace(register_hook=self.hooks.append))
        monkeypatch.setattr("IPython.get_ipython", lambda: shell)
        monkeypatch.setattr("IPython.display.display", self._display)

    def _channel(self, data, **opened):
        """A widget's channel to the browser: that of the view begins with its first message."""
        channel = SimpleNamespace(
            comm_id=uuid.uuid4().hex, send=lambda data, **more: self._note(data), close=lambda *args, **more: None,
            on_msg=lambda react: setattr(channel, "react", react),
        )  # fmt: skip
        if "first" in data["state"]:
            self.channel = channel
            self.sent.append((self.now_s, data["state"]["first"]))
        return channel

    def _note(self, data):
        if data["method"] == "custom":
            self.sent.append((self.now_s, data["content"]))

    def ask(self, content):
        """What the browser's side sends."""
        self.channel.react({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})

    def _display(self, data, **options):
        self.outputs.append(data)
        place = len(self.outputs) - 1
        return SimpleNamespace(update=lambda data, raw: self.outputs.__setitem__(place, data))

    def messages(self):
        return [message for _, message in self.sent]

    def show_picture(self):
        """The cell shows a picture of its own."""
        for hook in self.hooks:
            hook({"msg_type": "display_data", "content": {"data": {"image/png": "", "text/plain": "a picture"}}})

    def end_cell(self):
        while self.at_end:
            self.at_end[0]()

    def follow(self, view, run, seconds, each=lambda: None):
        """Let `seconds` pass as a launch does: a tick every 20 ms."""
        for _ in range(round(seconds / 0.02)):
            self.now_s += 0.02
            each()
            view.ticked(run)


@pytest.fixture
def desk(monkeypatch):
    return Desk(monkeypatch)


@pytest.fixture
def view():
    return LiveView()


def start(view, world_size=2):
    run = finished(RunState(world_size), state="running")
    view.started(run)
    return run


def end(view, run, state="done", outcome=None):
    run.state, run.outcome = state, outcome
    view.ended(run)


def test_a_quick_run_shows_its_tagged_lines_and_no_view(desk, view, capsys):
    run = start(view)
    view.printed(run, 1, "hello\nthere\n")
    desk.follow(view, run, 0.5)
    end(view, run)
    assert capsys.readouterr().out == "2 ranks\n[rank 1] hello\n[rank 1] there\n" and not desk.outputs


def test_a_quick_run_looks_the_same_as_in_a_terminal(desk, view, capsys):
    said = []
    for observer in (view, TextLines()):
        run = start(observer)
        observer.printed(run, 0, "".join(f"{n}\n" for n in range(40)))
        end(observer, run)
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and "… 10 more lines" in said[0]


def test_a_view_opens_for_a_run_that_goes_on(desk, view):
    desk.follow(view, start(view), 1.0)
    assert len(desk.outputs) == 1 and VIEW in desk.outputs[0]


def test_at_most_one_message_goes_every_100_ms(desk, view):
    run = start(view)
    desk.follow(view, run, 10, lambda: view.printed(run, 0, "line\n"))
    times = [at for at, _ in desk.sent]
    assert min(b - a for a, b in itertools.pairwise(times)) >= 0.0999 and len(times) > 60


def test_messages_are_numbered_one_by_one(desk, view):
    run = start(view)
    desk.follow(view, run, 5, lambda: view.printed(run, 0, "line\n"))
    assert [m["seq"] for m in desk.messages()] == list(range(len(desk.sent)))


def test_everything_is_sent_again_at_least_once_a_second(desk, view):
    run = start(view)
    desk.follow(view, run, 10, lambda: view.printed(run, 0, "line\n"))
    whole = [at for at, message in desk.sent if message["whole"]]
    assert max(b - a for a, b in itertools.pairwise(whole)) <= 1.15


def test_most_messages_hold_only_what_is_new(desk, view):
    run = start(view)
    desk.follow(view, run, 10, lambda: view.printed(run, 0, "line\n"))
    assert sum(not message["whole"] for message in desk.messages()) > 0.6 * len(desk.sent)


def test_a_front_end_that_missed_one_gets_everything_at_once(desk, view):
    run = start(view)
    desk.follow(view, run, 5)
    desk.ask({"want": "whole"})
    desk.follow(view, run, 0.12)
    assert desk.messages()[-1]["whole"] and desk.now_s - desk.sent[-1][0] < 0.11


def test_a_run_in_which_nothing_happens_is_heard_of_once_a_second(desk, view):
    desk.follow(view, start(view), 12)
    late = [at for at, _ in desk.sent if at > 105]
    assert max(b - a for a, b in itertools.pairwise(late)) <= 1.05 and len(late) < 10


def test_a_failed_rank_is_shown_with_its_reason_before_anything_is_drawn(desk, view):
    run = start(view)
    desk.follow(view, run, 1)
    failure = Failure(1, "raised", 0.0, type="ValueError", message="bad chunk")
    end(view, run, "failed", Outcome("failed", (failure,), (Standing(0, Wait(0, "recv", 1)),)))
    last = desk.messages()[-1]
    assert [(r["state"], r["doing"]) for r in last["ranks"]] == [
        ("stopped", "stopped: waits in recv from rank 1"), ("failed", "failed: ValueError: bad chunk"),
    ]  # fmt: skip
    assert last["whole"] and VIEW in desk.outputs[0]


def test_a_table_takes_the_view_s_place_when_the_cell_has_ended(desk, view):
    run = start(view)
    desk.follow(view, run, 1)
    end(view, run)
    desk.end_cell()
    assert len(desk.outputs) == 1 and set(desk.outputs[0]) == {"text/html", "text/plain"}


def test_a_slow_run_that_only_printed_leaves_its_lines_alone(desk, view, capsys):
    run = start(view)
    view.printed(run, 0, "hello\n")
    desk.follow(view, run, 1)
    end(view, run)
    assert desk.outputs == [{"text/plain": "[rank 0] hello"}] and capsys.readouterr().out == "2 ranks\n"


def test_a_slow_run_of_an_exercise_that_is_not_written_leaves_one_line_and_no_table(desk, view, capsys):
    run = start(view)
    run.reports, run.not_yet = [[{"t": 0.0, "step": n, "loss": 2.0 - n} for n in range(2)], []], "Exercise 0.1"
    desk.follow(view, run, 1)
    end(view, run, "not yet")
    desk.end_cell()
    assert desk.outputs == [{"text/plain": "not yet: Exercise 0.1"}] and capsys.readouterr().out == "2 ranks\n"


def test_a_run_with_a_picture_prints_no_raw_lines_below_it(desk, view, capsys):
    run = start(view)
    view.printed(run, 0, "".join(f"line {n}\n" for n in range(40)))
    run.reports = [[{"t": 0.0, "step": n, "loss": 2.0 - n} for n in range(2)], []]
    end(view, run)
    desk.end_cell()
    assert capsys.readouterr().out == "2 ranks\n"
    assert "[rank 0] line 29\n… 10 more lines" in desk.outputs[0]["text/html"]


def test_a_quick_run_with_reports_leaves_its_curves(desk, view):
    run = start(view)
    run.reports = [[{"t": 0.0, "step": n, "loss": 2.0 - n} for n in range(2)], []]
    end(view, run)
    desk.end_cell()
    assert "loss falls from 2 to 1" in desk.outputs[0]["text/html"]


def reported(view, state="done", outcome=None):
    """A quick run that leaves its curves."""
    run = start(view)
    run.reports = [[{"t": 0.0, "step": n, "loss": 2.0 - n} for n in range(2)], []]
    end(view, run, state, outcome)


def opened(desk):
    """Of each run's result in the cell, whether it is open."""
    folds = [re.match(r"<details [^>]*>", shown.get("text/html", "")) for shown in desk.outputs]
    return [fold[0].endswith(" open>") for fold in folds if fold]


def test_the_result_of_a_cells_only_run_is_open(desk, view):
    reported(view)
    desk.end_cell()
    assert opened(desk) == [True]


def test_a_run_under_which_its_cell_shows_a_picture_is_folded_into_a_line(desk, view):
    reported(view)
    desk.show_picture()
    desk.end_cell()
    assert opened(desk) == [False] and "<summary>2 ranks, done, 1 s</summary>" in desk.outputs[0]["text/html"]


def test_a_result_that_is_a_table_alone_is_folded(desk, view):
    run = start(view)
    desk.follow(view, run, 1)
    end(view, run)
    desk.end_cell()
    assert opened(desk) == [False] and "✔ done" in desk.outputs[0]["text/html"]


def test_of_several_launches_the_only_result_is_folded(desk, view):
    end(view, start(view))
    reported(view)
    desk.end_cell()
    reported(view)
    desk.end_cell()
    assert opened(desk) == [False, True]


def test_the_picture_of_an_earlier_cell_folds_nothing(desk, view):
    reported(view)
    desk.end_cell()
    desk.show_picture()
    reported(view)
    desk.end_cell()
    assert opened(desk) == [True, True]


def test_each_of_a_cells_runs_is_folded_into_a_line_but_one_that_failed(desk, view):
    reported(view)
    reported(view, "failed", Outcome("failed", (Failure(1, "raised", 0.0, type="ValueError", message="bad chunk"),)))
    reported(view)
    desk.show_picture()
    desk.end_cell()
    assert opened(desk) == [False, True, False]


def test_the_line_of_a_run_says_what_ran_how_long_and_what_it_sent():
    run = finished(RunState(2))
    run.function, run.name = "train", "rank {}".format
    assert result.summary(run) == "train: 2 ranks, done, 1 s"
    run.trace = Trace(2, (Transfer(0, 1, 3000, 0.0, 0.1), Transfer(1, 0, 1000, 0.0, 0.1)))
    assert result.summary(run) == "train: 2 ranks, done, 1 s · 2 messages, 4 kB"
    run.trace = Trace(2, (), (), (Collective("all_reduce", 500, 1, 0.0, 0.1), Collective("barrier", 0, 1, 0.1, 0.2)))
    assert result.summary(run) == "train: 2 ranks, done, 1 s · 2 collectives of rank 1, 500 B"
    run.trace = Trace(2, (), (), tuple(Collective("all_reduce", 500, rank, 0.0, 0.1) for rank in range(2)))
    assert result.summary(run) == "train: 2 ranks, done, 1 s · 1 collective, 500 B"


def test_a_view_that_cannot_be_shown_does_no_harm(desk, view, capsys, monkeypatch):
    monkeypatch.setattr("comm.create_comm", lambda **opened: 1 / 0)
    run = start(view)
    view.printed(run, 0, "hello\n")
    desk.follow(view, run, 2)
    end(view, run)
    said = capsys.readouterr().out
    assert said.count("the live view stopped (ZeroDivisionError") == 1 and "[rank 0] hello" in said


@pytest.mark.parametrize("then", ["cell ends", "next run"])
def test_the_view_of_a_run_that_broke_off_does_not_stay(desk, view, then):
    desk.follow(view, start(view), 1)
    desk.end_cell() if then == "cell ends" else start(view)
    assert desk.outputs == [{"text/plain": "the run broke off"}]


def warm(observer, seconds):
    for tick in range(1, round(seconds / 0.05) + 1):
        observer.warming(0.05 * tick)


def test_a_helper_that_is_nearly_there_is_not_spoken_of(desk, view, capsys):
    warm(view, 0.25)
    view.warmed(0.25, True)
    assert not desk.outputs and capsys.readouterr().out == ""


def test_a_helper_that_warms_is_on_the_screen_within_half_a_second(desk, view):
    warm(view, 0.5)
    (shown,) = desk.outputs
    words = "starting the helper that starts ranks. It takes some seconds; later launches find it ready"
    assert shown["text/plain"].startswith(words)


def test_the_line_about_the_helper_counts_seconds_and_then_says_how_long_it_took(desk, view):
    warm(view, 5.5)
    assert desk.outputs[0]["text/plain"].endswith("(5 s)")
    view.warmed(5.5, True)
    assert [shown["text/plain"] for shown in desk.outputs] == [
        "the helper that starts ranks is ready, for later launches too: 5.5 s"
    ]


def test_a_helper_that_did_not_come_is_not_said_to_be_ready(desk, view):
    warm(view, 1)
    view.warmed(1.0, False)
    assert "was not ready after 1.0 s" in desk.outputs[0]["text/plain"]


@pytest.mark.parametrize(("seconds", "lines"), [(1.9, 0), (2.1, 1), (9.0, 1)])
def test_in_a_terminal_a_helper_that_takes_long_is_spoken_of_once(seconds, lines, capsys):
    warm(TextLines(), seconds)
    assert capsys.readouterr().out.count("starting the helper") == lines


def failed_run(world_size=3):
    run_state = RunState(world_size)
    failure = Failure(2, "raised", 0.0, type="ValueError", message="<b>bad</b>")
    standings = tuple(Standing(r, Wait(r, "recv", 2)) for r in range(2))
    return finished(run_state, "failed", Outcome("failed", (failure,), standings)), run_state


def test_the_failed_rank_comes_first_with_mark_word_and_reason():
    _, rows = result.table(*failed_run())
    assert rows[0].texts()[:2] == ["2", "failed: ValueError: <b>bad</b>"]
    assert "✘ failed" in result.bundle(*failed_run())["text/html"]


def test_what_a_rank_says_is_no_html():
    assert "<b>" not in result.bundle(*failed_run())["text/html"]


def test_what_stays_needs_no_script_and_no_network():
    run_state = RunState(1)
    made = result.bundle(finished(run_state, reports=[[{"t": 0.0, "step": 1, "loss": 1.0}]]), run_state)["text/html"]
    assert "<script" not in made and not re.search(r"(src|href)=.http|url\(http", made)
    assert '<img alt="Curves of 1 rank' in made


def test_columns_that_say_nothing_are_left_out():
    run_state = RunState(2)
    run_state.printed(0, ["line"])
    assert result.table(finished(run_state), run_state)[0] == ["rank", "end", "lines"]


SPENT = SimpleNamespace(world_size=2, transfers=(), spans=(Span(0, "compute", 0.0, 1.0, "forward"),), collectives=())


def test_of_a_run_that_reported_nothing_its_picture_is_open_and_its_table_folded():
    run_state = RunState(2)
    run = finished(run_state)
    run.trace = SPENT
    page = result.bundle(run, run_state)["text/html"]
    assert page.index("Timeline of 2 ranks") < page.index("><summary>what each rank did") < page.index("<table>")


EXCHANGED = Trace(2, (Transfer(0, 1, 3000, 0.0, 0.9),), (Span(1, "wait", 0.0, 0.9, ""),))


@pytest.mark.parametrize(("trace", "kinds"), [(EXCHANGED, ["Timeline", "Curves"]), (SPENT, ["Curves"])])
def test_of_a_run_that_reported_and_whose_ranks_exchanged_anything_the_timeline_stands_above_the_curves(trace, kinds):
    run_state = RunState(2)
    run = finished(run_state, reports=[[{"t": 0.0, "step": n, "loss": 2.0 - n} for n in range(2)]] * 2)
    run.trace = trace
    made = result.bundle(run, run_state)
    assert re.findall(r'<img alt="(\w+)', made["text/html"]) == kinds
    assert [line.split()[0] for line in made["text/plain"].splitlines()[: len(kinds)]] == kinds


def test_of_a_run_without_a_picture_the_table_is_open():
    run_state = RunState(2)
    assert result.bundle(finished(run_state), run_state)["text/html"].startswith("<table>")


def test_the_lines_of_a_run_are_folded_below_its_picture():
    run_state = RunState(2)
    run = finished(run_state)
    run.trace = SPENT
    page = result.bundle(run, run_state, ["[rank 0] <b>one</b>", "[rank 1] two"])["text/html"]
    pre = "<pre>[rank 0] &lt;b&gt;one&lt;/b&gt;\n[rank 1] two</pre>"
    folded = f"><summary>what the ranks printed</summary>{pre}</details>"
    assert page.endswith(folded) and page.index("Timeline of 2 ranks") < page.index(folded)


def test_folded_lines_stay_few():
    run_state = RunState(2)
    page = result.bundle(finished(run_state), run_state, ["x" * 10_000] * 30)["text/html"]
    assert len(page) < 5000 and "more lines: print(run.log(0))" in page


def test_a_table_of_very_many_ranks_is_cut():
    run_state = RunState(200)
    assert "… and 184 more ranks" in result.bundle(finished(run_state), run_state)["text/html"]


def test_the_script_fetches_nothing():
    assert set(re.findall(r"https?://[^\"\s]+", SCRIPT)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\bimport\b|\bfetch\(|XMLHttpRequest", SCRIPT)


def test_ranks_of_several_hosts_say_theirs_in_the_view_and_in_the_table():
    run_state = RunState(3, hosts=("n1", "n1", "n2"))
    run = finished(run_state)
    run.hosts = ("n1", "n1", "n2")
    heads, rows = result.table(run, run_state)
    assert [rank["host"] for rank in run_state.whole()["ranks"]] == ["n1", "n1", "n2"]
    assert heads[2] == "host" and [row.more[0] for row in rows] == ["n1", "n1", "n2"]
