"""Bonds: modules without weights, such as nonlinearities and the parts of attention."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from workingpapers.arguments import check_fields, check_integer, check_positive
from workingpapers.modular_duality.modules import Bond, check_tuple
from workingpapers.modular_duality.norms import check_real, unit_rms, widened

__all__ = [
    "GELU",
    "Abs",
    "ApplyScores",
    "AttentionQK",
    "AvgPool",
    "CausalMask",
    "Flatten",
    "MeanSubtract",
    "MergeHeads",
    "RMSDivide",
    "ReLU",
    "RoPE",
    "Softmax",
    "SplitHeads",
]

# The largest slope of GELU, 1.1289, where its curvature is zero: at sqrt(2).
GELU_SLOPE = (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi)


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
