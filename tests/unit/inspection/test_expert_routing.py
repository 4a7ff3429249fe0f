import numpy as np
import pytest
import torch
import yaml

import heedful
from heedful.inspection.explanation import Explanation
from heedful.layers.expert_gates import NoisyTopKGate, StrictlyBalancedGate
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.recipes.recipe import read_recipe_text
from tests.commands import write_random_run

LINES = ["a b c d", "b c d e", "c d e a", "d e a b"]


def load_random(folder, recipe):
    settings = yaml.safe_load(read_recipe_text(recipe))
    run = write_random_run(folder / "run", settings, LINES, LINES, seed=2)
    predictor = heedful.load(run, device="cpu")
    torch.manual_seed(4)
    for module in predictor.model.modules():  # gates start at zero
        if isinstance(module, NoisyTopKGate | StrictlyBalancedGate):
            torch.nn.init.normal_(module.score.weight)
    return predictor


@pytest.mark.parametrize(
    "recipe", ["moe-transformer-small", pytest.param("moe-2017-small", marks=pytest.mark.wide)]
)
def test_explanation_has_the_gates_of_each_token(tmp_path, recipe):
    predictor = load_random(tmp_path, recipe)
    mixtures = {
        path: module
        for path, module in predictor.model.named_modules()
        if isinstance(module, MixtureOfExperts)
    }
    explanation = predictor.explain("a b c", need_effects=False)
    assert {routing.path for routing in explanation.experts} == mixtures.keys()
    for routing in explanation.experts:
        mixture = mixtures[routing.path]
        totals = routing.gates.sum(axis=1)
        is_routed = totals > 0  # a threshold may leave a token without expert
        np.testing.assert_allclose(totals[is_routed], 1, atol=1e-6)
        assert is_routed.all() or "2017" in recipe
        assert routing.gates.shape == (len(routing.tokens), len(mixture.experts))
        num_chosen = (routing.gates > 0).sum(axis=1)
        assert (num_chosen == mixture.num_experts_per_token).all() or "2017" in recipe
        is_encoder = routing.path.startswith("encoder")
        text = explanation.result.source_tokens if is_encoder else explanation.result.tokens
        assert list(routing.tokens)[: len(text)] == list(text)
    read = Explanation.from_json(explanation.to_json())
    for routing, other in zip(read.experts, explanation.experts, strict=True):
        assert (routing.path, list(routing.tokens)) == (other.path, list(other.tokens))
        torch.testing.assert_close(
            *map(torch.tensor, (routing.gates, other.gates)), atol=1e-6, rtol=0
        )
