"""Calendar features of time stamps: what the paper calls timestamp hierarchical processing."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import check_integer

__all__ = ["FEATURES", "check_stamps", "season", "time_features"]

Stamps = NDArray[np.datetime64]
SECONDS_A_DAY = 86_400


def season(month: ArrayLike) -> NDArray[np.int64]:
    """Return the season of each month, in the northern hemisphere.

    Parameters
    ----------
    month : array_like of int
        1 to 12.

    Returns
    -------
    ndarray of int
        0 for March to May, 1 for June to August, 2 for September to November, 3 for the winter.

    Raises
    ------
    ValueError
        If a month is not one of 1 to 12.
    """
    month = np.asarray(month)
    if month.dtype.kind not in "iu" or not ((month >= 1) & (month <= 12)).all():
        raise ValueError(f"month must hold integers of 1 to 12, got {month!r}")
    return (month // 3 + 3) % 4


def _second_of_day(stamps: Stamps) -> NDArray[np.int64]:
    return stamps.astype("datetime64[s]").astype(np.int64) % SECONDS_A_DAY


def _day_of_week(stamps: Stamps) -> NDArray[np.int64]:
    """Monday is 0; 1970-01-01 was a Thursday."""
    return (stamps.astype("datetime64[D]").astype(np.int64) + 3) % 7


def _day_of_month(stamps: Stamps) -> NDArray[np.int64]:
    return (stamps.astype("datetime64[D]") - stamps.astype("datetime64[M]")).astype(int) + 1


def _day_of_year(stamps: Stamps) -> NDArray[np.int64]:
    return (stamps.astype("datetime64[D]") - stamps.astype("datetime64[Y]")).astype(int) + 1


def _month(stamps: Stamps) -> NDArray[np.int64]:
    return stamps.astype("datetime64[M]").astype(np.int64) % 12 + 1


def _iso_week(stamps: Stamps) -> NDArray[np.int64]:
    """Return the ISO week; it belongs to the year of its Thursday."""
    thursday = stamps.astype("datetime64[D]") + (3 - _day_of_week(stamps))
    return (_day_of_year(thursday) - 1) // 7 + 1


# Each maps stamps to values in [-0.5, 0.5].
FEATURES: dict[str, Callable[[Stamps], NDArray[np.float64]]] = {
    "second": lambda stamps: _second_of_day(stamps) % 60 / 59 - 0.5,
    "minute": lambda stamps: _second_of_day(stamps) // 60 % 60 / 59 - 0.5,
    "hour": lambda stamps: _second_of_day(stamps) // 3600 / 23 - 0.5,
    "dayofweek": lambda stamps: _day_of_week(stamps) / 6 - 0.5,
    "day": lambda stamps: (_day_of_month(stamps) - 1) / 30 - 0.5,
    "dayofyear": lambda stamps: (_day_of_year(stamps) - 1) / 365 - 0.5,
    "month": lambda stamps: (_month(stamps) - 1) / 11 - 0.5,
    "week": lambda stamps: (_iso_week(stamps) - 1) / 52 - 0.5,
    "season": lambda stamps: season(_month(stamps)) / 3 - 0.5,
    "weekend": lambda stamps: (_day_of_week(stamps) + 1) // 6 - 0.5,
}


def time_features(stamps: ArrayLike, kinds: Sequence[str]) -> NDArray[np.float32]:
    """Describe each time stamp by numbers in [-0.5, 0.5], Section 3.3 of the paper.

    Parameters
    ----------
    stamps : array_like of datetime64, shape (n,)
        No NaT; in local time, without a time zone. Stamps that go back in time bring a warning.
    kinds : sequence of str
        Features in the order of the columns, none twice: keys of ``FEATURES``, which are second,
        minute, hour, dayofweek (Monday is lowest), day, dayofyear, month, week (ISO), season,
        weekend.

    Returns
    -------
    ndarray of float32, shape (n, len(kinds))
        Each column is a feature.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    stamps = check_stamps("stamps", stamps)
    kinds = _check_kinds(kinds)
    if (np.diff(stamps) < np.timedelta64(0)).any():
        warnings.warn("stamps go back in time", UserWarning, stacklevel=2)
    return np.stack([FEATURES[kind](stamps) for kind in kinds], axis=1).astype(np.float32)


def check_stamps(name: str, stamps: ArrayLike) -> Stamps:
    """Return a one-dimensional array of datetime64 without NaT; raise for anything else."""
    array = np.asarray(stamps)
    if array.dtype.kind != "M":
        raise TypeError(f"{name} must be datetime64, got {array.dtype}")
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be one-dimensional and not empty, got shape {array.shape}")
    if np.isnat(array).any():
        raise ValueError(f"{name} must not hold NaT, got one at {int(np.isnat(array).argmax())}")
    return array


def _check_kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    if isinstance(kinds, str) or not len(kinds):
        raise ValueError(f"kinds must be a sequence of names such as ('hour',), got {kinds!r}")
    for kind in kinds:
        if not isinstance(kind, str) or kind not in FEATURES:
            raise ValueError(f"kinds must be of {tuple(FEATURES)}, got {kind!r}")
    check_integer("number of different kinds", len(set(kinds)), low=len(kinds))
    return tuple(kinds)
