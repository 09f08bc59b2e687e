"""Checks that more than one part of the laboratory makes of what it is given."""

import math
from collections.abc import Collection, Mapping
from numbers import Real
from typing import Any

import numpy as np


def check_count(name: str, value: int, *, least: int) -> int:
    """Return ``value`` as a Python integer; raise unless it is one of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer of at least {least}; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
    return int(value)


def is_finite(value: Any) -> bool:
    """Return whether ``value`` is a real number that a float can hold."""
    try:
        return isinstance(value, Real) and math.isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def check_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a run as floats, or raise naming the one that is at fault."""
    if not isinstance(metrics, Mapping) or not metrics:
        raise TypeError(f"run must return a mapping of at least one metric; got {metrics!r}")
    for name, value in metrics.items():
        if not isinstance(name, str):
            raise TypeError(f"metrics must have string names; got {name!r}")
        if not isinstance(value, Real | np.bool_):
            raise TypeError(f"metric {name!r} must be a number; got {value!r}")
        if not is_finite(float(value) if isinstance(value, np.bool_) else value):
            raise ValueError(f"metric {name!r} must be finite; got {value}")
    return {name: float(value) for name, value in metrics.items()}


def names_problem(
    metrics: Collection[str], others: Collection[str], parameters: Collection[str]
) -> str | None:
    """Return what is wrong with the names of a run's metrics, given those of the other runs."""
    if set(metrics) != set(others):
        return f"its metrics are {sorted(metrics)}, those of other runs {sorted(others)}"
    taken = {"seed", *parameters} & set(metrics)
    return f"metrics may not be named like the arguments {sorted(taken)}" if taken else None
