"""The paper's experiments: the variants, the baselines, and how each is trained and measured."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from workingpapers.arguments import check_choice, check_integer, check_positive, check_type
from workingpapers.cfpt.baselines import (
    FITS,
    DLinear,
    FreTS,
    ITransformer,
    PatchTST,
    RLinear,
    TimesNet,
)
from workingpapers.cfpt.climatology import PhaseClimatology, SeasonalNaive
from workingpapers.cfpt.frequency import CrossFrequencyInteraction
from workingpapers.cfpt.model import CFPT
from workingpapers.cfpt.normalisation import standardise_window
from workingpapers.cfpt.periodic import PhaseTable
from workingpapers.cfpt.series import make_cross_band
from workingpapers.cfpt.training import History, evaluate, fit, predict, seeded
from workingpapers.cfpt.windows import ForecastTask, Scheme, WindowDataset

__all__ = [
    "BASELINES",
    "CROSS_BAND_MODELS",
    "FULL",
    "PAPER_HORIZONS",
    "PAPER_SETS",
    "SHORT",
    "SMALL",
    "VARIANTS",
    "Forecasts",
    "PaperSetting",
    "Training",
    "branch_forecasts",
    "build",
    "cross_band",
    "forecasts",
    "paper_setting",
    "performance_ratios",
    "score",
    "train",
]


@dataclass(frozen=True)
class Training:
    """How a model is trained; see `fit`. Without ``lr`` each model has its own, see `train`."""

    epochs: int
    lr: float | None = None
    batch_size: int = 32
    fraction: float = 1.0
    patience: int = 2


SHORT = Training(epochs=6, fraction=0.25)  # a quarter of the windows an epoch
FULL = Training(epochs=8, lr=1e-2)

# CFPT that a laptop trains in seconds.
SMALL = {"gamma": 0.3, "d_model": 128, "n_layers": 1, "kernel_size": 3, "rda": 1}

# CFPT, the paper's ablations, and controls that the paper lacks; each is a change of SMALL.
VARIANTS: dict[str, dict[str, Any]] = {
    "CFPT": {},
    "w/o PTM": {"branch": "cfi"},
    "w/o CFI": {"branch": "ptm"},
    "w/o CFI-C": {"block": None},
    "w/o CFI-D": {"band_split": False},
    "CFPT-HT": {"source": "history"},
    "CFPT-1DT": {"conv": "1d"},
    "no interaction": {"block": "self"},
    "no convolution": {"conv": "none"},
    "official fold": {"fold": "official"},
    "variates layout": {"layout": "variates_as_channels"},
    "gamma 0.1": {"gamma": 0.1},
    "gamma 0.5": {"gamma": 0.5},
    "gamma 0.7": {"gamma": 0.7},
    "gamma 0.9": {"gamma": 0.9},
}

CFPT_LR = 5e-3  # of CFPT and its variants in short training

# Each baseline, with its learning rate in short training: the best of 5e-4, 1e-3, 2e-3, 5e-3 and
# 1e-2 on Auckland's validation windows. The first two are not trained.
BASELINES: dict[str, tuple[Callable[..., nn.Module], float]] = {
    "seasonal naive": (SeasonalNaive, 1.0),
    "climatology": (PhaseClimatology, 1.0),
    "DLinear": (DLinear, 1e-2),
    "RLinear": (RLinear, 1e-2),
    "FITS": (FITS, 1e-2),
    "FreTS": (FreTS, 5e-3),
    "iTransformer": (ITransformer, 5e-3),
    "PatchTST": (PatchTST, 1e-2),
    "TimesNet": (TimesNet, 5e-3),
}


def build(
    name: str,
    task: ForecastTask,
    seed: int,
    settings: Mapping[str, Any] = SMALL,
) -> nn.Module:
    """Build a model by name, with weights of a seed, where the task's windows are.

    Parameters
    ----------
    name : str
        A key of ``VARIANTS`` or ``BASELINES``.
    task : ForecastTask
        Gives the sizes.
    seed : int
        Of the weights.
    settings : mapping, default SMALL
        Arguments of `CFPT` that the variant changes; baselines have their defaults, and
        iTransformer and TimesNet read the task's time features.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_choice("name", name, (*VARIANTS, *BASELINES))
    check_type("task", task, ForecastTask)

    def make() -> nn.Module:
        if name in BASELINES:
            kind, _ = BASELINES[name]
            reads = {"n_time_features": len(task.kinds)} if kind in (ITransformer, TimesNet) else {}
            return kind(*task.sizes, **reads)
        return CFPT(*task.sizes, len(task.kinds), **dict(settings) | VARIANTS[name])

    return seeded(make, seed).to(task.train.values)


def train(
    name: str,
    task: ForecastTask,
    seed: int,
    training: Training = SHORT,
    settings: Mapping[str, Any] = SMALL,
    *,
    progress: bool = False,
) -> tuple[nn.Module, History]:
    """Build a model by name and train it.

    Parameters
    ----------
    name, task, seed, settings
        As of `build`.
    training : Training, default SHORT
        Where its ``lr`` is None, as in ``SHORT``, each baseline has the learning rate in
        ``BASELINES``, and CFPT and its variants 5e-3.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    model : torch.nn.Module
        With the weights of its best epoch.
    history : History

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    model = build(name, task, seed, settings)
    lr = training.lr
    if lr is None:
        lr = BASELINES[name][1] if name in BASELINES else CFPT_LR
    if isinstance(model, PhaseClimatology):
        model.fit(task.train)
    history = fit(
        model,
        task.train,
        task.val,
        epochs=training.epochs,
        lr=lr,
        batch_size=training.batch_size,
        patience=training.patience,
        seed=seed,
        fraction=training.fraction,
        progress=progress,
    )
    return model, history


def score(
    name: str,
    task: ForecastTask,
    seed: int,
    training: Training = SHORT,
    settings: Mapping[str, Any] = SMALL,
) -> dict[str, float]:
    """Train a model by name and measure its errors on the test windows.

    Parameters
    ----------
    name, task, seed, training, settings
        As of `train`.

    Returns
    -------
    dict
        ``mse`` and ``mae`` on standardised values, ``mse_units`` and ``mae_units`` in the original
        units, ``val_mse`` of the best epoch, ``seconds`` of training, ``parameters``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    model, history = train(name, task, seed, training, settings)
    return evaluate(model, task.test, task.sd) | {
        "val_mse": min(history.val_mse),
        "seconds": history.seconds,
        "parameters": float(sum(p.numel() for p in model.parameters())),
    }


# Forecasts to look at


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Chosen test windows, what followed, and what was forecast, in the original units.

    Attributes
    ----------
    stamps : ndarray of datetime64, shape (windows, seq_len + pred_len)
    history : ndarray, shape (windows, seq_len, channels)
    truth : ndarray, shape (windows, pred_len, channels)
    predictions : dict of str to ndarray, shape (windows, pred_len, channels)
    """

    stamps: NDArray[np.datetime64]
    history: NDArray[np.float32]
    truth: NDArray[np.float32]
    predictions: dict[str, NDArray[np.float32]]


def forecasts(
    models: Mapping[str, nn.Module], task: ForecastTask, indices: Sequence[int] | ArrayLike
) -> Forecasts:
    """Forecast chosen test windows by several models.

    Parameters
    ----------
    models : mapping of str to torch.nn.Module
        Trained models by name.
    task : ForecastTask
        The task that they were trained on.
    indices : sequence of int
        Test windows.

    Returns
    -------
    Forecasts

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    return _shown(
        task, indices, {name: predict(m, task.test, indices) for name, m in models.items()}
    )


@torch.no_grad()
def branch_forecasts(
    model: CFPT, task: ForecastTask, indices: Sequence[int] | ArrayLike
) -> Forecasts:
    """Forecast chosen test windows by each branch of a trained CFPT alone.

    Any weight can be tried on them: the fusion is ``gamma * CFI + (1 - gamma) * PTM``.

    Parameters
    ----------
    model : CFPT
        With both branches.
    task : ForecastTask
        The task that it was trained on.
    indices : sequence of int
        Test windows.

    Returns
    -------
    Forecasts
        Predictions named ``CFI`` and ``PTM``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("model", model, CFPT)
    check_choice("branch of model", model.branch, ("both",))
    batch = task.test.batch(indices)
    cfi, ptm = model.branches(batch.x, batch.future_marks, batch.history_marks)
    _, mu, sd = standardise_window(batch.x)
    return _shown(task, indices, {"CFI": cfi * sd + mu, "PTM": ptm * sd + mu})


def _shown(
    task: ForecastTask, indices: Sequence[int] | ArrayLike, predictions: Mapping[str, Tensor]
) -> Forecasts:
    """Bring windows and predictions to the original units."""
    x, y, *_ = task.test.batch(indices)
    rows = task.test.checked(indices).cpu().numpy()[:, None] + np.arange(x.shape[1] + y.shape[1])
    units = {name: (part * task.sd + task.mean).cpu().numpy() for name, part in predictions.items()}
    history, truth = ((part * task.sd + task.mean).cpu().numpy() for part in (x, y))
    return Forecasts(task.test_stamps[rows], history, truth, units)


# Who can multiply? The task that only an interaction of the bands solves

CROSS_BAND_MODELS: dict[str, dict[str, Any]] = {
    "coupling": {"block": "coupling"},
    "no interaction": {"block": "self"},
    "E = 0": {"block": None},
    "coupling, no split": {"block": "coupling", "band_split": False},
}
CARRIER = 31  # the bin of the fast wave
PHASES = 9  # phi = 0, pi/8, ..., pi


def cross_band(
    model: str,
    seed: int,
    kappa: float = 1.0,
    *,
    epochs: int = 30,
    lr: float = 3e-3,
    d_model: int = 64,
    n_train: int = 4000,
    n_test: int = 4000,
    batch_size: int = 100,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Train the frequency branch on `make_cross_band` and measure what it has learnt.

    Parameters
    ----------
    model : str
        A key of ``CROSS_BAND_MODELS``; one layer each.
    seed : int
        Of weights, data and batches.
    kappa : float, default 1
        Strength of the interaction, in [0, 1].
    epochs, lr, d_model, n_train, n_test, batch_size
        Of the training; the learning rate falls to zero along a cosine.
    device : torch.device or str, default "cpu"
        Where to train.

    Returns
    -------
    dict
        ``mse`` on new windows; ``floor``, the least that an additive model can reach; and
        ``amplitude_0`` to ``amplitude_8``: of the fast wave as predicted, averaged over its phase,
        where the slow wave has phase ``i * pi / 8``. It should be ``1 - kappa + kappa cos(phase)``.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    check_choice("model", model, tuple(CROSS_BAND_MODELS))
    for name, count in (("epochs", epochs), ("n_train", n_train), ("batch_size", batch_size)):
        check_integer(name, count)
    check_positive("lr", lr)
    draw = {"kappa": kappa}
    x, y = (part.to(device) for part in make_cross_band(n_train, 2 * seed, **draw))
    new_x, new_y = (part.to(device) for part in make_cross_band(n_test, 2 * seed + 1, **draw))
    length = x.shape[1]
    net = seeded(
        lambda: CrossFrequencyInteraction(length, length, d_model, 1, **CROSS_BAND_MODELS[model]),
        seed,
    ).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for some in torch.randperm(n_train, generator=generator).to(device).split(batch_size):
            optimizer.zero_grad()
            nn.functional.mse_loss(net(x[some]), y[some]).backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        mse = float(nn.functional.mse_loss(net(new_x), new_y))
        amplitudes = _amplitudes(net, length, device)
    return {"mse": mse, "floor": kappa**2 / 4} | amplitudes


def _amplitudes(net: nn.Module, length: int, device: torch.device | str) -> dict[str, float]:
    """Amplitude of the predicted fast wave for each phase of the slow one."""
    angle = 2 * math.pi * torch.arange(length, device=device) / length
    phi = torch.linspace(0, math.pi, PHASES, device=device)[:, None, None]
    psi = 2 * math.pi * torch.arange(32, device=device)[:, None] / 32
    fast = torch.cos(CARRIER * angle + psi)
    x = torch.cos(2 * angle + phi) + fast
    forecast = net(x.reshape(-1, length, 1)).reshape(PHASES, -1, length)
    amplitude = (forecast * fast).mean(-1).mean(-1) * 2
    return {f"amplitude_{index}": float(value) for index, value in enumerate(amplitude)}


# The settings of the paper

PAPER_HORIZONS = (96, 192, 336, 720)


@dataclass(frozen=True)
class PaperSetting:
    """What the official scripts use for one data set and horizon, with windows of 96 steps."""

    kinds: tuple[str, ...]
    scheme: Scheme
    training: Training
    settings: dict[str, Any]


@dataclass(frozen=True)
class _Row:
    """A data set's settings; tuples have a value a horizon."""

    kinds: tuple[str, ...]
    gamma: float | tuple[float, ...]
    d_model: int | tuple[int, ...]
    n_layers: int | tuple[int, ...]
    kernel_size: int | tuple[int, ...]
    rda: int
    lr: float
    batch_size: int | tuple[int, ...]
    extra: tuple[str, ...] = ()  # more time features ...
    extra_from: int = 10**9  # ... from this horizon
    scheme: Scheme = "ratio"


_PAPER = {
    "ETTh1": _Row(
        ("hour",),
        (0.5, 0.5, 0.7, 0.3),
        512,
        3,
        (3, 3, 5, 2),
        1,
        1e-4,
        (8, 16, 16, 16),
        scheme="ett",
    ),
    "ETTh2": _Row(
        ("hour",),
        (0.6, 0.4, 0.9, 0.4),
        (256, 1024, 512, 1024),
        (1, 1, 6, 1),
        (2, 2, 3, 2),
        1,
        1e-4,
        (4, 16, 128, 32),
        ("month", "season"),
        720,
        scheme="ett",
    ),
    "ETTm1": _Row(
        ("minute", "hour"),
        (0.6, 0.9, 0.9, 0.9),
        (1024, 512, 256, 512),
        (3, 1, 1, 1),
        2,
        1,
        1e-4,
        (16, 8, 8, 8),
        scheme="ett_15min",
    ),
    "ETTm2": _Row(("hour",), 0.3, 512, 1, 2, 1, 1e-4, 4, scheme="ett_15min"),
    "Weather": _Row(
        ("hour", "season"),
        (0.6, 0.6, 0.9, 0.9),
        (512, 256, 256, 128),
        3,
        (5, 2, 5, 5),
        4,
        5e-3,
        128,
    ),
    "ECL": _Row(("hour", "dayofweek"), 0.1, 256, 3, 2, 8, 1e-2, 16, ("season",), 336),
    "Traffic": _Row(("hour", "dayofweek"), 0.3, 512, (6, 1, 1, 3), 5, 4, 1e-2, (4, 4, 4, 16)),
}
PAPER_SETS = tuple(_PAPER)


def paper_setting(name: str, horizon: int) -> PaperSetting:
    """Look up what the official scripts use.

    Parameters
    ----------
    name : str
        One of ``PAPER_SETS``.
    horizon : int
        One of ``PAPER_HORIZONS``.

    Returns
    -------
    PaperSetting
        For windows of 96 steps; up to 10 epochs, patience 2.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    row = _PAPER[check_choice("name", name, PAPER_SETS)]
    if horizon not in PAPER_HORIZONS:
        raise ValueError(f"horizon must be one of {PAPER_HORIZONS}, got {horizon!r}")
    index = PAPER_HORIZONS.index(horizon)

    def at(field: str) -> Any:
        value = getattr(row, field)
        return value[index] if isinstance(value, tuple) else value

    fields = ("gamma", "d_model", "n_layers", "kernel_size", "rda")
    training = Training(epochs=10, lr=row.lr, batch_size=at("batch_size"))
    kinds = row.kinds + (row.extra if horizon >= row.extra_from else ())
    return PaperSetting(kinds, row.scheme, training, {field: at(field) for field in fields})


# What it costs


class _Items(Dataset):
    """Windows one by one, as forecasting code usually gives them to a ``DataLoader``."""

    def __init__(self, windows: WindowDataset) -> None:
        self.windows = windows

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        middle = index + self.windows.seq_len
        end = middle + self.windows.pred_len
        values, marks = self.windows.values, self.windows.marks
        return values[index:middle], values[middle:end], marks[middle:end], marks[index:middle]


def performance_ratios(task: ForecastTask, seed: int, repeats: int = 3) -> dict[str, float]:
    """Time three fast ways beside the plain ones; the fastest run of each counts.

    Parameters
    ----------
    task : ForecastTask
        Its training windows are gathered, and its test horizons forecast by the clock.
    seed : int
        Of the weights and numbers.
    repeats : int, default 3
        Runs, at least 1; the two members of a pair take turns.

    Returns
    -------
    dict
        Ratios of seconds, each above 1 where the fast way is faster. ``gather``: a ``DataLoader``
        over single windows, over `WindowDataset.batch`; ``phase_table``: the timestamp branch on
        every test window, over `PhaseTable`; ``fft``: the matrix of the Fourier transform, over
        ``rfft``, for 720 steps. ``phase_error``: largest difference of the second pair's answers.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_integer("repeats", repeats)
    ptm = build("w/o CFI", task, seed).ptm.eval()
    marks = [task.test.batch(some).future_marks for some in task.test.batches()]
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2048, 720, generator=generator)
    angle = 2 * math.pi * torch.outer(torch.arange(720), torch.arange(361)) / 720
    matrix = torch.cat([angle.cos(), -angle.sin()], dim=1)
    with torch.no_grad():
        table = PhaseTable(ptm)
        apart = max(float((table(some) - ptm(some)).abs().max()) for some in marks)
        return {
            "gather": _ratio(
                lambda: list(DataLoader(_Items(task.train), batch_size=32)),
                lambda: [task.train.batch(some) for some in task.train.batches(32)],
                repeats,
            ),
            "phase_table": _ratio(
                lambda: [ptm(some) for some in marks], lambda: _look_up(ptm, marks), repeats
            ),
            "fft": _ratio(lambda: x @ matrix, lambda: torch.fft.rfft(x), repeats),
            "phase_error": apart,
        }


def _look_up(ptm: nn.Module, marks: Sequence[Tensor]) -> None:
    """Fill a new table and answer from it."""
    table = PhaseTable(ptm)
    for some in marks:
        table(some)


def _ratio(slow: Callable, fast: Callable, repeats: int) -> float:
    seconds = np.min([[_seconds(one) for one in (slow, fast)] for _ in range(repeats)], axis=0)
    return float(seconds[0] / seconds[1])


def _seconds(run: Callable) -> float:
    """Time a run, and on a GPU also the work that it has only queued."""
    _finish()
    started = time.perf_counter()
    run()
    _finish()
    return time.perf_counter() - started


def _finish() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
