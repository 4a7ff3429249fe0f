"""Whole training steps and whole searches on batches of one shape, beside other systems."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks.gpu.references import (
    MarianLoss,
    PlainBahdanau,
    PlainTransformer,
    build_marian,
    has_transformers,
)
from benchmarks.gpu.workload import (
    MODELS,
    Settings,
    full_batch,
    num_parameters,
    random_tokens,
    recipe_of,
    transformer_sizes,
    vocab_sizes,
)
from benchmarks.harness import Table, Times, Work, add_rows, seconds_of, take_turns
from heedful.acceleration.ct2 import convert, is_installed
from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import Batch, SourceBatch
from heedful.experiment.trainer_setup import build_model, build_trainer
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.search.logits_processors import MinLength
from heedful.tokenization.vocabulary import EOS

LENGTH, SOURCE_LENGTH, OUTPUT_LENGTH = 32, 16, 20
NUM_PAIRS = {"Transformer base": 400, "Bahdanau": 256}
SEARCHES = [(1, 1), (64, 1), (512, 1), (64, 5)]  # sentences, beam size
MODES = ("eager", "reduce-overhead")  # of references: the latter is torch.compile with CUDA graphs
NUM_WARMUP = 4  # a shape is captured when it occurs for the second time


def measure(works: dict[str, Work], settings: Settings) -> Times:
    """Let systems take turns for the time, or the round, of the settings."""
    measures = {name: seconds_of(work, settings.device) for name, work in works.items()}
    num_warmup = 1 if settings.is_small else NUM_WARMUP
    return take_turns(
        measures, rounds=settings.rounds, seconds=settings.seconds, num_warmup=num_warmup
    )


def bench_training(settings: Settings) -> None:
    """Print target tokens per second of training steps: forward, backward, clipping, AdamW."""
    print(f"\nTraining steps, pairs of {LENGTH} tokens per side, no padding, no data loading")
    table = Table("model", "system", "target tokens/s", "heedful is faster by")
    for model in MODELS:
        num_rows = 4 if settings.is_small else NUM_PAIRS[model]
        batch = full_batch(num_rows, LENGTH, settings.device, settings.vocab_size)
        for precision in settings.precisions:
            title = f"{model}, {num_rows} pairs, {precision}"
            if settings.includes(title):
                steps = {
                    f"{name} ({num_parameters(step.model)})": step.work
                    for name, build in training_systems(model, precision, batch, settings).items()
                    for step in [build()]
                }
                times = measure(steps, settings)
                add_rows(table, title, times, count=num_rows * LENGTH)


class TrainingStep(NamedTuple):
    """A model and the work of one training step of it."""

    model: nn.Module
    work: Work


def training_systems(
    name: str, precision: str, batch: Batch, settings: Settings, vocab_size: int | None = None
) -> dict[str, Callable[[], TrainingStep]]:
    """Return functions that build each system."""
    vocab_size = vocab_size or settings.vocab_size
    size = 64 if settings.is_small else 512
    sizes = transformer_sizes(settings)._replace(vocab_size=vocab_size)
    references: dict[str, Callable[[], nn.Module]] = {
        "nn.Transformer": lambda: PlainTransformer(sizes)
    }
    if has_transformers():
        references["Hugging Face Marian"] = lambda: MarianLoss(build_marian(sizes))
    if name == "Bahdanau":
        references = {"nn.LSTMCell in a loop": lambda: PlainBahdanau(size, vocab_size)}
    modes = MODES if name != "Bahdanau" and settings.compiles else MODES[:1]

    def build_ours(graphs: str) -> TrainingStep:
        overrides = [f"training.precision={precision}", f"training.cuda_graphs={graphs}"]
        overrides += ["training.max_grad_norm=1", "training.batching.max_tokens=50000"]
        recipe, device = recipe_of(name, settings, *overrides), torch.device(settings.device)
        model = build_model(recipe, vocab_sizes(vocab_size), device=device)
        trainer = build_trainer(recipe, model, lambda step: 1e-4, device=device)
        trainer.model.train()
        return TrainingStep(trainer.model, partial(trainer.train_step, [batch]))

    def build_reference(build: Callable[[], nn.Module], mode: str) -> TrainingStep:
        model = called = build().to(settings.device).train()
        if mode != "eager":
            torch.compiler.reset()  # a mode has its own code for equal functions
            called = torch.compile(model, mode=mode)
        return TrainingStep(model, plain_step(called, batch, precision, settings.device))

    return {
        "heedful": partial(build_ours, "true"),
        "heedful, eager": partial(build_ours, "false"),
        **{
            f"{label}, {mode}": partial(build_reference, build, mode)
            for label, build in references.items()
            for mode in modes
        },
    }


def plain_step(model: nn.Module, batch: Any, precision: str, device: str) -> Work:
    """Return a training step as everyone writes it: autocast, clipping, fused AdamW."""
    return partial(plain_update(model, precision, device), batch)


def plain_update(model: nn.Module, precision: str, device: str) -> Callable[[Any], None]:
    """Return a function that updates the parameters with a batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(batch: Any) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bf16"):
            loss = model(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def bench_decoding(settings: Settings) -> None:
    """Print sentences per second of greedy and beam search."""
    lengths = f"sources of {SOURCE_LENGTH} tokens, outputs of exactly {OUTPUT_LENGTH}"
    print(f"\nDecoding, {lengths}, random parameters, bf16")
    table = Table("work", "system", "sentences/s", "heedful is faster by")
    for model in MODELS:
        systems = decoding_systems(model, settings)
        for num_rows, beam_size in [(1, 1), (2, 5)] if settings.is_small else SEARCHES:
            search = "greedy" if beam_size == 1 else f"beam {beam_size}"
            title = f"{model}, {search}, batch {num_rows}"
            if not settings.includes(title):
                continue
            tokens = random_tokens(
                num_rows, SOURCE_LENGTH, device=settings.device, vocab_size=settings.vocab_size
            )
            works = {name: partial(decode, tokens, beam_size) for name, decode in systems.items()}
            times = measure(works, settings)
            add_rows(table, title, times, count=num_rows, style=",.1f" if num_rows == 1 else ",.0f")


def decoding_systems(
    model: str, settings: Settings
) -> dict[str, Callable[[torch.Tensor, int], Any]]:
    """Return a search of every system: takes source tokens and a beam size."""
    dtype = torch.bfloat16 if settings.device == "cuda" else torch.float32
    recipe = recipe_of(model, settings)
    plain = (
        recipe.task.build_model(recipe, vocab_sizes(settings.vocab_size))
        .to(settings.device, dtype)
        .eval()
    )
    fast = accelerate_for_inference(plain, settings.device)
    systems = {
        "heedful": partial(_search, fast),
        "heedful, without acceleration": partial(_search, plain),
    }
    if model != "Transformer base":
        return systems
    if has_transformers():
        marian = build_marian(transformer_sizes(settings)).to(settings.device, dtype).eval()
        systems["Hugging Face generate, eager"] = partial(_generate, marian)
        if settings.compiles:  # which `generate` does by itself with a static cache
            static = partial(_generate, marian, cache_implementation="static")
            systems["Hugging Face generate, static cache, compiled"] = static
    if is_installed():
        systems |= _ctranslate2_systems(copy.deepcopy(plain).float().cpu(), settings.device)
    return systems


def _ctranslate2_systems(
    model: EncoderDecoderModel, device: str
) -> dict[str, Callable[[torch.Tensor, int], Any]]:
    """Return CTranslate2 with each data type, if its library can be loaded on this device."""
    import ctranslate2

    systems: dict[str, Callable[[torch.Tensor, int], Any]] = {}
    with TemporaryDirectory() as folder:
        convert(model, Path(folder))
        for dtype in ("float16", "bfloat16") if device == "cuda" else ("float32",):
            try:
                translator = ctranslate2.Translator(folder, device=device, compute_type=dtype)
                _translate(translator, random_tokens(1, 4, device=device, vocab_size=50), 1)
            except (RuntimeError, ValueError) as error:
                print(f"left out: CTranslate2 {dtype}: {str(error).splitlines()[0][:120]}")
                continue
            systems[f"CTranslate2 {ctranslate2.__version__}, {dtype}"] = partial(
                _translate, translator
            )
    return systems


def _translate(translator: Any, tokens: torch.Tensor, beam_size: int) -> list[int]:
    results = translator.translate_batch(
        [list(map(str, row)) for row in tokens.tolist()],
        beam_size=beam_size,
        max_decoding_length=OUTPUT_LENGTH,
        min_decoding_length=OUTPUT_LENGTH,
    )
    return check_lengths([len(result.hypotheses[0]) for result in results])


def _search(model: Any, tokens: torch.Tensor, beam_size: int) -> list[int]:
    num_rows = len(tokens)
    # EOS is a token of the output, too.
    lengths = torch.full((num_rows,), OUTPUT_LENGTH - 1, device=tokens.device)
    found = model.search(
        SourceBatch(tokens, torch.full((num_rows,), SOURCE_LENGTH, device=tokens.device)),
        beam_size=beam_size,
        max_lengths=lengths,
        length_penalty=LengthPenalty(),
        options=BeamSearchOptions(processors=(MinLength(lengths, eos=EOS),)),
    )
    return check_lengths([len(hypotheses[0].tokens) + 1 for hypotheses in found])


def _generate(model: Any, tokens: torch.Tensor, beam_size: int, **options: str) -> list[int]:
    outputs = model.generate(
        input_ids=tokens,
        attention_mask=torch.ones_like(tokens),
        num_beams=beam_size,
        do_sample=False,
        min_new_tokens=OUTPUT_LENGTH - 1,
        max_new_tokens=OUTPUT_LENGTH,
        **options,
    )
    return check_lengths([len(output) - 1 for output in outputs.tolist()])  # without BOS


def check_lengths(lengths: list[int]) -> list[int]:
    """Return the lengths of the outputs, which must all be the agreed one."""
    if set(lengths) != {OUTPUT_LENGTH}:
        raise ValueError(f"outputs of {sorted(set(lengths))} tokens in place of {OUTPUT_LENGTH}")
    return lengths
