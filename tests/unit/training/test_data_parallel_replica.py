"""Replicas, in a group of one: what they tell is then what they have."""

import copy

import pytest
import torch
from torch import distributed as dist
from torch import nn

from heedful.training.data_parallel import DDPContext, DDPModule, parameters_in_graph
from tests.catalogue import TAGGERS, batch, build, store, tagged_store

UNUSED = "transformer, score alibi"  # its queries and keys are asked for nothing


@pytest.fixture
def group():
    shared = dist.HashStore()
    dist.init_process_group("gloo", store=shared, rank=0, world_size=1)
    yield DDPContext(0, 1, shared)
    dist.destroy_process_group()


def differentiate(model, examples):
    model(examples).log_probs.sum().backward()


@pytest.mark.parametrize("name", ["gru, attend-then-step", "argmax readout", UNUSED, *TAGGERS])
def test_ddp_module_has_the_gradients_of_the_model(name, group):
    corpus = tagged_store() if name in TAGGERS else store()
    plain, examples = build(name).train(), batch(corpus, list(range(5)))
    model = copy.deepcopy(plain)
    replica = DDPModule(model, group)
    before = torch.get_rng_state()
    for _ in range(2):  # torch complains of a weight that was waited for in vain a step later
        differentiate(plain, examples)
    torch.set_rng_state(before)
    for _ in range(2):
        differentiate(replica, examples)
    for (where, weight), other in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert (weight.grad is None) == (other.grad is None), where
        if weight.grad is not None:
            torch.testing.assert_close(other.grad, weight.grad)


def test_no_sync_accumulates_gradients(group):
    plain, examples = build("gru, attend-then-step").eval(), batch(store(), [0, 1, 2])
    model = copy.deepcopy(plain)
    replica = DDPModule(model, group)
    differentiate(plain, examples)
    with group.no_sync(replica):
        differentiate(replica, examples)
    differentiate(replica, examples)
    for weight, other in zip(plain.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(other.grad, 2 * weight.grad)


def test_parameters_in_graph_are_those_outputs_depend_on():
    used, unused, frozen = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)
    outputs = ({"one": frozen(used(torch.ones(2)))}, [unused(torch.ones(2)).detach()], None, 3)
    assert parameters_in_graph(outputs) == {id(used.weight), id(used.bias)}
