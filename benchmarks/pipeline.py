"""How fast are batches made, beside how fast a model on the CPU takes them?

Prints tokens a second of the whole pipeline, which an epoch passes once (reading or making pairs,
cutting them into tokens, batching), of its later parts, and of training the recipe's own model;
then padding and the number of shapes. The corpora are the built-in Latin, and Multi30k where the
folder named by HEEDFUL_DATA, or ../shared/data, holds it.
"""

import os
import time
from pathlib import Path

from heedful.data.batch_stream import epoch_batch_specs, tokenize_pairs_in_memory
from heedful.data.batching import BatchingConfig, collate
from heedful.data.sources import ParallelFilesConfig, SyntheticPairsConfig
from heedful.recipes import Recipe, load_recipe
from heedful.training import CrossEntropyObjective
from heedful.training.trainer import Trainer

MODEL_STEPS = 20


def bench(name: str, recipe: Recipe) -> None:
    began = time.perf_counter()
    pairs = recipe.data.train.read()
    read = time.perf_counter() - began
    text = recipe.tokenizers.train(*zip(*pairs, strict=True))
    began = time.perf_counter()
    store, _ = tokenize_pairs_in_memory(pairs, text, recipe.data.filtering, location=name)
    cut = time.perf_counter() - began
    began = time.perf_counter()
    config = recipe.training.batching
    shapes = list(epoch_batch_specs(store, config, seed=0, epoch=0))
    batches = [collate(store, shape) for shape in shapes]
    made = time.perf_counter() - began
    tokens = sum(batch.num_tokens for batch in batches)
    padded = sum(shape.num_tokens for shape in shapes)
    model = recipe.model.build(
        source_vocab_size=len(text.source), target_vocab_size=len(text.target)
    )
    optimizer = recipe.training.optimizer.build(model)
    learner = Trainer(model, CrossEntropyObjective(), optimizer, lambda step: 1e-3)
    learner.train_step(batches[:1])
    began = time.perf_counter()
    learned = sum(learner.train_step([batch]).num_tokens for batch in batches[1 : 1 + MODEL_STEPS])
    taken = learned / (time.perf_counter() - began)
    widths = {(shape.source_length, shape.target_length) for shape in shapes}
    speeds = {
        "read or make pairs, cut, batch": tokens / (read + cut + made),
        "cut into tokens, batch": tokens / (cut + made),
        "batch": tokens / made,
    }
    print(f"{name}: {len(pairs):,} pairs, {tokens:,} real tokens, {len(shapes)} batches")
    for what, speed in speeds.items():
        print(f"  {what:<31}{speed:12,.0f} tokens/s  {speed / taken:8.1f} x training")
    print(f"  {'training':<31}{taken:12,.0f} tokens/s")
    print(f"  padding {100 * (1 - tokens / padded):.1f} %, {len(widths)} shapes (source x target)")


def main() -> None:
    latin = load_recipe("latin-demo", ["data.train.num_examples=50000"])
    assert isinstance(latin.data.train, SyntheticPairsConfig)
    assert isinstance(latin.training.batching, BatchingConfig)
    bench("built-in Latin", latin)
    data = Path(os.environ.get("HEEDFUL_DATA", "../shared/data")) / "multi30k"
    if not data.is_dir():
        print(f"Multi30k: not found in {data}; name its parent folder in HEEDFUL_DATA")
        return
    files = ParallelFilesConfig(source=str(data / "train.de.gz"), target=str(data / "train.en.gz"))
    default = load_recipe("default")
    data_config = default.data.model_copy(update={"train": files})
    bench("Multi30k de-en", default.model_copy(update={"data": data_config}))


if __name__ == "__main__":
    main()
