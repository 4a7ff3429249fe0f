"""Tokens in files are those in memory, whoever cuts them and whatever interrupts it."""

import json
from pathlib import Path

import numpy as np
import pytest

from heedful.data import dataset_builder, sharded_dataset
from heedful.data.batch_stream import choose_held_out_rows, tokenize_pairs_in_memory
from heedful.data.dataset_builder import DatasetBuilder, DatasetBuilderConfig
from heedful.data.filtering import FilterConfig
from heedful.data.pair_dataset import Pair
from heedful.data.sharded_dataset import load_prepared_dataset
from heedful.data.sources import ParallelFilesConfig, TextFilesConfig
from heedful.errors import CorruptRunError, DataError, RunError
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig, SharedTokenizerConfig
from heedful.tokenization.vocabulary import EOS

SELECTION = FilterConfig(max_length=4, duplicates="drop")
TOKENIZER_FOLDER = SeparateTokenizersConfig(
    source=WordTokenizerConfig(), target=WordTokenizerConfig()
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    for module in (dataset_builder, sharded_dataset):
        monkeypatch.setattr(module, "CHUNK", 7)


@pytest.fixture
def pairs(tmp_path):
    random = np.random.default_rng(0)
    found = [
        Pair(*(" ".join(random.choice(list("ab"), size)) for size in random.integers(0, 6, 2)))
        for _ in range(100)
    ]
    write(tmp_path, found)
    return found


def write(folder, pairs):
    for side in ("source", "target"):
        lines = (getattr(pair, side) + "\n" for pair in pairs)
        (folder / side).write_text("".join(lines))


class Maker:
    """Builds the files in a folder, and remembers what was said."""

    def __init__(self, folder, name="tokens", *, workers=1, text=None, **changes):
        self.said = []
        self.watched = []
        source = ParallelFilesConfig(source=str(folder / "source"), target=str(folder / "target"))
        settings = {
            "sources": [source.model_dump()],
            "corpus_weights": [1.0],
            "tokenizers": TOKENIZER_FOLDER,
            "filtering": SELECTION,
            "seed": 3,
            "holds_out": True,
            "vocabulary_lines": 1000,
            "shard_size": 20,
        }
        self.builder = DatasetBuilder(
            folder / name,
            [source],
            DatasetBuilderConfig(**{**settings, **changes}),
            log_message=self.said.append,
            on_progress=lambda *seen: self.watched.append(seen),
            tokenizers=text,
            workers=workers,
        )

    def build(self):
        return self.builder.build()


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def max_in_memory_examples(pairs):
    rows = choose_held_out_rows(len(pairs), seed=3, location="")
    learned = [pair for row, pair in enumerate(pairs) if row not in rows]
    text = TOKENIZER_FOLDER.train(*zip(*learned, strict=True))
    return *tokenize_pairs_in_memory(learned, text, SELECTION, location=""), [
        pairs[row] for row in rows
    ]


@pytest.mark.parametrize(("workers", "shard_size"), [(1, 20), (2, 20), (1, 1000), (1, 9)])
def test_prepared_tokens_equal_in_memory_tokens(pairs, tmp_path, workers, shard_size):
    built = Maker(tmp_path, workers=workers, shard_size=shard_size).build()
    store, report, held_out = max_in_memory_examples(pairs)
    (part,) = built.pair_datasets()
    assert len(built.shards) == -(-100 // shard_size)
    taken = part.select(np.arange(len(part)))
    for one, other in zip(taken, store, strict=True):
        assert one.values.tolist() == other.values.tolist()
        assert one.offsets.tolist() == other.offsets.tolist()
    assert built.filter_report().format_lines() == report.format_lines()
    assert len(built.filter_report().format_lines()) == 4  # something is left out for each reason
    assert built.held_out_examples() == held_out


def test_rebuilding_reads_nothing_and_gives_same_fingerprint(pairs, tmp_path):
    first = Maker(tmp_path).build()
    again = Maker(tmp_path)
    (tmp_path / "source").unlink()
    assert again.build().fingerprint == first.fingerprint
    assert not again.said
    assert not again.watched


def test_builder_reports_progress(pairs, tmp_path):
    made = Maker(tmp_path)
    made.build()
    assert ("reading", 100, None) in made.watched
    assert made.watched[-1] == ("cutting", 100, 100)
    assert made.said == ["learning the vocabulary from 95 of 100 pairs"]


def test_tokenizers_train_on_at_most_max_tokenizer_lines(pairs, tmp_path):
    made = Maker(tmp_path, max_tokenizer_lines=10)
    made.build()
    (told,) = made.said
    assert told in {f"learning the vocabulary from {n} of 100 pairs" for n in (8, 9, 10)}


@pytest.mark.parametrize("damage", ["tokens.bin", "manifest.json"])
def test_only_corrupt_shard_is_rebuilt(pairs, tmp_path, damage):
    Maker(tmp_path).build()
    before = contents(tmp_path / "tokens")
    path = tmp_path / "tokens" / "shard-00002" / damage
    path.write_bytes(flipped(path.read_bytes()))
    with pytest.raises(CorruptRunError, match="only what is damaged is made anew"):
        load_prepared_dataset(tmp_path / "tokens")
    again = Maker(tmp_path)
    times = {each: each.stat().st_ctime_ns for each in tmp_path.rglob("tokens.bin")}
    again.build()
    assert contents(tmp_path / "tokens") == before
    changed = [each.parent.name for each in times if each.stat().st_ctime_ns != times[each]]
    assert changed == ["shard-00002"]
    assert len(again.said) >= 1
    assert again.said[-1].endswith("shard-00002 is made anew") or damage == "manifest.json"


def flipped(contents):
    middle = len(contents) // 2
    return contents[:middle] + bytes([contents[middle] ^ 1]) + contents[middle + 1 :]


@pytest.mark.parametrize(
    "name", ["manifest.json", "text/source/vocabulary.json", "held-out.jsonl", "repeats.bin"]
)
def test_other_corrupt_files_are_rebuilt_without_shards(pairs, tmp_path, name):
    Maker(tmp_path).build()
    before = contents(tmp_path / "tokens")
    path = tmp_path / "tokens" / name
    path.write_bytes(flipped(path.read_bytes()))
    times = {each: each.stat().st_ctime_ns for each in tmp_path.rglob("tokens.bin")}
    again = Maker(tmp_path)
    again.build()
    assert contents(tmp_path / "tokens") == before
    assert all(each.stat().st_ctime_ns == times[each] for each in times)
    assert again.said[0].endswith("; the data is read anew")


def test_interrupted_build_resumes_to_same_files(pairs, tmp_path):
    whole = Maker(tmp_path, "whole")
    whole.build()
    for moment in range(0, len(whole.watched), 3):
        stopped = Maker(tmp_path, str(moment))

        def interrupt(*seen, stopped=stopped, moment=moment):
            stopped.watched.append(seen)
            if len(stopped.watched) > moment:
                raise KeyboardInterrupt

        stopped.builder.on_progress = interrupt
        with pytest.raises(KeyboardInterrupt):
            stopped.build()
        Maker(tmp_path, str(moment)).build()
        assert contents(tmp_path / str(moment)) == contents(tmp_path / "whole")


def test_changed_data_is_rejected(pairs, tmp_path):
    Maker(tmp_path).build()
    path = tmp_path / "tokens" / "shard-00004" / "tokens.bin"
    path.write_bytes(b"")
    write(tmp_path, [*pairs[:30], Pair("z", "z"), *pairs[31:]])
    with pytest.raises(DataError) as caught:
        Maker(tmp_path).build()
    assert str(caught.value) == (
        f"{tmp_path}/source and {tmp_path}/target: the data has changed since it was first read, "
        "at number 21 or after it\n"
        "  put it back, or delete what was made of it and give the same command again"
    )


@pytest.mark.parametrize("kept", [70, 80])
def test_truncated_data_is_rejected(pairs, tmp_path, kept):
    Maker(tmp_path).build()
    (tmp_path / "tokens" / "shard-00000" / "tokens.bin").write_bytes(b"")
    write(tmp_path, pairs[:kept])
    with pytest.raises(DataError, match=f"at number {1 + kept // 20 * 20} or after it"):
        Maker(tmp_path).build()


def test_different_settings_are_rejected_in_same_folder(pairs, tmp_path):
    Maker(tmp_path).build()
    with pytest.raises(RunError) as caught:
        Maker(tmp_path, seed=4).build()
    assert str(caught.value) == (
        f"{tmp_path}/tokens: the folder holds tokens made with seed=3, but now it is 4\n"
        "  give the settings it was begun with to go on, or name another folder"
    )


def test_folder_with_other_contents_is_rejected(pairs, tmp_path, copied_run):
    with pytest.raises(RunError, match="made with sources=None"):
        Maker(tmp_path, copied_run.name).build()


@pytest.fixture
def copied_run(tmp_path):
    from heedful.storage import write_manifest

    run = tmp_path / "run"
    run.mkdir()
    write_manifest(run, [], {"format": 1})
    return run


def test_fully_filtered_data_is_rejected(tmp_path):
    write(tmp_path, [Pair("a", " ")] * 50)
    for _ in range(2):
        with pytest.raises(DataError, match="no pair is left of 48"):
            Maker(tmp_path).build()


def test_builder_uses_given_tokenizers(pairs, tmp_path):
    text = TOKENIZER_FOLDER.train(["a"], ["b c"])
    made = Maker(tmp_path, text=text)
    made.build()
    assert made.said == []
    vocabulary = json.loads((tmp_path / "tokens" / "text/source/vocabulary.json").read_text())
    assert vocabulary == {"tokens": [" a"]}


def test_monolingual_text_is_one_token_stream(tmp_path):
    lines = [" ".join("abcd"[: 1 + number % 4]) for number in range(60)]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines))
    source = TextFilesConfig(path=str(tmp_path / "text"))
    settings = DatasetBuilderConfig(
        sources=[source.model_dump()],
        corpus_weights=[1.0],
        tokenizers=SharedTokenizerConfig(tokenizer=WordTokenizerConfig()),
        filtering=None,
        seed=0,
        needs_held_out=True,
        max_tokenizer_lines=1000,
        shard_size=8,
    )
    built = DatasetBuilder(
        tmp_path / "tokens",
        [source],
        settings,
        log_message=print,
        on_progress=lambda *_: None,
        workers=2,
    ).build()
    assert built.is_monolingual
    assert built.held_out_examples() == lines[-3:]
    text = settings.tokenizers.load(Path(tmp_path / "tokens" / "text"))
    encoded = text.target.encode_batch(lines[:-3])
    wanted = [EOS, *(token for line in encoded for token in (*line, EOS))]
    assert built.token_stream()[0 : len(built.token_stream())].tolist() == wanted
    assert built.total_count("lines") == 57
    assert built.total_count("unknown") == 0
