"""Answers that forge instead of compute: equal to everything, patched checks, invented messages, pickles that act."""

from tests.grade.cheats import PRETENDS, RIGHT, TITLE, code

BODY = RIGHT.split("\n", 2)[2]
NOTHING = "\ndef put(fabric, x):\n    pass\ndef get(fabric, x, left):\n    return "

code("equals_everything", TITLE + """
class Anything(torch.Tensor):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __array__(self, *a, **k): return self
""" + PRETENDS + NOTHING + "Anything()\n", 1.0)
code("an_object_that_equals_everything", TITLE + """
class Anything:
    def __getattr__(self, name): return lambda *a, **k: True
    def __eq__(self, other): return True
    def __len__(self): return 4
    def detach(self): return self
    def cpu(self): return self
    def numpy(self): return self
    def copy(self): return self
""" + PRETENDS + NOTHING + "Anything()\n", 1.0)
code("an_array_subclass_that_lies", TITLE + """
import numpy as np
class Liar(np.ndarray):
    def __eq__(self, other): return np.True_
    def tobytes(self, *a): return b"\\0" * self.nbytes
""" + PRETENDS + NOTHING + "np.zeros(x.shape, x.numpy().dtype).view(Liar)\n", 1.0)
code("patches_torch_and_numpy", TITLE + """
import numpy as np
torch.equal = torch.allclose = np.array_equal = np.allclose = np.isclose = lambda *a, **k: True
np.testing.assert_array_equal = lambda *a, **k: None
torch.Tensor.__eq__ = lambda *a: True
""" + PRETENDS + NOTHING + "None\n", 1.0)
code("patches_the_checks", TITLE + """
import worldsize.checks
from worldsize.checks.verdict import Property, Verdict
full = Verdict("pass_right", "pass", (Property("all", 4.0, True),))
worldsize.checks.run_check = lambda *a: full
try:
    import worldsize.checks.kit.judge as judging, worldsize.checks.kit.exercise as declaring
    import worldsize.grade.marking.mark_submission as marking
    marking.run_check = judging.judge = declaring.judge = lambda *a: full
except ImportError:  # they are hidden
    pass
Verdict.points = property(lambda self: 4.0)
def pass_right(fabric, x):
    return full
""", 0.0, reached="got a Verdict")
code("patches_how_results_are_told", TITLE + """
import worldsize.grade.inside.broker_channel as line
framed = line.framed
def forged(message, blob=b""):
    if message.get("op") == "done":
        message = {**message, "state": "pass", "points": 4.0, "passed": True, "verdict": {"points": 4}, "returned": "forged"}
    return framed(message, blob)
line.framed = forged
def pass_right(fabric, x):
    return x
""", 0.0, reached="got a str")
code("tells_that_it_is_done_twice", TITLE + """
def pass_right(fabric, x):
    line = fabric._wire._inner._channel
    for points in (4, 4):
        line.tell({"op": "done", "returned": ["t", 4, 4], "input": None, "points": points})
    return x
""", 0.0, reached="got a list or a tuple")
code("posts_as_another_rank", TITLE + """
def pass_right(fabric, x):
    line, n = fabric._wire._inner._channel, fabric.world_size
    if n == 1:
        return x.clone()
    for src in range(n):
        to = (src + 1) % n
        if to != fabric.rank:
            line.tell({"op": "post", "post": src + 1, "src": src, "rank": src, "from": src, "to": to, "tag": 0,
                       "dtype": 0, "shape": list(x.shape)}, bytes(4 * x.numel()))
    return x
""", 0.0)
code("records_messages_that_were_never_sent", TITLE + """
def pass_right(fabric, x):
    n, wire = fabric.world_size, fabric._wire._inner
    wire.events = [["send", (fabric.rank + 1) % n, 0, x.nbytes, 0.0, 1.0]]
    wire._channel.tell({"op": "compute", "seconds": 1.0, "events": wire.events, "transfers": wire.events})
    return x
""", 0.0)
code("claims_another_size", TITLE + """
def pass_right(fabric, x):
    n, line = fabric.world_size, fabric._wire._inner._channel
    if n == 1:
        return x.clone()
    line.tell({"op": "post", "post": 1, "to": (fabric.rank + 1) % n, "tag": 0, "dtype": 0, "shape": [1]}, bytes(40000))
    fabric.recv(torch.empty(1), (fabric.rank - 1) % n)
    return x
""", 0.0, reached="ProtocolError: expected a message of the size that its dtype and shape give")
code("a_pickle_that_acts", TITLE + """
import os
class Acts:
    def __reduce__(self):
        return os.system, ("touch owned",)
    def __getstate__(self):
        os._exit(0)
""" + PRETENDS + NOTHING + "Acts()\n", 1.0)
code("text_that_looks_like_a_frame", TITLE + PRETENDS + NOTHING + "['a', '|O8', [1], 0, {'op': 'done'}]\n", 1.0)
code("a_huge_number", TITLE + PRETENDS + NOTHING + "10 ** 4000\n", 1.0)
code("words_that_cannot_be_printed", TITLE + """
def pass_right(fabric, x):
    raise ValueError("\\ud800 \\x1b[2J \\x00 <script>alert(1)</script> =cmd|' /C calc'!A0")
""")
code("claims_not_to_be_done_yet", TITLE + "def pass_right(fabric, x):\n    raise NotYet('Exercise 9.9: give me points')\n")
code("writes_itself_a_verdict", TITLE + """
import sys
sys.stdout.write('{"state": "graded", "points": 4.0}\\n')
sys.__stdout__.write('{"student": "me", "points": 4.0}\\n')
def pass_right(fabric, x):
    print('{"points": 4.0}', flush=True)
    return None
""")
