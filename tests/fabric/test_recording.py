"""What a recorded fabric publishes of a rank while it waits."""

from worldsize.fabric.recording import WaitState


def test_a_message_is_counted_once_however_often_it_is_asked_for():
    events = [["send", 1, 0, 8, 0.0, 0.1], ["recv", 2, 5, 8, 0.1, 0.2]]
    state = WaitState(events)
    assert [dict(counted) for counted in state.messages()] == [{(1, 0): 1}, {(2, 5): 1}]
    events.append(["send", 1, 0, 8, 0.2, 0.3])
    assert [dict(counted) for counted in state.messages()] == [{(1, 0): 2}, {(2, 5): 1}]
