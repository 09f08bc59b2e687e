"""One step: how far it moves the outputs, and what it costs."""

import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from workingpapers.arguments import check_integer, check_positive, check_type
from workingpapers.modular_duality.compounds import MLP
from workingpapers.modular_duality.modules import Module
from workingpapers.modular_duality.norms import kernel_slices, rms_norm, unit_rms
from workingpapers.modular_duality.orthogonalize import SCHEMES, odd_polynomial, orthogonalize
from workingpapers.modular_duality.tasks import CLASSES, INPUTS, Teacher
from workingpapers.modular_duality.training import draw_start, gradients_of, seeded

__all__ = ["cost_ratios", "feature_change", "well_normedness"]


def feature_change(
    seed: int,
    width: int,
    *,
    update: Literal["dual", "sign"] = "dual",
    lr: float = 0.1,
    batch: int = 256,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Measure how far one step moves the outputs of an MLP with weights of norm 1.

    Parameters
    ----------
    seed : int
        Of weights and batch, at least 0.
    width : int
        Of the MLP with 3 matrices.
    update : {"dual", "sign"}
        The dualised gradient of the cross-entropy, or the gradient's sign: Adam's first step.
    lr : float, default 0.1
        Learning rate, above 0.
    batch : int, default 256
        Number of examples from the teacher.
    device : torch.device or str, default "cpu"
        Where to compute.

    Returns
    -------
    dict
        ``mean`` and ``max`` over the examples of the RMS change of the outputs, over ``lr``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if update not in ("dual", "sign"):
        raise ValueError(f"update must be 'dual' or 'sign'; got {update!r}")
    lr = check_positive("lr", lr)
    net = MLP(CLASSES, INPUTS, width, 3)
    weights, x, labels = draw_start(net, Teacher(), seed, batch, device)
    gradients = gradients_of(net, weights, x, labels)
    step = net.dualize(gradients) if update == "dual" else [g.sign() for g in gradients]
    moved = [w - lr * s for w, s in zip(weights, step, strict=True)]
    change = rms_norm(net(x, moved) - net(x, weights)) / lr
    return {"mean": float(change.mean()), "max": float(change.max())}


def well_normedness(
    seed: int,
    net: Module | None = None,
    *,
    device: torch.device | str = "cpu",
) -> dict[str, float]:
    """Measure how much of the modular norm of a change arrives at the output.

    The change is the dual of the gradient of one output, so a bad case; its effect is the
    derivative in that direction, by forward-mode differentiation.

    Parameters
    ----------
    seed : int
        Of weights, input and the choice of the output, at least 0.
    net : Module, optional
        From inputs of shape (1, 64) to outputs of at least one entry; by default
        ``MLP(10, 64, 128, 3)``.
    device : torch.device or str, default "cpu"
        Where to compute.

    Returns
    -------
    dict
        ``gain``: RMS of the output's change over the modular norm of the weights' change. At most
        1 if the network is well-normed.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    net = MLP(CLASSES, INPUTS, 128, 3) if net is None else net
    check_type("net", net, Module)
    generator = seeded(seed)
    weights = tuple(net.initialize(generator, device))
    x = unit_rms(torch.randn(1, INPUTS, generator=generator)).to(device)
    output, pull_back = torch.func.vjp(lambda *w: net(x, w), *weights)
    one = torch.zeros_like(output)
    chosen = torch.randint(output.shape[-1], (), generator=generator)
    one[..., chosen] = 1.0
    change = tuple(net.dualize(list(pull_back(one))))
    _, moved = torch.func.jvp(lambda *w: net(x, w), weights, change)
    return {"gain": float(rms_norm(moved).max() / net.norm(change))}


def cost_ratios(seed: int, repeats: int = 5) -> dict[str, float]:
    """Time the duality map beside what it could be replaced by; the fastest run of each counts.

    Parameters
    ----------
    seed : int
        Of the matrices, at least 0.
    repeats : int, default 5
        Number of runs, at least 1; the two members of a pair take turns.

    Returns
    -------
    dict
        Ratios of seconds, each above 1 where Newton-Schulz is the faster one.
        ``small_side``: six steps on the large Gram matrix of a 1024 x 64 matrix, over the small;
        ``batched_slices``: a loop over nine 16 x 16 slices, over one batch; ``svd_slices``: a
        loop of SVDs of 25 slices of 64 x 64, over one batch; ``step``: a dualised step of a
        64-256-256-10 network at batch 256, over its gradient (here below is better).

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    repeats, generator = check_integer("repeats", repeats), seeded(seed)
    tall = torch.randn(1024, 64, generator=generator)
    nine = kernel_slices(torch.randn(16, 16, 3, 3, generator=generator)).flatten(0, 1).contiguous()
    many = kernel_slices(torch.randn(64, 64, 5, 5, generator=generator)).flatten(0, 1).contiguous()
    net = MLP(CLASSES, INPUTS, 256, 3)
    start = draw_start(net, Teacher(), seed, 256, "cpu")
    ratio = partial(_ratio, repeats=repeats)
    return {
        "small_side": ratio(lambda: _on_large_side(tall), lambda: orthogonalize(tall)),
        "batched_slices": ratio(
            lambda: [orthogonalize(one) for one in nine], lambda: orthogonalize(nine)
        ),
        "svd_slices": ratio(
            lambda: [orthogonalize(one, "svd") for one in many], lambda: orthogonalize(many)
        ),
        "step": ratio(
            lambda: net.dualize(gradients_of(net, *start)), lambda: gradients_of(net, *start)
        ),
    }


def _on_large_side(x: Tensor) -> Tensor:
    """Iterate on ``x x^T`` though ``x^T x`` is smaller."""
    x = x / x.norm()
    for coefficients in SCHEMES["six_step"]:
        x = odd_polynomial(x, coefficients)
    return x


def _ratio(slow: Callable, fast: Callable, repeats: int) -> float:
    seconds = [[_seconds(one) for one in (slow, fast)] for _ in range(repeats + 1)][1:]
    slowest, fastest = np.min(seconds, axis=0)
    return float(slowest / fastest)


def _seconds(run: Callable) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
