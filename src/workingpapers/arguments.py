"""Checks of arguments: what passes is returned in the one form that the package computes with."""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

INT64_MAX = 2**63 - 1  # rounds are counted in arrays of int64

Kind = Literal["boolean", "integers", "real numbers"]
DTYPE_KINDS: dict[Kind, str] = {"boolean": "b", "integers": "iu", "real numbers": "biuf"}


def check_integer(name: str, value: int, low: int = 1, high: int | None = INT64_MAX) -> int:
    """Return an integer of low..high as an int; raise ValueError for anything else."""
    number = math.nan
    if isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64):
        number = int(value)
    if not low <= number <= (math.inf if high is None else high):
        limit = "" if high is None else f" and <= {high}"
        raise ValueError(f"{name} must be an integer >= {low}{limit}, got {value!r}")
    return number


def check_positive(name: str, value: float) -> float:
    """Return a finite number above 0 as a float; raise ValueError for anything else."""
    number = _as_float(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return number


def check_nonnegative(name: str, value: float) -> float:
    """Return a finite number of at least 0 as a float; raise ValueError for anything else."""
    number = _as_float(value)
    if not 0 <= number < math.inf:
        raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
    return number


def _as_float(value: float) -> float:
    """Return a real number as a float, and NaN for what is none or is too large for one."""
    real = isinstance(value, int | float | np.integer | np.floating)
    try:
        return math.nan if not real or isinstance(value, bool | np.timedelta64) else float(value)
    except OverflowError:
        return math.nan


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``allowed``; raise ValueError otherwise."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
    return value


def check_type(name: str, value: object, kind: type) -> None:
    """Raise TypeError unless ``value`` is of the given class."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")


def check_fields(owner: object, check: Callable, *names: str) -> None:
    """Put what the check returns into fields of a frozen dataclass."""
    for name in names:
        object.__setattr__(owner, name, check(name, getattr(owner, name)))


def as_array(
    name: str, values: ArrayLike, kind: Kind, shape: tuple[int, ...] | None = None
) -> NDArray:
    """Return an array of that kind and shape; raise ValueError for anything else."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must have rows of one length: {error}") from error
    if array.dtype.kind not in DTYPE_KINDS[kind]:
        raise ValueError(f"{name} must be {kind}, got {array.dtype}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")
    return array


def as_reals(
    name: str, values: ArrayLike, shape: tuple[int, ...] | None = None, infinite: bool = False
) -> NDArray[np.float64]:
    """Return a new array of floats; raise ValueError if it holds NaN, or infinities unasked."""
    array = as_array(name, values, "real numbers", shape).astype(float)
    bad = np.isnan(array) if infinite else ~np.isfinite(array)
    if bad.any():
        place = tuple(map(int, np.argwhere(bad)[0]))
        wanted = "not hold NaN" if infinite else "be finite"
        raise ValueError(f"{name} must {wanted}, got {array[place]} at {place}")
    return array
