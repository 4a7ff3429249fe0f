"""Back-translation: which texts become pairs, that dev pairs stay unseen, and resuming."""

import json
from functools import partial
from itertools import pairwise
from random import Random

import pytest
from rich.console import Console

import heedful
from heedful.config import to_overrides
from heedful.data.text.pair_files import MixtureConfig
from heedful.errors import ConfigError, DataError, RunError
from heedful.experiment.back_translation import (
    BLANK,
    FOLDER,
    TAG,
    BackTranslationFiles,
    add_back_translations,
    add_noise,
)
from heedful.experiment.plan import load_training_recipe
from heedful.runs import Run
from tests.commands import heedful as call

pytestmark = pytest.mark.wide

SETTINGS = {
    "tokenizers.source": {"type": "word"},
    "tokenizers.target": {"type": "word"},
    "training.max_steps": 2,
    **{
        f"model.{part}.{name}": 8
        for part in ("encoder", "decoder")
        for name in ("embedding_size", "hidden_size")
    },
}
SIZE = 60
LETTERS = "abcdefghij"


@pytest.fixture
def files(tmp_path):
    """Write pairs that say a word in capitals, and more capitals."""
    words = [f"{first}{second}" for first in LETTERS for second in LETTERS]
    (tmp_path / "a.src").write_text("".join(f"{word} {word}\n" for word in words[:SIZE]))
    (tmp_path / "a.tgt").write_text("".join(f"{word} {word}\n".upper() for word in words[:SIZE]))
    texts = [f"{word} {word}".upper() for word in words[40:]]
    (tmp_path / "more.tgt").write_text("\n".join([*texts, "", texts[0]]))
    return tmp_path


def recipe_loader(folder, **settings):
    train = {"type": "parallel-files", "source": folder / "a.src", "target": folder / "a.tgt"}
    base = {**SETTINGS, "data.train": train}

    def load(data=()):
        changes = to_overrides({**base, "data.dev": None, "data.test": None, **settings})
        return load_training_recipe("default", [*changes, *data], "cpu")

    return load


def read_pairs(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


add = partial(add_back_translations, device="cpu", console=Console(quiet=True))


def test_back_translations_are_outputs_of_the_reverse_model(files):
    run = files / "run"
    recipe = add(recipe_loader(files), run, [files / "more.tgt"])
    paths = BackTranslationFiles(run / FOLDER)
    texts = [pair["target"] for pair in read_pairs(paths.texts)]
    outputs = paths.outputs.read_text().splitlines()
    reverse = heedful.load(paths.reverse, device="cpu")
    assert outputs == [output.text for output in reverse.translate(texts, beam_size=1)]
    expected = [
        {"source": f"{TAG} {output}", "target": text}
        for output, text in zip(outputs, texts, strict=True)
        if output
    ]
    assert read_pairs(paths.back_translations) == expected
    assert isinstance(recipe.data.train, MixtureConfig)


def test_dev_pairs_are_in_no_training_data(files):
    run = files / "run"
    recipe = add(recipe_loader(files), run, [files / "more.tgt"])
    paths = BackTranslationFiles(run / FOLDER)
    dev, pairs = read_pairs(paths.dev), read_pairs(paths.pairs)
    assert dev
    assert len(dev) + len(pairs) == SIZE
    targets = {pair["target"] for pair in dev}
    for path in (paths.pairs, paths.back_translations):
        assert not targets & {pair["target"] for pair in read_pairs(path)}
    assert [pair._asdict() for pair in recipe.data.dev.read()] == dev
    reverse = Run(paths.reverse).read_recipe()
    assert [pair.source for pair in reverse.data.dev.read()] == [pair["target"] for pair in dev]


def test_pairs_are_repeated_as_often_as_balances_the_back_translations(files):
    (files / "more.tgt").write_text("".join(f"T{number}\n" for number in range(5 * SIZE)))
    recipe = add(recipe_loader(files), files / "run", [files / "more.tgt"])
    pairs, back_translations = (len(corpus.source.read()) for corpus in recipe.data.train.corpora)
    assert recipe.data.train.weights[0] * pairs == pytest.approx(back_translations, rel=0.05)
    assert recipe.data.train.weights[1] == 1


def test_interrupted_back_translation_resumes(files):
    load, more = recipe_loader(files), [files / "more.tgt"]
    whole = add(load, files / "run", more)
    paths = BackTranslationFiles(files / "run" / FOLDER)
    expected = paths.back_translations.read_bytes()
    paths.back_translations.unlink()
    outputs = paths.outputs.read_bytes()
    paths.outputs.write_bytes(outputs[: len(outputs) // 2])
    assert add(load, files / "run", more) == whole
    assert paths.back_translations.read_bytes() == expected


def test_other_texts_are_refused(files):
    load = recipe_loader(files)
    add(load, files / "run", [files / "more.tgt"])
    (files / "more.tgt").write_text("other\n")
    with pytest.raises(RunError, match="begun with other texts"):
        add(load, files / "run", [files / "more.tgt"])


def test_monolingual_file_without_texts_is_refused(files):
    (files / "more.tgt").write_text("\n \n")
    with pytest.raises(DataError, match="contains no texts to translate"):
        add(recipe_loader(files), files / "run", [files / "more.tgt"])
    assert not (files / "run").exists()


@pytest.mark.parametrize(
    ("recipe", "message"),
    [("gpt-tiny", "the model of this recipe|generates|but the model"), ("default", "has none")],
)
def test_recipes_without_pairs_are_refused(files, recipe, message):
    def load(data=()):
        return load_training_recipe(recipe, data, "cpu")

    with pytest.raises(ConfigError, match=message):
        add(load, files / "run", [files / "more.tgt"])


def test_noise_drops_blanks_and_moves_words_at_its_rates():
    random, words = Random(0), [str(number) for number in range(20_000)]
    noisy = add_noise(" ".join(words), random).split()
    blanks = noisy.count(BLANK)
    assert len(noisy) / len(words) == pytest.approx(0.9, abs=0.01)
    assert blanks / len(noisy) == pytest.approx(0.1, abs=0.01)
    kept = [int(word) for word in noisy if word != BLANK]
    assert all(abs(index - word * 0.81) < 400 for index, word in enumerate(kept))
    assert 0.1 < sum(first > second for first, second in pairwise(kept)) / len(kept) < 0.5
    assert add_noise("word", Random(1)) in {"word", BLANK}


def test_command_trains_on_pairs_and_back_translations(files, capsys, monkeypatch):
    run = files / "run"
    settings = map(str, to_overrides(SETTINGS))
    options = [word for setting in settings for word in ("--set", setting)]
    options += ["--device", "cpu", "--quiet", "--noise", "--run", run]
    parallel = ("--source", files / "a.src", "--target", files / "a.tgt")
    command = ("train", *parallel, "--monolingual", files / "more.tgt", *options)
    ended = call(capsys, monkeypatch, *command)
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"{run}: reached max_steps=2")
    vocabulary = json.loads((run / "tokenizers" / "source" / "vocabulary.json").read_text())
    assert {"BT", "BLANK"} <= set(vocabulary["tokens"])
    ended = call(capsys, monkeypatch, *command)
    assert ended.code == 0, ended.err


def test_noise_needs_monolingual_texts(files, capsys, monkeypatch):
    ended = call(capsys, monkeypatch, "train", "latin-demo", "--noise", "--run", files / "run")
    assert ended.code == 2
    assert "--noise: works only with --monolingual" in ended.err
