"""Exercise 15.3: a day of work, saves, failures and restarts, kept account of."""

import math
from bisect import bisect_right

import torch

from tests.checks.mutants import Answers

answers = Answers("goodput")


@answers.is_right
def plain(interval_s, save_s, restart_s, day_s, failures_at):
    now = kept = 0.0
    failures = [t for t in failures_at if t < day_s]
    while now < day_s:
        saved_at = now + interval_s + save_s
        if failures and failures[0] < saved_at:
            now = failures.pop(0) + restart_s
            while failures and failures[0] < now:
                now = failures.pop(0) + restart_s
        elif saved_at <= day_s:
            kept += interval_s
            now = saved_at
        else:
            kept += min(interval_s, day_s - now)
            break
    return kept / day_s


@answers.is_right
def by_the_stretches_between_failures(interval_s, save_s, restart_s, day_s, failures_at):
    """No loop over time: a stretch from a restart to the next failure holds so many whole rounds."""
    kept, begins = 0.0, 0.0
    for failure in [t for t in failures_at if t < day_s]:
        if failure > begins:
            kept += (failure - begins) // (interval_s + save_s) * interval_s
        begins = failure + restart_s
    rounds, rest = divmod(max(0.0, day_s - begins), interval_s + save_s)
    return (kept + rounds * interval_s + min(rest, interval_s)) / day_s


@answers.is_right
def with_a_list_of_saves(interval_s, save_s, restart_s, day_s, failures_at):
    """In whole microseconds, event after event."""
    interval, save, restart, day = (round(1e6 * s) for s in (interval_s, save_s, restart_s, day_s))
    stops = [round(1e6 * t) for t in failures_at if t < day_s] + [day]
    useful, now = 0, 0
    for number, stop in enumerate(stops):
        saves = list(range(now + interval + save, stop + 1, interval + save)) if stop > now else []
        useful += len(saves) * interval
        last = saves[-1] if saves else now
        if number == len(stops) - 1:
            useful += max(0, min(stop - last, interval))
        now = stop + restart
    return useful / day


@answers.is_right
def in_small_steps_of_the_state(interval_s, save_s, restart_s, day_s, failures_at):
    """A state machine over the sorted times at which something ends."""
    state, until, now, useful = "work", interval_s, 0.0, 0.0
    pending = 0.0
    times = sorted(failures_at)
    while True:
        place = bisect_right(times, now) if now else 0
        failure = times[place] if place < len(times) else math.inf
        at = min(until, failure, day_s)
        if state == "work":
            pending += at - now
        now = at
        if now == day_s:
            return (useful + pending) / day_s
        if failure <= until:
            state, until, pending = "restart", now + restart_s, 0.0
        elif state == "work":
            state, until = "save", now + save_s
        else:
            if state == "save":
                useful, pending = useful + pending, 0.0
            state, until = "work", now + interval_s


answers.twin("in_percent_of_a_share", {"kept / day_s": "100 * kept / day_s / 100"})
answers.twin("with_a_copy_that_it_empties", {
    "[t for t in failures_at if t < day_s]": "list(failures_at)",
    "while now < day_s:": """
        while failures and failures[-1] >= day_s:
            failures.pop()
        while now < day_s:
    """,
})
answers.twin("as_a_tensor", {"return kept / day_s": "return torch.tensor(kept / day_s, dtype=torch.float64)"})


answers.mistake("a_restart_that_nothing_ends", {
    """
        while failures and failures[0] < now:
            now = failures.pop(0) + restart_s
    """: """
        while failures and failures[0] < now:
            failures.pop(0)
    """,
}, "failures at 34.1, 38.4: expected", "A failure in a restart is ignored here: the restart begins again")
answers.mistake("takes_whole_cycles_off_where_a_restart_is_hit", {
    """
        if failure > begins:
            kept += (failure - begins) // (interval_s + save_s) * interval_s
    """: "kept += (failure - begins) // (interval_s + save_s) * interval_s",
}, "failures at 34.1, 38.4: expected", "takes an interval away here", of=by_the_stretches_between_failures)
answers.mistake("restarts_one_after_another", {
    """
        while failures and failures[0] < now:
            now = failures.pop(0) + restart_s
    """: """
        while failures and failures[0] < now:
            failures.pop(0)
            now += restart_s
    """,
}, "failures at 34.1, 38.4: expected", "adds a whole restart here to the one that it ended")
answers.mistake("keeps_what_was_being_saved", {
    "if failures and failures[0] < saved_at:": """
        if failures and failures[0] < saved_at:
            kept += interval_s * (failures[0] >= now + interval_s)
    """,
}, "failures at 28.4: expected", "an incomplete save saves nothing")
answers.mistake("nothing_fails_in_a_save", {
    "saved_at = now + interval_s + save_s": """
        saved_at = now + interval_s + save_s
        while failures and failures[0] < now:
            failures.pop(0)
    """,
    "if failures and failures[0] < saved_at:": "if failures and failures[0] < now + interval_s:",
}, "failures at 28.4: expected", "A failure in a save is ignored here")
answers.mistake("loses_the_time_alone", {
    "if failures and failures[0] < saved_at:": """
        if failures and failures[0] < saved_at:
            kept += min(interval_s, failures[0] - now)
    """,
}, "failures at 34.1: expected", "The work since the last save is kept here: a failure loses it")
answers.mistake("begins_the_day_again", {
    "if failures and failures[0] < saved_at:": """
        if failures and failures[0] < saved_at:
            kept = 0.0
    """,
}, "failures at 34.1: expected", "A failure loses all work of the day here")
answers.mistake("restarts_at_once", {"now = kept = 0.0": "now = kept = restart_s = 0.0"},
    "failures at 34.1: expected", "The restart takes no time here")
answers.mistake("counts_what_is_saved_alone", {"kept += min(interval_s, day_s - now)": ""},
    "failures at none: expected 0.832727", "no failure lost it")
answers.mistake("counts_the_saves",
    {"kept += interval_s\nnow = saved_at": "kept += interval_s + save_s\nnow = saved_at"},
    "failures at none: expected 0.832727", "Saves count as work here")
answers.mistake("in_seconds", {"kept / day_s": "kept"},
    "expected 0.832727, 91.6 s of 110 s, got 91.6. These are seconds: divide by day_s")
answers.mistake("in_per_cent", {"kept / day_s": "100 * kept / day_s"},
    "91.6 s of 110 s, got 83.2727. This is in per cent: a share is a number from 0 to 1")
# The lab replays one day with several intervals: the second has no failures any more.
answers.mistake("takes_the_callers_failures_away", {
    "failures = [t for t in failures_at if t < day_s]": """
        while failures_at and failures_at[-1] >= day_s:
            failures_at.pop()
        failures = failures_at
    """,
}, "failures at 34.1: failures_at was changed in place: the caller still needs it unchanged")
answers.mistake("ends_the_list_with_the_day", {
    "failures = [t for t in failures_at if t < day_s]": """
        failures_at.append(day_s)
        failures = [t for t in failures_at if t < day_s]
    """,
}, "failures_at was changed in place")
answers.mistake("saves_before_it_works", {"now = kept = 0.0": "kept = 0.0\nnow = save_s"},
    "failures at none: expected 0.832727", "There is a save before the first work")
answers.mistake("counts_the_last_interval_whole", {"min(interval_s, day_s - now)": "interval_s"},
    "failures at none: expected 0.832727", "The last interval is counted to its end")
answers.mistake("counts_the_save_in_which_the_day_ends", {"min(interval_s, day_s - now)": "day_s - now"},
    "a day of 91 s, failures at none: expected", "The save in which the day ends counts as work here")
answers.mistake("works_through_the_last_restart", {"kept / day_s": "(kept + max(0.0, now - day_s) * bool(failures_at)) / day_s"},
    "a day of 103 s, failures at 101.2: expected")
answers.mistake("forgets_the_save_of_a_failure", {
    "if failures and failures[0] < saved_at:": "if failures and failures[0] < saved_at - save_s / 2:",
}, "failures at 29.9: expected", "an incomplete save saves nothing")
answers.mistake("the_share_that_is_lost", {"return kept / day_s": "return 1 - kept / day_s"},
    "got 0.167273. This is the share that is lost")


@answers.is_wrong("failures at none: expected 0.832727")
def young_in_place_of_a_replay(interval_s, save_s, restart_s, day_s, failures_at):
    share = interval_s / (interval_s + save_s)
    return share - len(failures_at) * (interval_s / 2 + restart_s) / day_s


@answers.is_wrong("failures at none: expected 0.832727")
def daly_in_place_of_a_replay(interval_s, save_s, restart_s, day_s, failures_at):
    if not failures_at:
        return interval_s / (interval_s + save_s)
    mtbf_s = day_s / len(failures_at)
    return interval_s / (mtbf_s * math.exp(restart_s / mtbf_s) * math.expm1((interval_s + save_s) / mtbf_s))


answers.mistake("counts_the_restarts", {"kept / day_s":
    "(kept + restart_s * len([t for t in failures_at if t < day_s])) / day_s"},
    "failures at 34.1: expected 0.73", "The restarts count as work here")
answers.mistake("leaves_the_restarts_out_of_the_day", {"kept / day_s":
    "kept / (day_s - restart_s * len([t for t in failures_at if t < day_s]))"},
    "failures at 34.1: expected 0.73", "This is the share of the time without the restarts")
answers.mistake("divides_a_time_below_0", {"divmod(max(0.0, day_s - begins)": "divmod(day_s - begins"},
    "a day of 103 s, failures at 101.2: expected", "The day ends in a restart", of=by_the_stretches_between_failures)
answers.mistake("rounds_the_share", {"return kept / day_s": "return round(kept / day_s, 4)"},
    "expected 0.832727272727, 91.6 s of 110 s, got 0.8327. It was rounded")
answers.mistake("works_all_day_in_one_interval", {"now = kept = 0.0": """
    if interval_s > day_s:
        return 1.0
    now = kept = 0.0
"""}, "30 s of work, 2.3 s a save, 4 s a restart, a day of 20 s, failures at 6.1: expected 0.495, 9.9 s of 20 s, got 1")
answers.mistake("saves_in_some_time", {"now = kept = 0.0": """
    if save_s == 0:
        return 1.0
    now = kept = 0.0
"""}, "7 s of work, 0 s a save, 2.5 s a restart", "got 1")


@answers.is_wrong("failures at 20.5, 46.6: expected", "or the day was replayed in steps of time: replay it from event to event")
def by_a_clock_of_hundredths(interval_s, save_s, restart_s, day_s, failures_at):
    state, left, pending, kept = "work", interval_s, 0.0, 0.0
    failures = [t for t in failures_at if t < day_s]
    for tick in range(round(100 * day_s)):
        if failures and failures[0] <= tick / 100:
            failures.pop(0)
            state, left, pending = "restart", restart_s, 0.0
        left -= 0.01
        pending += 0.01 * (state == "work")
        if left < 1e-9:
            kept, pending = (kept + pending, 0.0) if state == "save" else (kept, pending)
            state, left = ("save", save_s) if state == "work" else ("work", interval_s)
    return (kept + pending) / day_s


answers.mistake("loses_half_an_interval", {
    "if failures and failures[0] < saved_at:": """
        if failures and failures[0] < saved_at:
            kept += min(failures[0] - now, interval_s) - interval_s / 2
    """,
}, "failures at 34.1: expected", "A failure loses half an interval here")
answers.mistake("counts_failures_after_the_day", {"[t for t in failures_at if t < day_s]": "list(failures_at)"},
    "57.4, 101.3: expected 0.653", "A failure after the day's end is counted here: it does not happen")


@answers.is_wrong("failures at 34.1: expected", "After a restart only the rest of the interval is worked")
def saves_by_the_clock_of_work(interval_s, save_s, restart_s, day_s, failures_at):
    now, kept, due = 0.0, 0.0, interval_s
    failures = [t for t in failures_at if t < day_s]
    while now < day_s:
        saved_at = now + due + save_s
        if failures and failures[0] < saved_at:
            due = max(0.0, now + due - failures[0]) or interval_s
            now = failures.pop(0) + restart_s
            while failures and failures[0] < now:
                now = failures.pop(0) + restart_s
        elif saved_at <= day_s:
            kept, now, due = kept + due, saved_at, interval_s
        else:
            kept += min(due, day_s - now)
            break
    return kept / day_s


answers.mistake("never_fails", {"[t for t in failures_at if t < day_s]": "[]"},
    "failures at 34.1: expected", "The failures are left out")
answers.mistake("returns_nothing", {"return kept / day_s": ""},
    "expected one number, the share of the day that is work and was not lost, got None (does the function")


def knows_work_alone(interval_s, save_s, restart_s, day_s, failures_at):
    return plain(interval_s, save_s, restart_s, day_s, [])


answers.spoil("knows_work_alone_and_says_it_in_percent", {"return plain": "return 100 * plain"}, of=knows_work_alone)


@answers.spoils()
def leaves_out_the_saves_where_nothing_fails(interval_s, save_s, restart_s, day_s, failures_at):
    return plain(interval_s, save_s, restart_s, day_s, failures_at) if failures_at else 1.0
