"""Rollouts: outputs sampled from a model, their likelihoods and rewards.

Outputs are sampled without dropout, which is drawn anew at each step, so that no pass over a whole
output has that distribution, and then scored once with gradients, also without dropout: only if
they are scored as they were sampled does a baseline add no bias to a policy gradient. An output
that reaches its length limit has no EOS. Invariant: the likelihoods of all outputs that can be
sampled sum to one.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from heedful.data.text.batching import Batch
from heedful.evaluation.caption_metrics import CiderD
from heedful.models.base import Seq2SeqModel
from heedful.pytree import select_rows
from heedful.search.sampling import SamplingOptions, sample
from heedful.shapes import Float, Lengths, Losses
from heedful.tokenization.ragged_array import Integers, RaggedArray
from heedful.tokenization.vocabulary import BOS, EOS, PAD, UNK
from heedful.training.guided_alignment import hash_rows

PairRewardName = Literal["bleu", "gleu"]
PairRewardFunction = Callable[[Sequence[int], Sequence[int]], float]
"""From an output and its reference, token ids without BOS and EOS."""

_MAX_NGRAM_ORDER = 4  # in both papers


class Rollout(NamedTuple):
    """A sampled output."""

    tokens: tuple[int, ...]  # without BOS and EOS
    is_truncated: bool = False  # whether it reached its limit before EOS

    @property
    def targets(self) -> tuple[int, ...]:
        """The tokens, with EOS if it has one."""
        return self.tokens if self.is_truncated else (*self.tokens, EOS)


class LengthLimit(NamedTuple):
    """Maximum lengths of outputs, relative to their references."""

    ratio: float
    offset: int

    def __call__(self, batch: Batch) -> Lengths:
        """Return the maximum number of tokens for each row, EOS included."""
        lengths = (batch.targets != PAD).sum(dim=1) - 1
        return (lengths * self.ratio).long() + self.offset


def reference_outputs(batch: Batch) -> list[Rollout]:
    """Return the references of a batch."""
    return [Rollout(tuple(row[: row.index(EOS)])) for row in batch.targets.tolist()]


@contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """Let a model compute as in evaluation.

    RNNs of torch, which have no dropout here, stay as they are: in eval mode cuDNN has no gradient.
    """
    training_modules = [module for module in model.modules() if module.training]
    for module in training_modules:
        module.training = isinstance(module, nn.RNNBase)
    try:
        yield
    finally:
        for module in training_modules:
            module.training = True


@torch.no_grad()
def sample_rollouts(
    model: nn.Module,
    batch: Batch,
    max_lengths: Lengths,
    *,
    num_samples: int,
    options: SamplingOptions | None = None,
) -> list[list[Rollout]]:
    """Sample `num_samples` outputs per source, seeded by torch's global random state."""
    assert isinstance(model, Seq2SeqModel), type(model)
    rows = torch.arange(len(max_lengths), device=max_lengths.device).repeat_interleave(num_samples)
    limits = max_lengths[rows]
    seed = int(torch.randint(2**62, ()))
    with without_dropout(model):
        state = select_rows(model.initial_state(batch.sources), rows)
        bos = torch.full_like(rows, BOS)
        sequences = sample(
            model, state, bos=bos, eos=EOS, max_lengths=limits, options=options, seed=seed
        )
    # Autocast caches cast parameters. Older versions of torch would reuse those that were cast
    # without gradients in the forward pass with gradients (pytorch issue 158232).
    torch.clear_autocast_cache()
    rollouts = [
        Rollout(tuple(tokens), len(tokens) == limit)
        for tokens, limit in zip(sequences, limits.tolist(), strict=True)
    ]
    return [rollouts[start : start + num_samples] for start in range(0, len(rollouts), num_samples)]


class ScoredOutputs(NamedTuple):
    """Log-probabilities of the outputs of each source."""

    sequence_log_probs: Float[Tensor, "B K"]  # -inf where a source has fewer outputs
    log_probs: Float[Tensor, "B T N"]  # of the first output of each source
    auxiliary_losses: Losses  # means over outputs


def score_candidates(
    model: nn.Module, batch: Batch, outputs: Sequence[Sequence[Rollout]]
) -> ScoredOutputs:
    """Score all outputs of all sources in one forward pass, without dropout."""
    sizes = [len(candidates) for candidates in outputs]
    flat = [output for candidates in outputs for output in candidates]
    device = batch.targets.device
    sources = torch.arange(len(outputs)).repeat_interleave(torch.tensor(sizes)).to(device)
    lengths = torch.tensor([len(output.targets) for output in flat], device=device)
    # At least as wide as the batch: `log_probs` covers its targets.
    width = max(batch.targets.size(1), *(len(output.targets) for output in flat))
    rows = [[*output.targets, *[PAD] * (width - len(output.targets))] for output in flat]
    targets = torch.tensor(rows).to(device)
    inputs = torch.cat([torch.full_like(targets[:, :1], BOS), targets[:, :-1]], dim=1)
    rows_of_sources = select_rows(batch.sources, sources)
    with without_dropout(model):
        output = model(Batch(rows_of_sources, inputs, targets), need_weights=False)
    log_probs = output.log_probs
    sum_dtype = torch.promote_types(log_probs.dtype, torch.float32)  # 16 bits cannot sum an output
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).to(sum_dtype)  # (C, T)
    # By lengths, not by PAD: a model may sample PAD.
    is_real = torch.arange(targets.size(1), device=device) < lengths.unsqueeze(1)
    cumulative_log_probs = chosen.masked_fill(~is_real, 0).sum(dim=1).split(sizes)
    firsts = lengths.new_tensor(sizes).cumsum(dim=0) - lengths.new_tensor(sizes)
    return ScoredOutputs(
        pad_sequence(list(cumulative_log_probs), batch_first=True, padding_value=-torch.inf),
        log_probs[firsts, : batch.targets.size(1)],
        {name: loss * (len(sizes) / len(flat)) for name, loss in output.auxiliary_losses.items()},
    )


# These compare token ids without BOS and EOS. They lie between 0 and 1: 1 for an output equal to
# its reference, also if both are empty, and 0 for one without a common token.


def gleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(precision, recall) of all n-grams, n = 1 to 4, together  (Wu et al. 2016, section 5)."""
    hypothesis_ngrams, reference_ngrams = _ngrams(output), _ngrams(reference)
    total = max(sum(map(len, hypothesis_ngrams)), sum(map(len, reference_ngrams)))
    num_matches = sum(map(_multiset_overlap, hypothesis_ngrams, reference_ngrams))
    return num_matches / total if total else 1.0


def sentence_bleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(1, exp(1 - r / c)) * (p_1 p_2 p_3 p_4)^(1/4)  (Papineni et al. 2002, section 2.3).

    For n > 1, one is added to numerator and denominator of the precision (Lin & Och 2004,
    section 4): in one sentence it is often 0.
    """
    if not output or not reference:
        return float(len(output) == len(reference))
    log_precisions = 0.0
    orders = zip((0, 1, 1, 1), _ngrams(output), _ngrams(reference), strict=True)
    for smoothing, ngrams, reference_ngrams in orders:
        num_matches = _multiset_overlap(ngrams, reference_ngrams) + smoothing
        if not num_matches:
            return 0.0
        log_precisions += math.log(num_matches / (len(ngrams) + smoothing))
    brevity = min(0.0, 1 - len(reference) / len(output))
    return math.exp(brevity + log_precisions / _MAX_NGRAM_ORDER)


def _ngrams(tokens: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """Return the n-grams of each order from 1 to 4."""
    shifted = [tokens[start:] for start in range(_MAX_NGRAM_ORDER)]
    return [list(zip(*shifted[:order], strict=False)) for order in range(1, _MAX_NGRAM_ORDER + 1)]


def _multiset_overlap(first: Iterable[object], second: Iterable[object]) -> int:
    return (Counter(first) & Counter(second)).total()


PAIR_REWARDS: Mapping[PairRewardName, PairRewardFunction] = {"bleu": sentence_bleu, "gleu": gleu}


class Reward(Protocol):
    """The rewards of sampled outputs."""

    def __call__(
        self, batch: Batch, outputs: Sequence[Sequence[Rollout]]
    ) -> Sequence[Sequence[float]]:
        """Return the reward of each output of each row of a batch."""
        ...


class PairReward(NamedTuple):
    """A reward that compares an output with the target of its row."""

    function: PairRewardFunction

    def __call__(
        self, batch: Batch, outputs: Sequence[Sequence[Rollout]]
    ) -> Sequence[Sequence[float]]:
        """Return the reward of each output of each row of a batch."""
        return [
            [self.function(output.tokens, reference.tokens) for output in row]
            for reference, row in zip(reference_outputs(batch), outputs, strict=True)
        ]


class ScoredCandidates(NamedTuple):
    """The distinct outputs of each source, its reference first; zeros where a source has fewer."""

    scored: ScoredOutputs
    counts: Float[Tensor, "B K"]  # how often each was sampled; the reference perhaps never
    rewards: Float[Tensor, "B K"]


class RolloutSampler(NamedTuple):
    """Samples outputs of a model and rewards them, with one forward pass with gradients."""

    reward: Reward
    length_limit: LengthLimit
    num_samples: int

    def __call__(
        self, model: nn.Module, batch: Batch, unwrapped_model: nn.Module
    ) -> ScoredCandidates:
        """Sample with `unwrapped_model` and score with `model`."""
        limits = self.length_limit(batch)
        rollouts = sample_rollouts(unwrapped_model, batch, limits, num_samples=self.num_samples)
        counters: list[Counter[Rollout]] = []
        for reference, samples in zip(reference_outputs(batch), rollouts, strict=True):
            counters.append(Counter({reference: 0}))  # first, also if it was not sampled
            counters[-1].update(samples)
        scored = score_candidates(model, batch, [list(counter) for counter in counters])
        like = scored.sequence_log_probs
        counts = _pad_to_tensor([list(counter.values()) for counter in counters], like)
        rewards = self.reward(batch, [list(counter) for counter in counters])
        return ScoredCandidates(scored, counts, _pad_to_tensor(rewards, like))

    def greedy_rewards(
        self, batch: Batch, unwrapped_model: nn.Module, like: ScoredCandidates
    ) -> Float[Tensor, "B 1"]:
        """Return the rewards of greedy outputs."""
        limits, greedy = self.length_limit(batch), SamplingOptions(temperature=0)
        outputs = sample_rollouts(unwrapped_model, batch, limits, num_samples=1, options=greedy)
        return _pad_to_tensor(self.reward(batch, outputs), like.rewards)


def _pad_to_tensor(
    rows: Sequence[Sequence[float]], like: Float[Tensor, "B _"]
) -> Float[Tensor, "B K"]:
    """Pad rows with zeros to a tensor with the dtype and device of `like`."""
    tensors = [torch.tensor(row, dtype=like.dtype) for row in rows]
    return pad_sequence(tensors, batch_first=True).to(like.device)


_NO_WORD = -1  # an unknown word of an output equals no word of a reference


def reference_keys(batch: Batch) -> NDArray[np.uint64]:
    """Return the key of each row: rows with equal keys have the same references.

    It is the example that the batch names, or else a hash of the source tokens.
    """
    if batch.reference_ids is not None:
        return batch.reference_ids.cpu().numpy().astype(np.uint64)
    return hash_rows(batch.sources.tokens)


class ReferenceTable(NamedTuple):
    """The references of training sources, by the key of the source."""

    keys: NDArray[np.uint64]  # sorted; that of each group of references
    scorer: CiderD
    num_references: int

    @classmethod
    def from_rows(cls, keys: NDArray[np.uint64], targets: RaggedArray) -> Self:
        """Group the targets of rows, which have no EOS, by their keys."""
        unique_keys, groups = np.unique(keys, return_inverse=True)
        with_eos = [[*targets.get(row), EOS] for row in range(len(targets))]
        return cls(unique_keys, CiderD(RaggedArray.from_sequences(with_eos), groups), len(with_eos))

    def describe(self) -> str:
        """Return its size as the log of training shows it."""
        return (
            f"document frequencies of {self.scorer.num_ngrams:,} n-grams in "
            f"{self.num_references:,} references of {self.scorer.num_groups:,} sources"
        )

    def groups_of(self, batch: Batch) -> Integers:
        """Return the group of each row."""
        keys = reference_keys(batch)
        groups = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        unknown = np.flatnonzero(self.keys[groups] != keys)
        assert not len(unknown), f"row {unknown[0]} is not from the training data"
        return groups


@dataclass
class CiderDReward:
    """CIDEr-D, from 0 to 10, with EOS as a word  (Rennie et al. 2017).

    Without it, outputs that end in "with a" gain reward. Truncated outputs have none. Before there
    are references, while the memory of a step is measured, all rewards are 0.
    """

    references: ReferenceTable | None = None

    def __call__(
        self, batch: Batch, outputs: Sequence[Sequence[Rollout]]
    ) -> Sequence[Sequence[float]]:
        """Return the reward of each output of each row of a batch."""
        if self.references is None:
            return [[0.0] * len(row) for row in outputs]
        sizes = [len(row) for row in outputs]
        tokens = RaggedArray.from_sequences(output.targets for row in outputs for output in row)
        tokens.values[tokens.values == UNK] = _NO_WORD
        groups = np.repeat(self.references.groups_of(batch), sizes)
        scores = iter(self.references.scorer.score(tokens, groups).tolist())
        return [[next(scores) for _ in row] for row in outputs]
