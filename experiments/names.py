"""Names that no training sentence contains: does copying translate them?

Claim: a decoder with a fixed vocabulary cannot write a word that it has never seen; one that
copies can. Measured: the share of the reserved names of the Latin corpus that translations
contain, apart for sentences whose names all have their English form and for those with an
inflected one, which copying alone cannot bring to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from experiments import heading, row
from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.latin.corpus import reserved_names
from heedful.runs import load


class NamedSentence(NamedTuple):
    """A sentence with names that no training sentence contains."""

    source: str
    names: set[str]  # as the target has them
    is_inflected: bool  # whether the source has one of them in another form


def sentences_with_unseen_names() -> Iterator[NamedSentence]:
    """Yield the sentences of the split `names` of the Latin corpus."""
    reserved = reserved_names()
    for source, target in get_corpus("latin").pairs("names"):
        words = set(source.strip(".?!").replace(",", "").split())
        names = {name for name in reserved if name in target}
        yield NamedSentence(source, names, not names <= words)


def count_right(sentences: Sequence[NamedSentence], outputs: Sequence[str]) -> tuple[int, int]:
    """Return how many names the outputs contain, and how many there are."""
    results = [
        name in output
        for sentence, output in zip(sentences, outputs, strict=True)
        for name in sentence.names
    ]
    return sum(results), len(results)


def main(
    runs: Annotated[list[Path], typer.Argument(help="folders written by `heedful train`")],
    *,
    num_sentences: Annotated[int, typer.Option(help="sentences of each kind", min=1)] = 500,
    device: Annotated[str, typer.Option(help="cpu, cuda ...")] = "auto",
) -> None:
    """Print the share of never-seen names that runs translate.

    Example: python -m experiments.names runs/copying runs/plain --num-sentences 100
    """
    typer.echo(heading(["run", "names as in the source", "in sentences with an inflected name"]))
    for run in runs:
        translator, cells = load(run, device=device), [run.name]
        for is_inflected in (False, True):
            sentences = sentences_with_unseen_names()
            of_kind = (item for item in sentences if item.is_inflected == is_inflected)
            examples = list(islice(of_kind, num_sentences))
            outputs = [item.text for item in translator.predict(item.source for item in examples)]
            right, total = count_right(examples, outputs)
            cells.append(f"{100 * right / total:.1f} % of {total}")
        typer.echo(row(cells))


if __name__ == "__main__":
    typer.run(main)
