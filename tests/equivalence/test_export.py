"""Exported models give the outputs of their runs, token for token, or are refused with a reason."""

import os
import random
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from heedful.conversion.exporting import export_run, greedy_outputs
from heedful.conversion.registry import get_exporter
from heedful.conversion.safetensors_export import load_folder
from heedful.errors import DataError, RunError
from heedful.recipes import load_recipe, recipe_names
from heedful.runs import load, load_run
from heedful.storage.manifest import read_and_verify_manifest
from heedful.storage.state_dict import unique_weights
from tests.commands import LETTERS, heedful
from tests.exporting import export, train_letters, write_recipe_run
from tests.language_modeling import write_text_recipe

HISTORY = "its recurrent cells attend to all their earlier states, which grow in a graph"
EXPERTS = "how many tokens each expert gets depends on their values"
OPEN = "its target vocabulary is open: each source adds tokens to it"
GRAPHS_REFUSE = {
    "bytenet-2016-small": "ByteNet's decoder rounds a multiple of the source length",
    "copy-transformer-small": OPEN,
    "copynet-2016-small": OPEN,
    "dmca-moe-2018-small": EXPERTS,
    "lstmn-2016-deep-small": HISTORY,
    "lstmn-2016-shallow-small": HISTORY,
    "moe-2017-small": EXPERTS,
    "moe-transformer-small": EXPERTS,
    "pointer-generator-2017-small": OPEN,
    "pointer-network-2015-small": OPEN,
    "selfattentive-rnn-small": HISTORY,
}
NO_FORWARD = {
    "dmca-2018-small": "its attention in blocks",
    "lower-attention-rnn-small": "its recurrent decoder has a state that grows",
}
DIFFERING = {"gnmt-2016-small", "gnmt-2016-rl-small"}
"""Torch's scan over the steps of their decoders gives other values, which the comparison finds."""
GRAPH_MODELS = ("encoder-decoder", "prefix-lm", "language-model")
PAGE_ALONE = ("captioning", "text-classifier", "sequence-tagger")
CT2_RECIPES = {"molecular-transformer-small", "transformer-2017-small", "transformer-2017-tiny"}
SMALL_RECIPES = [name for name in recipe_names() if name.endswith(("-small", "-tiny"))]
LABEL_RECIPES = ["bag-of-words", "bilstm-classifier", "bilstm-crf", "bilstm-tagger"]
LABEL_RECIPES += ["lample-2016", "plank-2016", "transformer-tagger"]


def needs(*packages):
    missing = [package for package in packages if find_spec(package) is None]
    reason = f"not installed: {', '.join(missing)}"
    return [pytest.mark.extras, pytest.mark.skipif(bool(missing), reason=reason)]


NEEDS_ONNX, NEEDS_CT2 = needs("onnx", "onnxscript", "onnxruntime"), needs("ctranslate2")


@pytest.fixture(scope="module")
def transformer_run(tmp_path_factory):
    return train_letters(tmp_path_factory.mktemp("transformer"), is_transformer=True)


@pytest.fixture(scope="module")
def gru_run(tmp_path_factory):
    return train_letters(tmp_path_factory.mktemp("gru"), is_transformer=False)


def sentences(run, count=200):
    chance = random.Random(1)
    texts = [
        " ".join(chance.choice(LETTERS) for _ in range(chance.randint(1, 9))) for _ in range(count)
    ]
    return run.tokenizers.source.encode_batch(texts)


def expected_reason(name, target):
    """Return how the reason for refusing a recipe begins; None if it is exported."""
    if target == "ct2":
        return None if name in CT2_RECIPES else ""
    model_type = load_recipe(name).model.type
    if target == "page" and model_type in PAGE_ALONE:
        return None
    if target == "page" and model_type not in GRAPH_MODELS:
        return "pages have no models of this task: it "
    if model_type == "captioning":
        return "only texts can be sources, but it captions images"
    if model_type not in GRAPH_MODELS:
        return "only translation and language models have graphs, but it "
    no_forward = NO_FORWARD.get(name) if target == "torch" else None
    return GRAPHS_REFUSE.get(name) or no_forward


@pytest.mark.wide
@pytest.mark.parametrize("name", SMALL_RECIPES)
def test_small_recipe_is_exported_or_rejected_with_a_reason(name, tmp_path):
    run = load_run(write_recipe_run(name, tmp_path / "run"))
    for target in ("ct2", "onnx", "page", "torch"):
        reason, expected = (
            get_exporter(target).unsupported_reason(run),
            expected_reason(name, target),
        )
        if expected is None:
            assert reason is None
        else:
            assert reason
            assert reason.startswith(expected)
    assert get_exporter("safetensors").unsupported_reason(run) is None


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ct2", "onnx", "page", "torch"])
@pytest.mark.parametrize("name", SMALL_RECIPES)
def test_small_recipe_is_exported_and_compared(name, target, tmp_path):
    exporter = get_exporter(target)
    for package in exporter.packages:
        pytest.importorskip(package)
    if expected_reason(name, target) is not None:
        pytest.skip("refused, as the test above shows")
    run_dir = write_recipe_run(name, tmp_path / "run")
    if target == "torch" and name in DIFFERING:
        with pytest.raises(AssertionError, match="log-probabilities differ by"):
            export(run_dir, target, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    else:
        export(run_dir, target, tmp_path / "out")
        assert (tmp_path / "out" / "README.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", LABEL_RECIPES)
def test_labeling_recipe_has_a_page(name, tmp_path):
    run_dir = write_recipe_run(name, tmp_path / "run")
    summary = export(run_dir, "page", tmp_path / "out")
    assert "8 outputs of the page in Node.js are equal, token for token" in summary


ALONE = (
    "import sys, runpy; sys.modules['heedful'] = None; runpy.run_path({!r}, run_name='__main__')"
)


def run_alone(folder, name, texts):
    """Run a program of an exported folder where heedful cannot be imported."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE.format(name)],
        cwd=folder,
        input="\n".join(texts),
        env=environment,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[: len(texts)]


def check_program(run, target, out, texts):
    """Export a run, and compare the outputs of its program with those of greedy search."""
    export(run, target, out)
    without_penalty = {"decoding.beam_size": 1, "decoding.length_penalty": {"type": "none"}}
    greedy = load(run, device="cpu", settings=without_penalty)
    expected = [greedy.translate(text).text for text in texts]
    assert run_alone(out, "translate.py", texts) == expected
    assert any(expected)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "larger"),
    [
        ("reverse-tiny", "source"),
        pytest.param("transformer-2017-tiny", "target", marks=pytest.mark.slow),
        pytest.param("convs2s-2017-small", "source", marks=pytest.mark.slow),
    ],
)
def test_torch_program_translates_without_heedful(name, larger, tmp_path):
    """Step by step with torch alone, for other sizes than those of capturing."""
    run_dir = write_recipe_run(name, tmp_path / "run", larger=larger)
    assert len({*map(len, load_run(run_dir).tokenizers)}) == 2
    check_program(
        run_dir, "torch", tmp_path / "out", ["abcd", "h i j k l m n o p q", "\u2581 a\u0301", ""]
    )


@pytest.mark.parametrize(
    ("target", "name", "library"),
    [
        pytest.param("ct2", "transformer_run", "CTranslate2 in fp32", marks=NEEDS_CT2),
        pytest.param(
            "onnx", "transformer_run", "onnxruntime", marks=[*NEEDS_ONNX, pytest.mark.slow]
        ),
        pytest.param("onnx", "gru_run", "onnxruntime", marks=NEEDS_ONNX),
    ],
)
def test_exported_model_returns_equal_tokens_for_200_sentences(
    target, name, library, tmp_path, request
):
    run_dir = request.getfixturevalue(name)
    check_program(run_dir, target, tmp_path / "out", ["a b", "h  g f e d c b a a", "a z\u0301", ""])
    run = load_run(run_dir)
    compared = get_exporter(target).compare(run, tmp_path / "out", sentences(run))
    assert compared == f"200 greedy outputs of {library} are equal, token for token"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("language-model", marks=[*NEEDS_ONNX, pytest.mark.slow]),
        pytest.param("transformer", marks=NEEDS_ONNX),
    ],
)
def test_onnx_language_model_continues_prompts_equally(model, tmp_path):
    """A prompt is read at once, then one token at a time."""
    recipe = write_text_recipe(tmp_path / "text", model)
    run_dir = write_recipe_run(str(recipe), tmp_path / "run")
    compared = export(run_dir, "onnx", tmp_path / "out")
    assert compared.endswith("8 greedy outputs of onnxruntime are equal, token for token")


def test_safetensors_round_trip_is_bit_equal(tmp_path, capsys, monkeypatch):
    run_dir = write_recipe_run("reverse-tiny", tmp_path / "run")
    done = heedful(
        capsys, monkeypatch, "export", run_dir, "--to", "safetensors", "--out", tmp_path / "out"
    )
    assert done.code == 0
    ours, loaded = load_run(run_dir), load_folder(tmp_path / "out")
    assert loaded.config == ours.config
    expected, actual = unique_weights(ours.model), unique_weights(loaded.model)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    again = tmp_path / "again"
    assert heedful(capsys, monkeypatch, "import", tmp_path / "out", "--run", again).code == 0
    sources = [[4, 5, 6], [7, 8]]
    assert greedy_outputs(load_run(again), sources) == greedy_outputs(ours, sources)


def test_export_has_manifest_and_tokenizers(tmp_path):
    run_dir = write_recipe_run("reverse-tiny", tmp_path / "run")
    export_run(run_dir, "safetensors", tmp_path / "out")
    manifest = read_and_verify_manifest(tmp_path / "out")
    assert manifest["format"] == "safetensors"
    files = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*")
    }
    names = {"README.md", "config.json", "model.safetensors"}
    assert names < manifest["files"].keys() < files
    assert any(name.startswith("tokenizers/") for name in manifest["files"])


def test_rejected_run_leaves_no_folder(tmp_path):
    run_dir = write_recipe_run("moe-2017-small", tmp_path / "run")
    with pytest.raises(RunError) as raised:
        export_run(run_dir, "torch", tmp_path / "out")
    assert str(raised.value) == (
        f"{run_dir}: torch.export programs cannot hold this run: {EXPERTS}\n  nothing was written"
    )
    assert not (tmp_path / "out").exists()


def test_differing_output_leaves_no_folder(tmp_path, monkeypatch):
    run_dir = write_recipe_run("reverse-tiny", tmp_path / "run")
    exporter = get_exporter("safetensors")
    write = type(exporter).write

    def write_changed(self, run, folder):
        weights = next(run.model.parameters())
        with torch.no_grad():
            weights.add_(1)
        write(self, run, folder)
        with torch.no_grad():
            weights.sub_(2)

    monkeypatch.setattr(type(exporter), "write", write_changed)
    with pytest.raises(DataError, match="the tensors differ from those of the run"):
        export_run(run_dir, "safetensors", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_model_card_contains_the_records_of_the_run(tmp_path):
    run_dir = write_recipe_run("reverse-tiny", tmp_path / "run")
    (run_dir / "train.log").write_text(
        "2026-01-01 00:00:00 train: 28000 of 28001 pairs kept\n"
        "2026-01-01 00:00:00 dev: 100 of 100 pairs kept\n"
    )
    (run_dir / "metrics.jsonl").write_text('{"type": "validation", "step": 0, "loss": 1.25}\n')
    export_run(run_dir, "safetensors", tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        "| training data | train: 28000 of 28001 pairs kept; dev: 100 of 100 pairs kept |" in card
    )
    assert "| metrics | dev set at step 0: loss 1.25 |" in card
    assert "| license | not stated by the run" in card
    assert "\nlicense: other\n" in card
    assert "```yaml\ninfo:\n  name: reverse-tiny\n" in card
