"""Forecasts that need no training: the last season again, and the mean of a phase."""

from typing import Any

import torch
from torch import Tensor, nn

from workingpapers.arguments import check_integer, check_type
from workingpapers.cfpt.normalisation import check_marks, check_windows, standardise_window
from workingpapers.cfpt.windows import WindowDataset

__all__ = ["PhaseClimatology", "SeasonalNaive"]


class SeasonalNaive(nn.Module):
    """Repeat the last season of the window.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        Steps of the window and of the horizon, and channels.
    season : int, default 24
        Steps of a season, at most ``seq_len``.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(self, seq_len: int, pred_len: int, n_channels: int, season: int = 24) -> None:
        super().__init__()
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        self.n_channels = check_integer("n_channels", n_channels)
        self.season = check_integer("season", season, high=seq_len)

    def forward(
        self, x: Tensor, future_marks: Tensor | None = None, history_marks: Tensor | None = None
    ) -> Tensor:
        """Forecast (batch, pred_len, n_channels) from windows (batch, seq_len, n_channels)."""
        check_windows("x", x, self.seq_len, self.n_channels)
        steps = torch.arange(self.pred_len, device=x.device) % self.season
        return x[:, steps + self.seq_len - self.season]


class PhaseClimatology(nn.Module):
    """The best that a forecast from the clock alone can be on its training windows.

    The phase of a window is the time features of the first step of its horizon. For each phase
    the forecast, in the window's normalised space, is the table
    ``E[sd**2 * z_y | phase] / E[sd**2 | phase]`` with ``z_y = (y - mu) / sd``: the weighted mean
    that makes the squared error in the units of ``y`` least. On a regular grid no timestamp branch
    of CFPT that reads these features has a lower training error.

    Parameters
    ----------
    seq_len, pred_len, n_channels : int
        Steps of the window and of the horizon, and channels.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(self, seq_len: int, pred_len: int, n_channels: int) -> None:
        super().__init__()
        self.seq_len = check_integer("seq_len", seq_len)
        self.pred_len = check_integer("pred_len", pred_len)
        self.n_channels = check_integer("n_channels", n_channels)
        self.register_buffer("phases", torch.empty(0, 0))
        self.register_buffer("table", torch.empty(0, pred_len, n_channels))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Make room for as many phases as were saved; torch refuses tables of other sizes."""
        for name, ndim in (("phases", 2), ("table", 3)):
            own, saved = getattr(self, name), state_dict.get(prefix + name)
            if isinstance(saved, Tensor) and saved.ndim == ndim:
                shape = saved.shape if name == "phases" else (len(saved), *own.shape[1:])
                setattr(self, name, own.new_empty(shape, dtype=saved.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @torch.no_grad()
    def fit(self, windows: WindowDataset, batch_size: int = 1024) -> "PhaseClimatology":
        """Compute the table in one pass.

        Parameters
        ----------
        windows : WindowDataset
            Training windows of these sizes.
        batch_size : int, default 1024
            Windows at a time.

        Returns
        -------
        PhaseClimatology
            The same object.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        check_type("windows", windows, WindowDataset)
        sizes = (windows.seq_len, windows.pred_len, windows.values.shape[1])
        if sizes != (self.seq_len, self.pred_len, self.n_channels):
            raise ValueError(
                f"windows must have sizes {(self.seq_len, self.pred_len, self.n_channels)}, "
                f"got {sizes}"
            )
        first = windows.marks[self.seq_len : self.seq_len + len(windows)]
        self.phases, phase = torch.unique(first, dim=0, return_inverse=True)
        top = windows.values.new_zeros(
            len(self.phases), self.pred_len, self.n_channels, dtype=torch.float64
        )
        weight = top.new_zeros(len(self.phases), 1, self.n_channels)
        for indices in windows.batches(batch_size):
            batch = windows.batch(indices)
            _, mu, sd = standardise_window(batch.x.double())
            top.index_add_(0, phase[indices], sd * (batch.y - mu))
            weight.index_add_(0, phase[indices], sd**2)
        self.table = (top / weight).to(windows.values.dtype)
        return self

    def forward(
        self, x: Tensor, future_marks: Tensor, history_marks: Tensor | None = None
    ) -> Tensor:
        """Forecast windows.

        Parameters
        ----------
        x : Tensor, shape (batch, seq_len, n_channels)
            Windows.
        future_marks : Tensor, shape (batch, pred_len, features)
            Time features of the horizon; only those of its first step are read.
        history_marks : Tensor, optional
            Not read.

        Returns
        -------
        Tensor, shape (batch, pred_len, n_channels)

        Raises
        ------
        RuntimeError
            If it was not fitted.
        TypeError, ValueError
            If an argument is not as described, or a phase did not occur in training.
        """
        if not len(self.phases):
            raise RuntimeError("PhaseClimatology must be fitted first: call fit(windows)")
        check_windows("x", x, self.seq_len, self.n_channels)
        features = self.phases.shape[1]
        check_marks("future_marks", future_marks, len(x), self.pred_len, features)
        _, mu, sd = standardise_window(x)
        return self.table[self._phase(future_marks[:, 0])] * sd + mu

    def _phase(self, first: Tensor) -> Tensor:
        same = (first[:, None] == self.phases).all(-1)
        if not same.any(1).all():
            new = first[~same.any(1)][0].tolist()
            raise ValueError(f"future_marks must begin with a phase seen in training, got {new}")
        return same.int().argmax(1)
