"""Optimal policies on finite response spaces: Gibbs tilting, InfAlign's optimum, the baselines.

The InfAlign objective is ``W_r(T(pi) > T(pi0)) - beta KL(pi || pi0)`` (Section 2 of the paper).
Its maximisers are Gibbs policies, ``pi ~ pi0 exp(R* / beta)``, of a reward R* that depends on the
maximiser itself: the derivative of the win rate there (Section 3, the characterisation theorem).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_softmax

from workingpapers.arguments import (
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.infalign.calibration import (
    Ranking,
    as_probabilities,
    as_rewards,
    calibrated_reward,
    size_exponent,
)
from workingpapers.infalign.decoding import BestOfN, Procedure
from workingpapers.infalign.transforms import Identity, Transform
from workingpapers.infalign.winrate import (
    checked,
    decoded_calibration,
    divergence,
    ranked_gradient,
    ranked_win_rate,
)

__all__ = [
    "Solution",
    "beta_for_kl",
    "ctrl_policy",
    "distilled_policy",
    "fixed_point_iteration",
    "infalign_objective",
    "ipo_policy",
    "rlhf_policy",
    "solve_infalign",
    "standardized_reward",
    "stationary_solutions",
]

ROUNDING = 1e-14  # of the objective, relative: what a step may lose without being a step down
LARGEST = np.finfo(float).max
LOG_BETAS = -740.0, 705.0  # exp of less is 0, and of more it overflows
SMALLEST_KL = 1e-10  # nats; less is near the rounding of a divergence
STEP = 1.0  # of log beta, on the way to a wanted divergence
ROOM = 1e-9  # above log(p_1 / q_1) = 0, which is a root where no reward differs
STARTS = 4001  # first masses from which shooting looks for stationary points, twice
REFINEMENTS = 12  # of the starts about the places where the masses come near one
CLIMBS = 9  # ascents from above different rewards that look for what shooting cannot see
CLIMB_STEPS = 1000  # at most, in each of them
LOWERED = 20.0  # what the others' log mass is lowered by
SAME = 1e-3  # total size of the difference of policies that are taken for one


def rlhf_policy(base: ArrayLike, reward: ArrayLike, beta: float) -> NDArray[np.float64]:
    """Compute the KL-regularised optimum ``pi ~ base exp(reward / beta)``.

    With the raw reward this is plain RLHF; with a transformed one, any variant of the method.

    Parameters
    ----------
    base : array_like, shape (M,) or (P, M)
        Base policy pi0; every row sums to one.
    reward : array_like
        Finite rewards of the same shape.
    beta : float
        Weight of the KL divergence, above 0; as small as floats go.

    Returns
    -------
    ndarray
        Policy of the same shape; 0 where the base is 0.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes differ.
    """
    reward = as_rewards("reward", reward)
    base = as_probabilities("base", base, reward.shape)
    return np.exp(log_gibbs(_log(base), reward, check_positive("beta", beta)))


def _log(probs: NDArray) -> NDArray:
    """Return log probabilities, -inf for 0."""
    return np.log(probs, out=np.full_like(probs, -np.inf), where=probs > 0)


def log_gibbs(log_base: NDArray, reward: NDArray, beta: float) -> NDArray[np.float64]:
    """Return the log of the Gibbs policy, finite wherever the base is positive."""
    possible = np.where(np.isneginf(log_base), -np.inf, reward)
    best = possible.max(axis=-1, keepdims=True)  # gets exponent 0, so that nothing overflows
    scale = 0.25 if np.abs(reward).max() > LARGEST / 4 else 1.0  # of differences that overflow
    with np.errstate(over="ignore"):
        exponent = np.maximum((possible * scale - best * scale) / beta / scale, -LARGEST)
    return log_softmax(log_base + exponent, axis=-1)


def beta_for_kl(base: ArrayLike, reward: ArrayLike, kl: float) -> float:
    """Find the beta at which `rlhf_policy` has a given divergence from the base.

    Parameters
    ----------
    base, reward : array_like, shape (M,) or (P, M)
        As for `rlhf_policy`.
    kl : float
        Divergence in nats, at least 1e-10, below which it drowns in rounding; of P prompts the
        mean. It must be less than what beta -> 0 gives, where only the best responses are left.

    Returns
    -------
    float
        beta > 0.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes differ.
    """
    reward = as_rewards("reward", reward)
    base = as_probabilities("base", base, reward.shape)
    kl = check_kl(kl)
    possible = np.where(base > 0, reward, -np.inf)
    best = possible == possible.max(axis=-1, keepdims=True)
    limit = -float(np.log(np.where(best, base, 0).sum(axis=-1)).mean())
    if kl >= limit:
        raise ValueError(f"kl must be less than {limit}, the divergence as beta -> 0, got {kl}")
    log_base = _log(base)
    exponent = int(size_exponent(reward[base > 0], axis=0))
    reward = np.ldexp(np.where(base > 0, reward, 0.0), -exponent)  # so that no spread overflows

    def mean_divergence(beta: float) -> float:
        return float(divergence(np.exp(log_gibbs(log_base, reward, beta)), base).mean())

    with np.errstate(over="ignore"):
        beta = float(np.ldexp(solve_beta(mean_divergence, kl, start=1.0), exponent))
    if not 0 < beta < math.inf:
        raise ValueError(f"reward is too large or too small in size: no float is beta at kl {kl}")
    return beta


def check_kl(kl: float, largest: float = math.inf) -> float:
    """Return a divergence that can be aimed at; raise ValueError for anything else."""
    kl = check_positive("kl", kl)
    if not SMALLEST_KL <= kl <= largest:
        raise ValueError(f"kl must be in [{SMALLEST_KL}, {largest}], got {kl}")
    return kl


def solve_beta(divergence: Callable[[float], float], kl: float, start: float) -> float:
    """Solve ``divergence(beta) = kl`` for a divergence that falls from above kl to 0.

    Raises
    ------
    ValueError
        If no float beta has a divergence of ``kl``.
    """

    def excess(log_beta: float) -> float:
        return float(divergence(math.exp(log_beta))) - kl

    low = high = math.log(start)
    while excess(low) < 0:
        low, high = low - STEP, low
        if low < LOG_BETAS[0]:
            raise ValueError(f"kl must be a divergence that some beta reaches, got {kl}")
    while excess(high) > 0:
        low, high = high, high + STEP
        if high > LOG_BETAS[1]:
            raise ValueError(f"kl must be a divergence that some beta comes down to, got {kl}")
    return math.exp(brentq(excess, low, high, xtol=1e-13, rtol=1e-13)) if low < high else start


@dataclass(frozen=True, eq=False)
class Solution:
    """A stationary point of the InfAlign objective.

    Parameters
    ----------
    policy : ndarray, shape (M,)
        The policy pi.
    objective, win_rate, kl : float
        ``win_rate - beta * kl``, the inference-time win rate against the base, and KL(pi || pi0).
    iterations : int
        Steps taken.
    converged : bool
        Whether ``min(beta, 1) KL(pi || Gibbs policy of R*(pi))`` came down to the tolerance. For
        best of N, where the win rate is concave, ``beta KL`` bounds the distance from the largest
        objective.
    """

    policy: NDArray[np.float64]
    objective: float
    win_rate: float
    kl: float
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class _Problem:
    """One prompt's InfAlign problem on the base's support, checked and ranked once."""

    support: NDArray[np.bool_]
    base: NDArray[np.float64]
    ranking: Ranking
    procedure: Procedure
    beta: float

    @classmethod
    def of(cls, base: ArrayLike, rewards: ArrayLike, procedure: Procedure, beta: float) -> Self:
        check_type("procedure", procedure, Procedure)
        rewards = as_rewards("rewards", rewards)
        if rewards.ndim != 1:
            raise ValueError(f"rewards must have shape (M,), got {rewards.shape}")
        base = as_probabilities("base", base, rewards.shape)
        support = base > 0
        ranking = Ranking.of(rewards[support])
        return cls(support, base[support], ranking, procedure, check_positive("beta", beta))

    def log_start(self, start: ArrayLike | None) -> NDArray[np.float64]:
        """Return the logs of a start with the base's support; by default, of the base."""
        if start is None:
            return np.log(self.base)
        start = as_probabilities("start", start, self.support.shape)
        if np.any((start > 0) != self.support):
            raise ValueError("start must be positive exactly where base is: a mass of 0 stays 0")
        return np.log(start[self.support])

    def whole(self, log_policies: NDArray) -> NDArray[np.float64]:
        """Return policies over all responses."""
        policies = np.zeros((*log_policies.shape[:-1], self.support.size))
        policies[..., self.support] = np.exp(log_policies)
        return policies

    def win_rate(self, log_policy: NDArray) -> float:
        return float(ranked_win_rate(np.exp(log_policy), self.base, self.ranking, self.procedure))

    def kl(self, log_policy: NDArray) -> float:
        return _log_kl(log_policy, np.log(self.base))

    def objective(self, log_policy: NDArray) -> float:
        return self.win_rate(log_policy) - self.beta * self.kl(log_policy)

    def log_response(self, log_policy: NDArray) -> NDArray[np.float64]:
        """Return the log of the Gibbs policy of R* at a policy."""
        reward = ranked_gradient(np.exp(log_policy), self.base, self.ranking, self.procedure)
        return log_gibbs(np.log(self.base), reward, self.beta)

    def gap(self, log_policy: NDArray, log_response: NDArray) -> float:
        """Return KL(policy || response), times beta if below 1: 0 at stationary points alone."""
        return min(self.beta, 1.0) * _log_kl(log_policy, log_response)

    def solution(self, log_policy: NDArray, iterations: int, tol: float) -> Solution:
        return Solution(
            policy=self.whole(log_policy),
            objective=self.objective(log_policy),
            win_rate=self.win_rate(log_policy),
            kl=self.kl(log_policy),
            iterations=iterations,
            converged=self.gap(log_policy, self.log_response(log_policy)) <= tol,
        )


def _log_kl(log_policy: NDArray, log_other: NDArray) -> float:
    """Return the KL divergence of distributions that are given by finite logs."""
    return max(0.0, float(np.exp(log_policy) @ (log_policy - log_other)))


def _mix(log_policy: NDArray, log_other: NDArray, share: float) -> NDArray[np.float64]:
    """Return the geometric mixture ``policy^(1-share) other^share``, as logs."""
    return log_softmax((1 - share) * log_policy + share * log_other)


def infalign_objective(
    policy: ArrayLike, base: ArrayLike, rewards: ArrayLike, procedure: Procedure, beta: float
) -> NDArray[np.float64]:
    """Compute ``W_r(T(policy) > T(base)) - beta KL(policy || base)``.

    Parameters
    ----------
    policy, base, rewards : array_like, shape (M,) or (P, M)
        Policies, whose rows sum to one, and finite rewards.
    procedure : Procedure
        How both policies are decoded.
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    float or ndarray
        Objective, of shape () or (P,); minus infinity where the divergence is infinite.

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If another argument is out of its range, or shapes differ.
    """
    policy, base, ranking = checked(policy, base, rewards, procedure)
    penalty = check_positive("beta", beta) * divergence(policy, base)
    return ranked_win_rate(policy, base, ranking, procedure) - penalty


def solve_infalign(
    base: ArrayLike,
    rewards: ArrayLike,
    procedure: Procedure,
    beta: float,
    start: ArrayLike | None = None,
    tol: float = 1e-10,
    max_iterations: int = 100_000,
) -> Solution:
    """Maximise the InfAlign objective on one prompt by mirror ascent with backtracking.

    A step goes a share eta of the way, in logs, to the Gibbs policy of R* at the present policy;
    eta = 1 is the fixed-point iteration. It is taken if the objective J rises by at least
    ``<J', new - old> - (beta / eta) KL(new || old)``, which small steps do; else eta is halved.

    For best of N the objective is strictly concave, with one stationary point. For worst of N the
    win rate is convex, every full step ascends, and the end depends on the start: see
    `stationary_solutions`.

    Parameters
    ----------
    base, rewards : array_like, shape (M,)
        Base policy, summing to one, and finite rewards.
    procedure : Procedure
        How policy and base are decoded.
    beta : float
        Weight of the KL divergence, above 0.
    start : array_like, shape (M,), optional
        First policy, positive where the base is. By default the base.
    tol : float
        Bound on ``min(beta, 1) KL(pi || Gibbs policy of R*(pi))``, above 0; rounding stops
        progress near 1e-13.
    max_iterations : int
        Most steps to take, at least 1.

    Returns
    -------
    Solution
        The last policy; ``converged`` says whether it meets ``tol``.

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If another argument is out of its range, or shapes differ.
    """
    problem = _Problem.of(base, rewards, procedure, beta)
    tol, steps = check_positive("tol", tol), check_integer("max_iterations", max_iterations)
    return problem.solution(*_climb(problem, problem.log_start(start), tol, steps), tol)


def _climb(
    problem: _Problem, log_policy: NDArray, tol: float, steps: int
) -> tuple[NDArray[np.float64], int]:
    """Ascend until the gap is at most tol; return the last policy, in logs, and the steps taken."""
    eta = 1.0
    for step in range(steps):
        log_response = problem.log_response(log_policy)
        if problem.gap(log_policy, log_response) <= tol:
            return log_policy, step
        log_policy, eta = _ascend(problem, log_policy, log_response, min(1.0, 2 * eta))
    return log_policy, steps


def _ascend(
    problem: _Problem, log_old: NDArray, log_response: NDArray, eta: float
) -> tuple[NDArray[np.float64], float]:
    """Take the first step, of eta, eta / 2, ..., that rises enough; return it and its size."""
    old, value = np.exp(log_old), problem.objective(log_old)
    rounding = ROUNDING * max(1.0, abs(value))
    # J'(old) = beta log(response / old) up to a constant, to which new - old is blind.
    derivative = problem.beta * (log_response - log_old)
    while True:
        log_new = _mix(log_old, log_response, eta)
        rise = derivative @ (np.exp(log_new) - old)
        rise -= problem.beta / eta * _log_kl(log_new, log_old)
        if problem.objective(log_new) >= value + rise - rounding:
            return log_new, eta
        eta /= 2


def fixed_point_iteration(
    base: ArrayLike,
    rewards: ArrayLike,
    procedure: Procedure,
    beta: float,
    damping: float = 0.0,
    iterations: int = 100,
    start: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """Iterate "compute R*, then take its Gibbs policy": the idea that fails for best of N.

    For best of N the map overshoots once beta is small, and the policies oscillate; a fixed
    damping only moves the beta at which that starts. For worst of N it ascends.

    Parameters
    ----------
    base, rewards, procedure, beta, start
        As for `solve_infalign`.
    damping : float
        Share of the present policy, in logs, that is kept; in [0, 1).
    iterations : int
        Number of steps, at least 1.

    Returns
    -------
    ndarray, shape (iterations + 1, M)
        All policies, from the start to the last.

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If another argument is out of its range, or shapes differ.
    """
    problem = _Problem.of(base, rewards, procedure, beta)
    damping = check_nonnegative("damping", damping)
    if damping >= 1:
        raise ValueError(f"damping must be in [0, 1), got {damping}")
    path = [problem.log_start(start)]
    for _ in range(check_integer("iterations", iterations)):
        path.append(_mix(path[-1], problem.log_response(path[-1]), 1 - damping))
    return problem.whole(np.array(path))


def stationary_solutions(
    base: ArrayLike,
    rewards: ArrayLike,
    procedure: Procedure,
    beta: float,
    tol: float = 1e-10,
) -> list[Solution]:
    """Find stationary points of the InfAlign objective on one prompt, by shooting and climbing.

    Stationarity fixes the mass of each group of equal rewards by the masses below: ``log(p_{i+1} /
    q_{i+1}) = log(p_i / q_i) + g(F_i) (G(Q_{i+1}) - G(Q_{i-1})) / (2 beta)``. So one number, the
    worst group's mass, gives all, and it is right where they sum to one. The sum is followed over
    8000 values of that mass, and between them where it nears one and turns. Where N / beta is
    large, the roots can be closer together than that, or than floats are. So the ends of nine
    ascents by `solve_infalign`, from the base and from policies above different rewards, are
    added. For best of N the list is whole: there is one point. For worst of N points may be
    missing, maxima with no start nearby and, sooner, minima and saddles, which no ascent finds.
    Points whose policies differ by less than 1e-3 in total are taken for one.

    Parameters
    ----------
    base, rewards, procedure, beta
        As for `solve_infalign`.
    tol : float
        As for `solve_infalign`: what ``converged`` is judged by.

    Returns
    -------
    list of Solution
        From the highest objective to the lowest; ``iterations`` are those of the root search, or
        of the ascent.

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If another argument is out of its range, or shapes differ.

    Examples
    --------
    An attacker picks the worst of four, and good responses are rare: three stationary points.

    >>> from workingpapers.infalign import WorstOfN
    >>> points = stationary_solutions([0.99, 0.01], [0.0, 1.0], WorstOfN(4), beta=0.2)
    >>> [round(float(point.policy[1]), 7) for point in points]
    [0.0100001, 0.9947743, 0.8635904]
    """
    problem = _Problem.of(base, rewards, procedure, beta)
    tol = check_positive("tol", tol)
    starts = _first_log_ratios(problem)
    high = _excess(starts, problem) >= 0
    found = []
    for i in np.flatnonzero(high[:-1] != high[1:]):
        ends = starts[i], starts[i + 1]
        root, report = brentq(_excess, *ends, args=(problem,), xtol=1e-15, full_output=True)
        log_ratios = np.array([log_ratio for log_ratio, _ in _shoot(problem, root)])
        log_policy = log_softmax(np.log(problem.base) + log_ratios[_group_of(problem.ranking)])
        found.append(problem.solution(log_policy, report.iterations, tol))
    if not isinstance(procedure, BestOfN):
        found += [end for end in _ends(problem, tol) if end.converged]
    solutions = []
    for point in sorted(found, key=lambda point: not point.converged):
        if all(np.abs(point.policy - other.policy).sum() > SAME for other in solutions):
            solutions.append(point)
    return sorted(solutions, key=lambda solution: -solution.objective)


def _first_log_ratios(problem: _Problem) -> NDArray[np.float64]:
    """Return values of log(p_1 / q_1), ascending, between which roots of the excess are sought.

    Even steps and, for roots near 0, even ratios; then the turns of the excess between them.
    """
    widest = problem.procedure.n / problem.beta
    even = np.linspace(-widest, ROOM, STARTS)
    starts = np.union1d(even, -np.geomspace(min(ROOM, widest / 2), widest, STARTS))
    excess = _excess(starts, problem)
    near = np.abs(excess)
    turns = 1 + np.flatnonzero((near[1:-1] < near[:-2]) & (near[1:-1] <= near[2:]))
    low, high = starts[turns - 1], starts[turns + 1]
    for _ in range(REFINEMENTS):  # all brackets at once, each to a quarter of its width
        inner = np.linspace(low, high, 9)
        starts = np.union1d(starts, inner)
        least = np.abs(_excess(inner, problem)).argmin(axis=0)
        low = inner[np.maximum(least - 1, 0), np.arange(turns.size)]
        high = inner[np.minimum(least + 1, 8), np.arange(turns.size)]
    return starts


def _ends(problem: _Problem, tol: float) -> Iterator[Solution]:
    """Climb from the base, and from nearly all mass on the responses above some reward."""
    log_base, groups = np.log(problem.base), _group_of(problem.ranking)
    for floor in np.unique(np.linspace(0, groups.max(), CLIMBS).astype(int)):
        start = log_softmax(log_base - LOWERED * (groups < floor))
        log_policy, iterations = _climb(problem, start, min(tol, 1e-13), CLIMB_STEPS)
        yield problem.solution(log_policy, iterations, tol)


def _excess(start: ArrayLike, problem: _Problem) -> NDArray[np.float64]:
    """Return by how much the masses exceed one in sum, for one start or many."""
    for _, total in _shoot(problem, start):  # noqa: B007
        pass
    return total - 1


def _shoot(problem: _Problem, start: ArrayLike) -> Iterator[tuple[NDArray, NDArray]]:
    """Follow stationarity upwards: log(p_i / q_i) and F_i for every group i."""
    ranking = problem.ranking
    groups = np.unique(ranking.first)
    masses = np.add.reduceat(ranking.sort(problem.base), groups)
    calibrated = decoded_calibration(problem.base, ranking, problem.procedure)
    rises = np.diff(calibrated[groups], append=np.nan)  # none above the best group
    log_ratio, total = np.asarray(start), 0.0
    for mass, rise in zip(masses, rises, strict=True):
        # A group's mass above e is too large already; the bound keeps exp from overflowing.
        total = total + np.exp(np.minimum(log_ratio + math.log(mass), 1.0))
        yield log_ratio, total
        slope = problem.procedure.slope(np.minimum(total, 1.0))
        log_ratio = log_ratio + slope * rise / problem.beta


def _group_of(ranking: Ranking) -> NDArray[np.int_]:
    """Return the number of every response's group of equal rewards, from the worst."""
    return ranking.unsort(np.unique(ranking.last, return_inverse=True)[1])


def standardized_reward(rewards: ArrayLike, probs: ArrayLike) -> NDArray[np.float64]:
    """Scale rewards to mean 0 and standard deviation 1 under the base policy, per prompt.

    The z-scored baseline: prompts of different scales get comparable rewards, but their shape,
    and so what an outlier can buy, stays.

    Parameters
    ----------
    rewards : array_like, shape (M,) or (P, M)
        Finite rewards; on no prompt all equal where the base is positive.
    probs : array_like
        The base policy pi0, of the same shape; every row sums to one.

    Returns
    -------
    ndarray
        Of the same shape.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes differ.
    """
    rewards = as_rewards("rewards", rewards)
    probs = as_probabilities("probs", probs, rewards.shape)
    highest = np.where(probs > 0, rewards, -np.inf).max(axis=-1)
    lowest = np.where(probs > 0, rewards, np.inf).min(axis=-1)
    if np.any(highest == lowest):
        raise ValueError("rewards must differ between the responses of every prompt")
    size = np.maximum(np.abs(highest), np.abs(lowest))[..., None]
    rewards = _scaled(rewards, size_exponent(size, axis=-1)[..., None])
    centred = rewards - (probs * rewards).sum(axis=-1, keepdims=True)
    # Scaled once more: where the rewards differ by little, squares underflow.
    size = np.where(probs > 0, np.abs(centred), 0.0)
    centred = _scaled(centred, size_exponent(size, axis=-1)[..., None])
    return centred / np.sqrt((probs * centred**2).sum(axis=-1, keepdims=True))


def _scaled(rewards: NDArray, exponent: NDArray[np.int_]) -> NDArray[np.float64]:
    """Return rewards over 2^exponent; those that no response of the base has may overflow."""
    with np.errstate(over="ignore"):
        scaled = np.ldexp(rewards, -exponent)
    if not np.isfinite(scaled).all():
        raise ValueError("rewards must not dwarf those of the responses that the base can give")
    return scaled


def ctrl_policy(
    base: ArrayLike, rewards: ArrayLike, transform: Transform, beta: float
) -> NDArray[np.float64]:
    """Compute what calibrate-transform-RL converges to: ``pi ~ base exp(Phi(C) / beta)``.

    Parameters
    ----------
    base, rewards : array_like, shape (M,) or (P, M)
        Base policy, whose rows sum to one, and finite rewards.
    transform : Transform
        Phi.
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    ndarray
        Policy of the same shape.

    Raises
    ------
    TypeError
        If ``transform`` is none.
    ValueError
        If another argument is out of its range, or shapes differ.
    """
    check_type("transform", transform, Transform)
    return rlhf_policy(base, transform(calibrated_reward(rewards, base)), beta)


def ipo_policy(base: ArrayLike, rewards: ArrayLike, beta: float) -> NDArray[np.float64]:
    """Compute the population solution of IPO on pairs that the base draws and the reward judges.

    With ``s = log(pi / pi0)`` the loss is the mean of ``(s(winner) - s(loser) - 1 / (2 beta))^2``
    (Azar et al., 2024). Its derivative vanishes where ``s = (C - 1/2) / beta`` up to a constant.
    So IPO is `ctrl_policy` with the identity transform, the optimum for one draw.

    Parameters
    ----------
    base, rewards : array_like, shape (M,) or (P, M)
        Base policy, whose rows sum to one, and finite rewards.
    beta : float
        Weight of the KL divergence, above 0.

    Returns
    -------
    ndarray
        Policy of the same shape.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes differ.
    """
    return ctrl_policy(base, rewards, Identity(), beta)


def distilled_policy(base: ArrayLike, rewards: ArrayLike, m: int) -> NDArray[np.float64]:
    """Compute the ideal result of best-of-M distillation: the best of M draws of the base.

    Parameters
    ----------
    base, rewards : array_like, shape (M,) or (P, M)
        Base policy, whose rows sum to one, and finite rewards.
    m : int
        Number of draws that are distilled into one, at least 1.

    Returns
    -------
    ndarray
        Policy of the same shape.

    Raises
    ------
    ValueError
        If an argument is out of its range, or shapes differ.
    """
    return BestOfN(check_integer("m", m)).distribution(base, rewards)
