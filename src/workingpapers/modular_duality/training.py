"""Training: MLPs with every learning rate at once, and a language model on one's own text.

Many networks are trained at once: weights of shape (networks, d_out, d_in) and inputs of shape
(networks, batch, d_in) make every layer one batched product.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from workingpapers.arguments import check_choice, check_integer, check_nonnegative, check_type
from workingpapers.modular_duality.atoms import Embed
from workingpapers.modular_duality.compounds import MLP
from workingpapers.modular_duality.methods import METHODS, Method, Rule
from workingpapers.modular_duality.modules import Module, Weights
from workingpapers.modular_duality.optimizer import DualizedSGD
from workingpapers.modular_duality.tasks import Images, Teacher, check_range

__all__ = ["best_log2_lr", "sweep", "train_language_model"]

Loss = Callable[[Tensor, Tensor], Tensor]


# Learning rates over widths, and speed


def sweep(
    method: Method,
    width: int,
    seeds: Sequence[int],
    *,
    log2_lrs: Sequence[float] | None = None,
    depth: int = 3,
    steps: int = 150,
    batch: int = 64,
    task: Teacher | Images | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, NDArray]:
    """Train MLPs with every learning rate and seed at once, the rate falling linearly to zero.

    Parameters
    ----------
    method : str
        One of ``METHODS``: ``dual`` and ``dual, momentum`` (0.8, Nesterov) from weights of norm
        1, with logits times 4; ``adam``, ``sgd``, ``sign`` in the standard parametrisation;
        ``mup``: Adam in muP of base width 64; ``muon`` (0.95, Nesterov) for all but the first
        and last matrix, which get Adam at 1/64 of the learning rate.
    width, depth : int
        Of the MLP; by default 3 matrices.
    seeds : sequence of int
        Of initial weights and batches, at least 0. Learning rates and methods share a seed's
        batches.
    log2_lrs : sequence of float, optional
        Logarithms to base 2 of the learning rates; by default the method's range.
    steps, batch : int
        Number of steps and of examples a step; by default 150 and 64.
    task : Teacher or Images, optional
        Where the examples come from; the default teacher if it is not given.
    device : torch.device or str, default "cpu"
        Where to train.

    Returns
    -------
    dict
        ``log2_lr`` (rates,), ``final_loss`` (rates, seeds): mean cross-entropy of the last 20
        steps, infinite for a diverged run; ``losses`` (steps, rates, seeds).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_choice("method", method, get_args(Method))
    steps, batch = check_integer("steps", steps), check_integer("batch", batch)
    rule, task = METHODS[method], task or Teacher()
    log2_lr = np.array(rule.log2_lrs if log2_lrs is None else log2_lrs, dtype=float)
    if log2_lr.ndim != 1 or not log2_lr.size or not len(seeds) or not np.isfinite(log2_lr).all():
        raise ValueError(f"log2_lrs and seeds must hold finite numbers; got {log2_lrs}, {seeds}")
    net = MLP(task.classes, task.inputs, width, depth)
    generators = [seeded(seed) for seed in seeds]
    starts = zip(*(rule.initialize(net, generator) for generator in generators), strict=True)
    weights = [_repeated(torch.stack(start).to(device), len(log2_lr)) for start in starts]
    lrs = torch.from_numpy(2.0**log2_lr).to(device, torch.float32).repeat_interleave(len(seeds))
    batches = _batches(task, steps, batch, generators, len(log2_lr), device)
    losses = _train(net, rule, weights, lrs, batches, steps)
    losses = losses.cpu().double().numpy().reshape(steps, len(log2_lr), len(seeds))
    losses = np.where(np.isnan(losses), np.inf, losses)
    return {"log2_lr": log2_lr, "final_loss": losses[-20:].mean(0), "losses": losses}


def _train(
    net: Module,
    rule: Rule,
    weights: list[Tensor],
    lrs: Tensor,
    batches: Iterable[tuple[Tensor, Tensor]],
    steps: int,
) -> Tensor:
    """Train (networks, ...) weights and return the losses (steps, networks).

    From where its gradient is not finite, a network stands still and has infinite loss.
    """
    losses, state, running = [], {}, torch.ones_like(lrs, dtype=torch.bool)
    for step, (x, labels) in enumerate(batches):
        weights = [weight.detach().requires_grad_() for weight in weights]
        loss = cross_entropy(rule.logit_scale * net(x, weights), labels)
        gradients = torch.autograd.grad(loss.sum(), weights)
        losses.append(loss.detach().where(running, math.inf))
        running = running & all_finite(gradients)
        gradients = [g.where(running[:, None, None], 0) for g in gradients]
        directions = rule.direction(net, gradients, state)
        lr = (lrs * (1 - step / steps))[:, None, None]
        weights = [w - lr * d for w, d in zip(weights, directions, strict=True)]
    return torch.stack(losses)


def _batches(
    task: Teacher | Images,
    steps: int,
    size: int,
    generators: Sequence[torch.Generator],
    copies: int,
    device: torch.device | str,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield a batch a seed, copied for every learning rate: the rate varies slowest."""
    for _ in range(steps):
        pairs = zip(*(task.batch(size, generator) for generator in generators), strict=True)
        x, labels = (_repeated(torch.stack(part).to(device), copies) for part in pairs)
        yield x, labels


def _repeated(tensor: Tensor, copies: int) -> Tensor:
    return tensor.repeat(copies, *[1] * (tensor.ndim - 1))


def best_log2_lr(log2_lr: ArrayLike, loss: ArrayLike) -> float:
    """Refine the best learning rate of a grid by the parabola through it and its neighbours.

    Parameters
    ----------
    log2_lr : array_like, shape (rates,)
        Increasing, equally spaced, at least 3.
    loss : array_like, shape (rates,)
        Losses; infinite ones are allowed, but not all.

    Returns
    -------
    float
        The vertex of the parabola; the best rate itself where it is at the grid's end or beside
        an infinite loss.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    log2_lr, loss = np.asarray(log2_lr, dtype=float), np.asarray(loss, dtype=float)
    gaps = np.diff(log2_lr)
    if log2_lr.ndim != 1 or len(log2_lr) < 3 or not (gaps > 0).all() or np.ptp(gaps) > 1e-9:
        raise ValueError(f"log2_lr must be at least 3 equally spaced numbers; got {log2_lr}")
    if loss.shape != log2_lr.shape or np.isnan(loss).any() or np.isinf(loss).all():
        raise ValueError(f"loss must be {len(log2_lr)} numbers, not all infinite; got {loss}")
    best = int(loss.argmin())
    around = loss[max(best - 1, 0) : best + 2]
    if len(around) < 3 or np.isinf(around).any():
        return float(log2_lr[best])
    left, middle, right = around
    curvature = left - 2 * middle + right
    shift = 0.0 if curvature == 0 else (left - right) / (2 * curvature)
    return float(log2_lr[best] + shift * gaps[0])


# A language model on one's own text


def train_language_model(
    module: Module,
    tokens: Tensor,
    *,
    seed: int,
    optimizer: Literal["dual", "adam"] = "dual",
    lr: float,
    momentum: float = 0.8,
    steps: int = 150,
    batch: int = 16,
    context: int = 32,
    device: torch.device | str = "cpu",
) -> dict[str, NDArray]:
    """Train a module such as `GPT` to predict the next token of a text.

    Parameters
    ----------
    module : Module
        From tokens (batch, context) to logits (batch, context, vocabulary).
    tokens : Tensor of int64, shape (n,)
        The text, longer than ``context``, in the module's vocabulary.
    seed : int
        Of weights and batches, at least 0.
    optimizer : {"dual", "adam"}
        `DualizedSGD` or torch's Adam, from the same weights.
    lr : float
        Learning rate, at least 0; it falls linearly to zero.
    momentum : float, default 0.8
        Of `DualizedSGD`, in [0, 1).
    steps, batch, context : int
        Number of steps, of excerpts a step, and of tokens an excerpt; at least 1.
    device : torch.device or str, default "cpu"
        Where to train.

    Returns
    -------
    dict
        ``losses`` (steps,): mean cross-entropy of each batch before its step, infinite from where
        a run has diverged.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if optimizer not in ("dual", "adam"):
        raise ValueError(f"optimizer must be 'dual' or 'adam'; got {optimizer!r}")
    check_type("module", module, Module)
    check_type("tokens", tokens, Tensor)
    steps, batch = check_integer("steps", steps), check_integer("batch", batch)
    context, lr = check_integer("context", context), check_nonnegative("lr", lr)
    if tokens.dtype != torch.int64 or tokens.ndim != 1 or len(tokens) <= context:
        raise ValueError(
            f"tokens must be int64, more than {context} in a row; got {tokens.dtype}, "
            f"shape {tuple(tokens.shape)}"
        )
    for atom in module.atoms:
        if isinstance(atom, Embed):
            check_range(f"tokens of a vocabulary of {atom.tokens}", tokens, atom.tokens)
    generator = seeded(seed)
    weights = [w.requires_grad_() for w in module.initialize(generator, device)]
    if optimizer == "dual":
        descent = DualizedSGD(weights, module, lr=lr, momentum=momentum)
    else:
        descent = torch.optim.Adam(weights, lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(descent, 1.0, 0.0, total_iters=steps)
    losses = torch.full((steps,), math.inf)
    for step in range(steps):
        x, following = (part.to(device) for part in _excerpts(tokens, batch, context, generator))
        descent.zero_grad()
        loss = cross_entropy(module(x, weights), following).mean()
        loss.backward()
        if not all(w.grad.isfinite().all() for w in weights if w.grad is not None):
            break
        descent.step()
        schedule.step()
        losses[step] = loss.detach()
    return {"losses": losses.double().numpy()}


def _excerpts(
    tokens: Tensor, batch: int, context: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw excerpts (batch, context), and the tokens that follow each of theirs."""
    start = torch.randint(len(tokens) - context, (batch, 1), generator=generator)
    excerpt = tokens[start + torch.arange(context + 1)]
    return excerpt[:, :-1], excerpt[:, 1:]


# What the experiments share


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy (...) of logits (..., batch, classes) and labels (..., batch)."""
    loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return loss.reshape(labels.shape).mean(-1)


def gradients_of(
    net: Module, weights: Weights, x: Tensor, labels: Tensor, loss: Loss = cross_entropy
) -> list[Tensor]:
    """Differentiate the loss, summed over networks, in every weight."""
    weights = [weight.detach().requires_grad_() for weight in weights]
    return list(torch.autograd.grad(loss(net(x, weights), labels).sum(), weights))


def all_finite(gradients: Weights) -> Tensor:
    """Say of which networks (...) the matrices (..., m, n) are all finite."""
    return torch.stack([g.isfinite().all(-1).all(-1) for g in gradients]).all(0)


def draw_start(
    net: Module, task: Teacher | Images, seed: int, batch: int, device: torch.device | str
) -> tuple[list[Tensor], Tensor, Tensor]:
    """Draw weights of norm 1, and a batch: inputs and labels."""
    generator = seeded(seed)
    weights = net.initialize(generator, device)
    x, labels = task.batch(check_integer("batch", batch), generator)
    return weights, x.to(device), labels.to(device)


def seeded(seed: int) -> torch.Generator:
    """Return a generator with this seed, an integer of at least 0."""
    return torch.Generator().manual_seed(check_integer("seed", seed, low=0))
