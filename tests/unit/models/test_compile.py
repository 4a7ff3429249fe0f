"""torch.compile traces the training forward pass of plain models as one graph.

The graphs are traced in a process without shape checks, whose wrappers would break them.
"""

import json
import subprocess
import sys

import pytest

from tests.architecture.source import ROOT

RECIPES = [
    "transformer-2017-tiny",
    "bahdanau-2015-small",
    "luong-2015-general-small",
    "convs2s-2017-small",
    "gpt-tiny",
    "bert-small",
]


@pytest.fixture(scope="module")
def break_reasons():
    """The reasons of all graph breaks, by recipe."""
    command = [sys.executable, "-m", "tests.unit.models.test_compile"]
    completed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return json.loads(completed.stdout)


@pytest.mark.wide
@pytest.mark.parametrize("recipe_name", RECIPES)
def test_training_compiles_without_graph_breaks(recipe_name, break_reasons):
    assert break_reasons[recipe_name] == []


def explain(recipe_name):
    import torch
    from torch import _dynamo as dynamo

    from heedful.data.text.token_stream import LMBatch
    from heedful.recipes import load_recipe
    from tests.catalogue import batch, store

    dynamo.reset()
    config = load_recipe(recipe_name).model
    model = config.build(source_vocab_size=30, target_vocab_size=30).train()
    if recipe_name.startswith(("gpt", "bert")):
        tokens = torch.randint(4, 29, (3, 7))
        inputs = LMBatch(tokens, tokens)
    else:
        inputs = batch(store(), [0, 1, 2])
    with dynamo.config.patch(allow_rnn=True):  # torch's kernels for LSTMs
        explanation = dynamo.explain(lambda examples: model(examples).log_probs)(inputs)
    assert explanation.graph_count == 1 + explanation.graph_break_count
    return [str(each.reason) for each in explanation.break_reasons]


if __name__ == "__main__":
    sys.stdout.write(json.dumps({recipe_name: explain(recipe_name) for recipe_name in RECIPES}))
