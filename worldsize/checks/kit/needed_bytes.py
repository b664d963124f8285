"""The bytes that a run must send, and what other numbers of bytes tell."""

from collections.abc import Mapping
from dataclasses import dataclass

from worldsize.checks.kit.judge import none_sent
from worldsize.checks.verdict import Complaint
from worldsize.trace import Trace
from worldsize.units import times

TOO_FEW = "Fewer bytes cannot hold the sums over the ranks: give buffers the dtype of the input."


@dataclass(frozen=True)
class NeededBytes:
    """The bytes that all ranks together must send, what for, and {bytes that a mistake sends, more or fewer: words for it}.

    An answer may do without `spared_bytes` of them. `advice` is for any other number of bytes, `fewer` for too few; where `fewer`
    is empty, fewer are right as long as the values are. `none` is for no message at all.
    """

    size_bytes: int
    what: str
    mistakes: Mapping[int, str]
    advice: str
    fewer: str = ""
    spared_bytes: int = 0
    none: str = ""

    def wrong(self, trace: Trace) -> Complaint:
        """Return a complaint about too many bytes, too few if `fewer` is set, or no message at all; None if all is right."""
        complaint = none_sent(trace, self.none or self.advice)
        if complaint:
            return complaint
        got, right = trace.total_bytes(), self.size_bytes
        if got in (right, right - self.spared_bytes) or (got < right and not self.fewer):
            return None

        share = f"{times(got / right)} x" if right else "many x"
        if share == "1 x":
            share = "slightly more than" if got > right else "slightly fewer than"
        told = f"all ranks together sent {got:,} bytes, {share} the {right:,} bytes of {self.what}. "
        return told + self.mistakes.get(got, self.fewer if got < right else self.advice)
