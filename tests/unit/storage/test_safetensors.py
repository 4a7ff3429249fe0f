"""Serialized tensors equal those of the safetensors library."""

import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.storage.state_dict import serialize_safetensors

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
]
SHAPES = st.lists(st.integers(0, 4), max_size=3)


def serialized(tensors):
    return b"".join(serialize_safetensors(tensors))


@given(st.dictionaries(st.text(max_size=6), st.tuples(st.sampled_from(DTYPES), SHAPES), max_size=8))
def test_serialize_safetensors_same_as_library_byte_for_byte(specs):
    tensors = {name: torch.randint(0, 2, shape).to(dtype) for name, (dtype, shape) in specs.items()}
    assert serialized(tensors) == safetensors.torch.save(tensors)
    metadata = {"format": "pt"}
    with_metadata = b"".join(serialize_safetensors(tensors, metadata))
    assert with_metadata == safetensors.torch.save(tensors, metadata)


def test_non_contiguous_tensors_serialized_in_logical_order():
    full = torch.randn(4, 6)
    tensors = {"transposed": full.T, "strided": full[:, ::2], "parameter": torch.nn.Parameter(full)}
    loaded = safetensors.torch.load(serialized(tensors))
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_serialize_safetensors_copies_no_tensor():
    tensor = torch.zeros(3)
    _, buffer = serialize_safetensors({"a": tensor})
    tensor[0] = 1
    assert bytes(buffer) == tensor.numpy().tobytes()
