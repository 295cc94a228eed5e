"""Tensors on device hpu, carried by CPU tensors.

torch knows the device type but has no kernels for it, so a tensor is a wrapper that says `hpu:0` and computes with the
CPU tensor inside. As on a card, a tensor of the host cannot meet one of the card, and what the host reads is copied.
Tensors that torch makes on the device come from the kernels at the end. Inference only: no gradients.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.habana_fake.guard import install_guard

Recorder = Callable[[Any, Any, Any, Any], None]


class HpuTensor(torch.Tensor):
    """inner: the CPU tensor. recorder: told of every operation, with the CPU tensors, while a graph is captured."""

    inner: torch.Tensor
    recorder: ClassVar[Recorder | None] = None

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "HpuTensor":
        with torch.inference_mode(False):  # else no view could be taken of what was made outside of it
            tensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                inner.shape,
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device="hpu:0",
            )
        tensor.inner = inner
        return tensor  # type: ignore[no-any-return]

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: Any) -> "HpuTensor":
        return HpuTensor(inner["inner"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"HpuTensor({self.inner})"

    def tolist(self) -> Any:
        _refuse_while_recording("tolist")
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return compute(func, args, dict(kwargs or {}))


# What may see a tensor of the host and one of the card at once, and what makes a number of a tensor.
_COPIES = {"copy_", "_to_copy", "to"}
_READS = {"_local_scalar_dense", "item"}
_CPU = torch.device("cpu")


def compute(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """One operation on the CPU tensors inside."""
    name = func.overloadpacket.__name__
    if name == "_has_compatible_shallow_copy_type":
        return False
    reads = name in _READS or _goes_to_host(name, args, kwargs)
    if reads:
        _refuse_while_recording(name)
    if name not in _COPIES:
        _refuse_mixed(name, args, kwargs)
    inner_args, inner_kwargs = tree_map_only(torch.device, lambda _: _CPU, _inner((args, kwargs)))
    output = func(*inner_args, **inner_kwargs)
    if "out" in kwargs and kwargs["out"].shape != output.shape:
        raise NotImplementedError(f"{name}: a kernel of the card that makes its own output")
    if HpuTensor.recorder is not None:
        HpuTensor.recorder(func, inner_args, inner_kwargs, output)
    return output if reads else _wrapped(output, args, kwargs)


def _inner(values: Any) -> Any:
    return tree_map_only(HpuTensor, lambda tensor: tensor.inner, values)


def _goes_to_host(name: str, args: Any, kwargs: dict[str, Any]) -> bool:
    if name == "copy_":
        return not isinstance(args[0], HpuTensor)
    return any(isinstance(leaf, torch.device) and leaf == _CPU for leaf in tree_leaves((args, kwargs)))


def _wrapped(output: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The tensors of the card that carry an operation's output: those it was given, where it wrote into them."""
    given = {id(leaf.inner): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, HpuTensor)}
    return tree_map_only(torch.Tensor, lambda t: given[id(t)] if id(t) in given else HpuTensor(t), output)


def _refuse_mixed(name: str, args: Any, kwargs: dict[str, Any]) -> None:
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor) and not isinstance(leaf, HpuTensor) and leaf.dim() > 0:
            raise RuntimeError(f"{name}: a tensor on the host meets one on hpu:0")


def _refuse_while_recording(name: str) -> None:
    if HpuTensor.recorder is not None:
        raise RuntimeError(f"{name}: the host reads a tensor while a graph is captured")


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> HpuTensor:
    return HpuTensor(torch.empty(size, dtype=dtype or torch.get_default_dtype()))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> HpuTensor:
    return HpuTensor(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **_: Any) -> HpuTensor:
    return HpuTensor(torch.arange(start, end, step, dtype=dtype))


def _copy_from(source: torch.Tensor, target: HpuTensor, non_blocking: bool = False) -> HpuTensor:
    """What torch.tensor comes to, which keeps subclasses out."""
    target.inner.copy_(source)
    return target


install_guard()
_library = torch.library.Library("aten", "IMPL")
_library.impl("empty.memory_format", _empty, "HPU")
_library.impl("empty_strided", _empty_strided, "HPU")
_library.impl("_copy_from", _copy_from, "HPU")
_library.impl("arange.start_step", _arange, "HPU")
_library.impl("arange.start", _arange, "HPU")
_library.impl("arange", lambda end, **options: _arange(0, end, **options), "HPU")
