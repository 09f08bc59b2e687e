"""Calibrated reward: how often a response beats a fresh response of the base policy.

``C(x, y) = P(r(x, z) < r(x, y)) + P(r(x, z) = r(x, y)) / 2`` for z ~ pi0: the base
policy's distribution function of the reward, at the middle of its jumps. It is the first step of
CTRL, calibrate-and-transform RL (Section 4 of the paper).
"""

import math
from dataclasses import dataclass, field
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import as_array, as_reals, check_choice, check_integer

__all__ = [
    "Ranking",
    "RewardCalibrator",
    "as_probabilities",
    "as_rewards",
    "calibrated_reward",
    "dkw_band",
]

Method = Literal["empirical", "quantile"]

TOTAL_TOLERANCE = {2: 1e-2, 4: 1e-5}  # how far from 1 probabilities may sum, by a float's bytes


def as_rewards(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return finite rewards of one prompt, (M,), or of several, (P, M), with M >= 1.

    Raises
    ------
    ValueError
        If an entry is NaN or infinite, or the shape is another one.
    """
    return _check_shape(name, as_reals(name, readable(name, values)))


def readable(name: str, values: ArrayLike) -> NDArray:
    """Return an array; an error that names the argument if numpy cannot make one.

    So it is with tensors that require a gradient, or whose type numpy lacks (bfloat16).
    """
    try:
        return np.asanyarray(values)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{name} must be readable by numpy: {error}") from error


def _check_shape(name: str, array: NDArray[np.float64]) -> NDArray[np.float64]:
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{name} must have shape (M,) or (P, M), M >= 1, got {array.shape}")
    return array


def as_probabilities(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """Return distributions over responses, (M,) or (P, M), scaled to sum to one.

    Raises
    ------
    ValueError
        If an entry is negative, NaN or infinite, the shape is not the wanted one, or a row's sum is
        off 1 by more than the type's rounding allows: 1e-8, 1e-5 for float32, 1e-2 for float16.
    """
    given = readable(name, values)
    tolerance = TOTAL_TOLERANCE.get(given.itemsize if given.dtype.kind == "f" else 8, 1e-8)
    probs = _check_shape(name, as_reals(name, given, shape))
    if probs.min() < 0:
        raise ValueError(f"{name} must be >= 0, got {probs.min()}")
    totals = probs.sum(axis=-1, keepdims=True)
    worst = totals.flat[np.argmax(np.abs(totals - 1))]
    if abs(worst - 1) > tolerance:
        raise ValueError(f"{name} must sum to 1 within {tolerance}, got a sum of {worst}")
    return probs / totals


@dataclass(frozen=True, eq=False)
class Ranking:
    """Responses in ascending order of reward, with ties: what all exact formulas sum along.

    Build it with `Ranking.of`. Arrays "in order" have their last axis sorted by reward.

    Parameters
    ----------
    order : ndarray of int, shape (..., M)
        Responses from the worst to the best.
    first, last : ndarray of int, shape (..., M)
        For every place in the order, where its group of equal rewards starts and ends.
    """

    order: NDArray[np.int_]
    first: NDArray[np.int_]
    last: NDArray[np.int_]

    @classmethod
    def of(cls, rewards: NDArray[np.float64]) -> Self:
        """Rank checked rewards of shape (M,) or (P, M)."""
        order = np.argsort(rewards, axis=-1, kind="stable")
        ascending = _pick(rewards, order)
        rises = ascending[..., 1:] > ascending[..., :-1]
        places = np.arange(rewards.shape[-1])
        end = np.ones_like(rises, shape=(*rewards.shape[:-1], 1))
        starts = np.where(np.concatenate([end, rises], -1), places, 0)
        stops = np.where(np.concatenate([rises, end], -1), places, places[-1])
        first = np.maximum.accumulate(starts, axis=-1)
        last = np.minimum.accumulate(stops[..., ::-1], axis=-1)[..., ::-1]
        return cls(order, first, last)

    def sort(self, values: NDArray) -> NDArray:
        """Put values of the responses in order."""
        return _pick(values, self.order)

    def unsort(self, values: NDArray) -> NDArray:
        """Give values in order back to their responses."""
        scattered = np.empty_like(values)
        np.put_along_axis(scattered, self.order, values, -1)
        return scattered

    def cumulative(self, probs: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
        """Return P(reward < r) and P(reward <= r), in order, at every response's reward r."""
        totals = np.cumsum(self.sort(probs), axis=-1)
        totals /= totals[..., -1:]  # so that the last value is 1, whatever the rounding
        padded = np.concatenate([np.zeros_like(totals[..., :1]), totals], -1)
        return _pick(padded, self.first), _pick(totals, self.last)


def _pick(values: NDArray, places: NDArray[np.int_]) -> NDArray:
    """Return values at places of the last axis, prompt by prompt."""
    return values[places] if places.ndim == 1 else np.take_along_axis(values, places, -1)


def calibrated_reward(rewards: ArrayLike, probs: ArrayLike) -> NDArray[np.float64]:
    """Compute the exact calibrated reward ``C(y) = E_{z ~ probs} w_r(y, z)``.

    ``w_r`` is 1 for the larger reward, 0 for the smaller and 1/2 for a tie. The mean of C under
    ``probs`` is always 1/2, and no strictly increasing map of the rewards changes C.

    Parameters
    ----------
    rewards : array_like, shape (M,) or (P, M)
        Finite rewards of the M responses, of one prompt or of P prompts.
    probs : array_like
        The base policy pi0, of the same shape. Every row sums to one within 1e-8, or, given as
        float32, within 1e-5, and as float16 within 1e-2; it is then scaled to do so.

    Returns
    -------
    ndarray
        C in [0, 1], of the same shape.

    Raises
    ------
    ValueError
        If rewards are not finite, or probabilities are none, or shapes differ.

    Examples
    --------
    >>> calibrated_reward([3.0, 1.0, 3.0, 2.0], [0.25, 0.25, 0.25, 0.25])
    array([0.75 , 0.125, 0.75 , 0.375])
    """
    rewards = as_rewards("rewards", rewards)
    probs = as_probabilities("probs", probs, rewards.shape)
    ranking = Ranking.of(rewards)
    below, upto = ranking.cumulative(probs)
    return ranking.unsort((below + upto) / 2)


@dataclass(eq=False)
class RewardCalibrator:
    """Calibrated rewards estimated from K base responses per prompt (Section 4).

    Parameters
    ----------
    method : {"empirical", "quantile"}
        ``"empirical"``: the share of base rewards below, ties counting half; a staircase with
        values in {0, 1/2K, ..., 1}. ``"quantile"``: linear between the empirical values at
        neighbouring base rewards, and constant outside them, so that values lie within
        [1/2K, 1 - 1/2K]; smoother, and never 0.

    Raises
    ------
    ValueError
        If the method is another one.
    """

    method: Method = "empirical"
    _sorted: NDArray[np.float64] | None = field(default=None, init=False, repr=False)
    _values: NDArray[np.float64] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))

    def fit(self, base_rewards: ArrayLike) -> Self:
        """Store the sorted rewards of the base responses.

        Parameters
        ----------
        base_rewards : array_like, shape (P, K)
            Row i holds the finite rewards of K >= 1 responses of pi0 to prompt i.

        Returns
        -------
        RewardCalibrator
            Itself.

        Raises
        ------
        ValueError
            If rewards are not finite, or not of shape (P, K).
        """
        rewards = as_reals("base_rewards", readable("base_rewards", base_rewards))
        if rewards.ndim != 2 or rewards.size == 0:
            raise ValueError(f"base_rewards must have shape (P, K), got {rewards.shape}")
        self._sorted = np.sort(rewards, axis=1)
        self._values = calibrated_reward(self._sorted, np.full_like(rewards, 1 / rewards.shape[1]))
        return self

    @property
    def base_rewards(self) -> NDArray[np.float64]:
        """Sorted base rewards, shape (P, K); a RuntimeError before `fit`."""
        if self._sorted is None:
            raise RuntimeError("fit the calibrator to base rewards before using it")
        return self._sorted

    @property
    def num_prompts(self) -> int:
        """Number of prompts P."""
        return self.base_rewards.shape[0]

    @property
    def num_samples(self) -> int:
        """Number of base responses per prompt K."""
        return self.base_rewards.shape[1]

    def transform(self, prompt_index: ArrayLike, rewards: ArrayLike) -> NDArray[np.float64]:
        """Calibrate rewards by the base rewards of their prompts.

        Parameters
        ----------
        prompt_index : array_like of int, shape (B,)
            The prompt of every reward, in 0..P-1.
        rewards : array_like, shape (B,)
            Finite rewards.

        Returns
        -------
        ndarray, shape (B,)
            Estimates of C in [0, 1].

        Raises
        ------
        RuntimeError
            If the calibrator is not fitted.
        ValueError
            If a prompt was not seen by `fit`, a reward is not finite, or shapes differ.
        """
        rewards = as_reals("rewards", readable("rewards", rewards))
        if rewards.ndim != 1:
            raise ValueError(f"rewards must have shape (B,), got {rewards.shape}")
        prompts = readable("prompt_index", prompt_index)
        prompts = as_array("prompt_index", prompts, "integers", rewards.shape).astype(int)
        unseen = (prompts < 0) | (prompts >= self.num_prompts)
        if unseen.any():
            raise ValueError(
                f"prompt_index must be of prompts seen by fit, 0..{self.num_prompts - 1}, "
                f"got {prompts[unseen][0]}"
            )
        below = self._count_below(prompts, rewards)
        place = prompts, np.minimum(below, self.num_samples - 1)
        if self.method == "empirical":
            tied = self.base_rewards[place] == rewards
            return np.where(tied, self._values[place], below / self.num_samples)
        before = prompts, np.maximum(below - 1, 0)
        low, high = self.base_rewards[before], self.base_rewards[place]
        sizes = size_exponent(np.stack([low, high]), axis=0)  # so that no difference overflows
        inside = np.clip(rewards, low, high)
        low, high, rewards = (np.ldexp(part, -sizes) for part in (low, high, inside))
        share = np.divide(rewards - low, high - low, out=np.ones_like(low), where=low < high)
        return self._values[before] + share * (self._values[place] - self._values[before])

    def _count_below(self, prompts: NDArray, rewards: NDArray) -> NDArray[np.int_]:
        """Count the base rewards below every reward, prompt by prompt."""
        below = np.empty_like(prompts)
        order = np.argsort(prompts, kind="stable")
        starts = np.searchsorted(prompts[order], np.arange(self.num_prompts + 1))
        for prompt in np.flatnonzero(np.diff(starts)):
            asked = order[starts[prompt] : starts[prompt + 1]]
            below[asked] = np.searchsorted(self.base_rewards[prompt], rewards[asked])
        return below


def size_exponent(values: NDArray[np.float64], axis: int) -> NDArray[np.int_]:
    """Return the e for which 2^e is just above the largest size: dividing by it is exact."""
    return np.frexp(np.abs(values).max(axis=axis))[1]


def dkw_band(num_samples: int, level: float = 0.95) -> float:
    """Bound the calibration error that holds for all rewards at once.

    Dvoretzky, Kiefer and Wolfowitz, with Massart's constant: ``P(sup |C_hat - C| > eps) <= 2
    exp(-2 K eps^2)``. A value in the middle of a jump is off by no more than the jump's two ends.

    Parameters
    ----------
    num_samples : int
        Base responses per prompt K, at least 1.
    level : float
        Probability, in (0, 1), that the band covers.

    Returns
    -------
    float
        Half-width eps > 0 of the band.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    num_samples = check_integer("num_samples", num_samples)
    level = float(as_reals("level", level, ()))
    if not 0 < level < 1:
        raise ValueError(f"level must be in (0, 1), got {level}")
    return math.sqrt(math.log(2 / (1 - level)) / (2 * num_samples))
