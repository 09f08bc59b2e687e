"""Modules: layers that know how to measure a change of their weights, and how to compose.

A module computes ``forward(x, weights)`` and carries two numbers. Its *sensitivity* bounds how
much the output moves when the input does; its *mass* is its share in the learning of any network
it becomes a part of. Modules are values: they hold no weights, never change, and may be used many
times. Weights are lists of tensors, an entry an atom, in the order of the forward pass.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor, nn

from workingpapers.arguments import (
    check_fields,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.modular_duality.norms import (
    check_dtype,
    check_real,
    check_tensor,
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

__all__ = [
    "GELU",
    "Abs",
    "Add",
    "ApplyScores",
    "Atom",
    "AttentionQK",
    "AvgPool",
    "Bias",
    "Bond",
    "CausalMask",
    "Composition",
    "Concatenation",
    "Conv2D",
    "Embed",
    "Flatten",
    "Identity",
    "Linear",
    "MeanSubtract",
    "MergeHeads",
    "Module",
    "Mul",
    "RMSDivide",
    "ReLU",
    "RoPE",
    "Scale",
    "Softmax",
    "SplitHeads",
]

Weights = Sequence[Tensor]
Orthogonalizer = Callable[[Tensor], Tensor]

# The largest slope of GELU, 1.1289, where its curvature is zero: at sqrt(2).
GELU_SLOPE = (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi)


class Module(ABC):
    """A network, or a part of one, with a norm on its weights.

    ``m1 @ m0`` applies m0 first, ``(m0, m1)`` in a composition gives both the same input,
    ``m0 + m1`` adds their outputs, ``a * m`` scales, and ``m ** n`` stacks n copies with weights
    of their own.

    Attributes
    ----------
    mass : float
        Share in the learning of a larger network, at least 0. The mass of a whole is the sum.
    sensitivity : float
        Lipschitz constant in the input, in the norms of the module's input and output.
    smooth : bool
        Whether the output is differentiable everywhere.
    children : tuple of Module
        The parts, in the order of the forward pass; empty for atoms and bonds.
    """

    mass: float
    sensitivity: float
    smooth: bool
    children: tuple["Module", ...]

    @abstractmethod
    def forward(self, x: Tensor | tuple, weights: Weights) -> Tensor | tuple:
        """Compute the output for an input and a list of weights."""

    @abstractmethod
    def allot(self, size: float) -> tuple[float, ...]:
        """Divide a size in the modular norm among the atoms, each in its own norm."""

    @abstractmethod
    def _times_mass(self, factor: float) -> "Module":
        """Return the module with all masses multiplied."""

    @cached_property
    def atoms(self) -> tuple["Atom", ...]:
        """The parts with weights, in the order of the forward pass."""
        return tuple(atom for child in self.children for atom in child.atoms)

    @cached_property
    def bonds(self) -> tuple["Bond", ...]:
        """The parts without weights, in the order of the forward pass."""
        return tuple(bond for child in self.children for bond in child.bonds)

    @cached_property
    def shares(self) -> tuple[float, ...]:
        """The size of each atom's weights, in its own norm, when the modular norm is 1.

        The modular norm is a weighted maximum, ``max_l ||w_l||_l / share_l``. So its dual is the
        sum of the atoms' dual norms times the shares, and its duality map is the atoms' duality
        maps times the shares: all that a tree does to a gradient is in these numbers.
        In a chain, ``share_l = mass_l / (mass * product of the sensitivities after l)``.
        """
        return self.allot(1.0)

    def initialize(
        self,
        generator: torch.Generator,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> list[Tensor]:
        """Draw weights of norm 1 in each atom's own norm.

        Parameters
        ----------
        generator : torch.Generator
            Source of randomness. One on the CPU gives the same weights on every device.
        device : torch.device or str, optional
            Where the weights shall be; by default where the generator is.
        dtype : torch.dtype, default float32
            Their type, real floating-point.

        Returns
        -------
        list of Tensor

        Raises
        ------
        TypeError
            If an argument is not as described.
        """
        check_type("generator", generator, torch.Generator)
        check_dtype(dtype)
        where = generator.device if device is None else device
        return [atom.draw(generator).to(where, dtype) for atom in self.atoms]

    def project(self, weights: Weights) -> list[Tensor]:
        """Move every atom's weights to norm 1: to the dual of the weights themselves.

        Parameters
        ----------
        weights : sequence of Tensor
            One an atom, of its shape; leading axes are batches. Finite.

        Returns
        -------
        list of Tensor
        """
        weights = self.checked("weights", weights)
        pairs = zip(self.atoms, weights, strict=True)
        return [atom.weight_dualize(w, orthogonalize) for atom, w in pairs]

    def norm(self, weights: Weights) -> Tensor:
        """Measure weights, or a change of weights, in the modular norm (Section 4).

        Parameters
        ----------
        weights : sequence of Tensor
            One an atom, of its shape; leading axes are batches. Finite.

        Returns
        -------
        Tensor
            Of the batches' shape. Atoms with mass 0 do not count.
        """
        terms = [
            atom.weight_norm(w) / share if share > 0 else w.new_zeros(atom.batch_of(w))
            for atom, w, share in self._with_shares("weights", weights)
        ]
        return reduce(torch.maximum, terms, torch.tensor(0.0))

    def dual_norm(self, gradients: Weights) -> Tensor:
        """Measure gradients in the dual of the modular norm.

        Parameters
        ----------
        gradients : sequence of Tensor
            One an atom, of its shape; leading axes are batches. Finite.

        Returns
        -------
        Tensor
            ``max <g, t>`` over t of modular norm 1, with t = 0 for atoms of mass 0.
        """
        terms = [
            share * atom.gradient_norm(g)
            for atom, g, share in self._with_shares("gradients", gradients)
        ]
        return sum(terms, torch.tensor(0.0))

    def dualize(
        self,
        gradients: Weights,
        target_norm: float = 1.0,
        orthogonalizer: Orthogonalizer = orthogonalize,
    ) -> list[Tensor]:
        """Turn gradients into the weights of a given norm that they agree with most.

        Parameters
        ----------
        gradients : sequence of Tensor
            One an atom, of its shape; leading axes are batches. Finite.
        target_norm : float, default 1.0
            Modular norm of the result, at least 0.
        orthogonalizer : callable, default `orthogonalize`
            From G = U S V^T to U V^T, batched; ``partial(orthogonalize, method="svd")`` is exact.

        Returns
        -------
        list of Tensor
            ``argmax <g, t>`` over t of that norm; zero where the gradient or the mass is zero.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        target_norm = check_nonnegative("target_norm", target_norm)
        return [
            share * target_norm * atom.weight_dualize(g, orthogonalizer)
            for atom, g, share in self._with_shares("gradients", gradients)
        ]

    def sharp(
        self, gradients: Weights, orthogonalizer: Orthogonalizer = orthogonalize
    ) -> list[Tensor]:
        """Apply the sharp operator, ``||g||† dualize(g)``.

        Proposition 1: ``-sharp(g) / sharpness`` minimises ``<g, w> + sharpness / 2 ||w||^2``.

        Parameters
        ----------
        gradients : sequence of Tensor
            One an atom, of its shape; leading axes are batches. Finite.
        orthogonalizer : callable, default `orthogonalize`
            As in `dualize`.

        Returns
        -------
        list of Tensor
        """
        size, duals = self.dual_norm(gradients), self.dualize(gradients, 1.0, orthogonalizer)
        return [
            (size.reshape(*size.shape, *[1] * len(atom.shape)) * dual).to(dual.dtype)
            for atom, dual in zip(self.atoms, duals, strict=True)
        ]

    def tare(self, absolute: float | None = None, *, relative: float | None = None) -> "Module":
        """Return the module with its mass set to a number, or multiplied by one.

        The masses of all parts change by the same factor; mass 0 freezes the module.

        Parameters
        ----------
        absolute : float, optional
            The new mass, at least 0. The old one must not be 0.
        relative : float, optional
            The factor, at least 0. Exactly one of the two is given.

        Returns
        -------
        Module

        Raises
        ------
        ValueError
            If neither or both are given, one is negative, or the mass is 0 where it may not be.
        """
        if (absolute is None) == (relative is None):
            raise ValueError(f"give absolute or relative, not both; got {absolute}, {relative}")
        if relative is not None:
            return self._times_mass(check_nonnegative("relative", relative))
        absolute = check_nonnegative("absolute", absolute)
        if self.mass == 0:
            raise ValueError(f"absolute={absolute} asks to scale a mass of 0, which stays 0")
        return self._times_mass(absolute / self.mass)

    def _with_shares(self, name: str, tensors: Weights) -> zip:
        return zip(self.atoms, self.checked(name, tensors), self.shares, strict=True)

    def checked(self, name: str, tensors: Weights) -> Weights:
        """Return the tensors if they are finite and fit the atoms, else raise."""
        if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
            raise TypeError(f"{name} must be a list of tensors, one an atom; got {type(tensors)}")
        if len(tensors) != len(self.atoms):
            raise ValueError(f"{name} must hold {len(self.atoms)} tensors; got {len(tensors)}")
        for index, (atom, tensor) in enumerate(zip(self.atoms, tensors, strict=True)):
            check_tensor(f"{name}[{index}]", tensor, axes=len(atom.shape))
            atom.check_shape(f"{name}[{index}]", tensor)
        return tensors

    def __call__(self, x: Tensor | tuple, weights: Weights) -> Tensor | tuple:
        """Call `forward`."""
        return self.forward(x, weights)

    def __matmul__(self, inner: "Module | tuple") -> "Module":
        return Composition(self, as_module(inner))

    def __rmatmul__(self, outer: tuple) -> "Module":
        return Composition(as_module(outer), self)

    def __add__(self, other: "Module") -> "Module":
        return Add() @ (self, other)

    def __mul__(self, factor: float) -> "Module":
        return self @ Mul(factor)

    def __rmul__(self, factor: float) -> "Module":
        return Mul(factor) @ self

    def __pow__(self, copies: int) -> "Module":
        copies = check_integer("the exponent", copies, low=0)
        return reduce(Composition, [self] * copies) if copies else Identity()


# How modules combine


@dataclass(frozen=True)
class Composition(Module):
    """One module after another, ``outer @ inner``.

    With masses m0 (inner), m1 (outer), m = m0 + m1 and s1 the outer sensitivity, the norm is
    ``max(s1 m/m0 ||w0||, m/m1 ||w1||)``: a change of the inner weights reaches the output through
    the outer module, which may enlarge it by s1 (Section 4.2). If both are well-normed, so is
    this, provided that the inner module sends inputs of norm 1 to outputs of norm at most 1.

    Parameters
    ----------
    outer, inner : Module
        ``outer`` takes what ``inner`` returns.
    """

    outer: Module
    inner: Module

    @cached_property
    def mass(self) -> float:
        """Sum of the masses."""
        return self.inner.mass + self.outer.mass

    @cached_property
    def sensitivity(self) -> float:
        """Product of the sensitivities."""
        return self.inner.sensitivity * self.outer.sensitivity

    @cached_property
    def smooth(self) -> bool:
        """Whether both are."""
        return self.inner.smooth and self.outer.smooth

    @property
    def children(self) -> tuple[Module, ...]:
        """Inner, then outer."""
        return self.inner, self.outer

    def forward(self, x, weights):
        """Apply the inner module, then the outer one."""
        check_length(self, weights)
        split = len(self.inner.atoms)
        return self.outer.forward(self.inner.forward(x, weights[:split]), weights[split:])

    def allot(self, size):
        """Divide by mass; what comes before is divided by the sensitivity of what follows."""
        if self.mass == 0:
            return (0.0,) * len(self.atoms)
        unit = size / self.mass
        inner = self.inner.allot(unit * self.inner.mass / self.outer.sensitivity)
        return inner + self.outer.allot(unit * self.outer.mass)

    def _times_mass(self, factor):
        return Composition(self.outer._times_mass(factor), self.inner._times_mass(factor))


@dataclass(frozen=True)
class Concatenation(Module):
    """Modules side by side on the same input; the output is the tuple of theirs.

    The output is measured by the sum of its parts' norms, so sensitivities add (Section 4.2).

    Parameters
    ----------
    parts : tuple of Module
        At least one.
    """

    parts: tuple[Module, ...]

    def __post_init__(self) -> None:
        if not self.parts or not all(isinstance(part, Module) for part in self.parts):
            raise TypeError(f"parts must be a tuple of at least one Module; got {self.parts!r}")

    @cached_property
    def mass(self) -> float:
        """Sum of the masses."""
        return sum(part.mass for part in self.parts)

    @cached_property
    def sensitivity(self) -> float:
        """Sum of the sensitivities."""
        return sum(part.sensitivity for part in self.parts)

    @cached_property
    def smooth(self) -> bool:
        """Whether all are."""
        return all(part.smooth for part in self.parts)

    @property
    def children(self) -> tuple[Module, ...]:
        """The parts."""
        return self.parts

    def forward(self, x, weights):
        """Apply every part to the input."""
        check_length(self, weights)
        outputs, start = [], 0
        for part in self.parts:
            end = start + len(part.atoms)
            outputs.append(part.forward(x, weights[start:end]))
            start = end
        return tuple(outputs)

    def allot(self, size):
        """Divide by mass."""
        if self.mass == 0:
            return (0.0,) * len(self.atoms)
        return sum((part.allot(size * part.mass / self.mass) for part in self.parts), ())

    def _times_mass(self, factor):
        return replace(self, parts=tuple(part._times_mass(factor) for part in self.parts))


# Atoms: modules with weights


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


# Bonds: modules without weights


class Bond(Module):
    """A module without weights, so of mass 0."""

    mass: ClassVar[float] = 0.0
    sensitivity: float = 1.0
    smooth: ClassVar[bool] = True
    children: ClassVar[tuple] = ()

    @abstractmethod
    def compute(self, x):
        """Compute the output."""

    def forward(self, x, weights):
        """Compute the output; the list of weights must be empty."""
        check_length(self, weights)
        return self.compute(x)

    @cached_property
    def bonds(self):
        """The bond alone."""
        return (self,)

    def allot(self, size):
        """There is nothing to divide."""
        return ()

    def _times_mass(self, factor):
        return self


@dataclass(frozen=True)
class Identity(Bond):
    """Returns its input."""

    def compute(self, x):
        """Return the input."""
        return x


@dataclass(frozen=True)
class Add(Bond):
    """Adds the members of a tuple of tensors of one shape."""

    def compute(self, x):
        """Add them."""
        x = check_tuple(self, x)
        if len({part.shape for part in x}) > 1:
            raise ValueError(f"Add takes tensors of one shape; got {[tuple(p.shape) for p in x]}")
        return reduce(torch.add, x)


@dataclass(frozen=True)
class Mul(Bond):
    """Multiplies by a number, which is not 0; the sensitivity is its absolute value.

    Parameters
    ----------
    factor : float
        Finite, not 0: a network that is multiplied by 0 cannot learn.
    """

    factor: float

    def __post_init__(self) -> None:
        number = isinstance(self.factor, Real) and not isinstance(self.factor, bool)
        if not number or not math.isfinite(self.factor) or self.factor == 0:
            raise ValueError(f"factor must be a finite number, not 0; got {self.factor!r}")

    @property
    def sensitivity(self):
        """``|factor|``."""
        return abs(self.factor)

    def compute(self, x):
        """Multiply."""
        return self.factor * x


@dataclass(frozen=True)
class ReLU(Bond):
    """``max(0, x)``. The sensitivity 1 is the worst case; on average it is about 1/sqrt(2)."""

    smooth: ClassVar[bool] = False

    def compute(self, x):
        """Clip at 0."""
        return torch.relu(x)


@dataclass(frozen=True)
class GELU(Bond):
    """Exact GELU divided by its largest slope, 1.1289, so that the sensitivity is 1."""

    def compute(self, x):
        """Apply GELU and divide."""
        return nn.functional.gelu(x) / GELU_SLOPE


@dataclass(frozen=True)
class Abs(Bond):
    """``|x|``, which keeps the RMS."""

    smooth: ClassVar[bool] = False

    def compute(self, x):
        """Take the absolute value."""
        return x.abs()


@dataclass(frozen=True)
class Flatten(Bond):
    """Joins all axes but the first into one."""

    def compute(self, x):
        """Reshape to (batch, everything)."""
        return x.flatten(1)


@dataclass(frozen=True)
class RMSDivide(Bond):
    """Divides by the RMS over some axes; zero stays zero.

    The sensitivity 1 is conventional, not guaranteed. Over the last axis it holds for inputs of
    RMS at least 1; for RMS r below 1 it is 1/r. Over a whole image, and measured by the pixel of
    largest RMS, it may be exceeded even at RMS 1.

    Parameters
    ----------
    axes : tuple of int, default (-1,)
        The axes, (-3, -2, -1) for a whole image.
    """

    axes: tuple[int, ...] = (-1,)

    def compute(self, x):
        """Divide."""
        return unit_rms(x, self.axes)


@dataclass(frozen=True)
class MeanSubtract(Bond):
    """Subtracts the mean over some axes.

    The sensitivity is 1 over the last axis. Over a whole image, and measured by the pixel of
    largest RMS, it is conventional, not guaranteed: there it is ``2 - 2/pixels`` from 4 pixels on.

    Parameters
    ----------
    axes : tuple of int, default (-1,)
        The axes, (-3, -2, -1) for a whole image.
    """

    axes: tuple[int, ...] = (-1,)

    def compute(self, x):
        """Subtract."""
        return x - x.mean(self.axes, keepdim=True)


@dataclass(frozen=True)
class AvgPool(Bond):
    """Averages images (..., channels, height, width) over their pixels."""

    def compute(self, x):
        """Average the two last axes."""
        return x.mean((-2, -1))


@dataclass(frozen=True)
class SplitHeads(Bond):
    """Cuts features into heads: (..., time, heads * d) to (..., heads, time, d).

    The sensitivity 1 is conventional, not guaranteed: it holds for changes of the same RMS in
    all heads. Where all of a change is in one head, its RMS there is ``sqrt(heads)`` times the
    whole's.

    Parameters
    ----------
    heads : int
        At least 1; must divide the number of features.
    """

    heads: int

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "heads")

    def compute(self, x):
        """Reshape."""
        if x.ndim < 2 or x.shape[-1] % self.heads:
            raise ValueError(f"{self} must divide the last axis; got shape {tuple(x.shape)}")
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)


@dataclass(frozen=True)
class MergeHeads(Bond):
    """Joins heads again: (..., heads, time, d) to (..., time, heads * d)."""

    def compute(self, x):
        """Reshape."""
        return x.transpose(-3, -2).flatten(-2)


@dataclass(frozen=True)
class RoPE(Bond):
    """Rotates pairs of features by angles that grow with the position, in each of a tuple.

    The product of a query and a key then depends on their positions only by the difference. A
    rotation moves no norm.
    """

    def compute(self, x):
        """Rotate every member (..., time, d), d even."""
        return tuple(_rotated(part) for part in check_tuple(self, x))


@dataclass(frozen=True)
class AttentionQK(Bond):
    """Products of queries and keys, ``q k^T / d``: with 1/d, not 1/sqrt(d).

    The sensitivity is 1 for queries and keys of RMS at most 1.
    """

    def compute(self, x):
        """Multiply (..., time, d) and (..., time, d) to (..., time, time)."""
        queries, keys = check_tuple(self, x, members=2)
        if queries.shape[-1] != keys.shape[-1]:
            shapes = tuple(queries.shape), tuple(keys.shape)
            raise ValueError(f"AttentionQK takes queries and keys of one size; got {shapes}")
        return queries @ keys.mT / queries.shape[-1]


@dataclass(frozen=True)
class CausalMask(Bond):
    """Sets scores of later positions to minus infinity, so that attention looks back only."""

    def compute(self, x):
        """Mask the upper triangle of (..., time, time)."""
        later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        return x.masked_fill(later, -math.inf)


@dataclass(frozen=True)
class Softmax(Bond):
    """``softmax(scale * x)`` over the last axis, of sensitivity ``scale`` from max to l1 norm.

    Parameters
    ----------
    scale : float, default 1.0
        Above 0.
    """

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_fields(self, check_positive, "scale")

    @property
    def sensitivity(self):
        """The scale."""
        return self.scale

    def compute(self, x):
        """Take the softmax."""
        return torch.softmax(self.scale * x, dim=-1)


@dataclass(frozen=True)
class ApplyScores(Bond):
    """Averages values with attention's weights: takes the tuple (values, weights).

    The sensitivity is 1 for values of RMS at most 1.
    """

    def compute(self, x):
        """Multiply (..., time, time) and (..., time, d)."""
        values, scores = check_tuple(self, x, members=2)
        if scores.shape[-1] != values.shape[-2]:
            shapes = tuple(values.shape), tuple(scores.shape)
            raise ValueError(f"ApplyScores takes a weight for each value; got {shapes}")
        return scores @ values


# What the modules share


def as_module(part: Module | tuple) -> Module:
    """Return a module; a tuple of modules becomes their concatenation."""
    if isinstance(part, tuple):
        return Concatenation(tuple(as_module(member) for member in part))
    if not isinstance(part, Module):
        raise TypeError(f"a module composes with a Module or a tuple of them; got {part!r}")
    return part


def check_length(module: Module, weights: Weights) -> None:
    """Raise unless there is a tensor for each atom."""
    if len(weights) != len(module.atoms):
        raise ValueError(f"weights must hold {len(module.atoms)} tensors; got {len(weights)}")


def check_tuple(bond: Bond, x: tuple, members: int | None = None) -> tuple:
    """Return the input of a bond that takes tuples, or raise."""
    if not isinstance(x, tuple) or (members is not None and len(x) != members):
        count = "" if members is None else f"{members} "
        raise TypeError(f"{bond} takes a tuple of {count}tensors; got {type(x).__name__}")
    return x


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _exactly(matrix: Tensor) -> Tensor:
    return orthogonalize(matrix, "svd")


def _rotated(x: Tensor, base: float = 10_000.0) -> Tensor:
    """Rotate feature i with feature i + d/2 by ``position * base^(-2i/d)``."""
    check_real("RoPE's input", x)
    if x.ndim < 2 or x.shape[-1] % 2:
        raise ValueError(f"RoPE takes an even number of features; got shape {tuple(x.shape)}")
    half, wide = x.shape[-1] // 2, widened(x)  # in half precision, positions above 256 are rounded
    frequency = base ** (-torch.arange(half, device=x.device, dtype=wide.dtype) / half)
    angle = torch.arange(x.shape[-2], device=x.device, dtype=wide.dtype)[:, None] * frequency
    first, second = wide[..., :half], wide[..., half:]
    cos, sin = angle.cos(), angle.sin()
    turned = torch.cat((cos * first - sin * second, sin * first + cos * second), dim=-1)
    return turned.to(x.dtype)
