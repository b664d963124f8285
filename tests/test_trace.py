"""The merged trace of all ranks, its sums, its audits and its file for Perfetto."""

import json

import pytest

from worldsize.figures.step_through.steps import steps_of
from worldsize.trace import (
    Collective,
    Event,
    RankRecord,
    Span,
    Trace,
    Transfer,
    merge,
    on_logical_clock,
    ring_links,
    stray,
)

pytestmark = pytest.mark.quick


def record(rank, *events, spans=(), collectives=()):
    return RankRecord(rank, tuple(events), tuple(spans), tuple(collectives))


def test_the_k_th_send_is_the_k_th_receive_of_its_pair_and_tag():
    sender = record(
        0, Event("send", 1, 0, 8, 1.0, 1.5), Event("send", 1, 7, 4, 1.1, 1.6), Event("send", 1, 0, 16, 2.0, 2.5)
    )
    receiver = record(
        1, Event("recv", 0, 0, 8, 0.5, 1.4), Event("recv", 0, 0, 16, 1.4, 2.4), Event("recv", 0, 7, 4, 2.4, 2.6)
    )
    assert merge([receiver, sender], 2).transfers == (
        Transfer(0, 1, 8, 1.0, 1.4, 0),
        Transfer(0, 1, 4, 1.1, 2.6, 7),
        Transfer(0, 1, 16, 2.0, 2.4, 0),
    )


def test_a_send_that_was_never_received_is_no_transfer():
    assert merge([record(0, Event("send", 1, 0, 8, 1.0, 1.0)), record(1)], 2).transfers == ()


def test_a_receive_whose_sender_s_record_is_lost_is_still_a_transfer():
    (transfer,) = merge([record(1, Event("recv", 0, 0, 8, 0.5, 1.4))], 2).transfers
    assert (transfer.src, transfer.dst, transfer.size_bytes, transfer.end_s) == (0, 1, 8, 1.4)


TRACE = Trace(
    3,
    (Transfer(0, 1, 10, 0.0, 1.0), Transfer(1, 2, 20, 0.5, 2.0), Transfer(0, 1, 5, 2.0, 3.0, tag=4)),
    (Span(2, "compute", 0.0, 0.25, "stage"),),
    (Collective("all_reduce", 64, 1, 3.0, 4.0),),
)


def test_bytes_are_summed_by_rank_and_by_link():
    assert [TRACE.sent_bytes(r) for r in range(3)] == [15, 20, 0]
    assert [TRACE.received_bytes(r) for r in range(3)] == [0, 15, 20]
    assert TRACE.total_bytes() == 35
    assert TRACE.bytes_by_link() == {(0, 1): 15, (1, 2): 20}


def test_a_part_of_the_time_keeps_what_begins_in_it():
    part = TRACE.between(0.5, 2.5)
    assert [t.size_bytes for t in part.transfers] == [20, 5]
    assert part.spans == () and part.collectives == ()


def test_on_a_logical_clock_two_rounds_of_a_ring_take_two_steps_however_long_each_message_took():
    late = {(0, 1): 5.0, (1, 2): 0.1, (2, 0): 3.0}
    rounds = [Transfer(src, dst, 8, start, start + late[src, dst]) for start in (0.0, 7.0) for src, dst in late]
    assert [(t.src, t.start_s, t.end_s) for t in on_logical_clock(Trace(3, tuple(rounds))).transfers] == [
        (0, 0, 1), (1, 0, 1), (2, 0, 1), (0, 1, 2), (1, 1, 2), (2, 1, 2),
    ]  # fmt: skip


def test_on_a_logical_clock_a_rank_receives_one_message_a_step_and_an_answer_comes_a_step_after_what_it_answers():
    asked, other, answer = Transfer(1, 0, 8, 0.0, 1.0), Transfer(2, 0, 8, 0.0, 9.0), Transfer(0, 1, 8, 1.0, 2.0)
    steps = {(t.src, t.dst): t.start_s for t in on_logical_clock(Trace(3, (asked, other, answer))).transfers}
    assert steps == {(1, 0): 0, (2, 0): 1, (0, 1): 1}


def test_a_picture_in_steps_and_a_step_through_number_the_steps_alike():
    n = 4
    up = [Transfer(r, 0, 10 + r, 0.0, float(r)) for r in range(1, n)]
    down = [Transfer(0, r, 20 + r, n - 1.0, n - 1.0 + r) for r in range(1, n)]
    trace = Trace(n, (*up, *down))
    drawn = {(t.src, t.dst): t.start_s for t in on_logical_clock(trace).transfers}
    played = {(m.src, m.dst): number for number, step in enumerate(steps_of(trace)) for m in step.messages}
    assert drawn == played == {(1, 0): 0, (2, 0): 1, (3, 0): 2, (0, 1): 3, (0, 2): 4, (0, 3): 5}


def test_strays_are_the_messages_off_the_allowed_links():
    assert stray(TRACE, ring_links(3)) == []
    assert stray(TRACE, ring_links(3, step=-1)) == list(TRACE.transfers)


def test_a_ring_of_any_size_has_one_link_a_rank():
    assert ring_links(4) == {(0, 1), (1, 2), (2, 3), (3, 0)}


def test_the_chrome_trace_has_a_process_a_rank_a_slice_an_event_and_an_arrow_a_message(tmp_path):
    path = TRACE.save_chrome(tmp_path / "run.json")
    events = json.loads(path.read_text())["traceEvents"]
    by_phase = {phase: [e for e in events if e["ph"] == phase] for phase in "MXsf"}
    assert [e["args"]["name"] for e in by_phase["M"]] == ["rank 0", "rank 1", "rank 2"]
    slices = {(e["pid"], e["name"], e["ts"], e["dur"]) for e in by_phase["X"]}
    assert slices == {(2, "compute stage", 0.0, 250_000.0), (1, "all_reduce", 3e6, 1e6)}
    arrows = [(s["pid"], f["pid"], s["ts"], f["ts"]) for s, f in zip(by_phase["s"], by_phase["f"], strict=True)]
    assert arrows == [(0, 1, 0.0, 1e6), (1, 2, 0.5e6, 2e6), (0, 1, 2e6, 3e6)]
    assert len({e["id"] for e in by_phase["s"]}) == 3
