"""The import hook of jaxtyping checks shapes in every tensor package."""

import importlib
import pkgutil
from pathlib import Path

import jaxtyping
import pytest
import torch
from beartype import beartype

from tests.shape_checking import CHECKED_TESTS, TENSOR_PACKAGES, check_new_shapes, enable_checks_of

Matrix = jaxtyping.Float[torch.Tensor, "B T"]


def test_wrong_shape_raises():
    from heedful.attention.masks import padding_mask

    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        padding_mask(torch.ones(2, 2, dtype=torch.long), 3)


def test_wrong_dtype_raises():
    from heedful.attention.masks import padding_mask

    with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
        padding_mask(torch.ones(2), 3)


def test_each_new_shape_is_checked():
    from heedful.attention.masks import padding_mask

    padding_mask(torch.ones(2, dtype=torch.long), 3)
    for lengths in (torch.ones(2), torch.ones(2, 2, dtype=torch.long)):
        for _ in range(2):
            with pytest.raises(jaxtyping.TypeCheckError, match="lengths"):
                padding_mask(lengths, 3)


def test_new_shape_of_a_result_is_checked():
    results = [torch.zeros(2, 3), torch.zeros(2, 3), torch.zeros(3, 2)]

    @check_new_shapes(typechecker=beartype)
    def next_result(inputs: Matrix) -> Matrix:
        return results.pop(0)

    for _ in range(2):
        next_result(torch.ones(2, 3))
    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        next_result(torch.ones(2, 3))


def test_shapes_checked_in_listed_tests_only():
    tests = Path(__file__).parents[1]
    assert [name for name in CHECKED_TESTS if not (tests / name).exists()] == []
    enable_checks_of(tests / "equivalence" / "test_search.py")
    assert jaxtyping.config.jaxtyping_disable
    enable_checks_of(tests / "laws" / "test_head_laws.py")
    assert not jaxtyping.config.jaxtyping_disable


@pytest.mark.parametrize("name", TENSOR_PACKAGES)
def test_tensor_package_is_checked(name):
    package = importlib.import_module(f"heedful.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        loader = importlib.import_module(module.name).__spec__.loader
        assert type(loader).__module__.startswith("jaxtyping"), module.name
