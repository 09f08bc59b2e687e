"""The paper's experiments, small enough for a laptop: each takes seeds and returns numbers.

Many networks are trained at once: weights of shape (networks, d_out, d_in) and inputs of shape
(networks, batch, d_in) make every layer one batched product.
"""

import gzip
import io
import math
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import load_digits
from torch import Tensor, nn

from workingpapers.arguments import (
    check_choice,
    check_fields,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.modular_duality.compounds import MLP
from workingpapers.modular_duality.modules import Embed, Linear, Module, Weights
from workingpapers.modular_duality.norms import (
    check_tensor,
    kernel_slices,
    linear_norm,
    rms_norm,
    rms_scale,
    stable_rank,
    unit_rms,
)
from workingpapers.modular_duality.optimizer import DualizedSGD
from workingpapers.modular_duality.orthogonalize import (
    SCHEMES,
    odd_polynomial,
    orthogonalize,
)

__all__ = [
    "METHODS",
    "Images",
    "Teacher",
    "best_log2_lr",
    "cost_ratios",
    "digits",
    "feature_change",
    "letter",
    "read_cifar10",
    "spectrally_normalized",
    "stable_ranks",
    "sweep",
    "train_language_model",
    "watermark_visibility",
    "weight_erasure",
    "well_normedness",
]

INPUTS, CLASSES = 64, 10
LOGIT_SCALE = 4.0  # of dualised networks: logits of RMS 1 are too small for cross-entropy
BASE_WIDTH = 64  # where muP and the standard parametrisation are the same
MIDDLE = 1  # the matrix that is watermarked, and whose rank is measured

Method = Literal["dual", "dual, momentum", "adam", "mup", "sgd", "sign", "muon"]
Loss = Callable[[Tensor, Tensor], Tensor]


# Data


@dataclass(frozen=True)
class Teacher:
    """Endless examples whose label is the class that a fixed random network prefers.

    Inputs are Gaussian, scaled to RMS 1. The teacher is ``W2 relu(W1 x)`` with 64 hidden units,
    entries of variance ``2 / inputs`` and ``4 / 64``.

    Parameters
    ----------
    inputs, classes : int
        Sizes, at least 1; by default 64 and 10.
    seed : int, default 0
        Of the teacher, at least 0.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    inputs: int = INPUTS
    classes: int = CLASSES
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "inputs", "classes")
        check_fields(self, partial(check_integer, low=0), "seed")

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``size`` new examples, at least 1: inputs (size, inputs) and labels (size,)."""
        size = check_integer("size", size)
        first, second = _teacher_weights(self)
        x = unit_rms(torch.randn(size, self.inputs, generator=generator))
        return x, (torch.relu(x @ first.mT) @ second.mT).argmax(-1)


@lru_cache(maxsize=8)
def _teacher_weights(teacher: Teacher) -> tuple[Tensor, Tensor]:
    # Drawn by numpy: with a torch seed, a network of that seed could start from the teacher.
    rng, hidden = np.random.default_rng(teacher.seed), 64
    first = rng.normal(0, math.sqrt(2 / teacher.inputs), (hidden, teacher.inputs))
    second = rng.normal(0, math.sqrt(4 / hidden), (teacher.classes, hidden))
    return torch.from_numpy(first).float(), torch.from_numpy(second).float()


@dataclass(frozen=True, eq=False)
class Images:
    """A fixed set of examples, from which batches are drawn without replacement.

    Parameters
    ----------
    x : Tensor, shape (examples, inputs)
        Finite.
    labels : Tensor of int64, shape (examples,)
        In 0..classes-1.
    classes : int, default 10
        Number of classes, at least 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    x: Tensor
    labels: Tensor
    classes: int = CLASSES

    def __post_init__(self) -> None:
        check_tensor("x", self.x, axes=2)
        check_type("labels", self.labels, Tensor)
        check_fields(self, check_integer, "classes")
        if self.x.ndim > 2:
            raise ValueError(f"x must have 2 axes; got shape {tuple(self.x.shape)}")
        if self.labels.shape != self.x.shape[:1] or self.labels.dtype != torch.int64:
            raise ValueError(
                f"labels must be int64, one an example; got {self.labels.dtype}, "
                f"shape {tuple(self.labels.shape)} for {len(self.x)} examples"
            )
        _check_range("labels", self.labels, self.classes)

    @property
    def inputs(self) -> int:
        """Size of an example."""
        return self.x.shape[1]

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``size`` different examples: inputs (size, inputs) and labels (size,)."""
        size = check_integer("size", size, high=len(self.x))
        chosen = torch.randperm(len(self.x), generator=generator)[:size]
        return self.x[chosen], self.labels[chosen]


def digits() -> Images:
    """Load scikit-learn's digits: 1797 images of 64 pixels, centred, each scaled to RMS 1."""
    pixels, labels = load_digits(return_X_y=True)
    return _centred(torch.from_numpy(pixels), torch.from_numpy(labels))


def read_cifar10(archive: str | Path) -> Images:
    """Read CIFAR-10's 50,000 training images, centred, each scaled to RMS 1.

    Parameters
    ----------
    archive : path
        The "binary version", ``cifar-10-binary.tar.gz``: five files of training images, in which
        an example is a byte for the label and 3072 for the pixels.

    Returns
    -------
    Images

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is damaged, or does not hold such files.
    """
    packed = Path(archive).read_bytes()
    try:  # all of it is unpacked, for the checksum comes last
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
            rows = [_cifar_rows(tar, number) for number in range(1, 6)]
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError, ValueError) as error:
        raise ValueError(f"archive {archive} is not that of CIFAR-10: {error}") from error
    table = torch.from_numpy(np.concatenate(rows))
    return _centred(table[:, 1:].double(), table[:, 0].long())


def _cifar_rows(tar: tarfile.TarFile, number: int) -> NDArray[np.uint8]:
    """Read the examples (n, 3073) of one of the five files."""
    name = f"cifar-10-batches-bin/data_batch_{number}.bin"
    if name not in tar.getnames() or not tar.getmember(name).isfile():
        raise ValueError(f"it must hold a file {name}")
    content = tar.extractfile(name).read()
    if not content or len(content) % 3073:
        raise ValueError(f"{name} must hold examples of 3073 bytes; got {len(content)} bytes")
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def _check_range(name: str, integers: Tensor, count: int) -> None:
    """Raise unless all are in 0..count-1."""
    low, high = int(integers.min()), int(integers.max())
    if low < 0 or high >= count:
        raise ValueError(f"{name} must be in 0..{count - 1}; got {low}..{high}")


def _centred(x: Tensor, labels: Tensor) -> Images:
    return Images(unit_rms(x - x.mean(0)).float(), labels)


# Methods: how a network starts, and where it goes from there


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


def _unit_start(net: Module, generator: torch.Generator) -> list[Tensor]:
    return net.initialize(generator)


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


def _dual_with_momentum(
    net: Module, gradients: Weights, state: dict, momentum: float = 0.8
) -> list[Tensor]:
    """Dualise Nesterov's momentum, as `DualizedSGD` does."""
    buffers = state.setdefault("buffers", [torch.zeros_like(g) for g in gradients])
    pairs = zip(buffers, gradients, strict=True)
    return net.dualize([g.lerp(b.lerp_(g, 1 - momentum), momentum) for b, g in pairs])


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


def _muon(net: Module, gradients: Weights, state: dict, momentum: float = 0.95) -> list[Tensor]:
    """Muon for the matrices between, Adam for the first and last, at 1/64 of the rate."""
    buffers = state.setdefault("buffers", [torch.zeros_like(g) for g in gradients[1:-1]])
    pairs = zip(buffers, gradients[1:-1], strict=True)
    moved = [g.lerp(b.lerp_(g, 1 - momentum), momentum) for b, g in pairs]
    hidden = [max(1.0, rms_scale(m)) * orthogonalize(m, "muon") for m in moved]
    first, *_, last = _adam(net, gradients, state)
    return [first / 64, *hidden, last / 64]


METHODS: dict[str, Rule] = {
    "dual": Rule(_unit_start, _dual, LOGIT_SCALE, range(-5, 2)),
    "dual, momentum": Rule(_unit_start, _dual_with_momentum, LOGIT_SCALE, range(-5, 2)),
    "adam": Rule(_he_start, _adam, 1.0, range(-9, -2)),
    "mup": Rule(_mup_start, _adam_mup, 1.0, range(-9, -2)),
    "sgd": Rule(_he_start, _gradient, 1.0, range(-4, 3)),
    "sign": Rule(_he_start, _sign, 1.0, range(-11, -4)),
    "muon": Rule(_he_start, _muon, 1.0, range(-6, 1)),
}


def spectrally_normalized(net: Module, gradients: Weights) -> list[Tensor]:
    """Scale gradients to the norms that `Module.dualize` gives them, without orthogonalising.

    The control of the weight-erasure experiment: updates of the same spectral norm, of low rank.

    Parameters
    ----------
    net : Module
        Made of `Linear` atoms and bonds.
    gradients : sequence of Tensor
        One an atom; leading axes are batches. Finite.

    Returns
    -------
    list of Tensor
        Zero where the gradient is zero.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if not all(isinstance(atom, Linear) for atom in net.atoms):
        raise TypeError(f"net must have Linear atoms only; got {net.atoms}")
    sizes = [linear_norm(g)[..., None, None] for g in net.checked("gradients", gradients)]
    triples = zip(gradients, sizes, net.shares, strict=True)
    return [share * g / size.where(size > 0, 1) for g, size, share in triples]


# E1 and E2: learning rates over widths, and speed


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
    generators = [_seeded(seed) for seed in seeds]
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
        running = running & _finite(gradients)
        gradients = [g.where(running[:, None, None], 0) for g in gradients]
        directions = rule.direction(net, gradients, state)
        lr = (lrs * (1 - step / steps))[:, None, None]
        weights = [w - lr * d for w, d in zip(weights, directions, strict=True)]
    return torch.stack(losses)


def _finite(gradients: Weights) -> Tensor:
    """Say of which networks (...) the matrices (..., m, n) are all finite."""
    return torch.stack([g.isfinite().all(-1).all(-1) for g in gradients]).all(0)


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


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy (...) of logits (..., batch, classes) and labels (..., batch)."""
    loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return loss.reshape(labels.shape).mean(-1)


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


# E0, E4, E5: one gradient


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
    weights, x, labels = _start(net, Teacher(), seed, batch, device)
    gradients = _gradients(net, weights, x, labels)
    step = net.dualize(gradients) if update == "dual" else [g.sign() for g in gradients]
    moved = [w - lr * s for w, s in zip(weights, step, strict=True)]
    change = rms_norm(net(x, moved) - net(x, weights)) / lr
    return {"mean": float(change.mean()), "max": float(change.max())}


def stable_ranks(
    seed: int, width: int, *, batch: int = 256, device: torch.device | str = "cpu"
) -> dict[str, float]:
    """Measure the stable rank of the middle matrix's gradient, before and after the duality map.

    Parameters
    ----------
    seed : int
        Of weights and batch, at least 0.
    width : int
        Of the MLP with 3 matrices and weights of norm 1.
    batch : int, default 256
        Number of digits, at most 1797.
    device : torch.device or str, default "cpu"
        Where to compute.

    Returns
    -------
    dict
        ``gradient`` and ``dual``: stable ranks; ``rank``: numerical rank of the gradient.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    net = MLP(CLASSES, INPUTS, width, 3)
    weights, x, labels = _start(net, digits(), seed, batch, device)
    gradients = _gradients(net, weights, x, labels, squared_error)
    gradient = gradients[MIDDLE]
    return {
        "gradient": float(stable_rank(gradient)),
        "dual": float(stable_rank(net.dualize(gradients)[MIDDLE])),
        "rank": float(torch.linalg.matrix_rank(gradient)),
    }


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
    generator = _seeded(seed)
    weights = tuple(net.initialize(generator, device))
    x = unit_rms(torch.randn(1, INPUTS, generator=generator)).to(device)
    output, pull_back = torch.func.vjp(lambda *w: net(x, w), *weights)
    one = torch.zeros_like(output)
    chosen = torch.randint(output.shape[-1], (), generator=generator)
    one[..., chosen] = 1.0
    change = tuple(net.dualize(list(pull_back(one))))
    _, moved = torch.func.jvp(lambda *w: net(x, w), weights, change)
    return {"gain": float(rms_norm(moved).max() / net.norm(change))}


def _start(
    net: Module, task: Teacher | Images, seed: int, batch: int, device: torch.device | str
) -> tuple[list[Tensor], Tensor, Tensor]:
    generator = _seeded(seed)
    weights = net.initialize(generator, device)
    x, labels = task.batch(check_integer("batch", batch), generator)
    return weights, x.to(device), labels.to(device)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(check_integer("seed", seed, low=0))


def _gradients(
    net: Module, weights: Weights, x: Tensor, labels: Tensor, loss: Loss = cross_entropy
) -> list[Tensor]:
    weights = [weight.detach().requires_grad_() for weight in weights]
    return list(torch.autograd.grad(loss(net(x, weights), labels).sum(), weights))


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared distance (...) of outputs (..., batch, classes) to one-hot labels."""
    target = nn.functional.one_hot(labels, outputs.shape[-1])
    return (outputs - target).square().mean((-2, -1))


# E3: the letter in the weights


def letter(width: int) -> Tensor:
    """Draw the letter "a" in a square: a bowl and a stem.

    Parameters
    ----------
    width : int
        Side of the square, at least 16.

    Returns
    -------
    Tensor of bool, shape (width, width)
        True on the strokes.

    Raises
    ------
    ValueError
        If ``width`` is not as described.
    """
    width = check_integer("width", width, low=16)
    down, right = torch.meshgrid(*[(torch.arange(width) + 0.5) / width] * 2, indexing="ij")
    bowl = (((down - 0.55).square() + (right - 0.45).square()).sqrt() - 0.24).abs() < 0.05
    stem = ((right - 0.7).abs() < 0.05) & ((down - 0.56).abs() < 0.28)
    return bowl | stem


def watermark_visibility(weight: Tensor, mask: Tensor) -> Tensor:
    """Say how visible a shape is in which the weights were set to zero.

    Parameters
    ----------
    weight : Tensor, shape (..., m, n)
        Finite; not zero outside of the shape.
    mask : Tensor of bool, shape (m, n)
        True inside the shape; both values occur.

    Returns
    -------
    Tensor, shape (...)
        ``1 - rms(inside) / rms(outside)``: 1 if untouched, near 0 if erased.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("weight", weight, axes=2)
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        raise TypeError(f"mask must be a tensor of bool; got {mask!r}")
    if mask.shape != weight.shape[-2:] or mask.all() or not mask.any():
        raise ValueError(
            f"mask must be of shape {tuple(weight.shape[-2:])} and hold both values; "
            f"got shape {tuple(mask.shape)}"
        )
    inside, outside = rms_norm(weight[..., mask]), rms_norm(weight[..., ~mask])
    if (outside == 0).any():
        raise ValueError("weight must not be zero outside of the mask")
    return 1 - inside / outside


def weight_erasure(
    seed: int,
    width: int,
    lr: float,
    update: Literal["dual", "control"] = "dual",
    *,
    steps: int = 150,
    batch: int = 256,
    task: Images | None = None,
    device: torch.device | str = "cpu",
) -> dict[str, float | NDArray]:
    """Train an MLP whose middle matrix carries a watermark, and see what is left of it.

    Squared error to one-hot labels, constant learning rate.

    Parameters
    ----------
    seed : int
        Of weights and batches, at least 0.
    width : int
        Of the MLP with 3 matrices, at least 16.
    lr : float
        Learning rate, at least 0.
    update : {"dual", "control"}
        `Module.dualize`, or `spectrally_normalized`: of the same spectral norm, not orthogonal.
    steps, batch : int
        Number of steps and of examples a step; by default 150 and 256.
    task : Images, optional
        By default the digits.
    device : torch.device or str, default "cpu"
        Where to train.

    Returns
    -------
    dict
        ``visibility`` of the watermark; ``move``: Frobenius norm of the matrix's change over that
        of its start; ``accuracy`` on all examples; ``weight`` (width, width), the matrix. The
        three numbers are NaN for a run that has diverged.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if update not in ("dual", "control"):
        raise ValueError(f"update must be 'dual' or 'control'; got {update!r}")
    lr = check_nonnegative("lr", lr)
    steps, batch = check_integer("steps", steps), check_integer("batch", batch)
    task = digits() if task is None else task
    net, mask = MLP(task.classes, task.inputs, width, 3), letter(width).to(device)
    generator = _seeded(seed)
    weights = net.initialize(generator, device)
    weights[MIDDLE] = start = weights[MIDDLE] * ~mask
    direction = Module.dualize if update == "dual" else spectrally_normalized
    for _ in range(steps):
        x, labels = (part.to(device) for part in task.batch(batch, generator))
        gradients = _gradients(net, weights, x, labels, squared_error)
        if not _finite(gradients):
            break
        directions = direction(net, gradients)
        weights = [w - lr * d for w, d in zip(weights, directions, strict=True)]
    end, outputs = weights[MIDDLE], net(task.x.to(device), weights)
    numbers = dict.fromkeys(("visibility", "move", "accuracy"), math.nan)
    if _finite([*gradients, *weights]) and _finite([outputs]):
        numbers["visibility"] = float(watermark_visibility(end, mask))
        numbers["move"] = float((end - start).norm() / start.norm())
        correct = outputs.argmax(-1) == task.labels.to(device)
        numbers["accuracy"] = float(correct.double().mean())
    return numbers | {"weight": end.cpu().numpy()}


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
            _check_range(f"tokens of a vocabulary of {atom.tokens}", tokens, atom.tokens)
    generator = _seeded(seed)
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


# What it costs


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
    repeats, generator = check_integer("repeats", repeats), _seeded(seed)
    tall = torch.randn(1024, 64, generator=generator)
    nine = kernel_slices(torch.randn(16, 16, 3, 3, generator=generator)).flatten(0, 1).contiguous()
    many = kernel_slices(torch.randn(64, 64, 5, 5, generator=generator)).flatten(0, 1).contiguous()
    net = MLP(CLASSES, INPUTS, 256, 3)
    start = _start(net, Teacher(), seed, 256, "cpu")
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
            lambda: net.dualize(_gradients(net, *start)), lambda: _gradients(net, *start)
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
