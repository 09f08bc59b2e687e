"""Weight erasure: what updates of full and of low rank leave of a letter in a matrix."""

import math
from typing import Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workingpapers.arguments import check_integer, check_nonnegative
from workingpapers.modular_duality.atoms import Linear
from workingpapers.modular_duality.compounds import MLP
from workingpapers.modular_duality.modules import Module, Weights
from workingpapers.modular_duality.norms import check_tensor, linear_norm, rms_norm, stable_rank
from workingpapers.modular_duality.tasks import CLASSES, INPUTS, Images, digits
from workingpapers.modular_duality.training import all_finite, draw_start, gradients_of, seeded

__all__ = [
    "letter",
    "spectrally_normalized",
    "stable_ranks",
    "watermark_visibility",
    "weight_erasure",
]

MIDDLE = 1  # the matrix that is watermarked, and whose rank is measured


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
    weights, x, labels = draw_start(net, digits(), seed, batch, device)
    gradients = gradients_of(net, weights, x, labels, squared_error)
    gradient = gradients[MIDDLE]
    return {
        "gradient": float(stable_rank(gradient)),
        "dual": float(stable_rank(net.dualize(gradients)[MIDDLE])),
        "rank": float(torch.linalg.matrix_rank(gradient)),
    }


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
    generator = seeded(seed)
    weights = net.initialize(generator, device)
    weights[MIDDLE] = start = weights[MIDDLE] * ~mask
    direction = Module.dualize if update == "dual" else spectrally_normalized
    for _ in range(steps):
        x, labels = (part.to(device) for part in task.batch(batch, generator))
        gradients = gradients_of(net, weights, x, labels, squared_error)
        if not all_finite(gradients):
            break
        directions = direction(net, gradients)
        weights = [w - lr * d for w, d in zip(weights, directions, strict=True)]
    end, outputs = weights[MIDDLE], net(task.x.to(device), weights)
    numbers = dict.fromkeys(("visibility", "move", "accuracy"), math.nan)
    if all_finite([*gradients, *weights]) and all_finite([outputs]):
        numbers["visibility"] = float(watermark_visibility(end, mask))
        numbers["move"] = float((end - start).norm() / start.norm())
        correct = outputs.argmax(-1) == task.labels.to(device)
        numbers["accuracy"] = float(correct.double().mean())
    return numbers | {"weight": end.cpu().numpy()}


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


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean squared distance (...) of outputs (..., batch, classes) to one-hot labels."""
    target = nn.functional.one_hot(labels, outputs.shape[-1])
    return (outputs - target).square().mean((-2, -1))
