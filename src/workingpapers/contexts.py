"""What torch is told for a while: a seed, or that a model is not in training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from workingpapers.arguments import check_integer

__all__ = ["evaluating", "seeded"]


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Seed torch's own generators, which weights and dropout are drawn from, for a while.

    Parameters
    ----------
    seed : int
        At least 0.
    device : torch.device or str, default "cpu"
        Where, besides the CPU, random numbers are drawn.

    Yields
    ------
    None
        Afterwards the generators are as they were before.

    Raises
    ------
    ValueError
        If ``seed`` is not as described.
    """
    seed = check_integer("seed", seed, low=0)
    device = torch.device(device)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch off dropout and the like for a while; each part of the model is then as it was.

    Parameters
    ----------
    model : torch.nn.Module

    Yields
    ------
    None
    """
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
