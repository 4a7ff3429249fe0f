"""The settings of decoding: how is a trained model asked?

As they stand, a beam is searched plainly. What does not go together is refused (`refusals`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.search.candidates import BeamGroupsConfig
from heedful.search.minimum_bayes_risk import MBRConfig
from heedful.search.penalties import (
    CoveragePenaltyConfig,
    GNMTLengthPenaltyConfig,
    LengthPenaltyConfig,
)
from heedful.search.sampling import SamplingConfig
from heedful.search.stopping import HeuristicStoppingConfig, StoppingConfig

# Refusals: which settings of decoding cannot be kept to together?
#
# A setting at its default is never refused. Each refusal names the setting, the reason, and what to
# do about it.


def check_decoding_config(config: DecodingConfig) -> None:
    """Refuse the first thing that does not go with the others."""
    for problem in _find_problems(config):
        raise problem


def _find_problems(settings: DecodingConfig) -> Iterator[ConfigError]:
    yield from _check_counts(settings)
    if settings.sampling_setting:
        yield from _check_sampling(settings, settings.sampling_setting)
    else:
        yield from _check_beam(settings)
    yield from _check_lengths(settings)
    yield from _check_phrases(settings)
    if settings.phrase_table and settings.unk_replacement == "keep":
        yield ConfigError(
            "decoding.phrase_table",
            "it says what unknown words become, but decoding.unk_replacement keeps them",
            "set decoding.unk_replacement to copy, or leave the dictionary out",
        )


def _check_counts(settings: DecodingConfig) -> Iterator[ConfigError]:
    for name, count in (("beam_size", settings.beam_size), ("nbest", settings.n_best)):
        if count < 1:
            yield ConfigError(f"decoding.{name}", f"cannot be {count}", "give 1 or more")


def _check_sampling(settings: DecodingConfig, sampling_setting: str) -> Iterator[ConfigError]:
    """Name what only a beam can do, where outputs are drawn."""
    only_of_beams = {
        "diversity.num_beam_groups": settings.diversity.num_beam_groups > 1,
        "coverage": settings.coverage_penalty is not None,
        "stopping": settings.stopping.type != "heuristic",
        "required_phrases": bool(settings.required_phrases),
    }
    for name, is_set in only_of_beams.items():
        if is_set:
            yield ConfigError(
                f"decoding.{name}",
                f"only a beam can keep to it, and outputs are drawn (decoding.{sampling_setting} is set)",
                f"leave it out, or set decoding.{sampling_setting} to null",
            )
    if settings.mbr and settings.n_best > 1:
        yield ConfigError(
            "decoding.n_best",
            f"{settings.n_best} outputs are wanted, but a consensus is one (decoding.mbr is set)",
            "set nbest to 1, or set decoding.mbr to null",
        )


def _check_beam(settings: DecodingConfig) -> Iterator[ConfigError]:
    beam, groups = settings.beam_size, settings.diversity.num_beam_groups
    if settings.n_best > beam:
        yield ConfigError(
            "decoding.n_best",
            f"{settings.n_best} outputs are wanted, but a beam of {beam} finds at most {beam}",
            f"set decoding.beam_size to {settings.n_best} or more, or nbest to {beam} or less",
        )
    if beam % groups:
        yield ConfigError(
            "decoding.diversity.num_beam_groups",
            f"a beam of {beam} cannot be shared by {groups} groups",
            "choose a number of groups that divides decoding.beam_size",
        )


def _check_lengths(settings: DecodingConfig) -> Iterator[ConfigError]:
    least, most = settings.min_length, settings.max_length
    if most is not None and least > most:
        yield ConfigError(
            "decoding.min_length",
            f"outputs are to have at least {least} tokens and may have {most}",
            "lower it, or raise decoding.max_length",
        )


def _check_phrases(settings: DecodingConfig) -> Iterator[ConfigError]:
    required = [(each,) if isinstance(each, str) else each for each in settings.required_phrases]
    is_empty = {
        "required_phrases": not all(
            phrases and all(map(str.strip, phrases)) for phrases in required
        ),
        "forbidden_phrases": not all(map(str.strip, settings.forbidden_phrases)),
    }
    for name in (name for name, is_so in is_empty.items() if is_so):
        yield ConfigError(f"decoding.{name}", "an empty phrase says nothing", "leave it out")


Averaging = Literal["log-probabilities", "probabilities"]


class ShallowFusionConfig(BaseConfig):
    """A language model that is heard beside the model (Gulcehre et al. 2015, section 4.1)."""

    run: Path
    """Its run folder, as seen from where the command is given."""
    weight: NonNegativeFloat = 0.2
    """What its log-probabilities are multiplied by before they are added."""


class DecodingConfig(BaseConfig):
    """How outputs are searched for, or drawn."""

    beam_size: PositiveInt = 5
    """Hypotheses kept side by side; 1 is greedy."""
    n_best: PositiveInt = 1
    """Outputs given for a text: the best of the beam, or so many that are drawn."""
    length_penalty: LengthPenaltyConfig = GNMTLengthPenaltyConfig()
    """How scores are corrected for length; a plain number is the exponent of Wu et al. 2016."""
    coverage_penalty: CoveragePenaltyConfig | None = None
    """What a score loses for where the model looked; if not given, nothing."""
    max_source_length: PositiveInt = 1000
    """The longest source that is accepted."""
    max_length_ratio: float = Field(default=2.0, gt=0)
    """The longest output, in tokens per source token, beside `max_output_extra`."""
    max_length_offset: PositiveInt = 20
    """Tokens allowed on top of that."""
    max_length: PositiveInt | None = None
    """The longest output in any case."""
    min_length: NonNegativeInt = 0
    """The shortest output."""
    min_length_ratio: NonNegativeFloat = 0.0
    """The shortest output, in tokens per source token; the larger of the two counts."""
    no_repeat_ngram_size: NonNegativeInt = 0
    """So many tokens in a row stand in no output twice (Paulus et al. 2018); 0 allows it."""
    repetition_penalty: Annotated[float, Field(ge=1)] = 1.0
    """What log p of a token is multiplied by once it has been said (Keskar et al. 2019)."""
    stopping: StoppingConfig = HeuristicStoppingConfig()
    """When a beam has looked far enough."""
    diversity: BeamGroupsConfig = BeamGroupsConfig()
    """Groups within the beam that avoid one another."""
    required_phrases: tuple[str | tuple[str, ...], ...] = ()
    """Phrases that every output contains; a list among them stands for one of several."""
    forbidden_phrases: tuple[str, ...] = ()
    """Phrases that no output contains."""
    sampling: SamplingConfig | None = None
    """How outputs are drawn; if not given, they are searched for."""
    mbr: MBRConfig | None = None
    """Draw many outputs, give the one nearest to all; if not given, no."""
    unk_replacement: Literal["keep", "copy"] = "keep"
    """What becomes of unknown words: copied from where the model looked (Luong et al. 2015)."""
    phrase_table: Path | None = None
    """A file of two words a line: what an unknown word becomes, by the source word looked at."""
    ensemble_averaging: Averaging = "log-probabilities"
    """What is averaged where several models are asked together."""
    shallow_fusion: ShallowFusionConfig | None = None
    """A language model that has a say."""
    max_batch_tokens: PositiveInt = 4096
    """Most source tokens that are decoded together, hypotheses and padding counted."""

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        check_decoding_config(self)
        return self

    @property
    def sampling_setting(self) -> str | None:
        """The setting by which outputs are drawn, if they are not searched for."""
        if self.mbr:
            return "mbr"
        return "sampling" if self.sampling else None

    @property
    def num_outputs(self) -> int:
        """How many outputs of a text are made side by side."""
        if self.mbr:
            return self.mbr.num_samples
        return self.n_best if self.sampling else self.beam_size

    def with_beam_size(
        self, *, beam_size: int | None = None, n_best: int | None = None
    ) -> DecodingConfig:
        """Change how many hypotheses are kept, and how many outputs are given."""
        given = {"beam_size": beam_size, "n_best": n_best}
        changes = {name: value for name, value in given.items() if value is not None}
        changed = self.model_copy(update=changes)
        check_decoding_config(changed)
        return changed

    def greedy(self) -> DecodingConfig:
        """Ask the model greedily and alone; only the limits of texts and batches stay."""
        return DecodingConfig(
            beam_size=1,
            max_source_length=self.max_source_length,
            max_length_ratio=self.max_length_ratio,
            max_length_offset=self.max_length_offset,
            max_length=self.max_length,
            max_batch_tokens=self.max_batch_tokens,
        )
