"""Schedules of a pipeline on real ranks over a shaped link, against the same schedules played on paper.

1F1B, interleaved 1F1B with two chunks, and split backwards (ZB-H1), with declared work, so that no model and no core
decides. The player knows dependencies and one time for each message; what real ranks need besides is their processes'.
Left out: models (lab 03), links on which messages queue.

    python bench/pipeline.py [--ranks 2 4 8] [--forward-ms 20] [--repeats 5] [--smoke]
"""

from dataclasses import dataclass

import report

from worldsize.formulas.pipeline import Schedules, makespan_s, play
from worldsize.formulas.schedules import interleaved, split_backward
from worldsize.launch import launch
from worldsize.links import Link
from worldsize.pytorch.rehearsal import rehearse

MESSAGE_BYTES = 8192
OF_A_FORWARD = 2 / 3  # what a message takes


@dataclass(frozen=True)
class Contestant:
    """A schedule by stage; the seconds of a forward, of a backward, and of the weights' gradients where they are apart."""

    name: str
    orders: Schedules
    seconds: tuple[float, float, float]
    chunks: int = 1


def contestants(stages: int, forward_s: float) -> list[Contestant]:
    m = 2 * stages
    whole, split = (forward_s, 2 * forward_s, 0.0), (forward_s, forward_s, forward_s)
    return [
        Contestant("1F1B", [_one_forward_one_backward(s, stages, m) for s in range(stages)], whole),
        Contestant("interleaved", [interleaved(d, stages, m, 2) for d in range(stages)], whole, chunks=2),
        Contestant("split", [split_backward(s, stages, m) for s in range(stages)], split),
    ]


def _one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    return [action for action in split_backward(stage, stages, micro_batches) if action[0] != "weights"]


def main() -> None:
    parser = report.options(__doc__, repeats=5)
    parser.add_argument("--forward-ms", type=float, default=20)
    options = parser.parse_args()
    if options.smoke:
        options.ranks, options.repeats = [2], 2
    forward_s = options.forward_ms / 1000
    link = Link(MESSAGE_BYTES / (forward_s * OF_A_FORWARD), "100 us")
    note = f"{report.machine()}; medians of {options.repeats}; a forward takes {options.forward_ms:g} ms"
    print(note)

    rows, measured, ratios = [], [], {}
    for n in options.ranks:
        field = contestants(n, forward_s)
        took: dict[str, list[float]] = {one.name: [] for one in field}
        for _ in range(options.repeats):
            for one in field:
                run = launch(rehearse, n, args=(one.orders, one.seconds, MESSAGE_BYTES, one.chunks), link=link)
                took[one.name].append(makespan_s(run.trace))

        for one in field:
            hop_s = link.seconds(MESSAGE_BYTES)
            paper_s = makespan_s(play(one.orders, *one.seconds[:2], hop_s, weights_s=one.seconds[2], chunks=one.chunks))
            real_s = report.median(took[one.name])
            ratios[one.name, n] = real_s / paper_s
            rows.append([f"{n} stages, {one.name}", real_s * 1e3, paper_s * 1e3, real_s / paper_s])
            measured.append({"stages": n, "schedule": one.name, "player_s": paper_s, "measured_s": took[one.name]})

    report.table("one step over the link, medians", ["", "ranks, ms", "player, ms", "ranks / player"], rows)
    print()
    names = list(dict.fromkeys(name for name, _ in ratios))
    for (name, n), ratio in ratios.items():
        report.target(f"ranks / player, {name}, {n} stages", ratio, at_most=1.1)
    report.keep(options.out / "pipeline.json", {"conditions": note, "measured": measured})
    series = {name: [ratios[name, n] for n in options.ranks] for name in names}
    groups = [f"{n} stages" for n in options.ranks]
    title = f"A schedule on real ranks / the same on paper\n{note}"
    report.bars(options.out / "pipeline.png", title, groups, series, axis="ratio of medians", line=1.0)


if __name__ == "__main__":
    main()
