"""Methods: how a network starts, and where it goes from there."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from workingpapers.modular_duality.modules import Module, Weights
from workingpapers.modular_duality.norms import rms_scale
from workingpapers.modular_duality.orthogonalize import orthogonalize

__all__ = ["METHODS"]

LOGIT_SCALE = 4.0  # of dualised networks: logits of RMS 1 are too small for cross-entropy
BASE_WIDTH = 64  # where muP and the standard parametrisation are the same

Method = Literal["dual", "dual, momentum", "adam", "mup", "sgd", "sign", "muon"]


@dataclass(frozen=True)
class Rule:
    """A way to train an MLP.

    Attributes
    ----------
    initialize : callable
        ``initialize(net, generator)`` gives the weights of one network.
    direction : callable
        ``direction(net, gradients, state)`` gives what is subtracted, times the learning rate.
        ``state`` is a dict of its own.
    logit_scale : float
        Factor of the network's output.
    log2_lrs : range
        Logarithms of the learning rates that a sweep tries.
    """

    initialize: Callable[[Module, torch.Generator], list[Tensor]]
    direction: Callable[[Module, Weights, dict], list[Tensor]]
    logit_scale: float
    log2_lrs: range


def _he_start(net: Module, generator: torch.Generator) -> list[Tensor]:
    """Draw entries of variance ``2 / d_in``: the standard parametrisation."""
    normals = [torch.randn(atom.shape, generator=generator) for atom in net.atoms]
    return [math.sqrt(2 / w.shape[-1]) * w for w in normals]


def _mup_start(net: Module, generator: torch.Generator) -> list[Tensor]:
    """Draw as `_he_start`, but let the last layer fall like 1/width, not 1/sqrt(width)."""
    *hidden, last = _he_start(net, generator)
    return [*hidden, math.sqrt(BASE_WIDTH / last.shape[-1]) * last]


def _dual(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    return net.dualize(gradients)


def _nesterov(gradients: Weights, state: dict, momentum: float) -> list[Tensor]:
    """Nesterov's momentum of gradients, as `DualizedSGD` takes it."""
    buffers = state.setdefault("buffers", [torch.zeros_like(g) for g in gradients])
    pairs = zip(buffers, gradients, strict=True)
    return [g.lerp(b.lerp_(g, 1 - momentum), momentum) for b, g in pairs]


def _dual_with_momentum(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    return net.dualize(_nesterov(gradients, state, momentum=0.8))


def _gradient(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    return list(gradients)


def _sign(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    return [g.sign() for g in gradients]


def _adam(
    net: Module,
    gradients: Weights,
    state: dict,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> list[Tensor]:
    """Adam's direction, with torch's defaults; elementwise, so batches need no care."""
    state["step"] = state.get("step", 0) + 1
    moments = state.setdefault("moments", [(torch.zeros_like(g),) * 2 for g in gradients])
    for index, (gradient, (mean, square)) in enumerate(zip(gradients, moments, strict=True)):
        moments[index] = mean.lerp(gradient, 1 - betas[0]), square.lerp(gradient**2, 1 - betas[1])
    bias = [1 - beta ** state["step"] for beta in betas]
    return [mean / bias[0] / ((square / bias[1]).sqrt() + eps) for mean, square in moments]


def _adam_mup(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    """Adam, with steps of all but the first layer multiplied by ``base width / width``."""
    first, *others = _adam(net, gradients, state)
    return [first, *(BASE_WIDTH / step.shape[-1] * step for step in others)]


def _muon(net: Module, gradients: Weights, state: dict) -> list[Tensor]:
    """Muon for the matrices between, Adam for the first and last, at 1/64 of the rate."""
    moved = _nesterov(gradients[1:-1], state, momentum=0.95)
    hidden = [max(1.0, rms_scale(m)) * orthogonalize(m, "muon") for m in moved]
    first, *_, last = _adam(net, gradients, state)
    return [first / 64, *hidden, last / 64]


METHODS: dict[str, Rule] = {
    "dual": Rule(Module.initialize, _dual, LOGIT_SCALE, range(-5, 2)),
    "dual, momentum": Rule(Module.initialize, _dual_with_momentum, LOGIT_SCALE, range(-5, 2)),
    "adam": Rule(_he_start, _adam, 1.0, range(-9, -2)),
    "mup": Rule(_mup_start, _adam_mup, 1.0, range(-9, -2)),
    "sgd": Rule(_he_start, _gradient, 1.0, range(-4, 3)),
    "sign": Rule(_he_start, _sign, 1.0, range(-11, -4)),
    "muon": Rule(_he_start, _muon, 1.0, range(-6, 1)),
}
