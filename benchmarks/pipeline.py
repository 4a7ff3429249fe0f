"""Speed of the data pipeline beside training on the CPU.

Prints tokens per second of the whole pipeline (reading or generating pairs, tokenizing, batching),
of its later parts, and of training the model of the recipe; then padding and the number of batch
shapes. The corpora are the synthetic Latin and, where HEEDFUL_DATA or ../shared/data has it,
Multi30k.
"""

import os
import time
from pathlib import Path

from benchmarks.harness import Table, describe_machine, parse_no_options
from heedful.data.sources import ParallelFilesConfig, SyntheticPairsConfig
from heedful.data.text.batching import BatchingConfig, collate, epoch_batches
from heedful.data.text.example_formats import ExampleSource, tokenize_corpora
from heedful.recipes import Recipe, load_recipe
from heedful.training.objectives import CrossEntropyObjective
from heedful.training.trainer import Trainer

MODEL_STEPS = 20


def bench(name: str, recipe: Recipe) -> None:
    start = time.perf_counter()
    pairs = recipe.data.train.read()
    reading = time.perf_counter() - start
    tokenizers = recipe.tokenizers.train(*zip(*pairs, strict=True))
    start = time.perf_counter()
    (store,), _ = tokenize_corpora(
        [ExampleSource(pairs, str)], tokenizers, recipe.data.filtering, location=name
    )
    tokenizing = time.perf_counter() - start
    start = time.perf_counter()
    config = recipe.training.batching
    shapes = [batch.spec for batch in epoch_batches(store, config, seed=0, epoch=0)]
    batches = [collate(store, shape) for shape in shapes]
    batching = time.perf_counter() - start
    tokens = sum(batch.num_tokens for batch in batches)
    padded = sum(shape.num_tokens for shape in shapes)
    model = recipe.model.build(
        source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    )
    optimizer = recipe.training.optimizer.build(model)
    trainer = Trainer(model, CrossEntropyObjective(), optimizer, lambda step: 1e-3)
    trainer.train_step(batches[:1])
    start = time.perf_counter()
    num_tokens = sum(
        trainer.train_step([batch]).num_tokens for batch in batches[1 : 1 + MODEL_STEPS]
    )
    training_speed = num_tokens / (time.perf_counter() - start)
    lengths = {(shape.source_length, shape.target_length) for shape in shapes}
    speeds = {
        "read or generate, tokenize, batch": tokens / (reading + tokenizing + batching),
        "tokenize, batch": tokens / (tokenizing + batching),
        "batch": tokens / batching,
    }
    print(
        f"\n{name}: {len(pairs):,} pairs, {tokens:,} tokens without padding, {len(shapes)} batches"
    )
    table = Table("part", "tokens/s", "times training")
    for label, speed in {**speeds, "training": training_speed}.items():
        table.add(label, f"{speed:,.0f}", f"{speed / training_speed:.1f}")
    print(f"padding {100 * (1 - tokens / padded):.1f} %, {len(lengths)} shapes (source x target)")


def main() -> None:
    parse_no_options(__doc__)
    print(describe_machine())
    latin = load_recipe("latin-demo", ["data.train.num_examples=50000"])
    assert isinstance(latin.data.train, SyntheticPairsConfig)
    assert isinstance(latin.training.batching, BatchingConfig)
    bench("synthetic Latin", latin)
    data = Path(os.environ.get("HEEDFUL_DATA", "../shared/data")) / "multi30k"
    if not data.is_dir():
        print(f"Multi30k: not found in {data}; set HEEDFUL_DATA to its parent folder")
        return
    files = ParallelFilesConfig(source=str(data / "train.de.gz"), target=str(data / "train.en.gz"))
    default = load_recipe("default")
    data_config = default.data.model_copy(update={"train": files})
    bench("Multi30k de-en", default.model_copy(update={"data": data_config}))


if __name__ == "__main__":
    main()
