"""Checks that more than one part of the laboratory makes of its arguments."""

import numpy as np


def check_count(name: str, value: int, *, least: int) -> None:
    """Raise unless ``value`` is an integer (not a bool) of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer of at least {least}; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")
