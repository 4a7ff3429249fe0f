"""FLOP counts match torch's counter where that is right, and formulas by hand."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import gelu, layer_norm, scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.text.batching import Batch, SourceBatch
from heedful.experiment.flops import FlopCounter, flops_per_token
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.layers.transformer import TransformerConfigBase
from heedful.models.language_model import LanguageModelConfig
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.recipes import load_recipe, recipe_names
from heedful.tasks.registry import task_of_model
from heedful.tasks.task_data import BatchShape, VocabSizes

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention
CUDNN = torch.ops.aten._cudnn_rnn


def random_tensor(*shape, device="cpu"):
    return torch.randn(*shape, device=device, requires_grad=True)


def count(compute, *, backward=True):
    with FlopCounter() as flop_count:
        output = compute()
        if backward:
            output.sum().backward()
    return flop_count.total


def products():
    """Operations that torch's counter supports."""
    yield "linear", lambda: nn.Linear(3, 5)(random_tensor(2, 4, 3))
    yield "linear of one vector", lambda: nn.Linear(3, 5, bias=False)(random_tensor(3))
    yield "a product", lambda: random_tensor(4, 3) @ random_tensor(3, 6)
    yield "many products", lambda: random_tensor(2, 7, 4, 3) @ random_tensor(2, 7, 3, 6)
    yield (
        "products added",
        lambda: torch.baddbmm(
            random_tensor(2, 4, 6), random_tensor(2, 4, 3), random_tensor(2, 3, 6)
        ),
    )
    yield (
        "one weight for many",
        lambda: torch.einsum("bsd,de->bse", random_tensor(2, 4, 3), random_tensor(3, 6)),
    )
    yield "convolution", lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1)(random_tensor(2, 4, 11))
    yield "dilated", lambda: nn.Conv1d(4, 6, 3, dilation=4)(random_tensor(2, 4, 11))
    yield "in a plane", lambda: nn.Conv2d(4, 6, (3, 2))(random_tensor(2, 4, 7, 5))
    yield "of data", lambda: nn.Conv1d(4, 6, 3)(torch.randn(2, 4, 11))
    yield "gru", lambda: nn.GRU(3, 4, batch_first=True)(random_tensor(2, 5, 3))[0]


PRODUCTS = dict(products())


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_count_same_as_torch_counter(name, backward):
    with FlopCounterMode(display=False) as counter:
        output = PRODUCTS[name]()
        if backward:
            output.sum().backward()
    assert count(PRODUCTS[name], backward=backward) == counter.get_total_flops() > 0


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_attention_kernel_counts_as_the_matrix_products(backward):
    def attend():
        return scaled_dot_product_attention(
            random_tensor(2, 3, 4, 8), random_tensor(2, 3, 5, 8), random_tensor(2, 3, 5, 8)
        )

    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = attend()
        if backward:
            output.sum().backward()
    # 2 x 3 heads, 4 queries, 5 keys: 8 multiply-adds for a score and 8 for a context.
    by_hand = 2 * (2 * 3) * 4 * 5 * (8 + 8) * (3 if backward else 1)
    assert counter.get_total_flops() == by_hand
    with sdpa_kernel(SDPBackend.MATH):
        assert count(attend, backward=backward) == by_hand
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert count(attend, backward=backward) == by_hand


def test_mask_and_grouped_keys_do_not_change_count():
    queries, keys = random_tensor(2, 6, 4, 8), random_tensor(2, 2, 5, 8)
    mask = torch.rand(2, 1, 4, 5) < 0.5

    def attend():
        return scaled_dot_product_attention(queries, keys, keys, attn_mask=mask, enable_gqa=True)

    assert count(attend) == 3 * 2 * (2 * 6) * 4 * 5 * 16


def test_gpu_kernels_counted():
    queries, keys = (random_tensor(2, 3, length, 8, device="meta") for length in (4, 5))
    assert count(lambda: ATTENTION(queries, keys, keys)[0]) == 3 * 2 * (2 * 3) * 4 * 5 * 16
    weights = [random_tensor(*shape, device="meta") for shape in [(16, 3), (16, 4), (16,), (16,)]]
    inputs, first = random_tensor(5, 2, 3, device="meta"), random_tensor(1, 2, 4, device="meta")
    rest = (2, 4, 0, 1, False, 0.0, True, False, [], None)  # an LSTM of 4 units, one layer
    compute = lambda: CUDNN(inputs, weights, 4, None, first, first, *rest)[0]  # noqa: E731
    assert count(compute, backward=False) == 2 * 5 * 2 * 16 * (3 + 4)


def test_backward_of_linear_layer_counts_twice_forward():
    layer, inputs = nn.Linear(3, 5), random_tensor(7, 3)
    forward = count(lambda: layer(inputs), backward=False)
    assert forward == 2 * 7 * 3 * 5
    assert count(lambda: layer(inputs)) == 3 * forward


def test_inputs_without_gradient_count_less_in_backward():
    layer, inputs = nn.Linear(3, 5), torch.randn(7, 3)
    assert count(lambda: layer(inputs)) == 2 * (2 * 7 * 3 * 5)
    conv, signal = nn.Conv1d(3, 5, 2), torch.randn(1, 3, 8)
    assert count(lambda: conv(signal)) == 2 * (2 * 7 * 3 * 2 * 5)


def test_flops_of_convolutions_match_hand_calculation():
    # 9 inputs and a kernel of 3 make 7 outputs, each of the 4 / 2 channels of its group.
    grouped = nn.Conv1d(4, 6, 3, groups=2)
    assert count(lambda: grouped(random_tensor(2, 4, 9)), backward=False) == 2 * 2 * 7 * 6 * 3 * 2
    # Transposed, each input meets the kernel once.
    spread = nn.ConvTranspose1d(4, 6, 3, stride=2)
    assert count(lambda: spread(random_tensor(2, 4, 9)), backward=False) == 2 * 2 * 9 * 4 * 3 * 6
    assert count(lambda: spread(random_tensor(2, 4, 9))) == 3 * (2 * 2 * 9 * 4 * 3 * 6)


def test_matrix_vector_products_counted():
    # Forwards 12 multiply-adds, and as many for the vector; the outer product adds up nothing.
    assert count(lambda: random_tensor(3, 4) @ random_tensor(4)) == 2 * 12 + 2 * 12
    assert count(lambda: random_tensor(4) @ random_tensor(4), backward=False) == 2 * 4


@pytest.mark.parametrize(("kind", "gates"), [(nn.RNN, 1), (nn.GRU, 3), (nn.LSTM, 4)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_recurrent_layer_counts_every_weight_once_per_input(kind, gates, device):
    layer, inputs = (
        kind(3, 5, batch_first=True, device=device),
        random_tensor(2, 7, 3, device=device),
    )
    first = random_tensor(1, 2, 5, device=device)
    state = (first, first) if kind is nn.LSTM else first
    forward = 2 * (2 * 7) * gates * 5 * (3 + 5)
    assert count(lambda: layer(inputs, state)[0], backward=False) == forward
    assert count(lambda: layer(inputs, state)[0]) == 3 * forward


@pytest.mark.filterwarnings("ignore")  # torch warns about GPUs when oneDNN is switched off
def test_fused_lstm_counts_as_the_steps():
    layer, inputs, first = (
        nn.LSTM(3, 5, num_layers=2),
        random_tensor(7, 2, 3),
        random_tensor(2, 2, 5),
    )
    fused = count(lambda: layer(inputs, (first, first))[0])
    with torch.backends.mkldnn.flags(enabled=False):
        assert count(lambda: layer(inputs, (first, first))[0]) == fused > 0


def test_lookups_and_elementwise_operations_count_nothing():
    table = nn.Embedding(10, 4)

    def compute():
        return layer_norm(gelu(table(torch.tensor([1, 2, 3]))), (4,)).softmax(dim=-1).tanh()

    assert count(compute) == 0


def test_count_is_the_same_without_gradients():
    layer, heads = nn.Linear(3, 8), (2, 3, 4, 8)

    def compute():
        queries = layer(torch.randn(2, 3, 4, 3))
        return scaled_dot_product_attention(queries, torch.randn(heads), torch.randn(heads))

    expected = count(compute, backward=False)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert count(compute, backward=False) == expected > 0


def test_count_is_grouped_by_operator():
    with FlopCounter() as flop_count:
        nn.Linear(3, 5)(torch.randn(2, 3))
        nn.Conv1d(1, 1, 2)(torch.randn(1, 1, 3))
    assert flop_count.by_operator == {"addmm": 60, "convolution": 8}
    assert flop_count.total == 68


def test_nested_counts_both_count():
    with FlopCounter() as outer:
        nn.Linear(3, 5)(torch.randn(2, 3))
        with FlopCounter() as inner:
            nn.Linear(3, 5)(torch.randn(2, 3))
    assert (outer.total, inner.total) == (120, 60)


def stack(size, intermediate_size, num_layers):
    parts = TransformerConfigBase(
        hidden_size=size,
        num_layers=num_layers,
        attention={"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 4}},
        feed_forward=[{"intermediate_size": intermediate_size}],
        dropout=0.0,
    )
    return parts.build_stack(config_path="encoder")


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_transformer_same_as_formula(device):
    transformer = stack(16, 40, 3).to(device)
    inputs, lengths = random_tensor(2, 7, 16, device=device), torch.full((2,), 7, device=device)
    # Four projections and two feed-forward matrices per token; per pair of tokens a score and a
    # context over the whole size, all heads together.
    weights, pairs = 3 * (4 * 16 * 16 + 2 * 16 * 40), 3 * 7 * 16
    forward = (2 * 7) * (2 * weights + 4 * pairs)
    assert (
        count(lambda: transformer.forward_bidirectional(inputs, lengths)[0], backward=False)
        == forward
    )
    assert count(lambda: transformer.forward_bidirectional(inputs, lengths)[0]) == 3 * forward


def test_experts_on_meta_device_count_every_token():
    experts = MixtureOfExperts(
        4,
        intermediate_size=6,
        num_experts=5,
        num_experts_per_token=2,
        importance_weight=0.0,
        load_weight=0.0,
    ).to("meta")
    inputs, mask = (
        random_tensor(2, 7, 4, device="meta"),
        torch.ones(2, 7, dtype=torch.bool, device="meta"),
    )
    # For every word two experts, and the two matrices of the gate.
    forward = 2 * (2 * 7) * (2 * (2 * 4 * 6) + 2 * (4 * 5))
    assert count(lambda: experts(inputs, mask).outputs, backward=False) == forward
    assert count(lambda: experts(inputs, mask).outputs) > 2 * forward


def test_experts_in_groups_on_meta_device_count_even_shares():
    experts = MixtureOfExperts(
        4,
        intermediate_size=6,
        num_experts=6,
        num_experts_per_token=4,
        importance_weight=0.0,
        load_weight=0.0,
        gating="strictly-balanced",
        num_groups=3,
    ).to("meta")
    inputs = random_tensor(2, 6, 4, device="meta")
    mask = torch.ones(2, 6, dtype=torch.bool, device="meta")
    # Twelve words in two of three groups, that is eight in each, and there with both experts.
    forward = 2 * (12 * 4 * 3 + 3 * 8 * 4 * 2 + 6 * 8 * (2 * 4 * 6))
    for training in (True, False):
        experts.train(training)
        assert count(lambda: experts(inputs, mask).outputs, backward=False) == forward


def assert_countable(config):
    """Count a model on the meta device, so that it may be of any size."""
    with torch.device("meta"):
        model = config.build(source_vocab_size=50, target_vocab_size=50)
        data = task_of_model(config).data
        batch = data.dummy_batch(config, VocabSizes(50, 50), BatchShape(4, 3), 2)
    flops = flops_per_token(model, batch, num_targets=6)
    # Backwards each product is made twice, but for those whose inputs are data.
    assert 2 * flops.forward < flops.training <= 3 * flops.forward


@pytest.mark.slow
@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_can_be_counted(name):
    assert_countable(load_recipe(name).model)


@pytest.mark.parametrize("config", [LanguageModelConfig(), MaskedLanguageModelConfig()])
def test_language_models_can_be_counted(config):
    assert_countable(config)


def real_batch(*, source_length, target_length):
    source, target = (torch.full((1, length), 5) for length in (source_length, target_length))
    return Batch(SourceBatch(source, torch.tensor([source_length])), target, target)


def test_count_same_as_real_run_and_leaves_model_unchanged():
    torch.manual_seed(0)
    model = load_recipe("reverse-tiny").model.build(source_vocab_size=12, target_vocab_size=12)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model.train()
    rng_state = torch.random.get_rng_state()
    batch = real_batch(source_length=4, target_length=3)
    flops = flops_per_token(model, batch, num_targets=3)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), rng_state)
    assert all(weight.grad is None for weight in model.parameters())
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])
    forward = count(lambda: model(batch).log_probs, backward=False)
    training = count(lambda: model(batch).log_probs)
    assert flops.forward == forward / 3
    assert flops.training == training / 3
