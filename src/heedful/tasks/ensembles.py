"""Ensembles of runs: models that are searched together, and predictors of labels."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from heedful.acceleration.registry import accelerate_for_inference
from heedful.decoding.forbidden_text import vocabulary_texts
from heedful.errors import RunError, check, format_count
from heedful.models.base import DecodableModel, Seq2SeqModel
from heedful.models.ensembles import Ensemble
from heedful.tasks.task import LoadedRun
from heedful.tokenization.tokenizer import Tokenizer

Labeler = TypeVar("Labeler", bound=Any)


def build_ensemble(members: Sequence[LoadedRun], device: torch.device) -> DecodableModel:
    """Join the models of runs, whose source and target vocabularies must be equal."""
    models: list[DecodableModel] = []
    expected = members[0].tokenizers
    for folder, config, tokenizers, model in members:
        if not isinstance(model, Seq2SeqModel):
            message = f"this run is a {config.model.type}, not a translation model"
            raise RunError(str(folder), message, "leave it out")
        for side in ("source", "target"):
            difference = first_difference(getattr(expected, side), getattr(tokenizers, side))
            message = f"its {side} vocabulary differs: {difference}"
            hint = "use runs that were trained with the same tokenizers"
            check(not difference, str(folder), message, hint, RunError)
        models.append(accelerate_for_inference(model, device))
    averaging = members[0].config.decoding.ensemble_averaging
    return Ensemble(models, averaging) if len(models) > 1 else models[0]


def first_difference(expected: Tokenizer, other: Tokenizer) -> str:
    """Return how two vocabularies differ; empty if they are equal."""
    if type(expected) is not type(other):
        return f"the tokenizer is {type(other).__name__}, not {type(expected).__name__}"
    expected_tokens, other_tokens = vocabulary_texts(expected), vocabulary_texts(other)
    for index, (token, other_token) in enumerate(zip(expected_tokens, other_tokens, strict=False)):
        if token != other_token:
            return f"token {index} is {other_token!r}, not {token!r}"
    if len(expected_tokens) != len(other_tokens):
        return f"it has {format_count(len(other_tokens), 'token')}, not {len(expected_tokens)}"
    return ""


def combine_labelers(
    members: Sequence[LoadedRun], model_class: type, build: Callable[[LoadedRun], Labeler]
) -> Labeler:
    """Build the predictor of the first run, with those of the others as its ensemble.

    Raise RunError for a run of another task, or with other labels.
    """
    labelers: list[Labeler] = []
    for member in members:
        first, task = members[0], member.config.task
        message = f"this run {task.description}, but {first.folder} {first.config.task.description}"
        is_same = isinstance(member.model, model_class)
        check(is_same, str(member.folder), message, "leave it out", RunError)
        labelers.append(build(member))
        different = sorted(set(labelers[0].labels) ^ set(labelers[-1].labels))
        message = f"its labels differ from those of {first.folder}: {', '.join(different)}"
        hint = "use runs with the same labels"
        check(not different, str(member.folder), message, hint, RunError)
    labelers[0].ensemble_with = labelers[1:]
    return labelers[0]
