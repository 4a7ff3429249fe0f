"""Random models from the schema: whatever can be built takes a training step.

So what a configuration cannot do is a ConfigError of the schema or of `build`, never of a batch.
"""

import random
import types
import typing

import pytest
from pydantic import BaseModel, TypeAdapter

from heedful.errors import ConfigError
from heedful.experiment.flops import flops_per_token
from heedful.recipes.recipe import ModelConfig
from heedful.tasks.registry import all_tasks, task_of_model
from heedful.tasks.task import BatchShape, VocabSizes

SIZES, SHAPE = VocabSizes(12, 12), BatchShape(3, 3)
MODELS = TypeAdapter(ModelConfig)
MODEL_TYPES = [config for task in all_tasks() for config in task.model_configs]
SMALL = {"hidden_size": 8, "embedding_size": 8, "num_layers": 2, "size": 8}
VALUES = {bool: [False, True], int: [1, 2, 3, 4, 8], float: [0.0, 0.1, 0.5, 1.0, 2.0], str: ["x"]}


def random_value(annotation, rng):
    """Return plain settings of this type; some are not valid together."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return random_value(arguments[0], rng)
    if origin in (typing.Union, types.UnionType):
        return random_value(rng.choice(arguments), rng)
    if origin is typing.Literal:
        return rng.choice(arguments)
    if origin in (list, tuple):
        return [random_value(arguments[0], rng) for _ in range(rng.choice([0, 1, 2]))]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return random_settings(annotation, rng)
    return rng.choice(VALUES[annotation]) if annotation in VALUES else None


def random_settings(config, rng):
    """Return settings of a config; most sizes are equal, so that most models fit together."""
    settings = {}
    for name, field in config.model_fields.items():
        if name == "type":
            settings[name] = field.get_default()
        elif name in SMALL and rng.random() < 0.95:
            settings[name] = SMALL[name]
        elif field.is_required() or rng.random() < 0.4:
            settings[name] = random_value(field.annotation, rng)
    return settings


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("model_type", MODEL_TYPES, ids=lambda config: config.__name__)
def test_model_that_can_be_built_takes_a_training_step(model_type, seed):
    rng, num_built = random.Random(seed), 0
    for _ in range(60):
        if num_built == 2:
            break
        try:
            config = MODELS.validate_python(random_settings(model_type, rng))
            model = config.build(source_vocab_size=SIZES.source, target_vocab_size=SIZES.target)
        except (ValueError, ConfigError):  # pydantic's errors are ValueErrors
            continue
        num_built += 1
        batch = task_of_model(config).dummy_batch(SIZES, SHAPE, 2)
        output = model.train()(batch)
        sum(output.auxiliary_losses.values(), start=output.log_probs.sum()).backward()
        assert flops_per_token(model, batch, num_targets=3).training > 0
    assert num_built == 2
