"""Replays: whose clock starts when, who ends first, where ranks stand, what is on the screen at a moment, and the HTML."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from tests.support.lab_page import chromium
from worldsize import figures, units
from worldsize.figures import tokens
from worldsize.figures.base import Picture
from worldsize.figures.player import output
from worldsize.figures.replay import bands, places
from worldsize.figures.replay.racers import finding, racers_of
from worldsize.trace import Span, Trace, Transfer


def ring(n, rounds=6, seconds=0.01, from_s=0.0):
    found = []
    for k in range(rounds):
        start_s = from_s + k * seconds
        found += [Transfer(r, (r + 1) % n, 1000, start_s, start_s + seconds) for r in range(n)]
    return Trace(n, tuple(found))


def star(n, seconds=0.04):
    return Trace(n, tuple(Transfer(0, r, 4000, 0.0, r * seconds) for r in range(1, n)))


def lasting(seconds):
    return Trace(2, (Transfer(0, 1, 10, 0.0, seconds),))


def run(trace, state="done", exercise=None):
    return SimpleNamespace(trace=trace, state=state, not_yet=exercise)


def found_in(runs):
    return finding(racers_of(runs)[0])


def data_of(shown):
    """What the page's script gets."""
    return json.loads(re.search(r"\nshowAll\(\"replay\", \"\w+\", (.*)\);\n</script>$", shown._repr_html_())[1])


def saved(shown, monkeypatch):
    """What a notebook keeps of it."""
    bundles = []
    monkeypatch.setattr("IPython.display.display", lambda bundle, raw, metadata: bundles.append(bundle))
    shown._ipython_display_()
    return bundles[0]


RACE = {"star": star(4), "ring": ring(4)}


# one clock


def test_a_runs_clock_starts_with_its_first_message():
    late, early = data_of(figures.replay({"late": ring(4, from_s=7.0), "early": ring(4)}))["runs"]
    assert late["messages"] == early["messages"] and late["over"] == early["over"]


def test_a_runs_clock_starts_with_work_that_was_marked_before_the_first_message():
    worked = Trace(2, (Transfer(0, 1, 10, 1.0, 2.0),), (Span(0, "compute", 0.5, 1.0),))
    (racer,), _ = racers_of({"worked": worked})
    assert (racer.zero_s, racer.over_s) == (0.5, 1.5)


def test_a_wait_neither_starts_nor_ends_a_run():
    waited = Trace(2, (Transfer(0, 1, 10, 1.0, 2.0),), (Span(1, "wait", 0.0, 9.0),))
    (racer,), _ = racers_of({"waited": waited})
    assert (racer.zero_s, racer.over_s) == (1.0, 1.0)


def test_a_run_of_marked_work_alone_can_be_played():
    shown = data_of(figures.replay({"work": Trace(1, (), (Span(0, "compute", 0.0, 1.0, "forward 0"),))}))
    assert shown["kinds"] == ["forward"] and shown["runs"][0]["works"] == [[0, 0, shown["last"], 0]]


def test_work_declared_within_marked_work_is_one_piece():
    works = (Span(0, "compute", 0.0, 1.0, "forward 0"), Span(0, "compute", 0.0, 1.0, "0.9987", declared=True))
    shown = data_of(figures.replay({"work": Trace(1, (), works)}))
    assert shown["kinds"] == ["forward"] and len(shown["runs"][0]["works"]) == 1


def test_work_without_a_word_is_called_work():
    works = (Span(0, "compute", 0.0, 1.0, "0.9987", declared=True), Span(0, "compute", 1.0, 2.0))
    assert data_of(figures.replay({"work": Trace(1, (), works)}))["kinds"] == ["work"]


# who ends first


def test_the_finding_names_the_first_and_how_many_times_as_long_the_others_take():
    assert found_in({"a": lasting(3.0), "b": lasting(1.0)}) == "b ends first, after 1 s; a takes 3 times as long"


def test_runs_within_five_percent_are_a_tie():
    assert found_in({"a": lasting(1.04), "b": lasting(1.0)}) == "a and b end together (within 5 %), after 1 s"


def test_two_that_tie_before_a_third_end_first_together():
    runs = {"a": lasting(1.04), "b": lasting(1.0), "c": lasting(2.0)}
    assert found_in(runs) == "a and b end first together (within 5 %), after 1 s; c takes 2 times as long"


def test_a_run_that_failed_does_not_win():
    runs = {"a": run(lasting(0.1), "failed"), "b": run(lasting(1.0))}
    assert found_in(runs) == "b takes 1 s"
    assert data_of(figures.replay(runs))["runs"][0]["standing"] == "stopped at 100 ms, not finished"


def test_the_alt_text_states_the_finding_and_every_runs_bytes():
    assert figures.replay(RACE).alt == (
        "Replay of 2 runs on one clock: ring ends first, after 60 ms; star takes 2 times as long. "
        "star: 4 ranks, 12 kB in 3 messages, done at 120 ms, 2 times as long as the first. "
        "ring: 4 ranks, 24 kB in 24 messages, done at 60 ms, first."
    )


def test_before_the_end_a_question_stands_over_the_film():
    assert data_of(figures.replay(RACE))["title"] == "Which ends first: star or ring?"


def test_an_exercise_not_yet_written_is_named_and_the_others_play():
    shown = figures.replay({"star": star(4), "tree": run(None, "not yet", "Exercise 2.1: a broadcast as a tree")})
    assert [band["name"] for band in data_of(shown)["runs"]] == ["star"]
    assert "tree: not yet: Exercise 2.1" in shown.alt and "tree: not yet: Exercise 2.1" in data_of(shown)["notes"][0]


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ({}, "no run to replay yet"),
        ({"a": run(None, "not yet", "Exercise 6.2")}, "a: not yet: Exercise 6.2"),
        ({"a": Trace(4)}, "a: no message and no work was recorded"),
        ({"a": ring(17, 1)}, "17 ranks are too many to replay"),
    ],
)
def test_where_nothing_can_be_played_a_picture_says_why(runs, said):
    shown = figures.replay(runs)
    assert isinstance(shown, Picture) and said in shown.alt


def test_runs_without_names_are_refused():
    with pytest.raises(ValueError, match="figures.replay: expected runs by name"):
        figures.replay([star(4)])


# where ranks stand


@pytest.mark.parametrize("n", [3, 4, 8, 16])
def test_ranks_stand_as_their_messages_suggest(n):
    def stand(trace):
        return places.places(racers_of({"a": trace})[0][0])

    ways = [(me - step, me) for step in (1, 2, 4, 8) for me in range(step, min(2 * step, n))]
    row = [Transfer(r, r + 1, 1, r, r + 1.0) for r in range(n - 1)]
    down = [Transfer(a, b, 1, k, k + 1.0) for k, (a, b) in enumerate(ways)]
    up = [Transfer(b, a, 1, k, k + 1.0) for k, (a, b) in enumerate(reversed(ways))]

    assert stand(ring(n)) == places.ring(n)
    assert stand(star(n)) == places.star(n, 0)
    assert n == 3 or stand(Trace(n, tuple(row))) == places.row(n)
    assert n == 3 or stand(Trace(n, tuple(down))) == places.tree(n, 0, ways)
    assert n == 3 or stand(Trace(n, tuple(up)))[0][1] == 0


@pytest.mark.parametrize("n", [3, 5, 8, 16])
def test_every_rank_has_a_place_of_its_own_in_the_frame(n):
    for found in (places.ring(n), places.star(n, 0), places.row(n), places.tree(n, 0, [(0, r) for r in range(1, n)])):
        assert len({(round(x, 6), round(y, 6)) for x, y in found}) == n
        assert all(-1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9 for x, y in found)


@pytest.mark.parametrize("n", [1, 2])
def test_one_rank_or_two_have_places_of_their_own(n):
    assert len(set(places.ring(n))) == n


# a moment of the film, as the script sees it


@pytest.fixture(scope="module")
def value_of():
    """What an expression is worth behind the scripts of a replay: by Node where it is there, else in Chromium."""
    scripts = [output.PLAYER.read_text(), bands.SCRIPT.read_text()]
    if shutil.which("node"):

        def by_node(expression):
            program = "\n".join([*scripts, f"console.log(JSON.stringify({expression}))"])
            command = ["node", "--input-type=module", "-"]
            done = subprocess.run(command, input=program, capture_output=True, text=True, timeout=60, check=True)
            return json.loads(done.stdout)

        yield by_node
        return

    with chromium() as browser:
        page = browser.new_page()
        yield lambda expression: page.evaluate("\n".join(["() => {", *scripts, f"return {expression}; }}"]))


def state_at(value_of, runs, share, name):
    """The state of the run `name` when that share of the film is over."""
    data = data_of(figures.replay(runs))
    band = next(band for band in data["runs"] if band["name"] == name)
    return value_of(f"stateAt({json.dumps(band)}, {share * data['last']})")


def test_at_the_start_nothing_has_arrived(value_of):
    state = state_at(value_of, RACE, 0, "star")
    assert (state["bytes"], state["messages"], state["over"]) == (0, 0, False)


SHORT = Trace(2, (Transfer(0, 1, 10, 0.0, 0.001), Transfer(1, 0, 10, 0.001, 0.003)))
OPENED = {
    "a race": RACE,
    "one run": {"a": lasting(2.0)},
    "many messages": {"large": ring(8, 1000), "small": ring(3, 100)},
    "work before messages": {"a": Trace(2, (Transfer(0, 1, 10, 1.0, 2.0),), (Span(1, "compute", 0.0, 1.0),))},
    "one that is over before the other has begun": {"short": SHORT, "long": lasting(2.0)},
}


@pytest.mark.parametrize("runs", OPENED.values(), ids=OPENED)
def test_a_film_opens_with_something_in_every_run_and_with_none_that_is_over(value_of, runs):
    data = data_of(figures.replay(runs))
    for band in data["runs"]:
        state = value_of(f"stateAt({json.dumps(band)}, {data['opens']})")
        assert not state["over"] and (state["flying"] or state["works"] or state["messages"])


def test_a_message_is_as_far_on_its_way_as_its_time_is_over(value_of):
    state = state_at(value_of, {"a": lasting(2.0)}, 0.25, "a")
    assert state["flying"] == [[0, 0.25]] and sorted(state["busy"]) == [0, 1]


def test_bytes_count_when_a_message_has_arrived(value_of):
    assert state_at(value_of, RACE, 0.34, "star")["bytes"] == 4000
    assert state_at(value_of, RACE, 0.33, "star")["bytes"] == 0


@pytest.mark.parametrize("name", RACE)
def test_at_the_end_all_bytes_have_arrived_and_nothing_flies(value_of, name):
    state = state_at(value_of, RACE, 1, name)
    assert (state["bytes"], state["flying"], state["over"]) == (RACE[name].total_bytes(), [], True)


def test_the_faster_run_is_over_while_the_other_one_goes_on(value_of):
    assert state_at(value_of, RACE, 0.51, "ring")["over"] and not state_at(value_of, RACE, 0.51, "star")["over"]


def test_a_rank_works_while_its_marked_work_lasts(value_of):
    work = {"a": Trace(2, (Transfer(0, 1, 10, 1.0, 2.0),), (Span(1, "compute", 0.0, 1.0),))}
    assert [state_at(value_of, work, share, "a")["works"] for share in (0.2, 0.8)] == [[1], []]


@pytest.mark.parametrize("size_bytes", [0, 1, 999, 1000, 1234, 123_456, 4_000_000, 2_500_000_000, 3_000_000_000_000])
def test_the_script_writes_sizes_as_the_course_does(value_of, size_bytes):
    assert value_of(f"size({size_bytes})") == units.size(size_bytes)


def test_the_script_has_a_colour_for_every_tone_of_a_rank(value_of):
    assert value_of("RANK_TONES") == len(tokens.RANKS)


# many messages


def test_a_large_run_is_thinned_and_says_so_and_counts_all_bytes(value_of):
    large = {"large": ring(8, 1000)}
    data = data_of(figures.replay(large))
    assert len(data["runs"][0]["messages"]) <= bands.MOST_MESSAGES
    assert "large: one of 34 of its 8,000 messages is drawn; all are counted." in data["notes"]
    assert state_at(value_of, large, 1, "large")["bytes"] == large["large"].total_bytes()


def test_of_much_marked_work_the_longest_is_drawn_and_said():
    works = [Span(0, "compute", k, k + 0.9 * (k % 2) + 0.1) for k in range(600)]
    data = data_of(figures.replay({"a": Trace(1, (), tuple(works))}))
    assert data["notes"][1] == "a: the 240 longest of its 600 pieces of work are drawn."


def test_two_runs_of_two_hundred_messages_on_eight_ranks_stay_under_100_kB(monkeypatch):
    shown = figures.replay({"a": ring(8, 25), "b": ring(8, 25, 0.017)})
    assert sum(map(len, saved(shown, monkeypatch).values())) <= 100_000


# the speed in words, the axis


@pytest.mark.parametrize("seconds", [3e-5, 0.0123, 0.3, 1.0, 77.0])
def test_the_usual_film_lasts_eight_to_twenty_seconds_and_its_speed_is_said(seconds):
    data = data_of(figures.replay({"a": lasting(seconds)}))
    rate, words = data["speeds"][2]
    assert 8 <= data["last"] / rate <= 20.01
    assert words == f"1 s of the film is {units.seconds(rate * seconds / data['last'])} of the run"


@pytest.mark.parametrize("seconds", [3e-5, 0.0123, 0.3, 1.0, 77.0])
def test_the_axis_has_a_few_round_numbers_within_the_film(seconds):
    data = data_of(figures.replay({"a": lasting(seconds)}))
    places_of = [at for at, _ in data["ticks"]]
    assert 3 <= len(places_of) <= 8 and places_of == sorted(places_of) and places_of[-1] <= data["last"]


# the output


def test_the_output_fetches_nothing():
    page = re.sub(r'src="data:[^"]*"|http://www\.w3\.org/2000/svg', "", figures.replay(RACE)._repr_html_())
    assert not re.search(r"https?:|src=|import |fetch\(|url\((?!#|\$)", page)


def test_a_name_cannot_end_the_script():
    shown = figures.replay({"</script><b>": star(3)})
    assert shown._repr_html_().count("</script>") == 1 and data_of(shown)["runs"][0]["name"] == "</script><b>"


def test_where_no_script_runs_a_picture_of_the_whole_race_stays():
    html = figures.replay(RACE)._repr_html_()
    assert re.search(r'<div class="ws-replay" [^>]*><img alt="Replay of 2 runs', html)
