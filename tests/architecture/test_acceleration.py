"""Fast paths stay in `acceleration`: plain packages neither import it nor speak of it."""

import ast
import re

import pytest

from tests.architecture.source import SOURCE, module_name, parse, short, source_files

PLAIN_PACKAGES = ("attention", "layers", "models", "search")
CALL_SITES = {
    "heedful.tasks.prediction": "a predictor; plain modules to edit",
    "heedful.tasks.search_predictor": "a predictor",
    "heedful.tasks.text_task": "predictors of running text",
    "heedful.tasks.forecasting.predictor": "a predictor",
    "heedful.tasks.translation.task": "the language model of shallow fusion",
    "heedful.conversion.argos_export": "CTranslate2",
    "heedful.conversion.ct2_export": "CTranslate2",
    "heedful.experiment.validation": "each validation",
    "heedful.runs": "data types of inference",
    "heedful.tasks.translation.translator": "CTranslate2",
    "heedful.training.step_capture": "training steps as graphs",
    "heedful.training.trainer": "training",
}
OPS = {
    "additive_score",
    "attend",
    "find_candidates",
    "linear_recurrence",
    "smoothed_cross_entropy",
    "softmax_context",
    "unroll",
}
RETIRED = re.compile(r"(?i)\bfused\b|\bpacked\b|\bfast path\b|device\.type|\.is_cuda")


def imported_modules(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_only_call_sites_import_acceleration():
    importers = {
        module_name(path)
        for path in source_files()
        if not module_name(path).startswith("heedful.acceleration")
        and any(name.startswith("heedful.acceleration") for name in imported_modules(parse(path)))
    }
    assert importers == set(CALL_SITES)


@pytest.mark.parametrize("package", PLAIN_PACKAGES)
def test_plain_packages_do_not_mention_fast_paths(package):
    mentions = {
        f"{short(path)}:{number}": match.group()
        for path in sorted((SOURCE / package).rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if (match := RETIRED.search(line))
    }
    assert mentions == {}


def test_ops_are_those_of_the_decision_record():
    functions = (node for path in source_files() for node in ast.walk(parse(path)))
    decorated = {
        node.name
        for node in functions
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(part, ast.Name) and part.id == "op" for part in node.decorator_list)
    }
    record = SOURCE.parents[1] / "docs/decisions/0022-kernels-and-captured-steps.md"
    assert decorated == OPS
    assert all(f"`{name}`" in record.read_text("utf-8") for name in OPS)
