"""Laws of edits over every model: what is edited is returned as edited, and nothing else changes.

Models are traced while they decode a known target; `score` decodes the same target step by step.
"""

from contextlib import nullcontext

import pytest
import torch

from heedful.attention.alignments import (
    EntmaxAlignmentConfig,
    FixedAlignmentConfig,
    SoftmaxAlignmentConfig,
    SparsemaxAlignmentConfig,
)
from heedful.attention.edits import AttentionEdit, find_attention, with_edits
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from tests.catalogue import SYSTEMS, batch, build, quick_or_wide, store
from tests.shape_checking import unchecked

ROW = 2  # of the corpus: a source of 8 tokens, EOS included
EXACT = {"rtol": 1e-9, "atol": 1e-9}
WITHOUT_ATTENTION = {"sutskever", "show and tell", "cho", "bridge first-input"}
EDITABLE = [
    name
    for name in SYSTEMS
    if name not in WITHOUT_ATTENTION
    and not name.startswith(("dilated", "prefix LM"))
    and "final-state" not in name
    and "constant" not in name
]
ALIGNMENTS = [
    SoftmaxAlignmentConfig(temperature=0.2),
    SparsemaxAlignmentConfig(),
    EntmaxAlignmentConfig(),
    FixedAlignmentConfig(pattern="uniform"),
]
each_system = pytest.mark.parametrize("name", quick_or_wide(EDITABLE))


@pytest.fixture(autouse=True)
def checks_of_diverse_systems(request):
    """Decoding takes hundreds of steps; the shapes of diverse systems are checked."""
    with unchecked() if request.node.get_closest_marker("wide") else nullcontext():
        yield


def run(model):
    """Return log-probabilities (T, N), and for each layer its rows (H, S) by step."""
    with torch.inference_mode(), trace_attention(model) as records:
        log_probs = model(batch(store(), [ROW]), need_weights=True).log_probs[0]
    rows = {}
    for record in records:
        if record.role == "copy":
            continue
        num_queries, num_keys = record.weights.shape[-2:]
        is_continued = record.role == "self" and "pooling" not in record.module_path
        first = num_keys - num_queries if is_continued else record.step
        first = num_keys if record.role == "intra" else first
        for index in range(num_queries):
            step = first + index
            rows.setdefault(record.module_path, {})[step] = record.weights[0, :, index]
    return log_probs, rows


def step_by_step(model):
    examples = store()
    target = examples.target.get(ROW)
    (hypothesis,) = model.score(batch(examples, [ROW]).sources, [target])
    return torch.from_numpy(hypothesis.log_probs)


def target_log_probs(log_probs):
    targets = batch(store(), [ROW]).targets[0]
    return log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


def sites_of(model, edit):
    return [site for site in find_attention(model) if site.why_not(edit) is None]


def middle(steps):
    return sorted(steps)[len(steps) // 2]


SCALE = AttentionEdit(scale={0: 0.5})


@each_system
def test_row_set_to_own_weights_changes_nothing(name):
    model = build(name)
    log_probs, rows = run(model)
    edits = [
        AttentionEdit(layer=site.path, step=step, head=head, row=weights[head].tolist())
        for site in sites_of(model, SCALE)
        for step, weights in rows[site.path].items()
        for head in range(site.num_heads)
    ]
    edited = with_edits(model, edits)
    edited_log_probs, edited_rows = run(edited)
    torch.testing.assert_close(edited_log_probs, log_probs, **EXACT)
    for path, by_step in rows.items():
        for step, weights in by_step.items():
            torch.testing.assert_close(edited_rows[path][step], weights, **EXACT)
    torch.testing.assert_close(step_by_step(edited), step_by_step(model), **EXACT)


@each_system
def test_forced_row_is_returned_as_forced_and_nothing_before_it_changes(name):
    model = build(name)
    log_probs, rows = run(model)
    for site in sites_of(model, SCALE):
        step = middle(rows[site.path])
        # What a causal layer hides from a step begins behind it.
        is_causal = site.role in ("self", "intra")
        position = 0 if is_causal else rows[site.path][step][-1].argmin().item()
        edit = AttentionEdit(layer=site.path, step=step, head=site.num_heads - 1, set={position: 1})
        edited_log_probs, edited_rows = run(with_edits(model, [edit]))
        forced = torch.zeros_like(rows[site.path][step][-1])
        forced[position] = 1
        torch.testing.assert_close(edited_rows[site.path][step][-1], forced, **EXACT)
        others = rows[site.path][step][:-1]
        torch.testing.assert_close(edited_rows[site.path][step][:-1], others, **EXACT)
        is_decoder = site.path.startswith("decoder")
        for earlier, weights in rows[site.path].items() if is_decoder else ():
            if earlier < step:
                torch.testing.assert_close(edited_rows[site.path][earlier], weights, **EXACT)
        if is_decoder:
            before = slice(max(step - 1, 0))  # a cell may attend before it reads the token
            torch.testing.assert_close(edited_log_probs[before], log_probs[before], **EXACT)
        expected = target_log_probs(edited_log_probs)
        torch.testing.assert_close(step_by_step(with_edits(model, [edit])), expected)


@each_system
def test_dropped_source_position_has_no_weight_in_any_layer_and_rows_keep_sums(name):
    model, edit = build(name), AttentionEdit(layer="source", scale={2: 0.0})
    refusals = [site.why_not(edit) for site in find_attention(model) if site.attends_to_source]
    if any(refusals):
        with pytest.raises(ConfigError, match=r"attends to blocks|reads from the end"):
            with_edits(model, [edit])
        return
    _, rows = run(model)
    edited = with_edits(model, [edit])
    edited_log_probs, edited_rows = run(edited)
    sites = [site for site in find_attention(model) if site.attends_to_source]
    assert sites
    for site in sites:
        for step, weights in edited_rows[site.path].items():
            if weights.size(-1) > 2:
                assert (weights[:, 2] == 0).all()
            if not (site.alignment_function.is_unnormalized or site.has_sentinel):
                before = rows[site.path][step].sum(dim=-1)
                torch.testing.assert_close(weights.sum(dim=-1), before)
    torch.testing.assert_close(step_by_step(edited), target_log_probs(edited_log_probs))


@each_system
def test_another_alignment_equals_a_model_built_with_it(name):
    """The systems take turns with the alignments."""
    alignment = ALIGNMENTS[EDITABLE.index(name) % len(ALIGNMENTS)]
    model, edit = build(name), AttentionEdit(layer="*", alignment=alignment)
    sites = sites_of(model, edit)
    expected = build(name)
    for site in sites:
        expected.get_submodule(site.alignment_path).alignment_function = alignment.build().eval()
    edited = with_edits(model, [edit.model_copy(update={"layer": site.path}) for site in sites])
    torch.testing.assert_close(run(edited)[0], run(expected)[0], **EXACT)
    torch.testing.assert_close(step_by_step(edited), step_by_step(expected), **EXACT)


@each_system
def test_edited_model_shares_all_parameters_and_leaves_the_model_as_it_was(name):
    model = build(name)
    before, _ = run(model)
    sites = sites_of(model, SCALE)
    edited = with_edits(model, [SCALE.model_copy(update={"layer": site.path}) for site in sites])
    assert {id(p) for p in edited.parameters()} <= {id(p) for p in model.parameters()}
    assert (edited is model) == (not sites)
    assert torch.equal(run(model)[0], before)
