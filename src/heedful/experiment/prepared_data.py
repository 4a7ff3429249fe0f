"""Training data as tokens in files: `heedful prepare`, and what does not fit into memory."""

from pathlib import Path
from typing import Any

from rich.console import Console

from heedful.config import differences
from heedful.data.text import dataset_builder, sharded_dataset
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.sharded_dataset import PreparedDataConfig, PreparedDataset
from heedful.errors import ConfigError, DataError, check
from heedful.experiment.pretrained_encoder import pretrained_tokenizer
from heedful.recipes import Recipe
from heedful.tasks.registry import describe_format
from heedful.tokenization.tokenizer_pair import TokenizerPair, tokenization_settings
from heedful.training.progress import ProgressReporter, print_line


def build_prepared_dataset(
    recipe: Recipe,
    folder: Path,
    console: Console,
    *,
    tokenizers: TokenizerPair | None = None,
    workers: int | None = None,
    shard_size: int = dataset_builder.SHARD_SIZE,
    replaces_other_tokens: bool = False,
) -> PreparedDataset:
    """Tokenize the training data of a recipe into files, or what is missing of them.

    Tokens made with other settings are replaced, or are an error. One process may write to a folder
    at a time; any number may read it.
    """
    train: Any = recipe.data.train
    sources, unit = train.parts, recipe.task.data.example_format.name
    large = f"more than {recipe.data.max_in_memory_examples} {unit}"
    if not recipe.task.data.example_format.has_tokens:
        raise recipe.task.data.example_format.no_tokens_error()
    for source in sources:
        message = f"{large} are read twice, but standard input can be read only once"
        hint = "write it to a file first, or raise data.max_in_memory_examples"
        check(not source.is_single_pass, source.describe(), message, hint, DataError)
    config = dataset_builder.DatasetBuilderConfig(
        sources=[source.model_dump(mode="json") for source in sources],
        corpus_weights=train.weights,
        tokenizers=recipe.tokenizers,
        example_format=recipe.task.data.example_format.name,
        filtering=_filter_config(recipe),
        seed=recipe.training.seed,
        needs_held_out=recipe.data.dev is None,
        max_tokenizer_lines=recipe.data.max_tokenizer_lines,
        shard_size=shard_size,
    )
    with ProgressReporter(console) as on_progress:
        return dataset_builder.DatasetBuilder(
            folder,
            sources,
            config,
            recipe.task.data.example_format,
            log_message=lambda line: print_line(console, line),
            on_progress=on_progress,
            tokenizers=tokenizers,
            source_tokenizer=pretrained_tokenizer(recipe) if tokenizers is None else None,
            workers=workers,
            replaces_other_tokens=replaces_other_tokens,
        ).build()


def open_prepared_dataset(recipe: Recipe, config: PreparedDataConfig) -> PreparedDataset:
    """Open tokens made by `heedful prepare`, if the recipe would tokenize equally."""
    prepared = sharded_dataset.load_prepared_dataset(Path(config.path), verify=config.verify)
    expected = recipe.task.data.example_format
    contents = f"{config.path} contains {describe_format(prepared.format_name)}"
    message = f"{contents}, but a {recipe.model.type} trains on {expected.description}"
    hint = "name other tokens, or choose another model"
    check(prepared.format_name == expected.name, "data.train.path", message, hint)
    filtering, tokenizers = _filter_config(recipe), recipe.tokenizers.model_dump(mode="json")
    settings = {
        "tokenizers": tokenization_settings(tokenizers),
        "data.filtering": filtering.model_dump(mode="json") if filtering else None,
    }
    for location, expected in settings.items():
        saved = prepared.settings[location.removeprefix("data.")]
        for name, old, new in differences(saved, expected, location):
            message = f"the tokens in {prepared.folder} were made with {old}, but now it is {new}"
            hint = "give the settings they were made with, or prepare again into another folder"
            raise ConfigError(name, message, hint)
    return prepared


def _filter_config(recipe: Recipe) -> FilterConfig | None:
    return recipe.data.filtering if recipe.task.data.example_format.supports_filtering else None
