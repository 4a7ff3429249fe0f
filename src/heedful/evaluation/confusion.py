"""Confusion matrices of labels: sums over batches, tables of precision and recall, a page.

Row r, column p counts what has the reference label r and the predicted label p.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self
from xml.etree.ElementTree import Element

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import MAX_CHOICES, DataError, check, quote_names
from heedful.evaluation.base import Array
from heedful.plotting import html
from heedful.plotting.svg import escape_invisible
from heedful.shapes import Int, Scalar

_MAX_CONFUSIONS = 30  # listed on the page
_INTRO = (
    "Point at a reference label to see what it was predicted as, at a predicted label to see what "
    "it was, or at a cell to see one pair. A darker shade is a larger fraction of the {unit} with "
    "the reference label. Click or tap to keep a view; arrow keys move, Escape resets."
)
LabelCounts = tuple[str, int, int, int]
"""A label with its true positives, false positives and false negatives."""


# ----- validation: sums over batches


def confusion_sums(
    loss: Scalar,
    num_losses: Int[Tensor, ""],
    predicted: Int[Tensor, "M"],
    labels: Int[Tensor, "M"],
    num_labels: int,
) -> Tensor:
    """Return summed loss, how many labels it has, and confusion counts, unknown labels last.

    Unknown labels are below 0; the model gives them no probability, so the loss leaves them out.
    """
    rows = torch.where(labels >= 0, labels, num_labels)
    counts = torch.bincount(rows * num_labels + predicted, minlength=(num_labels + 1) * num_labels)
    return torch.cat([loss[None], num_losses[None], counts]).double().cpu()


def finalize_confusion(sums: Tensor) -> dict[str, float]:
    """Return loss, accuracy and macro-F1, the mean over labels of the references.

    Unknown labels are errors, and one label of F1 0 together. The loss is NaN if no label is known.
    """
    loss, num_losses, *cells = sums.tolist()
    num_labels = math.isqrt(len(cells))  # of num_labels * (num_labels + 1) cells
    confusion = np.reshape(cells, (num_labels + 1, num_labels))
    references, correct = confusion.sum(axis=1), np.diag(confusion)
    errors = confusion.sum(axis=0) - correct, references[:-1] - correct
    counts = np.vstack([np.stack([correct, *errors], axis=1), (0, 0, references[-1])])
    return {
        "loss": loss / num_losses if num_losses else math.nan,
        "accuracy": float(correct.sum()) / max(float(references.sum()), 1),
        "macro-f1": float(mean_f1(counts[references > 0])),
    }


def format_label_metrics(metrics: Mapping[str, float]) -> str:
    """Return the metrics of a validation in one line."""
    others = dict(metrics)
    loss, accuracy, f1 = (others.pop(name) for name in ("loss", "accuracy", "macro-f1"))
    return (
        f"validation loss {loss:.4f}, accuracy {100 * accuracy:.1f} %, macro-F1 {100 * f1:.1f}"
        + "".join(f", {name} {score:.2f}" for name, score in others.items())
    )


def describe_unknown_labels(
    train_labels: Collection[str], references: Sequence[str], name: str, *, location: str = ""
) -> Iterator[str]:
    """Yield a line about labels that training lacks, if there are any; `name` is their plural.

    With a location, it is an error if training lacks all of them.
    """
    unknown = Counter(label for label in references if label not in train_labels)
    if not unknown:
        return
    names = quote_names(sorted(unknown)[:MAX_CHOICES])
    message = f"the training data has none of these {name}: {names}"
    hint = f"give data with {name} such as {quote_names(sorted(train_labels)[:MAX_CHOICES])}"
    check(not location or unknown.total() < len(references), location, message, hint, DataError)
    count = f"{unknown.total():,} of {len(references):,} {name}"
    yield f"{count} not in the training data, errors that the loss leaves out: {names}"


def mean_f1(counts: Array) -> Array:
    """Return the mean F1 (*B) of counts (*B, labels, 3) over labels that occur."""
    true_positives, errors = counts[..., 0], counts[..., 1] + counts[..., 2]
    denominator = 2 * true_positives + errors
    f1 = 2 * true_positives / np.maximum(denominator, 1)
    return f1.sum(axis=-1) / np.maximum((denominator > 0).sum(axis=-1), 1)


# ----- evaluation: tables and a page


def format_label_table(unit: str, rows: Iterable[LabelCounts]) -> Iterator[str]:
    """Yield a table of precision, recall and F1 of each label, in percent."""
    rows = list(rows)
    label_width = max([len("label"), *(len(label) for label, *_ in rows)])
    width = max(len(unit), 5)
    yield f"{'label':<{label_width}}  {unit:>{width}}  precision  recall     F1"
    for label, true, false, missed in rows:
        precision = 100 * true / max(true + false, 1)
        recall = 100 * true / max(true + missed, 1)
        f1 = 200 * true / max(2 * true + false + missed, 1)
        yield (
            f"{label:<{label_width}}  {true + missed:{width}}  {precision:9.2f}  {recall:6.2f}  "
            f"{f1:5.1f}"
        )


class ConfusionMatrix(NamedTuple):
    """How often each reference label was predicted as each label."""

    unit: str  # what has a label, in the plural
    labels: Sequence[str]
    counts: NDArray[np.int64]  # (reference, predicted)

    @classmethod
    def from_labels(cls, unit: str, references: Iterable[str], predicted: Iterable[str]) -> Self:
        """Count pairs of labels."""
        pairs = Counter(zip(references, predicted, strict=True))
        labels = sorted({label for pair in pairs for label in pair})
        counts = np.array([[pairs[row, column] for column in labels] for row in labels])
        return cls(unit, labels, counts.reshape(len(labels), len(labels)))

    def format_table(self) -> Iterator[str]:
        """Yield a table of precision, recall and F1 of each label."""
        true = np.diag(self.counts)
        false, missed = self.counts.sum(axis=0) - true, self.counts.sum(axis=1) - true
        columns = (column.tolist() for column in (true, false, missed))
        return format_label_table(self.unit, zip(self.labels, *columns, strict=True))

    def errors(self) -> list[tuple[str, str, int]]:
        """Return reference label, predicted label and count of all confusions, largest first."""
        pairs = np.argwhere(self.counts * (1 - np.eye(len(self.labels), dtype=np.int64))).tolist()
        errors = [(self.labels[r], self.labels[p], int(self.counts[r, p])) for r, p in pairs]
        return sorted(errors, key=lambda error: -error[2])

    def render_page(self, title: str) -> str:
        """Return a page with the matrix, the most frequent confusions, and a table of labels."""
        errors = [
            [html.row_header(true), html.element("td", wrong), html.element("td", f"{count:,}")]
            for true, wrong, count in self.errors()[:_MAX_CONFUSIONS]
        ]
        heads = [html.column_header(name) for name in ("reference", "predicted", self.unit)]
        caption = f"Most frequent of {len(self.errors()):,} confusions"
        content = [
            html.element("p", _INTRO.format(unit=self.unit), css_class="intro"),
            html.element("div", attributes={"id": "figures"}),
            html.element("section", html.table(heads, errors, css_class="plain", caption=caption)),
            html.element("section", self._label_table()),
        ]
        return html.render_page(
            html.serialize(html.element("main", *content)),
            title=title,
            styles=["attention_map.css", "run.css"],
            scripts=["attention-page.js"],
            data={"maps": self._page_data()},
        )

    def _page_data(self) -> dict[str, object]:
        """Return the data that attention-page.js draws: fractions of each row, with the counts."""
        labels = [escape_invisible(label) for label in self.labels]
        totals = self.counts.sum(axis=1)
        fractions = self.counts / np.maximum(totals, 1)[:, None]
        view = {
            "caption": "",
            "names": ["reference", "predicted"],
            "note": f"Numbers of {self.unit}; a row is a reference label, a column a prediction.",
            "source": labels,
            "target": labels,
            "weights": [[float(f"{value:.4g}") for value in row] for row in fractions.tolist()],
            "texts": [
                [f"{count:,}" if count else "" for count in row] for row in self.counts.tolist()
            ],
            "notes": [f"of {total:,}" for total in totals.tolist()],
        }
        return {"form": "map", "sentences": [{"title": "", "output": "", "views": [view]}]}

    def _label_table(self) -> Element:
        head, *rows = self.format_table()
        names = head.split()
        cells = [
            [html.row_header(label), *(html.element("td", number) for number in numbers)]
            for label, *numbers in (row.rsplit(maxsplit=len(names) - 1) for row in rows)
        ]
        return html.table(
            [html.column_header(name) for name in names],
            cells,
            css_class="plain",
            caption="Precision, recall and F1 of each label, in percent",
        )
