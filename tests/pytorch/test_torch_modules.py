"""Modules of torch's own nn with what each brings along, and their training in one process."""

import pytest
import torch

from worldsize.pytorch.torch_modules import MODULES, loss, module, module_task, state, train, train_alone

every_module = pytest.mark.parametrize("name", MODULES)


def test_a_name_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ValueError, match="an LSTM with a projection.*got 'a GRU'"):
        module_task("a GRU")


@every_module
def test_ranks_draw_weights_buffers_and_rows_of_their_own_and_again_the_same(name):
    one, again, other = (module_task(name, seed=seed) for seed in (1, 1, 2))
    first, same, another = (state(module(task)) for task in (one, again, other))
    assert all(torch.equal(first[key], same[key]) for key in first)
    assert all(not torch.equal(first[key], another[key]) for key in first if first[key].unique().numel() > 1)
    losses = [loss(task, 0, 0, module(one)).item() for task in (one, again, other)]
    assert losses[0] == losses[1] != losses[2]


@every_module
def test_torch_s_own_generator_stays_as_it_was(name):
    before = torch.get_rng_state()
    loss(module_task(name), 0, 0, module(module_task(name)))
    assert torch.equal(torch.get_rng_state(), before)


@every_module
def test_one_rank_alone_is_trained_as_one_process(name):
    task = module_task(name, seed=3)
    own, alone = train(task, 0, module(task)), train_alone([task])
    assert all(torch.equal(own[when][key], alone[when][key]) for when in own for key in own[when])


@every_module
def test_what_learns_and_is_used_moves_and_all_else_stays(name):
    task = module_task(name, seed=3)
    made, told = module(task), train_alone([task])
    moved = {key for key in told["end"] if not torch.equal(told["start"][key], told["end"][key])}
    learning = {key for key, p in made.named_parameters() if p.requires_grad}
    assert moved == {key for key in learning if not key.startswith("layers.0.")}
