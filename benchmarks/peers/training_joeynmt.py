"""JoeyNMT: its own training loop on token ids in files, for a number of seconds.

    python -m benchmarks.peers.training_joeynmt FOLDER SETTINGS

FOLDER has train.src, train.trg and vocabulary.txt, where each word is a token id; SETTINGS is JSON:
model, seconds, device, size, num_tokens. Prints a JSON line: the number of parameters, and for each
step its time, target tokens, tokens and positions. Attention plots and TensorBoard are left out
where they are not installed: its training needs neither.
"""

import json
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

UNUSED = {
    "matplotlib": ["", ".pyplot", ".figure", ".backends", ".backends.backend_pdf"],
    "tensorboard": [""],
}
for package, parts in UNUSED.items():
    if find_spec(package) is None:
        sys.modules.update({f"{package}{part}": MagicMock() for part in parts})
sys.modules.setdefault("torch.utils.tensorboard", MagicMock())

from joeynmt.helpers import make_model_dir  # noqa: E402
from joeynmt.training import TrainManager, train  # noqa: E402

TRANSFORMER_SIDE = {"type": "transformer", "num_layers": 6, "num_heads": 8, "dropout": 0.1}
RECURRENT_SIDE = {"type": "recurrent", "rnn_type": "lstm", "dropout": 0.2}


def transformer(size: int) -> dict[str, Any]:
    """Return the sizes of Transformer base, with shared embeddings."""
    widths = {"hidden_size": size, "ff_size": 4 * size}
    side = {**TRANSFORMER_SIDE, **widths, "embeddings": {"embedding_dim": size, "scale": True}}
    shared = {"tied_embeddings": True, "tied_softmax": True}
    return {"encoder": dict(side), "decoder": dict(side), **shared}


def recurrent(size: int) -> dict[str, Any]:
    """Return a bidirectional LSTM with two layers, and an LSTM decoder with additive attention."""
    side = {**RECURRENT_SIDE, "hidden_size": size, "embeddings": {"embedding_dim": size}}
    decoder = {"num_layers": 1, "attention": "bahdanau", "init_hidden": "bridge"}
    return {
        "encoder": {**side, "num_layers": 2, "bidirectional": True},
        "decoder": {**side, **decoder, "input_feeding": True},
    }


def configuration(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Return what JoeyNMT reads from a YAML file."""
    build = transformer if settings["model"] == "Transformer base" else recurrent
    vocabulary = str(folder / "vocabulary.txt")
    side = {"level": "word", "max_length": 200, "voc_file": vocabulary}
    files = str(folder / "train")
    languages = {"src": {**side, "lang": "src"}, "trg": {**side, "lang": "trg"}}
    is_gpu = settings["device"] == "cuda"
    never = 1_000_000
    return {
        "name": "benchmark",
        "model_dir": str(folder / "joeynmt"),
        "use_cuda": is_gpu,
        "fp16": is_gpu and settings["model"] == "Transformer base",
        "data": {"train": files, "dev": files, "dataset_type": "plain", **languages},
        "testing": {"beam_size": 1},
        "training": {
            "overwrite": True,
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "scheduling": "warmupinversesquareroot",  # "plateau" fails with torch 2.7 and later
            "learning_rate_warmup": 4000,
            "label_smoothing": 0.1,
            "clip_grad_norm": 1.0,
            "batch_size": settings["num_tokens"],
            "batch_type": "token",
            "normalization": "tokens",
            "epochs": never,
            "validation_freq": never,
            "logging_freq": 100,
        },
        "model": build(settings["size"]),
    }


def main() -> None:
    folder, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    steps: list[tuple[float, int, int, int]] = []
    plain_step, num_parameters, start = TrainManager._train_step, 0, 0.0

    def timed_step(manager: TrainManager, batch: Any) -> tuple[float, int]:
        nonlocal num_parameters, start
        now = time.perf_counter()
        start = start or now
        if now - start > settings["seconds"]:
            raise KeyboardInterrupt  # which it takes for the end of training
        num_parameters = sum(parameter.numel() for parameter in manager.model.parameters())
        positions = batch.src.numel() + batch.trg.numel()
        tokens = int(batch.src_length.sum()) + batch.ntokens
        steps.append((now - start, batch.ntokens, tokens, positions))
        return plain_step(manager, batch)

    TrainManager._train_step = timed_step
    TrainManager._save_checkpoint = lambda *_: None
    config = configuration(folder, settings)
    make_model_dir(Path(config["model_dir"]), overwrite=True)
    train(0, 1, config, skip_test=True)
    print(json.dumps({"num_parameters": num_parameters, "steps": steps}), file=replies, flush=True)


if __name__ == "__main__":
    main()
