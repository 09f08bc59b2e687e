"""CFPT: the two branches, and the constant that weighs them."""

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from workingpapers.arguments import as_reals, check_choice, check_integer, check_nonnegative
from workingpapers.cfpt.frequency import Block, CrossFrequencyInteraction
from workingpapers.cfpt.normalisation import check_marks, check_windows, standardise_window
from workingpapers.cfpt.periodic import Conv, Fold, Layout, PeriodicTimestampModel, Source

__all__ = ["CFPT", "optimal_gamma"]

Branch = Literal["both", "cfi", "ptm"]


class CFPT(nn.Module):
    """Forecast as a constant mixture of what the window and what the clock say, Section 3.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        Steps of the window and of the horizon, and channels.
    n_time_features : int
        Time features of a step.
    gamma : float, default 0.4
        Weight of the frequency branch, in [0, 1]; the timestamp branch has the rest.
    branch : {"both", "cfi", "ptm"}
        Which branches there are. One alone has weight 1, and ``gamma`` is not used.
    d_model, n_layers, cutoff_ratio, block, band_split
        See `CrossFrequencyInteraction`.
    period, kernel_size, rda, rdb, layout, fold, conv, source
        See `PeriodicTimestampModel`.

    Attributes
    ----------
    cfi : CrossFrequencyInteraction or None
    ptm : PeriodicTimestampModel or None

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(
        self,
        seq_len: int,
        pred_len: int,
        n_channels: int,
        n_time_features: int,
        *,
        gamma: float = 0.4,
        branch: Branch = "both",
        d_model: int = 256,
        n_layers: int = 3,
        cutoff_ratio: float = 0.5,
        block: Block = "coupling",
        band_split: bool = True,
        period: int = 24,
        kernel_size: int = 5,
        rda: int = 1,
        rdb: int = 1,
        layout: Layout = "periods_as_channels",
        fold: Fold = "inverse",
        conv: Conv = "2d",
        source: Source = "future",
    ) -> None:
        super().__init__()
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        self.n_channels = check_integer("n_channels", n_channels)
        self.n_time_features = check_integer("n_time_features", n_time_features)
        self.gamma = _check_gamma(gamma)
        self.branch = check_choice("branch", branch, ("both", "cfi", "ptm"))
        self.cfi = self.ptm = None
        if branch != "ptm":
            self.cfi = CrossFrequencyInteraction(
                seq_len, pred_len, d_model, n_layers, cutoff_ratio, block, band_split
            )
        if branch != "cfi":
            self.ptm = PeriodicTimestampModel(
                n_time_features,
                n_channels,
                pred_len,
                period,
                kernel_size,
                rda,
                rdb,
                layout=layout,
                fold=fold,
                conv=conv,
                source=source,
                seq_len=seq_len,
            )

    def branches(
        self, x: Tensor, future_marks: Tensor, history_marks: Tensor | None = None
    ) -> tuple[Tensor | None, Tensor | None]:
        """Forecast by each branch alone, in normalised space.

        Parameters
        ----------
        x, future_marks, history_marks
            As of `forward`.

        Returns
        -------
        cfi, ptm : Tensor of shape (batch, pred_len, n_channels), or None
            To be multiplied by the window's ``sd`` and shifted by its ``mu``, see
            `standardise_window`; None for a branch that is not there.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        self._check(x, future_marks, history_marks)
        return self._normalised(standardise_window(x)[0], future_marks, history_marks)

    def forward(
        self, x: Tensor, future_marks: Tensor, history_marks: Tensor | None = None
    ) -> Tensor:
        """Forecast windows.

        Parameters
        ----------
        x : Tensor, shape (batch, seq_len, n_channels)
            Windows, finite.
        future_marks : Tensor, shape (batch, pred_len, n_time_features)
            Time features of the horizon.
        history_marks : Tensor, shape (batch, seq_len, n_time_features), optional
            Time features of the window; needed where ``source`` is "history", else not read.

        Returns
        -------
        Tensor, shape (batch, pred_len, n_channels)
            In the units of ``x``.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        self._check(x, future_marks, history_marks)
        z, mu, sd = standardise_window(x)
        cfi, ptm = self._normalised(z, future_marks, history_marks)
        if cfi is None or ptm is None:
            return (ptm if cfi is None else cfi) * sd + mu
        return (self.gamma * cfi + (1 - self.gamma) * ptm) * sd + mu

    def _normalised(
        self, z: Tensor, future_marks: Tensor, history_marks: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        cfi = None if self.cfi is None else self.cfi.normalised(z)
        if self.ptm is None:
            return cfi, None
        return cfi, self.ptm(future_marks if self.ptm.source == "future" else history_marks)

    def _check(self, x: Tensor, future_marks: Tensor, history_marks: Tensor | None) -> None:
        check_windows("x", x, self.seq_len, self.n_channels)
        features = self.n_time_features
        check_marks("future_marks", future_marks, len(x), self.pred_len, features)
        if history_marks is not None or (self.ptm is not None and self.ptm.source == "history"):
            check_marks("history_marks", history_marks, len(x), self.seq_len, features)


def _check_gamma(gamma: float) -> float:
    value = check_nonnegative("gamma", gamma)
    if value > 1:
        raise ValueError(f"gamma must be in [0, 1], got {gamma!r}")
    return value


def optimal_gamma(err_cfi: ArrayLike | Tensor, err_ptm: ArrayLike | Tensor) -> float:
    """Weight of the frequency branch that makes the mixture's squared error least.

    The error of the mixture is ``gamma * err_cfi + (1 - gamma) * err_ptm``, so its mean square is
    a parabola in ``gamma``, and its vertex is
    ``<err_ptm, err_ptm - err_cfi> / |err_ptm - err_cfi|**2``.

    Parameters
    ----------
    err_cfi, err_ptm : array_like or Tensor
        Errors of the branches, of one shape, finite, not equal everywhere.

    Returns
    -------
    float
        The vertex; outside of [0, 1] where one branch should be subtracted.

    Raises
    ------
    ValueError
        If an argument is not as described, or errors are so large that their squares overflow.
    """
    err_cfi, err_ptm = (_errors(n, e) for n, e in (("err_cfi", err_cfi), ("err_ptm", err_ptm)))
    if err_cfi.shape != err_ptm.shape:
        raise ValueError(f"err_ptm must have the shape {err_cfi.shape}, got {err_ptm.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        apart = err_ptm - err_cfi
        square, product = float((apart**2).sum()), float((err_ptm * apart).sum())
    if not square:
        raise ValueError("err_ptm must differ from err_cfi: every gamma gives the same error")
    if not math.isfinite(square) or not math.isfinite(product):
        raise ValueError("err_ptm and err_cfi must be smaller: their squares overflow")
    return product / square


def _errors(name: str, errors: ArrayLike | Tensor):
    return as_reals(name, errors.detach().cpu().numpy() if torch.is_tensor(errors) else errors)
