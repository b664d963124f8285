"""Evidence of a property: the things that it is judged by, and the process that sees them.

Only what is seen from outside an answer's own process may earn points: the answer's author can forge the rest. An
exercise's declaration names the evidence of its properties, and docs/what-earns-points.md shows it.
"""

from typing import NamedTuple


class Evidence(NamedTuple):
    """The evidence that a property is judged by, and the process that sees it."""

    what: str
    process: str


RETURNED = Evidence("what came back, held against the check's own values", "the grader")
MESSAGES = Evidence("messages: from whom, to whom, when, how large", "the broker, in the grader")
RETURNED_AND_MESSAGES = Evidence("what came back, and messages", "the grader, and the broker in it")
CALLS = Evidence("calls of the check's own functions", "the grader, which answers them from afar")
PLAYED_RANKS = Evidence("messages to and from ranks that the check plays", "the grader")
WORK = Evidence(
    "declared work, opened, closed and weighed column by column, and messages beside it", "the broker, in the grader"
)
WORK_AND_TENSORS = Evidence(
    "declared work and messages, as above; tensors that live, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
RETURNED_AND_TENSORS = Evidence(
    "what came back; tensors that live between steps, which the answer's own process notes, can only take from it", "the grader"
)
RETURNED_AND_LIBRARY = Evidence(
    "what came back; calls of the library that was to be written by hand, which the answer's own process notes, can only take "
    "from it",
    "the grader",
)
RETURNED_AND_DDP = Evidence(
    "what came back; whether DistributedDataParallel was called, which the answer's own process notes, can only take from it",
    "the grader",
)
MESSAGES_AND_BACKWARD = Evidence(
    "messages, as above; what autograd keeps for backward, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
MESSAGES_AND_EXPERTS = Evidence(
    "messages, as above; how often the expert works, which the answer's own process notes, can only take from it",
    "the broker, in the grader",
)
GRAPH = Evidence("a graph that the answer built, run without it", "a process of the grader's")
FOLDER = Evidence(
    "a folder, read after its writer was killed at a byte or had ended, and its changes as the kernel reports them; what the "
    "answer's own process notes at other kills can only take from it",
    "the writer's warden, outside its process",
)
RETURNED_AND_FOLDER = Evidence("what came back, and a folder, as above", "the grader, and the writer's warden")
LIVES = Evidence("what came back of lives whose examples and start the grader deals out", "the grader")
OWN_PROCESS = Evidence("what the answer's process notes", "the answer's own process")
