"""A second device that needs no hardware: real numbers, and the rules of where a tensor lies.

A tensor on the device "simulated" holds an ordinary tensor, on which all is computed. Around it
stand the rules of CUDA: tensors of two devices do not mix, but for numbers in pointwise operations,
for indices, and for copies; the way to numpy is by ``.cpu()`` only; and a generator of the CPU
draws nothing there. So a test without a GPU finds the tensor that was made on the CPU in the middle
of a computation.

It cannot show what a GPU alone has: kernels and their rounding, streams and asynchronous errors,
autocast to half precision, memory. Nor is there a ``torch.Generator`` of the device, which torch
cannot make from Python, or ``torch.save`` on it. Two numbers of the CPU in one operation pass here,
and not on CUDA.

Importing the module registers the device for the whole process, by private functions of torch:
other versions may lack them. Inside of :func:`parameters_kept` a module that goes there keeps its
parameters, as it does to CUDA.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils import backend_registration

DEVICE = "simulated"
aten = torch.ops.aten
COPIES = aten.copy_.default, aten._to_copy.default
INDEXED = aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_
FILLED = aten.index_put, aten.index_put_, aten.masked_fill, aten.masked_fill_


class Backend(backend_registration._DummyBackendModule):
    """What torch asks of ``torch.simulated``; random numbers are the CPU's."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]

    def get_rng_state(self, *_) -> None: ...

    def set_rng_state(self, *_) -> None: ...


class OtherTensor(Tensor):
    """A tensor on the device; its numbers lie in ``inner``, on the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OtherTensor":
        like = {"strides": inner.stride(), "storage_offset": inner.storage_offset()}
        like |= {"dtype": inner.dtype, "device": torch.device(DEVICE, 0)}
        tensor = Tensor._make_wrapper_subclass(cls, inner.shape, **like)
        tensor.inner = inner
        return tensor

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})

    def __repr__(self, **_) -> str:
        return f"{self.inner!r} on {DEVICE}"

    def numpy(self, **_) -> None:
        raise TypeError(f"can't convert {DEVICE} tensor to numpy; use Tensor.cpu() first")

    def tolist(self) -> list:  # which torch refuses for classes of one's own
        return self.inner.tolist()


def _run(operation, args: tuple, kwargs: dict):
    """Compute on the inner tensors; a result that was an argument, changed in place, stays it."""
    given, packet = [], operation.overloadpacket
    checked = [args[0], *args[2:3]] if packet in INDEXED else given  # without the indices

    def unwrap(tensor: Tensor) -> Tensor:
        given.append(tensor)
        return _inner(tensor)

    args, kwargs = _mapped(unwrap, args), {k: _mapped(unwrap, v) for k, v in kwargs.items()}
    if operation not in COPIES:
        _check(operation, checked)
    if kwargs.get("generator") is not None:
        raise RuntimeError(f"Expected a '{DEVICE}' device type for generator but found 'cpu'")
    to_cpu = torch.device(kwargs.pop("device", None) or DEVICE).type == "cpu"
    known = {id(_inner(tensor)): tensor for tensor in given}

    def wrap(result: Tensor) -> Tensor:
        tensor = known.get(id(result))
        if tensor is None:
            return result if to_cpu else OtherTensor(result)
        if tensor.shape != result.shape:
            raise NotImplementedError(f"{operation} changed the shape of its argument in place")
        return tensor

    return _mapped(wrap, operation(*args, **kwargs))


def _mapped(function: Callable[[Tensor], Tensor], value):
    """Apply a function to all tensors in what an operation takes or returns."""
    if isinstance(value, list | tuple):
        return type(value)(_mapped(function, one) for one in value)
    return function(value) if isinstance(value, Tensor) else value


def _inner(tensor: Tensor) -> Tensor:
    return tensor.inner if isinstance(tensor, OtherTensor) else tensor


def _check(operation, given: list[Tensor]) -> None:
    """Refuse tensors of the CPU where CUDA would."""
    numbers = operation.overloadpacket in FILLED or torch.Tag.pointwise in operation.tags
    for place, tensor in enumerate(given):
        written = operation._schema.is_mutable and place == 0
        if not isinstance(tensor, OtherTensor) and (tensor.ndim or written or not numbers):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but {operation} found one of "
                f"shape {tuple(tensor.shape)} on {tensor.device} beside {DEVICE}:0"
            )


@contextmanager
def parameters_kept() -> Iterator[None]:
    """Let a module that goes to another device keep its parameters, as with CUDA: tied ones too."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


backend_registration._setup_privateuseone_for_python_backend(DEVICE, Backend())
# What makes tensors; all else goes through __torch_dispatch__, but for copies from within torch.
# These functions live as long as this object.
_LIBRARY = torch.library.Library("aten", "IMPL", "PrivateUse1")
_LIBRARY.impl("_copy_from", lambda here, there, *_: _run(aten.copy_.default, (there, here), {}))


def _add_factory(name: str, make: Callable[..., Tensor]) -> None:
    """Let a function of torch make tensors on the device."""
    _LIBRARY.impl(name, lambda *args, dtype=None, **_: OtherTensor(make(*args, dtype=dtype)))


for name in ("empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step"):
    _add_factory(name, getattr(torch, name.partition(".")[0]))
_add_factory("_efficientzerotensor", torch.zeros)
