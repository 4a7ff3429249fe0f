"""Exercises: solutions pass, mutants get their own feedback, starters fail at their blank."""

import json
import shutil

import pytest
import torch

from heedful.course import checker, child, classroom
from heedful.course.exercise import load_text
from heedful.course.registry import exercises
from heedful.errors import RunError
from heedful.experiment import train
from heedful.runs import Run
from tests.commands import heedful
from tests.shape_checking import unchecked

EXERCISES = exercises()
SLOW = pytest.mark.slow
QUICK = {number: one for number, one in EXERCISES.items() if one.seconds <= 10}
MUTANTS = {
    f"{number}-{index}": (one, mutant)
    for number, one in EXERCISES.items()
    for index, mutant in enumerate(one.mutants)
}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def problems(exercise, text, seed):
    """Return the problems of an answer, and the feedback for it."""
    instances = exercise.instances(seed)
    expected = checker._outputs_of(exercise, exercise.solution, instances)
    answer = load_text(text)
    outputs = [child.call(exercise, answer, inputs) for inputs in instances]
    triples = zip(outputs, expected, instances, strict=True)
    told = [checker._problem(exercise, *triple) for triple in triples]
    found = [problem for problem in told if problem]
    return found, checker._feedback(exercise, instances, outputs, expected) if found else ""


def check_exercise(exercise, seeds):
    for seed in seeds:
        assert problems(exercise, exercise.solution, seed) == ([], ""), seed
    for mutant in exercise.mutants:
        for seed in seeds[:3]:
            found, feedback = problems(exercise, exercise.mutated(mutant), seed)
            assert found, mutant.feedback
            assert feedback == mutant.feedback, (seed, found[0])


@pytest.mark.parametrize("number", ["1.3", "3.1"])
def test_solution_passes_and_mutants_get_their_feedback(number):
    check_exercise(EXERCISES[number], seeds=[0, 1])


@pytest.mark.wide
@pytest.mark.parametrize("number", QUICK)
def test_solution_passes_ten_seeds_and_mutants_get_their_feedback(number):
    check_exercise(EXERCISES[number], seeds=range(10))


@pytest.mark.slow
@pytest.mark.parametrize("number", sorted(EXERCISES.keys() - QUICK.keys()))
def test_experiment_passes_and_its_mutants_get_their_feedback(number):
    check_exercise(EXERCISES[number], seeds=range(10))


@pytest.mark.wide
@pytest.mark.parametrize("number", ["5.6", *(pytest.param(n, marks=SLOW) for n in ("1.5", "3.6"))])
def test_scores_of_runs_are_measured_again(number, tmp_path):
    exercise = EXERCISES[number]
    folders = [str(tmp_path / str(place)) for place, _ in enumerate(exercise.runs)]
    with unchecked():
        for folder, (recipe, settings) in zip(folders, exercise.runs, strict=True):
            train(recipe, folder, settings=[*settings, "training.max_steps=2"], device="cpu")
        answer = f"ANSWER = { ({'runs': folders, 'scores': [-1.0, -1.0]}) }\n"
        verdict = checker.check(exercise, answer)
    assert verdict.message == "score 1 is -1.0, but heedful evaluate gives another one"


@pytest.mark.parametrize("number", EXERCISES)
def test_starter_fails_at_its_first_blank(number):
    exercise = EXERCISES[number]
    starter = exercise.starter("anna")
    verdict = checker.check(exercise, starter)
    lines = starter.splitlines()
    first = next(index for index, line in enumerate(lines, 1) if "___" in line)
    assert verdict.message == f"line {first} is still ___"
    assert 2 <= len(exercise.mutants) <= 5


def test_there_are_six_exercises_for_each_session():
    numbers = [f"{session}.{place}" for session in range(1, 6) for place in range(1, 7)]
    assert list(EXERCISES) == numbers


def test_numbers_on_paper_depend_on_the_user():
    exercise = EXERCISES["1.1"]
    given = {exercise.starter(user).split("GIVEN")[1] for user in ("anna", "ben", "cleo")}
    assert len(given) == 3


HOSTILE = {
    "while True: pass": "stopped after 10 seconds: is there an endless loop?",
    "import torch; torch.empty(10 * 2**30, dtype=torch.uint8).fill_(1)": "RuntimeError",
    "import os; os._exit(0)": "no outputs: the process ended by itself",
    "print('x' * 10**8)": "no outputs",
    "import sys; sys.exit(0)": "no outputs",
    "raise KeyError('h')": "KeyError: 'h'",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", HOSTILE)
def test_hostile_answer_gets_one_line(line):
    exercise = EXERCISES["1.2"]
    verdict = checker.check(exercise, f"{line}\n{exercise.solution}", seed=1)
    assert not verdict.passed
    assert HOSTILE[line] in verdict.message
    assert "\n" not in verdict.message


@pytest.mark.wide
def test_models_of_a_session_are_trained_once(tmp_path, capsys):
    with pytest.raises(RunError, match=r"(?s)training failed: .*heedful train ram-2014-small"):
        classroom.prepare(5, tmp_path / "failed", ("--steps", "-1"))
    for _ in range(2):
        classroom.prepare(5, tmp_path, ("--steps", "2"))
        assert "glimpses: ready, ram-2014-small, step 2" in capsys.readouterr().out
    assert Run(tmp_path / "glimpses").verify()["step"] == 2


@pytest.mark.wide
def test_commands_start_and_check_the_exercises(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert heedful(capsys, monkeypatch, "course", "check", "nothing.py").code == 2
    started = heedful(capsys, monkeypatch, "course", "start", "1", "--id", "anna", "-o", "here")
    assert started.out.splitlines()[:2] == ["here/s1/e1.py", "here/s1/e2.py"]
    checked = heedful(capsys, monkeypatch, "course", "check", "here/s1", "--exercise", "1.2")
    assert checked.code == 1
    file = tmp_path / "here" / "s1" / "e2.py"
    file.write_text(f"# exercise 1.2\n{EXERCISES['1.2'].solution}", encoding="utf-8")
    right = heedful(capsys, monkeypatch, "course", "check", file, "--json", "--seed", "3")
    expected = {"exercise": "1.2", "passed": True, "message": "right", "seed": 3}
    assert (right.code, json.loads(right.out)) == (0, [expected])
    wrong = EXERCISES["1.2"].mutants[1]
    cells = [{"cell_type": "code", "source": ["%matplotlib inline\n"], "metadata": {}}]
    cells.append({"cell_type": "code", "source": EXERCISES["1.2"].mutated(wrong), "metadata": {}})
    (tmp_path / "lab.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    ended = heedful(capsys, monkeypatch, "course", "check", "lab.ipynb", "--seed", "3")
    assert ended.code == 1
    assert wrong.feedback in ended.out
    assert "(--seed 3)" in ended.out
    shutil.rmtree(tmp_path / "here")
