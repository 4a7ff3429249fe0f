"""Making: corpora of tokens that are there, and what is said of them."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from heedful.data.batch_stream import (
    choose_held_out_rows,
    fingerprint,
    tokenize_corpora,
    tokenize_pairs_in_memory,
)
from heedful.data.dataset_builder import (
    SHARD_SIZE,
    DatasetBuilder,
    DatasetBuilderConfig,
    first_difference,
    folder_digest,
    tokenization_settings,
)
from heedful.data.mixing import MixedDataset, MixtureConfig
from heedful.data.pair_dataset import Pair, PairDataset
from heedful.data.sharded_dataset import (
    TOKENIZER_FOLDER,
    PreparedDataConfig,
    PreparedDataset,
    load_prepared_dataset,
)
from heedful.data.token_stream import (
    Tokens,
    TokenStream,
    choose_held_out_lines,
    concatenate_lines,
    tokens_fingerprint,
)
from heedful.errors import ConfigError, DataError
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tasks.base import DataModule
from heedful.tasks.language_modeling.data_module import LMDataModule
from heedful.tasks.masked_language_modeling.data_module import MaskedLMDataModule
from heedful.tasks.translation.data_module import ParallelDataModule
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import UNK
from heedful.training.progress import ProgressReporter, print_line

TOKENIZING_MESSAGE = "cutting texts into tokens"


class PairCorpus(NamedTuple):
    """The pairs of one source, in tokens."""

    pairs: PairDataset
    fingerprint: str
    weight: float


def log_vocab_size(recipe: Recipe, tokenizers: TokenizerPair, console: Console) -> None:
    """Say how many tokens there are."""
    both = f"{len(tokenizers.source)} source and {len(tokenizers.target)} target"
    print_line(
        console, f"vocabulary: {len(tokenizers.target) if recipe.is_monolingual else both} tokens"
    )


def build_parallel_data_module(
    recipe: Recipe,
    tokenizers: TokenizerPair,
    corpora: list[PairCorpus],
    held_out: list[Pair],
    console: Console,
) -> ParallelDataModule:
    """Put together what is learned from and what is validated on."""
    with console.status(TOKENIZING_MESSAGE):
        dev, report = tokenize_pairs_in_memory(
            held_out, tokenizers, recipe.data.filtering, location="data.dev"
        )
    for line in report.format_lines():
        print_line(console, f"dev: {line}")
    train, fingerprint, _ = corpora[0]
    if len(corpora) > 1 or corpora[0].weight != 1:
        pairs, fingerprints, weights = zip(*corpora, strict=True)
        train = MixedDataset(pairs, weights, seed=recipe.training.seed)
        fingerprint = train.fingerprint(fingerprints)
    return ParallelDataModule(
        recipe, tokenizers, train, dev, fingerprint=fingerprint, validation_pairs=held_out
    )


def build_lm_data_module(
    recipe: Recipe,
    tokenizers: TokenizerPair,
    train: TokenStream,
    held_out: list[str],
    console: Console,
    *,
    fingerprint: str,
) -> LMDataModule:
    """Put together what is learned from and what is validated on."""
    dev = tokenize_text("dev", held_out, tokenizers, console)
    is_masked = isinstance(recipe.model, MaskedLanguageModelConfig)
    kind = MaskedLMDataModule if is_masked else LMDataModule
    return kind(recipe, tokenizers, train, dev, fingerprint=fingerprint)


def tokenize_text(
    name: str, lines: list[str], tokenizers: TokenizerPair, console: Console
) -> Tokens:
    """Turn lines into one row of tokens, and say how much that is."""
    with console.status(TOKENIZING_MESSAGE):
        row = concatenate_lines(lines, tokenizers.target)
    log_text_size(
        name, console, lines=len(lines), tokens=len(row), num_unknown=int((row == UNK).sum())
    )
    return row


def log_text_size(
    name: str, console: Console, *, lines: int, tokens: int, num_unknown: int
) -> None:
    """Say how much running text there is; the token before the first line is not counted."""
    unknown_note = f", {num_unknown} of them unknown" if num_unknown else ""
    print_line(console, f"{name}: {lines} lines, {tokens - 1} tokens{unknown_note}")


# Tokens: corpora that do not fit into memory, made into files once and read from there.


def training_sources(recipe: Recipe) -> list[Any]:
    """The sources of what is learned from, one after the other."""
    train = recipe.data.train
    return [part.source for part in train.corpora] if isinstance(train, MixtureConfig) else [train]


def corpus_weights(recipe: Recipe) -> list[float]:
    """How many times an epoch goes through each of them."""
    train = recipe.data.train
    return train.weights if isinstance(train, MixtureConfig) else [1.0]


def build_prepared_dataset(
    recipe: Recipe,
    folder: Path,
    console: Console,
    *,
    tokenizers: TokenizerPair | None = None,
    workers: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> PreparedDataset:
    """Cut the data of a recipe into files, as far as that is not done, by this text or a new one.

    Only one process may do so in a folder; any number may read it.
    """
    sources = training_sources(recipe)
    _check_not_stdin(sources, recipe)
    settings = DatasetBuilderConfig(
        sources=[source.model_dump(mode="json") for source in sources],
        corpus_weights=corpus_weights(recipe),
        tokenizers=recipe.tokenizers,
        filtering=None if recipe.is_monolingual else recipe.data.filtering,
        seed=recipe.training.seed,
        needs_held_out=recipe.data.dev is None,
        max_tokenizer_lines=recipe.data.max_tokenizer_lines,
        shard_size=shard_size,
    )
    with ProgressReporter(console) as watch:
        return DatasetBuilder(
            folder,
            sources,
            settings,
            log_message=lambda line: print_line(console, line),
            on_progress=watch,
            tokenizers=tokenizers,
            workers=workers,
        ).build()


def open_prepared_dataset(recipe: Recipe, config: PreparedDataConfig) -> PreparedDataset:
    """Open tokens that were made before, if they were made as the recipe would make them."""
    prepared = load_prepared_dataset(Path(config.path), verify=config.verify)
    if prepared.is_monolingual != recipe.is_monolingual:
        found, wanted = ("running text", "pairs") if prepared.is_monolingual else ("pairs", "text")
        raise ConfigError(
            "data.train.path",
            f"{config.path} holds {found}, but a {recipe.model.type} learns from {wanted}",
            "name other tokens, or choose another model",
        )
    text, selection = recipe.tokenizers, recipe.data.filtering
    made = prepared.settings
    _check_same_tokenization(
        "tokenizers",
        prepared,
        made["tokenizers"],
        tokenization_settings(text.model_dump(mode="json")),
    )
    if not recipe.is_monolingual:
        _check_same_tokenization(
            "data.filtering", prepared, made["filtering"], selection.model_dump(mode="json")
        )
    return prepared


def build_prepared_data_module(
    recipe: Recipe, run: Run, prepared: PreparedDataset, console: Console
) -> DataModule:
    """Make corpora of tokens in files; a run that is only beginning takes their vocabulary."""
    if not run.exists:
        run.initialize(recipe, recipe.tokenizers.load(prepared.folder / TOKENIZER_FOLDER))
    elif folder_digest(run.folder / TOKENIZER_FOLDER) != folder_digest(
        prepared.folder / TOKENIZER_FOLDER
    ):
        raise ConfigError(
            "data.train",
            f"the tokens in {prepared.folder} were cut by other tokenizers than {run.folder} has",
            "name another folder with --run, or prepare the tokens with `--tokenizer-from RUN`",
        )
    text = run.read_tokenizers(recipe)
    log_vocab_size(recipe, text, console)
    held_out: list[Any] = (
        recipe.data.dev.read() if recipe.data.dev else prepared.held_out_examples()
    )
    if not held_out:
        raise ConfigError(
            "data.dev",
            f"{prepared.folder} holds nothing to validate on, and the recipe names nothing",
            "give what was given to `heedful prepare`, such as --dev-source FILE --dev-target FILE",
        )
    if recipe.is_monolingual:
        row, counts = (
            prepared.token_stream(),
            {name: prepared.total_count(name) for name in ("lines", "unknown")},
        )
        log_text_size("train", console, tokens=len(row), **counts)
        known = prepared.fingerprint
        return build_lm_data_module(recipe, text, row, held_out, console, fingerprint=known)
    for line in prepared.filter_report().format_lines():
        print_line(console, f"train: {line}")
    both = zip(prepared.pair_datasets(), prepared.corpus_weights, strict=True)
    parts = [PairCorpus(pairs, prepared.fingerprint, weight) for pairs, weight in both]
    return build_parallel_data_module(recipe, text, parts, held_out, console)


def _check_not_stdin(sources: list[Any], recipe: Recipe) -> None:
    for source in sources:
        if source.is_single_pass:
            kind = "lines" if recipe.is_monolingual else "pairs"
            raise DataError(
                source.describe(),
                f"more than {recipe.data.max_in_memory_examples} {kind} have to be gone through twice, and "
                "standard input can be read only once",
                "write it to a file first, or raise data.max_in_memory_examples",
            )


def _check_same_tokenization(
    setting: str, prepared: PreparedDataset, saved: Any, expected: Any
) -> None:
    if saved != expected:
        setting, old, new = first_difference(saved, expected, setting)
        raise ConfigError(
            setting,
            f"the tokens in {prepared.folder} were made with {old}, but now it is {new}",
            "give the settings they were made with, or prepare them again into another folder",
        )


# Reading: the data of a run, in memory where it fits, else from files.

TOKENS_FOLDER = "tokens"
"""Where a run keeps the tokens of data that does not fit into memory."""
_TWO_FILES_HINT = "two files: --source FILE --target FILE"


def load_data(recipe: Recipe, run: Run, console: Console) -> DataModule:
    """Read the data of a recipe; a run that is only beginning learns its vocabulary from it."""
    data = recipe.data
    if data.train is None:
        files = "a file: --text FILE" if recipe.is_monolingual else _TWO_FILES_HINT
        raise ConfigError(
            "data.train", "the recipe does not say what to learn from", f"give {files}"
        )
    print_line(console, f"reading {data.train.describe()}")
    if isinstance(data.train, PreparedDataConfig):
        return build_prepared_data_module(
            recipe, run, open_prepared_dataset(recipe, data.train), console
        )
    folder = run.folder / TOKENS_FOLDER
    if not folder.exists():
        with console.status("reading the data"):
            parts = _read_if_small(recipe, data.max_in_memory_examples)
        if parts is not None:
            return _load_in_memory(recipe, run, parts, console)
        kind = "lines" if recipe.is_monolingual else "pairs"
        print_line(
            console,
            f"more than {data.max_in_memory_examples} {kind}: their tokens are kept in {folder}",
        )
    text = run.read_tokenizers(recipe) if run.exists else None
    prepared = build_prepared_dataset(recipe, folder, console, tokenizers=text)
    return build_prepared_data_module(recipe, run, prepared, console)


def _read_if_small(recipe: Recipe, max_examples: int) -> list[list[Any]] | None:
    """Read the examples of each source; None if there are more than memory should hold."""
    parts = list[list[Any]]()
    for source in training_sources(recipe):
        left = max_examples - sum(map(len, parts))
        parts.append(list(islice(source.stream(), left + 1)))
        if len(parts[-1]) > left:
            return None
    return parts


def _load_in_memory(
    recipe: Recipe, run: Run, parts: list[list[Any]], console: Console
) -> DataModule:
    if recipe.data.dev is not None:
        held_out: list[Any] = recipe.data.dev.read()
    else:
        parts, held_out = _split_validation(recipe, parts)
    if not run.exists:
        with console.status("learning the vocabulary"):
            run.initialize(
                recipe, recipe.tokenizers.train(*_tokenizer_training_texts(recipe, parts))
            )
    text = run.read_tokenizers(recipe)
    log_vocab_size(recipe, text, console)
    if recipe.is_monolingual:
        row = tokenize_text("train", parts[0], text, console)
        return build_lm_data_module(
            recipe, text, row, held_out, console, fingerprint=tokens_fingerprint(row)
        )
    stores = _tokenize_corpora(recipe, text, parts, console)
    return build_parallel_data_module(recipe, text, stores, held_out, console)


def _split_validation(recipe: Recipe, parts: list[list[Any]]) -> tuple[list[list[Any]], list[Any]]:
    """Part examples into those to learn from, source by source, and a few to validate on."""
    assert recipe.data.train is not None
    count, at = sum(map(len, parts)), recipe.data.train.describe()
    rows = (
        set(choose_held_out_lines(count, location=at))
        if recipe.is_monolingual
        else set(choose_held_out_rows(count, seed=recipe.training.seed, location=at))
    )
    learned, held_out, first = list[list[Any]](), list[Any](), 0
    for part in parts:
        numbered = list(enumerate(part, first))
        learned.append([example for row, example in numbered if row not in rows])
        held_out += [example for row, example in numbered if row in rows]
        first += len(part)
    return learned, held_out


def _tokenizer_training_texts(
    recipe: Recipe, parts: list[list[Any]]
) -> tuple[list[str], list[str]]:
    """Give the texts that the tokenizers of source and target learn from."""
    learned = list(chain.from_iterable(parts))
    if recipe.is_monolingual:
        return learned, []
    return [pair.source for pair in learned], [pair.target for pair in learned]


def _tokenize_corpora(
    recipe: Recipe, tokenizers: TokenizerPair, parts: list[list[Any]], console: Console
) -> list[PairCorpus]:
    with console.status(TOKENIZING_MESSAGE):
        stores, report = tokenize_corpora(
            parts, tokenizers, recipe.data.filtering, location="data.train"
        )
    for line in report.format_lines():
        print_line(console, f"train: {line}")
    weights = corpus_weights(recipe)
    return [
        PairCorpus(store, fingerprint(store), w) for store, w in zip(stores, weights, strict=True)
    ]
