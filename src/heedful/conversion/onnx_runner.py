"""Run a model exported to ONNX: greedy decoding with only numpy and onnxruntime.

`heedful export --to onnx` copies this file into the folder, so it imports nothing else of heedful.
Invariant: outputs equal `heedful` with beam size 1, token for token.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


class OnnxModel:
    """The graphs of an exported folder, and the description of their inputs in model.json."""

    def __init__(self, folder: Path | str, *, num_threads: int = 1) -> None:
        import onnxruntime

        self.info = json.loads((Path(folder) / "model.json").read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.log_severity_level = 3
        self._sessions = {
            name: onnxruntime.InferenceSession(
                Path(folder) / f"{name}.onnx", options, providers=["CPUExecutionProvider"]
            )
            for name in self.info["graphs"]
        }

    def encode(self, sources: Sequence[Sequence[int]]) -> Arrays:
        """Return the state before the first step, for sources as token ids without EOS."""
        rows = [[*source, self.info["eos"]] for source in sources]
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        tokens = np.full((len(rows), lengths.max()), self.info["pad"], dtype=np.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = ids
        inputs = {"source_tokens": tokens, "source_lengths": lengths}
        state = self._run("encoder", inputs)
        sizes = {"batch": len(rows), "source": tokens.shape[1]}
        return self._zero_state(sizes) | state

    def step(self, tokens: NDArray[np.int64], state: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs of a step by name, and the next state."""
        graph = self.info["graphs"][-1]
        outputs = self._run(graph, {"tokens": tokens} | state)
        changed = {name: outputs.pop(f"next.{name}") for name in state if f"next.{name}" in outputs}
        return outputs, state | changed

    def translate(
        self, sources: Sequence[Sequence[int]], max_lengths: Sequence[int]
    ) -> list[list[int]]:
        """Return the most likely token at each step, up to EOS; ids without BOS and EOS."""
        state = self.encode(sources)
        tokens = np.full(len(sources), self.info["bos"], dtype=np.int64)
        results: list[list[int]] = [[] for _ in sources]
        is_open = [True] * len(sources)
        while any(is_open):
            outputs, state = self.step(tokens, state)
            tokens = outputs["log_probs"].argmax(axis=-1)
            for row, token in enumerate(tokens.tolist()):
                is_open[row] &= token != self.info["eos"] and len(results[row]) < max_lengths[row]
                if is_open[row]:
                    results[row].append(token)
        return results

    def generate(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        """Continue a prompt of a language model by the most likely token at each step."""
        state = self._zero_state({"batch": 1})
        results: list[int] = []
        tokens = np.array([prompt], dtype=np.int64)
        for _ in range(num_tokens):
            outputs, state = self.step(tokens, state)
            results.append(int(outputs["log_probs"][0, -1].argmax()))
            tokens = np.array([results[-1:]], dtype=np.int64)
        return results

    def _run(self, graph: str, inputs: Arrays) -> Arrays:
        session = self._sessions[graph]
        needed = {value.name for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        values = session.run(names, {name: inputs[name] for name in inputs if name in needed})
        return dict(zip(names, values, strict=True))

    def _zero_state(self, sizes: dict[str, int]) -> Arrays:
        """Return the first value of each state tensor; there were no steps yet."""
        return {
            tensor["name"]: np.zeros(
                [size if isinstance(size, int) else sizes.get(size, 0) for size in tensor["shape"]],
                dtype=tensor["type"],
            )
            for tensor in self.info["state"]
        }
