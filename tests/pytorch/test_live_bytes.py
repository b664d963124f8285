"""The meter of live bytes counts what is there: what is made, not what is freed or emptied, each storage once."""

import torch

from worldsize.pytorch.live_bytes import LiveBytes, SavedBytes


def test_what_is_made_counts_until_it_is_freed():
    with LiveBytes() as meter:
        x = torch.zeros(100)
        both = meter.now(), x.view(10, 10).numel(), meter.now()
        del x
    assert both == (400, 100, 400)
    assert (meter.now(), meter.peak) == (0, 400)


def test_the_size_of_each_storage_that_lives_is_told():
    with LiveBytes() as meter:
        x, y = torch.zeros(100), torch.zeros(3)
    assert sorted(meter.sizes()) == [y.nbytes, x.nbytes]


def test_what_was_there_before_counts_once_it_is_known():
    x = torch.zeros(100)
    assert LiveBytes([x, x[:50]]).now() == 400


def test_a_storage_that_is_emptied_does_not_count():
    x = torch.zeros(100)
    meter = LiveBytes([x])
    x.untyped_storage().resize_(0)
    assert meter.now() == 0


def test_what_backward_needs_is_counted_once_and_without_weights():
    x, w = torch.zeros(10, 5), torch.zeros(5, 5, requires_grad=True)
    with SavedBytes([w]) as saved:
        y = (x @ w).tanh()
    assert saved.total == x.nbytes + y.nbytes


def test_nothing_is_kept_where_no_gradient_is_asked_for():
    with SavedBytes() as saved, torch.no_grad():
        torch.zeros(5, requires_grad=True).tanh()
    assert saved.total == 0


def test_of_the_peak_it_tells_what_some_tensors_were():
    weight, late = torch.ones(10), None
    with LiveBytes([weight]) as meter:
        large = torch.ones(100)
        del large
        late = torch.ones(20)
    assert meter.peak == 440
    assert (meter.at_peak([weight, weight.view(2, 5)]), meter.at_peak([late])) == (40, 0)
