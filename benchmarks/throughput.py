"""Training throughput beside plain PyTorch and Hugging Face, in target tokens per second.

    python -m benchmarks.throughput [--device cuda] [--pairs 400] [--seconds 5]

Fixed shapes, no data loading: pairs of 32 tokens per side and a shared vocabulary of 8,000. A whole
step is timed: forward, backward, clipping, optimizer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from heedful.data.batching import Batch, SourceBatch
from heedful.experiment.environment import configure_backends
from heedful.recipes import load_recipe

LENGTH, VOCABULARY = 32, 8000
SYSTEMS = (
    "transformer-2017-base",
    "transformer-2017-small",
    "moe-transformer",
    "transformer-decoder-2018",
    "dmca-2018",
    "convs2s-2017-multi30k",
    "bahdanau-2015-multi30k",
)
LARGE = {"moe-transformer"}  # 841 million parameters: for a GPU


def main() -> None:
    arguments = _arguments()
    device = torch.device(arguments.device)
    configure_backends(device)
    batch = synthetic(arguments.pairs, device)
    print(f"{'system':34}{'parameters':>12}{'fp32':>12}{'bf16':>12}  target tokens/s")
    for name in SYSTEMS:
        if name in LARGE and device.type == "cpu":
            continue
        model = load_recipe(name).model
        built = model.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).to(device)
        _report(name, built, lambda built=built: _ours(built, batch), arguments)
    plain = PlainTransformer().to(device)
    _report("plain nn.Transformer, base", plain, lambda: plain(batch), arguments)
    peer = marian(device)
    if peer is not None:
        _report("Hugging Face Marian, base", peer, lambda: _marian_loss(peer, batch), arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="training throughput of whole systems")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--pairs", type=int, default=400 if torch.cuda.is_available() else 8)
    parser.add_argument("--seconds", type=float, default=3.0)
    return parser.parse_args()


def synthetic(pairs: int, device: torch.device) -> Batch:
    """Return a batch without padding."""
    source, target = torch.randint(4, VOCABULARY, (2, pairs, LENGTH), device=device)
    lengths = torch.full((pairs,), LENGTH, device=device)
    return Batch(SourceBatch(source, lengths), target, target)


def _ours(model: nn.Module, batch: Batch) -> torch.Tensor:
    output = model(batch, need_weights=False)
    chosen = output.log_probs.gather(-1, batch.targets.unsqueeze(-1))
    return sum(output.auxiliary_losses.values(), -chosen.sum()) / batch.targets.numel()


class PlainTransformer(nn.Module):
    """nn.Transformer, as an untuned training loop uses it."""

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, size)
        self.positions = nn.Embedding(LENGTH, size)
        self.transformer = nn.Transformer(size, 8, 6, 6, 2048, 0.1, batch_first=True)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return the loss."""
        positions = self.positions.weight
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH, device=positions.device)
        features = self.transformer(
            self.embedding(batch.sources.tokens) + positions,
            self.embedding(batch.decoder_inputs) + positions,
            tgt_mask=mask,
            tgt_is_causal=True,
        )
        logits = features @ self.embedding.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())


def marian(device: torch.device) -> nn.Module | None:
    """Return Marian at the same size, or None if transformers is not installed."""
    try:
        from transformers import MarianConfig, MarianMTModel
    except ImportError:
        print("transformers is not installed: no peer")
        return None
    sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIDES}
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=512,
        max_position_embeddings=64,
        pad_token_id=0,
        decoder_start_token_id=2,
        **sizes,
    )
    return MarianMTModel(config).to(device)


SIDES = (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))


def _marian_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(
        input_ids=batch.sources.tokens, decoder_input_ids=batch.decoder_inputs, labels=batch.targets
    ).loss


def _report(
    name: str, model: nn.Module, loss: Callable[[], torch.Tensor], arguments: argparse.Namespace
) -> None:
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    speeds = []
    for dtype in (torch.float32, torch.bfloat16):
        try:
            speeds.append(f"{measure(model, loss, dtype, arguments):,.0f}")
        except (RuntimeError, TypeError) as error:
            speeds.append("failed")
            print(f"  {name}, {dtype}: {str(error).splitlines()[0][:90]}")
    print(f"{name:34}{num_parameters:12,}{speeds[0]:>12}{speeds[1]:>12}", flush=True)


def measure(
    model: nn.Module,
    loss: Callable[[], torch.Tensor],
    dtype: torch.dtype,
    arguments: argparse.Namespace,
) -> float:
    """Return target tokens per second after three warm-up steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    uses_autocast = dtype != torch.float32
    model.train()

    def step() -> None:
        with torch.autocast(arguments.device, dtype, enabled=uses_autocast):
            value = loss()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    _synchronize(arguments.device)
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < arguments.seconds:
        for _ in range(5 if arguments.device == "cuda" else 1):
            step()
            steps += 1
        _synchronize(arguments.device)
    return steps * arguments.pairs * LENGTH / (time.perf_counter() - start)


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
