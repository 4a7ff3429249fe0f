"""Draw the pictures of the pages in docs/attention: what each mechanism can express.

    python -m tools.draw_attention [PAGE.md ...]

A page is the only input: the mechanism drawn is the one that the page's first YAML chooses.

- Scores, alignments, readouts and penalties translate one sentence: six Latin words, nine English
  ones, and the word each should look at. Vectors of words are drawn at random; those of the
  questions, and whatever the mechanism itself can learn, are fitted for forty steps so that each
  question takes what it should. What a mechanism cannot express, its picture shows.
- Features read the Latin aloud: one question, the same for every word, is asked six times. Only
  what is known of the past can tell one answer from the next.
- Positions show how alike places are, by the angle between their vectors; nothing is fitted.
- Masks are the dictionary `examples` in the page's own Python; what is visible shares evenly.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.nn.functional import normalize

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.outputs import AlignmentLossInputs, AttentionOutput
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.inspection.attention_map import AttentionMap, render_svg

PAGES = Path(__file__).resolve().parents[1] / "docs" / "attention"
MASKS = PAGES / "masks.md"
SOURCE = ["Servum", "puella", "in", "via", "videt", "."]
SIZE = 16
SEED = 3
PLACES = 12  # that positions are drawn for
PLACE_SIZE = 64
SHARPNESS = 10  # what cosines of places are multiplied by before their softmax


class Exercise(NamedTuple):
    """Which word each question should take, and how it is learned."""

    wanted: Sequence[tuple[str, str]]
    num_questions: int
    num_steps: int
    learning_rate: float


TRANSLATION = Exercise(
    wanted=[
        ("The", "puella"),
        ("girl", "puella"),
        ("sees", "videt"),
        ("the", "Servum"),
        ("slave", "Servum"),
        ("in", "in"),
        ("the", "via"),
        ("street", "via"),
        (".", "."),
    ],
    num_questions=9,
    num_steps=40,
    learning_rate=0.03,
)
READING = Exercise(
    wanted=[(word, word) for word in SOURCE],
    num_questions=1,
    num_steps=150,
    learning_rate=0.01,
)


def main(names: Sequence[str]) -> None:
    """Draw these pages, or all of them."""
    for page in [Path(name).resolve() for name in names] or sorted(PAGES.rglob("*.md")):
        for picture, drawn in as_feed_forward(page):
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(render_svg(drawn), encoding="utf-8")
            print(f"{page.relative_to(PAGES)}: drew {picture.name}")


def as_feed_forward(page: Path) -> Iterator[tuple[Path, AttentionMap]]:
    """Give the pictures that a page shows: where each lies and what is on it."""
    text, picture = page.read_text(encoding="utf-8"), picture_of(page)
    if page == MASKS:
        for name, mask in mask_examples(text).items():
            yield picture.with_name(f"masks-{name}.svg"), even_map(mask)
    elif picture.name not in text:
        return
    elif attention := attention_settings(text):
        exercise = READING if page.parent.name == "features" else TRANSLATION
        yield picture, fitted_map(attention, exercise)
    elif positions := chosen(text, "encoder", "positions"):
        yield (
            picture,
            likeness_map(TypeAdapter(PositionalEncodingConfig).validate_python(positions)),
        )


def picture_of(page: Path) -> Path:
    """Where the picture of a page lies."""
    return PAGES / "images" / f"{page.parent.name}-{page.stem}.svg"


# --- what a page says ----------------------------------------------------------------------


def blocks(text: str, language: str) -> list[str]:
    """List the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def chosen(text: str, part: str, setting: str) -> Any:
    """Read a setting of one part of the model from the first YAML that has it."""
    models = (yaml.safe_load(block).get("model", {}) for block in blocks(text, "yaml"))
    return next((found for each in models if (found := each.get(part, {}).get(setting))), None)


def attention_settings(text: str) -> AttentionConfig | None:
    """Read the attention that the YAML of a page chooses, if it chooses one."""
    settings = chosen(text, "decoder", "attention")
    return AttentionConfig.model_validate(settings) if settings else None


def mask_examples(text: str) -> dict[str, Tensor]:
    """Run the Python of a page; give the masks that it calls its examples."""
    scope: dict[str, Any] = {}
    exec("\n".join(blocks(text, "python")), scope)
    return scope["examples"]


# --- what a picture shows ------------------------------------------------------------------


def fitted_map(config: AttentionConfig, exercise: Exercise = TRANSLATION) -> AttentionMap:
    """Let a mechanism learn an exercise; give the map of where its questions look."""
    torch.manual_seed(SEED)
    count, rate = exercise.num_questions, exercise.learning_rate
    questions = nn.Parameter(torch.randn(1, count, SIZE, dtype=torch.double) / 4)
    words = torch.randn(1, len(SOURCE), SIZE, dtype=torch.double)
    attention = config.build(query_size=SIZE, memory_size=SIZE).double()
    asked = questions.expand(1, len(exercise.wanted), SIZE)
    optimizer = torch.optim.Adam([questions, *attention.parameters()], lr=rate)
    for _ in range(exercise.num_steps):
        loss = _loss(attention, asked, words, exercise)
        if loss.requires_grad:  # a score of places alone has nothing to learn
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    weights = _ask(attention.eval(), asked, words).weights[0].detach().numpy()
    return AttentionMap(SOURCE, [word for word, _ in exercise.wanted], weights)


def likeness_map(config: PositionalEncodingConfig) -> AttentionMap:
    """Share the attention of each place among all, by how alike their vectors are."""
    torch.manual_seed(SEED)
    vectors = config.build_encoding(PLACE_SIZE)(torch.arange(PLACES), torch.double)
    directions = normalize(vectors.detach(), dim=-1)
    weights = (SHARPNESS * directions @ directions.mT).softmax(dim=-1)
    labels = [str(place) for place in range(PLACES)]
    return AttentionMap(labels, labels, weights.numpy())


def even_map(mask: Tensor) -> AttentionMap:
    """Share the attention of each word evenly among the words of the first row it may see."""
    size = len(SOURCE)
    visible = mask.expand(*mask.shape[:-2], size, size).reshape(-1, size, size)[0].double()
    weights = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
    return AttentionMap(SOURCE, SOURCE, weights.numpy())


def _ask(attention: Attention, questions: Tensor, words: Tensor) -> AttentionOutput:
    mask = padding_mask(torch.tensor([len(SOURCE)]), len(SOURCE))
    memory = attention.build_memory(words, mask)
    return attention(questions, memory, attention.initial_state(memory))


def _loss(attention: Attention, questions: Tensor, words: Tensor, exercise: Exercise) -> Tensor:
    """How far each question is from what it should take, and what the mechanism adds to that."""
    wanted = words[:, [SOURCE.index(word) for _, word in exercise.wanted]]  # (1, T, V)
    attended = _ask(attention, questions, words)
    context = attended.context
    if context.dim() > words.dim():  # one for every place: take their mean
        context = (attended.weights.unsqueeze(-1) * context).sum(dim=-2)
    log_likelihoods = -(context - wanted).square().mean(dim=-1)  # (1, T)
    everywhere = torch.ones_like(log_likelihoods, dtype=torch.bool)
    looked = AlignmentLossInputs(
        attended.alignment, log_likelihoods, everywhere, words[..., 0].isfinite()
    )
    return sum(attention.compute_auxiliary_losses(looked).values(), -log_likelihoods.sum())


if __name__ == "__main__":
    main(sys.argv[1:])
