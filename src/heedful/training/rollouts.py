"""Outputs: what does a model say by itself, and how likely does it find it?

Outputs are drawn without gradients, exactly as likely as the model finds them, and then read once
more, with gradients. They are drawn from the model as it is used and not as it trains: dropout
would drop anew at every step, so that what is drawn would come from a distribution that no reading
of a whole output has; and an output that is to become better is one that people would see.

An output that has grown to its limit is cut: it has no end symbol, and its likelihood is that of
the tokens it has. So the likelihoods of all outputs that can be drawn add up to one. An empty
output is the end symbol alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from heedful.data.batching import Batch
from heedful.models.base import Seq2SeqModel
from heedful.pytree import select_rows
from heedful.search.sampling import SamplingOptions, sample
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import BOS, EOS, PAD


class Rollout(NamedTuple):
    """What may be said of a source."""

    tokens: tuple[int, ...]  # without begin and end
    is_truncated: bool = False  # whether it had to stop before its end

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens that are said, with the end if it has one."""
        return self.tokens if self.is_truncated else (*self.tokens, EOS)


class LengthLimit(NamedTuple):
    """How long outputs may grow, by the length of their reference."""

    ratio: float
    offset: int

    def __call__(self, batch: Batch) -> Int[Tensor, "B"]:
        """Say how many tokens there may be, the end symbol counted."""
        lengths = (batch.targets != PAD).sum(dim=1) - 1
        return (lengths * self.ratio).long() + self.offset


def reference_outputs(batch: Batch) -> list[Rollout]:
    """Give what should be said."""
    return [Rollout(tuple(row[: row.index(EOS)])) for row in batch.targets.tolist()]


@torch.no_grad()
def sample_rollouts(
    model: Seq2SeqModel,
    batch: Batch,
    max_lengths: Int[Tensor, "B"],
    *,
    num_samples: int,
    sampling_strategy: SamplingOptions | None = None,
) -> list[list[Rollout]]:
    """Draw so many outputs for every source; chance is that of the whole process."""
    rows = torch.arange(len(max_lengths), device=max_lengths.device).repeat_interleave(num_samples)
    seed = int(torch.randint(2**62, ()))
    with _eval_mode(model):
        found = sample(
            model,
            select_rows(model.initial_state(batch.sources), rows),
            bos=torch.full_like(rows, BOS),
            eos=EOS,
            max_lengths=max_lengths[rows],
            options=sampling_strategy,
            seed=seed,
        )
    longest = max_lengths[rows].tolist()
    drawn = [
        Rollout(tuple(each), len(each) == most) for each, most in zip(found, longest, strict=True)
    ]
    return [drawn[first : first + num_samples] for first in range(0, len(drawn), num_samples)]


class ScoredOutputs(NamedTuple):
    """How likely a model finds the outputs of each source."""

    sequence_log_probs: Float[Tensor, "B K"]  # of outputs; -inf where a source has fewer of them
    log_probs: Float[Tensor, "B T N"]  # of tokens, for the first output of each source
    auxiliary_losses: dict[str, Float[Tensor, ""]]  # as if there were one output: the mean over all


def score_candidates(
    model: nn.Module, batch: Batch, outputs: Sequence[Sequence[Rollout]]
) -> ScoredOutputs:
    """Say how likely outputs are for the sources of a batch, all of them at once."""
    sizes = [len(each) for each in outputs]
    flat = [output for each in outputs for output in each]
    device = batch.targets.device
    sources = torch.arange(len(outputs)).repeat_interleave(torch.tensor(sizes)).to(device)
    lengths = torch.tensor([len(output.targets) for output in flat], device=device)
    # No narrower than the batch, whose own targets are then among those that are told of.
    targets = _pad([output.targets for output in flat], batch.targets.size(1)).to(device)
    inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], dim=1)
    log_probs, _, auxiliary_losses = model(
        Batch(select_rows(batch.sources, sources), inputs, targets), need_weights=False
    )
    chosen = _as_float32(log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1))  # (C, T)
    # By lengths and not by symbols: a model may draw the padding symbol too.
    real = torch.arange(targets.size(1), device=device) < lengths.unsqueeze(1)
    cumulative_log_probs = chosen.masked_fill(~real, 0).sum(dim=1).split(sizes)
    firsts = lengths.new_tensor(sizes).cumsum(dim=0) - lengths.new_tensor(sizes)
    return ScoredOutputs(
        pad_sequence(list(cumulative_log_probs), batch_first=True, padding_value=-torch.inf),
        log_probs[firsts, : batch.targets.size(1)],
        {name: penalty * (len(sizes) / len(flat)) for name, penalty in auxiliary_losses.items()},
    )


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Ask a model as it is when nothing is learned; afterwards it is as it was."""
    learning = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in learning:
            module.training = True
        # Autocast keeps the weights it has cast. Older versions of torch would give these, cast
        # without gradients, to the reading that is to have some (pytorch issue 158232).
        torch.clear_autocast_cache()


def _pad(rows: Sequence[Sequence[int]], width: int) -> Int[Tensor, "C T"]:
    width = max(width, *map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])


def _as_float32(numbers: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
    """Half precision cannot add up the tokens of a long output."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float))


# Rewards: how good is one output, held against its reference?
#
# A reward looks at tokens, as the run's own tokenizer cuts them and without begin and end. Laws: it
# lies between 0 and 1; an output equal to its reference gets 1, an empty one included; one that has
# no token in common with it gets 0.


def gleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(precision, recall) of all runs of 1 to 4 tokens together  (Wu et al. 2016, section 5)."""
    said, wanted = _ngrams(output), _ngrams(reference)
    longer = max(sum(map(len, said)), sum(map(len, wanted)))
    return sum(map(_multiset_overlap, said, wanted)) / longer if longer else 1.0


RewardName = Literal["bleu", "gleu"]
Reward = Callable[[Sequence[int], Sequence[int]], float]
"""Of an output and its reference."""

_MAX_NGRAM_ORDER = 4  # tokens in a row that are compared, in both papers


def sentence_bleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(1, exp(1 - r / c)) * (p_1 p_2 p_3 p_4)^(1/4)  (Papineni et al. 2002, section 2.3).

    Of one sentence a precision is easily 0, so to those of two tokens and more one is added above
    and below (Lin & Och 2004, section 4).
    """
    if not output or not reference:
        return float(len(output) == len(reference))
    logarithms = 0.0
    for added, said, wanted in zip((0, 1, 1, 1), _ngrams(output), _ngrams(reference), strict=True):
        matching = _multiset_overlap(said, wanted) + added
        if not matching:
            return 0.0
        logarithms += math.log(matching / (len(said) + added))
    brevity = min(0.0, 1 - len(reference) / len(output))
    return math.exp(brevity + logarithms / _MAX_NGRAM_ORDER)


def _ngrams(tokens: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """List the runs of 1, of 2, of 3 and of 4 tokens."""
    shifted = [tokens[first:] for first in range(_MAX_NGRAM_ORDER)]
    return [list(zip(*shifted[:length], strict=False)) for length in range(1, _MAX_NGRAM_ORDER + 1)]


def _multiset_overlap(
    hypothesis_ngrams: Iterable[object], reference_ngrams: Iterable[object]
) -> int:
    """Count what is in both, each as often as in the one that has fewer of it."""
    left = Counter(reference_ngrams)
    found = 0
    for run in hypothesis_ngrams:
        if left.get(run, 0):
            left[run] -= 1
            found += 1
    return found


REWARDS: Mapping[RewardName, Reward] = {"bleu": sentence_bleu, "gleu": gleu}


# Trials: what does a model say of a batch by itself, how likely, and how good is it?
#
# Each source has its reference and, beside it, what was drawn; equal outputs stand once, and are
# counted. Law: a trial is one reading of the batch with gradients, whatever number is drawn.


class ScoredCandidates(NamedTuple):
    """The outputs of each source, its reference first; nothing where a source has fewer."""

    scored: ScoredOutputs
    counts: Float[Tensor, "B K"]  # how often each was drawn; the reference perhaps never
    rewards: Float[Tensor, "B K"]


class RolloutSampler:
    """Draws outputs of a model and rewards them."""

    def __init__(self, reward: Reward, length_limit: LengthLimit, *, num_samples: int) -> None:
        self.reward = reward
        self.length_limit = length_limit
        self.num_samples = num_samples

    def __call__(
        self, model: nn.Module, batch: Batch, unwrapped_model: nn.Module
    ) -> ScoredCandidates:
        """Draw outputs of the bare model, and tell by the other how likely they are."""
        assert isinstance(unwrapped_model, Seq2SeqModel), (
            f"{type(unwrapped_model).__name__} reads no sources"
        )
        wanted = reference_outputs(batch)
        drawn = sample_rollouts(
            unwrapped_model, batch, self.length_limit(batch), num_samples=self.num_samples
        )
        counted = [_count_outputs(*each) for each in zip(wanted, drawn, strict=True)]
        told = score_candidates(model, batch, [list(each) for each in counted])
        like = told.sequence_log_probs
        counts = _pad_to_tensor([list(each.values()) for each in counted], like)
        return ScoredCandidates(told, counts, self._compute_rewards(wanted, counted, like))

    def greedy_rewards(
        self, batch: Batch, unwrapped_model: nn.Module, like: ScoredCandidates
    ) -> Float[Tensor, "B 1"]:
        """Reward what the model says when it takes the likeliest token, every time."""
        assert isinstance(unwrapped_model, Seq2SeqModel), (
            f"{type(unwrapped_model).__name__} reads no sources"
        )
        greedy = SamplingOptions(temperature=0)
        said = sample_rollouts(
            unwrapped_model,
            batch,
            self.length_limit(batch),
            num_samples=1,
            sampling_strategy=greedy,
        )
        return self._compute_rewards(reference_outputs(batch), said, like.rewards)

    def _compute_rewards(
        self,
        ref_outputs: Sequence[Rollout],
        sampled: Sequence[Iterable[Rollout]],
        like: Float[Tensor, "B _"],
    ) -> Float[Tensor, "B K"]:
        rewards = [
            [self.reward(output.tokens, reference.tokens) for output in outputs]
            for reference, outputs in zip(ref_outputs, sampled, strict=True)
        ]
        return _pad_to_tensor(rewards, like)


def _count_outputs(reference: Rollout, samples: Sequence[Rollout]) -> Counter[Rollout]:
    """Count how often each output was drawn, the reference first."""
    counts = Counter({reference: 0})
    counts.update(samples)
    return counts


def _pad_to_tensor(
    rows: Sequence[Sequence[float]], like: Float[Tensor, "B _"]
) -> Float[Tensor, "B K"]:
    """Put rows of unlike lengths into a table, as precise and on the same device; else zero."""
    tensors = [torch.tensor(row, dtype=like.dtype) for row in rows]
    return pad_sequence(tensors, batch_first=True).to(like.device)
