"""Deadlock detection: decide from what every rank has posted and waits for whether any rank can go on.

The graph is Knapp's AND/OR wait-for graph (Deadlock Detection in Distributed Databases, 1987, doi 10.1145/45075.46163)
over messages: a receive from anyone waits for one of many. `deadlock` has the fabric's messages. `stuck` has all of these and
torch's own communication as well: a collective waits for each member of its group that has not posted it, and for each that
posted another operation, size or dtype at its place.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from worldsize import failures
from worldsize.failures import Wait

ROOTED = ("broadcast", "reduce", "gather", "scatter")  # some members may leave these before others have come

EQUAL_SIZES = ("all_reduce", "broadcast", "reduce", "all_gather", "all_gather_single", "reduce_scatter_single")  # on all members


@dataclass(frozen=True)
class RankMessages:
    """A rank in the wait-for graph: `wait` is its blocked call, None if it is not blocked or has ended; `posted` and
    `taken` count its messages by (peer, tag).
    """

    wait: Wait | None
    posted: Counter
    taken: Counter


@dataclass(frozen=True)
class TorchCall:
    """A call of torch's own that a rank waits for: a collective or rendezvous, the `number`-th of its group, or a message, the
    `number`-th of its channel.

    `size` is "3 float32". `channel` names a message's way, `any_channel` the receives from anyone that could take it.
    """

    kind: Literal["collective", "meeting", "send", "recv"]
    op: str
    group: str
    members: tuple[int, ...]
    number: int
    size: str = ""
    peer: int | None = None
    channel: str = ""
    any_channel: str = ""


@dataclass(frozen=True)
class Posts:
    """A rank's side in deadlock detection: its posts, and its wait for one of `calls`, or in the fabric.

    A rank that waits is blocked in these calls, and no other thread of it can post. A rank that has `ended` posts nothing more;
    one that `goes on` may post anything. `where` names the wait for people. `other_cpu_s` is the CPU time of all its threads but
    the one that answers.
    """

    state: Literal["goes on", "waits", "ended"]
    calls: tuple[TorchCall, ...] = ()
    where: str = ""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)  # members, by group
    posted: dict[str, int] = field(default_factory=dict)  # by group: the number of its last collective
    recent: dict[str, str] = field(default_factory=dict)  # by group and number: operation, "|", size
    sent: dict[str, int] = field(default_factory=dict)  # by channel
    asked_for: dict[str, int] = field(default_factory=dict)  # by channel: receives posted
    taken: dict[str, int] = field(default_factory=dict)  # by channel from anyone: receives that ended
    unwaited: dict[str, int] = field(default_factory=dict)  # by channel: sends for whose handle nobody has waited
    fabric: RankMessages | None = None
    other_cpu_s: float = 0.0


def deadlock(ranks: dict[int, RankMessages], live: set[int]) -> tuple[Wait, ...]:
    """Return a `Wait` for every live rank if none can go on; else ()."""
    waits: list[Wait] = []
    for rank in sorted(live):
        wait = ranks[rank].wait if rank in ranks else None
        if wait is None or _can_go_on(wait, ranks):
            return ()
        waits.append(replace(wait, peer_ended=wait.peer not in (None, *live)))
    return tuple(waits)


def _can_go_on(wait: Wait, ranks: Mapping[int, RankMessages]) -> bool:
    if wait.op == "recv":
        sources = [wait.peer] if wait.peer is not None else ranks.keys() - {wait.rank}
        return any(_untaken(source, wait.rank, wait.tag, ranks) for source in sources)

    if not _untaken(wait.rank, wait.peer, wait.tag, ranks):
        return True  # already taken: the send is about to return

    receiver = ranks[wait.peer].wait if wait.peer in ranks else None
    if receiver is None or receiver.op != "recv":
        return False  # the receiver has ended without the message, or is itself in a send
    return receiver.peer in (None, wait.rank) and receiver.tag == wait.tag


def _untaken(src: int, dst: int, tag: int, ranks: Mapping[int, RankMessages]) -> int:
    posted = ranks[src].posted[dst, tag] if src in ranks else 0
    taken = ranks[dst].taken[src, tag] if dst in ranks else 0
    return posted - taken


def stuck(posts: Mapping[int, Posts], quiet: bool) -> dict[int, tuple[int, ...]]:
    """Return the ranks that can never go on, each with the ranks that it waits for: the largest set of waiting ranks in which
    every wait is for ranks of the set or for ranks that have ended.

    `quiet` says that no thread of any waiting rank has run for a moment, which a rooted collective needs: there a rank may wait
    for a slow member that has come, not for the missing one.
    """
    waiting = {rank: () for rank, post in posts.items() if post.state == "waits"}
    while True:
        awaited = {rank: _awaited(rank, posts, waiting, quiet) for rank in waiting}
        kept: dict[int, tuple[int, ...]] = {rank: ranks for rank, ranks in awaited.items() if ranks}
        if len(kept) == len(waiting):
            return kept
        waiting = dict.fromkeys(kept, ())


def _awaited(rank: int, posts: Mapping[int, Posts], blocked: Mapping[int, tuple], quiet: bool) -> tuple[int, ...]:
    """Return whom this rank waits for in vain if the deadlocked ranks `blocked` stay so; () if it may go on."""
    over = {other for other, post in posts.items() if post.state == "ended" or other in blocked}
    own = posts[rank]
    others: set[int] = set()
    if own.fabric is not None and own.fabric.wait is not None:
        wait = own.fabric.wait
        peers = {wait.peer} if wait.peer is not None else posts.keys() - {rank}
        messages = {other: each.fabric for other, each in posts.items() if each.fabric is not None}
        if not peers <= over or _can_go_on(wait, messages):
            return ()
        others |= peers

    for call in own.calls:
        if call.kind in ("collective", "meeting"):
            ranks = _awaited_members(rank, call, posts, over, quiet)
        else:
            ranks = _awaited_peers(rank, call, posts, over, quiet)
        if not ranks:
            return ()
        others |= ranks
    return tuple(sorted(others))


def _awaited_members(rank: int, call: TorchCall, posts: Mapping[int, Posts], over: set[int], quiet: bool) -> set[int]:
    missing: set[int] = set()
    different: set[int] = set()  # posted another operation in its place
    resized: set[int] = set()  # posted the same operation with another size
    place = f"{call.group} {call.number}"
    for member in call.members:
        theirs = posts.get(member)
        if member == rank:
            continue
        if theirs is None or (call.kind == "collective" and theirs.groups.get(call.group) != call.members):
            return set()  # it does not say, or knows another group by this name
        came = theirs.posted.get(call.group, 0)
        if came < 0:
            return set()
        if came < call.number:
            missing.add(member)
        elif call.kind == "collective" and place in theirs.recent:
            op, _, size = theirs.recent[place].partition("|")
            if op != call.op:
                different.add(member)
            elif size != call.size and op in EQUAL_SIZES:
                resized.add(member)

    if different:
        return different | (missing & over)
    if missing:
        rooted = call.op in ROOTED
        return missing if missing <= over and (quiet or not rooted) else set()
    return resized if quiet else set()


def _awaited_peers(rank: int, call: TorchCall, posts: Mapping[int, Posts], over: set[int], quiet: bool) -> set[int]:
    peers = {call.peer} if call.peer is not None else set(call.members) - {rank}
    if not peers <= over:
        return set()

    if call.kind == "send":
        receiver = posts[call.peer]
        met = receiver.asked_for.get(call.channel, 0) >= call.number or receiver.asked_for.get(call.any_channel, 0) > 0
    elif call.peer is not None:
        sender = posts[call.peer]
        dropped = sender.state == "ended" and call.channel in sender.unwaited and quiet  # gloo forgets it with its handle
        met = sender.sent.get(call.channel, 0) >= call.number and not dropped
    else:
        _, _, way = call.channel.partition("*>")  # "1 0": this rank and the tag
        sent = sum(posts[peer].sent.get(f"{call.group} {peer}>{way}", 0) for peer in peers)
        met = sent > posts[rank].taken.get(call.any_channel, 0)
    return set() if met else peers


def cause(stuck_ranks: Mapping[int, tuple[int, ...]], posts: Mapping[int, Posts], returned: set[int]) -> str:
    """Return in a sentence why these ranks can never go on: what they disagree about, or who ended while they wait."""
    for rank in stuck_ranks:
        for call in posts[rank].calls:
            if call.kind == "collective":
                mismatch = _disagreement(call, posts)
                if mismatch:
                    return mismatch

    ended = {other for ranks in stuck_ranks.values() for other in ranks if posts[other].state == "ended"}
    clauses = []
    if ended & returned:
        waited_for = {call.channel for rank in stuck_ranks for call in posts[rank].calls}
        early = any(waited_for & posts[rank].unwaited.keys() for rank in ended)
        how = " without waiting for its isend" if early else ""
        clauses.append(f"{failures.names(sorted(ended & returned))} returned{how}")
    if ended - returned:
        others = sorted(ended - returned)
        clauses.append(f"{failures.names(others)} {'takes' if len(others) == 1 else 'take'} no part in this")

    groups = {call.group for rank in stuck_ranks for call in posts[rank].calls if call.kind == "collective"}
    ranks_in: dict[str, list[int]] = {}
    for rank in sorted(stuck_ranks):
        post = posts[rank]
        where = post.where or (failures.where_it_waits(post.fabric.wait).removeprefix("in ") if post.fabric else "")
        if len(groups) > 1 and post.calls and post.calls[0].kind == "collective":
            call = post.calls[0]
            where += f" (group {call.group.partition(':')[2]}: ranks {', '.join(map(str, call.members))})"
        ranks_in.setdefault(where, []).append(rank)
    for where, ranks in ranks_in.items():
        clauses.append(f"{failures.names(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {where}")
    return "; ".join(clauses)


def disagreement(posts: Mapping[int, Posts]) -> str:
    """Return what ranks posted last in a group, where that differs at the same place, or where those that can still say agree;
    else "".
    """
    for post in posts.values():
        for group, number in post.posted.items():
            if group in post.groups:
                call = TorchCall("collective", "", group, post.groups[group], number)
                words = _disagreement(call, posts)
                if words:
                    return words
    last: dict[tuple[str, str], list[int]] = {}  # by place and words: the ranks that can still say
    for rank, post in posts.items():
        for posted_here in list(post.recent.items())[-1:]:
            last.setdefault(posted_here, []).append(rank)
    if len(last) == 1:
        (((place, words), ranks),) = last.items()
        op, _, size = words.partition("|")
        call_in_words = f"{op} with {size}" if size else op
        return f"{failures.names(sorted(ranks))} called {call_in_words} as collective {place.split()[-1]}"
    return ""


def _disagreement(call: TorchCall, posts: Mapping[int, Posts]) -> str:
    """Return what the members posted at this place of their group, if it differs, which may be a deadlock's cause; else ""."""
    place = f"{call.group} {call.number}"
    ranks_of: dict[str, list[int]] = {}
    for member in call.members:
        posted_here = posts[member].recent.get(place) if member in posts else None
        if posted_here is not None:
            ranks_of.setdefault(posted_here, []).append(member)
    ops = {posted_here.partition("|")[0] for posted_here in ranks_of}
    if len(ranks_of) < 2 or (len(ops) == 1 and not ops & set(EQUAL_SIZES)):
        return ""

    clauses = []
    for posted_here, ranks in ranks_of.items():
        op, _, size = posted_here.partition("|")
        for rank in ranks:
            waits = [each.number for each in posts[rank].calls if each.group == call.group]
            if waits and min(waits) == call.number:
                op = posts[rank].where  # "all_gather of full_tensor()"
        clauses.append(f"{failures.names(ranks)} called {op}" + (f" with {size}" if size and len(ops) < len(ranks_of) else ""))
    group = "the default group" if call.group.endswith(":0") else f"the group of ranks {', '.join(map(str, call.members))}"
    return f"{', '.join(clauses)}, each as collective {call.number} of {group}"

