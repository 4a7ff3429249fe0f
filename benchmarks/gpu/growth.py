"""How cost grows with sequence length (64 to 8,192) and vocabulary (8,000 to 256,000).

Every batch of a length has the same number of tokens, so what is linear in the length stays
constant and what is quadratic doubles. Growth with the corpus: `python -m benchmarks.memory`.
"""

from collections.abc import Callable

import torch
from torch import nn

from benchmarks.gpu.references import PlainAdditiveAttention
from benchmarks.gpu.speed import TrainingStep, measure, training_systems
from benchmarks.gpu.workload import Settings, full_batch
from benchmarks.harness import Spread, Table, Times, Work
from benchmarks.memory_use import peak_bytes
from heedful.attention.config import AttentionConfig
from heedful.models.language_model import TransformerBackboneConfig

NUM_TOKENS, WIDTH = 16_384, 512
LENGTHS = [64 * 2**power for power in range(8)]
VOCABULARIES = [8_000, 16_000, 32_000, 64_000, 128_000, 256_000]
NUM_PAIRS, LENGTH = 200, 32
MAX_PLAIN_ELEMENTS = 2**33  # of the tensor that plain additive attention makes


def bench(settings: Settings) -> None:
    """Print time and memory of forward and backward passes."""
    _bench_lengths(settings)
    _bench_vocabularies(settings)


def _bench_lengths(settings: Settings) -> None:
    num_tokens, width = (256, 32) if settings.is_small else (NUM_TOKENS, WIDTH)
    lengths = [16, 32] if settings.is_small else LENGTHS
    print(f"\nForward and backward of {num_tokens:,} tokens, width {width}, bf16 autocast")
    table = Table("layer", "length", "milliseconds", "memory, MiB")
    layers = _layers(width, settings.device)
    for name, run in layers.items():
        for length in lengths:
            num_rows = num_tokens // length
            title = f"{name}, {length}"
            is_too_large = num_rows * length**2 * width > MAX_PLAIN_ELEMENTS
            if not settings.includes(title) or ("plain" in name and is_too_large):
                continue
            work = _passes(run, num_rows, length, width, settings.device)
            times = measure({name: work}, settings)
            if name in times:
                memory = peak_bytes(work, settings.device) / 2**20
                milliseconds = Spread.of([1e3 * seconds for seconds in times[name]])
                table.add(name, f"{length:,}", milliseconds.format(".2f"), f"{memory:,.0f}")


def _layers(
    width: int, device: str
) -> dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """Return functions of inputs and lengths."""
    attentions = {}
    for name in ("additive", "scaled-dot"):
        score = {"type": name, **({"hidden_size": width} if name == "additive" else {})}
        config = AttentionConfig.model_validate({"score": score})
        attentions[name] = config.build(query_size=width, memory_size=width).to(device)
    backbone = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": width,
            "num_layers": 1,
            "attention": {"multi_head": {"num_heads": 8}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": 4 * width}],
        }
    ).build(input_size=width)
    backbone.to(device)
    plain = PlainAdditiveAttention(width).to(device)
    peer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.1, batch_first=True).to(device)

    def attend(name: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        def run(inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
            memory = attentions[name].build_memory(inputs)
            return attentions[name](inputs, memory, need_weights=False).context

        return run

    def causal(inputs: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(inputs.shape[1], device)
        return peer(inputs, mask, is_causal=True)

    return {
        "additive attention": attend("additive"),
        "additive attention, plain PyTorch": lambda inputs, lengths: plain(inputs),
        "dot-product attention": attend("scaled-dot"),
        "Transformer layer": lambda inputs, lengths: (
            backbone(inputs, lengths, backbone.initial_state(inputs)).outputs
        ),
        "nn.TransformerEncoderLayer": causal,
    }


def _passes(
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    num_rows: int,
    length: int,
    width: int,
    device: str,
) -> Work:
    inputs = torch.randn(num_rows, length, width, device=device, requires_grad=True)
    lengths = torch.full((num_rows,), length, device=device)
    gradients = torch.randn_like(inputs)

    def work() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            output = run(inputs, lengths)
        output.backward(gradients.to(output.dtype))
        inputs.grad = None

    return work


def _bench_vocabularies(settings: Settings) -> None:
    num_rows, precision = 2 if settings.is_small else NUM_PAIRS, settings.precisions[0]
    print(f"\nTraining steps of Transformer base, {num_rows} pairs of {LENGTH} tokens, {precision}")
    table = Table("vocabulary", "system", "milliseconds", "memory, GiB")
    for vocab_size in [100, 200] if settings.is_small else VOCABULARIES:
        batch = full_batch(num_rows, LENGTH, settings.device, vocab_size)
        systems = training_systems("Transformer base", precision, batch, settings, vocab_size)
        for name, build in systems.items():
            is_shown = name == "heedful" or (name.endswith("eager") and "heedful" not in name)
            if is_shown and settings.includes(f"vocabulary {vocab_size}, {name}"):
                _bench_vocabulary(f"{vocab_size:,}", name, build, table, settings)


def _bench_vocabulary(
    vocabulary: str,
    name: str,
    build: Callable[[], TrainingStep],
    table: Table,
    settings: Settings,
) -> None:
    """Measure one system by itself: its memory is that of parameters, optimizer and step."""
    times: Times = {}

    def build_and_measure() -> None:
        times.update(measure({name: build().work}, settings))

    memory = peak_bytes(build_and_measure, settings.device) / 2**30
    if name in times:
        milliseconds = Spread.of([1e3 * seconds for seconds in times[name]])
        table.add(vocabulary, name, milliseconds.format(".1f"), f"{memory:.1f}")
    if settings.device == "cuda":
        torch.cuda.empty_cache()
