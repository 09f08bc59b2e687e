"""Norms of weights, their dual norms, and the duality maps that have a closed form.

A norm on weights says how much a layer's output can move: it is the operator norm between the
norm of the layer's inputs and the norm of its outputs. A gradient is measured by the dual norm,
``||g||† = max <g, t>`` over weights t of norm 1, and a maximiser t is the gradient's *dual*.
Leading axes are batches throughout: a norm of many matrices is a tensor of many numbers. Norms of
half-precision tensors are float32.
"""

import math
from numbers import Real

import torch
from torch import Tensor

__all__ = [
    "conv2d_dual_norm",
    "conv2d_norm",
    "embed_dual_norm",
    "embed_norm",
    "linear_dual_norm",
    "linear_norm",
    "lp_dualize",
    "rms_norm",
    "schatten_dualize",
    "stable_rank",
]


def rms_norm(v: Tensor, dim: int = -1) -> Tensor:
    """Root mean square of vectors, ``||v||_2 / sqrt(d)``: 1 if the entries are of size 1.

    Parameters
    ----------
    v : Tensor, shape (..., d, ...)
        Real, finite, not empty.
    dim : int, default -1
        The axis that a vector runs along.

    Returns
    -------
    Tensor
        Of the shape of ``v`` without that axis.

    Raises
    ------
    TypeError, ValueError
        If ``v`` is not as described.
    """
    check_tensor("v", v, axes=1)
    v = widened(v)
    largest = largest_entry(v, dim)
    unit = torch.linalg.vector_norm(v / largest, dim=dim) / math.sqrt(v.shape[dim])
    return unit * largest.squeeze(dim)


def linear_norm(weight: Tensor) -> Tensor:
    """RMS -> RMS operator norm, ``sqrt(d_in / d_out) ||W||_2`` (Table 1).

    Parameters
    ----------
    weight : Tensor, shape (..., d_out, d_in)
        Real, finite, not empty. ``||W||_2``, in the paper ``||W||_*``, is the largest
        singular value.

    Returns
    -------
    Tensor, shape (...)
        The largest ``rms_norm(W x)`` for ``rms_norm(x) = 1``.

    Raises
    ------
    TypeError, ValueError
        If ``weight`` is not as described.
    """
    check_tensor("weight", weight, axes=2)
    return torch.linalg.matrix_norm(widened(weight), ord=2) / rms_scale(weight)


def linear_dual_norm(gradient: Tensor) -> Tensor:
    """Dual of `linear_norm`: ``sqrt(d_out / d_in)`` times the sum of singular values.

    By von Neumann's trace inequality ``<G, T> <= sum_i s_i(G) s_i(T)``.

    Parameters
    ----------
    gradient : Tensor, shape (..., d_out, d_in)
        Real, finite, not empty.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError
        If ``gradient`` is not as described.
    """
    check_tensor("gradient", gradient, axes=2)
    return torch.linalg.matrix_norm(widened(gradient), ord="nuc") * rms_scale(gradient)


def embed_norm(weight: Tensor, token_dim: int = 0) -> Tensor:
    """L1 -> RMS operator norm of an embedding: the largest RMS of a token's vector (Table 1).

    The extreme points of the l1 ball are the signed basis vectors, so some token attains it.

    Parameters
    ----------
    weight : Tensor, shape (..., tokens, d), or (..., d, tokens) for ``token_dim=1``
        Real, finite, not empty.
    token_dim : {0, 1}, default 0
        Which of the two last axes counts tokens: 0 as torch stores them, 1 as the paper does.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("weight", weight, axes=2)
    return rms_norm(weight, _vector_axis(token_dim)).amax(-1)


def embed_dual_norm(gradient: Tensor, token_dim: int = 0) -> Tensor:
    """Dual of `embed_norm`: ``sqrt(d)`` times the sum over tokens of the vectors' l2 norms.

    Parameters
    ----------
    gradient : Tensor, shape (..., tokens, d), or (..., d, tokens) for ``token_dim=1``
        Real, finite, not empty.
    token_dim : {0, 1}, default 0
        Which of the two last axes counts tokens.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("gradient", gradient, axes=2)
    axis = _vector_axis(token_dim)
    return gradient.shape[axis] * rms_norm(gradient, axis).sum(-1)


def conv2d_norm(weight: Tensor) -> Tensor:
    """Norm of a convolution, ``k^2 max_ij ||W[:, :, i, j]||_{RMS -> RMS}`` (Table 1).

    It bounds the operator norm between images that are measured by their pixel of largest channel
    RMS: a pixel of the output is a sum of ``k^2`` terms, one an offset (i, j).

    Parameters
    ----------
    weight : Tensor, shape (..., d_out, d_in, k, k)
        Real, finite, not empty. The kernel need not be square.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError
        If ``weight`` is not as described.
    """
    check_tensor("weight", weight, axes=4)
    offsets = weight.shape[-1] * weight.shape[-2]
    return offsets * linear_norm(kernel_slices(weight)).amax((-2, -1))


def conv2d_dual_norm(gradient: Tensor) -> Tensor:
    """Dual of `conv2d_norm`: ``k^-2 sqrt(d_out / d_in) sum_ij`` of the slices' nuclear norms.

    Parameters
    ----------
    gradient : Tensor, shape (..., d_out, d_in, k, k)
        Real, finite, not empty.

    Returns
    -------
    Tensor, shape (...)

    Raises
    ------
    TypeError, ValueError
        If ``gradient`` is not as described.
    """
    check_tensor("gradient", gradient, axes=4)
    offsets = gradient.shape[-1] * gradient.shape[-2]
    return linear_dual_norm(kernel_slices(gradient)).sum((-2, -1)) / offsets


def lp_dualize(gradient: Tensor, p: float) -> Tensor:
    """Duality map of the lp norm over the last axis, with ``1/p + 1/q = 1``.

    ``sign(g) |g|^(q-1) / ||g||_q^(q-1)``: for p = 2 it is the normalised gradient; for p infinite
    it is ``sign(g)``, the step of sign descent and of Adam without accumulation (Section 3).

    Parameters
    ----------
    gradient : Tensor, shape (..., d)
        Real, finite, not empty.
    p : float
        In (1, inf].

    Returns
    -------
    Tensor, shape (..., d)
        Of lp norm 1; zero where the gradient is zero.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("gradient", gradient, axes=1)
    if not isinstance(p, Real) or isinstance(p, bool) or not p > 1:
        raise ValueError(f"p must be a number in (1, inf]; got {p!r}")
    p = float(p)
    unit = without_scale(gradient, dims=-1)
    dual = unit.abs() ** (1 / (p - 1))  # q - 1 = 1 / (p - 1); the largest entry is 1 or 0
    length = torch.linalg.vector_norm(dual, ord=p, dim=-1, keepdim=True)
    return unit.sign() * dual / length.where(length > 0, 1)


def schatten_dualize(gradient: Tensor, p: float) -> Tensor:
    """Duality map of the Schatten-p norm: `lp_dualize` of the singular values.

    Parameters
    ----------
    gradient : Tensor, shape (..., m, n)
        Real, finite, not empty.
    p : float
        In (1, inf]. p = 2 is the Frobenius norm, p infinite the spectral norm, with dual U V^T.

    Returns
    -------
    Tensor, shape (..., m, n)
        Of Schatten norm 1; zero where the gradient is zero.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("gradient", gradient, axes=2)
    u, s, vt = torch.linalg.svd(widened(gradient), full_matrices=False)
    s = s.where(s > rank_tolerance(gradient, s), 0)
    return ((u * lp_dualize(s, p)[..., None, :]) @ vt).to(gradient.dtype)


def stable_rank(matrix: Tensor) -> Tensor:
    """Stable rank ``||M||_F^2 / ||M||_2^2``: how many singular values are as large as the first.

    Parameters
    ----------
    matrix : Tensor, shape (..., m, n)
        Real, finite, not empty, no matrix zero.

    Returns
    -------
    Tensor, shape (...)
        Between 1 and the rank.

    Raises
    ------
    TypeError, ValueError
        If ``matrix`` is not as described.
    """
    check_tensor("matrix", matrix, axes=2)
    s = torch.linalg.svdvals(without_scale(widened(matrix), dims=(-2, -1)))
    if (s[..., 0] == 0).any():
        raise ValueError("matrix must not be zero; a zero matrix has no stable rank")
    return ((s / s[..., :1]) ** 2).sum(-1)


def widened(tensor: Tensor) -> Tensor:
    """Convert half-precision numbers to float32, for which LAPACK has its routines."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def kernel_slices(weight: Tensor) -> Tensor:
    """Turn convolution weights (..., d_out, d_in, k, k) into matrices (..., k, k, d_out, d_in)."""
    return weight.movedim((-2, -1), (-4, -3))


def rms_scale(weight: Tensor) -> float:
    """Return ``sqrt(d_out / d_in)`` of weights of shape (..., d_out, d_in)."""
    return math.sqrt(weight.shape[-2] / weight.shape[-1])


def without_scale(tensor: Tensor, dims: int | tuple[int, ...]) -> Tensor:
    """Divide by the largest entry over some axes, so that no square over- or underflows."""
    return tensor / largest_entry(tensor, dims)


def largest_entry(tensor: Tensor, dims: int | tuple[int, ...]) -> Tensor:
    """Return the largest absolute value over some axes, which stay; 1 where all is zero.

    A constant for derivatives: what is divided by it is multiplied again, or has no scale.
    """
    largest = tensor.detach().abs().amax(dims, keepdim=True)
    return largest.where(largest > 0, 1)


def unit_rms(vectors: Tensor, dims: int | tuple[int, ...] = -1) -> Tensor:
    """Scale to RMS 1 over some axes; zero stays zero."""
    v = without_scale(vectors, dims)
    square = v.square().mean(dims, keepdim=True)
    return v / square.where(square > 0, 1).sqrt()  # no root of 0: its slope is infinite


def rank_tolerance(matrix: Tensor, s: Tensor) -> Tensor:
    """Return the size, shape (..., 1), up to which a singular value is a rounding error."""
    return s.amax(-1, keepdim=True) * (max(matrix.shape[-2:]) * torch.finfo(s.dtype).eps)


def check_tensor(name: str, tensor: Tensor, axes: int) -> None:
    """Raise unless ``tensor`` is real, finite and not empty, and has at least so many axes."""
    check_real(name, tensor)
    if tensor.ndim < axes or tensor.numel() == 0:
        shape = tuple(tensor.shape)
        raise ValueError(
            f"{name} must have at least {axes} axes and must not be empty; got shape {shape}"
        )
    if not torch.isfinite(tensor).all():
        raise ValueError(f"{name} must be finite; got NaN or inf")


def check_real(name: str, tensor: Tensor) -> None:
    """Raise unless it is a tensor of a real floating-point dtype."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor; got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must be of a real floating-point dtype; got {tensor.dtype}")


def check_dtype(dtype: torch.dtype) -> None:
    """Raise unless it is a real floating-point dtype."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point torch.dtype; got {dtype!r}")


def _vector_axis(token_dim: int) -> int:
    if token_dim not in (0, 1) or isinstance(token_dim, bool):
        raise ValueError(f"token_dim must be 0 or 1; got {token_dim!r}")
    return -1 if token_dim == 0 else -2
