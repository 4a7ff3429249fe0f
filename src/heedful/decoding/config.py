"""The settings of decoding: how is a trained model asked?

As they stand, a beam is searched plainly. What does not go together is refused (`refusals`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from heedful.config import Choice
from heedful.decoding.choices import (
    ConsensusConfig,
    CoverageConfig,
    DiversityConfig,
    GnmtLengthConfig,
    LengthPenaltyConfig,
    SamplingConfig,
    SettledConfig,
    StoppingConfig,
)
from heedful.decoding.refusals import refuse_what_cannot_be

Average = Literal["log-probabilities", "probabilities"]


class FusionConfig(Choice):
    """A language model that is heard beside the model (Gulcehre et al. 2015, section 4.1)."""

    run: Path
    """Its run folder, as seen from where the command is given."""
    weight: NonNegativeFloat = 0.2
    """What its log-probabilities are multiplied by before they are added."""


class DecodingConfig(Choice):
    """How outputs are searched for, or drawn."""

    beam: PositiveInt = 5
    """Hypotheses kept side by side; 1 is greedy."""
    nbest: PositiveInt = 1
    """Outputs given for a text: the best of the beam, or so many that are drawn."""
    length_penalty: LengthPenaltyConfig = GnmtLengthConfig()
    """How scores are corrected for length; a plain number is the exponent of Wu et al. 2016."""
    coverage: CoverageConfig | None = None
    """What a score loses for where the model looked; if not given, nothing."""
    max_source_tokens: PositiveInt = 1000
    """The longest source that is accepted."""
    max_output_ratio: float = Field(default=2.0, gt=0)
    """The longest output, in tokens per source token, beside `max_output_extra`."""
    max_output_extra: PositiveInt = 20
    """Tokens allowed on top of that."""
    max_output_tokens: PositiveInt | None = None
    """The longest output in any case."""
    min_output_tokens: NonNegativeInt = 0
    """The shortest output."""
    min_output_ratio: NonNegativeFloat = 0.0
    """The shortest output, in tokens per source token; the larger of the two counts."""
    no_repeat: NonNegativeInt = 0
    """So many tokens in a row stand in no output twice (Paulus et al. 2018); 0 allows it."""
    repetition_penalty: Annotated[float, Field(ge=1)] = 1.0
    """What log p of a token is multiplied by once it has been said (Keskar et al. 2019)."""
    stopping: StoppingConfig = SettledConfig()
    """When a beam has looked far enough."""
    diversity: DiversityConfig = DiversityConfig()
    """Groups within the beam that avoid one another."""
    must: tuple[str | tuple[str, ...], ...] = ()
    """Phrases that every output contains; a list among them stands for one of several."""
    never: tuple[str, ...] = ()
    """Phrases that no output contains."""
    sampling: SamplingConfig | None = None
    """How outputs are drawn; if not given, they are searched for."""
    consensus: ConsensusConfig | None = None
    """Draw many outputs, give the one nearest to all; if not given, no."""
    unknowns: Literal["keep", "copy"] = "keep"
    """What becomes of unknown words: copied from where the model looked (Luong et al. 2015)."""
    dictionary: Path | None = None
    """A file of two words a line: what an unknown word becomes, by the source word looked at."""
    ensemble: Average = "log-probabilities"
    """What is averaged where several models are asked together."""
    language_model: FusionConfig | None = None
    """A language model that has a say."""
    max_batch_tokens: PositiveInt = 4096
    """Most source tokens that are decoded together, hypotheses and padding counted."""

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        refuse_what_cannot_be(self)
        return self

    @property
    def drawing(self) -> str | None:
        """The setting by which outputs are drawn, if they are not searched for."""
        if self.consensus:
            return "consensus"
        return "sampling" if self.sampling else None

    @property
    def num_outputs(self) -> int:
        """How many outputs of a text are made side by side."""
        if self.consensus:
            return self.consensus.samples
        return self.nbest if self.sampling else self.beam

    def with_widths(self, *, beam: int | None = None, nbest: int | None = None) -> DecodingConfig:
        """Change how many hypotheses are kept, and how many outputs are given."""
        given = {"beam": beam, "nbest": nbest}
        changes = {name: value for name, value in given.items() if value is not None}
        changed = self.model_copy(update=changes)
        refuse_what_cannot_be(changed)
        return changed

    def plain(self) -> DecodingConfig:
        """Ask the model greedily and alone; only the limits of texts and batches stay."""
        return DecodingConfig(
            beam=1,
            max_source_tokens=self.max_source_tokens,
            max_output_ratio=self.max_output_ratio,
            max_output_extra=self.max_output_extra,
            max_output_tokens=self.max_output_tokens,
            max_batch_tokens=self.max_batch_tokens,
        )
