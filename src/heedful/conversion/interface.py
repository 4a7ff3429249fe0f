"""What importers and exporters have in common: an imported run, an exporter, and their models."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from heedful.config import Settings, flatten_settings
from heedful.errors import ConfigError, DataError, check, format_count
from heedful.recipes import Recipe, load_recipe
from heedful.storage.state_dict import unique_weights
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair


class ImportedRun(NamedTuple):
    """All that a run folder needs."""

    recipe: Recipe
    tokenizers: TokenizerPair
    weights: Mapping[str, Tensor]
    """The parameters by our names, as `unique_weights` gives them: tied ones once."""
    notes: Sequence[str] = ()
    """What is not carried over, for the user to read."""
    original_files: Sequence[Path] = ()
    """Files that the run keeps, for an export in the same format."""


def build_model(recipe: Recipe, tokenizers: TokenizerPair) -> nn.Module:
    """Build the model of a recipe for these vocabularies; its parameters are random."""
    return recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers)).eval()


def build_recipe(settings: Settings, *, location: str) -> Recipe:
    """Return the recipe of a model; an error in it names the file that describes the model."""
    try:
        return load_recipe(settings)
    except ConfigError as error:
        setting = error.location.removeprefix("recipe: ")
        message = f"describes a model that cannot be built here: {setting}: {error.message}"
        raise DataError(location, message, "use another model; nothing was written") from None


def transformer_settings(
    settings: Mapping[str, Any],
    *,
    heads: Mapping[str, Any],
    attention_dropout: float,
    feed_forward: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings of Transformer layers that are all alike, with scaled dot products."""
    attention = {
        "score": {"type": "scaled-dot"},
        "multi_head": {"bias": True, **heads},
        "dropout": attention_dropout,
    }
    layers = {"attention": attention, "feed_forward": [{**feed_forward}]}
    return {"type": "transformer", **settings, **layers}


def expected_weights(
    recipe: Recipe, tokenizers: TokenizerPair, tensors: Mapping[str, Tensor], *, location: str
) -> dict[str, Tensor]:
    """Return the weights that the model of a recipe has, without their values.

    Nothing is built unless there can be a tensor for each layer.
    """
    settings = flatten_settings(recipe.model.model_dump())
    num_layers = sum(value for path, value in settings if path.endswith("num_layers"))
    layers, count = format_count(num_layers, "layer"), format_count(len(tensors), "tensor")
    message = f"its settings describe {layers}, but the model has {count}"
    hint = "use the settings and tensors that were written together"
    check(num_layers <= len(tensors), location, message, hint, DataError)
    with torch.device("meta"):
        return unique_weights(build_model(recipe, tokenizers))


class Exporter(ABC):
    """Writes runs in the format of another library."""

    name: ClassVar[str]
    description: ClassVar[str]
    """What is written, in a few words."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages that opening the result again needs."""
    extra: ClassVar[str] = ""
    """Extra of heedful that installs them."""

    def with_languages(self, languages: tuple[str, str]) -> "Exporter":
        """Return an exporter that writes the codes of source and target language, too."""
        message = f"has no effect with --to {self.name}"
        raise ConfigError("--languages", message, "leave it out")

    def with_dtype(self, dtype: str) -> "Exporter":
        """Return an exporter that stores weights in another precision."""
        raise ConfigError("--dtype", f"has no effect with --to {self.name}", "leave it out")

    @abstractmethod
    def unsupported_reason(self, run: LoadedRun) -> str | None:
        """Return the part of a run that the format cannot represent; None if there is none."""

    @abstractmethod
    def write(self, run: LoadedRun, folder: Path) -> None:
        """Write the model and its tokenizers into an existing, empty folder."""

    @abstractmethod
    def compare(self, run: LoadedRun, folder: Path, sources: Sequence[Sequence[int]]) -> str:
        """Open the folder with the other library and compare outputs with those of the run.

        Sources are token ids without EOS. Return what was compared, in a few words; raise
        DataError if something differs.
        """

    def usage(self, run: LoadedRun) -> str:
        """Return a section of the model card: how the files are used, in Markdown."""
        return ""
