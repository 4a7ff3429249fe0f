"""Draw the figures of docs/attention/captioning.md: where the words of one caption attend.

    python -m tools.draw_captions [SYSTEM ...]

An image has 3 x 3 gray cells, two of them colored; its caption names the colors in reading order.
The decoder of a system is the one in the YAML block under its heading on the page. It is trained
from scratch on random images, then captions an image that was held out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor

from heedful.data.text.batching import Batch, SourceBatch
from heedful.inspection.figures import CaptionAttention
from heedful.models.base import Seq2SeqModel
from heedful.models.captioning import CaptioningConfig
from heedful.tokenization.vocabulary import BOS, EOS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "attention" / "captioning.md"
GRID, CELL_PIXELS, SEED = (3, 3), 16, 1
GRAY = (0.75, 0.75, 0.75)
COLORS = {
    "red": (0.85, 0.1, 0.1),
    "blue": (0.1, 0.2, 0.85),
    "green": (0.1, 0.6, 0.2),
    "yellow": (0.95, 0.85, 0.1),
    "black": (0.05, 0.05, 0.05),
    "white": (1.0, 1.0, 1.0),
}
FIRST_WORD = 4  # after PAD, UNK, BOS and EOS
WORDS = ["a", "and", "square", *COLORS]
HELD_OUT = (("green", 2), ("red", 6))
NUM_STEPS, NUM_IMAGES, LEARNING_RATE = 600, 64, 5e-3


def main(systems: Sequence[str]) -> None:
    """Draw these systems, or all of the page."""
    for system, decoder in decoders_of_page().items():
        if systems and system not in systems:
            continue
        path = PAGE.parent / "images" / f"captioning-{system}.svg"
        path.write_text(caption_image(train(decoder)).to_svg(), encoding="utf-8")
        print(f"drew {path.name}")


def decoders_of_page() -> dict[str, dict[str, Any]]:
    """Return the decoder settings of each system that has a figure on the page."""
    decoders = {}
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        if "images/captioning-" in section and "```yaml" in section:
            system = section.split("images/captioning-")[1].split(".svg")[0]
            block = section.split("```yaml\n")[1].split("```")[0]
            decoders[system] = yaml.safe_load(block)["model"]["decoder"]
    return decoders


def train(decoder: dict[str, Any], num_steps: int = NUM_STEPS) -> Seq2SeqModel:
    """Train a small decoder with these settings on random images."""
    torch.manual_seed(SEED)
    encoder = {"type": "features", "num_channels": 3, "grid": GRID, "hidden_size": 32}
    encoder["positional_encoding"] = {"type": "learned", "max_positions": 9}
    sizes = {"type": "recurrent", "embedding_size": 32, "hidden_size": 32, "dropout": 0.0}
    settings = {"encoder": encoder, "decoder": {**decoder, **sizes}}
    config = CaptioningConfig.model_validate(settings)
    model = config.build(source_vocab_size=0, target_vocab_size=FIRST_WORD + len(WORDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    for step in range(num_steps):
        batch = random_batch(np.random.default_rng(step))
        output = model(batch)
        likelihoods = output.log_probs.gather(-1, batch.targets.unsqueeze(-1))
        loss = sum(output.auxiliary_losses.values(), -likelihoods.sum())
        optimizer.zero_grad()
        (loss / batch.num_targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / num_steps)
    return model.eval()


def random_batch(rng: np.random.Generator, num_images: int = NUM_IMAGES) -> Batch:
    """Return random images with captions; the held-out one is left out."""
    rows = []
    while len(rows) < num_images:
        names = rng.choice(list(COLORS), size=2, replace=False)
        cells = sorted(rng.choice(9, size=2, replace=False).tolist())
        squares = tuple(zip(names.tolist(), cells, strict=True))
        if squares != HELD_OUT:
            rows.append(squares)
    return make_batch(rows)


def make_batch(rows: Sequence[Sequence[tuple[str, int]]]) -> Batch:
    """Return images of these colored squares and their captions."""
    captions = [word_ids(caption(squares)) for squares in rows]
    return Batch(
        SourceBatch(torch.stack([features(row) for row in rows]), torch.tensor([9] * len(rows))),
        torch.tensor([[BOS, *ids] for ids in captions]),
        torch.tensor([[*ids, EOS] for ids in captions]),
    )


def caption(squares: Sequence[tuple[str, int]]) -> list[str]:
    """Return the words of the caption of an image."""
    (first, _), (second, _) = squares
    return ["a", first, "and", "a", second, "square"]


def word_ids(words: Sequence[str]) -> list[int]:
    """Return the token ids of words."""
    return [FIRST_WORD + WORDS.index(word) for word in words]


def features(squares: Sequence[tuple[str, int]]) -> Tensor:
    """Return the color of each cell, from -1 to 1."""
    cells = np.tile(np.array(GRAY), (9, 1))
    for color, cell in squares:
        cells[cell] = COLORS[color]
    return torch.tensor(cells * 2 - 1, dtype=torch.float32)


def caption_image(model: Seq2SeqModel) -> CaptionAttention:
    """Return where the words of the held-out image attend."""
    batch = make_batch([HELD_OUT])
    output = model(batch, need_weights=True)
    assert output.weights is not None
    weights = output.weights[0].detach().numpy().reshape(-1, *GRID)
    predicted = output.log_probs[0].argmax(dim=-1).tolist()
    words = ["EOS" if token == EOS else WORDS[token - FIRST_WORD] for token in predicted]
    return CaptionAttention(image(HELD_OUT), words, weights)


def image(squares: Sequence[tuple[str, int]]) -> np.ndarray:
    """Return the image as uint8 pixels."""
    cells = ((features(squares).numpy() + 1) * 127.5).round().astype(np.uint8).reshape(*GRID, 3)
    return cells.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)


if __name__ == "__main__":
    main(sys.argv[1:])
