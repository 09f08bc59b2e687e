"""Training with the true best weights restored, and errors in two units."""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from workingpapers import contexts
from workingpapers.arguments import check_integer, check_positive, check_type
from workingpapers.cfpt.windows import Batch, WindowDataset

__all__ = ["History", "evaluate", "fit", "predict", "seeded"]


@dataclass(frozen=True)
class History:
    """What happened in training.

    Attributes
    ----------
    train_loss, val_mse : tuple of float
        Mean squared error of each epoch: while it trained, and on the validation windows after it.
    best_epoch : int
        Index of the epoch whose weights the model has now, the first with the least ``val_mse``.
    seconds : float
        Wall-clock time.
    """

    train_loss: tuple[float, ...]
    val_mse: tuple[float, ...]
    best_epoch: int
    seconds: float


def seeded(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Build a model from a seed; torch's global generator is as before afterwards.

    Parameters
    ----------
    build : callable
        Returns a model with weights that torch draws.
    seed : int
        At least 0.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ValueError
        If ``seed`` is not as described.
    """
    with contexts.seeded(seed):
        return build()


def fit(
    model: nn.Module,
    train: WindowDataset,
    val: WindowDataset,
    *,
    epochs: int = 10,
    lr: float = 1e-4,
    batch_size: int = 32,
    patience: int = 2,
    seed: int,
    fraction: float = 1.0,
    progress: bool = False,
) -> History:
    """Train with Adam on the mean squared error, as in Section 4 of the paper.

    The learning rate is halved after every epoch. In the end the model has the weights of its best
    epoch on the validation windows.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x, future_marks, history_marks)`` is a forecast. One without parameters is only
        evaluated.
    train, val : WindowDataset
        Windows to learn from, and to choose the epoch by.
    epochs : int, default 10
        At least 1.
    lr : float, default 1e-4
        Learning rate of the first epoch.
    batch_size : int, default 32
        Windows a step.
    patience : int, default 2
        Stop after so many epochs without a new best; an error equal to the best is none.
    seed : int
        Of the order of the windows and of dropout.
    fraction : float, default 1
        Share of the windows, drawn anew, that an epoch sees; in (0, 1].
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    History

    Raises
    ------
    FloatingPointError
        If an error in training or validation is infinite or NaN. After this or any other
        exception in training the model has the weights that it came with.
    TypeError, ValueError
        If an argument is not as described, or a forecast does not have the shape of its target.
    """
    for name, part in (("train", train), ("val", val)):
        check_type(name, part, WindowDataset)
    for name, count in (("epochs", epochs), ("batch_size", batch_size), ("patience", patience)):
        check_integer(name, count)
    if check_positive("fraction", fraction) > 1:
        raise ValueError(f"fraction must be in (0, 1], got {fraction!r}")
    started = time.perf_counter()
    device, lr = train.values.device, check_positive("lr", lr)
    with contexts.seeded(seed, device):
        before = deepcopy(model.state_dict())
        try:
            losses, scores = _train(
                model, train, val, lr, epochs, batch_size, patience, fraction, progress
            )
        except Exception:
            model.load_state_dict(before)
            raise
    seconds = time.perf_counter() - started
    return History(tuple(losses), tuple(scores), scores.index(min(scores)), seconds)


def _train(
    model: nn.Module,
    train: WindowDataset,
    val: WindowDataset,
    lr: float,
    epochs: int,
    batch_size: int,
    patience: int,
    fraction: float,
    progress: bool,
) -> tuple[list[float], list[float]]:
    """Train until patience runs out, and restore the best weights."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        return [_mse(model, train)], [_mse(model, val)]
    optimizer = torch.optim.Adam(parameters, lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    losses, scores, best = [], [], None
    for _ in tqdm(range(epochs), desc="epochs", disable=None if progress else True):
        losses.append(_epoch(model, train, optimizer, batch_size, fraction))
        scores.append(_mse(model, val))
        schedule.step()
        since_best = len(scores) - 1 - scores.index(min(scores))  # the first of equal ones
        if not since_best:
            best = deepcopy(model.state_dict())
        elif since_best >= patience:
            break
    model.load_state_dict(best)
    return losses, scores


def _mse(model: nn.Module, windows: WindowDataset) -> float:
    return _finite(evaluate(model, windows)["mse"])


def _finite(error: float) -> float:
    if not math.isfinite(error):
        raise FloatingPointError(f"the error is not finite any more, but {error}: lower lr")
    return error


def _epoch(
    model: nn.Module,
    train: WindowDataset,
    optimizer: torch.optim.Optimizer,
    batch_size: int,
    fraction: float,
) -> float:
    model.train()
    order = torch.randperm(len(train))[: max(1, round(fraction * len(train)))]
    total = torch.zeros((), device=train.values.device)
    for indices in order.to(train.values.device).split(batch_size):
        batch = train.batch(indices)
        loss = nn.functional.mse_loss(_forecast(model, batch), batch.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(indices)
    return _finite(float(total)) / len(order)


def _forecast(model: nn.Module, batch: Batch) -> Tensor:
    """Forecast a batch; raise unless the answer has the shape of the target."""
    forecast = model(batch.x, batch.future_marks, batch.history_marks)
    if not isinstance(forecast, Tensor) or forecast.shape != batch.y.shape:
        found = tuple(forecast.shape) if isinstance(forecast, Tensor) else type(forecast).__name__
        raise ValueError(f"model must forecast shape {tuple(batch.y.shape)}, got {found}")
    return forecast


@torch.no_grad()
def predict(
    model: nn.Module,
    windows: WindowDataset,
    indices: Tensor | None = None,
    batch_size: int = 256,
) -> Tensor:
    """Forecast windows, without dropout.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x, future_marks, history_marks)`` is a forecast.
    windows : WindowDataset
        The windows.
    indices : Tensor or array_like of int, optional
        Which of them; all by default.
    batch_size : int, default 256
        Windows at a time.

    Returns
    -------
    Tensor, shape (windows, pred_len, channels)

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a forecast does not have the shape of its target.
    """
    check_type("windows", windows, WindowDataset)
    indices = windows.checked(range(len(windows)) if indices is None else indices)
    return torch.cat([forecast for forecast, _ in _forecasts(model, windows, indices, batch_size)])


def _forecasts(
    model: nn.Module, windows: WindowDataset, indices: Tensor, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield forecasts and targets, batch by batch; the mode of each module is kept."""
    with contexts.evaluating(model):
        for some in indices.split(check_integer("batch_size", batch_size)):
            batch = windows.batch(some)
            yield _forecast(model, batch), batch.y


@torch.no_grad()
def evaluate(
    model: nn.Module,
    windows: WindowDataset,
    sd: Tensor | None = None,
    batch_size: int = 256,
) -> dict[str, float]:
    """Measure the errors over all windows, steps and channels.

    Parameters
    ----------
    model : torch.nn.Module
        ``model(x, future_marks, history_marks)`` is a forecast.
    windows : WindowDataset
        The windows, in standardised units.
    sd : Tensor, shape (channels,), optional
        Standard deviations that the channels were divided by, finite and above 0.
    batch_size : int, default 256
        Windows at a time.

    Returns
    -------
    dict
        ``mse`` and ``mae`` in the units of the windows; with ``sd`` also ``mse_units`` and
        ``mae_units`` in the original ones.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a forecast does not have the shape of its target.
    """
    check_type("windows", windows, WindowDataset)
    channels = windows.values.shape[1]
    if sd is not None and (not isinstance(sd, Tensor) or sd.shape != (channels,)):
        raise ValueError(f"sd must be a Tensor with one number a channel, {channels}, got {sd!r}")
    if sd is not None and not (torch.isfinite(sd) & (sd > 0)).all():
        raise ValueError(f"sd must be finite and above 0, got {sd!r}")
    squares = absolutes = torch.zeros(channels, dtype=torch.float64, device=windows.values.device)
    indices = torch.arange(len(windows))
    for forecast, y in _forecasts(model, windows, indices, batch_size):
        error = forecast - y
        squares = squares + error.square().sum((0, 1))
        absolutes = absolutes + error.abs().sum((0, 1))
    count = len(windows) * windows.pred_len
    squares, absolutes = squares / count, absolutes / count
    scores = {"mse": squares, "mae": absolutes}
    if sd is not None:
        scores |= {"mse_units": squares * sd**2, "mae_units": absolutes * sd}
    return {name: float(score.mean()) for name, score in scores.items()}
