"""Exercise 12.5: an optimizer of any class, of which a rank keeps its own part."""

from types import MethodType

import torch

from tests.checks.mutants import Answers
from worldsize.fabric.collectives import all_gather, all_reduce, broadcast, reduce_scatter

answers = Answers("sharded_optimizer")


@answers.is_right
def flat_pieces(fabric, parameters, kind, **options):
    n, rank = fabric.world_size, fabric.rank

    class Sharded(torch.optim.Optimizer):
        def __init__(self):
            self.inner = None
            super().__init__(parameters, options)

        def add_param_group(self, group):
            super().add_param_group(group)
            group = self.param_groups[-1]
            own = {**group, "params": [p.data.view(-1).tensor_split(n)[rank] for p in group["params"]]}
            if self.inner is None:
                self.inner = kind([own], **options)
            else:
                self.inner.add_param_group(own)
            group.update({**self.inner.param_groups[-1], "params": group["params"]})

        def step(self):
            pairs = []
            for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
                own.update({**group, "params": own["params"]})
                pairs += [pair for pair in zip(group["params"], own["params"], strict=True) if pair[0].grad is not None]
            for p, piece in pairs:
                piece.grad = reduce_scatter(fabric, p.grad.flatten()) / n
            self.inner.step()
            self.inner.zero_grad()
            for p, _ in pairs:
                all_gather(fabric, p.data.view(-1))

    return Sharded()


@answers.is_right
def whole_parameters(fabric, parameters, kind, **options):
    """Each parameter has an owner: the rank that has least, the largest parameters first within a group."""
    n, rank = fabric.world_size, fabric.rank
    others = [other for other in range(n) if other != rank]
    owner, load = {}, [0] * n

    class Owned(torch.optim.Optimizer):
        inner = None

        def add_param_group(self, group):
            super().add_param_group(group)
            group = self.param_groups[-1]
            for p in sorted(group["params"], key=lambda p: p.numel(), reverse=True):
                owner[p] = load.index(min(load))
                load[owner[p]] += p.numel() if p.requires_grad else 0
            mine = [p for p in group["params"] if owner[p] == rank] or [torch.zeros(0)]
            own = {**group, "params": mine}
            if self.inner is None:
                self.inner = kind([own], **options)
            else:
                self.inner.add_param_group(own)
            for name, value in self.inner.param_groups[-1].items():
                group.setdefault(name, value)

        def step(self, closure=None):
            for group, own in zip(self.param_groups, self.inner.param_groups, strict=True):
                own.update((name, value) for name, value in group.items() if name != "params")
            trained = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            for p in trained:
                if owner[p] == rank:
                    for other in others:
                        arrived = torch.empty_like(p)
                        fabric.recv(arrived, frm=other)
                        p.grad += arrived
                    p.grad /= n
                else:
                    fabric.send(p.grad, to=owner[p])
            self.inner.step()
            for p in trained:
                if owner[p] == rank:
                    for handle in [fabric.isend(p.data, to=other) for other in others]:
                        handle.wait()
                else:
                    fabric.recv(p.data, frm=owner[p])

    return Owned(parameters, options)


@answers.is_right
def a_subclass_of_the_kind(fabric, parameters, kind, **options):
    """It is an optimizer of pieces, which shows the parameters in its groups between two steps."""
    n = fabric.world_size
    piece_of = {}

    def cut(group):
        for p in group["params"]:
            piece_of[p] = p.detach().view(-1).tensor_split(n)[fabric.rank]
        return {**group, "params": [piece_of[p] for p in group["params"]]}

    def show(group, params):
        group["params"] = params

    class Cut(kind):
        built = False

        def add_param_group(self, group):
            params = group["params"]
            group = {**group, "params": [params] if isinstance(params, torch.Tensor) else list(params)}
            super().add_param_group(cut(group))
            self.whole = [*getattr(self, "whole", []), group["params"]]
            if self.built:
                show(self.param_groups[-1], group["params"])

        def step(self, closure=None):
            trained = [p for params in self.whole for p in params if p.grad is not None]
            for p in trained:
                piece_of[p].grad = reduce_scatter(fabric, p.grad.reshape(-1)).div_(n)
            for group, params in zip(self.param_groups, self.whole, strict=True):
                show(group, [piece_of[p] for p in params])
            super().step()
            for group, params in zip(self.param_groups, self.whole, strict=True):
                show(group, params)
            for p in trained:
                piece_of[p].grad = None
                all_gather(fabric, p.data.view(-1))

    parameters = list(parameters)
    groups = parameters if isinstance(parameters[0], dict) else [{"params": parameters}]
    optimizer = Cut(groups, **options)
    optimizer.built = True
    for group, params in zip(optimizer.param_groups, optimizer.whole, strict=True):
        show(group, params)
    return optimizer


@answers.is_right
def one_piece_a_group(fabric, parameters, kind, **options):
    """A flat tensor of all that has a gradient, gathered and scattered once; its pieces are the parts of each parameter."""
    n, rank = fabric.world_size, fabric.rank
    base = flat_pieces(fabric, parameters, kind, **options)

    def step(self):
        for group, own in zip(base.param_groups, base.inner.param_groups, strict=True):
            own.update({**group, "params": own["params"]})
        pairs = [
            (p, piece)
            for group, own in zip(base.param_groups, base.inner.param_groups, strict=True)
            for p, piece in zip(group["params"], own["params"], strict=True)
            if p.grad is not None
        ]
        by_rank = [torch.cat([p.grad.view(-1).tensor_split(n)[r] for p, _ in pairs]) for r in range(n)]
        own_sum = by_rank[rank]
        handles = [fabric.isend(by_rank[r], to=r) for r in range(n) if r != rank]
        own_sum = own_sum.clone()
        for r in range(n):
            if r != rank:
                arrived = torch.empty_like(own_sum)
                fabric.recv(arrived, frm=r)
                own_sum += arrived
        for handle in handles:
            handle.wait()
        for (_, piece), gradient in zip(pairs, own_sum.split([piece.numel() for _, piece in pairs]), strict=True):
            piece.grad = gradient / n
        base.inner.step()
        base.inner.zero_grad()
        for p, _ in pairs:
            all_gather(fabric, p.data.view(-1))

    base.step = MethodType(step, base)
    return base


answers.twin("options_by_the_groups_alone", {"kind([own], **options)": "kind([own])"})

WHOLE = whole_parameters
answers.mistake("keeps_the_whole_state", {
    "p.data.view(-1).tensor_split(n)[rank] for p": "p.data.view(-1) for p",
    "reduce_scatter(fabric, p.grad.flatten())": "all_reduce(fabric, p.grad.flatten())",
    "for p, _ in pairs:\n    all_gather(fabric, p.data.view(-1))": "",
}, "rank 0 keeps 3712 bytes of state, as much as for all parameters: nothing is saved")
answers.mistake("deals_parameters_out_by_number", {"owner[p] = load.index(min(load))": "owner[p] = len(owner) % n",
    "sorted(group[\"params\"], key=lambda p: p.numel(), reverse=True)": "group[\"params\"]"},
    "2 ranks, six layers", "Deal whole parameters out by size, not by number", of=WHOLE)
answers.mistake("gives_all_to_rank_0", {"owner[p] = load.index(min(load))": "owner[p] = 0"},
    "rank 0 keeps 3712 bytes of state, as much as for all parameters", of=WHOLE)


@answers.is_wrong("as much as for all parameters: nothing is saved")
def cuts_slices_of_a_whole_state(fabric, parameters, kind, **options):
    parameters = list(parameters)
    sharded = flat_pieces(fabric, parameters, kind, **options)
    step = sharded.step

    def then_slices():
        step()
        for group, own in zip(sharded.param_groups, sharded.inner.param_groups, strict=True):
            for p, piece in zip(group["params"], own["params"], strict=True):
                state = sharded.inner.state[piece]
                for name, x in state.items():
                    if torch.is_tensor(x) and x.ndim:
                        whole = torch.zeros(p.numel(), dtype=x.dtype)
                        state[name] = whole.tensor_split(fabric.world_size)[fabric.rank].copy_(x)

    sharded.step = then_slices
    return sharded


@answers.is_wrong("rank 0 made no optimizer of the class `kind`")
def writes_adamw_itself(fabric, parameters, kind, **options):
    return flat_pieces(fabric, parameters, torch.optim.AdamW, **options)


answers.mistake("sums_the_gradients", {"p.grad.flatten()) / n": "p.grad.flatten())"},
    "It stepped by the sum of the gradients: divide by the number of ranks")
answers.mistake("steps_by_its_own_gradients", {
    "reduce_scatter(fabric, p.grad.flatten()) / n": "p.grad.flatten().tensor_split(n)[rank].clone()",
}, "Are the gradients averaged over all ranks")
answers.mistake("zeroes_the_pieces_alone", {"return Sharded()": """
    sharded = Sharded()
    sharded.zero_grad = sharded.inner.zero_grad
    return sharded
"""}, "zero_grad leaves the parameters' own gradients")
answers.mistake("needs_every_gradient", {"if pair[0].grad is not None": ""},
    "frozen and unused layers", "A parameter may have no gradient in a step")
answers.mistake("takes_none_for_zeros", {
    "pairs += [pair for pair in zip(group[\"params\"], own[\"params\"], strict=True) if pair[0].grad is not None]": """
        pairs += list(zip(group["params"], own["params"], strict=True))
        for p in group["params"]:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
    """,
}, "A parameter without a gradient was stepped with zeros")
answers.mistake("keeps_old_gradients_of_pieces", {
    "self.inner.zero_grad()": "", "piece.grad = reduce_scatter": "piece.grad = 0 + reduce_scatter",
}, "frozen and unused layers", "left on a piece, or is a missing one taken for zeros")
answers.mistake("takes_none_for_zeros_on_its_pieces", {
    " if pair[0].grad is not None]": "]",
    "reduce_scatter(fabric, p.grad.flatten())":
        "reduce_scatter(fabric, (torch.zeros_like(p) if p.grad is None else p.grad).flatten())",
}, "A parameter without a gradient was stepped with zeros")

answers.mistake("gathers_nothing", {"for p, _ in pairs:\n    all_gather(fabric, p.data.view(-1))": ""},
    "Ranks hold different weights: after a step send each owner's weights to all ranks")
answers.mistake("steps_copies", {"tensor_split(n)[rank] for p": "tensor_split(n)[rank].clone() for p"},
    "These are the initial weights: change the parameters in place")
answers.mistake("broadcasts_from_rank_0", {
    """
    for p in trained:
        if owner[p] == rank:
            for handle
    """: """
    broadcast(fabric, trained)
    for p in []:
        if owner[p] == rank:
            for handle
    """,
}, "does each parameter come from its owner", of=WHOLE)
answers.mistake("orders_by_what_is_there", {
    "key=lambda p: p.numel(), reverse=True": "key=lambda p: p.numel(), reverse=rank % 2 == 0",
}, "deadlock", of=WHOLE)
answers.mistake("begins_anew_at_each_step", {"self.inner.step()": """
    self.inner = kind(self.inner.param_groups, **options)
    self.inner.step()
"""}, "Each step begins with a new state")
answers.mistake("steps_twice", {"self.inner.step()": "self.inner.step()\nself.inner.step()"}, "Each step was taken twice")

answers.mistake("is_deaf_to_the_scheduler", {"own.update({**group, \"params\": own[\"params\"]})": ""},
    "do not reach the steps: hand the groups' options on at every step")
answers.mistake("hands_on_the_rate_alone", {"own.update({**group, \"params\": own[\"params\"]})": "own[\"lr\"] = group[\"lr\"]"},
    "the rate alone reaches the steps, not the weight decay and betas")
answers.mistake("hands_on_the_options_of_the_start", {
    "own.update({**group, \"params\": own[\"params\"]})": "own.update((name, group[name]) for name in (\"lr\", *options))",
}, "the rate alone reaches the steps, not the weight decay and betas")
answers.mistake("hands_on_rate_and_decay_alone", {"own.update({**group, \"params\": own[\"params\"]})": """
    own.update((name, group[name]) for name in (\"lr\", \"weight_decay\") if name in group)
"""}, "the rate and the weight decay reach the steps, not the betas")
answers.mistake("leaves_the_defaults_to_the_inner_groups", {
    "group.update({**self.inner.param_groups[-1], \"params\": group[\"params\"]})": "",
}, "2 ranks, six layers", "Give every group of the optimizer all options of its class")
answers.mistake("drops_the_groups_options", {
    "own = {**group, \"params\": [p": "own = {\"params\": [p",
    "own.update({**group, \"params\": own[\"params\"]})": "",
}, "All parameters were stepped with one rate")
answers.mistake("forgets_the_added_group", {"self.inner.add_param_group(own)": """
    if len(self.inner.param_groups) == len(self.param_groups) - 1 and not self.inner.state:
        self.inner.add_param_group(own)
""", "zip(self.param_groups, self.inner.param_groups, strict=True)": "zip(self.param_groups, self.inner.param_groups)"},
    "a group added later", "The group added by add_param_group is not stepped")


@answers.is_wrong("whose class inherits torch.optim.Optimizer: schedulers need one")
def returns_something_like_an_optimizer(fabric, parameters, kind, **options):
    base = flat_pieces(fabric, parameters, kind, **options)

    class Like:
        param_groups = base.param_groups
        step = staticmethod(base.step)
        zero_grad = staticmethod(base.zero_grad)
        add_param_group = staticmethod(base.add_param_group)

    return Like()


answers.mistake("goes_through_the_parameters_twice", {
    "n, rank = fabric.world_size, fabric.rank": """
        n, rank = fabric.world_size, fabric.rank
        numbers = sum(p.numel() for p in parameters)
    """,
}, "may be an iterator, which you can read only once")

answers.mistake("all_reduces_the_gradients", {
    "reduce_scatter(fabric, p.grad.flatten())": "all_reduce(fabric, p.grad.flatten()).tensor_split(n)[rank]",
}, "the weights are right, but all ranks together sent 1.5 x an all-reduce of the gradients")
answers.mistake("gathers_what_has_not_changed", {"for p, _ in pairs:\n    all_gather": """
    for p in (p for group in self.param_groups for p in group[\"params\"]):
        all_gather
"""}, "frozen and unused layers", "A parameter without a gradient in a step does not change: do not gather it")
answers.mistake("goes_through_float32", {
    "reduce_scatter(fabric, p.grad.flatten()) / n": "reduce_scatter(fabric, p.grad.flatten().float()).double() / n",
}, "Numbers that went through float32 are off by this much")
