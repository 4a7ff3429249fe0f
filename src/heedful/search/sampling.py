"""Sampling: ancestral sampling with temperature, top-k, top-p, min-p and typical filtering.

Invariants: what is sampled for a row depends on the seed, its key and the model's output, never on
other rows; a sampled output has the log-probabilities and weights of forced decoding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.pytree import select_rows, to_float64
from heedful.search.hypotheses import (
    HypothesisRecorder,
    State,
    StepOutput,
    StepwiseModel,
)
from heedful.search.logits_processors import LogitsProcessor, LogProbs, apply_processors
from heedful.shapes import Float, Int, Lengths, StepTokens

PositiveProbability = Annotated[float, Field(gt=0, le=1)]
Probabilities = Float[Tensor, "R N"]


class SamplingOptions(NamedTuple):
    """How the next token is sampled; the defaults sample from the model's distribution.

    The filters apply in this order, and the probabilities that remain are renormalized after each:
    log-probabilities are divided by `temperature` (0: argmax); the `top_k` most likely tokens (Fan
    et al. 2018); the smallest set of most likely tokens with a total probability of `top_p`
    (Holtzman et al. 2020, section 3.1); tokens with at least `min_p` times the highest probability
    (Nguyen et al. 2025, section 3); the smallest set with a total probability of `typical_p` whose
    surprisal -log p is closest to the entropy (Meister et al. 2023, equation 10).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    forbidden_tokens: tuple[int, ...] = ()
    min_p: float = 0.0
    typical_p: float = 1.0

    def sample_tokens(self, log_probs: LogProbs, uniforms: Sequence[float]) -> Int[Tensor, "R"]:
        """Sample one token per row by inverting the CDF at a uniform random number."""
        if self.forbidden_tokens:
            forbidden = torch.tensor(self.forbidden_tokens, device=log_probs.device)
            log_probs = log_probs.index_fill(1, forbidden, -torch.inf)
        if self.temperature == 0:
            return log_probs.argmax(dim=-1)
        cdf = self._probabilities(to_float64(log_probs) / self.temperature).cumsum(dim=-1)
        total = cdf[:, -1]
        values = torch.tensor(uniforms, dtype=cdf.dtype, device=cdf.device) * total
        values = values.minimum(total.nextafter(torch.zeros_like(total)))  # rounding may reach 1
        tokens = torch.searchsorted(cdf, values.unsqueeze(1), right=True).squeeze(1)
        tokens = tokens.clamp(max=cdf.size(1) - 1)  # beyond it if probabilities are NaN
        return tokens.to(log_probs.device)

    def _probabilities(self, logits: LogProbs) -> Probabilities:
        """Return the filtered probabilities in vocabulary order.

        In the order of ranks, rounding could swap two almost equal ones and change what is sampled.
        """
        if self.top_k is None and self.min_p == 0 and min(self.top_p, self.typical_p) >= 1:
            return logits.softmax(dim=-1)
        ranked, tokens = logits.sort(dim=-1, descending=True, stable=True)
        probs = _top_p_filter(ranked[:, : self.top_k].softmax(dim=-1), self.top_p)
        probs = probs.masked_fill(probs < self.min_p * probs[:, :1], 0)
        if self.typical_p < 1:
            probs = _typical_filter(probs, self.typical_p)
        return torch.zeros_like(logits).scatter(1, tokens[:, : probs.size(1)], probs)


def _top_p_filter(probs: Probabilities, threshold: float) -> Probabilities:
    """Keep the first tokens that add up to the threshold."""
    total_before = probs.cumsum(dim=-1) - probs
    return probs.masked_fill(total_before >= threshold, 0)


def _typical_filter(probs: Probabilities, threshold: float) -> Probabilities:
    """Keep the tokens with surprisal closest to the entropy that add up to the threshold."""
    probs = probs / probs.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(probs).sum(dim=-1, keepdim=True)
    order = (-probs.log() - entropy).abs().sort(dim=-1, stable=True).indices
    filtered_probs = _top_p_filter(probs.gather(1, order), threshold)
    return torch.zeros_like(probs).scatter(1, order, filtered_probs)


class SamplingConfig(BaseConfig):
    """Sampling of outputs; the defaults sample from the model's distribution."""

    temperature: NonNegativeFloat = 1.0
    """Divisor of the log-probabilities; 0 always takes the most likely token."""
    top_k: PositiveInt | None = None
    """Sample among this many most likely tokens (Fan et al. 2018)."""
    top_p: PositiveProbability = 1.0
    """Sample among the most likely tokens up to this total (Holtzman et al. 2020, section 3.1)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Sample among tokens at least this times as likely as the best (Nguyen et al. 2025)."""
    typical_p: PositiveProbability = 1.0
    """Sample among the tokens of typical surprisal up to this total (Meister et al. 2023)."""
    seed: int = 0
    """Random seed; the outputs of a text depend on it and on the index of the text."""

    def build(self) -> SamplingOptions:
        return SamplingOptions(
            self.temperature, self.top_k, self.top_p, min_p=self.min_p, typical_p=self.typical_p
        )


class SamplingStep(NamedTuple):
    """One step of the sampling loop."""

    rows: Int[Tensor, "R"]  # in the batch at this step
    step: StepOutput[Any]
    tokens: Int[Tensor, "R"]  # sampled for these rows
    active_rows: Int[Tensor, "R2"]  # indices into `rows` of those that continue


@torch.no_grad()
def sampling_loop(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: Int[Tensor, "R"],
    eos: int | None,
    max_steps: Int[Tensor, "R"],
    options: SamplingOptions,
    generators: Sequence[Random],
    processors: Sequence[LogitsProcessor] = (),
    sentence_ids: Int[Tensor, "R"] | None = None,
    is_stopped: Callable[[int], bool] | None = None,
) -> Iterator[SamplingStep]:
    """Sample token by token; rows leave the batch at EOS or after `max_steps`.

    Processors identify a row by its sentence, or by its index without `sentence_ids`. A row also
    leaves if `is_stopped` says so of its index, once the tokens of a step were used.
    """
    rows, depth = max_steps.nonzero().flatten(), 0
    tokens, state = bos[rows], select_rows(state, rows)
    generated = bos.new_empty(len(rows), 0)
    while len(rows):
        step = model.step(tokens, state)
        row_sentences = rows if sentence_ids is None else sentence_ids[rows]
        allowed, _ = apply_processors(processors, step.log_probs, generated, row_sentences, eos=eos)
        uniforms = [generators[row].random() for row in rows.tolist()]
        tokens = options.sample_tokens(allowed, uniforms)
        depth += 1
        is_active = max_steps[rows] > depth
        active = (is_active if eos is None else is_active & (tokens != eos)).nonzero().flatten()
        yield SamplingStep(rows, step, tokens, active)
        if is_stopped:
            is_left = [not is_stopped(row) for row in rows[active].tolist()]
            active = active[torch.tensor(is_left, dtype=torch.bool, device=active.device)]
        state = step.state if len(active) == len(rows) else select_rows(step.state, active)
        rows, tokens = rows[active], tokens[active]
        generated = torch.cat([generated[active], tokens.unsqueeze(1)], dim=1)


def random_generators(seed: int, keys: Iterable[int | str]) -> list[Random]:
    """Return one generator per key, determined by the seed and the key."""
    return [Random(f"{seed} {key}") for key in keys]


def sample(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: StepTokens,
    eos: int | None,
    max_lengths: Lengths,
    options: SamplingOptions | None = None,
    seed: int = 0,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[int]]:
    """Return one sampled output per row, without BOS and EOS.

    `bos` is the first input token of each row; with `eos=None` only `max_lengths` end a row.
    """
    for processor in processors:
        processor.check_lengths(max_lengths.tolist())
    outputs: list[list[int]] = [[] for _ in range(len(bos))]
    for rows, _, tokens, _ in sampling_loop(
        model,
        state,
        bos=bos,
        eos=eos,
        max_steps=max_lengths,
        options=options or SamplingOptions(),
        generators=random_generators(seed, range(len(bos))),
        processors=processors,
    ):
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            if token != eos:
                outputs[row].append(token)
    return outputs


def sample_steps(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: int,
    eos: int,
    sentence_ids: Int[Tensor, "R"],
    max_lengths: Lengths,
    options: SamplingOptions,
    generators: Sequence[Random],
    processors: Sequence[LogitsProcessor] = (),
) -> Iterator[HypothesisRecorder]:
    """Sample a hypothesis per row of `state`; yield all after each step, and so at last whole.

    Multiple rows may share a sentence.

    Lengths and processors belong to sentences, generators to rows. As in a search, an output of
    maximum length must end; where the model gives EOS probability 0, it is cut off and has the
    score -inf. The score is the model's log-probability: processors and temperature change what is
    sampled, not its score.
    """
    for processor in processors:
        processor.check_lengths(max_lengths.tolist())
    recorder = HypothesisRecorder(len(sentence_ids))
    steps = sampling_loop(
        model,
        state,
        bos=sentence_ids.new_full(sentence_ids.shape, bos),
        eos=eos,
        max_steps=max_lengths[sentence_ids] + 1,  # EOS is sampled, too
        options=options,
        generators=generators,
        processors=processors,
        sentence_ids=sentence_ids,
    )
    for depth, (rows, step, tokens, active_rows) in enumerate(steps):
        may_continue = max_lengths[sentence_ids[rows]] > depth
        recorder.record(step, tokens.where(may_continue, eos), active_rows)
        yield recorder
