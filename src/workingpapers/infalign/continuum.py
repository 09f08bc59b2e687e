"""The continuum: many responses of small mass, where only the transform, beta and N matter.

With distinct rewards and small masses the calibrated reward u is uniform on [0, 1] under the base
policy, and a policy is a density f of u with distribution function F. Neither the rewards nor the
base appears in what follows, so a transform can be designed once, by numerics on [0, 1]::

    KL = int f log f,        W = 1 - int G(F(u)) g(u) du,

with the procedure's G and g = G'. The optimum solves ``(log f)' = g(F) g(u) / beta`` with
F(0) = 0 and F(1) = 1.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from scipy.optimize import OptimizeResult, brentq, minimize_scalar
from scipy.special import xlogy

from workingpapers.arguments import (
    as_reals,
    check_fields,
    check_integer,
    check_positive,
    check_type,
)
from workingpapers.infalign.decoding import Kind, Procedure, procedure_of
from workingpapers.infalign.optimal import check_kl, log_gibbs, solve_beta
from workingpapers.infalign.transforms import LARGEST_EXPONENT, Exponential, Transform

__all__ = [
    "Density",
    "Optimal",
    "best_exponent",
    "continuum_beta_for_kl",
    "continuum_curve",
    "continuum_win_rate",
    "density",
    "distilled_density",
    "distilled_kl",
    "distilled_win_rate",
    "identity_kl",
    "identity_win_rate",
    "optimal_beta_for_kl",
    "optimal_curve",
    "optimal_density",
    "virial_win_rate",
]

CELLS = 8000
# Equal steps of an angle: the points crowd at both ends, where densities are steep.
_ANGLE = np.linspace(0, math.pi / 2, CELLS + 1)
QUANTILES = np.sin(_ANGLE) ** 2
QUANTILES.setflags(write=False)
_RATE = np.sin(2 * _ANGLE) * (math.pi / 2 / CELLS)  # du for one step of the angle

CELL_MASS = 0.1  # a density with more in one cell is too steep for the grid
KL_LIMIT = 5.0  # nats; for steep transforms and large N the grid ends sooner, and says so
TOLERANCE = 1e-10  # of the differential equation
MASS_TOLERANCE = 1e-6  # of the decoded base, which must have mass one
OPTIMUM_TOLERANCE = 1e-5  # the same, of the optimum
DECODED_TOLERANCE = 1e-3  # the same, of a decoded policy
VIRIAL_TOLERANCE = 1e-4  # of the optimum's win rate; for beta above 1, times beta
LARGEST_LOG = 50.0  # of a density; the grid resolves none above exp(17)
LARGEST_RATIO = 1e4  # beta / N at which f(1) - 1 still holds the win rate


def _cumulative(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Integrate over u from 0 to each grid point, by cubics through four points of the angle.

    As functions of the angle, values are even and the rate is odd about both ends, which gives
    the points beyond them.
    """
    h = values * _RATE
    padded = np.concatenate([[-h[1]], h, [-h[-2]]])
    cells = (13 * (h[:-1] + h[1:]) - padded[:-3] - padded[3:]) / 24
    return np.concatenate([[0.0], np.cumsum(cells)])


def _integral(values: NDArray[np.float64]) -> float:
    """Integrate over u from 0 to 1."""
    return float(_cumulative(values)[-1])


def _normalized(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log of the density that is proportional to exp(logs)."""
    logs = logs - logs.max()
    mass = _integral(np.exp(logs))
    if not mass > 0:
        raise ValueError("the density is too steep for the grid: it is 0 at all but one point")
    return logs - math.log(mass)


def _divergence(log_density: NDArray[np.float64]) -> float:
    """Return KL = int f log f."""
    f = np.exp(log_density)
    return max(0.0, _integral(xlogy(f, f)))


@dataclass(frozen=True, eq=False)
class Density:
    """A policy in the continuum: the density f of the calibrated reward u.

    Parameters
    ----------
    log_density : array_like, shape (8001,)
        log f at the grid points `u`, up to a constant; -inf where f is 0.

    Raises
    ------
    ValueError
        If it has the wrong shape, or holds NaN or plus infinity, or is so steep that one cell of
        the grid holds more than a tenth of the mass.
    """

    log_density: NDArray[np.float64]

    def __post_init__(self) -> None:
        logs = as_reals("log_density", self.log_density, QUANTILES.shape, infinite=True)
        if not math.isfinite(logs.max()):
            raise ValueError(f"log_density must have a finite maximum, got {logs.max()}")
        object.__setattr__(self, "log_density", _normalized(logs))
        heaviest = float(np.diff(self.cdf).max())
        if heaviest > CELL_MASS:
            raise ValueError(
                f"the density is too steep for the grid (beta too small?): one cell of "
                f"{CELLS} holds {heaviest:.2g} of the mass, at most {CELL_MASS} is resolved"
            )

    @property
    def u(self) -> NDArray[np.float64]:
        """Grid points, from 0 to 1, closer together at both ends; read-only."""
        return QUANTILES

    @cached_property
    def f(self) -> NDArray[np.float64]:
        """Density at the grid points `u`."""
        return np.exp(self.log_density)

    @cached_property
    def cdf(self) -> NDArray[np.float64]:
        """Distribution function F at the grid points `u`, from 0 to 1."""
        cdf = np.maximum(_cumulative(self.f), 0.0)
        return np.minimum(cdf / cdf[-1], 1.0)

    @cached_property
    def kl(self) -> float:
        """``KL = int f log f``, in nats."""
        return _divergence(self.log_density)

    def decoded(self, procedure: Procedure) -> NDArray[np.float64]:
        """Return the density ``g(F) f`` of the response that a procedure keeps.

        Raises
        ------
        TypeError
            If ``procedure`` is none.
        """
        check_type("procedure", procedure, Procedure)
        return procedure.slope(self.cdf) * self.f


def density(transform: Transform, beta: float) -> Density:
    """Compute what calibrate-transform-RL converges to: ``f ~ exp(Phi / beta)``.

    Parameters
    ----------
    transform : Transform
        Phi.
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    Density
        The policy.

    Raises
    ------
    TypeError
        If ``transform`` is none.
    ValueError
        If ``beta`` is out of its range, or too small for the grid.
    """
    check_type("transform", transform, Transform)
    beta = check_positive("beta", beta)
    return Density(log_gibbs(np.zeros_like(QUANTILES), transform(QUANTILES), beta))


def continuum_win_rate(policy: Density, procedure: Procedure) -> float:
    """Compute the inference-time win rate ``W = 1 - int G(F(u)) g(u) du`` against the base.

    ``1 - N int F^N u^(N-1) du`` for the best of N.

    Parameters
    ----------
    policy : Density
        The policy; the base has f = 1.
    procedure : Procedure
        How both are decoded.

    Returns
    -------
    float
        Win rate in [0, 1].

    Raises
    ------
    TypeError
        If an argument is of the wrong class.
    ValueError
        If N is so large that the grid does not resolve what is decoded, of the base (N above about
        20 000) or of the policy: the density g(F) f must have mass one within 1e-6 or 1e-3.
    """
    check_type("policy", policy, Density)
    check_type("procedure", procedure, Procedure)
    slope = procedure.slope(QUANTILES)
    for name, decoded, tolerance in (
        ("base", slope, MASS_TOLERANCE),
        ("policy", policy.decoded(procedure), DECODED_TOLERANCE),
    ):
        mass = _integral(decoded)
        if not abs(mass - 1) <= tolerance:
            raise ValueError(
                f"procedure must have an n small enough for the grid, got {procedure}: the "
                f"{name}'s decoded density has mass {mass:.7g} instead of 1"
            )
    return 1 - _integral(procedure.cdf(policy.cdf) * slope)


def continuum_curve(
    transform: Transform, procedure: Procedure, betas: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Trace a transform's win rate against its divergence.

    Parameters
    ----------
    transform : Transform
        Phi.
    procedure : Procedure
        How policy and base are decoded.
    betas : array_like, shape (B,)
        Weights of the KL divergence, above 0.

    Returns
    -------
    kl, win_rate : ndarray, shape (B,)
        One point of the curve for every beta.

    Raises
    ------
    TypeError
        If ``transform`` or ``procedure`` is none.
    ValueError
        If a beta is out of its range, or too small for the grid.
    """
    return _curve([density(transform, beta) for beta in _betas(betas)], procedure)


def _betas(betas: ArrayLike) -> list[float]:
    betas = as_reals("betas", betas)
    if betas.ndim != 1:
        raise ValueError(f"betas must have shape (B,), got {betas.shape}")
    return [check_positive("betas", beta) for beta in betas]


def _curve(policies: list[Density], procedure: Procedure) -> tuple[NDArray, NDArray]:
    win_rates = [continuum_win_rate(policy, procedure) for policy in policies]
    return np.array([policy.kl for policy in policies]), np.array(win_rates)


def continuum_beta_for_kl(transform: Transform, kl: float) -> float:
    """Find the beta at which `density` has a given divergence from the base.

    Parameters
    ----------
    transform : Transform
        Phi, not constant.
    kl : float
        Divergence in nats, in [1e-10, 5]; rounding hides less.

    Returns
    -------
    float
        beta > 0.

    Raises
    ------
    TypeError
        If ``transform`` is none.
    ValueError
        If ``kl`` is out of its range or not reached by any beta, or ``transform`` is constant, or
        too steep for the grid (as `FirstOrder` is from N of some millions).
    """
    check_type("transform", transform, Transform)
    phi, kl = transform(QUANTILES), check_kl(kl, KL_LIMIT)
    if phi.min() == phi.max():
        raise ValueError(f"transform must not be constant, got {transform}")
    flat = np.zeros_like(phi)

    def divergence(beta: float) -> float:
        return _divergence(_normalized(log_gibbs(flat, phi, beta)))

    # A small divergence is half the variance of Phi / beta. The scale keeps squares finite.
    scale = float(np.abs(phi).max())
    deviation = phi / scale - _integral(phi / scale)
    spread = scale * math.sqrt(_integral(deviation**2))
    if not spread > 0:
        raise ValueError(f"transform must rise at more than an end of the grid, got {transform}")
    return solve_beta(divergence, kl, start=spread / math.sqrt(2 * kl))


def best_exponent(n: int, kl: float, kind: Kind) -> tuple[float, float]:
    """Find the exponent t whose `Exponential` has the largest win rate at a given divergence.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    kl : float
        Divergence in nats, in [1e-10, 5].
    kind : {"best", "worst"}
        Which draw is kept; t is sought in [0.1, 700] for the best and [-700, -0.1] for the worst.

    Returns
    -------
    t : float
        The exponent. The optimum is flat: t is less certain than the win rate. If it is an end of
        its range, as for the best of 32 at 2 nats, the best exponent may lie beyond.
    win_rate : float
        Its inference-time win rate.

    Raises
    ------
    ValueError
        If an argument is out of its range, or too large for the grid.
    """
    procedure, kl = procedure_of(n, kind), check_kl(kl, KL_LIMIT)
    sign = 1.0 if kind == "best" else -1.0

    def won(size: float) -> float:
        transform = Exponential(sign * size)
        policy = density(transform, continuum_beta_for_kl(transform, kl))
        return continuum_win_rate(policy, procedure)

    ends = 0.1, LARGEST_EXPONENT
    result = minimize_scalar(
        lambda log_size: -won(math.exp(log_size)),
        bounds=np.log(ends),
        method="bounded",
        options={"xatol": 1e-4},
    )
    size = max(math.exp(result.x), *ends, key=won)  # the search itself never reaches an end
    return sign * size, won(size)


def optimal_density(n: int, beta: float, kind: Kind) -> Density:
    """Solve for the optimum of the InfAlign objective in the continuum, by shooting.

    From the end where the derivative vanishes (the worst responses for best of N, the best ones
    for worst of N), with distance s and mass E(s) from there, the optimality condition is
    ``(log f)' = +- N^2 (E s)^(N-1) / beta``, E' = f. The unknown log f(s=0) is the root of
    E(1) = 1. For best of N it is unique, because the objective is concave.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    beta : float
        Weight of the KL divergence, above 0.
    kind : {"best", "worst"}
        Which of the draws is kept.

    Returns
    -------
    Density
        The optimal policy.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``beta`` is too small or ``n`` too large for the
        grid: if the density's mass is off 1 by more than 1e-5, or the win rate off
        `virial_win_rate` by more than 1e-4 (1e-4 beta for beta above 1).

    Notes
    -----
    The grid of 8000 cells resolves the best of N down to beta = 1e-3 for N up to 32, 3e-3 up to 64
    and 3e-2 up to 200, and the worst of N down to 1e-5 for N up to 200. At these ends
    the best of 32, 64 and 200 has a divergence of 1.28, 0.61 and 0.15 nats; `optimal_beta_for_kl`,
    whose search steps past its aim, finds up to 1, 0.5 and 0.1.
    """
    procedure, beta = procedure_of(n, kind), check_positive("beta", beta)
    n = procedure.n
    rate = (1.0 if kind == "best" else -1.0) * n**2 / beta

    def slopes(s: float, state: NDArray) -> tuple[float, float]:
        log_f, mass = state
        # Trial steps may overshoot: masses lie in [0, 1], and nothing must overflow.
        mass = min(max(float(mass), 0.0), 1.0)
        return rate * (mass * s) ** (n - 1), math.exp(min(log_f, LARGEST_LOG))

    def full(s: float, state: NDArray) -> float:
        return state[1] - 1

    full.terminal = True

    def excess(log_f: float) -> float:
        """Return E(1) - 1, or what is left of the way where E reaches 1 before."""
        end = _integrate(slopes, log_f, events=full)
        return 1 - end.t[-1] if end.status == 1 else end.y[1, -1] - 1

    try:
        start = brentq(excess, *_bracket(n, beta, kind), xtol=1e-13)
        log_f = _integrate(slopes, start, t_eval=QUANTILES).y[0]
        mass = _integral(np.exp(np.minimum(log_f, LARGEST_LOG)))
        if not abs(mass - 1) <= OPTIMUM_TOLERANCE:
            raise ValueError(f"the density's mass is {mass:.8g} instead of 1")
        optimum = Density(log_f if kind == "best" else log_f[::-1])  # the grid is symmetric
        off = continuum_win_rate(optimum, procedure) - _virial(optimum, n, beta, kind)
        if not abs(off) <= VIRIAL_TOLERANCE * max(1.0, beta):
            raise ValueError(f"the win rate is off the virial one by {abs(off):.2g}")
    except ValueError as error:
        raise ValueError(
            f"beta = {beta} is too small or n = {n} too large for the {kind} of n on this grid: "
            f"{error}"
        ) from error
    return optimum


def _integrate(slopes: Callable, log_f: float, **options: object) -> OptimizeResult:
    solved = solve_ivp(
        slopes, (0, 1), (log_f, 0.0), method="DOP853", rtol=TOLERANCE, atol=TOLERANCE, **options
    )
    if solved.status < 0:
        raise ValueError(f"the differential equation is too steep: {solved.message}")
    return solved


def _bracket(n: int, beta: float, kind: Kind) -> tuple[float, float]:
    """Return values of log f(s=0) with too little and with too much mass.

    Over all s, log f changes by at most N / beta. Best of N: f rises, so f(0) = 1 is too much and
    exp(-N / beta) too little. Worst of N: f falls, so 1 is too little. From f(0) = c it is still
    c / 2 or more at s = 2 / c, which makes a mass of 1, once c is as large as given here.
    """
    if kind == "best":
        return -n / beta, 0.0
    log_power = math.log(n**2 / ((2 * n - 1) * beta * math.log(2))) + (2 * n - 1) * math.log(2)
    return 0.0, max(math.log(2), log_power / n)


def optimal_curve(
    n: int, kind: Kind, betas: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Trace the coupled optimum's win rate against its divergence: no transform is above it.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    kind : {"best", "worst"}
        Which of the draws is kept.
    betas : array_like, shape (B,)
        Weights of the KL divergence, above 0.

    Returns
    -------
    kl, win_rate : ndarray, shape (B,)
        One point of the curve for every beta.

    Raises
    ------
    ValueError
        If an argument is out of its range, or a beta is too small for the grid.
    """
    procedure = procedure_of(n, kind)
    return _curve([optimal_density(n, beta, kind) for beta in _betas(betas)], procedure)


def optimal_beta_for_kl(n: int, kl: float, kind: Kind) -> float:
    """Find the beta at which `optimal_density` has a given divergence from the base.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    kl : float
        Divergence in nats, in [1e-10, 5], and less for large N: see `optimal_density`.
    kind : {"best", "worst"}
        Which of the draws is kept.

    Returns
    -------
    float
        beta > 0.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``kl`` or ``n`` too large for the grid.
    """
    n, kl = procedure_of(n, kind).n, check_kl(kl, KL_LIMIT)
    # At first order, the divergence is half the variance of FirstOrder(n, kind) / beta.
    deviation = n**2 / (2 * n - 1) * math.sqrt(1 / (4 * n - 1) - 1 / (4 * n**2))
    try:
        return solve_beta(
            lambda beta: optimal_density(n, beta, kind).kl, kl, deviation / math.sqrt(2 * kl)
        )
    except ValueError as error:
        raise ValueError(f"kl = {kl} is too large for n = {n} on this grid: {error}") from error


def virial_win_rate(optimum: Density, n: int, beta: float, kind: Kind) -> float:
    """Compute the optimum's win rate from one boundary value of its density.

    Integrating ``u f'(u)`` by parts, once as it is and once with the optimality condition put in,
    gives ``W = (beta / N) (f(1) - 1)`` for the best of N and ``W = 1 - (beta / N) (1 - f(0))``
    for the worst. So the worst of N saturates at 1 - beta / N.

    Parameters
    ----------
    optimum : Density
        ``optimal_density(n, beta, kind)``; for another policy the result means nothing.
    n, beta, kind
        As there; beta at most 10 000 N, above which ``f - 1`` is rounding.

    Returns
    -------
    float
        Win rate.

    Raises
    ------
    TypeError
        If ``optimum`` is no density.
    ValueError
        If another argument is out of its range.
    """
    check_type("optimum", optimum, Density)
    n, beta = procedure_of(n, kind).n, check_positive("beta", beta)
    if beta / n > LARGEST_RATIO:
        raise ValueError(
            f"beta must be at most {LARGEST_RATIO:g} n, got {beta}: f is 1 but for noise"
        )
    return _virial(optimum, n, beta, kind)


def _virial(optimum: Density, n: int, beta: float, kind: Kind) -> float:
    if kind == "best":
        return beta / n * float(optimum.f[-1] - 1)
    return 1 - beta / n * float(1 - optimum.f[0])


@dataclass(frozen=True)
class Optimal(Transform):
    """The transform whose policy, at the same beta, is the coupled optimum: R* as a map of u.

    ``Phi(u) = beta log(f(u) / f(1))`` with f the `optimal_density`; between grid points it is
    linear in the angle. It depends on beta: at another beta its policy is not the optimum.

    Parameters
    ----------
    n : int
        Number of draws N, at least 1.
    beta : float
        Weight of the KL divergence, above 0.
    kind : {"best", "worst"}
        Which of the draws is kept.

    Raises
    ------
    ValueError
        If an argument is out of its range, or ``beta`` is too small for the grid.
    """

    n: int
    beta: float
    kind: Kind

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "n")
        check_fields(self, check_positive, "beta")
        self._values  # noqa: B018 (what cannot be solved is an error here)

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return f"optimal, {self.kind} of {self.n}, beta {self.beta:g}"

    @cached_property
    def _values(self) -> NDArray[np.float64]:
        logs = optimal_density(self.n, self.beta, self.kind).log_density
        return self.beta * (logs - logs[-1])

    def _map(self, quantile: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.interp(np.arcsin(np.sqrt(quantile)), _ANGLE, self._values)


def identity_win_rate(beta: float) -> float:
    """Return the identity transform's win rate without decoding: ``1 / (1 - e^(-1/beta)) - beta``.

    Parameters
    ----------
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    float
        Win rate in (1/2, 1).

    Raises
    ------
    ValueError
        If ``beta`` is out of its range.
    """
    beta = check_positive("beta", beta)
    if beta < 10:
        return -1 / math.expm1(-1 / beta) - beta
    x = 1 / beta  # small: the terms above would cancel
    return 0.5 + x / 12 - x**3 / 720 + x**5 / 30240


def identity_kl(beta: float) -> float:
    """Return the identity transform's divergence: ``W / beta - log(beta (e^(1/beta) - 1))``.

    Parameters
    ----------
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    float
        Divergence in nats.

    Raises
    ------
    ValueError
        If ``beta`` is out of its range.
    """
    beta = check_positive("beta", beta)
    if beta < 10:
        x = min(1 / beta, 800.0)  # from there on exp(-x) is 0
        rest = -math.expm1(-x)
        return x * math.exp(-x) / rest - 1 - math.log(beta) - math.log(rest)
    x = 1 / beta
    return x**2 / 24 - x**4 / 960 + x**6 / 36288 - x**8 / 1382400


def distilled_density(m: float) -> Density:
    """Compute the ideal result of best-of-M distillation: ``f = M u^(M-1)``.

    It is also the log transform's policy at beta = 1 / (M - 1).

    Parameters
    ----------
    m : float
        Number of draws M that are distilled into one, at least 1; any real number.

    Returns
    -------
    Density
        The policy.

    Raises
    ------
    ValueError
        If ``m`` is out of its range, or too large for the grid.
    """
    power = _check_draws(m) - 1
    if power == 0:
        return Density(np.zeros_like(QUANTILES))
    logs = np.log(QUANTILES, out=np.full_like(QUANTILES, -np.inf), where=QUANTILES > 0)
    return Density(power * logs)


def _check_draws(m: float) -> float:
    m = check_positive("m", m)
    if m < 1:
        raise ValueError(f"m must be >= 1, got {m}")
    return m


def distilled_kl(m: float) -> float:
    """Return the divergence ``log M - (M - 1) / M`` of best-of-M distillation.

    Parameters
    ----------
    m : float
        Number of draws M, at least 1.

    Returns
    -------
    float
        Divergence in nats.

    Raises
    ------
    ValueError
        If ``m`` is out of its range.
    """
    m = _check_draws(m)
    return math.log(m) - (m - 1) / m


def distilled_win_rate(m: float) -> float:
    """Return the win rate ``M / (M + 1)`` of best-of-M distillation.

    It is the same for one draw and for the best of N, for every N: F = u^M gives ``1 - N int
    u^(MN + N - 1) du = M / (M + 1)``. So what was distilled is lost to a second best-of-N.

    Parameters
    ----------
    m : float
        Number of draws M, at least 1.

    Returns
    -------
    float
        Win rate in [1/2, 1).

    Raises
    ------
    ValueError
        If ``m`` is out of its range.
    """
    m = _check_draws(m)
    return m / (m + 1)
