"""Draw the figures of the pages in docs/attention: what each mechanism can express.

    python -m tools.draw_attention [PAGE.md ...]

A page is the only input: the mechanism drawn is the one in the first YAML block of the page.

- Scores, alignments, readouts and auxiliary losses translate one sentence: six Latin words, nine
  English ones, and the source word of each. Word vectors are random; the queries and the parameters
  of the mechanism are trained for forty steps so that each query retrieves its source word.
- Features read the Latin sentence in order: the same query is used six times, so only the attention
  state can tell the steps apart.
- Positional encodings show the similarity of positions by the cosine of their vectors, untrained;
  a page that names the figure PAGE-values.svg has the vectors, dimension against position.
- The sentinel stands for the articles, which Latin does not have; each English word has its own.
- Masks are the dictionary `examples` in the Python of the page; visible positions share evenly.
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

from heedful.attention.alignments import AlignmentLossInputs
from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.attention.sentinel import SentinelAttention
from heedful.inspection.attention_map import AttentionMap, render_svg

PAGES = Path(__file__).resolve().parents[1] / "docs" / "attention"
MASKS = PAGES / "masks.md"
SENTINEL = PAGES / "sentinel.md"
SOURCE = ["Servum", "puella", "in", "via", "videt", "."]
SIZE = 16
SEED = 3
NUM_POSITIONS = 12
ENCODING_SIZE = 64
NUM_VALUE_POSITIONS, VALUE_SIZE = 40, 32
VALUE_CELL = 8  # pixels
COSINE_SCALE = 10  # of the softmax over cosines of positional encodings


class Exercise(NamedTuple):
    """The source word that each query should retrieve, and how queries are trained."""

    word_pairs: Sequence[tuple[str, str]]
    num_queries: int
    num_steps: int
    learning_rate: float


TRANSLATION = Exercise(
    word_pairs=[
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
    num_queries=9,
    num_steps=40,
    learning_rate=0.03,
)
READING = Exercise(
    word_pairs=[(word, word) for word in SOURCE],
    num_queries=1,
    num_steps=150,
    learning_rate=0.01,
)


def main(names: Sequence[str]) -> None:
    """Draw these pages, or all of them."""
    for page in [Path(name).resolve() for name in names] or sorted(PAGES.rglob("*.md")):
        drawings = [(path, render_svg(drawn)) for path, drawn in figures_of(page)]
        for path, drawing in [*drawings, *value_figures(page)]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(drawing, encoding="utf-8")
            print(f"{page.relative_to(PAGES)}: drew {path.name}")


def figures_of(page: Path) -> Iterator[tuple[Path, AttentionMap]]:
    """Yield the path and the attention map of each figure on a page."""
    text, path = page.read_text(encoding="utf-8"), figure_path(page)
    if page == MASKS:
        for name, mask in mask_examples(text).items():
            yield path.with_name(f"masks-{name}.svg"), uniform_map(mask)
    elif path.name not in text:
        return
    elif page == SENTINEL:
        yield path, sentinel_map(attention_config(text) or AttentionConfig())
    elif attention := attention_config(text):
        exercise = READING if page.parent.name == "features" else TRANSLATION
        yield path, fitted_map(attention, exercise)
    elif encoding := model_setting(text, "encoder", "positional_encoding"):
        config = TypeAdapter(PositionalEncodingConfig).validate_python(encoding)
        yield path, similarity_map(config)


def value_figures(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the path and the SVG of the vectors of a positional encoding that a page shows."""
    text, path = page.read_text(encoding="utf-8"), figure_path(page)
    path = path.with_stem(f"{path.stem}-values")
    encoding = model_setting(text, "encoder", "positional_encoding")
    if encoding and path.name in text:
        config = TypeAdapter(PositionalEncodingConfig).validate_python(encoding)
        yield (
            path,
            render_values(encode_positions(config, NUM_VALUE_POSITIONS, VALUE_SIZE).tolist()),
        )


def render_values(rows: Sequence[Sequence[float]]) -> str:
    """Draw numbers from -1 (blue) to 1 (orange): positions from left to right, dimensions down."""
    width, height = len(rows) * VALUE_CELL, len(rows[0]) * VALUE_CELL
    outer_width, outer_height = width + 50, height + 40
    cell = f"h{VALUE_CELL}v{VALUE_CELL}h-{VALUE_CELL}z"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{outer_width}" '
        f'height="{outer_height}" viewBox="-40 -10 {outer_width} {outer_height}">',
        f"<title>Positional encoding: {len(rows[0])} dimensions, {len(rows)} positions</title>",
        f'<path d="M-40-10h{outer_width}v{outer_height}h-{outer_width}z" fill="#fff"/>',
    ]
    for position, vector in enumerate(rows):
        for dimension, value in enumerate(vector):
            color = "#e66100" if value > 0 else "#1a5fb4"
            parts.append(
                f'<path d="M{position * VALUE_CELL} {dimension * VALUE_CELL}{cell}" '
                f'fill="{color}" opacity="{abs(value):.2f}"/>'
            )
    style = 'font-family="sans-serif" font-size="12"'
    parts += [
        f'<text x="{width / 2}" y="{height + 20}" text-anchor="middle" {style}>position</text>',
        f'<text transform="rotate(-90)" x="{-height / 2}" y="-14" text-anchor="middle" {style}>'
        "dimension</text>",
        "</svg>\n",
    ]
    return "\n".join(parts)


def figure_path(page: Path) -> Path:
    """Return the path of the figure of a page."""
    return PAGES / "images" / f"{page.parent.name}-{page.stem}.svg"


def code_blocks(text: str, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def model_setting(text: str, part: str, setting: str) -> Any:
    """Return a setting of one part of the model from the first YAML block that has it."""
    models = (yaml.safe_load(block).get("model", {}) for block in code_blocks(text, "yaml"))
    values = (model.get(part, {}).get(setting) for model in models)
    return next((value for value in values if value), None)


def attention_config(text: str) -> AttentionConfig | None:
    """Return the decoder attention in the YAML of a page, or None."""
    settings = model_setting(text, "decoder", "attention")
    return AttentionConfig.model_validate(settings) if settings else None


def mask_examples(text: str) -> dict[str, Tensor]:
    """Run the Python of a page and return its `examples`."""
    scope: dict[str, Any] = {}
    exec("\n".join(code_blocks(text, "python")), scope)
    return scope["examples"]


def fitted_map(config: AttentionConfig, exercise: Exercise = TRANSLATION) -> AttentionMap:
    """Train a mechanism on an exercise and return its attention map."""
    torch.manual_seed(SEED)
    count, learning_rate = exercise.num_queries, exercise.learning_rate
    parameters = nn.Parameter(torch.randn(1, count, SIZE, dtype=torch.double) / 4)
    words = torch.randn(1, len(SOURCE), SIZE, dtype=torch.double)
    attention = config.build(query_size=SIZE, memory_size=SIZE).double()
    queries = parameters.expand(1, len(exercise.word_pairs), SIZE)
    optimizer = torch.optim.Adam([parameters, *attention.parameters()], lr=learning_rate)
    for _ in range(exercise.num_steps):
        loss = _loss(attention, queries, words, exercise)
        if loss.requires_grad:  # a score of positions alone has no parameters
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    weights = _attend(attention.eval(), queries, words).weights[0].detach().numpy()
    return AttentionMap(SOURCE, [word for word, _ in exercise.word_pairs], weights)


def sentinel_map(config: AttentionConfig) -> AttentionMap:
    """Train a mechanism to retrieve source words, and for articles a sentinel, one per query."""
    torch.manual_seed(SEED)
    pairs, double = TRANSLATION.word_pairs, torch.double
    queries = nn.Parameter(torch.randn(len(pairs), 1, SIZE, dtype=double) / 4)
    words = torch.randn(len(SOURCE), SIZE, dtype=double)
    sentinels = torch.randn(len(pairs), SIZE, dtype=double)
    key = nn.Linear(SIZE, SIZE, bias=False).double()
    attention = SentinelAttention(config.build(query_size=SIZE, memory_size=SIZE).double())
    is_article = torch.tensor([word.lower() == "the" for word, _ in pairs])
    retrieved = words[[SOURCE.index(word) for _, word in pairs]]
    targets = torch.where(is_article.unsqueeze(-1), sentinels, retrieved)
    parameters = [queries, *attention.parameters(), *key.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=TRANSLATION.learning_rate)
    for _ in range(TRANSLATION.num_steps + 1):
        memory = attention.build_memory(words.expand(len(pairs), -1, -1))
        output = attention(queries, attention.append_sentinel(memory, sentinels, key(sentinels)))
        optimizer.zero_grad()
        (output.context.squeeze(1) - targets).square().mean(dim=-1).sum().backward()
        optimizer.step()
    weights = torch.cat([output.weights.squeeze(1), output.alignment.gates], dim=-1)
    labels = [word for word, _ in pairs]
    return AttentionMap([*SOURCE, "sentinel"], labels, weights.detach().numpy())


def encode_positions(config: PositionalEncodingConfig, count: int, size: int) -> Tensor:
    """Return the vectors of the first positions, one per row."""
    torch.manual_seed(SEED)
    encoding = config.build(embedding_size=size).encoding
    return encoding(torch.arange(count), torch.double).detach()


def similarity_map(config: PositionalEncodingConfig) -> AttentionMap:
    """Return the softmax over cosines between positional encodings."""
    directions = normalize(encode_positions(config, NUM_POSITIONS, ENCODING_SIZE), dim=-1)
    weights = (COSINE_SCALE * directions @ directions.mT).softmax(dim=-1)
    labels = [str(position) for position in range(NUM_POSITIONS)]
    return AttentionMap(labels, labels, weights.numpy())


def uniform_map(mask: Tensor) -> AttentionMap:
    """Return uniform weights over the visible positions of the first row of a mask."""
    size = len(SOURCE)
    visible = mask.expand(*mask.shape[:-2], size, size).reshape(-1, size, size)[0].double()
    weights = visible / visible.sum(dim=-1, keepdim=True).clamp(min=1)
    return AttentionMap(SOURCE, SOURCE, weights.numpy())


def _attend(attention: Attention, queries: Tensor, words: Tensor) -> AttentionOutput:
    mask = padding_mask(torch.tensor([len(SOURCE)]), len(SOURCE))
    memory = attention.build_memory(words, mask)
    return attention(queries, memory, attention.initial_state(memory))


def _loss(attention: Attention, queries: Tensor, words: Tensor, exercise: Exercise) -> Tensor:
    """Return the squared error of the contexts plus the auxiliary losses."""
    targets = words[:, [SOURCE.index(word) for _, word in exercise.word_pairs]]  # (1, T, V)
    output = _attend(attention, queries, words)
    context = output.context
    if context.dim() > words.dim():  # per-position readout: use the weighted sum
        context = (output.weights.unsqueeze(-1) * context).sum(dim=-2)
    log_likelihoods = -(context - targets).square().mean(dim=-1)  # (1, T)
    target_mask = torch.ones_like(log_likelihoods, dtype=torch.bool)
    loss_inputs = AlignmentLossInputs(
        output.alignment, log_likelihoods, target_mask, words[..., 0].isfinite()
    )
    return sum(attention.compute_auxiliary_losses(loss_inputs).values(), -log_likelihoods.sum())


if __name__ == "__main__":
    main(sys.argv[1:])
