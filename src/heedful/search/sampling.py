""""""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.pytree import select_rows
from heedful.search.hypotheses import Hypothesis, HypothesisRecorder
from heedful.search.logits_processors import LogitsProcessor, MaxLength, apply_processors
from heedful.search.penalties import Probability
from heedful.search.protocol import State, StepOutput, StepwiseModel
from heedful.shapes import Float, Int

# Sampling: outputs drawn as likely as the model finds them.
#
# Law: what is drawn for a row depends on the seed, the number of the row and what the model says of
# it, and never on its neighbours: each row has a stream of random numbers of its own.


class SamplingOptions(NamedTuple):
    """How tokens are drawn; as it stands, by their probabilities.

    First the log-probabilities are divided by the `temperature`; at 0 only the likeliest token is
    left. Then the `top_k` likeliest are kept (Fan et al. 2018); of these the fewest whose
    probabilities add up to `top_p` (Holtzman et al. 2020, section 3.1); of these what is at least
    `min_p` times as likely as the likeliest (Nguyen et al. 2025, section 3); and of these the
    fewest that add up to `typical_p`, those first whose surprise -log p is nearest to the one that
    is expected (Meister et al. 2023, equation 10). After each, what is kept is again all there is.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    forbidden_tokens: tuple[int, ...] = ()  # tokens that are never drawn
    min_p: float = 0.0
    typical_p: float = 1.0

    def sample_tokens(
        self, log_probs: Float[Tensor, "B N"], uniforms: Sequence[float]
    ) -> Int[Tensor, "B"]:
        """Draw a token for each row, by a number from 0 to 1 that chance gave it."""
        if self.forbidden_tokens:
            log_probs = log_probs.index_fill(1, _ids(self.forbidden_tokens, log_probs), -torch.inf)
        if self.temperature == 0:
            return log_probs.argmax(dim=-1)
        cumulative_probs = self._probabilities(log_probs.double() / self.temperature).cumsum(dim=-1)
        whole = cumulative_probs[:, -1]
        targets = (
            torch.tensor(uniforms, dtype=cumulative_probs.dtype, device=cumulative_probs.device)
            * whole
        )
        targets = targets.minimum(
            whole.nextafter(torch.zeros_like(whole))
        )  # rounding may reach the top
        found = torch.searchsorted(cumulative_probs, targets.unsqueeze(1), right=True).squeeze(1)
        return found.clamp(
            max=cumulative_probs.size(1) - 1
        )  # past the end where chances are not numbers

    def _probabilities(self, logits: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
        """Say how likely each token is drawn, in the order of the vocabulary.

        Were they in the order of their ranks, two that are all but equally likely could change
        places when rounding differs, and with it what is drawn.
        """
        if self.top_k is None and self.min_p == 0 and min(self.top_p, self.typical_p) >= 1:
            return logits.softmax(dim=-1)
        ranked, tokens = logits.sort(dim=-1, descending=True, stable=True)
        kept = self._filter(ranked)
        return torch.zeros_like(logits).scatter(1, tokens[:, : kept.size(1)], kept)

    def _filter(self, ranked: Float[Tensor, "B N"]) -> Float[Tensor, "B _"]:
        """Turn ranked logits into the chances of the tokens that may be drawn."""
        chances = ranked[:, : self.top_k].softmax(dim=-1)
        chances = _top_p_filter(chances, self.top_p)
        chances = chances.masked_fill(chances < self.min_p * chances[:, :1], 0)
        return _typical_filter(chances, self.typical_p) if self.typical_p < 1 else chances


def _top_p_filter(probs: Float[Tensor, "B N"], threshold: float) -> Float[Tensor, "B N"]:
    """Keep the first few that add up to a share of the whole."""
    before = probs.cumsum(dim=-1) - probs
    return probs.masked_fill(before >= threshold, 0)


def _typical_filter(probs: Float[Tensor, "B N"], threshold: float) -> Float[Tensor, "B N"]:
    """Keep those nearest to the expected surprise that add up to a share of what is left."""
    probs = probs / probs.sum(dim=-1, keepdim=True)
    surprise = -probs.log()
    expected = torch.special.entr(probs).sum(dim=-1, keepdim=True)
    order = (surprise - expected).abs().sort(dim=-1, stable=True).indices
    kept = _top_p_filter(probs.gather(1, order), threshold)
    return torch.zeros_like(probs).scatter(1, order, kept)


class SamplingStep(NamedTuple):
    """One step of drawing."""

    rows: Int[Tensor, "R"]  # those that were in the batch
    step: StepOutput[Any]  # what the model said of them
    tokens: Int[Tensor, "R"]  # what was drawn for each
    active_rows: Int[Tensor, "R2"]  # places among them of those that go on


@torch.no_grad()
def sampling_loop(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: Int[Tensor, "R"],
    eos: int | None,
    length_limits: Int[Tensor, "R"],
    options: SamplingOptions,
    generators: Sequence[Random],
    processors: Sequence[LogitsProcessor] = (),
    sentence_ids: Int[Tensor, "R"] | None = None,
) -> Iterator[SamplingStep]:
    """Draw outputs a token at a time; a row that has ended, or is at its limit, leaves the batch.

    Each row has its own `chance`. Rules know a row by its sentence, or else by its number.
    """
    rows, depth = length_limits.nonzero().flatten(), 0
    tokens, state = bos[rows], select_rows(state, rows)
    generated = bos.new_empty(len(rows), 0)
    while len(rows):
        step = model.step(tokens, state)
        owners = rows if sentence_ids is None else sentence_ids[rows]
        allowed_log_probs, _ = apply_processors(
            processors, step.log_probs, generated, owners, eos=eos
        )
        tokens = options.sample_tokens(
            allowed_log_probs, [generators[row].random() for row in rows.tolist()]
        )
        depth += 1
        goes_on = length_limits[rows] > depth
        alive = (goes_on if eos is None else goes_on & (tokens != eos)).nonzero().flatten()
        yield SamplingStep(rows, step, tokens, alive)
        state = step.state if len(alive) == len(rows) else select_rows(step.state, alive)
        rows, tokens = rows[alive], tokens[alive]
        generated = torch.cat([generated[alive], tokens.unsqueeze(1)], dim=1)


def random_generators(seed: int, keys: Iterable[int | str]) -> list[Random]:
    """Make random numbers for each key; what a stream holds follows from the seed and its key."""
    return [Random(f"{seed} {key}") for key in keys]


class SampledTokens(NamedTuple):
    """The tokens of one step: which rows go on, and with what."""

    rows: list[int]
    tokens: list[int]


def iterate_samples(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: Int[Tensor, "B"],
    eos: int | None,
    max_lengths: Int[Tensor, "B"],
    options: SamplingOptions,
    seed: int,
    processors: Sequence[LogitsProcessor] = (),
) -> Iterator[SampledTokens]:
    """Draw outputs a token at a time; a row that ends leaves the batch, its end not given out.

    `begin` is the token that each row reads first. Without an `end` only the lengths end it.
    """
    for rule in processors:
        rule.validate(max_lengths.tolist())
    chance = random_generators(seed, range(len(bos)))
    for rows, _, tokens, _ in sampling_loop(
        model,
        state,
        bos=bos,
        eos=eos,
        length_limits=max_lengths,
        options=options,
        generators=chance,
        processors=processors,
    ):
        keep = slice(None) if eos is None else tokens != eos
        yield SampledTokens(rows[keep].tolist(), tokens[keep].tolist())


def sample(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: Int[Tensor, "B"],
    eos: int | None,
    max_lengths: Int[Tensor, "B"],
    options: SamplingOptions | None = None,
    seed: int = 0,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[int]]:
    """Draw an output for every row, without its begin and end."""
    generated: list[list[int]] = [[] for _ in range(len(bos))]
    steps = iterate_samples(
        model,
        state,
        bos=bos,
        eos=eos,
        max_lengths=max_lengths,
        options=options or SamplingOptions(),
        seed=seed,
        processors=processors,
    )
    for drawn in steps:
        for row, token in zip(drawn.rows, drawn.tokens, strict=True):
            generated[row].append(token)
    return generated


def _ids(tokens: Sequence[int], like: Tensor) -> Int[Tensor, "_"]:
    return torch.tensor(tokens, device=like.device)


class SamplingConfig(BaseConfig):
    """How outputs are drawn; as it stands, exactly as likely as the model finds them."""

    temperature: NonNegativeFloat = 1.0
    """What log-probabilities are divided by; 0 takes the likeliest token."""
    top_k: PositiveInt | None = None
    """Draw among so many of the likeliest tokens (Fan et al. 2018)."""
    top_p: Probability = 1.0
    """Draw among the fewest that add up to this (Holtzman et al. 2020, section 3.1)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Draw among those at least so much as likely as the likeliest (Nguyen et al. 2025)."""
    typical_p: Probability = 1.0
    """Draw among those nearest to the expected surprise, up to this sum (Meister et al. 2023)."""
    seed: int = 0
    """What is drawn for a text follows from this and the number of the text."""

    def build(self) -> SamplingOptions:
        """Say how tokens are drawn."""
        return SamplingOptions(
            self.temperature, self.top_k, self.top_p, min_p=self.min_p, typical_p=self.typical_p
        )


# Drawing: whole outputs, as likely as the model finds them, with the evidence of a search.
#
# Law: an output that is drawn carries what forced decoding says of it. As in a search, one that has
# grown to its longest length must end.


def sample_hypotheses(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: int,
    eos: int,
    sentence_ids: Int[Tensor, "R"],
    max_lengths: Int[Tensor, "B"],
    options: SamplingOptions,
    generators: Sequence[Random],
    processors: Sequence[LogitsProcessor] = (),
) -> list[Hypothesis]:
    """Draw an output for every row of `state`, which belongs to one of the sentences.

    Lengths and rules are those of sentences, chances those of rows. What an output scores is its
    log-probability, as the model has it: rules and temperature change what is drawn, not that.
    """
    for rule in processors:
        rule.validate(max_lengths.tolist())
    evidence = HypothesisRecorder(len(sentence_ids))
    for _, step, tokens, alive in sampling_loop(
        model,
        state,
        bos=sentence_ids.new_full(sentence_ids.shape, bos),
        eos=eos,
        length_limits=max_lengths[sentence_ids] + 1,  # the end is drawn too
        options=options,
        generators=generators,
        processors=(*processors, MaxLength(max_lengths, eos=eos)),
        sentence_ids=sentence_ids,
    ):
        evidence.record(step, tokens, alive)
    return evidence.hypotheses()
