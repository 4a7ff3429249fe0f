"""Small images, captioning models and recipes for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from heedful.data.text.batching import Batch, SourceBatch
from heedful.models.captioning import CaptioningConfig

VOCABULARY = 11
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
LAYERS: dict[str, Any] = {
    "hidden_size": 8,
    "num_layers": 2,
    "attention": HEADS,
    "feed_forward": [{"intermediate_size": 12}],
    "dropout": 0.0,
}
FEATURES = {"type": "features", "num_channels": 6, "grid": [2, 3]}
IMAGE = {"image_size": [8, 6], "num_channels": 1}
ENCODERS: dict[str, dict[str, Any]] = {
    "features": FEATURES,
    "projected features": {**FEATURES, "hidden_size": 8, "activation": "tanh"},
    "features with positions": {**FEATURES, "positional_encoding": {"type": "learned"}},
    "cnn": {"type": "cnn", **IMAGE, "channels": [4, 8], "pooling": [[2, 2], [2, 1]]},
    "cnn, stride": {
        "type": "cnn",
        **IMAGE,
        "channels": [4, 8],
        "pooling": [[2, 2], [2, 1]],
        "downsampling": "stride",
    },
    "cnn, group norm": {
        "type": "cnn",
        **IMAGE,
        "channels": [4, 8],
        "pooling": [[2, 2], [1, 1]],
        "norm": "group",
        "positional_encoding": {"type": "sinusoidal"},
    },
    "patches": {"type": "patches", **IMAGE, "patch_size": [3, 2], **LAYERS},
    "transformer over features": {"type": "transformer", "cells": FEATURES, **LAYERS},
    "efficientnet": {
        "type": "efficientnet-lite0",
        "image_size": [40, 64],
        "weights": None,
        "fine_tune": True,
    },
}
RECURRENT = {"cell": "lstm", "embedding_size": 5, "hidden_size": 6}
SOFT = {
    **RECURRENT,
    "bridge": {"type": "mlp"},
    "wiring": {"type": "attend-then-step"},
    "attention": {
        "score": {"type": "additive", "hidden_size": 4},
        "readout": {"type": "gated"},
        "auxiliary_losses": [{"type": "doubly-stochastic"}],
    },
    "pre_output": {"type": "deep-output"},
}
DECODERS: dict[str, dict[str, Any]] = {
    "show and tell": {
        **RECURRENT,
        "bridge": {"type": "first-input"},
        "wiring": {"type": "final-state"},
        "pre_output": {"type": "state-only"},
    },
    "soft": SOFT,
    "hard": {**SOFT, "attention": {"alignment": {"type": "sampled"}}},
    "adaptive": {**RECURRENT, "wiring": {"type": "adaptive"}},
    "transformer": {"type": "transformer", **LAYERS},
}
CAPTIONERS = {
    **{f"{name}, soft": (encoder, SOFT) for name, encoder in ENCODERS.items()},
    **{f"features, {name}": (FEATURES, decoder) for name, decoder in DECODERS.items()},
    "cnn, transformer": (ENCODERS["cnn"], DECODERS["transformer"]),
}


def captioner_config(name: str) -> CaptioningConfig:
    """Return the config of a captioning model."""
    encoder, decoder = CAPTIONERS[name]
    return CaptioningConfig.model_validate({"encoder": encoder, "decoder": decoder})


def build_captioner(name: str) -> Any:
    """Build an untrained model with parameters large enough to give distinct outputs."""
    torch.manual_seed(1)
    model = captioner_config(name).build(source_vocab_size=1, target_vocab_size=VOCABULARY)
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    return model


def images(encoder: dict[str, Any], count: int = 5) -> SourceBatch:
    """Return random images: bytes of images, or features whose grids have different lengths."""
    config = CaptioningConfig.model_validate({"encoder": encoder}).encoder
    generator = torch.Generator().manual_seed(3)
    num_channels, height, width, fit = config.image_shape
    num_cells = config.grid[0] * config.grid[1]
    lengths = torch.full((count,), num_cells)
    if fit is None:
        lengths[1::2] = num_cells - 2
        features = torch.randn(count, num_cells, num_channels, generator=generator)
        return SourceBatch(features.double(), lengths)
    size = (count, num_channels, height, width)
    return SourceBatch(torch.randint(256, size, generator=generator).byte(), lengths)


def captions(count: int = 5, length: int = 6) -> torch.Tensor:
    """Return targets of different lengths, padded with zeros."""
    generator = torch.Generator().manual_seed(4)
    tokens = torch.randint(4, VOCABULARY, (count, length), generator=generator)
    lengths = torch.tensor([1 + (2 * row) % length for row in range(count)])
    return tokens * (torch.arange(length) < lengths[:, None])


def caption_batch(name: str, count: int = 5) -> Batch:
    """Return images with captions for a model."""
    targets = captions(count)
    return Batch(images(CAPTIONERS[name][0], count), targets, targets)


def select(batch: Batch, rows: list[int]) -> Batch:
    """Return some rows of a batch."""
    tokens, lengths = (part[rows] for part in batch.sources)
    return Batch(SourceBatch(tokens, lengths), batch.decoder_inputs[rows], batch.targets[rows])


COLORS = {"red": (255, 0, 0), "green": (0, 160, 0), "blue": (0, 0, 255)}


def write_images(folder: Path) -> Path:
    """Write small images of one color with two captions each; return the file of captions."""
    from PIL import Image

    folder.mkdir(exist_ok=True)
    lines = []
    for index in range(12):
        color = list(COLORS)[index % 3]
        Image.new("RGB", (12, 10 + index), COLORS[color]).save(folder / f"{index}.png")
        lines += [f"{index}.png\ta {color} image", f"{index}.png\t{color} all over"]
    path = folder / "captions.tsv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def write_features(folder: Path, count: int = 12, bits: int = 4) -> dict[str, str]:
    """Write random features (2 x 2 cells, 6 channels) and captions; return the data setting."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    values = rng.integers(256, size=(count, 4, 3 if bits == 4 else 6), dtype=np.uint8)
    if bits == 32:
        np.save(folder / "features.npy", rng.normal(size=(count, 4, 6)).astype(np.float32))
    else:
        np.save(folder / "features.npy", values)
        scale = np.stack([np.linspace(0.1, 0.6, 6), np.linspace(-1, 1, 6)]).astype(np.float32)
        np.save(folder / "scale.npy", scale)
    lines = (f"{row}\timage {'abc'[row % 3]}\n" for row in range(count))
    (folder / "captions.tsv").write_text("".join(lines))
    setting = {
        "type": "captions",
        "path": str(folder / "captions.tsv"),
        "features": str(folder / "features.npy"),
    }
    return setting if bits == 32 else {**setting, "features_scale": str(folder / "scale.npy")}


def caption_recipe(train: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a recipe that trains a small model for a few steps."""
    encoder: dict[str, Any] = {"type": "features", "num_channels": 6, "grid": [2, 2]}
    if "features" not in train:
        encoder = {"type": "cnn", "image_size": [8, 8], "channels": [4], "pooling": [[4, 4]]}
    training = {"max_steps": 3, "validate_every": 3, "batching": {"max_tokens": 60}}
    return {
        "data": {"train": train, "dev": train, "test": train},
        "tokenizers": {"type": "shared", "tokenizer": {"type": "word"}},
        "model": {"type": "captioning", "encoder": encoder, "decoder": RECURRENT},
        "training": training,
        "decoding": {"max_length": 6, "beam_size": 2},
        **changes,
    }


def write_recipe(path: Path, recipe: dict[str, Any]) -> str:
    """Write a recipe as YAML."""
    path.write_text(yaml.safe_dump(recipe))
    return str(path)
