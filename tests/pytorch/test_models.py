"""The small models: seeded weights, shapes, and images as tensors."""

import numpy as np
import pytest
import torch

from worldsize.data import Dataset
from worldsize.pytorch import models

pytestmark = pytest.mark.quick


def dataset(*shape: int) -> Dataset:
    images = np.random.default_rng(0).integers(0, 256, (12, *shape), dtype=np.uint8)
    return Dataset("made", images, np.arange(12) % 10, images[:5], np.arange(5), tuple("abcdefghij"))


def test_one_seed_makes_equal_weights_and_another_makes_others():
    one, same, other = (models.flat(list(models.small_cnn(seed).parameters())) for seed in (1, 1, 2))
    assert torch.equal(one, same) and not torch.equal(one, other)


def test_a_seeded_model_leaves_the_callers_generator_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    models.small_cnn(1)
    assert torch.equal(torch.rand(3), expected)


def test_without_a_seed_the_callers_generator_decides():
    torch.manual_seed(5)
    one = models.flat(list(models.mlp([3, 2]).parameters()))
    assert not torch.equal(one, models.flat(list(models.mlp([3, 2]).parameters())))


def test_the_cnn_gives_a_logit_for_each_class_and_has_the_parameters_that_its_docstring_says():
    model = models.small_cnn(0)
    assert model(torch.zeros(3, 1, 28, 28)).shape == (3, 10)
    count = sum(p.numel() for p in model.parameters())
    assert f"{count:,} parameters" in models.small_cnn.__doc__


def test_the_strided_cnn_takes_images_of_half_the_side_and_has_the_parameters_that_its_docstring_says():
    model = models.strided_cnn(0)
    assert model(torch.zeros(3, 1, 14, 14)).shape == (3, 10)
    count = sum(p.numel() for p in model.parameters())
    assert f"{count:,} parameters" in models.strided_cnn.__doc__


def test_an_mlp_ends_with_a_linear_layer():
    assert [type(layer).__name__ for layer in models.mlp([4, 3, 2])] == ["Linear", "ReLU", "Linear"]


def test_an_mlp_of_one_size_is_refused():
    with pytest.raises(ValueError, match="at least two sizes.*got \\[4\\]"):
        models.mlp([4])


@pytest.mark.parametrize(("shape", "tensor"), [((28, 28), (1, 28, 28)), ((32, 32, 3), (3, 32, 32))])
def test_images_become_channels_first_with_mean_zero_and_deviation_one(shape, tensor):
    x, y, unseen, labels = models.tensors(dataset(*shape), train=8, test=2)
    assert (x.shape, y.shape, unseen.shape, labels.shape) == ((8, *tensor), (8,), (2, *tensor), (2,))
    assert abs(float(x.mean())) < 1e-5 and abs(float(x.std()) - 1) < 1e-5


def test_a_model_as_one_vector_keeps_its_order():
    assert models.flat([torch.tensor([[1.0, 2.0]]), torch.tensor([3.0])]).tolist() == [1, 2, 3]
