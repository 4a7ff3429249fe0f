"""Saved and loaded models are equal."""

import numpy as np
import pytest
import torch

from heedful import load
from heedful.storage.state_dict import load_weights, save_weights, unique_weights
from tests.catalogue import FORECASTERS, SYSTEMS, TAGGERS, build, quick_or_wide

pytestmark = pytest.mark.wide

TEXTS = ["a b c", "", "h g f e d", "a", "unknown words"]


@pytest.mark.parametrize("name", quick_or_wide(SYSTEMS | TAGGERS | FORECASTERS))
def test_loaded_weights_equal_saved_weights(name, tmp_path):
    model, other = build(name), build(name)
    with torch.no_grad():
        for weight in other.parameters():
            weight.zero_()
    save_weights(unique_weights(model), tmp_path / "weights.safetensors")
    load_weights(other, tmp_path / "weights.safetensors")
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_run_loaded_twice_translates_identically(trained):
    for one, two in zip(
        load(trained).translate(TEXTS), load(trained).translate(TEXTS), strict=True
    ):
        assert one.text == two.text
        assert one.score == two.score
        assert np.array_equal(one.weights, two.weights)
