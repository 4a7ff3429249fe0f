"""What does self-attention over long inputs cost in memory?

Prints, for each way of looking back and each length, the most memory that the tensors made on the
way held at once, forward and backward, whole and for each token; and what the operating system
counted for a process that did nothing else. Local blocks and compressed memory promise that the
bytes for each token stay as they are, and so does a stack of both in turn (LMLML, Liu et al.
2018); full attention is there to be compared with.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from benchmarks.additive import PeakMemory, resident
from heedful.models.backbones import CausalBackbone, TransformerBackboneConfig

WIDTH, NUM_HEADS = 64, 2
LENGTHS = [1024, 2048, 4096, 8192, 16384]
BLOCKS = {"type": "block", "block_size": 256}
COMPRESSED = {"type": "compressed", "stride": 3}
SPANS = {
    "full": [{"type": "full"}],
    "blocks of 256": [BLOCKS],
    "compressed by 3": [COMPRESSED],
    "LMLML": [BLOCKS, COMPRESSED, BLOCKS, COMPRESSED, BLOCKS],
}
FLAT = ["blocks of 256", "compressed by 3", "LMLML"]
MOST_GROWTH = 1.3  # of the bytes for a token, from the second length to the last


def reader(name: str) -> CausalBackbone:
    torch.manual_seed(0)
    config = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": WIDTH,
            "num_layers": len(SPANS[name]),
            "attention": {"multi_head": {"num_heads": NUM_HEADS}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": 4 * WIDTH}],
            "attention_types": SPANS[name],
        }
    )
    return config.build(input_size=WIDTH)


def learn(module: CausalBackbone, length: int) -> None:
    """Read one text of so many tokens and find the gradients."""
    inputs = torch.randn(1, length, WIDTH, requires_grad=True)
    read = module(inputs, torch.tensor([length]), module.initial_state(inputs))
    read.outputs.square().sum().backward()


def tensor_bytes(name: str, length: int) -> int:
    module = reader(name)
    with PeakMemory() as memory:
        learn(module, length)
    return memory.peak_bytes


def process_bytes(name: str, length: int) -> float:
    """What a process grew by, beyond what a short text takes that loads what torch loads late."""
    learn(reader(name), LENGTHS[0])
    module, before = reader(name), resident()
    learn(module, length)
    return (resident() - before) * 2**20


def in_a_process(name: str, length: int) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(process_bytes, name, length).result()


def bench(name: str) -> float:
    """Measure every length; give how much the bytes for a token grew."""
    for_token = []
    for length in LENGTHS:
        held, grown = tensor_bytes(name, length), in_a_process(name, length)
        for_token.append(held / length)
        print(
            f"  {name:<17}{length:>7}{held / 2**20:10.1f} MiB{for_token[-1]:10.0f} bytes a token"
            f"{grown / 2**20:10.1f} MiB of the process"
        )
    return for_token[-1] / for_token[1]


def main() -> None:
    print(f"torch {torch.__version__}, width {WIDTH}, {NUM_HEADS} heads, single precision")
    growths = {name: bench(name) for name in SPANS}
    print(f"bytes a token, {LENGTHS[-1]} tokens over {LENGTHS[1]}")
    for name, growth in growths.items():
        promise = f"   (at most {MOST_GROWTH:g})" if name in FLAT else ""
        print(f"  {name:<17}{growth:8.2f} x{promise}")
    broken = [name for name in FLAT if growths[name] > MOST_GROWTH]
    if broken:
        raise SystemExit(f"memory grows faster than the input: {', '.join(broken)}")


if __name__ == "__main__":
    main()
