"""A stand-in for MPS where there is none: CPU tensors that say that they are on `mps`.

It refuses what MPS refuses: float64, tensors of two devices in one operation, and reading a tensor
as an array without `.cpu()`.
"""

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

MPS, CPU = torch.device("mps"), torch.device("cpu")
_MAY_MIX_DEVICES = {Tensor.to, Tensor.copy_, Tensor.__getitem__, Tensor.__setitem__}


class MPSTensor(Tensor):
    """A tensor on the stand-in device."""


class FakeMPS(TorchFunctionMode):
    """Within this context, "mps" is a device."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, leaves = kwargs or {}, tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        on_mps = [isinstance(tensor, MPSTensor) for tensor in tensors]
        if func == Tensor.device.__get__ and on_mps[0]:
            return MPS
        if func in {Tensor.numpy, Tensor.__array__} and on_mps[0]:
            raise TypeError("can't convert mps device type tensor to numpy: use Tensor.cpu()")
        sized = {is_mps for tensor, is_mps in zip(tensors, on_mps, strict=True) if tensor.dim()}
        if len(sized) > 1 and func not in _MAY_MIX_DEVICES:
            raise RuntimeError(f"{func.__name__}: expected all tensors on the same device")
        result = func(*tree_map(_to_cpu, args), **tree_map(_to_cpu, kwargs))
        is_on_mps = any(on_mps)
        if func is Tensor.to and len(on_mps) > 1:
            is_on_mps = on_mps[1]
        named = [leaf for leaf in leaves if _is_device(leaf)]
        if named or func is Tensor.cpu:
            is_on_mps = bool(named) and torch.device(named[0]) == MPS
        return tree_map(move if is_on_mps else _leave, result)


def move(value):
    """A tensor on the stand-in device, which shares the memory of the one given."""
    if not isinstance(value, Tensor):
        return value
    if value.dtype == torch.float64:
        raise TypeError("the MPS framework doesn't support float64")
    return value if isinstance(value, MPSTensor) else value.as_subclass(MPSTensor)


def move_model(model):
    """Replace parameters and buffers of a model by tensors on the stand-in device."""
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(move(parameter.detach())))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, move(buffer))
    return model


def _leave(value):
    return value.as_subclass(Tensor) if isinstance(value, MPSTensor) else value


def _is_device(value):
    return isinstance(value, torch.device) or (isinstance(value, str) and value in {"mps", "cpu"})


def _to_cpu(value):
    return CPU if _is_device(value) else value
