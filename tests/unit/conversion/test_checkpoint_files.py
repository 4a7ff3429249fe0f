"""Checkpoints of torch.save are read as torch reads them, and nothing in them is executed."""

import argparse
import collections
import io
import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
import torch

from heedful.conversion.checkpoint_files import read_checkpoint
from heedful.errors import DataError

FORMATS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def save(value, path, *, is_zip=True):
    torch.save(value, path, _use_new_zipfile_serialization=is_zip)
    return path


@FORMATS
def test_tensors_of_each_dtype_load_exactly(is_zip, tmp_path):
    tensors = {str(dtype): (torch.randn(3, 4) * 9).to(dtype) for dtype in DTYPES}
    read = read_checkpoint(save(tensors, tmp_path / "model.pt", is_zip=is_zip))
    assert list(read) == list(tensors)
    for name, tensor in tensors.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


@FORMATS
def test_views_of_one_storage_load_exactly(is_zip, tmp_path):
    base = torch.arange(24.0)
    views = [base.view(4, 6).T, base[3:9], base[::5], base[:0], base[7]]
    read = read_checkpoint(save(views, tmp_path / "model.pt", is_zip=is_zip))
    for theirs, ours in zip(views, read, strict=True):
        assert ours.shape == theirs.shape
        assert torch.equal(ours, theirs)


@FORMATS
def test_state_dict_with_parameters_options_and_numbers(is_zip, tmp_path):
    module = torch.nn.LSTM(3, 2, bidirectional=True)
    checkpoint = {
        "model": module.state_dict(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "opt": argparse.Namespace(layers=2, names=["a", "b"], nested={"x": (1, None, True)}),
        "ordered": collections.OrderedDict([("b", 1), ("a", 2)]),
        "numbers": [np.float64(0.1), np.int64(-7), np.float32(1.5), 1.25, 10**30],
        "set": {1, 2},
        "size": torch.Size([2, 3]),
        "bytes": b"\x00\xff",
    }
    read = read_checkpoint(save(checkpoint, tmp_path / "model.pt", is_zip=is_zip))
    assert all(
        torch.equal(read["model"][name], value) for name, value in module.state_dict().items()
    )
    assert torch.equal(read["parameter"], torch.ones(2))
    assert read["opt"] == vars(checkpoint["opt"])
    assert list(read["ordered"].items()) == [("b", 1), ("a", 2)]
    for name in ("numbers", "set", "size", "bytes"):
        assert read[name] == checkpoint[name]
    assert type(read["numbers"][0]) is float


class Calls:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@FORMATS
@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (os.system, ("touch executed",), "posix.system"),
        (eval, ("open('executed', 'w')",), "builtins.eval"),
        (getattr, (1, "real"), "builtins.getattr"),
        (torch.load, ("x",), "torch.serialization.load"),
    ],
    ids=["system", "eval", "getattr", "load"],
)
def test_code_in_a_checkpoint_is_reported_by_name(
    is_zip, function, arguments, name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    buffer = {"model": {"w": torch.ones(2)}, "hook": Calls(function, *arguments)}
    save(buffer, path, is_zip=is_zip)
    name = name.replace("builtins", "__builtin__")  # protocol 2
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == (
        f"{path}: contains {name}, which is not read: it could run code\n"
        "  only tensors, numbers, texts and containers are read; save these alone"
    )
    assert not (tmp_path / "executed").exists()


def test_values_set_on_classes_end_with_the_reading(tmp_path):
    """BUILD with a pair sets attributes on whatever is on the stack, a class included."""
    pickled = (
        b"\x80\x02cargparse\nNamespace\n"  # the class
        b"N}X\x05\x00\x00\x00layerK\x07s\x86b."  # (None, {"layer": 7}): setattr on the class
    )
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", pickled)
    try:
        first = read_checkpoint(path)
    except DataError:
        first = None
    plain = save(argparse.Namespace(x=1), tmp_path / "plain.pt")
    assert read_checkpoint(plain) == {"x": 1}
    assert not hasattr(argparse.Namespace, "layer")
    assert first is None or first is not argparse.Namespace


@FORMATS
def test_truncated_checkpoint_raises(is_zip, tmp_path):
    path = save({"w": torch.randn(50, 50)}, tmp_path / "model.pt", is_zip=is_zip)
    data = path.read_bytes()
    for size in (0, 3, 10, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:size])
        with pytest.raises(DataError, match=r"model\.pt: not a checkpoint, or a damaged one"):
            read_checkpoint(path)


def test_tensor_beyond_storage_raises(tmp_path):
    path = save(torch.arange(6.0), tmp_path / "model.pt")
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    name = next(name for name in contents if name.endswith("data.pkl"))
    assert contents[name].count(b"K\x06") == 2  # elements of the storage, length of the tensor
    contents[name] = b"K\x07".join(contents[name].rsplit(b"K\x06", 1))
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in contents.items():
            archive.writestr(entry, data)
    with pytest.raises(DataError, match="a tensor reaches beyond its storage"):
        read_checkpoint(path)


def test_other_files_reported(tmp_path):
    path = tmp_path / "model.pt"
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == f"{path}: no such file\n  check the path"
    path.write_bytes(pickle.dumps({"a": 1}) * 3)
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == (
        f"{path}: not a file of `torch.save`\n  name a checkpoint: a file that ends in .pt or .ckpt"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "text")
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == (
        f"{path}: a zip archive, but without the entry data.pkl of a checkpoint\n"
        "  name a file that `torch.save` wrote"
    )


def test_compressed_archive_raises(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        buffer = io.BytesIO()
        torch.save(torch.zeros(9), buffer)
        with zipfile.ZipFile(buffer) as original:
            for name in original.namelist():
                archive.writestr(name, original.read(name))
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert str(caught.value) == (
        f"{path}: the entry 'data.pkl' is compressed, which `torch.save` never does\n"
        "  do not pack the checkpoint again"
    )


# ----- files that ask for more than they contain


def integers(*values):
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def storage(num_values):
    return (
        b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ"
        + struct.pack("<i", num_values)
        + b"tQ"
    )


def tensor(size, stride, *, num_values=4):
    call = b"ctorch._utils\n_rebuild_tensor\n("
    return call + storage(num_values) + b"K\0" + integers(*size) + integers(*stride) + b"tR"


def nested_tuple(depth):
    """Return a tuple that contains the next one twice, and so on."""
    return b"K\x01" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(depth))


HOSTILE = {
    "tensor that repeats its values": (
        tensor((1000, 1000), (0, 0)),
        "a tensor reaches beyond its storage, or repeats its values",
    ),
    "tensor whose storage is set": (
        tensor((4,), (1,)) + b"(" + storage(4) + b"K\0" + integers(1000) + integers(1) + b"tb",
        "attributes of a Tensor",
    ),
    "tensor of many dimensions": (
        tensor((1,) * 65, (1,) * 65),
        "a tensor of too many dimensions",
    ),
    "storage that is larger than the file": (
        tensor((4,), (1,), num_values=10**8),
        "its values are larger than the file",
    ),
    "key whose hash is exponential": (b"}" + nested_tuple(9) + b"Ns", "a key of type tuple"),
    "member of a set whose hash is exponential": (
        b"cbuiltins\nset\n(](" + nested_tuple(9) + b"etR",
        "a key of type tuple",
    ),
    "key that is a large number": (b"}\x8a\x64" + b"\x01" * 100 + b"Ns", "a key of type int"),
    "list that is copied many times": (
        b"](" + b"K\x01" * 200 + b"eq\x00cbuiltins\nset\nq\x01" + b"h\x01h\x00\x85R" * 50,
        "its values are larger than the file",
    ),
    "instruction that no checkpoint has": (b"K\x012\x86", "the instruction DUP"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_value_that_is_larger_than_the_file_raises(name, tmp_path):
    pickled, message = HOSTILE[name]
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + pickled + b".")
        archive.writestr("m/data/0", bytes(16))
    with pytest.raises(DataError) as caught:
        read_checkpoint(path)
    assert message in caught.value.message


def test_high_memo_number_takes_no_memory(tmp_path):
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02Nr" + struct.pack("<I", 10**6) + b".")
    tracemalloc.start()
    assert read_checkpoint(path) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


def test_entries_that_are_larger_than_the_file_raise(tmp_path):
    path = save({"w": torch.zeros(500)}, tmp_path / "model.pt")
    data = path.read_bytes()
    index = data.rindex(b"PK\x01\x02") + 24  # the size in the last entry of the directory
    path.write_bytes(data[:index] + struct.pack("<I", 10**6) + data[index + 4 :])
    with pytest.raises(DataError, match="its entries are larger than the file"):
        read_checkpoint(path)


def test_legacy_storage_that_is_larger_than_the_file_raises(tmp_path):
    path = save(torch.zeros(7), tmp_path / "model.pt", is_zip=False)
    data = path.read_bytes()
    assert data.count(b"K\x07") == 2  # values of the storage, length of the tensor
    path.write_bytes(data.replace(b"K\x07", b"J\0\0\0\x40"))
    with pytest.raises(DataError, match="its values are larger than the file"):
        read_checkpoint(path)


def test_states_of_optimizer_and_scheduler_load(tmp_path):
    """What JoeyNMT saves beside the parameters."""
    module = torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    scheduler.step(1.0)
    state = {
        "optimizer_state": optimizer.state_dict(),
        "scheduler_state": scheduler.state_dict(),
        "train_iter_state": torch.Generator().manual_seed(1).get_state(),
    }
    read = read_checkpoint(save(state, tmp_path / "10.ckpt"))
    assert read["optimizer_state"]["param_groups"] == state["optimizer_state"]["param_groups"]
    averages = [value["exp_avg"] for value in read["optimizer_state"]["state"].values()]
    expected = [value["exp_avg"] for value in state["optimizer_state"]["state"].values()]
    assert all(map(torch.equal, averages, expected))
    assert read["scheduler_state"]["best"] == 1.0
    assert torch.equal(read["train_iter_state"], state["train_iter_state"])
