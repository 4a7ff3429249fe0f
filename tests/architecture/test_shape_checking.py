"""Shape checking: the import hook is at work, not merely installed."""

import importlib
import pkgutil

import jaxtyping
import pytest
import torch

from tests.shape_checking import TENSOR_PACKAGES


def test_a_wrong_shape_is_refused():
    from heedful.attention import masks

    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        masks.padding_mask(torch.ones(2, 2, dtype=torch.long), 3)


def test_a_wrong_type_of_numbers_is_refused():
    from heedful.attention import masks

    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        masks.padding_mask(torch.ones(2), 3)


@pytest.mark.parametrize("name", TENSOR_PACKAGES)
def test_every_tensor_package_goes_through_the_hook(name):
    package = importlib.import_module(f"heedful.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        loader = importlib.import_module(module.name).__spec__.loader
        assert type(loader).__module__.startswith("jaxtyping"), module.name
