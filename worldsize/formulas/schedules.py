"""Pipeline schedules beyond 1F1B, for `pipeline.play`: interleaved 1F1B, and a schedule with split backwards.

The bubbles that their papers promise assume free messages and equal stages. Left out: GPipe's and 1F1B's own orders, which
students write; schedules found by search; ZB-H2, which holds up to 2p − 1 micro-batches.

D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", arXiv:2104.04473, 2021,
section 2.2. P. Qi et al., "Zero bubble pipeline parallelism", ICLR 2024, arXiv:2401.10241.
"""

from itertools import product

from worldsize.formulas.pipeline import BACKWARD, FORWARD, WEIGHTS, Action

ChunkAction = tuple[str, int, int]


def interleaved(device: int, devices: int, micro_batches: int, chunks: int) -> list[ChunkAction]:
    """Return a device's actions under interleaved 1F1B, in which every device has several chunks of layers.

    Device d of p holds the model's parts d, p + d, 2p + d …. Micro-batches go in groups of p: a group through the first chunk,
    then the same group through the next. Actions are (way, micro-batch, chunk). Megatron-LM, 2021, section 2.2.2. Raises
    ValueError if `micro_batches` does not divide by `devices`.
    """
    if micro_batches % devices:
        raise ValueError(
            f"interleaved: expected micro-batches in whole groups of {devices}, one for each device; got {micro_batches}. "
            f"Choose a multiple of {devices}."
        )

    forwards, backwards = [], []
    for group, chunk, k in product(range(0, micro_batches, devices), range(chunks), range(devices)):
        forwards.append((FORWARD, group + k, chunk))
        backwards.append((BACKWARD, group + k, chunks - 1 - chunk))

    ahead = min(2 * (devices - device - 1) + (chunks - 1) * devices, len(forwards))  # forwards before the first backward
    actions = forwards[:ahead]
    for place, backward in enumerate(backwards):  # then a forward and a backward in turn, while there are forwards
        actions += [*forwards[ahead + place : ahead + place + 1], backward]
    return actions


def split_backward(stage: int, stages: int, micro_batches: int) -> list[Action]:
    """Return a stage's actions under ZB-H1, with split backwards: the input's gradient at once, the weights' later.

    The order is 1F1B's, except that stage s makes the weights' gradients s micro-batches late: its input's gradients leave
    sooner, and the weights' fill the former bubble. Every stage holds at most p micro-batches. Zero bubble, 2024, section 2;
    "weights" actions take `weights_s` in `pipeline.play`.
    """
    ahead = min(stages - stage - 1, micro_batches)
    actions: list[Action] = [(FORWARD, k) for k in range(ahead)]
    for k in range(micro_batches):
        if ahead + k < micro_batches:
            actions.append((FORWARD, ahead + k))
        actions.append((BACKWARD, k))
        if k >= stage:
            actions.append((WEIGHTS, k - stage))

    return actions + [(WEIGHTS, k) for k in range(max(0, micro_batches - stage), micro_batches)]


def overhead(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the bubble as a share of the ideal step: (p − 1)/(v m).

    For GPipe and 1F1B (v = 1), and for interleaved 1F1B with v chunks per device. Megatron-LM, 2021, section 2.2, calls this the
    bubble time fraction.
    """
    return (stages - 1) / (chunks * micro_batches)


def idle_share(stages: int, micro_batches: int) -> float:
    """Return the share of a step in which a stage is idle: (p − 1)/(m + p − 1).

    GPipe, 2019, section 2.3; the same bubble as `overhead`, divided by the whole step.
    """
    return (stages - 1) / (micro_batches + stages - 1)


def split_bubble_s(stages: int, forward_s: float, backward_s: float, weights_s: float) -> float:
    """Return ZB-H1's bubble per stage in seconds: (p − 1) (F + B − W).

    For p micro-batches or more. B is the time of the input's gradients alone, W of the weights'; with 1F1B the bubble is (p − 1)
    (F + B + W). Zero bubble, 2024, section 2.
    """
    return (stages - 1) * (forward_s + backward_s - weights_s)
