"""Settings of decoding, and the checks of settings that do not go together.

Invariant: a setting at its default is compatible with every other setting.
"""

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.search import penalties
from heedful.search.candidates import BeamGroupsConfig, BeamPruningConfig
from heedful.search.minimum_bayes_risk import MBRConfig
from heedful.search.sampling import SamplingConfig
from heedful.search.stopping import HeuristicStoppingConfig, StoppingConfig
from heedful.tokenization.vocabulary import UNK

MAX_OUTPUTS = 10_000
Averaging = Literal["log-probabilities", "probabilities"]
DecodingRule = tuple[object, str, str, str]
"""Whether a setting is valid, its name, what is wrong otherwise and what to do."""
Phrases = Sequence[str | Sequence[str]]
"""Phrases; a list among them means one of several."""


class ShallowFusionConfig(BaseConfig):
    """A language model whose log-probabilities are added (Gulcehre et al. 2015, section 4.1)."""

    run: Path
    """Run folder of the language model, relative to the working directory."""
    weight: NonNegativeFloat = 0.2
    """Factor of its log-probabilities."""


class DecodingConfig(BaseConfig):
    """Beam search, sampling or MBR decoding with a trained model."""

    beam_size: PositiveInt = Field(default=5, le=MAX_OUTPUTS)
    """Hypotheses per sentence; 1 is greedy search."""
    n_best: PositiveInt = Field(default=1, le=MAX_OUTPUTS)
    """Outputs per text: the best of the beam, or this many samples."""
    length_penalty: penalties.LengthPenaltyConfig = penalties.GNMTLengthPenaltyConfig()
    """Correction of scores for length; a number is the alpha of Wu et al. 2016."""
    coverage_penalty: penalties.CoveragePenaltyConfig | None = None
    """Penalty for poorly covered source positions; default: none."""
    max_source_length: PositiveInt = 1000
    """Maximum number of source tokens; longer texts are an error, or skipped or cut by choice."""
    max_length_ratio: float = Field(default=2.0, gt=0, le=1000)
    """Maximum output tokens per source token, before `max_length_offset`."""
    max_length_offset: PositiveInt = Field(default=20, le=1_000_000)
    """Tokens added to `max_length_ratio` times the source length."""
    max_length: PositiveInt | None = None
    """Maximum number of output tokens, whatever the ratio gives."""
    min_length: NonNegativeInt = 0
    """Minimum number of output tokens."""
    min_length_ratio: NonNegativeFloat = 0.0
    """Minimum output tokens per source token; the larger of both minimums counts."""
    no_repeat_ngram_size: NonNegativeInt = 0
    """No n-gram of this size occurs twice (Paulus et al. 2018); 0 turns it off."""
    repetition_penalty: Annotated[float, Field(ge=1)] = 1.0
    """Factor of log p of tokens that were generated before (Keskar et al. 2019)."""
    suppress_tokens: tuple[NonNegativeInt, ...] = ()
    """Ids of tokens that no output contains."""
    forced_bos_token_id: NonNegativeInt | None = None
    """Id of the token that every output begins with, at no cost, such as BART's <s> or the language
    of mBART; default: none."""
    stopping: StoppingConfig = HeuristicStoppingConfig()
    """When the search for a sentence stops."""
    diversity: BeamGroupsConfig = BeamGroupsConfig()
    """Diverse beam search."""
    pruning: BeamPruningConfig = BeamPruningConfig()
    """Pruning of tokens and outputs that are far below the best; default: none."""
    required_phrases: tuple[str | tuple[str, ...], ...] = ()
    """Phrases that every output contains; a list within it means one of several."""
    forbidden_phrases: tuple[str, ...] = ()
    """Phrases that no output contains."""
    sampling: SamplingConfig | None = None
    """Sample outputs instead of searching; default: search."""
    mbr: MBRConfig | None = None
    """Minimum Bayes risk decoding over samples; default: off."""
    unk_replacement: Literal["keep", "copy", "suppress"] = "keep"
    """`copy` replaces unknown words by the source word with most attention (Luong et al. 2015);
    `suppress` lets the search choose another word."""
    phrase_table: Path | None = None
    """File with a source and a target word per line, used by `unk_replacement: copy`."""
    ensemble_averaging: Averaging = "log-probabilities"
    """What the members of an ensemble average."""
    shallow_fusion: ShallowFusionConfig | None = None
    """Add the scores of a language model; default: none."""
    backend: Literal["auto", "torch", "ct2"] = "auto"
    """What searches where texts alone are needed: `ct2` is CTranslate2; `auto` uses it if it is
    installed and the outputs are equal. Attention and scores come from `torch`."""
    max_batch_tokens: PositiveInt = 4096
    """Maximum source tokens per batch, including padding, times hypotheses."""

    @model_validator(mode="after")
    def _check_settings(self) -> Self:
        check_decoding_config(self)
        return self

    @property
    def sampling_setting(self) -> str | None:
        """The setting that turns on sampling; None with beam search."""
        if self.mbr:
            return "mbr"
        return "sampling" if self.sampling else None

    @property
    def num_outputs(self) -> int:
        """Number of hypotheses per text in a batch."""
        if self.mbr:
            return self.mbr.num_samples
        return self.n_best if self.sampling else self.beam_size

    def with_beam_size(self, *, beam_size: int | None = None, n_best: int | None = None) -> Self:
        """Return a checked copy with another beam size or number of outputs.

        More outputs than hypotheses widen the beam, unless its size is also given.
        """
        if n_best is not None and n_best > self.beam_size and not self.sampling_setting:
            groups = self.diversity.num_beam_groups
            beam_size = beam_size or ceil(n_best / groups) * groups
        sizes = {"beam_size": beam_size, "n_best": n_best}
        changes = {name: size for name, size in sizes.items() if size is not None}
        changed = self.model_copy(update=changes)
        check_decoding_config(changed)
        return changed

    @property
    def suppressed_tokens(self) -> tuple[int, ...]:
        """Ids of tokens that no output contains, UNK among them if it is suppressed."""
        unk = (UNK,) if self.unk_replacement == "suppress" else ()
        return (*self.suppress_tokens, *unk)

    def length_limits(self, source_length: int) -> tuple[int, int]:
        """Return minimum and maximum output length for a source length that includes EOS.

        The maximum by ratio is raised to the minimum, and both are cut to `max_length`.
        """
        minimum = max(self.min_length, int(source_length * self.min_length_ratio))
        maximum = int(source_length * self.max_length_ratio + self.max_length_offset)
        limit = self.max_length or max(minimum, maximum)
        return min(minimum, limit), min(max(minimum, maximum), limit)

    def greedy(self) -> Self:
        """Return greedy search with the same limits on lengths and batches."""
        limits = {"max_source_length", "max_length_ratio", "max_length_offset", "max_length"}
        fields = self.model_dump(include={*limits, "forced_bos_token_id", "max_batch_tokens"})
        return type(self)(beam_size=1, suppress_tokens=self.suppressed_tokens, **fields)


def check_decoding_config(config: DecodingConfig) -> None:
    """Raise ConfigError for the first setting that does not go with the others."""
    beam_size, n_best, groups = config.beam_size, config.n_best, config.diversity.num_beam_groups
    sampling = config.sampling_setting
    beam_only = (
        f"works only with beam search, but decoding.{sampling} is set",
        f"remove it, or set decoding.{sampling} to null",
    )
    rules: list[DecodingRule] = [
        (beam_size >= 1, "beam_size", f"must be at least 1, but is {beam_size}", "raise it"),
        (n_best >= 1, "n_best", f"must be at least 1, but is {n_best}", "raise it"),
        (beam_size <= MAX_OUTPUTS, "beam_size", f"{beam_size} is over {MAX_OUTPUTS}", "lower it"),
        (n_best <= MAX_OUTPUTS, "n_best", f"{n_best} is over {MAX_OUTPUTS}", "lower it"),
        (not sampling or groups == 1, "diversity.num_beam_groups", *beam_only),
        (not sampling or config.coverage_penalty is None, "coverage_penalty", *beam_only),
        (not sampling or config.stopping.type == "heuristic", "stopping", *beam_only),
        (not sampling or config.pruning == BeamPruningConfig(), "pruning", *beam_only),
        (not sampling or not config.required_phrases, "required_phrases", *beam_only),
        (
            not config.mbr or n_best == 1,
            "n_best",
            f"MBR decoding returns one output, but n_best is {n_best}",
            "set decoding.n_best to 1, or decoding.mbr to null",
        ),
        (
            sampling or n_best <= beam_size,
            "n_best",
            f"n_best is {n_best}, but beam_size is {beam_size}",
            f"set decoding.beam_size to {n_best} or more, or decoding.n_best to {beam_size} "
            "or less",
        ),
        (
            sampling or beam_size % groups == 0,
            "diversity.num_beam_groups",
            f"beam_size {beam_size} is not divisible by {groups} groups",
            "choose a number of groups that divides decoding.beam_size",
        ),
        (
            config.max_length is None or config.min_length <= config.max_length,
            "min_length",
            f"min_length is {config.min_length}, but max_length is {config.max_length}",
            "lower decoding.min_length, or raise decoding.max_length",
        ),
        *_phrase_rules(config),
        (
            config.phrase_table is None or config.unk_replacement == "copy",
            "phrase_table",
            f"has no effect, because decoding.unk_replacement is {config.unk_replacement!r}",
            "set decoding.unk_replacement to copy, or remove decoding.phrase_table",
        ),
    ]
    for is_valid, name, message, hint in rules:
        check(is_valid, f"decoding.{name}", message, hint)


def _phrase_rules(config: DecodingConfig) -> list[DecodingRule]:
    no_empty_phrase = ("a phrase is empty", "remove the empty phrase")
    forbidden = {phrase.strip() for phrase in config.forbidden_phrases}
    # Other contradictions depend on the tokenizer; `RequestEncoder` finds them.
    required = filter(None, alternatives(config.required_phrases))
    blocked = next((phrases[0] for phrases in required if {*phrases} <= forbidden), None)
    message = f"{blocked!r} is required, but {blocked!r} is forbidden"
    return [
        (not has_empty_phrase(config.required_phrases), "required_phrases", *no_empty_phrase),
        (not has_empty_phrase(config.forbidden_phrases), "forbidden_phrases", *no_empty_phrase),
        (blocked is None, "required_phrases", message, "remove one of them"),
    ]


def alternatives(phrases: Phrases) -> list[tuple[str, ...]]:
    """Return, for each required phrase, the texts of which one must occur."""
    return [(phrase,) if isinstance(phrase, str) else tuple(phrase) for phrase in phrases]


def has_empty_phrase(phrases: Phrases) -> bool:
    """Return True if a phrase, or one of multiple alternatives, has no text."""
    return not all(texts and all(map(str.strip, texts)) for texts in alternatives(phrases))


def check_search_tree(config: DecodingConfig, location: str) -> None:
    """Raise ConfigError if there is no beam search, whose tree `location` requests."""
    setting = config.sampling_setting
    message = f"needs beam search, but decoding.{setting} is set"
    hint = f"remove {location}, or set decoding.{setting} to null"
    check(setting is None, location, message, hint)
