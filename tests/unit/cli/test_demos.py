"""What `heedful demo` shows after training."""

import numpy as np
import pytest

import heedful as package
from heedful.cli.demos import (
    DEMOS,
    describe_goal,
    describe_result,
    format_modifier_attention,
)
from heedful.config import to_yaml
from heedful.data.synthetic.icons import load_icons, modifier_region
from heedful.recipes import load_recipe
from heedful.tasks.captioning.predictor import Caption
from heedful.terminal import program_name
from heedful.training.state import TrainingResult
from tests.commands import heedful

GRID = (6, 6)


def caption(text, weights):
    words = text.split()
    return Caption(
        image="icon",
        text=text,
        score=0.0,
        log_prob=0.0,
        tokens=words,
        log_probs=np.zeros(len(words) + 1),
        weights=np.array(weights, dtype=np.float32),
        grid=GRID,
    )


def known_icon():
    names = (" ".join(icon.words) for icon in load_icons("test") if len(icon.words) == 2)
    return next(name for name in names if modifier_region(name) is not None)


def test_every_demo_has_a_recipe():
    for demo in DEMOS.values():
        assert load_recipe(demo.recipe).data.test is not None


@pytest.mark.parametrize("demo", DEMOS.values(), ids=DEMOS)
def test_every_demo_trains_to_a_quality_and_not_to_a_time(demo):
    recipe = load_recipe(demo.recipe)
    training = recipe.training
    assert training.metric_for_best_model == "exact-match"
    assert training.target_score is not None
    assert training.max_minutes == 15
    assert training.max_steps / training.validate_every >= 4
    assert f"{training.target_score:g} % of unseen {demo.items}" in describe_goal(demo, training)


def test_demo_says_how_far_it_came_when_time_runs_out():
    demo = DEMOS["latin"]
    training = load_recipe(demo.recipe).training
    late = TrainingResult(283, "reached max_minutes=15", -41.2, 900.4)
    assert describe_result(demo, training, late).splitlines() == [
        "Trained for 15 min 0 s, 283 steps: 41.2 % of unseen sentences are exactly right.",
        "Time ran out before the target of 97 %: this machine is slow or busy, so what follows may "
        "be wrong.",
        f"To train it further: {program_name()} demo latin --minutes 30",
    ]
    elsewhere = describe_result(demo, training, late, " --run 'my runs/demo'")
    assert elsewhere.endswith(f"{program_name()} demo latin --run 'my runs/demo' --minutes 30")
    in_time = TrainingResult(1600, "reached target_score=97", -97.2, 81.0)
    expected = "Trained for 1 min 21 s, 1,600 steps: 97.2 % of unseen sentences are exactly right."
    assert describe_result(demo, training, in_time) == expected


def test_attention_on_the_modifier_is_summed_over_the_pixels():
    name = known_icon()
    region = modifier_region(name)
    uniform = np.full(36, 1 / 36)
    row, column = np.argwhere(region)[0] // 8
    on_one_cell = np.eye(36)[row * 6 + column]
    expected = 0  # pixel by pixel
    for y in range(row * 8, row * 8 + 8):
        for x in range(column * 8, column * 8 + 8):
            expected += region[y, x] / 64
    lines = list(format_modifier_attention([caption(name, [uniform, on_one_cell])], [name]))
    assert lines[0] == "\nAttention on the modifier, in 1 icon known without it, too:\n"
    assert lines[1:] == [
        f"  word of the modifier  {expected:4.0%}",
        f"  words before it       {region.mean():4.0%}",
        f"  its share of pixels   {region.mean():4.0%}",
    ]


def test_wrong_and_single_names_skipped():
    name = known_icon()
    uniform = [np.full(36, 1 / 36)] * 2
    assert list(format_modifier_attention([caption("account off", uniform)], [name])) == []
    assert list(format_modifier_attention([caption("bell", uniform[:1])], ["bell"])) == []


@pytest.mark.parametrize("name", ["icons", pytest.param("formulas", marks=pytest.mark.wide)])
@pytest.mark.wide
def test_captions_scored_and_drawn(name, tmp_path, capsys, monkeypatch):
    if name == "formulas":
        pytest.importorskip("matplotlib")
    demo, run = DEMOS[name], tmp_path / "run"
    settings = {f"data.{split}.num_examples": 24 for split in ("train", "dev", "test")}
    settings |= {"training.max_steps": 2, "model.encoder.channels": [4, 4, 4, 4, 4]}
    package.train(load_recipe(demo.recipe, settings), run, device="cpu")
    monkeypatch.setenv("COLUMNS", "100")
    capsys.readouterr()
    hint = demo.show_results(run, "cpu")
    shown = capsys.readouterr()
    assert shown.out.startswith("exact match")
    table = shown.out.split("\n\n")[1].splitlines()
    assert sum(int(line.split()[1]) for line in table[1:]) == 24
    assert hint.startswith(f"data {name} --split test -o {name}; ")
    assert (run / "caption.svg").read_text().startswith("<svg")
    assert "<html" in (run / "captions.html").read_text()
    assert shown.err.splitlines()[-2:] == [
        f"wrote {run / 'caption.svg'}",
        f"wrote {run / 'captions.html'}",
    ]


def test_demo_trains_evaluates_and_draws(tmp_path, capsys, monkeypatch):
    demo, path, run = DEMOS["latin"], tmp_path / "tiny.yaml", tmp_path / "run"
    settings = {f"data.{split}.num_examples": 20 for split in ("train", "dev", "test")}
    settings |= {"training.max_steps": 2, "training.lr_scheduler.warmup_steps": 1}
    path.write_text(to_yaml(load_recipe(demo.recipe, settings)))
    monkeypatch.setitem(DEMOS, "latin", demo._replace(recipe=str(path)))
    ended = heedful(capsys, monkeypatch, "demo", "--run", run, "--minutes", 5, "--device", "cpu")
    assert ended.code == 0, ended.err
    assert demo.introduction in ended.err
    assert "one to two minutes on two CPU cores, 5 minutes at most." in " ".join(ended.err.split())
    trained, _, shown = ended.out.partition("\nOn unseen Latin sentences:\n")
    assert ", 2 steps: 0.0 % of unseen sentences are exactly right." in trained
    assert "bleu" in shown.lower()
    assert "horto" in shown
    assert shown.endswith(f'Try: {program_name()} show {run} "Puella in horto ambulat."\n')
    assert (run / "alignment.svg").read_text().startswith("<svg")
    assert "<html" in (run / "alignments.html").read_text()


def test_demo_that_ran_out_of_time_names_the_command_that_continues_it(
    tmp_path, capsys, monkeypatch
):
    demo, path, run = DEMOS["latin"], tmp_path / "tiny.yaml", tmp_path / "my run"
    settings = {f"data.{split}.num_examples": 20 for split in ("train", "dev", "test")}
    path.write_text(to_yaml(load_recipe(demo.recipe, settings)))
    without_results = demo._replace(recipe=str(path), show_results=lambda run, device: "show")
    monkeypatch.setitem(DEMOS, "latin", without_results)
    ended = heedful(
        capsys, monkeypatch, "demo", "--run", run, "--minutes", "0.0001", "--device", "cpu"
    )
    assert ended.code == 0, ended.err
    command = f"{program_name()} demo latin --run '{run}' --device cpu --minutes 0.0002"
    assert f"To train it further: {command}\n" in ended.out
