"""Load a pretrained encoder from its folder: architecture, tokenizer and parameters.

The folder is a run, or a model of another library that can be imported. Invariant: all of it is
copied when training starts, so that the run is complete in itself; whatever does not fit is
reported before anything is written.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from torch import nn

from heedful.config import validate_settings
from heedful.conversion.registry import read_encoder
from heedful.errors import ConfigError, check
from heedful.models.pretrained import PretrainedEncoderConfig, load_pretrained_weights
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.storage.manifest import folder_digest
from heedful.tokenization.pretrained import PretrainedTokenizerConfig
from heedful.tokenization.tokenizer import Tokenizer


def with_pretrained_model(recipe: Recipe, run: Run) -> Recipe:
    """Fill in the architecture and the source tokenizer of the pretrained model, if there is one.

    A run that was saved has its own copy of both, and the folder of that model may be gone.
    """
    encoder = recipe.pretrained_encoder
    if encoder is None:
        return recipe
    if run.exists and run.is_saved and (saved := run.read_recipe().pretrained_encoder):
        filled = {"model": saved.model, "prepend_bos": saved.prepend_bos}
        return _with_parts(recipe, encoder.model_copy(update=filled), run.read_recipe())
    other = _read_recipe(encoder.path)
    return _with_parts(recipe, encoder.with_model_of(other.model), other)


def _with_parts(recipe: Recipe, encoder: PretrainedEncoderConfig, other: Recipe) -> Recipe:
    """Return the recipe with this encoder and the source tokenizer of another recipe."""
    current, tokenizer = recipe.tokenizers.source_config, other.tokenizers.source_config
    if getattr(current, "vocabulary_type", None) == tokenizer.type:  # its words, with more for each
        tokenizer = type(current).model_validate({**tokenizer.model_dump(), "type": current.type})
    splits_words = isinstance(tokenizer, PretrainedTokenizerConfig)
    if isinstance(tokenizer, PretrainedTokenizerConfig):
        tokenizer = tokenizer.model_copy(update={"mark_words": recipe.task.data.is_word_level})
    settings = recipe.model_dump(mode="json")
    encoder = encoder.model_copy(update={"splits_words": splits_words})
    settings["model"]["encoder"] = encoder.model_dump(mode="json")
    settings["tokenizers"] = recipe.tokenizers.with_source(tokenizer).model_dump(mode="json")
    location = f"model.encoder.path={encoder.path}"
    try:
        return validate_settings(Recipe, settings, location=location)
    except ConfigError as error:
        message = f"the tokenizer of that model has type '{tokenizer.type}', but {error.message}"
        raise ConfigError(location, message, "name a model with another tokenizer") from None


def pretrained_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """Load the source tokenizer of the pretrained model; None if there is no such model."""
    if (encoder := recipe.pretrained_encoder) is None:
        return None
    with _tokenizer_folder(encoder.path) as folder:
        return recipe.tokenizers.source_config.load(folder)


def check_pretrained_tokenizer(recipe: Recipe, tokens_folder: Path) -> None:
    """Raise ConfigError if tokens were made with another tokenizer than the pretrained model's."""
    if (encoder := recipe.pretrained_encoder) is None:
        return
    with _tokenizer_folder(encoder.path) as folder:
        folders = _source_folder(tokens_folder), folder
        is_same = len(set(map(folder_digest, folders))) == 1
    message = f"the tokens in {tokens_folder} were made with another tokenizer than"
    message += f" {encoder.path} has"
    hint = "prepare them again, with the same model.encoder.path"
    check(is_same, "data.train", message, hint)


def load_encoder_weights(encoder: PretrainedEncoderConfig, model: nn.Module) -> None:
    """Copy the parameters of the pretrained model into the encoder of another."""
    if _is_run(encoder.path):
        Run(encoder.path).load_features_into(model)
    else:
        weights = read_encoder(Path(encoder.path)).weights
        load_pretrained_weights(model, weights, location=encoder.path)


def _is_run(path: str) -> bool:
    """Whether a folder is a run, or nothing that could be imported either."""
    folder = Path(path)
    is_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    return is_empty or Run(path).exists


def _read_recipe(path: str) -> Recipe:
    """Read the recipe of a run, or of a model that can be imported, and verify its files."""
    if not _is_run(path):
        return read_encoder(Path(path)).recipe
    run = Run(path)
    run.verify()
    return run.read_recipe()


@contextmanager
def _tokenizer_folder(path: str) -> Iterator[Path]:
    """Yield the folder of the source tokenizer of a run, or of a model that can be imported."""
    if _is_run(path):
        yield _source_folder(path)
        return
    with TemporaryDirectory() as name:
        read_encoder(Path(path)).tokenizers.source.save(Path(name))
        yield Path(name)


def _source_folder(run_folder: Path | str) -> Path:
    folder = Path(run_folder) / "tokenizers"
    return next(path for name in ("shared", "source") if (path := folder / name).exists())
