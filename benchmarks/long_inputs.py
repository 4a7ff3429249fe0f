"""Memory of self-attention over long inputs.

Prints, for each type of self-attention and each length, the peak memory of intermediate tensors in
forward and backward, in total and per token, and what the operating system counted for a process
that did nothing else. For block and compressed attention, and a stack that alternates them (LMLML,
Liu et al. 2018), the bytes per token must stay constant; full attention is the comparison.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks.harness import Table, describe_machine, parse_no_options
from benchmarks.memory_use import peak_bytes, resident_mebibytes
from heedful.acceleration.registry import accelerate_for_training
from heedful.models.language_model import CausalBackbone, TransformerBackboneConfig

WIDTH, NUM_HEADS = 64, 2
LENGTHS = [1024, 2048, 4096, 8192, 16384]
BLOCKS = {"type": "block", "block_size": 256}
COMPRESSED = {"type": "compressed", "stride": 3}
ATTENTION_TYPES = {
    "full": [{"type": "full"}],
    "blocks of 256": [BLOCKS],
    "compressed by 3": [COMPRESSED],
    "LMLML": [BLOCKS, COMPRESSED, BLOCKS, COMPRESSED, BLOCKS],
}
LINEAR = ["blocks of 256", "compressed by 3", "LMLML"]
MAX_GROWTH = 1.3  # of the bytes per token, from the second length to the last


def build_backbone(name: str) -> CausalBackbone:
    torch.manual_seed(0)
    config = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": WIDTH,
            "num_layers": len(ATTENTION_TYPES[name]),
            "attention": {"multi_head": {"num_heads": NUM_HEADS}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": 4 * WIDTH}],
            "attention_types": ATTENTION_TYPES[name],
        }
    )
    return accelerate_for_training(config.build(input_size=WIDTH), "cpu")


def forward_backward(module: CausalBackbone, length: int) -> None:
    """Run one forward and backward pass over one sequence."""
    inputs = torch.randn(1, length, WIDTH, requires_grad=True)
    output = module(inputs, torch.tensor([length]), module.initial_state(inputs))
    output.outputs.square().sum().backward()


def tensor_bytes(name: str, length: int) -> int:
    module = build_backbone(name)
    return peak_bytes(lambda: forward_backward(module, length))


def process_bytes(name: str, length: int) -> float:
    """Return the growth of this process after a warm-up with a short sequence."""
    forward_backward(build_backbone(name), LENGTHS[0])
    module, before = build_backbone(name), resident_mebibytes()
    forward_backward(module, length)
    return (resident_mebibytes() - before) * 2**20


def measure_in_subprocess(name: str, length: int) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(process_bytes, name, length).result()


def bench(name: str, table: Table) -> float:
    """Measure every length and return how much the bytes per token grew."""
    bytes_per_token = []
    for length in LENGTHS:
        peak, growth = tensor_bytes(name, length), measure_in_subprocess(name, length)
        bytes_per_token.append(peak / length)
        sizes = f"{peak / 2**20:,.1f}", f"{bytes_per_token[-1]:,.0f}", f"{growth / 2**20:,.1f}"
        table.add(name, f"{length:,}", *sizes)
    return bytes_per_token[-1] / bytes_per_token[1]


def main() -> None:
    parse_no_options(__doc__)
    print(f"{describe_machine()}; width {WIDTH}, {NUM_HEADS} heads, fp32")
    columns = "tokens", "tensors, MiB", "bytes per token", "process, MiB"
    table = Table("self-attention", *columns)
    growths = {name: bench(name, table) for name in ATTENTION_TYPES}
    table = Table("self-attention", f"bytes per token, {LENGTHS[-1]} over {LENGTHS[1]}", "at most")
    for name, growth in growths.items():
        table.add(name, f"{growth:.2f} x", f"{MAX_GROWTH:g} x" if name in LINEAR else "")
    broken = [name for name in LINEAR if growths[name] > MAX_GROWTH]
    if broken:
        raise SystemExit(f"memory grows faster than the input: {', '.join(broken)}")


if __name__ == "__main__":
    main()
