"""Instance normalisation of windows, and the checks of what enters a model."""

import torch
from torch import Tensor

__all__ = ["check_marks", "check_windows", "standardise_window"]

EPSILON = 1e-5  # added to the variance


def standardise_window(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Give each channel of each window mean 0 and variance near 1, Section 3.1 of the paper.

    Parameters
    ----------
    x : Tensor, shape (batch, seq_len, channels)
        Windows, finite.

    Returns
    -------
    z : Tensor, shape (batch, seq_len, channels)
        ``(x - mu) / sd``.
    mu, sd : Tensor, shape (batch, 1, channels)
        Mean over time, and ``sqrt(biased variance + 1e-5)``.

    Raises
    ------
    ValueError
        If a standard deviation is not finite: squares of numbers near 1e19 overflow float32.
    """
    mu = x.mean(dim=1, keepdim=True)
    sd = (x.var(dim=1, keepdim=True, unbiased=False) + EPSILON).sqrt()
    if not torch.isfinite(sd).all():
        raise ValueError(
            f"x must have windows whose standard deviation is finite in {x.dtype}, got values up "
            f"to {float(x.abs().max()):.3g}"
        )
    return (x - mu) / sd, mu, sd


def check_windows(name: str, x: Tensor, length: int, channels: int) -> None:
    """Raise unless ``x`` is finite, real, and of shape (batch, length, channels)."""
    _check_batch(name, x, length, channels)
    finite = torch.isfinite(x)
    if not finite.all():
        where, _, channel = torch.nonzero(~finite)[0].tolist()
        raise ValueError(f"{name} must be finite, got NaN or inf in channel {channel}, row {where}")


def check_marks(name: str, marks: Tensor, batch: int, length: int, features: int) -> None:
    """Raise unless ``marks`` are finite, real, and of shape (batch, length, features)."""
    _check_batch(name, marks, length, features)
    if len(marks) != batch:
        raise ValueError(f"{name} must have one row a window, {batch}, got {len(marks)}")
    if not torch.isfinite(marks).all():
        raise ValueError(f"{name} must be finite, got NaN or inf")


def _check_batch(name: str, x: Tensor, length: int, width: int) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be of a real floating-point dtype, got {x.dtype}")
    if x.ndim != 3 or x.shape[1:] != (length, width) or not len(x):
        raise ValueError(f"{name} must have shape (batch, {length}, {width}), got {tuple(x.shape)}")
