"""Candidates of beam search: their pruning, ranking, selection, and the trellis of those selected.

Invariants: one group is a plain beam; the best token of a step is never pruned; a hypothesis read
back from the trellis has the tokens, log-probabilities and weights of its steps.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.ops import op
from heedful.search.hypotheses import Hypothesis
from heedful.shapes import Float, Int

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Candidates(NamedTuple):
    """Continuations (beams, C) of each beam, best first; empty slots have totals of -inf."""

    cumulative_log_probs: FloatArray  # what they are ranked by, after processors
    log_probs: FloatArray  # model log-probability of the last token alone
    tokens: IntArray
    rows: IntArray  # rows of the batch that they continue
    num_missing: IntArray  # tokens that constraints still require

    def select_beams(self, beams: IntArray) -> "Candidates":
        """Return the candidates of these beams."""
        return self._index(beams)

    def reorder(self, order: IntArray) -> "Candidates":
        """Return the candidates with these indices (beams, K) in each beam, in this order."""
        return self._index((np.arange(len(order))[:, None], order))

    def drop(self, is_dropped: BoolArray) -> "Candidates":
        """Replace these candidates (beams, C) by empty slots and move the slots to the end."""
        totals = np.where(is_dropped, -np.inf, self.cumulative_log_probs)
        order = np.argsort(is_dropped, axis=1, kind="stable")
        return self._replace(cumulative_log_probs=totals).reorder(order)

    def _index(self, indices: Any) -> "Candidates":
        return Candidates(*[cast(Any, array)[indices] for array in self])


@op
def find_candidates(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: FloatArray,
    num_candidates: int,
) -> Candidates:
    """Return the best continuations of each beam, ranked by what the processors allow."""
    dtype = torch.promote_types(model_log_probs.dtype, torch.float32)
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, dtype)
    best, indices = rank_all(allowed_log_probs, totals, num_candidates)
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device)[:, None]
    vocab_size = allowed_log_probs.size(1)
    rows = first_rows + indices // vocab_size
    return to_candidates(best, rows, indices % vocab_size, model_log_probs)


def rank_all(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], num_candidates: int
) -> tuple[Float[Tensor, "U C"], Int[Tensor, "U C"]]:
    """Rank all tokens of all rows of each beam; return totals and indices into (K * N)."""
    extended_totals = (totals.view(-1, 1) + log_probs).view(len(totals), -1)  # (U, K * N)
    return extended_totals.topk(min(num_candidates, extended_totals.size(1)))


def to_candidates(
    totals: Float[Tensor, "U C"],
    rows: Int[Tensor, "U C"],
    tokens: Int[Tensor, "U C"],
    model_log_probs: Float[Tensor, "R N"],
) -> Candidates:
    """Copy ranked continuations to the host, in two transfers."""
    log_probs = model_log_probs[rows, tokens].to(totals)
    scores = torch.stack([totals, log_probs]).cpu().numpy().astype(np.float64)
    indices = torch.stack([tokens, rows]).cpu().numpy()
    return Candidates(scores[0], scores[1], indices[0], indices[1], np.zeros_like(indices[0]))


def select_candidates(
    candidates: Candidates, *, eos: int, beam_size: int
) -> tuple[BoolArray, Candidates]:
    """Return which candidates (beams, C) finish, and those (beams, K) that stay open.

    EOS finishes a hypothesis if it is among the best `beam_size` candidates of its bank; the open
    ones are taken from the banks in turn, the best of each bank first. Where there are fewer, the
    slots are empty.
    """
    is_real = candidates.cumulative_log_probs > -np.inf
    is_end = is_real & (candidates.tokens == eos)
    is_open = is_real & ~is_end
    if candidates.num_missing.any():
        ranks = _rank_within_bank(candidates.num_missing, is_real)
        open_ranks = _rank_within_bank(candidates.num_missing, is_open)
        order = np.lexsort((candidates.num_missing, open_ranks, ~is_open))
    else:
        ranks = np.arange(is_real.shape[1])
        order = np.argsort(~is_open, axis=1, kind="stable")
    totals = np.where(is_open, candidates.cumulative_log_probs, -np.inf)
    open_candidates = candidates._replace(cumulative_log_probs=totals).reorder(order[:, :beam_size])
    return is_end & (ranks < beam_size), open_candidates


def _rank_within_bank(banks: IntArray, is_counted: BoolArray) -> IntArray:
    """Return how many counted candidates of the same bank precede each candidate."""
    is_before = np.tri(banks.shape[1], k=-1, dtype=bool)
    is_same_bank = banks[:, :, None] == banks[:, None, :]
    return (is_same_bank & is_before & is_counted[:, None, :]).sum(axis=-1)


class BeamGroups(NamedTuple):
    """Groups of hypotheses that avoid each other's tokens (Vijayakumar et al. 2018, section 4).

    A group ranks by log P - penalty * (number of hypotheses of earlier groups that selected the
    token at this step); the score of a hypothesis remains log P. One group is a plain beam.
    """

    num_groups: int = 1
    penalty: float = 0.5

    def group_size(self, beam_size: int) -> int:
        """Return the number of hypotheses per group."""
        is_divisible = self.num_groups >= 1 and beam_size % self.num_groups == 0
        message = f"beam_size {beam_size} is not divisible by {self.num_groups} groups"
        hint = "choose a number of groups that divides beam_size"
        check(is_divisible, "diversity.num_beam_groups", message, hint)
        return beam_size // self.num_groups

    def rank(
        self, candidates: Candidates, beam_ids: IntArray, *, eos: int, beam_size: int
    ) -> Candidates:
        """Rank group after group, each penalized for the tokens of the groups before it.

        Beam i belongs to sentence i // num_groups and to group i % num_groups of it.
        """
        token_counts: dict[int, Counter[int]] = defaultdict(Counter)  # of each sentence
        order = np.zeros_like(candidates.tokens)
        for group in range(self.num_groups):
            beams = np.flatnonzero(beam_ids % self.num_groups == group)
            sentences = (beam_ids[beams] // self.num_groups).tolist()
            grouped = candidates.select_beams(beams)
            counts = [
                [token_counts[sentence][token] for token in tokens]
                for sentence, tokens in zip(sentences, grouped.tokens.tolist(), strict=True)
            ]
            totals = grouped.cumulative_log_probs
            cost = self.penalty * np.array(counts, dtype=np.float64).reshape(totals.shape)
            order[beams] = np.argsort(cost - totals, axis=1, kind="stable")
            ranked = grouped.reorder(order[beams])
            is_finished, selected = select_candidates(ranked, eos=eos, beam_size=beam_size)
            for beam, sentence in enumerate(sentences):
                is_real = selected.cumulative_log_probs[beam] > -np.inf
                token_counts[sentence].update(selected.tokens[beam][is_real].tolist())
                token_counts[sentence][eos] += int(is_finished[beam].sum())
        return candidates.reorder(order)


class BeamGroupsConfig(BaseConfig):
    """Groups of hypotheses that avoid each other's tokens (Vijayakumar et al. 2018, section 4)."""

    num_beam_groups: PositiveInt = 1
    """Number of groups that share the beam; 1 is a plain beam."""
    diversity_penalty: NonNegativeFloat = 0.5
    """Subtracted from log P for every earlier group that selected the token at the same step."""

    def build(self) -> BeamGroups:
        return BeamGroups(self.num_beam_groups, self.diversity_penalty)


class BeamPruning(NamedTuple):
    """Drop candidates far below the best  (Wu et al. 2016, section 7; there both are `beamsize`).

    A token is not considered if its log-probability is more than `token_threshold` below that of
    the best token of the step, whichever hypothesis of the beam that continues. A finished
    hypothesis is dropped if its score, after penalties, is more than `score_threshold` below the
    best one so far, and the search stops when the open ones are below the same bound.
    """

    token_threshold: float = np.inf
    score_threshold: float = np.inf

    def prune_tokens(
        self, log_probs: Float[Tensor, "R N"], cumulative_log_probs: FloatArray
    ) -> Float[Tensor, "R N"]:
        """Return -inf for the tokens that no hypothesis of their beam may continue with."""
        if self.token_threshold == np.inf:
            return log_probs
        is_filler = torch.from_numpy(cumulative_log_probs == -np.inf).to(log_probs.device)
        best = log_probs.amax(dim=1).view(is_filler.shape).masked_fill(is_filler, -torch.inf)
        bounds = best.amax(dim=1, keepdim=True).expand_as(best).reshape(-1, 1)  # (R, 1)
        return log_probs.masked_fill(log_probs < bounds - self.token_threshold, -torch.inf)


class BeamPruningConfig(BaseConfig):
    """Pruning of candidates far below the best, in nats (Wu et al. 2016, section 7)."""

    token_threshold: PositiveFloat | None = None
    """Skip tokens with log p this far below the best of the step: 3 in the paper; null for none."""
    score_threshold: PositiveFloat | None = None
    """Drop outputs with scores this far below the best so far: 3 in the paper; null for none."""

    def build(self) -> BeamPruning:
        return BeamPruning(self.token_threshold or np.inf, self.score_threshold or np.inf)


class FinishedRow(NamedTuple):
    """Row of the trellis at which a hypothesis ended."""

    depth: int
    row: int
    log_prob: float  # of EOS
    score: float


Token = TypeVar("Token", int, str)
NodeStatus = Literal["continued", "finished", "pruned"]


@dataclass(frozen=True)
class Node(Generic[Token]):
    """Node of a search tree: a partial hypothesis, or a finished one whose token is EOS."""

    parent: int | None  # index of the parent node; None at the root
    token: Token | None  # an id, or its text
    log_prob: float  # model log-probability of the token
    cumulative_log_prob: float
    status: NodeStatus  # pruned: no continuation was kept
    token_id: int | None = None  # where `token` is its text


class Trellis:
    """All tokens, parents, log-probabilities and weights of a search, by depth.

    Depth t has one row per hypothesis with t tokens, and each row points to its parent at depth
    t - 1. The weights of a step are stored once, whatever number of children a row has, so that
    reordering a beam copies no attention.
    """

    def __init__(self) -> None:
        self.sentences: list[IntArray] = []  # that the rows belong to
        self.parents: list[IntArray] = []  # from depth 1 on, like tokens and log_probs
        self.tokens: list[IntArray] = []
        self.log_probs: list[FloatArray] = []  # -inf if the row is only filler
        self.weights: list[Tensor | NDArray[np.float32]] = []  # that predict the next token
        self.finished: list[FinishedRow] = []

    @property
    def depth(self) -> int:
        """Number of tokens that the current rows have."""
        return len(self.tokens)

    def append(self, candidates: Candidates) -> None:
        """Append these candidates as the rows of the next depth; those of score -inf are filler."""
        is_real = candidates.cumulative_log_probs > -np.inf
        self.parents.append(candidates.rows.flatten())
        self.tokens.append(candidates.tokens.flatten())
        self.log_probs.append(np.where(is_real, candidates.log_probs, -np.inf).flatten())
        self.sentences.append(self.sentences[-1][self.parents[-1]])

    def weights_of(self, row: int) -> NDArray[np.float32]:
        """Return the weights (depth + 1, S) of a current row, and of its next token."""
        path = [row]
        for parents in reversed(self.parents):
            path.append(int(parents[path[-1]]))
        weights = [self._weights_at(depth)[row] for depth, row in enumerate(reversed(path))]
        return np.concatenate(weights).reshape(len(path), -1)

    def backtrack(self, ends: Sequence[FinishedRow]) -> list[Hypothesis]:
        """Return the hypotheses that end in these rows; all are followed back together."""
        if not ends:
            return []
        depths, rows = np.array([end.depth for end in ends]), np.array([end.row for end in ends])
        max_depth = int(depths.max())
        tokens = np.zeros((len(ends), max_depth), dtype=np.int64)
        log_probs = np.zeros((len(ends), max_depth + 1))
        log_probs[np.arange(len(ends)), depths] = [end.log_prob for end in ends]
        weights = [self._weights_at(depth) for depth in range(max_depth + 1)]
        offsets = np.cumsum([0, *map(len, weights[:-1])])
        weight_rows = np.zeros((len(ends), max_depth + 1), dtype=np.int64)
        for depth in range(max_depth, -1, -1):
            active = np.flatnonzero(depths >= depth)
            active_rows = rows[active]
            weight_rows[active, depth] = offsets[depth] + active_rows
            if depth:
                tokens[active, depth - 1] = self.tokens[depth - 1][active_rows]
                log_probs[active, depth - 1] = self.log_probs[depth - 1][active_rows]
                rows[active] = self.parents[depth - 1][active_rows]
        all_weights = np.concatenate(weights)[weight_rows]  # (ends, max_depth + 1, S)
        lists, hypotheses = (tokens.tolist(), log_probs.tolist()), []
        for index, (end, output, token_log_probs) in enumerate(zip(ends, *lists, strict=True)):
            size = end.depth + 1
            hypothesis = Hypothesis(
                output[: end.depth],
                sum(token_log_probs[:size]),
                end.score,
                all_weights[index, : end.depth],
                log_probs[index, :size],
                all_weights[index, end.depth],
            )
            hypotheses.append(hypothesis)
        return hypotheses

    def tree(self, sentence: int, *, eos: int) -> list[Node[int]]:
        """Return each hypothesis that the beam of a sentence held, parents before children."""
        nodes: list[Node[int]] = []
        node_ids: dict[tuple[int, int], int] = {}  # (depth, row)
        for depth, sentences in enumerate(self.sentences):
            for row in np.flatnonzero(sentences == sentence).tolist():
                if depth == 0:
                    node_ids[depth, row] = len(nodes)
                    nodes.append(Node(None, None, 0.0, 0.0, "pruned"))
                elif self.log_probs[depth - 1][row] > -np.inf:
                    node_ids[depth, row] = len(nodes)
                    parent = node_ids[depth - 1, int(self.parents[depth - 1][row])]
                    token = int(self.tokens[depth - 1][row])
                    _add_child(nodes, parent, token, float(self.log_probs[depth - 1][row]))
        for end in self.finished:
            if (last := node_ids.get((end.depth, end.row))) is not None:
                _add_child(nodes, last, eos, end.log_prob, "finished")
        return nodes

    def _weights_at(self, depth: int) -> NDArray[np.float32]:
        """Return the weights of a depth; they stay on the model's device until they are needed."""
        weights = self.weights[depth]
        if isinstance(weights, Tensor):
            weights = self.weights[depth] = weights.float().cpu().numpy()
        return weights


def _add_child(
    nodes: list[Node[int]], parent: int, token: int, log_prob: float, status: NodeStatus = "pruned"
) -> None:
    nodes[parent] = replace(nodes[parent], status="continued")
    total = nodes[parent].cumulative_log_prob + log_prob
    nodes.append(Node(parent, token, log_prob, total, status))
