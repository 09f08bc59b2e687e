"""Atoms: modules with weights, each a layer with a norm of its own."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from workingpapers.arguments import check_fields, check_integer, check_nonnegative
from workingpapers.modular_duality.modules import Module, Orthogonalizer, Weights, check_length
from workingpapers.modular_duality.norms import (
    conv2d_dual_norm,
    conv2d_norm,
    embed_dual_norm,
    embed_norm,
    kernel_slices,
    linear_dual_norm,
    linear_norm,
    rms_norm,
    rms_scale,
    unit_rms,
    widened,
)
from workingpapers.modular_duality.orthogonalize import orthogonalize

__all__ = ["Atom", "Bias", "Conv2D", "Embed", "Linear", "Scale"]


class Atom(Module):
    """A module with one tensor of weights: the place to add a layer of one's own.

    A subclass is a frozen dataclass with a field ``mass``. It defines ``shape``, ``forward``,
    and the four methods on its tensor. To be *well-normed*, for inputs and weights of norm at
    most 1, a change of weights by norm e may move the output by at most e, and a change of the
    input by e at most by ``sensitivity * e``.
    """

    sensitivity: ClassVar[float] = 1.0
    smooth: ClassVar[bool] = True
    children: ClassVar[tuple] = ()
    mass: float

    def __post_init__(self) -> None:
        check_fields(self, check_nonnegative, "mass")

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the weights."""

    @abstractmethod
    def weight_norm(self, weight: Tensor) -> Tensor:
        """Norm of the weights, over the last axes."""

    @abstractmethod
    def gradient_norm(self, gradient: Tensor) -> Tensor:
        """Dual norm of a gradient, over the last axes."""

    @abstractmethod
    def weight_dualize(self, gradient: Tensor, orthogonalizer: Orthogonalizer) -> Tensor:
        """Weights of norm 1 that agree most with a gradient, over the last axes."""

    @abstractmethod
    def draw(self, generator: torch.Generator) -> Tensor:
        """Draw float32 weights of norm 1 where the generator is."""

    @cached_property
    def atoms(self):
        """The atom alone."""
        return (self,)

    def allot(self, size):
        """Keep the whole size, unless the mass is 0."""
        return (size if self.mass > 0 else 0.0,)

    def batch_of(self, tensor: Tensor) -> torch.Size:
        """Return the sizes of the axes before those of the weights."""
        return tensor.shape[: tensor.ndim - len(self.shape)]

    def check_shape(self, name: str, tensor: Tensor) -> None:
        """Raise unless the last axes are those of the weights."""
        if tuple(tensor.shape[tensor.ndim - len(self.shape) :]) != self.shape:
            raise ValueError(
                f"{name} must be of shape (..., {', '.join(map(str, self.shape))}) for {self}; "
                f"got {tuple(tensor.shape)}"
            )

    def _weight(self, weights: Weights, batches: bool = True) -> Tensor:
        """Return the one tensor of the list, if it fits this atom."""
        check_length(self, weights)
        self.check_shape("weights[0]", weights[0])
        if not batches and self.batch_of(weights[0]):
            raise ValueError(f"{self} takes no batches of weights; got {tuple(weights[0].shape)}")
        return weights[0]

    def _check_input(self, x: Tensor, axis: int, size: int) -> None:
        """Raise unless the input has the size that this atom takes."""
        if not isinstance(x, Tensor) or x.ndim < -axis or x.shape[axis] != size:
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            raise ValueError(f"{self} takes inputs with {size} entries on axis {axis}; got {got}")

    def _times_mass(self, factor):
        return replace(self, mass=self.mass * factor)


@dataclass(frozen=True)
class Linear(Atom):
    """A matrix of weights, with the RMS norm on inputs and outputs.

    Parameters
    ----------
    d_out, d_in : int
        At least 1.
    mass : float, default 1.0
        At least 0.
    """

    d_out: int
    d_in: int
    mass: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, check_integer, "d_out", "d_in")

    @property
    def shape(self):
        """``(d_out, d_in)``."""
        return self.d_out, self.d_in

    def forward(self, x, weights):
        """Compute ``W x`` for inputs (..., d_in); batches of weights need batches of inputs."""
        weight = self._weight(weights)
        self._check_input(x, axis=-1, size=self.d_in)
        return x @ weight.mT

    def weight_norm(self, weight):
        """``sqrt(d_in / d_out) ||W||_2``."""
        return linear_norm(weight)

    def gradient_norm(self, gradient):
        """``sqrt(d_out / d_in)`` times the nuclear norm."""
        return linear_dual_norm(gradient)

    def weight_dualize(self, gradient, orthogonalizer):
        """``sqrt(d_out / d_in) U V^T``."""
        return rms_scale(gradient) * orthogonalizer(gradient)

    def draw(self, generator):
        """Orthogonalise a Gaussian matrix."""
        return self.weight_dualize(_normal(self.shape, generator), _exactly)


@dataclass(frozen=True)
class Embed(Atom):
    """A vector for each of a number of tokens, with the l1 norm on inputs and RMS on outputs.

    Parameters
    ----------
    tokens, d_out : int
        Number of tokens and size of a vector, at least 1. Rows are tokens, as in torch.
    mass : float, default 1.0
        At least 0.
    """

    tokens: int
    d_out: int
    mass: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, check_integer, "tokens", "d_out")

    @property
    def shape(self):
        """``(tokens, d_out)``."""
        return self.tokens, self.d_out

    def forward(self, x, weights):
        """Look up integer tokens (...), each in 0..tokens-1; no batches of weights."""
        weight = self._weight(weights, batches=False)
        if not isinstance(x, Tensor) or x.is_floating_point() or x.dtype == torch.bool:
            raise TypeError(f"{self} takes a tensor of integer tokens; got {x!r}")
        try:  # torch's own check: ours would read the tokens, which vmap and compile forbid
            return nn.functional.embedding(x, weight)
        except IndexError as error:
            raise ValueError(f"{self} takes tokens in 0..{self.tokens - 1}") from error

    def weight_norm(self, weight):
        """Largest RMS of a row."""
        return embed_norm(weight)

    def gradient_norm(self, gradient):
        """``sqrt(d_out)`` times the sum of the rows' lengths."""
        return embed_dual_norm(gradient)

    def weight_dualize(self, gradient, orthogonalizer):
        """Divide every row by its RMS."""
        return unit_rms(gradient)

    def draw(self, generator):
        """Scale Gaussian rows to RMS 1."""
        return unit_rms(_normal(self.shape, generator))


@dataclass(frozen=True)
class Conv2D(Atom):
    """Convolution with a square kernel and zero padding.

    Inputs and outputs are measured by the pixel of largest RMS over channels.

    Parameters
    ----------
    d_out, d_in : int
        Channels, at least 1.
    kernel : int
        Side k of the kernel, at least 1.
    stride : int, default 1
        At least 1.
    padding : int, optional
        Rows and columns of zeros around the image, at least 0. By default ``(kernel - 1) / 2``,
        which keeps the size of the image; then the kernel must be odd.
    mass : float, default 1.0
        At least 0.
    """

    d_out: int
    d_in: int
    kernel: int
    stride: int = 1
    padding: int | None = None
    mass: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, check_integer, "d_out", "d_in", "kernel", "stride")
        if self.padding is not None:
            check_fields(self, partial(check_integer, low=0), "padding")
        elif self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd unless padding is given; got {self.kernel}")

    @property
    def shape(self):
        """``(d_out, d_in, kernel, kernel)``."""
        return self.d_out, self.d_in, self.kernel, self.kernel

    def forward(self, x, weights):
        """Convolve images (batch, d_in, height, width), or one; no batches of weights."""
        weight = self._weight(weights, batches=False)
        self._check_input(x, axis=-3, size=self.d_in)
        if x.ndim > 4:
            raise ValueError(f"{self} takes inputs of 3 or 4 axes; got {tuple(x.shape)}")
        padding = self.kernel // 2 if self.padding is None else self.padding
        return nn.functional.conv2d(x, weight, stride=self.stride, padding=padding)

    def weight_norm(self, weight):
        """``k^2`` times the largest norm of a slice."""
        return conv2d_norm(weight)

    def gradient_norm(self, gradient):
        """``k^-2`` times the sum of the slices' dual norms."""
        return conv2d_dual_norm(gradient)

    def weight_dualize(self, gradient, orthogonalizer):
        """Dualise every slice, and divide by the number of slices."""
        slices = kernel_slices(gradient)
        duals = rms_scale(slices) / self.kernel**2 * orthogonalizer(slices)
        return duals.movedim((-4, -3), (-2, -1))

    def draw(self, generator):
        """Orthogonalise Gaussian slices."""
        return self.weight_dualize(_normal(self.shape, generator), _exactly)


@dataclass(frozen=True)
class _AxisAtom(Atom):
    """An atom with a number for each entry of one axis of the input."""

    size: int
    axis: int = -1
    mass: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_fields(self, check_integer, "size")
        check_fields(self, partial(check_integer, low=-64, high=-1), "axis")  # torch's most axes

    @property
    def shape(self):
        """``(size,)``."""
        return (self.size,)

    def _along_axis(self, x: Tensor, weights: Weights) -> Tensor:
        """Give the weights the axes of an input (*their batches, ..., size, ...)."""
        weight = self._weight(weights)
        self._check_input(x, self.axis, self.size)
        batch = self.batch_of(weight)
        between = x.ndim + self.axis - len(batch)
        if between < 0 or x.shape[: len(batch)] != batch:
            raise ValueError(
                f"{self} with weights {tuple(weight.shape)} takes inputs whose first axes are "
                f"{tuple(batch)}; got {tuple(x.shape)}"
            )
        return weight.reshape(*batch, *[1] * between, self.size, *[1] * (-self.axis - 1))


@dataclass(frozen=True)
class Bias(_AxisAtom):
    """A vector added to the input: a linear layer from a constant 1.

    Parameters
    ----------
    size : int
        Length of the vector, at least 1.
    axis : int, default -1
        The axis of the input that it runs along, below 0; -3 for images.
    mass : float, default 1.0
        At least 0.
    """

    def forward(self, x, weights):
        """Add the vector along its axis; batches of weights need batches of inputs."""
        return x + self._along_axis(x, weights)

    def weight_norm(self, weight):
        """RMS of the vector."""
        return rms_norm(weight)

    def gradient_norm(self, gradient):
        """``sqrt(size)`` times the length."""
        return self.size * rms_norm(gradient)

    def weight_dualize(self, gradient, orthogonalizer):
        """Divide by the RMS."""
        return unit_rms(gradient)

    def draw(self, generator):
        """Scale a Gaussian vector to RMS 1."""
        return unit_rms(_normal(self.shape, generator))


@dataclass(frozen=True)
class Scale(_AxisAtom):
    """A number for each entry of the input to multiply with: a diagonal linear layer.

    Its RMS -> RMS norm is the largest of the numbers, in absolute value.

    Parameters
    ----------
    size : int
        Number of entries, at least 1.
    axis : int, default -1
        The axis of the input that they run along, below 0; -3 for images.
    mass : float, default 1.0
        At least 0.
    """

    def forward(self, x, weights):
        """Multiply along the axis; batches of weights need batches of inputs."""
        return x * self._along_axis(x, weights)

    def weight_norm(self, weight):
        """Largest absolute value."""
        return weight.abs().amax(-1)

    def gradient_norm(self, gradient):
        """Sum of the absolute values."""
        return widened(gradient).abs().sum(-1)

    def weight_dualize(self, gradient, orthogonalizer):
        """Sign of every entry."""
        return gradient.sign()

    def draw(self, generator):
        """Start from the identity: all ones."""
        return torch.ones(self.size, device=generator.device)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _exactly(matrix: Tensor) -> Tensor:
    return orthogonalize(matrix, "svd")
