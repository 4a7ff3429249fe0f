"""The work of `heedful translate`, by this process or by a server; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from typing_extensions import override

from heedful.tasks.command_line import PredictorLoader

if TYPE_CHECKING:
    from heedful.decoding.requests import Request, TooLong
    from heedful.decoding.word_alignment import Aligner

WORKER_CHUNK_SIZE = 256  # texts; with several processes, so that none waits long at the end


class RequestChunk(NamedTuple):
    """Consecutive requests, and the index of the first."""

    start_index: int
    requests: list[Request]


class OutputBlock(NamedTuple):
    """The lines of a chunk, as one text per output type."""

    num_texts: int
    parts: list[str]
    reports: list[str]  # of texts that are too long


@dataclass(frozen=True)
class TranslationJob:
    """A `WorkerJob`: translates chunks with one run or an ensemble of runs."""

    load: PredictorLoader
    output_types: tuple[str, ...]
    aligner: Aligner
    ensemble_with: tuple[Path, ...] = ()
    overrides: tuple[str, ...] = ()
    beam_size: int | None = None
    n_best: int | None = None
    input_name: str = "text"
    is_forced: bool = False  # whether every text has a given target
    too_long: TooLong = "error"

    def setup(self, *, is_shared: bool) -> Callable[[RequestChunk], OutputBlock]:
        """Load the model; next to other processes it uses one thread."""
        import torch

        from heedful.decoding.config import check_search_tree
        from heedful.tasks.translation.files import format_lines, to_line

        if is_shared:
            torch.set_num_threads(1)
        translator = self.load(overrides=self.overrides, ensemble_with=self.ensemble_with)
        need_tree = "tree" in self.output_types
        if need_tree:
            check_search_tree(translator.decoding, "--search-tree")
        sizes = {"beam_size": self.beam_size, "n_best": self.n_best}
        options = translator.options_class(too_long=self.too_long, need_tree=need_tree, **sizes)
        n_best = 1 if self.is_forced else translator.decoding.with_beam_size(**sizes).n_best

        def run(chunk: RequestChunk) -> OutputBlock:
            reports: list[str] = []
            location = {"location": self.input_name, "start_index": chunk.start_index}
            keywords = {**location, "report": reports.append}
            if self.output_types == ("text",) and n_best == 1 and not self.is_forced:
                texts = translator.predict_texts(chunk.requests, options, **keywords)
                lines = [f"{to_line(text)}\n" for text in texts]
                return OutputBlock(len(lines), ["".join(lines)], reports)
            translations = list(translator.predict(chunk.requests, options, **keywords))
            parts = [
                "".join(
                    f"{line}\n"
                    for translation in translations
                    for line in format_lines(output_type, translation, n_best, self.aligner)
                )
                for output_type in self.output_types
            ]
            return OutputBlock(len(translations), parts, reports)

        return run


class ServerTranslationJob(TranslationJob):
    """Translates chunks with the run of the same name at a server."""

    @override
    def setup(self, *, is_shared: bool) -> Callable[[RequestChunk], OutputBlock]:
        from heedful.client import Client
        from heedful.tasks.translation.files import to_line

        (output_type,) = self.output_types
        assert self.load.server is not None
        client, n_best = Client(self.load.server), self.n_best or 1
        options = {"beam_size": self.beam_size, "n_best": self.n_best, "too_long": self.too_long}

        def format_result(result: Mapping[str, Any]) -> str:
            if output_type != "text":
                return f"{json.dumps(result, ensure_ascii=False)}\n"
            texts = [output["text"] for output in (result, *result.get("alternatives", ()))]
            padded = [*texts, *[""] * n_best][:n_best]
            return "".join(f"{to_line(text)}\n" for text in padded)

        def run(chunk: RequestChunk) -> OutputBlock:
            lines: list[str] = []
            for start in range(0, len(chunk.requests), WORKER_CHUNK_SIZE):
                requests = chunk.requests[start : start + WORKER_CHUNK_SIZE]
                inputs = [request.to_json() for request in requests]
                results = client.predict(
                    "translate",
                    inputs,
                    model=self.load.name,
                    attention=output_type == "attention",
                    text_only=output_type == "text" and n_best == 1,
                    options=options,
                )
                lines += map(format_result, results)
            return OutputBlock(len(lines), ["".join(lines)], [])

        return run
