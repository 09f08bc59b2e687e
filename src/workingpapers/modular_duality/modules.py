"""Modules: networks that know how to measure a change of their weights, and how they combine.

A module computes ``forward(x, weights)`` and carries two numbers. Its *sensitivity* bounds how
much the output moves when the input does; its *mass* is its share in the learning of any network
it becomes a part of. Modules are values: they hold no weights, never change, and may be used many
times. Weights are lists of tensors, an entry an atom, in the order of the forward pass.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor

from workingpapers.arguments import check_integer, check_nonnegative, check_type
from workingpapers.modular_duality.norms import check_dtype, check_tensor
from workingpapers.modular_duality.orthogonalize import orthogonalize

__all__ = [
    "Add",
    "Bond",
    "Composition",
    "Concatenation",
    "Identity",
    "Module",
    "Mul",
]

Weights = Sequence[Tensor]
Orthogonalizer = Callable[[Tensor], Tensor]


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
    def atoms(self) -> tuple["Module", ...]:
        """The parts with weights, each an `Atom`, in the order of the forward pass."""
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


# Bonds: modules without weights. Sums, multiples and powers are made with these


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
