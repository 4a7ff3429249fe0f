"""The data of a run: in memory if it is small, else tokenized once into files.

Invariant: the same recipe gives the same batches either way, and a resumed run the same
tokenizers and dev set.
"""

import json
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from safetensors.numpy import load_file, save

from heedful.data.text.corpus_passes import rows_between
from heedful.data.text.example_formats import CHUNK_SIZE, ExampleSource
from heedful.data.text.pair_dataset import MixedDataset
from heedful.data.text.sharded_dataset import TOKENIZER_FOLDER, PreparedDataConfig, PreparedDataset
from heedful.errors import CorruptRunError, DiskFullError, check
from heedful.experiment.prepared_data import build_prepared_dataset, open_prepared_dataset
from heedful.experiment.pretrained_encoder import check_pretrained_tokenizer, pretrained_tokenizer
from heedful.recipes import Recipe
from heedful.recipes.recipe import DEFAULT_RECIPE
from heedful.runs import TOKEN_CACHE, TOKEN_CACHE_KEY, Run
from heedful.storage.atomic import atomic_replace, check_free_space
from heedful.storage.manifest import folder_digest, read_and_verify_manifest, write_manifest
from heedful.tasks.task_data import DataModule, TrainData, VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair, tokenization_settings
from heedful.training.progress import ProgressReporter, print_line
from heedful.version import VERSION

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
        cache = TokenCache(recipe, run)
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
    for source in [*require_training_data(recipe).parts, *dev]:
        for warning in source.warnings:
            print_line(console, f"warning: {warning}")


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
    for source in require_training_data(recipe).parts:
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
    held_out = None if recipe.data.dev else dev
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
            tokens = CachedTokens(train, held_out)
            TokenCache(recipe, run).save(tokens, log=lambda line: print_line(console, line))
        return train

    return _build_data_module(recipe, run, dev, console, tokenize)


def _split_dev(
    recipe: Recipe, examples: list[list[Any]], console: Console
) -> tuple[list[ExampleSource], ExampleSource]:
    """Split the examples of each source into training examples and a common dev set."""
    data, sources = recipe.data, require_training_data(recipe).parts
    if data.dev is not None:
        train = list(map(ExampleSource, examples, [source.locate for source in sources]))
        return train, ExampleSource(data.dev.read(), data.dev.locate)
    assert data.train is not None
    example_format = recipe.task.data.example_format
    hashes = np.concatenate([example_format.hash(part) for part in examples])
    held_out = example_format.choose_held_out(
        hashes, seed=recipe.training.seed, location=data.train.describe()
    )
    if held_out.note:
        print_line(console, held_out.note)
    train = []
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


# ----- the cache: tokens of small data in the run folder, so that a resumed run reads no text
#
# They take two bytes a token (four with more than 65,536 types) and 16 a pair. A cache is used only
# if the files have the size and modification time, and the settings the values, it was made with.
# Invariant: a run that uses it has the batches and the dev set of one that reads the text.

_FILE = "tokens.safetensors"
_FORMAT = 1
_SIZE_TO_REPORT = 1_000_000  # bytes


class CachedTokens(NamedTuple):
    """Training data as tokens, and the dev examples that were held out; None if none were."""

    train: TrainData
    held_out: ExampleSource | None


class TokenCache:
    """The cache of a run for the training data of a recipe."""

    def __init__(self, recipe: Recipe, run: Run) -> None:
        self.folder = run.folder / TOKEN_CACHE
        self._recipe, self._run = recipe, run

    def load(self) -> CachedTokens | None:
        """Return the tokens; None if there are none, or not of this data."""
        if not (self._run.exists and self.folder.exists()):
            return None
        try:
            saved = read_and_verify_manifest(self.folder)[TOKEN_CACHE_KEY]
        except CorruptRunError:
            return None
        if saved["key"] != self._key():
            return None
        arrays, weights = load_file(self.folder / _FILE), saved["weights"]
        example_format = self._recipe.task.data.example_format
        parts = []
        for prefix in (f"{index}." for index in range(saved["num_parts"])):
            names = [name for name in arrays if name.startswith(prefix)]
            saved_part = {name.removeprefix(prefix): arrays[name] for name in names}
            parts.append(example_format.from_arrays(saved_part))
        seed = self._recipe.training.seed
        dataset = parts[0] if weights is None else MixedDataset(parts, weights, seed=seed)
        train = TrainData(dataset, saved["fingerprint"], saved["report"])
        if saved["held_out"] is None:
            return CachedTokens(train, None)
        examples, locations = saved["held_out"]
        held_out = list(map(example_format.from_json, examples))
        return CachedTokens(train, ExampleSource(held_out, locations.__getitem__))

    def save(self, tokens: CachedTokens, log: Callable[[str], None]) -> None:
        """Write the tokens, unless the data cannot be recognized later or the disk is full."""
        key, (train, held_out) = self._key(), tokens
        if key is None:
            return
        is_mixed = isinstance(train.dataset, MixedDataset)
        parts = train.dataset.datasets if is_mixed else [train.dataset]
        metadata = {
            "key": key,
            "num_parts": len(parts),
            "weights": list(train.dataset.weights) if is_mixed else None,
            "fingerprint": train.fingerprint,
            "report": list(train.report),
            "held_out": None,
        }
        if held_out is not None:
            locations = list(map(held_out.locate, range(len(held_out.examples))))
            metadata["held_out"] = held_out.examples, locations
        arrays: dict[str, NDArray[Any]] = {}
        for index, part in enumerate(parts):
            saved_part = self._recipe.task.data.example_format.to_arrays(part)
            arrays |= {f"{index}.{name}": array for name, array in saved_part.items()}
        size = sum(array.nbytes for array in arrays.values())
        try:
            with atomic_replace(self.folder) as temporary:
                temporary.mkdir()
                check_free_space(temporary, size)
                (temporary / _FILE).write_bytes(save(arrays))
                write_manifest(temporary, [temporary / _FILE], {TOKEN_CACHE_KEY: metadata})
        except DiskFullError as error:
            log(f"not saved: {error}\n  a resumed run will tokenize the data again")
            return
        if size > _SIZE_TO_REPORT:
            log(f"saved the tokens for resuming: {size / 1e6:,.0f} MB in {self.folder}")

    def _key(self) -> str | None:
        """Return a hash of all inputs of the tokens; None if a source can be read only once."""
        recipe, sources = self._recipe, require_training_data(self._recipe).parts
        if any(source.is_single_pass for source in sources):
            return None
        try:
            stats = [Path(path).stat() for source in sources for path in source.paths]
        except OSError:
            return None
        settings = [
            *(_FORMAT, VERSION, recipe.training.seed, recipe.data.dev is None),
            [source.model_dump(mode="json") for source in sources],
            [(stat.st_size, stat.st_mtime_ns) for stat in stats],
            tokenization_settings(recipe.tokenizers.model_dump(mode="json")),
            recipe.data.filtering.model_dump(mode="json"),
            folder_digest(self._run.folder / TOKENIZER_FOLDER),
        ]
        return blake2b(json.dumps(settings).encode(), digest_size=16).hexdigest()
