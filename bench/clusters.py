"""How well the step-time model that is fitted to 64 GPUs holds on 256 and 512, and what each of its terms is worth.

`python bench/clusters.py` prints the tables; it takes a few seconds and gives the same every time. The rows of 256 and 512 GPUs
are in no fit.
"""

import numpy as np

from worldsize import data
from worldsize.formulas import cluster_spread
from worldsize.formulas import measured_clusters as clusters


def main() -> None:
    single, multi = data.measured_iterations("single"), data.measured_iterations("multi")
    small = [row for row in multi if row.gpus == 64]
    large = [row for row in multi if row.gpus > 64]

    fitted = clusters.fit(small, clusters.fit_memory(single))
    trap = clusters.fit(small)

    print("constants        of the sheet's rate     five free constants")
    for name, right, wrong in zip(clusters.CONSTANTS[:-1], fitted.constants, trap.constants, strict=False):
        print(f"{name:16} {_rate(right):>20} {_rate(wrong):>23}")
    print(f"{'overhead':16} {fitted.constants[-1] * 1e3:>17.2f} ms {trap.constants[-1] * 1e3:>20.2f} ms")

    print("\nmean absolute error, %")
    groups = {"26 of 64 GPUs (fitted)": small, "83 of 256 and 512": large, "1,440 of one node": single}
    for gpus, hidden, name in ((256, 6144, "18.4 B"), (512, 8192, "39.1 B"), (512, 12288, "175 B")):
        groups[f"  {name}, {gpus} GPUs"] = [row for row in large if row.hidden == hidden]
    for name, rows in groups.items():
        print(f"{name:24} {_percent(fitted, rows):>12} {_percent(trap, rows):>23}")

    print("\nintervals of nominally 90 %, on the 83")
    for name, fit in (("the model", fitted), ("five free constants", trap)):
        covered, half_width = clusters.coverage(fit, large)
        print(f"{name:24} cover {100 * covered:.0f} %, mean half-width {100 * half_width:.1f} %")

    print("\nwithout a term, all fitted again     26      83")
    for term in clusters.TERMS:
        memory = 0.0
        if term != "memory":
            memory = clusters.fit_memory(single, term)
        fit = clusters.fit(small, memory, term)
        print(f"{term:32} {_percent(fit, small):>6} {_percent(fit, large):>7}")

    print_spread(single, multi)


def print_spread(single: list[data.MeasuredIteration], multi: list[data.MeasuredIteration]) -> None:
    """Print how the error on the 83 depends on the rows that were fitted to: one error alone is one draw of many."""
    small, large = ([row for row in multi if (row.gpus > 64) == above] for above in (False, True))
    print("\nmemory fitted to the node's rows of     rows  constant     26      83")
    for one in cluster_spread.by_micro_batch(single, small, large):
        errors = f"{100 * one.error_fitted:6.1f} {100 * one.error_asked:7.1f}"
        print(f"{one.name:38} {one.rows:5} {one.memory:9.2f} {errors}")

    drawn = 100 * cluster_spread.bootstrapped(single, small, large)
    print(f"\nthese rows drawn anew, {len(drawn)} times: {_spread(drawn)} % off on the 83")
    errors, covered = 100 * cluster_spread.random_splits(single, multi).T
    print(f"26 of all 109 at random, {len(errors)} times: {_spread(errors)} % off on the others, {covered.mean():.0f} % covered")
    for width, off in cluster_spread.without_a_model(single, multi).items():
        print(f"fitted without the model {width} wide: {100 * off:.1f} % off on it")

    fitted = clusters.fit(small, clusters.fit_memory(single))
    print("\nof the 83, by tensor   rows   off, %   signed, %")
    for tensor, (rows, off, signed) in cluster_spread.by_tensor(fitted, large).items():
        print(f"{tensor:20} {rows:6} {100 * off:8.1f} {100 * signed:+11.1f}")


def _spread(errors: np.ndarray) -> str:
    least, middle, most = np.percentile(errors, (2.5, 50, 97.5))
    return f"{middle:.1f} ({least:.1f} to {most:.1f})"


def _rate(constant: float) -> str:
    if not constant:
        return "free"
    return f"{1 / constant:.2f}"


def _percent(fit: clusters.ClusterFit, rows: list[data.MeasuredIteration]) -> str:
    return f"{100 * clusters.error(fit, rows):.1f}"


if __name__ == "__main__":
    main()
