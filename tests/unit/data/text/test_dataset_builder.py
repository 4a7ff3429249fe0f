"""Prepared tokens equal those in memory, with any number of workers and interruptions."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from heedful.data.sources import ParallelFilesConfig, TextFilesConfig
from heedful.data.text import corpus_passes, dataset_builder
from heedful.data.text.dataset_builder import DatasetBuilder, DatasetBuilderConfig
from heedful.data.text.example_formats import LINES, PAIRS, ExampleSource, tokenize_corpora
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.sharded_dataset import ShardedTokenStream, load_prepared_dataset
from heedful.errors import CorruptRunError, DataError, RunError
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig, SharedTokenizerConfig
from heedful.tokenization.vocabulary import EOS

FILTERING = FilterConfig(max_length=4, duplicates="drop")
TOKENIZERS = SeparateTokenizersConfig(source=WordTokenizerConfig(), target=WordTokenizerConfig())


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    for module in (corpus_passes, dataset_builder):
        monkeypatch.setattr(module, "CHUNK_SIZE", 7)


@pytest.fixture
def pairs(tmp_path):
    random = np.random.default_rng(0)
    pairs = [
        Pair(*(" ".join(random.choice(list("ab"), size)) for size in random.integers(0, 6, 2)))
        for _ in range(100)
    ]
    write(tmp_path, pairs)
    return pairs


def write(folder, pairs):
    for side in ("source", "target"):
        lines = (getattr(pair, side) + "\n" for pair in pairs)
        (folder / side).write_text("".join(lines))


class Build:
    """A build of the files in a folder that records messages and progress."""

    def __init__(self, folder, name="tokens", *, workers=1, tokenizers=None, **changes):
        self.messages = []
        self.progress = []
        source = ParallelFilesConfig(source=str(folder / "source"), target=str(folder / "target"))
        settings = {
            "sources": [source.model_dump()],
            "corpus_weights": [1.0],
            "tokenizers": TOKENIZERS,
            "example_format": "pairs",
            "filtering": FILTERING,
            "seed": 3,
            "needs_held_out": True,
            "max_tokenizer_lines": 1000,
            "shard_size": 20,
        }
        self.builder = DatasetBuilder(
            folder / name,
            [source],
            DatasetBuilderConfig(**{**settings, **changes}),
            PAIRS,
            log_message=self.messages.append,
            on_progress=lambda *event: self.progress.append(event),
            tokenizers=tokenizers,
            workers=workers,
        )

    def run(self):
        return self.builder.build()


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tokenize_in_memory(pairs):
    held_out = PAIRS.choose_held_out(PAIRS.hash(pairs), seed=3, location="")
    rows = [row for row in range(len(pairs)) if row not in held_out.all_rows]
    train = ExampleSource([pairs[row] for row in rows], lambda index: f"line {rows[index] + 1}")
    tokenizers = TOKENIZERS.train(*zip(*train.examples, strict=True))
    (dataset,), report = tokenize_corpora([train], tokenizers, FILTERING, location="")
    return dataset, report, [pairs[row] for row in held_out.rows]


@pytest.mark.parametrize(("workers", "shard_size"), [(1, 20), (2, 20), (1, 1000), (1, 9)])
@pytest.mark.wide
def test_prepared_tokens_equal_in_memory_tokens(pairs, tmp_path, workers, shard_size):
    built = Build(tmp_path, workers=workers, shard_size=shard_size).run()
    dataset, report, held_out = tokenize_in_memory(pairs)
    (part,) = built.pair_datasets()
    assert len(built.shards) == -(-100 // shard_size)
    selected = part.select(np.arange(len(part)))
    for one, other in zip(selected, dataset, strict=True):
        assert one.values.tolist() == other.values.tolist()
        assert one.offsets.tolist() == other.offsets.tolist()
    names = f"{tmp_path}/source and {tmp_path}/target, "
    lines = [line.replace(names, "") for line in built.filter_report().format_lines()]
    assert lines == report.format_lines()
    assert len(built.filter_report().format_lines()) == 4  # every reason drops something
    assert built.held_out_corpus(PAIRS).examples == held_out


def test_rebuilding_reads_nothing_and_returns_same_fingerprint(pairs, tmp_path):
    first = Build(tmp_path).run()
    rebuild = Build(tmp_path)
    (tmp_path / "source").unlink()
    assert rebuild.run().fingerprint == first.fingerprint
    assert not rebuild.messages
    assert not rebuild.progress


def test_builder_reports_progress(pairs, tmp_path):
    build = Build(tmp_path)
    build.run()
    assert ("reading", 100, None) in build.progress
    assert build.progress[-1] == ("tokenizing", 100, 100)
    assert build.messages == [
        "5 pairs left out: a source or a target in common with a dev pair",
        "training the tokenizers on 90 of 100 pairs",
    ]


def test_tokenizers_train_on_at_most_max_tokenizer_lines(pairs, tmp_path):
    build = Build(tmp_path, max_tokenizer_lines=10)
    build.run()
    *_, line = build.messages
    assert line in {f"training the tokenizers on {n} of 100 pairs" for n in (8, 9, 10)}


@pytest.mark.parametrize("name", ["tokens.bin", "manifest.json"])
def test_only_corrupt_shard_is_rebuilt(pairs, tmp_path, name):
    Build(tmp_path).run()
    before = contents(tmp_path / "tokens")
    path = tmp_path / "tokens" / "shard-00002" / name
    path.write_bytes(flip_middle(path.read_bytes()))
    with pytest.raises(CorruptRunError, match="only what is corrupt is rebuilt"):
        load_prepared_dataset(tmp_path / "tokens")
    rebuild = Build(tmp_path)
    times = {path: path.stat().st_ctime_ns for path in tmp_path.rglob("tokens.bin")}
    rebuild.run()
    assert contents(tmp_path / "tokens") == before
    changed = [shard.parent.name for shard in times if shard.stat().st_ctime_ns != times[shard]]
    assert changed == ["shard-00002"]
    assert len(rebuild.messages) >= 1
    assert rebuild.messages[-1].endswith("; rebuilding shard-00002") or name == "manifest.json"


def flip_middle(contents):
    middle = len(contents) // 2
    return contents[:middle] + bytes([contents[middle] ^ 1]) + contents[middle + 1 :]


@pytest.mark.parametrize(
    "name",
    ["manifest.json", "tokenizers/source/vocabulary.json", "held-out.jsonl", "duplicates.bin"],
)
def test_other_corrupt_files_are_rebuilt_without_shards(pairs, tmp_path, name):
    Build(tmp_path).run()
    before = contents(tmp_path / "tokens")
    path = tmp_path / "tokens" / name
    path.write_bytes(flip_middle(path.read_bytes()))
    times = {path: path.stat().st_ctime_ns for path in tmp_path.rglob("tokens.bin")}
    rebuild = Build(tmp_path)
    rebuild.run()
    assert contents(tmp_path / "tokens") == before
    assert all(shard.stat().st_ctime_ns == times[shard] for shard in times)
    assert rebuild.messages[0].endswith("; reading the data again")


def test_interrupted_build_resumes_to_same_files(pairs, tmp_path):
    whole = Build(tmp_path, "whole")
    whole.run()
    for moment in range(0, len(whole.progress), 3):
        stopped = Build(tmp_path, str(moment))

        def interrupt(*event, stopped=stopped, moment=moment):
            stopped.progress.append(event)
            if len(stopped.progress) > moment:
                raise KeyboardInterrupt

        stopped.builder = replace(stopped.builder, on_progress=interrupt)
        with pytest.raises(KeyboardInterrupt):
            stopped.run()
        Build(tmp_path, str(moment)).run()
        assert contents(tmp_path / str(moment)) == contents(tmp_path / "whole")


def test_changed_data_raises(pairs, tmp_path):
    Build(tmp_path).run()
    path = tmp_path / "tokens" / "shard-00004" / "tokens.bin"
    path.write_bytes(b"")
    write(tmp_path, [*pairs[:30], Pair("z", "z"), *pairs[31:]])
    with pytest.raises(DataError) as caught:
        Build(tmp_path).run()
    assert str(caught.value) == (
        f"{tmp_path}/source and {tmp_path}/target: the data has changed since it was first read, "
        "at example 21 or later\n"
        "  restore it, or delete the tokens made from it and run the same command again"
    )


@pytest.mark.parametrize("kept", [70, 80])
def test_truncated_data_raises(pairs, tmp_path, kept):
    Build(tmp_path).run()
    (tmp_path / "tokens" / "shard-00000" / "tokens.bin").write_bytes(b"")
    write(tmp_path, pairs[:kept])
    with pytest.raises(DataError, match=f"at example {1 + kept // 20 * 20} or later"):
        Build(tmp_path).run()


def test_different_settings_raise_in_same_folder(pairs, tmp_path):
    Build(tmp_path).run()
    with pytest.raises(RunError) as caught:
        Build(tmp_path, seed=4).run()
    assert str(caught.value) == (
        f"{tmp_path}/tokens: the folder holds tokens made with seed=3, but now it is 4\n"
        "  use the settings it was started with, or name another folder"
    )


def test_folder_with_other_contents_raises(pairs, tmp_path, copied_run):
    with pytest.raises(RunError, match="made with sources=None"):
        Build(tmp_path, copied_run.name).run()


@pytest.fixture
def copied_run(tmp_path):
    from heedful.storage.manifest import write_manifest

    run = tmp_path / "run"
    run.mkdir()
    write_manifest(run, [], {"format": 1})
    return run


def test_fully_filtered_data_raises(tmp_path):
    write(tmp_path, [Pair("a", " ")] * 50)
    for _ in range(2):
        with pytest.raises(DataError, match="nothing is left of 48 pairs"):
            Build(tmp_path).run()


def test_builder_uses_given_tokenizers(pairs, tmp_path):
    tokenizers = TOKENIZERS.train(["a"], ["b c"])
    build = Build(tmp_path, tokenizers=tokenizers)
    build.run()
    assert not any("training" in line for line in build.messages)
    vocabulary = json.loads((tmp_path / "tokens" / "tokenizers/source/vocabulary.json").read_text())
    assert vocabulary == {"tokens": [" a"]}


@pytest.mark.wide
def test_monolingual_text_is_one_token_stream(tmp_path):
    lines = [" ".join("abcd"[: 1 + number % 4]) for number in range(60)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    source = TextFilesConfig(path=str(tmp_path / "text"))
    config = DatasetBuilderConfig(
        sources=[source.model_dump()],
        corpus_weights=[1.0],
        tokenizers=SharedTokenizerConfig(tokenizer=WordTokenizerConfig()),
        example_format="lines",
        filtering=None,
        seed=0,
        needs_held_out=True,
        max_tokenizer_lines=1000,
        shard_size=8,
    )
    built = DatasetBuilder(
        tmp_path / "tokens",
        [source],
        config,
        LINES,
        log_message=print,
        on_progress=lambda *_: None,
        workers=2,
    ).build()
    assert built.format_name == "lines"
    assert built.held_out_corpus(LINES).examples == lines[-3:]
    tokenizers = config.tokenizers.load(Path(tmp_path / "tokens" / "tokenizers"))
    encoded = tokenizers.target.encode_batch(lines[:-3])
    expected = [EOS, *(token for line in encoded for token in (*line, EOS))]
    tokens = ShardedTokenStream(built.shards)
    assert tokens[0 : len(tokens)].tolist() == expected
    assert built.total_count("lines") == 57
    assert built.total_count("unknown") == 0
