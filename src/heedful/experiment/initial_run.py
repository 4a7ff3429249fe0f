"""What a pretrained encoder takes from its initial run: architecture, tokenizer and parameters.

Invariant: all of it is copied when training starts, so that the run is complete in itself; whatever
does not fit is reported before anything is written.
"""

from pathlib import Path

from heedful.config import validate_settings
from heedful.data.dataset_builder import folder_digest
from heedful.errors import ConfigError, check
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.tokenization.tokenizer import Tokenizer


def pretrained_encoder(recipe: Recipe) -> PretrainedEncoderConfig | None:
    """Return the encoder of the model if it is pretrained."""
    encoder = getattr(recipe.model, "encoder", None)
    return encoder if isinstance(encoder, PretrainedEncoderConfig) else None


def with_initial_run(recipe: Recipe, run: Run) -> Recipe:
    """Fill in the architecture and the source tokenizer of the initial run, if there is one.

    A run that was saved has its own copy of both, and the initial run may be gone.
    """
    encoder = pretrained_encoder(recipe)
    if encoder is None:
        return recipe
    if run.exists and run.is_saved and (saved := pretrained_encoder(run.read_recipe())):
        filled = {"model": saved.model, "prepend_bos": saved.prepend_bos}
        return _with_parts(recipe, encoder.model_copy(update=filled), run.read_recipe())
    initial = Run(encoder.initial)
    initial.verify()
    initial_recipe = initial.read_recipe()
    return _with_parts(recipe, encoder.with_model_of(initial_recipe.model), initial_recipe)


def _with_parts(recipe: Recipe, encoder: PretrainedEncoderConfig, other: Recipe) -> Recipe:
    """Return the recipe with this encoder and the source tokenizer of another recipe."""
    current, tokenizer = recipe.tokenizers.source_config, other.tokenizers.source_config
    if getattr(current, "vocabulary_type", None) == tokenizer.type:  # its words, with more for each
        tokenizer = type(current).model_validate({**tokenizer.model_dump(), "type": current.type})
    settings = recipe.model_dump(mode="json")
    settings["model"]["encoder"] = encoder.model_dump(mode="json")
    settings["tokenizers"] = recipe.tokenizers.with_source(tokenizer).model_dump(mode="json")
    location = f"model.encoder.initial={encoder.initial}"
    try:
        return validate_settings(Recipe, settings, location=location)
    except ConfigError as error:
        message = f"the tokenizer of that run has type '{tokenizer.type}', but {error.message}"
        raise ConfigError(location, message, "name a run with another tokenizer") from None


def initial_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """Load the source tokenizer from the initial run; None if there is no such run."""
    if (encoder := pretrained_encoder(recipe)) is None:
        return None
    return recipe.tokenizers.source_config.load(_source_folder(encoder.initial))


def check_initial_tokenizer(recipe: Recipe, tokens_folder: Path) -> None:
    """Raise ConfigError if tokens were made with another tokenizer than the initial run has."""
    if (encoder := pretrained_encoder(recipe)) is None:
        return
    folders = _source_folder(tokens_folder), _source_folder(encoder.initial)
    message = f"the tokens in {tokens_folder} were made with another tokenizer than"
    message += f" {encoder.initial} has"
    hint = "prepare them again, with the same model.encoder.initial"
    check(len(set(map(folder_digest, folders))) == 1, "data.train", message, hint)


def _source_folder(run_folder: Path | str) -> Path:
    folder = Path(run_folder) / "tokenizers"
    return next(path for name in ("shared", "source") if (path := folder / name).exists())
