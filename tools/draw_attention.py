"""Draw the picture of every page in docs/attention: what its mechanism can express.

    python -m tools.draw_attention [PAGE.md ...]

One sentence, the same for all: six Latin words, nine English ones, and the word each should look
at. Vectors of words are drawn at random; those of the questions, and whatever the mechanism
itself can learn, are fitted for forty steps so that each question takes what it should. What
a mechanism cannot express, its picture shows. The mechanism is the one that the page's own
YAML chooses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml
from torch import Tensor, nn

from heedful.attention.alignments import Looked
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.masks import padding
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.heatmap import svg

PAGES = Path(__file__).resolve().parents[1] / "docs" / "attention"
SOURCE = ["Servum", "puella", "in", "via", "videt", "."]
TARGET = {
    "The": "puella",
    "girl": "puella",
    "sees": "videt",
    "the ": "Servum",
    "slave": "Servum",
    "in": "in",
    "the": "via",
    "street": "via",
    ".": ".",
}
SIZE = 16
STEPS = 40
SEED = 3


def main(names: Sequence[str]) -> None:
    """Draw these pages, or all of them."""
    for page in [Path(name) for name in names] or sorted(PAGES.glob("*/*.md")):
        settings = attention_settings(page.read_text(encoding="utf-8"))
        if settings is not None:
            picture = picture_of(page)
            picture.parent.mkdir(exist_ok=True)
            picture.write_text(svg(fitted_map(settings)), encoding="utf-8")
            print(f"{page.relative_to(PAGES)}: drew {picture.name}")  # noqa: T201


def picture_of(page: Path) -> Path:
    """Where the picture of a page lies."""
    return PAGES / "images" / f"{page.parent.name}-{page.stem}.svg"


def attention_settings(text: str) -> AttentionConfig | None:
    """Read the attention that the YAML of a page chooses, if it chooses one."""
    for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        chosen = yaml.safe_load(block).get("model", {}).get("decoder", {}).get("attention")
        if chosen:
            return AttentionConfig.model_validate(chosen)
    return None


def fitted_map(config: AttentionConfig) -> AttentionMap:
    """Fit a mechanism to the sentence; give the map of where its questions look."""
    torch.manual_seed(SEED)
    questions = nn.Parameter(torch.randn(1, len(TARGET), SIZE, dtype=torch.double) / 4)
    words = torch.randn(1, len(SOURCE), SIZE, dtype=torch.double)
    attention = config.build(query_size=SIZE, memory_size=SIZE).double()
    optimizer = torch.optim.Adam([questions, *attention.parameters()], lr=0.03)
    for _ in range(STEPS):
        optimizer.zero_grad()
        _loss(attention, questions, words).backward()
        optimizer.step()
    weights = _ask(attention.eval(), questions, words).weights[0]
    return AttentionMap(SOURCE, [word.strip() for word in TARGET], weights.detach().numpy())


def _ask(attention: nn.Module, questions: Tensor, words: Tensor) -> Tensor:
    mask = padding(torch.tensor([len(SOURCE)]), len(SOURCE))
    memory = attention.remember(words, mask)
    return attention(questions, memory, attention.begin(memory))


def _loss(attention: nn.Module, questions: Tensor, words: Tensor) -> Tensor:
    """How far each question is from what it should take, and what the mechanism adds to that."""
    wanted = words[:, [SOURCE.index(word) for word in TARGET.values()]]  # (1, T, V)
    attended = _ask(attention, questions, words)
    context = attended.context
    if context.dim() > words.dim():  # one for every place: take their mean
        context = (attended.weights.unsqueeze(-1) * context).sum(dim=-2)
    log_likelihoods = -(context - wanted).square().mean(dim=-1)  # (1, T)
    everywhere = torch.ones_like(log_likelihoods, dtype=torch.bool)
    looked = Looked(attended.aligned, log_likelihoods, everywhere, words[..., 0].isfinite())
    return sum(attention.penalise(looked).values(), -log_likelihoods.sum())


if __name__ == "__main__":
    main(sys.argv[1:])
