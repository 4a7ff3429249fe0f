""""""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.ops import op
from heedful.shapes import Float, Int


class Candidates(NamedTuple):
    """Continuations (beams, C) of beams, best first; -inf in `cumulative_log_probs` where there is none."""

    cumulative_log_probs: NDArray[
        np.float64
    ]  # what they are ranked by: log-probabilities, after the rules
    log_probs: NDArray[np.float64]  # of the last token alone, as the model has it
    tokens: NDArray[np.int64]
    rows: NDArray[np.int64]  # the hypotheses they continue, as rows of the batch
    num_missing: NDArray[np.int64]  # tokens they still owe to constraints

    def map_arrays(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Candidates:
        """Change every table in the same way."""
        return Candidates(
            change(self.cumulative_log_probs),
            change(self.log_probs),
            change(self.tokens),
            change(self.rows),
            change(self.num_missing),
        )

    def select_beams(self, beams: NDArray[np.int64]) -> Candidates:
        """Those of some beams."""
        return self.map_arrays(lambda table: table[beams])

    def reorder(self, order: NDArray[np.int64]) -> Candidates:
        """Those at these places (beams, K) of each beam, in this order."""
        beams = np.arange(len(order))[:, None]
        return self.map_arrays(lambda table: table[beams, order])

    def drop(self, is_out: NDArray[np.bool_]) -> Candidates:
        """These, but some (beams, C) are none, and stand last."""
        cumulative_log_probs = np.where(is_out, -np.inf, self.cumulative_log_probs)
        return self._replace(cumulative_log_probs=cumulative_log_probs).reorder(
            np.argsort(is_out, axis=1, kind="stable")
        )

    def with_beams_replaced(self, beams: NDArray[np.int64], replacements: Candidates) -> Candidates:
        """These, but as many others for some beams."""
        tables: list[NDArray[Any]] = [table.copy() for table in self]
        for table, other in zip(tables, replacements, strict=True):
            table[beams] = other
        return Candidates(*tables)


def eos_candidates(
    cumulative_log_probs: NDArray[np.float64],
    log_probs: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    eos: int,
    count: int,
) -> Candidates:
    """So many candidates of beams that can only end; there is one for each of their rows."""
    order = np.argsort(-cumulative_log_probs, axis=1, kind="stable")[
        :, np.arange(count) % cumulative_log_probs.shape[1]
    ]
    found = Candidates(
        cumulative_log_probs, log_probs, np.full_like(rows, eos), rows, np.zeros_like(rows)
    )
    found = found.reorder(order)
    found.cumulative_log_probs[:, cumulative_log_probs.shape[1] :] = -np.inf
    return found


@op
def find_candidates(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: NDArray[np.float64],
    num_candidates: int,
) -> Candidates:
    """Return the best continuations of each beam, ranked by what the processors allow."""
    dtype = torch.promote_types(model_log_probs.dtype, torch.float32)
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, dtype)
    best, indices = rank_all(allowed_log_probs, totals, num_candidates)
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device)[:, None]
    vocab_size = allowed_log_probs.size(1)
    return to_candidates(
        best, first_rows + indices // vocab_size, indices % vocab_size, model_log_probs
    )


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


# Choosing: which candidates of a beam end, which stay open?
#
# Those that end are put aside if they are among the best `width` of their bank; of the others the
# beam is dealt out, bank by bank in turn, the best of each first. Where beams of a sentence come in
# groups, they choose one after another, and each is shown how often a token was chosen before.


class BeamGroups(NamedTuple):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4).

    A group ranks by log P - strength * (how many hypotheses of earlier groups chose the token at
    this step); what a hypothesis is worth stays log P. One group is a plain beam.
    """

    num_groups: int = 1
    penalty: float = 0.5

    def group_size(self, beam_size: int) -> int:
        """How many hypotheses each group has."""
        if self.num_groups < 1 or beam_size % self.num_groups:
            raise ConfigError(
                "diversity.num_beam_groups",
                f"a beam of {beam_size} cannot be shared by {self.num_groups} groups",
                "choose a number of groups that divides the width",
            )
        return beam_size // self.num_groups


class BeamSelection(NamedTuple):
    """What became of the candidates of some beams."""

    candidates: Candidates
    is_finished: NDArray[np.bool_]  # (beams, C) those that end and are put aside
    open_indices: NDArray[np.int64]  # (beams, K) places of those that stay open
    cumulative_log_probs: NDArray[np.float64]  # (beams, K) of these; -inf where there is none


def select_candidates(candidates: Candidates, *, eos: int, beam_size: int) -> BeamSelection:
    """Deal out the beams among candidates in the order they stand."""
    is_real = candidates.cumulative_log_probs > -np.inf
    is_end = is_real & (candidates.tokens == eos)
    is_open = is_real & ~is_end
    if candidates.num_missing.any():
        ranks, turns = (
            _rank_within_bank(candidates.num_missing, is_real),
            _rank_within_bank(candidates.num_missing, is_open),
        )
        open_indices = np.lexsort((candidates.num_missing, turns, ~is_open))[:, :beam_size]
    else:
        ranks = np.arange(is_real.shape[1])
        open_indices = np.argsort(~is_open, axis=1, kind="stable")[:, :beam_size]
    cumulative_log_probs = np.where(is_open, candidates.cumulative_log_probs, -np.inf)
    beams = np.arange(len(open_indices))[:, None]
    return BeamSelection(
        candidates,
        is_end & (ranks < beam_size),
        open_indices,
        cumulative_log_probs[beams, open_indices],
    )


def apply_diversity_penalty(
    candidates: Candidates,
    sentence_ids: NDArray[np.int64],
    token_counts: list[Counter[int]],
    penalty: float,
) -> Candidates:
    """Order candidates by what they are worth to a group that knows what others chose."""
    counts = [
        [token_counts[sentence][token] for token in tokens]
        for sentence, tokens in zip(sentence_ids.tolist(), candidates.tokens.tolist(), strict=True)
    ]
    cost = penalty * np.array(counts, dtype=np.float64).reshape(
        candidates.cumulative_log_probs.shape
    )
    order = np.argsort(cost - candidates.cumulative_log_probs, axis=1, kind="stable")
    return candidates.reorder(order)


def count_selected_tokens(
    token_counts: list[Counter[int]], sentence_ids: NDArray[np.int64], selection: BeamSelection
) -> None:
    """Count the tokens that a group has chosen."""
    for beam, sentence in enumerate(sentence_ids.tolist()):
        tokens = selection.candidates.tokens[beam]
        token_counts[sentence].update(tokens[selection.is_finished[beam]].tolist())
        token_counts[sentence].update(
            tokens[selection.open_indices[beam]][
                selection.cumulative_log_probs[beam] > -np.inf
            ].tolist()
        )


def _rank_within_bank(banks: NDArray[np.int64], counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many that count stand before each in its own bank."""
    is_before = np.tri(banks.shape[1], k=-1, dtype=bool)
    same = banks[:, :, None] == banks[:, None, :]
    return (same & is_before & counts[:, None, :]).sum(axis=-1)


class BeamGroupsConfig(BaseConfig):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4)."""

    num_beam_groups: PositiveInt = 1
    """How many groups share the beam; 1 is a plain beam."""
    diversity_penalty: NonNegativeFloat = 0.5
    """What a token loses for each time an earlier group chose it at the same step."""

    def build(self) -> BeamGroups:
        """Make the groups."""
        return BeamGroups(self.num_beam_groups, self.diversity_penalty)
