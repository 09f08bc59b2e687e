"""The timestamp branch: the forecast's shape from the clock alone."""

from typing import Literal

import torch
from torch import Tensor, nn

from workingpapers.arguments import check_choice, check_integer, check_type
from workingpapers.cfpt.normalisation import check_marks

__all__ = ["PeriodicTimestampModel", "PhaseTable", "fold_periods", "unfold_periods"]

Layout = Literal["periods_as_channels", "variates_as_channels"]
Fold = Literal["inverse", "official"]
Conv = Literal["2d", "1d", "none"]
Source = Literal["future", "history"]

# From (batch, periods, position, features) to what the convolution sees, and back.
AXES = {"periods_as_channels": (0, 1, 3, 2), "variates_as_channels": (0, 3, 2, 1)}


def fold_periods(h: Tensor, period: int, layout: Layout = "periods_as_channels") -> Tensor:
    """Fold time into periods and positions in the period, Section 3.3 of the paper.

    Parameters
    ----------
    h : Tensor, shape (batch, length, features)
        ``length`` is a multiple of the period.
    period : int
        Steps of a period, at least 1.
    layout : {"periods_as_channels", "variates_as_channels"}
        What the convolution mixes densely: the first is what the official code does, the second
        what the paper's text says.

    Returns
    -------
    Tensor
        Shape (batch, periods, features, period) or (batch, features, period, periods).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("h", h, Tensor)
    check_integer("period", period)
    check_choice("layout", layout, tuple(AXES))
    if h.ndim != 3:
        raise ValueError(f"h must have shape (batch, length, features), got {tuple(h.shape)}")
    _check_multiple("length of h", h.shape[1], period)
    return h.unflatten(1, (-1, period)).permute(AXES[layout])


def unfold_periods(
    folded: Tensor, layout: Layout = "periods_as_channels", fold: Fold = "inverse"
) -> Tensor:
    """Unfold periods into time.

    Parameters
    ----------
    folded : Tensor
        As `fold_periods` gives it.
    layout : {"periods_as_channels", "variates_as_channels"}
        As of `fold_periods`.
    fold : {"inverse", "official"}
        The first is the inverse of `fold_periods`. The second reads the numbers off in the order
        in which they lie, as the official code does, which scrambles time and features.

    Returns
    -------
    Tensor, shape (batch, length, features)

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("folded", folded, Tensor)
    check_choice("layout", layout, tuple(AXES))
    check_choice("fold", fold, ("inverse", "official"))
    if folded.ndim != 4:
        raise ValueError(f"folded must have 4 axes, got shape {tuple(folded.shape)}")
    features = folded.shape[AXES[layout].index(3)]
    if fold == "inverse":
        folded = folded.permute(AXES[layout])  # both permutations are their own inverses
    return folded.reshape(len(folded), -1, features)


def _check_multiple(name: str, length: int, period: int) -> None:
    if length % period:
        raise ValueError(f"{name} must be a multiple of the period {period}, got {length}")


class PeriodicTimestampModel(nn.Module):
    """Forecast from time stamps alone, Section 3.3 of the paper.

    Two small layers describe every time stamp, a convolution mixes what is near in the period
    and across periods, and two linear maps lead to channels and along time.

    A departure: of one unit, layer normalisation leaves a constant, and of two a sign, so that the
    branch would be blind to the clock; and a rectifier may silence such a layer for good. Layers
    of fewer than 3 units are therefore linear. Wider ones are as in the paper.

    Parameters
    ----------
    n_features : int
        Time features of a step, at least 1.
    n_channels : int
        Channels to forecast.
    pred_len : int
        Steps of the horizon, a multiple of the period where ``conv`` is "2d".
    period : int, default 24
        Steps of a period.
    kernel_size : int, default 5
        Side of the convolution's kernel, at least 1.
    rda, rdb : int, default 1
        The two layers have ``n_channels // rda`` and ``n_channels // rdb`` units, at least 1.
    layout : {"periods_as_channels", "variates_as_channels"}
        See `fold_periods`.
    fold : {"inverse", "official"}
        See `unfold_periods`.
    conv : {"2d", "1d", "none"}
        The convolution: over periods, along time without folding, or none.
    source : {"future", "history"}
        Whose time stamps are read: the horizon's or the window's.
    seq_len : int, optional
        Steps of the window; needed where ``source`` is "history", and then it is what must be a
        multiple of the period.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        n_features: int,
        n_channels: int,
        pred_len: int,
        period: int = 24,
        kernel_size: int = 5,
        rda: int = 1,
        rdb: int = 1,
        *,
        layout: Layout = "periods_as_channels",
        fold: Fold = "inverse",
        conv: Conv = "2d",
        source: Source = "future",
        seq_len: int | None = None,
    ) -> None:
        super().__init__()
        self.n_features = check_integer("n_features", n_features)
        self.source = check_choice("source", source, ("future", "history"))
        pred_len = check_integer("pred_len", pred_len)
        self.length = pred_len if source == "future" else check_integer("seq_len", seq_len)
        self.period = check_integer("period", period)
        self.layout = check_choice("layout", layout, tuple(AXES))
        self.fold = check_choice("fold", fold, ("inverse", "official"))
        self.conv = check_choice("conv", conv, ("2d", "1d", "none"))
        if conv == "2d":
            _check_multiple("pred_len" if source == "future" else "seq_len", self.length, period)
        first, second = (
            _reduced(n_channels, name, factor) for name, factor in (("rda", rda), ("rdb", rdb))
        )
        self.describe = nn.Sequential(_layer(n_features, first), _layer(first, second))
        kernel_size = check_integer("kernel_size", kernel_size)
        images = self.length // period if layout == "periods_as_channels" else second
        self.convolve = _convolution(conv, images, second, kernel_size)
        self.to_channels = nn.Linear(second, n_channels)
        self.along_time = nn.Linear(self.length, pred_len)

    def mix(self, h: Tensor) -> Tensor:
        """Convolve descriptions (batch, length, features), which keep their shape."""
        if self.conv == "2d":
            image = self.convolve(fold_periods(h, self.period, self.layout))
            return unfold_periods(image, self.layout, self.fold)
        return self.convolve(h.transpose(1, 2)).transpose(1, 2)

    def forward(self, marks: Tensor) -> Tensor:
        """Forecast from time features.

        Parameters
        ----------
        marks : Tensor, shape (batch, length, n_features)
            Of the horizon, or of the window where ``source`` is "history"; finite.

        Returns
        -------
        Tensor, shape (batch, pred_len, n_channels)
            The forecast, still normalised.

        Raises
        ------
        TypeError, ValueError
            If ``marks`` are not as described.
        """
        batch = len(marks) if isinstance(marks, Tensor) else 0
        check_marks(f"{self.source}_marks", marks, batch, self.length, self.n_features)
        h = self.to_channels(self.mix(self.describe(marks)))
        return self.along_time(h.transpose(1, 2)).transpose(1, 2)


def _reduced(n_channels: int, name: str, factor: int) -> int:
    units = check_integer("n_channels", n_channels) // check_integer(name, factor)
    if not units:
        raise ValueError(f"{name} must be at most n_channels, {n_channels}, got {factor}")
    return units


def _layer(inputs: int, units: int) -> nn.Sequential:
    if units < 3:  # too few to normalise, see PeriodicTimestampModel
        return nn.Sequential(nn.Linear(inputs, units))
    return nn.Sequential(nn.Linear(inputs, units), nn.LayerNorm(units), nn.ReLU())


def _convolution(conv: Conv, images: int, features: int, kernel_size: int) -> nn.Module:
    """Build a convolution that keeps its input's shape; the longer padding comes last."""
    if conv == "none":
        return nn.Identity()
    pad = ((kernel_size - 1) // 2, kernel_size // 2)
    if conv == "1d":
        return nn.Sequential(nn.ConstantPad1d(pad, 0.0), nn.Conv1d(features, features, kernel_size))
    return nn.Sequential(nn.ZeroPad2d(pad * 2), nn.Conv2d(images, images, kernel_size))


class PhaseTable:
    """Answers of a trained timestamp branch, kept by their time stamps.

    With the hour, or the hour and the day of the week, there are only 24 or 168 different horizons
    on a regular grid. Each is computed once. Make a new table when the weights have changed.

    Parameters
    ----------
    ptm : PeriodicTimestampModel
        The branch; it is not copied.

    Raises
    ------
    TypeError
        If ``ptm`` is none.
    """

    def __init__(self, ptm: PeriodicTimestampModel) -> None:
        check_type("ptm", ptm, PeriodicTimestampModel)
        self.ptm = ptm
        self._row: dict[tuple, int] = {}
        self._answers = torch.empty(0)

    def __len__(self) -> int:
        """Return how many different horizons have been asked for."""
        return len(self._row)

    @torch.no_grad()
    def __call__(self, marks: Tensor) -> Tensor:
        """Return what ``ptm(marks)`` does, without a gradient.

        Parameters
        ----------
        marks : Tensor, shape (batch, length, n_features)
            As of `PeriodicTimestampModel.forward`.

        Returns
        -------
        Tensor, shape (batch, pred_len, n_channels)

        Raises
        ------
        TypeError, ValueError
            If ``marks`` are not as described.
        """
        check_type("marks", marks, Tensor)
        blocks = marks.detach().cpu().numpy()
        if not len(blocks):
            raise ValueError(f"marks must hold at least one horizon, got {tuple(marks.shape)}")
        keys = [(block.shape, block.dtype.str, block.tobytes()) for block in blocks]
        new = {key: index for index, key in enumerate(keys) if key not in self._row}
        if new:
            answers = self.ptm(marks[list(new.values())])
            self._row |= {key: len(self) + i for i, key in enumerate(new)}
            known = self._answers.to(answers) if len(self._answers) else answers[:0]
            self._answers = torch.cat([known, answers])
        return self._answers[[self._row[key] for key in keys]]
