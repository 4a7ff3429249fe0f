"""A model for MiniSBD, the sentence splitter of Argos Translate, made of rules instead of weights.

MiniSBD asks an ONNX model for a class of each character; class 2 ends a sentence. Each rule is a
window of kinds of characters around the last one, written as a filter of one convolution that is
positive where the window fits. The rules are those of `tasks/translation/sentences.py`.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.tasks.translation.sentences import (
    ABBREVIATIONS,
    CLOSING,
    FULL_WIDTH_CLOSING,
    FULL_WIDTH_STOPS,
)

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_KINDS = ("any", "space", "small", "digit", "period", "stop", "wide", "closing", *_LETTERS)
_SPECIAL_UNITS = ["<PAD>", "<UNK>"]
_BEFORE, _AFTER = 6, 2  # characters that a window reaches
_GRAPH = f"""
<ir_version: 8, opset_import: ["" : 17]>
splitter (int64[B, N] units, float[B, N, F] features) => (float[B, N, 3] scores) {{
  kinds = Gather (table, units)
  channels = Transpose <perm = [0, 2, 1]> (kinds)
  responses = Conv <pads = [{_BEFORE}, {_AFTER}]> (channels, filters, biases)
  fitting = Relu (responses)
  weighted = Conv (fitting, signs, offsets)
  scores = Transpose <perm = [0, 2, 1]> (weighted)
}}
"""


class Rule(NamedTuple):
    """Kinds of characters, by offset from the one that ends a sentence or does not."""

    is_end: bool
    present: Sequence[tuple[int, str]]
    absent: Sequence[tuple[int, str]] = ()


def build_rules() -> list[Rule]:
    """Return the rules; a sentence ends where one fits and none that forbids it does."""
    following = [(1, "space"), (2, "any")]
    no_more = [(2, "small"), (2, "closing")]
    ends = [
        Rule(True, [(-count, "stop"), *closing, *following], no_more)
        for count in range(3)
        for closing in [[(offset, "closing") for offset in range(1 - count, 1)]]
    ]
    ends += [
        Rule(True, [(0, "wide")], [(1, "wide"), (1, "closing")]),
        Rule(True, [(-1, "wide"), (0, "closing")], [(1, "wide"), (1, "closing")]),
    ]
    period = (0, "period")
    exceptions = [
        Rule(False, [period, (-1, "any")], [(-1, "period"), (-2, "any")]),  # one letter
        Rule(False, [period, (-1, "digit"), (-2, "digit")], [(-3, "any")]),  # an ordinal
        Rule(False, [period, (-1, "any"), (-2, "period")], [(-1, "period")]),  # z.B., U.S.
        Rule(False, [period, (-1, "any"), (-2, "any"), (-3, "period")], [(-1, "period")]),
    ]
    for word in ABBREVIATIONS:
        if word.isascii() and len(word) < _BEFORE:
            letters = [(index - len(word), letter) for index, letter in enumerate(word)]
            exceptions.append(Rule(False, [period, *letters], [(-len(word) - 1, "any")]))
    return [*ends, *exceptions]


def kinds_of(character: str) -> set[str]:
    """Return what rules may ask about a character."""
    if character.isspace():
        return {"space"}
    tests = {
        "any": True,
        "small": character.islower(),
        "digit": character.isdecimal(),
        "period": character == ".",
        "stop": character in ".!?\u2026",
        "wide": character in FULL_WIDTH_STOPS,
        "closing": character in CLOSING + FULL_WIDTH_CLOSING,
        character.lower(): character.lower() in _LETTERS,
    }
    return {kind for kind, is_true in tests.items() if is_true}


def write_sentence_splitter(path: Path) -> None:
    """Write the model."""
    import onnx
    from onnx import helper, numpy_helper, parser

    rules = build_rules()
    index = {kind: number for number, kind in enumerate(_KINDS)}
    filters = np.zeros((len(rules), len(_KINDS), _BEFORE + 1 + _AFTER), np.float32)
    for row, rule in enumerate(rules):
        for offset, kind in rule.present:
            filters[row, index[kind], _BEFORE + offset] = 1
        for offset, kind in rule.absent:
            filters[row, index[kind], _BEFORE + offset] = -1
    biases = np.array([1 - len(rule.present) for rule in rules], np.float32)  # 1 where it fits
    signs = np.zeros((3, len(rules), 1), np.float32)
    signs[2, :, 0] = [1 if rule.is_end else -len(rules) for rule in rules]
    offsets = np.array([0.5, 0, 0], np.float32)  # class 0, unless a sentence ends
    characters = [chr(code) for code in range(sys.maxunicode + 1) if kinds_of(chr(code)) - {"any"}]
    units = [*_SPECIAL_UNITS, *characters]
    table = np.zeros((len(units), len(_KINDS)), np.float32)
    table[1, index["any"]] = 1  # a character without other kinds is unknown
    for row, character in enumerate(characters, start=len(_SPECIAL_UNITS)):
        table[row, [index[kind] for kind in kinds_of(character)]] = 1

    model = parser.parse_model(_GRAPH)
    tensors = {
        "table": table,
        "filters": filters,
        "biases": biases,
        "signs": signs,
        "offsets": offsets,
    }
    for name, values in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    vocabulary = {"_id2unit": units, "_unit2id": {unit: row for row, unit in enumerate(units)}}
    metadata = {
        "lang_code": "any",
        "config": json.dumps({"feat_funcs": ["end_of_para"], "batch_size": 8}),
        "vocab": json.dumps(vocabulary),
    }
    helper.set_model_props(model, metadata)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))
