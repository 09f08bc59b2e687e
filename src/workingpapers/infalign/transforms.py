"""Transforms of the calibrated reward: how the KL budget is spread over its quantiles.

An increasing map Phi on [0, 1] cannot change which response is better, but it changes the optimum
of KL-regularised RL on ``Phi(C)`` (CTRL, Section 4 of the paper). The coupled optimum is
`workingpapers.infalign.continuum.Optimal`.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    as_reals,
    check_choice,
    check_fields,
    check_integer,
    check_positive,
)
from workingpapers.infalign.decoding import Kind

__all__ = ["Exponential", "FirstOrder", "Identity", "Log", "Transform"]

LARGEST_EXPONENT = 700.0  # exp of more overflows
SMALLEST_EXPONENT = 1e-6  # of less, exp(t u) keeps too few digits of t u


class Transform(ABC):
    """An increasing map Phi from [0, 1] to the reals."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in a table."""

    @abstractmethod
    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return Phi at checked quantiles."""

    def __call__(self, quantile: ArrayLike) -> NDArray[np.float64]:
        """Return Phi(u).

        Parameters
        ----------
        quantile : array_like
            Calibrated rewards u in [0, 1], of any shape.

        Returns
        -------
        float or ndarray
            Of the same shape.

        Raises
        ------
        ValueError
            If a value is NaN or outside [0, 1].
        """
        quantile = as_reals("quantile", quantile)
        if quantile.size and (quantile.min() < 0 or quantile.max() > 1):
            raise ValueError(
                f"quantile must lie in [0, 1], got {quantile.min()} to {quantile.max()}"
            )
        return self._map(quantile)[()]


@dataclass(frozen=True)
class Identity(Transform):
    """``Phi(u) = u``: calibration only, optimal where one draw is taken."""

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "identity"

    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        return quantile


@dataclass(frozen=True)
class Exponential(Transform):
    """``Phi(u) = sign(t) exp(t u)``: t > 0 for the best of N, t < 0 for the worst of N.

    For t > 0 the best quantiles count, for t < 0 the worst, and near t = 0 the mean, as in tilted
    losses (Li et al., 2021).

    Parameters
    ----------
    t : float
        Exponent, in size from 1e-6, below which rounding hides the shape, to 700, above which
        exp(t) overflows.

    Raises
    ------
    ValueError
        If ``t`` is no such number. Near 0 take `Identity`, the limit up to an affine map.
    """

    t: float

    def __post_init__(self) -> None:
        t = float(as_reals("t", self.t, ()))
        if not SMALLEST_EXPONENT <= abs(t) <= LARGEST_EXPONENT:
            raise ValueError(
                f"t must be in size from {SMALLEST_EXPONENT} (below, take Identity) to "
                f"{LARGEST_EXPONENT}, got {t}"
            )
        object.__setattr__(self, "t", t)

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"exp({self.t:+g})"

    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        return math.copysign(1, self.t) * np.exp(self.t * quantile)


@dataclass(frozen=True)
class Log(Transform):
    """``Phi(u) = log max(u, floor)``: distillation of best-of-M, with M = 1 + 1 / beta.

    Parameters
    ----------
    floor : float
        In (0, 1); where the estimated u is 0 the logarithm is not finite. Default 0.005, which is
        half a step of the calibration by K = 100 base responses; 1/2K in general.

    Raises
    ------
    ValueError
        If ``floor`` is out of its range.
    """

    floor: float = 0.005

    def __post_init__(self) -> None:
        check_fields(self, check_positive, "floor")
        if self.floor >= 1:
            raise ValueError(f"floor must be in (0, 1), got {self.floor}")

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "log"

    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(np.maximum(quantile, self.floor))


@dataclass(frozen=True)
class FirstOrder(Transform):
    """The optimum as beta grows: R* at the base policy, where many responses have small mass.

    ``N^2 / (2N-1) u^(2N-1)`` for the best of N, ``-N^2 / (2N-1) (1 - u)^(2N-1)`` for the worst.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    kind : {"best", "worst"}
        Which of the draws is kept.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """

    n: int
    kind: Kind

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "n")
        check_choice("kind", self.kind, get_args(Kind))

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"first order, {self.kind} of {self.n}"

    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        power = 2 * self.n - 1
        if self.kind == "best":
            return self.n**2 / power * quantile**power
        return -(self.n**2) / power * (1 - quantile) ** power
