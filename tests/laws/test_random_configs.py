"""Random models from the schema: whatever can be built takes a training step.

So what a configuration cannot do is a ConfigError of the schema or of `build`, never of a batch.
Likewise with random settings of training and decoding: what is not refused before anything is
written trains and decodes.
"""

import random
import types
import typing

import pytest
from pydantic import BaseModel, TypeAdapter
from rich.console import Console

import heedful
from heedful.config import read_settings, validate_settings
from heedful.decoding.config import DecodingConfig
from heedful.errors import ConfigError, HeedfulError
from heedful.experiment import train
from heedful.experiment.flops import flops_per_token
from heedful.recipes.recipe import ModelConfig, Recipe
from heedful.tasks.registry import all_tasks, task_of_model
from heedful.tasks.task_data import BatchShape, VocabSizes
from heedful.training.config import TrainingConfig
from tests.commands import write_recipe

pytestmark = pytest.mark.wide

SIZES, SHAPE = VocabSizes(12, 12), BatchShape(3, 3)
MODELS = TypeAdapter(ModelConfig)
MODEL_TYPES = [config for task in all_tasks() for config in task.model_configs]
SMALL = {"hidden_size": 8, "embedding_size": 8, "num_layers": 2, "size": 8}
VALUES = {bool: [False, True], int: [1, 2, 3, 4, 8], float: [0.0, 0.1, 0.5, 1.0, 2.0], str: ["a"]}


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


def random_settings(config, rng, fraction=0.4):
    """Return settings of a config; most sizes are equal, so that most models fit together."""
    settings = {}
    for name, field in config.model_fields.items():
        if name == "type":
            settings[name] = field.get_default()
        elif name in SMALL and rng.random() < 0.95:
            settings[name] = SMALL[name]
        elif field.is_required() or rng.random() < fraction:
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
        batch = task_of_model(config).data.dummy_batch(config, SIZES, SHAPE, 2)
        output = model.train()(batch)
        sum(output.auxiliary_losses.values(), start=output.log_probs.sum()).backward()
        assert flops_per_token(model, batch, num_targets=3).training > 0
    assert num_built == 2


SECTIONS = {"training": TrainingConfig, "decoding": DecodingConfig}
FEW_STEPS = {"max_steps": 2, "validate_every": 2, "max_eval_samples": 2, "num_logged_samples": 1}


@pytest.mark.parametrize("seed", range(3))
def test_valid_settings_train_and_decode(seed, tmp_path):
    settings = read_settings(write_recipe(tmp_path, steps=2, every=2))
    rng, num_trained = random.Random(seed), 0
    for index in range(100):
        if num_trained == 2:
            break
        run = tmp_path / f"run-{index}"
        drawn = {name: random_settings(config, rng, 0.1) for name, config in SECTIONS.items()}
        drawn["training"] = {**drawn["training"], **FEW_STEPS}
        drawn["decoding"].pop("backend", None)  # CTranslate2 may not be installed
        try:
            recipe = validate_settings(Recipe, settings | drawn, location="random settings")
            train(recipe, run, device="cpu", console=Console(quiet=True))
        except HeedfulError:
            assert not run.exists(), drawn
            continue
        num_trained += 1
        (output,) = heedful.load(run, device="cpu").translate(["a b"])
        assert isinstance(output.text, str), drawn
    assert num_trained == 2
