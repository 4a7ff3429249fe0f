"""Draw the pictures of docs/course/gallery.md that no other command writes.

python -m tools.draw_gallery flops          BLEU against training FLOPs, from the published results
python -m tools.draw_gallery captions RUN   captions good and bad, of a run that is not done yet

The others come from the command beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.errors import check
from heedful.plotting.svg import join_documents
from heedful.results.pages import plot_learning_vs_flops, read_summaries
from heedful.runs import Run, load

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "course" / "images"
FILES = {"flops": "bleu-flops.svg", "captions": "captions.svg"}
RESULT = "deck001-table2-de-en"
NUM_EXAMPLES = 2  # of each kind


def main(words: Sequence[str]) -> None:
    """Draw one of the pictures."""
    kind, *runs = words
    drawn = {"flops": draw_flops, "captions": draw_captions}[kind](*map(Path, runs))
    path = IMAGES / FILES[kind]
    path.write_text(drawn, encoding="utf-8")
    print(f"wrote {path.name}")


def draw_flops() -> str:
    """Return a plot of BLEU against FLOPs, as of the table of deck 001."""
    drawn = plot_learning_vs_flops(read_summaries()[RESULT])
    assert drawn is not None
    return drawn


def draw_captions(run: Path) -> str:
    """Return images of the test set with right captions, and some with wrong ones."""
    recipe = Run(run).read_recipe()
    examples = recipe.task.data.read_examples(recipe.data.test)
    captioner: Any = load(run, device="cpu")
    captions = list(captioner.predict(example.source for example in examples))
    references = [example.target for example in examples]
    pairs = list(zip(captions, references, strict=True))
    right = [pair for pair in pairs if pair[0].text == pair[1]]
    wrong = [pair for pair in pairs if pair[0].text != pair[1]]
    chosen = [*right[:NUM_EXAMPLES], *wrong[:NUM_EXAMPLES]]
    hint = "train it for fewer steps"
    check(len(chosen) == 2 * NUM_EXAMPLES, str(run), "has too few wrong captions", hint)
    print(f"{len(right)} of {len(pairs)} captions are right")
    return join_documents([_titled(*pair).to_svg() for pair in chosen], columns=2)


def _titled(caption: Any, reference: str) -> Any:
    is_right = caption.text == reference
    title = "good" if is_right else f"bad: the image has {reference}"
    return replace(caption.attention, title=title)


if __name__ == "__main__":
    main(sys.argv[1:])
