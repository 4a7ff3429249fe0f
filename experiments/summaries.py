"""Baselines for SciTLDR: the first sentence of each abstract, and the best one.

Reads the JSON lines of SciTLDR-A (Cachola et al. 2020) and writes documents, references and the
outputs of the baselines as lines, which `heedful evaluate` and `heedful compare` read. A document
with fewer references than another repeats its first, which changes no ROUGE score.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from experiments import heading, row
from heedful.data.text_files import read_lines
from heedful.evaluation.base import References
from heedful.evaluation.registry import ALL_METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.recipes import load_recipe
from heedful.storage.atomic import write_text

RECIPE = Path(__file__).parent / "summarizers" / "transformer.yaml"


class Document(NamedTuple):
    """A document of SciTLDR."""

    sentences: Sequence[str]
    is_oracle: Sequence[int]  # 1 for the sentence closest to the references
    references: Sequence[str]


def read_documents(path: str) -> list[Document]:
    """Read a file of SciTLDR."""
    records = map(json.loads, read_lines(path))
    return [Document(r["source"], r["source_labels"], r["target"]) for r in records]


def baselines(documents: Sequence[Document]) -> dict[str, list[str]]:
    """Return the outputs of each baseline; the references are those of a perfect system."""
    return {
        "lead-1": [document.sentences[0] for document in documents],
        "oracle": [
            document.sentences[list(document.is_oracle).index(1)] if 1 in document.is_oracle else ""
            for document in documents
        ],
        "reference": [document.references[0] for document in documents],
    }


def write_files(
    documents: Sequence[Document], outputs: Mapping[str, Sequence[str]], folder: Path
) -> None:
    """Write documents, references and outputs, one text per line."""
    files = {"documents": [" ".join(document.sentences) for document in documents], **outputs}
    for index in range(max(len(document.references) for document in documents)):
        files[f"references-{index + 1}"] = [
            (*document.references, *document.references[:1] * index)[index]
            for document in documents
        ]
    for name, lines in files.items():
        write_text(folder / name, "".join(f"{' '.join(line.split())}\n" for line in lines))


def main(
    path: Annotated[str, typer.Argument(help="JSON lines of SciTLDR-A, such as dev.jsonl.gz")],
    *,
    output_dir: Annotated[Path, typer.Option(help="write lines to this folder")] = Path("scitldr"),
) -> None:
    """Write SciTLDR as lines, and score its baselines and its references.

    Example: python -m experiments.summaries dev.jsonl.gz --output-dir scitldr
    """
    documents = read_documents(path)
    outputs = baselines(documents)
    output_dir.mkdir(parents=True, exist_ok=True)
    write_files(documents, outputs, output_dir)
    names = load_recipe(RECIPE).evaluation.metrics
    metrics = [ALL_METRICS[name] for name in names]
    sources = [" ".join(document.sentences) for document in documents]
    references = [document.references for document in documents]
    typer.echo(f"{len(documents)} documents of {path}, 95 % bootstrap intervals\n")
    typer.echo(heading(["system", *(metric.name for metric in metrics)]))
    for name, texts in outputs.items():
        cells = []
        for metric in metrics:
            compared: References = sources if metric.compares_with == "sources" else references
            score, interval, *_ = score_outputs(metric, texts, compared, confidence=True)
            low, high, _ = interval or (score.value, score.value, 0)
            cells.append(f"{score.value:.1f} [{low:.1f}, {high:.1f}]")
        typer.echo(row([name, *cells]))


if __name__ == "__main__":
    typer.run(main)
