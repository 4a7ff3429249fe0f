"""The data of a run: in memory if it is small, else tokenized once into files.

Invariant: the same recipe gives the same batches either way, and a resumed run the same
tokenizers and dev set.
"""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from heedful.config import differences
from heedful.data.text import dataset_builder, sharded_dataset
from heedful.data.text.corpus_passes import rows_between
from heedful.data.text.example_formats import CHUNK_SIZE, ExampleSource
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.pair_files import MixtureConfig
from heedful.data.text.sharded_dataset import TOKENIZER_FOLDER, PreparedDataConfig, PreparedDataset
from heedful.errors import ConfigError, DataError, check
from heedful.experiment.pretrained_encoder import check_pretrained_tokenizer, pretrained_tokenizer
from heedful.experiment.token_cache import CachedTokens, TokenCache
from heedful.recipes import Recipe
from heedful.recipes.recipe import DEFAULT_RECIPE
from heedful.runs import Run
from heedful.storage.manifest import folder_digest
from heedful.tasks.registry import describe_format
from heedful.tasks.task_data import DataModule, TrainData, VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair, tokenization_settings
from heedful.training.progress import ProgressReporter, print_line

TOKENS_FOLDER = "tokens"  # of a run whose data does not fit into memory


def require_training_data(recipe: Recipe) -> Any:
    """Return the training data that a recipe names; raise ConfigError if there is none."""
    hint = f"give {recipe.task.data.file_options.usage()}"
    if recipe.info.name == DEFAULT_RECIPE:
        hint += "; `heedful --help` lists the options for other data"
    check(recipe.data.train, "data.train", "the recipe names no training data", hint)
    return recipe.data.train


def load_data(recipe: Recipe, run: Run, console: Console) -> DataModule:
    """Load the data of a recipe; a new run trains its tokenizers on it."""
    data, train = recipe.data, require_training_data(recipe)
    if recipe.task.data.example_format.has_tokens and not isinstance(train, PreparedDataConfig):
        cache = TokenCache(recipe, run, _training_sources(recipe))
        if (tokens := cache.load()) is not None:
            print_line(console, f"using the tokens in {cache.folder}: the files are unchanged")
            dev = ExampleSource(data.dev.read(), data.dev.locate) if data.dev else tokens.held_out
            assert dev is not None
            return _build_data_module(recipe, run, dev, console, lambda _: tokens.train)
    print_line(console, f"reading {train.describe()}")
    if isinstance(train, PreparedDataConfig):
        prepared = open_prepared_dataset(recipe, train)
        return _build_from_prepared(recipe, run, prepared, console)
    print_source_warnings(recipe, console)
    folder, max_examples = run.folder / TOKENS_FOLDER, data.max_in_memory_examples
    if not folder.exists():
        with ProgressReporter(console) as on_progress:
            corpora = _read_if_small(recipe, max_examples, on_progress)
        if corpora is not None:
            return _build_in_memory(recipe, run, corpora, console)
        unit = recipe.task.data.example_format.name
        print_line(console, f"more than {max_examples} {unit}: saving their tokens in {folder}")
    tokenizers = run.read_tokenizers(recipe) if run.exists else None
    prepared = build_prepared_dataset(
        recipe, folder, console, tokenizers=tokenizers, replaces_other_tokens=not run.exists
    )
    return _build_from_prepared(recipe, run, prepared, console)


def print_source_warnings(recipe: Recipe, console: Console) -> None:
    """Print warnings about the training and dev files."""
    dev = [recipe.data.dev] if recipe.data.dev else []
    for source in [*_training_sources(recipe), *dev]:
        for warning in source.warnings:
            print_line(console, f"warning: {warning}")


def _training_sources(recipe: Recipe) -> list[Any]:
    train = recipe.data.train
    return [part.source for part in train.corpora] if isinstance(train, MixtureConfig) else [train]


def _build_data_module(
    recipe: Recipe,
    run: Run,
    dev: ExampleSource,
    console: Console,
    load_train: Callable[[TokenizerPair], TrainData],
) -> DataModule:
    tokenizers = run.read_tokenizers(recipe)
    sizes = VocabSizes.from_tokenizers(tokenizers)
    if vocabulary := recipe.task.data.describe_vocabulary(sizes):
        print_line(console, vocabulary)
    train = load_train(tokenizers)
    for line in train.report:
        print_line(console, f"train: {line}")
    data_module = recipe.task.data.build_data_module(recipe, tokenizers, train, dev)
    for line in data_module.dev_report:
        print_line(console, f"dev: {line}")
    return data_module


def _read_if_small(
    recipe: Recipe, max_examples: int, on_progress: ProgressReporter
) -> list[list[Any]] | None:
    """Read the examples of each source; return None if there are more than `max_examples`."""
    corpora: list[list[Any]] = []
    for source in _training_sources(recipe):
        num_read = sum(map(len, corpora))
        remaining = max_examples - num_read
        corpora.append([])
        stream = islice(source.stream(), remaining + 1)
        while examples := list(islice(stream, CHUNK_SIZE)):
            corpora[-1] += examples
            on_progress("reading", num_read + len(corpora[-1]), None)
        if len(corpora[-1]) > remaining:
            return None
    return corpora


def _build_in_memory(
    recipe: Recipe, run: Run, examples: list[list[Any]], console: Console
) -> DataModule:
    corpora, dev = _split_dev(recipe, examples, console)
    sources, held_out = _training_sources(recipe), None if recipe.data.dev else dev
    num_examples = sum(len(corpus.examples) for corpus in corpora)
    example_format = recipe.task.data.example_format
    split = ""
    if held_out and example_format.has_tokens:
        split = f", {len(held_out.examples):,} more held out for validation"
    noun = example_format.noun(num_examples)
    print_line(console, f"read {num_examples:,} {noun} to train on{split}")
    if not run.exists:
        with console.status("training the tokenizers"):
            joined = [example for corpus in corpora for example in corpus.examples]
            texts = recipe.task.data.example_format.tokenizer_texts(joined)
            source_tokenizer = pretrained_tokenizer(recipe) if recipe.pretrained_encoder else None
            tokenizers = recipe.tokenizers.train(*texts, source_tokenizer)
            run.initialize(recipe, tokenizers)

    def tokenize(tokenizers: TokenizerPair) -> TrainData:
        with console.status("tokenizing"):
            train = recipe.task.data.tokenize_train(recipe, tokenizers, corpora)
        if example_format.has_tokens:
            cache, tokens = TokenCache(recipe, run, sources), CachedTokens(train, held_out)
            cache.save(tokens, log=lambda line: print_line(console, line))
        return train

    return _build_data_module(recipe, run, dev, console, tokenize)


def _split_dev(
    recipe: Recipe, examples: list[list[Any]], console: Console
) -> tuple[list[ExampleSource], ExampleSource]:
    """Split the examples of each source into training examples and a common dev set."""
    data, sources = recipe.data, _training_sources(recipe)
    if data.dev is not None:
        locators = (source.locate for source in sources)
        return list(map(ExampleSource, examples, locators)), ExampleSource(
            data.dev.read(), data.dev.locate
        )
    assert data.train is not None
    example_format = recipe.task.data.example_format
    hashes = np.concatenate([example_format.hash(part) for part in examples])
    held_out = example_format.choose_held_out(
        hashes, seed=recipe.training.seed, location=data.train.describe()
    )
    if held_out.note:
        print_line(console, held_out.note)
    train: list[ExampleSource] = []
    start = 0
    dev_rows: list[tuple[Any, int]] = []  # source and row
    dev_examples: list[Any] = []
    for source, part in zip(sources, examples, strict=True):
        end = start + len(part)
        train.append(_leave_out(part, rows_between(held_out.all_rows, start, end), source))
        rows = rows_between(held_out.rows, start, end)
        dev_rows += [(source, row) for row in rows]
        dev_examples += [part[row] for row in rows]
        start = end

    def locate(index: int) -> str:
        source, row = dev_rows[index]
        return source.locate(row)

    return train, ExampleSource(dev_examples, locate)


def _leave_out(examples: list[Any], left_out: list[int], source: Any) -> ExampleSource:
    rows = np.setdiff1d(np.arange(len(examples)), left_out).tolist()
    return ExampleSource([examples[row] for row in rows], lambda index: source.locate(rows[index]))


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
    sources, unit = _training_sources(recipe), recipe.task.data.example_format.name
    large = f"more than {recipe.data.max_in_memory_examples} {unit}"
    if not recipe.task.data.example_format.has_tokens:
        raise recipe.task.data.example_format.no_tokens_error()
    for source in sources:
        message = f"{large} are read twice, but standard input can be read only once"
        hint = "write it to a file first, or raise data.max_in_memory_examples"
        check(not source.is_single_pass, source.describe(), message, hint, DataError)
    train = recipe.data.train
    config = dataset_builder.DatasetBuilderConfig(
        sources=[source.model_dump(mode="json") for source in sources],
        corpus_weights=train.weights if isinstance(train, MixtureConfig) else [1.0],
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


def _build_from_prepared(
    recipe: Recipe, run: Run, prepared: PreparedDataset, console: Console
) -> DataModule:
    """Build the data module of prepared tokens; a new run takes over their tokenizers."""
    saved = prepared.folder / TOKENIZER_FOLDER
    if not run.exists:
        check_pretrained_tokenizer(recipe, prepared.folder)
        run.initialize(recipe, recipe.tokenizers.load(saved))
    is_same = folder_digest(run.folder / TOKENIZER_FOLDER) == folder_digest(saved)
    tokens = f"the tokens in {prepared.folder}"
    message = f"{tokens} were made with other tokenizers than {run.folder} has"
    hint = "name another folder with --run, or prepare the tokens with `--tokenizer-from RUN`"
    check(is_same, "data.train", message, hint)
    dev, held_out = recipe.data.dev, prepared.held_out_corpus(recipe.task.data.example_format)
    dev_corpus = ExampleSource(dev.read(), dev.locate) if dev else held_out
    message = f"{prepared.folder} has no dev data, and the recipe names none"
    options = recipe.task.data.file_options.usage("dev")
    hint = f"give what was given to `heedful prepare`, such as {options}"
    check(dev_corpus.examples, "data.dev", message, hint)
    return _build_data_module(
        recipe, run, dev_corpus, console, lambda _: recipe.task.data.load_train(recipe, prepared)
    )
