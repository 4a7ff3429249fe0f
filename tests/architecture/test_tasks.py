"""Nothing outside `tasks/` depends on which task a recipe, a model or a predictor belongs to."""

import ast
import re
from pathlib import Path

import heedful
from heedful.config import fields_with_role
from heedful.config.base import type_of
from heedful.recipes.recipe import DataConfig
from heedful.tasks.command_line import PARALLEL_FILES
from heedful.tasks.registry import TASKS, all_file_options, all_tasks

SOURCE = Path(heedful.__file__).parent
BELOW = {"tasks", "models", "training", "acceleration", "conversion"}
# Models and objectives stand below tasks; conversion is about particular models.
FILES = [
    path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in BELOW
]
CLASSES = {
    "Translator",
    "TextGenerator",
    "MaskFiller",
    "Classifier",
    "Tagger",
    "SequenceTagger",
    "Seq2SeqModel",
    "EncoderDecoderModel",
    "LanguageModel",
    "MaskedLanguageModel",
    "TextClassifier",
    "PairDataModule",
    "TextDataModule",
    "PairData",
    "TextData",
}


def checked_classes(tree):
    """Yield the names in the second argument of every call of isinstance."""
    for node in ast.walk(tree):
        is_call = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if is_call:
            yield from (name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name))


def test_no_isinstance_on_models_data_modules_or_predictors():
    found = {
        f"{path.relative_to(SOURCE)}: {name}"
        for path in FILES
        for name in checked_classes(ast.parse(path.read_text()))
        if name in CLASSES or name in {c.__name__ for t in all_tasks() for c in t.model_configs}
    }
    assert found == set()


def test_no_comparison_with_a_task_or_model_type():
    names = {*TASKS, *(str(type_of(c)) for task in all_tasks() for c in task.model_configs)}
    pattern = re.compile(rf"(==|!=|\bin\b).*\"({'|'.join(sorted(names))})\"")
    found = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if pattern.search(line) or "is_monolingual" in line
    ]
    assert found == []


def strings(tree):
    """Yield the string constants of a module that are no docstrings, with their lines."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    docstrings = [
        node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body
    ]
    texts = {id(node.value) for node in docstrings if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node.lineno, node.value


def test_no_file_option_of_a_task_is_named_elsewhere():
    # Commands of their own read pairs of texts; `heedful data --images` is a number.
    options = [options for options in all_file_options() if options is not PARALLEL_FILES]
    names = {option.flag() for task in options for option in task.all_options} - {"--images"}
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in FILES
        if path.relative_to(SOURCE).parts[0] != "data"
        for line, text in strings(ast.parse(path.read_text()))
        if names & set(re.findall(r"--[a-z-]+", text))
    ]
    assert found == []


def test_no_batching_of_a_task_is_named_elsewhere():
    setting = re.compile(rf"\bdata\.({'|'.join(fields_with_role(DataConfig, 'batching'))})\b")
    found = [
        str(path.relative_to(SOURCE))
        for path in FILES
        if path.relative_to(SOURCE).parts[0] != "data" and setting.search(path.read_text())
    ]
    assert found == []


def test_every_task_has_own_models_and_a_first_metric_of_loss():
    configs = [config for task in all_tasks() for config in task.model_configs]
    assert len(configs) == len(set(configs))
    assert {next(iter(task.evaluation.metrics)) for task in all_tasks()} == {"loss"}
    assert [task.name for task in all_tasks()] == list(TASKS)
