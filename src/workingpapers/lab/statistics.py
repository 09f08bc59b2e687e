"""Statistics of few runs: an estimate always comes with its confidence interval."""

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from workingpapers.lab.arguments import check_count, is_finite

# Bound on the numbers that a bootstrap holds in memory at a time.
_BATCH_NUMBERS = 4_000_000

# Fourth powers of numbers between these, which the methods below come to, are floats too.
_SMALLEST, _LARGEST = 1e-75, 1e75


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval.

    Parameters
    ----------
    value, low, high : float
        The value and the ends of its interval; finite, ``low <= high``.
    n : int
        Number of observations (runs, pairs, trials), at least 1.
    level : float, default 0.95
        Confidence level, between 0 and 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range.

    Examples
    --------
    >>> estimate = Estimate(6.41, 6.12, 6.70, n=20)
    >>> str(estimate)
    '6.41 [6.12, 6.70]'
    >>> f"{estimate:.1f}"
    '6.4 [6.1, 6.7]'
    """

    value: float
    low: float
    high: float
    n: int
    level: float = 0.95

    def __post_init__(self):
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if not is_finite(number):
                raise ValueError(f"{name} must be a finite number; got {number!r}")
        if self.low > self.high:
            raise ValueError(f"low must not be above high; got {self.low} and {self.high}")
        check_count("n", self.n, least=1)
        _check_level(self.level)

    def __str__(self):
        return format(self, "")

    def __format__(self, spec):
        spec = spec or self._spec()
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def _spec(self) -> str:
        """Return the format that shows two digits of half the interval's width."""
        half = self.high / 2 - self.low / 2  # the whole width may be too large for a float
        if half == 0:
            return ".6g"
        decimals = 1 - math.floor(math.log10(half))
        return f".{max(decimals, 0)}f" if decimals <= 6 else ".3e"


class LinearFit(NamedTuple):
    """A straight line through points: ``y = intercept + slope * x``."""

    slope: Estimate
    intercept: Estimate
    r_squared: float


def mean_interval(x: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the mean with Student's t interval.

    Parameters
    ----------
    x : array_like, shape (n,)
        Independent observations, finite, at least 2.
    level : float, default 0.95
        Confidence level, between 0 and 1.

    Returns
    -------
    Estimate
        Exact for normal observations; of width zero if all are equal.

    Raises
    ------
    TypeError, ValueError
        If ``x`` or ``level`` is not as described.
    """
    return _t_interval(_numbers("x", x, least=2), level)


def paired_difference(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Estimate:
    """Return the mean of ``a - b`` with Student's t interval.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        The two members of each pair (one seed, two methods), finite, at least 2 pairs.
    level : float, default 0.95
        Confidence level, between 0 and 1.

    Returns
    -------
    Estimate

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    a, b = _pairs(a, b, "a", "b", least=2)
    return _t_interval(_numbers("a - b", a - b, least=2), level)


def bootstrap_interval(
    x: ArrayLike,
    statistic: Callable[[np.ndarray], float] = np.mean,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """Return a statistic with its bootstrap interval.

    Parameters
    ----------
    x : array_like, shape (n,)
        Independent observations, finite, at least 2.
    statistic : callable, default numpy.mean
        ``statistic(x)`` is a number. If it has a parameter ``axis``, it is called on many
        resamples at a time, as :func:`scipy.stats.bootstrap` does.
    level : float, default 0.95
        Confidence level, between 0 and 1.
    resamples : int, default 10_000
        Number of resamples, at least 100.
    seed : int, default 0
        Seed of the resampling.

    Returns
    -------
    Estimate
        Bias-corrected and accelerated (BCa); by percentiles where that is not defined, as for the
        median of many ties.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    x = _numbers("x", x, least=2)
    return _bootstrap((x,), statistic, level, resamples, seed, n=len(x))


def paired_ratio(
    a: ArrayLike, b: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Return ``mean(a) / mean(b)`` with its bootstrap interval over pairs.

    Parameters
    ----------
    a, b : array_like, shape (n,)
        The two members of each pair, finite, at least 2 pairs. The ``b`` are all positive or all
        negative: else the ratio has no bounded interval.
    level : float, default 0.95
        Confidence level, between 0 and 1.
    resamples : int, default 10_000
        Number of resamples, at least 100.
    seed : int, default 0
        Seed of the resampling.

    Returns
    -------
    Estimate

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    a, b = _pairs(a, b, "a", "b", least=2)
    if b.min() <= 0 <= b.max():
        raise ValueError(
            f"b must be all positive or all negative; it runs from {b.min()} to {b.max()}"
        )
    return _bootstrap((a, b), _ratio_of_means, level, resamples, seed, n=len(a), paired=True)


def interquartile_mean(x: ArrayLike) -> float:
    """Return the mean of the middle half: the lowest and the highest quarter are left out.

    The number left out at each end is rounded down (Agarwal et al., 2021, "Deep reinforcement
    learning at the edge of the statistical precipice", section 4.3).

    Parameters
    ----------
    x : array_like, shape (n,) or (runs, tasks)
        Finite numbers, at least 1; a matrix is pooled.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If ``x`` is not as described.
    """
    return float(stats.trim_mean(_numbers("x", x, least=1, dimensions=(1, 2)), 0.25, axis=None))


def iqm_interval(
    x: ArrayLike, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Return the interquartile mean with its bootstrap interval, stratified by task.

    The runs of each task are resampled by themselves (Agarwal et al., 2021, section 4.2).

    Parameters
    ----------
    x : array_like, shape (runs,) or (runs, tasks)
        Finite scores, at least 2 runs.
    level : float, default 0.95
        Confidence level, between 0 and 1.
    resamples : int, default 10_000
        Number of resamples, at least 100.
    seed : int, default 0
        Seed of the resampling.

    Returns
    -------
    Estimate
        ``n`` is the number of runs.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    x = _numbers("x", x, least=2, dimensions=(1, 2))
    tasks = tuple(x.reshape(len(x), -1).T)
    return _bootstrap(tasks, _pooled_middle_mean, level, resamples, seed, n=len(x))


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """Return ``successes / trials`` with the exact (Clopper-Pearson) interval.

    Parameters
    ----------
    successes : int
        From 0 to ``trials``.
    trials : int
        At least 1.
    level : float, default 0.95
        Confidence level, between 0 and 1.

    Returns
    -------
    Estimate
        Its interval covers with at least the level, whatever the proportion.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range.
    """
    check_count("trials", trials, least=1)
    check_count("successes", successes, least=0)
    if successes > trials:
        raise ValueError(f"successes must be at most trials; got {successes} of {trials}")
    _check_level(level)
    interval = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
    return _estimate(successes / trials, interval.low, interval.high, trials, level)


def linear_fit(x: ArrayLike, y: ArrayLike, level: float = 0.95) -> LinearFit:
    """Fit a line by least squares, with t intervals of its slope and intercept.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Finite, at least 3 points; not all ``x`` equal.
    level : float, default 0.95
        Confidence level, between 0 and 1.

    Returns
    -------
    LinearFit
        ``(slope, intercept, r_squared)``; ``r_squared`` is 1 where all ``y`` are equal.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    x, y = _pairs(x, y, "x", "y", least=3)
    _check_level(level)
    n = len(x)
    if np.ptp(x) == 0:
        raise ValueError(f"x must hold at least two different numbers; all are {x[0]}")
    if np.ptp(y) == 0:
        return LinearFit(_exact(0.0, n, level), _exact(y[0], n, level), 1.0)
    fit = stats.linregress(x, y)
    t = stats.t.ppf((1 + level) / 2, n - 2)
    slope, intercept = (
        _estimate(value, value - t * error, value + t * error, n, level)
        for value, error in ((fit.slope, fit.stderr), (fit.intercept, fit.intercept_stderr))
    )
    return LinearFit(slope, intercept, float(fit.rvalue**2))


def _t_interval(x: np.ndarray, level: float) -> Estimate:
    _check_level(level)
    if np.ptp(x) == 0:
        return _exact(x[0], len(x), level)
    half = stats.t.ppf((1 + level) / 2, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
    return _estimate(x.mean(), x.mean() - half, x.mean() + half, len(x), level)


def _bootstrap(
    samples: tuple[np.ndarray, ...],
    statistic: Callable,
    level: float,
    resamples: int,
    seed: int,
    n: int,
    paired: bool = False,
) -> Estimate:
    _check_level(level)
    check_count("resamples", resamples, least=100)
    check_count("seed", seed, least=0)
    statistic = _on_copies(statistic)
    value = _value(statistic, samples)
    if all(np.ptp(sample) == 0 for sample in samples):
        return _exact(value, n, level)

    def interval(method):
        return stats.bootstrap(
            samples,
            statistic,
            paired=paired,
            confidence_level=level,
            n_resamples=resamples,
            batch=max(1, _BATCH_NUMBERS // sum(map(len, samples))),
            method=method,
            random_state=np.random.default_rng(seed),
        ).confidence_interval

    with warnings.catch_warnings():
        # BCa is 0/0 where leaving out any one observation changes nothing.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        found = interval("BCa")
        if not np.isfinite(found).all():
            found = interval("percentile")
    if not np.isfinite(found).all():
        raise ValueError("statistic must be finite on every resample; it is not")
    return _estimate(value, found.low, found.high, n, level)


def _on_copies(statistic: Callable) -> Callable:
    """Return the same statistic, which may now change its sample without harm."""

    @functools.wraps(statistic)
    def on_copies(*samples, **axis):
        return statistic(*(sample.copy() for sample in samples), **axis)

    return on_copies


def _value(statistic: Callable, samples: tuple[np.ndarray, ...]) -> float:
    value = np.asarray(statistic(*samples))
    if value.shape != () or value.dtype.kind not in "iuf" or not np.isfinite(value):
        raise ValueError(f"statistic must give one finite number; it gave {value!r}")
    return float(value)


def _ratio_of_means(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.mean(a, axis=axis) / np.mean(b, axis=axis)


def _pooled_middle_mean(*tasks: np.ndarray, axis: int = -1) -> np.ndarray:
    return stats.trim_mean(np.concatenate(tasks, axis=axis), 0.25, axis=axis)


def _estimate(value: float, low: float, high: float, n: int, level: float) -> Estimate:
    return Estimate(float(value), float(low), float(high), int(n), float(level))


def _exact(value: float, n: int, level: float) -> Estimate:
    """Return an estimate from observations that do not vary."""
    return _estimate(value, value, value, n, level)


def _check_level(level: Any) -> None:
    real = isinstance(level, Real) and not isinstance(level, bool)
    if not real or not 0.5 < (1 + level) / 2 < 1:  # the quantile's place, as rounded
        raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level!r}")


def _numbers(
    name: str, x: ArrayLike, *, least: int, dimensions: tuple[int, ...] = (1,)
) -> np.ndarray:
    """Return ``x`` as floats of a usable size, with at least ``least`` rows, or raise."""
    array = np.asarray(x)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers; got an array of {array.dtype}")
    if array.ndim not in dimensions:
        allowed = " or ".join(map(str, dimensions))
        raise ValueError(f"{name} must have {allowed} dimension(s); got shape {array.shape}")
    if len(array) < least or array.size == 0:
        raise ValueError(f"{name} must hold at least {least} of them; got shape {array.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        array = array.astype(float)  # from wider ones, some become infinite
        sizes = {"numbers": abs(array).max(), "differences": np.ptp(array)}
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; got NaN or infinity")
    for what, size in sizes.items():
        if size > _LARGEST or 0 < size < _SMALLEST:
            raise ValueError(
                f"{name} must have {what} between {_SMALLEST} and {_LARGEST} in size, or only "
                f"zeros: others over- or underflow; the largest is {size}"
            )
    return array


def _pairs(
    a: ArrayLike, b: ArrayLike, first: str, second: str, least: int
) -> tuple[np.ndarray, np.ndarray]:
    series = isinstance(a, pd.Series) and isinstance(b, pd.Series)
    if series and len(a) == len(b) and not a.index.equals(b.index):
        raise ValueError(f"{first} and {second} must pair up; their indices differ")
    a, b = _numbers(first, a, least=least), _numbers(second, b, least=least)
    if len(a) != len(b):
        raise ValueError(f"{first} and {second} must pair up; got {len(a)} and {len(b)} numbers")
    return a, b
