"""Train a model of this folder from scratch, in about a minute: python train.py seq2seq

The text models learn to reverse words of letters, the captioner to name the colors of two squares.
The models of Bahdanau and the Transformer stand on pages; their blocks are read from there.
"""

import importlib.util
import re
import sys
from pathlib import Path

import torch
from torch.nn.functional import nll_loss

PAD, BOS, EOS, LETTERS = 0, 2, 3, range(4, 16)
HERE = Path(__file__).resolve().parent
PAGES = {"bahdanau": "bahdanau.md", "transformer": "transformer.md"}


def load_program(name):
    """Return the names that a program, or the model of a page, defines."""
    if name not in PAGES:
        spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return vars(module)
    text = (HERE.parents[1] / "attention" / PAGES[name]).read_text(encoding="utf-8")
    model = text.split("## The same numbers as the recipe")[0]
    names = {}
    exec("\n".join(re.findall(r"^```python\n(.*?)^```", model, re.MULTILINE | re.DOTALL)), names)
    return names


class Bahdanau(torch.nn.Module):
    """The two parts of the page as one model."""

    def __init__(self, names, vocab):
        super().__init__()
        self.encoder = names["Encoder"](vocab, 48, 48)
        self.decoder = names["Decoder"](
            vocab, 48, 96, memory_size=96, attention_size=48, maxout_size=48
        )

    def forward(self, source, lengths, inputs):
        annotations, first_backward = self.encoder(source, source != PAD)
        return self.decoder(inputs, annotations, first_backward, source != PAD)


class Transformer(torch.nn.Module):
    """The model of the page with the arguments of the others."""

    def __init__(self, names, vocab):
        super().__init__()
        self.model = names["Transformer"](
            vocab, 64, num_layers=2, num_heads=4, intermediate_size=128
        )
        torch.nn.init.normal_(self.model.source_embedding.weight, std=64**-0.5)

    def forward(self, source, lengths, inputs):
        return self.model(source, inputs)


def build(name):
    """Return a model with forward(source, lengths, inputs) -> log-probabilities, weights."""
    names = load_program(name)
    if name in PAGES:
        model = (Bahdanau if name == "bahdanau" else Transformer)(names, 16)
        return model.double() if name == "transformer" else model  # its sines are float64
    return names["Model"](16)


def reversed_words(count, generator):
    """Return sources, lengths, decoder inputs and targets."""
    lengths = torch.randint(2, 9, (count,), generator=generator)
    letters = torch.randint(LETTERS.start, LETTERS.stop, (count, 8), generator=generator)
    place = torch.arange(8)
    source = letters.masked_fill(place >= lengths[:, None], PAD)
    flipped = letters.gather(1, (lengths[:, None] - 1 - place).clamp(min=0))
    targets = torch.cat([flipped, torch.zeros(count, 1, dtype=torch.long)], 1)
    targets = targets.masked_fill(torch.arange(9) >= lengths[:, None], PAD)
    targets[torch.arange(count), lengths] = EOS
    inputs = torch.cat([torch.full((count, 1), BOS), targets[:, :-1]], 1)
    return source, lengths, inputs, targets


def corner_images(count, generator):
    """Return images of two colored squares, one left, one right, and their colors in order."""
    colors = torch.randint(3, (count, 2), generator=generator)
    images = torch.rand(count, 3, 32, 32, generator=generator) * 0.2 - 1
    for side in range(2):
        top = int(torch.randint(24, (), generator=generator))
        left = 16 * side + int(torch.randint(8, (), generator=generator))
        images[torch.arange(count), colors[:, side], top : top + 8, left : left + 8] = 1
    targets = torch.cat([colors + LETTERS.start, torch.full((count, 1), EOS)], 1)
    inputs = torch.cat([torch.full((count, 1), BOS), targets[:, :-1]], 1)
    return images, torch.full((count,), 64), inputs, targets


def main(name, steps=800):
    """Train, and print how many of 500 unseen examples are right with teacher forcing."""
    torch.manual_seed(1)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    draw = corner_images if name == "captioner" else reversed_words
    model = build(name)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3 if name != "transformer" else 1e-3)
    for step in range(1, steps + 1):
        source, lengths, inputs, targets = draw(32 if name == "captioner" else 64, generator)
        log_probs, _ = model(source, lengths, inputs)
        loss = nll_loss(log_probs.flatten(0, 1), targets.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    model.eval()
    with torch.no_grad():
        source, lengths, inputs, targets = draw(500, generator)
        chosen = model(source, lengths, inputs)[0].argmax(-1).masked_fill(targets == PAD, PAD)
    exact = (chosen == targets).all(1).float().mean().item()
    print(f"{name}: {100 * exact:.1f} % of 500 unseen examples")
    return exact


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
