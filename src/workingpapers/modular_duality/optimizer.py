"""Stochastic gradient descent whose gradients are dualised before they are subtracted."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from workingpapers.arguments import check_nonnegative, check_type
from workingpapers.modular_duality.modules import Module, Orthogonalizer
from workingpapers.modular_duality.orthogonalize import orthogonalize

__all__ = ["DualizedSGD"]


class DualizedSGD(torch.optim.Optimizer):
    """Descend along the dual of the gradient: ``w <- w - lr * dualize(g)``.

    A step changes the weights by ``lr`` in the modular norm, whatever the width. So it changes
    the output of a well-normed network by at most ``lr`` to first order, while every atom's
    weights have norm at most 1: they start so, but training may leave that. Learning-rate
    schedules, gradient scalers, saving and loading are torch's. The momentum is taken before the
    duality map, as in Muon: ``b <- momentum b + (1 - momentum) g``, and with Nesterov
    ``momentum b + (1 - momentum) g`` is dualised, else b.

    Parameters
    ----------
    params : iterable of Tensor
        The weights: one an atom of the module, in that order. A weight whose ``grad`` is None
        stays what it is.
    module : Module
        The norm: a tree of modules, or `from_torch` of a network.
    lr : float, default 0.1
        Learning rate, at least 0.
    momentum : float, default 0.0
        In [0, 1).
    nesterov : bool, default True
        Without effect where the momentum is 0.
    weight_decay : float, default 0.0
        At least 0; decoupled, ``w <- (1 - lr * weight_decay) w``.
    orthogonalizer : callable, default `orthogonalize`
        From G = U S V^T to U V^T, batched. It is not part of the saved state.
    sharp : bool, default False
        Multiply the step by the dual norm of the gradient (the sharp operator).

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the weights are not those of the module.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> network = from_torch(model)
    >>> optimizer = DualizedSGD(network.parameters(), network, lr=0.1, momentum=0.8)
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        module: Module,
        lr: float = 0.1,
        momentum: float = 0.0,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        orthogonalizer: Orthogonalizer = orthogonalize,
        sharp: bool = False,
    ) -> None:
        check_type("module", module, Module)
        if not callable(orthogonalizer):
            raise TypeError(f"orthogonalizer must be callable; got {orthogonalizer!r}")
        lr = check_nonnegative("lr", lr)
        weight_decay = check_nonnegative("weight_decay", weight_decay)
        momentum = check_nonnegative("momentum", momentum)
        if momentum >= 1:
            raise ValueError(f"momentum must be in [0, 1); got {momentum}")
        for name, flag in (("nesterov", nesterov), ("sharp", sharp)):
            if not isinstance(flag, bool):
                raise TypeError(f"{name} must be a bool; got {flag!r}")
        self.module = module
        self.orthogonalizer = orthogonalizer
        options = {"momentum": momentum, "nesterov": nesterov, "sharp": sharp}
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **options})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take the one group of weights, which the modular norm binds together.

        Raises
        ------
        ValueError
            If it is the second group, or its weights are not those of the module.
        """
        if self.param_groups:
            raise ValueError("params must be one group; the modular norm is of all weights")
        super().add_param_group(param_group)
        weights, atoms = self.param_groups[0]["params"], self.module.atoms
        if len(weights) != len(atoms):
            raise ValueError(
                f"params must hold {len(atoms)} tensors, one an atom; got {len(weights)}"
            )
        for index, (weight, atom) in enumerate(zip(weights, atoms, strict=True)):
            atom.check_shape(f"params[{index}]", weight)

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Change the weights.

        Parameters
        ----------
        closure : callable, optional
            Computes the loss anew, with gradients.

        Returns
        -------
        Tensor or None
            What the closure returns.

        Raises
        ------
        ValueError
            If a gradient is NaN or infinite; nothing is changed then.
        TypeError
            If a gradient is sparse.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        group = self.param_groups[0]
        self.module.checked("gradients", [_gradient(weight) for weight in group["params"]])
        moved = [self._with_momentum(weight, group) for weight in group["params"]]
        map_ = self.module.sharp if group["sharp"] else self.module.dualize
        steps = map_(moved, orthogonalizer=self.orthogonalizer)
        for weight, step in zip(group["params"], steps, strict=True):
            if weight.grad is not None:
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * step)
        return loss

    def _with_momentum(self, weight: Tensor, group: dict[str, Any]) -> Tensor:
        """Update the weight's momentum and return what is to be dualised."""
        gradient, momentum = _gradient(weight), group["momentum"]
        if momentum == 0 or weight.grad is None:
            return gradient
        state = self.state[weight]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(weight)
        buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        return gradient.lerp(buffer, momentum) if group["nesterov"] else buffer

    def __getstate__(self) -> dict[str, Any]:
        kept = {"module": self.module, "orthogonalizer": self.orthogonalizer}
        return super().__getstate__() | kept


def _gradient(weight: Tensor) -> Tensor:
    if weight.grad is None:
        return torch.zeros_like(weight)
    if weight.grad.is_sparse:
        raise TypeError("gradients must be dense; got a sparse one (Embedding with sparse=True?)")
    return weight.grad
