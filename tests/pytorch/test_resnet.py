"""The residual networks have the parameters that torchvision's have, and take images of any number of channels."""

import pytest
import torch

from worldsize.pytorch.resnet import resnet

TORCHVISION = {18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808}


@pytest.mark.parametrize(("depth", "parameters"), TORCHVISION.items())
def test_a_depth_has_as_many_parameters_as_torchvisions(depth, parameters):
    with torch.device("meta"):
        assert sum(p.numel() for p in resnet(depth).parameters()) == parameters


@pytest.mark.parametrize("depth", [18, 50])
def test_one_channel_and_ten_classes_change_the_first_and_the_last_layer_alone(depth):
    with torch.device("meta"):
        whole, small = ([p.numel() for p in resnet(depth, *given).parameters()] for given in ((), (1, 10)))
    features = 2048 if depth == 50 else 512
    assert whole[0] - small[0] == 2 * 64 * 49
    assert sum(whole[1:]) - sum(small[1:]) == 990 * (features + 1)


def test_an_image_of_28_pixels_gives_a_logit_for_each_class():
    assert resnet(18, channels=1, classes=10, width=4)(torch.zeros(3, 1, 28, 28)).shape == (3, 10)


def test_an_image_shrinks_to_a_32nd_before_the_last_layer():
    stages = resnet(50, width=4)[:-3]
    assert stages(torch.zeros(1, 3, 64, 64)).shape == (1, 4 * 8 * 4, 2, 2)


def test_every_parameter_learns():
    model = resnet(18, channels=1, classes=10, width=4)
    model(torch.randn(4, 1, 28, 28)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_depth_that_the_paper_does_not_have_is_refused():
    with pytest.raises(ValueError, match="expected a depth of 18, 34, 50, 101, 152, got 20"):
        resnet(20)
