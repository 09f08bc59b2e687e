"""Windows of a series: splits in time that do not leak, and batches in one gather."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from workingpapers.arguments import as_reals, check_choice, check_integer, check_type
from workingpapers.cfpt.series import TimeSeries
from workingpapers.cfpt.timestamps import time_features

__all__ = [
    "Batch",
    "ForecastTask",
    "Split",
    "WindowDataset",
    "chronological_split",
    "prepare",
    "standardise",
]

Scheme = Literal["ratio", "ett", "ett_15min"]

MONTH_ROWS = {"ett": 30 * 24, "ett_15min": 30 * 24 * 4}
STEPS = {"ett": np.timedelta64(60, "m"), "ett_15min": np.timedelta64(15, "m")}


class Split(NamedTuple):
    """Rows of each part; validation and test begin with the window before their first target."""

    train: slice
    val: slice
    test: slice


def chronological_split(n: int, seq_len: int, scheme: Scheme = "ratio") -> Split:
    """Split rows into training, validation and test parts, in this order in time.

    Parameters
    ----------
    n : int
        Rows of the series.
    seq_len : int
        Steps of a window, at least 1.
    scheme : {"ratio", "ett", "ett_15min"}
        70/10/20 per cent; or 12/4/4 months of 30 days for the ETT sets, hourly or every 15 minutes.

    Returns
    -------
    Split
        No target of one part is in another.

    Raises
    ------
    ValueError
        If an argument is not as described, or the series is too short.
    """
    check_integer("n", n)
    check_integer("seq_len", seq_len)
    if check_choice("scheme", scheme, ("ratio", *MONTH_ROWS)) == "ratio":
        train, test = int(n * 0.7), int(n * 0.2)
        ends = (train, n - test, n)
    else:
        ends = tuple(months * MONTH_ROWS[scheme] for months in (12, 16, 20))
    if ends[-1] > n or ends[0] < seq_len or len({0, *ends}) < 4:
        raise ValueError(
            f"n must be enough rows for windows of {seq_len} and the parts that end at {ends}, "
            f"got {n}"
        )
    return Split(
        slice(0, ends[0]), slice(ends[0] - seq_len, ends[1]), slice(ends[1] - seq_len, ends[2])
    )


def standardise(
    values: ArrayLike, train: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Scale channels by mean and standard deviation of the training rows.

    Parameters
    ----------
    values : array_like, shape (n, channels)
        Finite.
    train : slice
        Rows of the training part.

    Returns
    -------
    scaled : ndarray, shape (n, channels)
    mean, sd : ndarray, shape (channels,)
        ``scaled * sd + mean`` are the values.

    Raises
    ------
    ValueError
        If ``values`` are not as described, or a channel is constant in the training rows, but for
        rounding: its standard deviation is at most 1e-12 of its largest value.
    """
    values = as_reals("values", values)
    if values.ndim != 2 or not len(values[train]):
        raise ValueError(
            f"values must have shape (n, channels) and rows in {train}, got {values.shape}"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        mean, sd = values[train].mean(axis=0), values[train].std(axis=0)
    if not np.isfinite(sd).all():
        where = int((~np.isfinite(sd)).argmax())
        raise ValueError(f"values must be smaller, the variance of channel {where} overflows")
    constant = sd <= 1e-12 * np.abs(values[train]).max(axis=0)  # rounding alone gives 1e-16
    if constant.any():
        where = int(constant.argmax())
        raise ValueError(f"values must vary in the training rows, channel {where} does not")
    return (values - mean) / sd, mean, sd


class Batch(NamedTuple):
    """Windows and what follows them."""

    x: Tensor  # (batch, seq_len, channels)
    y: Tensor  # (batch, pred_len, channels)
    future_marks: Tensor  # (batch, pred_len, features)
    history_marks: Tensor  # (batch, seq_len, features)


class WindowDataset:
    """All windows of consecutive rows, each with the rows that follow it.

    Item ``i`` has the rows ``i .. i + seq_len - 1`` as its window and the next ``pred_len`` as its
    target, so there are ``rows - seq_len - pred_len + 1``. It can also be given to a torch
    ``DataLoader``.

    Parameters
    ----------
    values : Tensor, shape (rows, channels)
        Finite.
    marks : Tensor, shape (rows, features)
        Time features of the rows, of the dtype and on the device of ``values``.
    seq_len, pred_len : int
        At least 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there is not one window.
    """

    def __init__(self, values: Tensor, marks: Tensor, seq_len: int, pred_len: int) -> None:
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        for name, rows in (("values", values), ("marks", marks)):
            _check_rows(name, rows)
        if len(values) != len(marks):
            raise ValueError(f"marks must have {len(values)} rows as values, got {len(marks)}")
        if len(values) < seq_len + pred_len:
            raise ValueError(
                f"values must have at least seq_len + pred_len = {seq_len + pred_len} rows, "
                f"got {len(values)}"
            )
        self.values, self.marks = values, marks
        # Overlapping views, one row a window: a batch is a copy of whole rows of memory.
        length = seq_len + pred_len
        self._windows = [
            rows.flatten().unfold(0, length * rows.shape[1], rows.shape[1])
            for rows in (values, marks)
        ]

    def __len__(self) -> int:
        """Return the number of windows."""
        return len(self.values) - self.seq_len - self.pred_len + 1

    def __getitem__(self, index: int) -> Batch:
        """Return one window, without the axis of the batch."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"index must be below {len(self)}, got {index}")
        return Batch(*(part[0] for part in self.batch([index % len(self)])))

    def batch(self, indices: ArrayLike | Tensor) -> Batch:
        """Gather windows.

        Parameters
        ----------
        indices : array_like or Tensor of int, shape (batch,)
            0 to ``len(self) - 1``; at least one.

        Returns
        -------
        Batch

        Raises
        ------
        TypeError, ValueError
            If ``indices`` are not as described.
        """
        indices = self.checked(indices)
        values, marks = (
            windows.index_select(0, indices).unflatten(1, (self.seq_len + self.pred_len, -1))
            for windows in self._windows
        )
        cut = self.seq_len
        return Batch(values[:, :cut], values[:, cut:], marks[:, cut:], marks[:, :cut])

    def checked(self, indices: ArrayLike | Tensor) -> Tensor:
        """Check indices of windows.

        Parameters
        ----------
        indices : array_like or Tensor of int, shape (batch,)
            As of `batch`; of any integer dtype.

        Returns
        -------
        Tensor of int64, shape (batch,)
            On the device of ``values``.

        Raises
        ------
        TypeError, ValueError
            If ``indices`` are not as described.
        """
        indices = torch.as_tensor(indices, device=self.values.device)
        if indices.ndim != 1 or not len(indices):
            raise ValueError(
                f"indices must be one-dimensional and at least one, got shape "
                f"{tuple(indices.shape)}"
            )
        kind = indices.dtype
        if kind.is_floating_point or kind.is_complex or kind == torch.bool:
            raise TypeError(f"indices must be a list of integers, got {kind}")
        indices = indices.long()
        if (indices < 0).any() or (indices >= len(self)).any():
            raise ValueError(f"indices must be of 0..{len(self) - 1}")
        return indices

    def batches(self, size: int = 256) -> list[Tensor]:
        """Return indices of all windows in order, in batches of ``size``."""
        order = torch.arange(len(self), device=self.values.device)
        return list(order.split(check_integer("size", size)))


def _check_rows(name: str, rows: Tensor) -> None:
    check_type(name, rows, Tensor)
    if not rows.is_floating_point() or rows.ndim != 2 or not rows.numel():
        raise ValueError(
            f"{name} must be real and of shape (rows, columns), got {rows.dtype}, "
            f"shape {tuple(rows.shape)}"
        )
    finite = torch.isfinite(rows)
    if not finite.all():
        row, column = torch.nonzero(~finite)[0].tolist()
        raise ValueError(f"{name} must be finite, got NaN or inf in channel {column}, row {row}")


@dataclass(frozen=True, eq=False)
class ForecastTask:
    """A series made ready: windows of three parts in time, standardised by the first.

    Attributes
    ----------
    train, val, test : WindowDataset
        In standardised units.
    mean, sd : Tensor, shape (channels,)
        ``standardised * sd + mean`` is in the original units.
    channels : tuple of str
        Names of the channels.
    kinds : tuple of str
        Time features.
    test_stamps : ndarray of datetime64, shape (rows,)
        Stamps of the rows of ``test``.
    """

    train: WindowDataset
    val: WindowDataset
    test: WindowDataset
    mean: Tensor
    sd: Tensor
    channels: tuple[str, ...]
    kinds: tuple[str, ...]
    test_stamps: NDArray[np.datetime64]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Steps of a window and of the horizon, and channels: what every model wants first."""
        return self.train.seq_len, self.train.pred_len, len(self.channels)


def prepare(
    series: TimeSeries,
    seq_len: int = 96,
    pred_len: int = 96,
    kinds: Sequence[str] = ("hour", "dayofweek"),
    *,
    scheme: Scheme = "ratio",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> ForecastTask:
    """Split, standardise and window a series.

    Parameters
    ----------
    series : TimeSeries
        The series.
    seq_len, pred_len : int, default 96
        Steps of a window and of the horizon.
    kinds : sequence of str
        Time features, see `time_features`.
    scheme : {"ratio", "ett", "ett_15min"}
        See `chronological_split`; the last two are for stamps of an hour and of 15 minutes.
    device, dtype
        Of the tensors.

    Returns
    -------
    ForecastTask

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the series is too short, or its stamps are not those of
        the scheme.
    """
    check_type("series", series, TimeSeries)
    split = chronological_split(len(series), seq_len, scheme)
    step = np.diff(series.stamps).min()
    if step != STEPS.get(scheme, step):
        wanted = STEPS[scheme]
        raise ValueError(
            f"series must have stamps {wanted} apart for scheme {scheme!r}, got {step}"
        )
    for name, rows in split._asdict().items():
        if rows.stop - rows.start < seq_len + check_integer("pred_len", pred_len):
            raise ValueError(
                f"series is too short: its {name} part has {rows.stop - rows.start} rows, and one "
                f"window and horizon are {seq_len + pred_len}"
            )
    scaled, mean, sd = standardise(series.values, split.train)
    place = {"device": device, "dtype": dtype}
    values = torch.as_tensor(scaled, **place)
    marks = torch.as_tensor(time_features(series.stamps, kinds), **place)
    parts = [WindowDataset(values[rows], marks[rows], seq_len, pred_len) for rows in split]
    mean, sd = torch.as_tensor(mean, **place), torch.as_tensor(sd, **place)
    return ForecastTask(*parts, mean, sd, series.channels, tuple(kinds), series.stamps[split.test])
