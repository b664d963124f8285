"""What a student predicted, measured and earned: kept in a file, shown in a table, never lost."""

import json
import re
import subprocess
import sys
import threading
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest

from worldsize.cells.released import EXERCISES
from worldsize.lab.lab import LABS, Lab
from worldsize.lab.prediction_field import SAVED
from worldsize.lab.summary import compare

POSSIBLE = sum(LABS[number].points for number in EXERCISES)
QUESTION = "How long does the ring take at 8 ranks?"


@pytest.fixture(autouse=True)
def headless_in_a_fresh_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("WORLDSIZE_HEADLESS", "1")


@pytest.fixture
def live(monkeypatch):
    """What a live kernel would display: the ipywidgets that `predict` made, in order."""
    monkeypatch.delenv("WORLDSIZE_HEADLESS")
    shown = []

    def display(bundle, raw, display_id=False):
        shown.append(bundle)
        return SimpleNamespace(update=lambda later, raw: bundle.update(later))

    monkeypatch.setattr("IPython.display.display", display)
    return shown


def verdict(exercise="ring", points=2, possible=2, state="pass"):
    return SimpleNamespace(exercise=exercise, points=points, possible=possible, state=state)


def boxes_of(live):
    """The text box and the status line of the latest card."""
    box, _, status, *_ = card_of(live).children
    return box, status


def card_of(live):
    from ipywidgets import widget_serialization

    key = "application/vnd.jupyter.widget-view+json"
    widget, _ = live[-2:]
    return widget_serialization["from_json"](f"IPY_MODEL_{widget[key]['model_id']}", None)


def texts_of(live):
    """The card's parts that are text."""
    return [child for child in card_of(live).children if isinstance(getattr(child, "value", None), str)]


# the file


def test_a_restarted_kernel_finds_predictions_measurements_and_points():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s", answer=0.2)
    lab.measure("ring", 0.3)
    lab.record(verdict())
    again = Lab("06")
    assert (again.prediction("ring"), again.measured("ring"), again.points) == (0.2, 0.3, 2)


def test_the_file_lies_under_the_current_directory_by_default(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLDSIZE_STATE_DIR")
    monkeypatch.chdir(tmp_path)
    Lab("06").measure("ring", 1.0)
    assert (tmp_path / ".worldsize" / "lab_06.json").exists()


def test_a_lab_goes_on_writing_to_its_file_after_a_change_of_directory(tmp_path, monkeypatch):
    monkeypatch.delenv("WORLDSIZE_STATE_DIR")
    monkeypatch.chdir(tmp_path)
    lab = Lab("06")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    lab.measure("ring", 1.0)
    assert not (tmp_path / "elsewhere" / ".worldsize").exists()


def test_the_file_has_three_sections_of_plain_json():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s", answer=0.2)
    lab.measure("ring", np.float32(0.5))
    lab.record(verdict("ring", 1, 2, "fail"))
    assert json.loads(lab.path.read_text()) == {
        "predictions": {"ring": {"question": QUESTION, "unit": "s", "value": 0.2}},
        "measurements": {"ring": {"value": 0.5, "unit": "s"}},
        "points": {"ring": {"earned": 1, "possible": 2, "state": "fail"}},
    }


def test_two_kernels_writing_in_turn_keep_each_others_keys():
    one, other = Lab("06"), Lab("06")
    one.measure("a", 1)
    other.measure("b", 2)
    one.measure("c", 3)
    assert [other.measured(key) for key in "abc"] == [1, 2, 3]


def test_kernels_writing_at_once_lose_nothing():
    script = """if True:
        import sys
        from worldsize.lab.lab import Lab
        lab = Lab("06")
        for i in range(40):
            lab.measure(f"{sys.argv[1]}{i}", i)
    """
    writers = [subprocess.Popen([sys.executable, "-c", script, name]) for name in "ab"]
    assert [writer.wait(100) for writer in writers] == [0, 0]
    assert len(Lab("06").rows()) == 80


def test_threads_writing_at_once_lose_nothing():
    lab = Lab("06")
    threads = [threading.Thread(target=lab.measure, args=(f"t{i}", i)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert len(lab.rows()) == 16


def test_keys_that_this_version_does_not_know_are_kept():
    lab = Lab("06")
    lab.measure("ring", 1)
    state = json.loads(lab.path.read_text())
    lab.path.write_text(json.dumps({**state, "later": [1, 2]}))
    lab.measure("ring", 2)
    assert json.loads(lab.path.read_text())["later"] == [1, 2]


TOO_LARGE = pytest.param('{"predictions": {"a": {"unit": "s", "value": 1' + "0" * 400 + "}}}", id="no float is so large")


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "\x00\x00", '{"points": 3}', '{"points": {"ring": {"earned": "9"}}}', TOO_LARGE]
)
def test_a_damaged_file_is_moved_aside_and_named(damage, capsys):
    path = Lab("06").path
    path.parent.mkdir()
    path.write_text(damage)
    assert Lab("06").points == 0
    aside = path.with_name("lab_06.damaged-1.json")
    assert aside.read_text() == damage
    assert str(aside) in capsys.readouterr().out


def test_a_second_damaged_file_does_not_overwrite_the_first():
    path = Lab("06").path
    path.parent.mkdir()
    for text in ("first", "second"):
        path.write_text(text)
        Lab("06").rows()
    assert [path.with_name(f"lab_06.damaged-{n}.json").read_text() for n in (1, 2)] == ["first", "second"]


def test_what_the_kernel_knew_survives_a_damaged_file():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s", answer=0.2)
    lab.record(verdict())
    lab.path.write_text("{")
    lab.measure("ring", 1)
    assert (Lab("06").prediction("ring"), Lab("06").points, Lab("06").measured("ring")) == (0.2, 2, 1)


def test_sound_entries_survive_beside_a_damaged_one():
    path = Lab("06").path
    path.parent.mkdir()
    sound = {"value": 1.0, "unit": "s"}
    path.write_text(json.dumps({"measurements": {"good": sound, "bad": {"value": "x", "unit": "s"}}}))
    lab = Lab("06")
    assert (lab.measured("good"), lab.measured("bad")) == (1.0, None)


def test_a_deleted_file_means_a_fresh_start():
    lab = Lab("06")
    lab.measure("ring", 1)
    lab.path.unlink()
    assert lab.measured("ring") is None


def test_a_crash_in_mid_write_leaves_the_old_file(monkeypatch):
    lab = Lab("06")
    lab.measure("ring", 1)
    monkeypatch.setattr("os.fsync", lambda fd: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        lab.measure("ring", 2)
    assert Lab("06").measured("ring") == 1


def test_a_folder_that_cannot_be_written_is_explained(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("WORLDSIZE_STATE_DIR", str(tmp_path / "file"))
    with pytest.raises(OSError, match="can't be saved.*expected a folder.*Set WORLDSIZE_STATE_DIR"):
        Lab("06").measure("ring", 1)


# predictions


def test_headless_takes_the_answer_and_prints_one_line(capsys):
    Lab("06").predict("ring", QUESTION, "s", answer=0.2)
    assert capsys.readouterr().out == f"{QUESTION} prediction: 0.2 s\n"


def test_headless_without_an_answer_says_no_prediction(capsys):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    assert capsys.readouterr().out == f"{QUESTION} no prediction\n"
    assert lab.prediction("ring") is None


def test_headless_without_an_answer_keeps_what_was_typed_before():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s", answer=0.2)
    lab.predict("ring", QUESTION, "s")
    assert lab.prediction("ring") == 0.2


def test_a_prediction_typed_for_another_unit_is_not_taken_over():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s", answer=0.2)
    lab.predict("ring", QUESTION, "ms")
    assert lab.prediction("ring") is None


def test_a_live_field_starts_empty_even_where_a_headless_answer_is_given(live):
    Lab("06").predict("ring", QUESTION, "s", answer=0.2)
    assert boxes_of(live)[0].value == ""


def test_a_live_field_is_labelled_with_the_question_and_has_its_unit_beside_it(live):
    Lab("06").predict("ring", QUESTION, "s")
    box, unit, *_ = card_of(live).children
    assert (box.description, unit.value, box.placeholder) == (QUESTION, "s", "your prediction")


@pytest.mark.parametrize(("unit", "begins"), [("s", "s. Enter saves"), ("", "Enter saves")])
def test_a_live_field_s_tooltip_is_its_unit_and_which_keys_save(live, unit, begins):
    Lab("06").predict("ring", QUESTION, unit)
    assert boxes_of(live)[0].tooltip.startswith(begins)


def test_code_in_a_question_is_set_as_code_and_the_rest_is_escaped(live):
    Lab("06").predict("ring", "Is `a < b` <b>bold</b>?", "")
    assert boxes_of(live)[0].description == "Is <code>a &lt; b</code> &lt;b&gt;bold&lt;/b&gt;?"
    assert "<code>a &lt; b</code>" in live[-1]["text/html"] and "`" not in live[-1]["text/plain"]


def test_that_enter_and_leaving_save_is_said_before_anything_is_typed(live):
    Lab("06").predict("ring", QUESTION, "s")
    assert any("Enter saves and goes on. Leaving the field saves too" in child.value for child in texts_of(live))


def test_what_is_saved_differs_from_what_is_not_in_mark_words_and_frame(live):
    Lab("06").predict("ring", QUESTION, "s")
    box, status = boxes_of(live)
    assert "○ no prediction yet" in status.value and SAVED not in card_of(live)._dom_classes
    box.value = "1/4"
    assert "✓ saved: 0.25 s" in status.value and SAVED in card_of(live)._dom_classes
    box.value = "1,234"
    assert "✘ not saved" in status.value and SAVED not in card_of(live)._dom_classes


def test_a_number_in_another_unit_of_the_same_kind_is_converted(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "ms")
    box, status = boxes_of(live)
    box.value = "0.02 s"
    assert lab.prediction("ring") == 20 and "✓ saved: 20 ms" in status.value


def test_a_number_typed_in_the_field_is_saved_and_said_so(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    box, status = boxes_of(live)
    box.value = "0.25"
    assert Lab("06").prediction("ring") == 0.25
    assert "saved: 0.25 s" in status.value


def test_the_field_shows_the_number_that_was_typed_before_a_restart(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    boxes_of(live)[0].value = "0.25"
    Lab("06").predict("ring", QUESTION, "s")
    box, status = boxes_of(live)
    assert box.value == "0.25" and "saved" in status.value


def test_text_that_is_no_number_keeps_the_earlier_one_and_says_what_to_type(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    box, status = boxes_of(live)
    box.value = "0.25"
    box.value = "<b>soon"
    assert lab.prediction("ring") == 0.25
    assert "not saved" in status.value and "such as 0.25" in status.value and "<b>" not in status.value
    assert "Your saved prediction stays: 0.25 s" in status.value


def test_an_emptied_field_takes_the_prediction_back(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    box, _ = boxes_of(live)
    box.value = "0.25"
    box.value = ""
    assert lab.prediction("ring") is None


def test_a_field_whose_file_cannot_be_written_says_so(live, monkeypatch):
    Lab("06").predict("ring", QUESTION, "s")
    box, status = boxes_of(live)
    monkeypatch.setattr("os.replace", lambda *paths: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    box.value = "0.25"
    assert "not saved" in status.value and "WORLDSIZE_STATE_DIR" in status.value


def test_a_notebook_without_its_kernel_shows_the_question_and_the_prediction(live):
    Lab("06").predict("ring", QUESTION, "s")
    assert live[-1]["text/plain"] == f"{QUESTION} ○ no prediction yet; run this cell to type one"
    boxes_of(live)[0].value = "0.25"
    assert live[-1]["text/plain"] == f"{QUESTION} ✓ saved: 0.25 s; run this cell to change it"
    assert f"{QUESTION} <em>✓ saved: 0.25 s; run this cell to change it</em>" in live[-1]["text/html"]


# measurements


def test_a_measurement_takes_the_unit_of_its_question():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "ms")
    lab.measure("ring", 3)
    assert lab.rows()[0].measured_text == "3 ms"


def test_what_was_measured_is_said_at_once_beside_what_was_predicted(capsys):
    lab = Lab("06")
    lab.predict("ring", "How long does `ring` take?", "s", answer=3)
    lab.measure("ring", 0.51)
    lab.measure("unasked", 7.0, "s")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "How long does ring take?", "  you said 3 s · it was 0.51 s · 5.9 times too high"
    ]


def test_what_was_measured_is_said_without_a_prediction_too_and_nothing_where_there_is_nothing(capsys):
    lab = Lab("06")
    lab.predict("ring", "How long?", "s")
    lab.measure("ring", None)
    lab.measure("ring", 2)
    assert capsys.readouterr().out.splitlines()[1:] == ["How long?", "  it was 2 s"]


def test_the_field_answers_when_it_is_measured_and_again_when_the_prediction_is_changed(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    box, _, _, answer, *_ = card_of(live).children
    box.value = "3"
    assert answer.value == ""
    lab.measure("ring", 0.51)
    assert "you said 3 s · it was 0.51 s · 5.9 times too high" in answer.value and "<svg" in answer.value
    box.value = "0.5"
    assert "within 5 %" in answer.value
    lab.measure("ring", None)
    assert answer.value == ""


def test_a_measurement_stays_covered_until_it_was_predicted(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    lab.measure("ring", 0.51)
    assert not any("0.51" in child.value for child in texts_of(live)) and "0.51" not in live[-1]["text/plain"]
    card_of(live).children[0].value = "3"
    assert any("it was 0.51 s" in child.value for child in texts_of(live)) and "0.51" in live[-1]["text/plain"]


def test_a_measurement_is_shown_to_who_asks_for_it(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    lab.measure("ring", 0.51)
    button = next(child for child in card_of(live).children if getattr(child, "description", "") == "Show me")
    button.click()
    assert any("it was 0.51 s" in child.value for child in texts_of(live))
    assert "worldsize-covered" in button._dom_classes


def test_a_measurement_that_its_card_shows_is_not_printed_as_well(live, capsys):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    lab.measure("ring", 0.51)
    assert capsys.readouterr().out == ""


def test_the_keyboard_hears_of_each_number_that_is_kept_and_of_none_that_is_not(live):
    Lab("06").predict("ring", QUESTION, "s")
    box, keys = card_of(live).children[0], card_of(live).children[-1]
    counts = []
    for text in ("3", "many", "4"):
        box.value = text
        counts.append(keys.kept)
    assert counts == [1, 1, 2] and keys.fresh


def test_the_words_that_stay_without_a_kernel_hold_the_answer(live):
    lab = Lab("06")
    lab.predict("ring", QUESTION, "s")
    card_of(live).children[0].value = "3"
    lab.measure("ring", 0.51)
    assert "you said 3 s · it was 0.51 s · 5.9 times too high; run this cell to change it" in live[-1]["text/plain"]


def test_a_measurement_in_another_unit_is_refused():
    lab = Lab("06")
    lab.predict("ring", QUESTION, "ms")
    with pytest.raises(ValueError, match="expected a number in 'ms'.*got one in 's'"):
        lab.measure("ring", 3, "s")


def test_measuring_none_takes_the_measurement_back():
    lab = Lab("06")
    lab.measure("ring", 3, "s")
    lab.measure("ring", None)
    assert lab.measured("ring") is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "soon", [1, 2], np.ones(2)])
def test_a_measurement_that_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match=r"lab.measure\('ring'\): value: expected one finite number, got"):
        Lab("06").measure("ring", value)


def test_a_prediction_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"lab.predict\('ring'\): answer: expected one finite number"):
        Lab("06").predict("ring", QUESTION, "s", answer="fast")


@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [
        (2, 2, "exactly"),
        (0.1 + 0.2, 0.3, "exactly"),
        (2, 2.08, "within 5 %"),
        (2, 1.92, "within 5 %"),
        (300, 1.3, "230 times too high"),
        (2, 5, "2.5 times too low"),
        (0.8, 1, "20 % too low"),
        (0, 3, "3 s too low"),
        (0.5, -1, "1.5 s too high"),
        (-2, -5, "3 s too high"),
        (1e308, 1e-308, "1e+308 s too high"),
    ],
)
def test_how_far_off_a_prediction_was_is_said_in_words(predicted, measured, words):
    assert compare(predicted, measured, "s") == words


def test_shares_are_compared_in_percentage_points():
    assert compare(50, 60, "%") == "10 percentage points too low"


# points


def test_the_latest_check_counts_even_where_it_is_lower():
    lab = Lab("06")
    lab.record(verdict(points=2))
    lab.record(verdict(points=1, state="fail"))
    assert lab.points == 1


def test_an_exercise_not_yet_written_earns_nothing():
    lab = Lab("06")
    lab.record(verdict(points=0, state="not yet"))
    assert lab.points == 0


def test_every_lab_but_the_first_has_six_points():
    assert {number: listing.points for number, listing in LABS.items()} == {number: 6 for number in LABS} | {"00": 4}


# the summary


def test_a_full_score_is_one_line():
    lab = Lab("00")
    lab.record(verdict("hello", 4, 4))
    assert [line for line in str(lab.summary()).splitlines() if "points" in line or "00" in line] == [
        "Lab 00: Start here: your first ranks", "points: 4 of 4", f"in the course so far: 4 of {POSSIBLE} points"
    ]  # fmt: skip


def test_the_summary_counts_the_points_of_all_labs_and_names_the_next():
    Lab("00").record(verdict("pass_right", 4, 4))
    Lab("06").record(verdict("parameter_server", 1, 1))
    assert Lab("06").summary().course_lines() == [
        f"in the course so far: 5 of {POSSIBLE} points",
        f"after this lab: Lab 07: {LABS['07'].title}",
    ]


def test_the_last_lab_names_no_next_one():
    assert len(Lab(max(EXERCISES)).summary().course_lines()) == 1


def test_missing_points_are_named_by_exercise():
    lab = Lab("06")
    lab.record(verdict("parameter_server", 2, 2))
    lab.record(verdict("ring", 0, 2, "not yet"))
    lab.record(verdict("gather", 0, 1, "fail"))
    assert lab.summary().point_lines() == [
        "points: 2 of 6",
        "not yet: ring (2 points)",
        "not all of gather: 0 of 1 point",
        "not checked yet: exercises worth 1 point",
    ]


def test_the_text_holds_every_question_whole_with_its_numbers():
    lab = Lab("06")
    lab.predict("ring", "word " * 40 + "end", "s", answer=2)
    lab.predict("server", "And the server?", "s")
    lab.measure("ring", 4)
    text = str(lab.summary())
    assert text.split().count("word") == 40
    assert all(words in text for words in ("2 s", "4 s", "2 times too low", "no prediction", "not measured yet"))


def test_predictions_travel_in_a_notebook_only_where_its_student_asks_for_that():
    lab = Lab("06")
    lab.predict("ring", "How many?", "MB", answer=3)
    lab.measure("ring", 6)
    assert set(lab.summary()._repr_mimebundle_()) == {"text/plain", "text/html"}
    (data,) = [value for kind, value in lab.summary(hand_in_predictions=True)._repr_mimebundle_().items() if "json" in kind]
    assert data == {
        "lab": "06",
        "predictions": [{"id": "ring", "question": "How many?", "unit": "MB", "predicted": 3.0, "measured": 6.0}],
    }


def test_a_summary_says_where_the_predictions_go():
    lab = Lab("06")
    assert "instructor" not in str(lab.summary())
    lab.predict("ring", "How many?", "MB", answer=3)
    lab.measure("ring", 6)
    assert "Your predictions stay with you" in str(lab.summary())
    assert "This notebook carries 1 prediction to your instructor" in str(lab.summary(hand_in_predictions=True))


def test_the_text_is_at_most_as_wide_as_a_terminal():
    lab = Lab("06")
    lab.predict("ring", "word " * 40, "bytes a rank", answer=1234567)
    lab.measure("ring", 4321)
    assert max(map(len, str(lab.summary()).splitlines())) <= 120


def test_the_html_escapes_what_is_typed_and_sets_no_colour():
    lab = Lab("06")
    lab.predict("ring", "is a < b & <script>?", "s", answer=2)
    page = lab.summary()._repr_html_()
    assert "a &lt; b &amp; &lt;script&gt;" in page and "color" not in page


def test_the_html_has_a_caption_and_marked_headings():
    page = Lab("06").summary()._repr_html_()
    assert ">Lab 06: Parameter server" in page and page.count('scope="col"') == 4


def strips(lab):
    return re.findall(r'<svg role="img" aria-label="([^"]+)"[^>]*>.*?</svg>', lab.summary()._repr_html_(), re.DOTALL)


def test_each_compared_question_has_a_strip_whose_words_say_the_same():
    lab = Lab("06")
    for name, predicted, measured in (("a", 300, 1.3), ("b", 2, 2), ("c", 1, 4)):
        lab.predict(name, f"question {name}", "ms", answer=predicted)
        lab.measure(name, measured)
    lab.predict("d", "not measured", "ms", answer=1)
    assert strips(lab) == ["230 times too high", "exactly", "4 times too low"]


def test_low_exact_and_high_differ_in_shape_and_side():
    lab = Lab("06")
    marks = {}
    for name, predicted in (("low", 1), ("exact", 10), ("high", 100)):
        lab.predict("same", "one question", "ms", answer=predicted)
        lab.measure("same", 10)
        marks[name] = re.search(r'<circle cx="[^"]+"|<path d="M[^"]+"', lab.summary()._repr_html_())[0]
    assert marks == {
        "low": '<path d="M10 3 l-8 6 l8 6z"', "exact": '<circle cx="80"', "high": '<path d="M150 3 l8 6 l-8 6z"'
    }  # fmt: skip


def test_a_prediction_of_the_wrong_sign_has_words_and_no_strip():
    lab = Lab("06")
    lab.predict("gap", "How far?", "s", answer=0)
    lab.measure("gap", 3)
    assert strips(lab) == [] and "3 s too low" in lab.summary()._repr_html_()


def test_code_in_a_question_is_set_as_code_in_the_summary():
    lab = Lab("06")
    lab.predict("ring", "How long does `ring` take?", "s", answer=2)
    assert "<code>ring</code>" in lab.summary()._repr_html_()


def test_a_measurement_without_a_question_has_a_row_too():
    lab = Lab("06")
    lab.measure("startup", 0.1, "s")
    assert [(row.question, row.measured_text) for row in lab.rows()] == [("startup", "0.1 s")]


# mistakes


def test_a_lab_that_is_not_there_lists_those_that_are():
    with pytest.raises(ValueError, match="""no lab '99': expected one of "00" Start.*"17" Long"""):
        Lab("99")


def test_a_lab_captured_by_a_ranks_function_is_refused_with_the_remedy():
    lab = Lab("06")
    with pytest.raises(TypeError, match="Keep `lab` out of the function that ranks run; return the value"):
        cloudpickle.dumps(lambda: lab.measure("ring", 1))


def test_importing_the_lab_imports_no_drawing_and_no_framework():
    code = "import sys, worldsize.lab; print({'torch', 'matplotlib', 'ipywidgets'}.isdisjoint(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], timeout=100) == b"True\n"
