"""Orthogonalisation: from a matrix G = U S V^T to U V^T, in seven ways (Section 5).

The Newton-Schulz ways apply an odd polynomial to a matrix, ``aX + bXX^TX + c(XX^T)^2X + ...``.
It keeps U and V and acts on each singular value as ``ax + bx^3 + cx^5 + ...``: a polynomial that
is steep at 0 and flat near 1, applied a few times, sends every singular value near 1.
"""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal, get_args

import torch
from numpy.polynomial import Polynomial
from torch import Tensor

from workingpapers.arguments import check_integer
from workingpapers.modular_duality.norms import (
    check_dtype,
    check_tensor,
    rank_tolerance,
    widened,
    without_scale,
)

__all__ = [
    "SCHEMES",
    "Method",
    "Scheme",
    "coefficient_schedule",
    "newton_schulz",
    "newton_schulz_flops",
    "odd_coefficients",
    "orthogonalize",
    "shampoo",
    "singular_value_map",
]

Scheme = Literal["six_step", "cubic", "quintic", "muon"]
Method = Literal["six_step", "cubic", "quintic", "muon", "svd", "inverse_root", "sketch"]
Normalization = Literal["fro", "spectral"]
Schedule = tuple[tuple[float, ...], ...]

_SIX_STEP = (
    (3955, -8306, 5008),
    (3735, -6681, 3463),
    (3799, -6499, 3211),
    (4019, -6385, 2906),
    (2677, -3029, 1162),
    (2172, -1833, 682),
)
# The coefficients of x, x^3, x^5 in each step, with the default number of steps.
SCHEMES: dict[str, Schedule] = {
    "six_step": tuple((a / 1024, b / 1024, c / 1024) for a, b, c in _SIX_STEP),
    "cubic": ((3 / 2, -1 / 2),) * 20,
    "quintic": ((3.0, -16 / 5, 6 / 5),) * 10,
    "muon": ((3.4445, -4.7750, 2.0315),) * 5,
}


def orthogonalize(
    matrix: Tensor,
    method: Method = "six_step",
    *,
    steps: int | None = None,
    coefficients: Sequence[Sequence[float]] | None = None,
    normalize: Normalization = "fro",
    rank: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Replace the singular values of matrices by 1, or by something near it.

    Parameters
    ----------
    matrix : Tensor, shape (..., m, n)
        G = U S V^T: real, finite, not empty.
    method : str, default "six_step"
        ``six_step``, ``cubic``, ``quintic``, ``muon``: Newton-Schulz with that scheme (see
        `coefficient_schedule`); ``svd``: exact, singular values at rounding level stay 0;
        ``inverse_root``: ``(G G^T)^(-1/2) G`` by eigenvalues, inaccurate for condition numbers
        beyond the root of the precision; ``sketch``: ``svd`` of a random projection, which
        keeps only the ``rank`` largest singular values.
    steps : int, optional
        Number of Newton-Schulz steps, at least 1; by default that of the scheme.
    coefficients : sequence of sequences of float, optional
        A Newton-Schulz scheme of one's own, instead of the one of ``method``.
    normalize : {"fro", "spectral"}, default "fro"
        The norm that a matrix is divided by before Newton-Schulz, to bring its singular values
        into [0, 1].
    rank : int, optional
        Of the sketch, in 1..min(m, n); needed there, and only there.
    generator : torch.Generator, optional
        Of the sketch's random directions; needed there, and only there.
    dtype : torch.dtype, optional
        Floating-point type to compute in; by default that of ``matrix``, at least float32. Only
        Newton-Schulz works in half precision.

    Returns
    -------
    Tensor, shape (..., m, n)
        Near U V^T, in the dtype of ``matrix``; zero for a zero matrix. Autocast does not apply.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or does not belong to the method.

    Examples
    --------
    >>> orthogonalize(torch.tensor([[3.0, 0.0], [0.0, -4.0]]), "svd").round().tolist()
    [[1.0, 0.0], [0.0, -1.0]]
    """
    check_tensor("matrix", matrix, axes=2)
    _check_options(method, normalize, rank, generator, steps, coefficients)
    dtype = _working_dtype(matrix, dtype, method in SCHEMES)
    x = without_scale(widened(matrix), dims=(-2, -1))
    with torch.autocast(matrix.device.type, enabled=False):
        if method in SCHEMES:
            schedule = coefficient_schedule(method, steps, coefficients)
            x = newton_schulz(_into_unit_ball(x, normalize).to(dtype), schedule)
        elif method == "svd":
            x = _by_svd(x.to(dtype))
        elif method == "inverse_root":
            x = _on_small_side(x.to(dtype), _by_inverse_root)
        else:
            x = _by_sketch(x.to(dtype), rank, generator)
    return x.to(matrix.dtype)


def newton_schulz(x: Tensor, schedule: Schedule) -> Tensor:
    """Apply odd matrix polynomials one after the other.

    They are evaluated through the smaller of the two Gram matrices: a matrix with more rows than
    columns is transposed, which leaves ``U f(S) V^T`` what it is.

    Parameters
    ----------
    x : Tensor, shape (..., m, n)
        With singular values in the range where the schedule converges.
    schedule : tuple of tuples of float
        As `coefficient_schedule` gives it.

    Returns
    -------
    Tensor, shape (..., m, n)
    """

    def iterate(x: Tensor) -> Tensor:
        for coefficients in schedule:
            x = odd_polynomial(x, coefficients)
        return x

    return _on_small_side(x, iterate)


def odd_polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Evaluate ``a x + b (x x^T) x + c (x x^T)^2 x + ...`` by Horner's rule on ``x x^T``."""
    first, *higher = coefficients
    if not higher:
        return first * x
    gram = x @ x.mT
    polynomial = higher[-1] * gram
    for coefficient in reversed(higher[:-1]):
        polynomial = coefficient * gram + gram @ polynomial
    return first * x + polynomial @ x


def coefficient_schedule(
    scheme: Scheme = "six_step",
    steps: int | None = None,
    coefficients: Sequence[Sequence[float]] | None = None,
) -> Schedule:
    """List the odd polynomials of a Newton-Schulz iteration, a tuple a step.

    Parameters
    ----------
    scheme : {"six_step", "cubic", "quintic", "muon"}
        ``cubic`` (3/2, -1/2) converges quadratically; ``quintic`` (3, -16/5, 6/5) climbs twice
        as fast and oscillates a little; ``muon`` is steepest and stays in a band about 1, for its
        coefficients do not add up to 1; ``six_step`` has a polynomial of its own for each step.
    steps : int, optional
        At least 1. By default 20, 10, 5 for cubic, quintic, muon; ``six_step`` has 6.
    coefficients : sequence of sequences of float, optional
        Instead of the scheme: for every step the coefficients of x, x^3, x^5, ..., at least one.
        A single polynomial is repeated ``steps`` times.

    Returns
    -------
    tuple of tuples of float

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the number of steps is not that of the polynomials.
    """
    if scheme not in get_args(Scheme):
        raise ValueError(f"scheme must be one of {get_args(Scheme)}; got {scheme!r}")
    schedule = SCHEMES[scheme] if coefficients is None else _checked_schedule(coefficients)
    if steps is None:
        return schedule
    steps = check_integer("steps", steps)
    if len(set(schedule)) == 1:
        return schedule[:1] * steps
    if steps != len(schedule):
        raise ValueError(f"steps must be {len(schedule)}, one a polynomial; got {steps}")
    return schedule


def singular_value_map(
    x: Tensor,
    scheme: Scheme = "six_step",
    steps: int | None = None,
    coefficients: Sequence[Sequence[float]] | None = None,
) -> Tensor:
    """Apply the polynomials of a Newton-Schulz iteration to numbers instead of matrices.

    Parameters
    ----------
    x : Tensor, any shape
        Singular values: real, finite, not empty.
    scheme, steps, coefficients
        As in `coefficient_schedule`.

    Returns
    -------
    Tensor
        What Newton-Schulz makes of these singular values.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_tensor("x", x, axes=0)
    for polynomial in coefficient_schedule(scheme, steps, coefficients):
        square, value = x * x, torch.zeros_like(x)
        for coefficient in reversed(polynomial):
            value = value * square + coefficient
        x = x * value
    return x


def odd_coefficients(polynomial: Polynomial) -> tuple[float, ...]:
    """Take the coefficients of x, x^3, x^5, ... from a polynomial that has no others.

    Parameters
    ----------
    polynomial : numpy.polynomial.Polynomial
        An odd polynomial, not zero, in the standard domain.

    Returns
    -------
    tuple of float
        As a step of ``coefficients``.

    Raises
    ------
    TypeError
        If it is not a Polynomial.
    ValueError
        If it has a term of even degree, or none of odd degree.

    Examples
    --------
    >>> odd_coefficients(Polynomial([0, 1.5, 0, -0.5]))
    (1.5, -0.5)
    """
    if not isinstance(polynomial, Polynomial):
        raise TypeError(f"polynomial must be a numpy Polynomial; got {polynomial!r}")
    powers = polynomial.convert().coef
    even = [degree for degree in range(0, len(powers), 2) if powers[degree] != 0]
    if even or not powers.any():
        raise ValueError(f"polynomial must have terms of odd degree only; got degrees {even} too")
    return tuple(float(coefficient) for coefficient in powers[1::2])


def shampoo(gradient: Tensor) -> Tensor:
    """One step of Shampoo without accumulation, ``(G G^T)^(-1/4) G (G^T G)^(-1/4)``.

    Equal to U V^T (Section 5): the link between Shampoo and the duality map.

    Parameters
    ----------
    gradient : Tensor, shape (..., m, n)
        G: real, finite, not empty. Eigenvalues at rounding level count as 0, and stay 0.

    Returns
    -------
    Tensor, shape (..., m, n)

    Raises
    ------
    TypeError, ValueError
        If ``gradient`` is not as described.
    """
    check_tensor("gradient", gradient, axes=2)
    x = without_scale(widened(gradient), dims=(-2, -1))
    return (_inverse_root(x @ x.mT, 4) @ x @ _inverse_root(x.mT @ x, 4)).to(gradient.dtype)


def newton_schulz_flops(rows: int, columns: int, steps: int = 6) -> int:
    """Count the floating-point operations of quintic Newton-Schulz steps on the small side.

    Parameters
    ----------
    rows, columns : int
        Shape of the matrix, at least 1; m is the smaller of the two, n the larger.
    steps : int, default 6
        Number of steps K, at least 1.

    Returns
    -------
    int
        ``K (4 m^2 n + 2 m^3)``: three products a step, two operations a multiply-add.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    m, n = sorted((check_integer("rows", rows), check_integer("columns", columns)))
    return check_integer("steps", steps) * (4 * m**2 * n + 2 * m**3)


def _check_options(method, normalize, rank, generator, steps, coefficients) -> None:
    """Raise unless the options exist, and belong to the method."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}; got {method!r}")
    if normalize not in get_args(Normalization):
        raise ValueError(f"normalize must be 'fro' or 'spectral'; got {normalize!r}")
    if method != "sketch" and (rank, generator) != (None, None):
        raise ValueError(f"rank and generator belong to 'sketch'; got method {method!r}")
    if method not in SCHEMES and (steps, coefficients) != (None, None):
        raise ValueError(f"steps and coefficients belong to Newton-Schulz; got method {method!r}")


def _on_small_side(x: Tensor, function) -> Tensor:
    """Apply a function that commutes with transposition where ``x x^T`` is the small Gram."""
    return function(x.mT).mT if x.shape[-2] > x.shape[-1] else function(x)


def _into_unit_ball(x: Tensor, normalize: Normalization) -> Tensor:
    size = torch.linalg.matrix_norm(x, ord="fro" if normalize == "fro" else 2, keepdim=True)
    return x / size.where(size > 0, 1)


def _by_svd(x: Tensor) -> Tensor:
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    return (u * (s > rank_tolerance(x, s))[..., None, :]) @ vt


def _by_inverse_root(x: Tensor) -> Tensor:
    return _inverse_root(x @ x.mT, 2) @ x


def _inverse_root(gram: Tensor, root: int) -> Tensor:
    """Return ``gram^(-1/root)`` on the space where the eigenvalues are not rounding errors."""
    values, vectors = torch.linalg.eigh(gram)
    present = values > rank_tolerance(gram, values)
    powers = torch.where(present, values.where(present, 1) ** (-1 / root), 0)
    return (vectors * powers[..., None, :]) @ vectors.mT


def _by_sketch(x: Tensor, rank: int | None, generator: torch.Generator | None) -> Tensor:
    """Project on the range of ``G (G^T G) Omega`` (randomised SVD with one power step)."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator for a sketch; got {generator!r}")
    rank = check_integer("rank", rank, high=min(x.shape[-2:]))
    directions = torch.randn(x.shape[-1], rank, generator=generator, device=generator.device)
    sample = x @ (x.mT @ (x @ directions.to(x)))
    basis, _ = torch.linalg.qr(sample)
    return basis @ _by_svd(basis.mT @ x)


def _working_dtype(matrix: Tensor, dtype: torch.dtype | None, iterative: bool) -> torch.dtype:
    if dtype is None:
        return widened(matrix).dtype
    check_dtype(dtype)
    if not iterative and dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be float32 or float64 for this method; got {dtype}")
    return dtype


def _checked_schedule(coefficients: Sequence[Sequence[float]]) -> Schedule:
    if isinstance(coefficients, str) or not isinstance(coefficients, Sequence):
        raise TypeError(f"coefficients must be a sequence of polynomials; got {coefficients!r}")
    if not coefficients:
        raise ValueError("coefficients must hold at least one polynomial; got none")
    return tuple(_checked_polynomial(polynomial) for polynomial in coefficients)


def _checked_polynomial(polynomial: Sequence[float]) -> tuple[float, ...]:
    numbers = not isinstance(polynomial, str) and isinstance(polynomial, Sequence)
    if not numbers or not all(isinstance(c, Real) and not isinstance(c, bool) for c in polynomial):
        raise TypeError(
            "coefficients must hold, for every step, the numbers before x, x^3, x^5, ...; "
            f"got {polynomial!r}"
        )
    if not polynomial or not all(math.isfinite(c) for c in polynomial):
        raise ValueError(
            f"coefficients of a step must be finite and at least one; got {polynomial!r}"
        )
    return tuple(float(c) for c in polynomial)
