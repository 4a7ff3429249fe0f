"""Training of word aligners in one direction or both, and the links that they predict."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from heedful.aligners.corpus import TranslationTable, build_corpus, iter_batches
from heedful.aligners.links import Link, Symmetrization, symmetrize
from heedful.aligners.models import DiagonalAligner, HMMAligner, IBMModel1, WordAligner
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.tokenization.ragged_array import RaggedArray

AlignmentDirection = Literal["forward", "reverse", "both"]


class ParallelTokens(NamedTuple):
    """Token ids of a parallel corpus."""

    source: RaggedArray
    target: RaggedArray

    def reversed(self) -> "ParallelTokens":
        """Return the same pairs with source and target exchanged."""
        return ParallelTokens(self.target, self.source)


def number_words(corpora: Iterable[Sequence[Sequence[Sequence[str]]]]) -> list[ParallelTokens]:
    """Replace the words of both sides by numbers, which are the same in all corpora."""
    ids: tuple[dict[str, int], dict[str, int]] = ({}, {})
    return [
        ParallelTokens(
            *(
                RaggedArray.from_sequences(
                    [numbers.setdefault(word, len(numbers)) for word in words] for words in side
                )
                for numbers, side in zip(ids, corpus, strict=True)
            )
        )
        for corpus in corpora
    ]


class EMProgress(NamedTuple):
    """One step of expectation maximization."""

    model: str
    direction: AlignmentDirection
    iteration: int
    num_iterations: int
    log_likelihood: float  # before the step
    num_targets: int

    def __str__(self) -> str:
        bits = -self.log_likelihood / max(1, self.num_targets) / np.log(2)
        step = f"iteration {self.iteration}/{self.num_iterations}"
        return f"{self.direction}, {self.model}: {step}, {bits:.3f} bits per word"


OnIteration = Callable[[EMProgress], None]


class AlignerConfigBase(BaseConfig):
    """Settings that all aligners have."""

    type: str
    num_iterations: PositiveInt = 5
    """Steps of expectation maximization."""
    alpha: PositiveFloat | None = None
    """Dirichlet prior of the translation probabilities (variational Bayes), such as 0.01, which
    favors few translations per word; maximum likelihood if null."""

    @abstractmethod
    def stages(
        self, table: TranslationTable, max_length: int
    ) -> Iterator[tuple[str, int, WordAligner]]:
        """Yield the models to train one after the other, each with its name and iterations."""

    def train(
        self,
        corpus: ParallelTokens,
        *,
        direction: AlignmentDirection = "forward",
        on_iteration: OnIteration = lambda progress: None,
    ) -> WordAligner:
        """Train on a corpus; all models use the same translation table."""
        table, batches = build_corpus(*corpus)
        max_length = int(max(corpus.source.lengths, default=1))
        num_targets = sum(int(batch.target_lengths.sum()) for batch in batches)
        for name, num_iterations, aligner in self.stages(table, max_length):
            for iteration in range(1, num_iterations + 1):
                log_likelihood = aligner.em_step(batches) if batches else 0.0
                counts = iteration, num_iterations, log_likelihood, num_targets
                on_iteration(EMProgress(name, direction, *counts))
        return aligner


class IBMModel1Config(AlignerConfigBase):
    """IBM Model 1: word order does not matter (Brown et al. 1993)."""

    type: Literal["ibm1"] = "ibm1"

    @override
    def stages(
        self, table: TranslationTable, max_length: int
    ) -> Iterator[tuple[str, int, WordAligner]]:
        yield "Model 1", self.num_iterations, IBMModel1(table, alpha=self.alpha)


class FastAlignConfig(AlignerConfigBase):
    """fast_align: links near the diagonal are more likely (Dyer et al. 2013)."""

    type: Literal["fast-align"] = "fast-align"
    null_prob: float = Field(default=0.08, gt=0, lt=1)
    """Probability that a target word has no link."""
    tension: PositiveFloat = 4.0
    """How strongly links favor the diagonal; the initial value if it is optimized."""
    optimize_tension: bool = True
    """Whether each iteration also estimates the tension."""

    @override
    def stages(
        self, table: TranslationTable, max_length: int
    ) -> Iterator[tuple[str, int, WordAligner]]:
        aligner = DiagonalAligner(
            table,
            null_prob=self.null_prob,
            tension=self.tension,
            optimizes_tension=self.optimize_tension,
            alpha=self.alpha,
        )
        yield "fast_align", self.num_iterations, aligner


class HMMAlignerConfig(AlignerConfigBase):
    """Hidden Markov model: a link depends on the one before (Vogel et al. 1996)."""

    type: Literal["hmm"] = "hmm"
    num_model1_iterations: NonNegativeInt = 5
    """Steps of IBM Model 1 before, from which the translation probabilities start."""
    null_prob: float = Field(default=0.2, gt=0, lt=1)
    """Probability that a target word has no link."""
    uniform_jump_prob: float = Field(default=0.1, gt=0, lt=1)
    """Share of jumps that may go anywhere, so that none is impossible."""

    @override
    def stages(
        self, table: TranslationTable, max_length: int
    ) -> Iterator[tuple[str, int, WordAligner]]:
        yield "Model 1", self.num_model1_iterations, IBMModel1(table, alpha=self.alpha)
        aligner = HMMAligner(
            table,
            max_length=max_length,
            null_prob=self.null_prob,
            uniform_jump_prob=self.uniform_jump_prob,
            alpha=self.alpha,
        )
        yield "HMM", self.num_iterations, aligner


AlignerConfig = Annotated[
    IBMModel1Config | FastAlignConfig | HMMAlignerConfig,
    Field(discriminator="type"),
    with_default_type("hmm"),
]


def predict_links(aligner: WordAligner, corpus: ParallelTokens) -> list[set[Link]]:
    """Link each target token with its most likely source token, unless null is more likely.

    The HMM is decoded by the posteriors of single links, not by the best path (Liang et al. 2006).
    """
    links: list[set[Link]] = [set() for _ in range(len(corpus.source))]
    for batch in iter_batches(aligner.table, *corpus):
        best = aligner.expect(batch).posteriors.argmax(axis=-1).tolist()  # from 1; 0 is null
        for row, positions in zip(batch.rows.tolist(), best, strict=True):
            links[row] = {Link(i - 1, j) for j, i in enumerate(positions) if i}
    return links


def align_corpus(
    config: AlignerConfigBase,
    corpus: ParallelTokens,
    *,
    train_corpora: Sequence[ParallelTokens] = (),
    direction: AlignmentDirection = "both",
    symmetrization: Symmetrization = "grow-diag-final-and",
    on_iteration: OnIteration = lambda progress: None,
) -> list[set[Link]]:
    """Train on a corpus, and on others with the same vocabulary; return the links of the first."""
    sides = (RaggedArray.concatenate(side) for side in zip(corpus, *train_corpora, strict=True))
    training = ParallelTokens(*sides)
    predicted = []
    if direction != "reverse":
        aligner = config.train(training, direction="forward", on_iteration=on_iteration)
        predicted.append(predict_links(aligner, corpus))
    if direction != "forward":
        aligner = config.train(training.reversed(), direction="reverse", on_iteration=on_iteration)
        backward = predict_links(aligner, corpus.reversed())
        predicted.append([{Link(*link[::-1]) for link in links} for links in backward])
    if len(predicted) == 1:
        return predicted[0]
    rows = zip(*predicted, strict=True)
    return [symmetrize(forward, reverse, symmetrization) for forward, reverse in rows]
