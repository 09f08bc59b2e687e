"""Inference-time procedures: what decoding makes of a policy.

A procedure here sees the policy only through the distribution function F of its reward, and turns
it into ``G(F)``: F^N for the best of N draws, ``1 - (1 - F)^N`` for the worst of N, and F itself
for one draw. Everything exact in this package is written in terms of G and its slope g = G'.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import as_reals, check_choice, check_fields, check_integer
from workingpapers.infalign.calibration import (
    Ranking,
    as_probabilities,
    as_rewards,
    readable,
)

__all__ = ["BestOfN", "Kind", "Procedure", "Sampling", "WorstOfN", "procedure_of"]

Kind = Literal["best", "worst"]

LIGHT = 1e-5  # n times a group's mass, relative to F and to 1 - F; the slope is then exact to 1e-11


def _as_levels(level: ArrayLike) -> NDArray[np.float64]:
    """Return checked values of a distribution function."""
    level = as_reals("level", level)
    if level.size and (level.min() < 0 or level.max() > 1):
        raise ValueError(f"level must lie in [0, 1], got {level.min()} to {level.max()}")
    return level


class Procedure(ABC):
    """A way to decode: draw ``n`` responses from a policy and keep one of them."""

    n: int  # also the largest slope g: a response is kept at most n times as often as drawn

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is called in a table."""

    @abstractmethod
    def _cdf(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return G at checked levels."""

    @abstractmethod
    def _slope(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return g at checked levels."""

    def cdf(self, level: ArrayLike) -> NDArray[np.float64]:
        """Return G(F): how the kept response's distribution function follows from the policy's.

        Parameters
        ----------
        level : array_like
            Values of F in [0, 1], of any shape.

        Returns
        -------
        float or ndarray
            G(F) in [0, 1], of the same shape.

        Raises
        ------
        ValueError
            If a value is NaN or outside [0, 1].
        """
        return self._cdf(_as_levels(level))[()]

    def slope(self, level: ArrayLike) -> NDArray[np.float64]:
        """Return g(F) = dG/dF.

        Parameters
        ----------
        level : array_like
            Values of F in [0, 1], of any shape.

        Returns
        -------
        float or ndarray
            g(F) in [0, n], of the same shape.

        Raises
        ------
        ValueError
            If a value is NaN or outside [0, 1].
        """
        return self._slope(_as_levels(level))[()]

    @abstractmethod
    def dual(self) -> "Procedure":
        """Return the procedure that does the same with the rewards negated."""

    @abstractmethod
    def _kept(self, rewards: NDArray[np.float64]) -> NDArray[np.int_]:
        """Return the place of the kept draw along the last axis."""

    def distribution(self, probs: ArrayLike, rewards: ArrayLike) -> NDArray[np.float64]:
        """Compute T(pi), the law of the kept response, in O(M log M).

        A group of responses with equal rewards gets mass ``G(F) - G(F-)``, where F- and F are the
        policy's mass below the group and up to it. The draws that tie for it are kept with equal
        chance, so the group shares its mass in proportion to pi.

        Parameters
        ----------
        probs : array_like, shape (M,) or (P, M)
            Policy pi, of one prompt or of P prompts; every row sums to one.
        rewards : array_like
            Finite rewards of the same shape.

        Returns
        -------
        ndarray
            T(pi), of the same shape.

        Raises
        ------
        ValueError
            If rewards are not finite, or probabilities are none, or shapes differ.
        """
        rewards = as_rewards("rewards", rewards)
        probs = as_probabilities("probs", probs, rewards.shape)
        return self.ranked_distribution(probs, Ranking.of(rewards))

    def ranked_distribution(self, probs: NDArray, ranking: Ranking) -> NDArray[np.float64]:
        """Compute `distribution` of a checked policy whose rewards are ranked."""
        below, upto = ranking.cumulative(probs)
        mass = upto - below
        # Of a light group, the sums hold few digits or none: G rises by g times its mass.
        light = self.n * mass <= LIGHT * np.minimum(upto, 1 - below)
        gain = (self._cdf(upto) - self._cdf(below)) / np.where(light, 1, mass)
        return probs * ranking.unsort(np.where(light, self._slope((below + upto) / 2), gain))

    def select(self, rewards: ArrayLike) -> NDArray[np.int_]:
        """Choose among draws: the index reduction of a Monte-Carlo estimate.

        Parameters
        ----------
        rewards : array_like, shape (..., n)
            Finite rewards of ``n`` independent draws each.

        Returns
        -------
        ndarray of int, shape (...)
            Which draw is kept. Of draws that tie, the first: draws are exchangeable, so the kept
            *response* has the same law as under a uniform choice.

        Raises
        ------
        ValueError
            If rewards are not finite, or the last axis is not of length ``n``.
        """
        rewards = as_reals("rewards", readable("rewards", rewards))
        if rewards.ndim == 0 or rewards.shape[-1] != self.n:
            raise ValueError(f"rewards must have shape (..., {self.n}), got {rewards.shape}")
        return self._kept(rewards)


@dataclass(frozen=True)
class Sampling(Procedure):
    """Draw once: ``G(F) = F``."""

    @property
    def n(self) -> int:
        """One draw."""
        return 1

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return "sampling"

    def _cdf(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return level

    def _slope(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ones_like(level)

    def dual(self) -> "Sampling":
        """Return itself."""
        return self

    def _kept(self, rewards: NDArray[np.float64]) -> NDArray[np.int_]:
        return np.zeros(rewards.shape[:-1], dtype=int)


@dataclass(frozen=True)
class BestOfN(Procedure):
    """Draw N and keep the highest reward: ``G(F) = F^N``.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.

    Raises
    ------
    ValueError
        If ``n`` is no such integer.
    """

    n: int

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "n")

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"best of {self.n}"

    def _cdf(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return level**self.n

    def _slope(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.n * level ** (self.n - 1)

    def dual(self) -> "WorstOfN":
        """Return the worst of N."""
        return WorstOfN(self.n)

    def _kept(self, rewards: NDArray[np.float64]) -> NDArray[np.int_]:
        return np.argmax(rewards, axis=-1)


@dataclass(frozen=True)
class WorstOfN(Procedure):
    """Draw N and keep the lowest reward, as an attacker does: ``G(F) = 1 - (1 - F)^N``.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.

    Raises
    ------
    ValueError
        If ``n`` is no such integer.
    """

    n: int

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "n")

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"worst of {self.n}"

    def _cdf(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1 - (1 - level) ** self.n

    def _slope(self, level: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.n * (1 - level) ** (self.n - 1)

    def dual(self) -> BestOfN:
        """Return the best of N."""
        return BestOfN(self.n)

    def _kept(self, rewards: NDArray[np.float64]) -> NDArray[np.int_]:
        return np.argmin(rewards, axis=-1)


def procedure_of(n: int, kind: Kind) -> Procedure:
    """Return `BestOfN` for ``"best"`` and `WorstOfN` for ``"worst"``.

    Raises
    ------
    ValueError
        If ``n`` is not an integer of at least 1, or the kind is another one.
    """
    check_choice("kind", kind, get_args(Kind))
    return BestOfN(n) if kind == "best" else WorstOfN(n)
