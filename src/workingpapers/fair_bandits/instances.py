"""The max-min fair bandit: its instances, its regret, and what a run gives back."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    as_array,
    as_reals,
    check_choice,
    check_integer,
    check_positive,
    check_type,
)
from workingpapers.fair_bandits.matching import bottleneck_matching, check_pairs

__all__ = [
    "MU10",
    "MaxMinInstance",
    "RunResult",
    "hard_instance",
    "random_instance",
]

Noise = Literal["gaussian", "bernoulli"]

# Two means closer than this share of the largest |mean| are a tie when gaps are *reported*. No
# learning algorithm uses it.
TIE = 1e-12

BLOCK = 500  # rounds that are drawn at once where every single reward or choice counts


@dataclass(frozen=True, eq=False)
class MaxMinInstance:
    """Players, arms, and the law of the rewards.

    Player i, alone on arm k, sees a reward of mean ``means[i, k]``. Players on the same arm
    collide, and each of them gets 0. The worst-off player counts: round t costs
    ``gamma_star - min_i means[i, a_i] 1{i is alone on a_i}``, and the sum over rounds is the
    max-min pseudo-regret R(T). It is the smallest *mean* that enters, not the smallest reward.
    No round costs more than gamma*, unless some mean is negative: then such a pair costs more
    than a collision does.

    Parameters
    ----------
    means : array_like, shape (N, K)
        Finite, N <= K; in [0, 1] for Bernoulli rewards. Kept as a read-only copy.
    noise : {"gaussian", "bernoulli"}
        Normal rewards of standard deviation ``sigma``, or rewards 0 and 1.
    sigma : float, optional
        Scale for which rewards are sub-Gaussian; the confidence bounds use it. Default 1 for
        Gaussian rewards; Bernoulli rewards have 1/2, which cannot be changed.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> instance = MaxMinInstance([[0.9, 0.5], [0.8, 0.3]])
    >>> instance.gamma_star, instance.min_gap
    (0.5, 0.2)
    """

    means: NDArray[np.float64]
    noise: Noise = "gaussian"
    sigma: float | None = None

    def __post_init__(self) -> None:
        means = as_reals("means", self.means)
        check_pairs("means", means)
        check_choice("noise", self.noise, get_args(Noise))
        scale = 1.0 if self.noise == "gaussian" else 0.5
        sigma = scale if self.sigma is None else check_positive("sigma", self.sigma)
        if self.noise == "bernoulli":
            if means.min() < 0 or means.max() > 1:
                raise ValueError("means of Bernoulli rewards must lie in [0, 1]")
            if sigma != scale:
                raise ValueError(f"sigma of Bernoulli rewards is 0.5, got {sigma}")
        means.setflags(write=False)
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "sigma", sigma)

    def __reduce__(self) -> tuple:
        """Copy and unpickle through the constructor: the means of a copy are read-only too."""
        return type(self), (self.means, self.noise, self.sigma)

    @property
    def num_players(self) -> int:
        """Number of players N."""
        return self.means.shape[0]

    @property
    def num_arms(self) -> int:
        """Number of arms K."""
        return self.means.shape[1]

    @cached_property
    def _bottleneck(self) -> tuple[float, NDArray[np.int_]]:
        return bottleneck_matching(self.means)

    @property
    def gamma_star(self) -> float:
        """Max-min value gamma*: what the worst-off player has under the best matching."""
        return self._bottleneck[0]

    @property
    def optimal_matching(self) -> NDArray[np.int_]:
        """A matching of shape (N,) whose smallest mean is gamma*."""
        return self._bottleneck[1].copy()

    @property
    def gaps(self) -> NDArray[np.float64]:
        """Gaps ``gamma* - means``, shape (N, K); only positive ones are gaps in the theory."""
        return self.gamma_star - self.means

    @property
    def min_gap(self) -> float:
        """Smallest positive gap Delta; infinite if no pair is below gamma*.

        Gaps of at most 1e-12 times the largest absolute mean count as rounding, not as gaps.
        """
        tie = TIE * np.abs(self.means).max()
        return float(self.gaps[self.gaps > tie].min(initial=math.inf))

    def regret(self, arms: ArrayLike) -> NDArray[np.float64]:
        """Price the choices of all players in a round, or in many rounds.

        Parameters
        ----------
        arms : array_like of int, shape (..., N)
            Arm of every player, in 0..K-1, collisions included.

        Returns
        -------
        ndarray, shape (...)
            ``gamma_star - min_i means[i, arms[..., i]] 1{i is alone}``.

        Raises
        ------
        ValueError
            If ``arms`` are not N integers in 0..K-1 a round.
        """
        arms = self._as_arms(arms)
        earned = self.means[np.arange(self.num_players), arms] * alone(arms, self.num_arms)
        return self.gamma_star - earned.min(axis=-1)

    def rewards(self, arms: ArrayLike, rounds: int, rng: np.random.Generator) -> NDArray:
        """Draw the rewards of players that are alone on their arms for some rounds.

        Parameters
        ----------
        arms : array_like of int, shape (N,)
            The arm of every player, in 0..K-1, the same in all rounds.
        rounds : int
            Number of rounds, n, at least 0.
        rng : numpy.random.Generator
            Source of randomness. ``n`` calls with one round draw what one call with n rounds does.

        Returns
        -------
        ndarray, shape (n, N)
            The rewards, round by round.

        Raises
        ------
        TypeError
            If ``rng`` is not a Generator.
        ValueError
            If ``arms`` are not N integers in 0..K-1, or ``rounds`` is not an integer >= 0.
        """
        arms = self._as_arms(arms, (self.num_players,))
        rounds = check_integer("rounds", rounds, low=0)
        check_type("rng", rng, np.random.Generator)
        means = self.means[np.arange(self.num_players), arms]
        if self.noise == "bernoulli":
            return (rng.random((rounds, self.num_players)) < means).astype(float)
        return means + self.sigma * rng.standard_normal((rounds, self.num_players))

    def reward_sums(self, pulls: ArrayLike, rng: np.random.Generator) -> NDArray:
        """Draw, for every pair, the sum of as many rewards as it was pulled.

        Parameters
        ----------
        pulls : array_like of int, shape (N, K)
            Collision-free pulls r of each pair, at least 0.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray, shape (N, K)
            One draw a pair, of N(r mu, r sigma^2) or Binomial(r, mu).

        Raises
        ------
        TypeError
            If ``rng`` is not a Generator.
        ValueError
            If ``pulls`` are not integers >= 0 of shape (N, K).
        """
        pulls = as_array("pulls", pulls, "integers", self.means.shape).astype(int, copy=False)
        if pulls.min() < 0:
            raise ValueError(f"pulls must be integers >= 0, got {pulls.min()}")
        check_type("rng", rng, np.random.Generator)
        if self.noise == "bernoulli":
            return rng.binomial(pulls, self.means).astype(float)
        noise = rng.standard_normal(self.means.shape)
        return pulls * self.means + self.sigma * np.sqrt(pulls) * noise

    def _as_arms(self, arms: ArrayLike, shape: tuple[int, ...] | None = None) -> NDArray[np.int_]:
        arms, num_arms = as_array("arms", arms, "integers", shape), self.num_arms
        if arms.shape[-1:] != (self.num_players,):
            raise ValueError(f"arms must be {self.num_players} a round, got shape {arms.shape}")
        if arms.min(initial=0) < 0 or arms.max(initial=0) >= num_arms:
            raise ValueError(f"arms must lie in 0..{num_arms - 1}, got {arms.min()}..{arms.max()}")
        return arms.astype(int, copy=False)


def alone(arms: NDArray[np.int_], num_arms: int) -> NDArray[np.bool_]:
    """Say which players are alone on their arm.

    Parameters
    ----------
    arms : ndarray of int, shape (..., N)
        The arm of every player.
    num_arms : int
        Number of arms K.

    Returns
    -------
    ndarray of bool, shape (..., N)
        False for the players that collide.
    """
    rounds = arms.reshape(-1, arms.shape[-1])
    cells = rounds + num_arms * np.arange(len(rounds))[:, None]  # a cell is an arm in a round
    occupants = np.bincount(cells.ravel(), minlength=num_arms * len(rounds))
    return (occupants[cells] == 1).reshape(arms.shape)


# The ten players and ten arms of the paper's comparison with earlier methods.
MU10: NDArray[np.float64] = np.array(
    [
        [0.9, 0.4, 0.8, 0.1, 0.3, 0.05, 0.2, 0.1, 0.3, 0.2],
        [0.4, 0.3, 0.3, 0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.4],
        [0.1, 0.05, 0.1, 0.4, 0.1, 0.2, 0.9, 0.3, 0.4, 0.1],
        [0.05, 0.1, 0.9, 0.2, 0.9, 0.75, 0.1, 0.9, 0.25, 0.05],
        [0.8, 0.3, 0.1, 0.7, 0.1, 0.4, 0.05, 0.2, 0.75, 0.05],
        [0.4, 0.05, 0.3, 0.7, 0.05, 0.1, 0.25, 0.75, 0.6, 0.05],
        [0.9, 0.3, 0.3, 0.8, 0.1, 0.25, 0.7, 0.05, 0.2, 0.3],
        [0.3, 0.1, 0.4, 0.25, 0.05, 0.9, 0.25, 0.1, 0.05, 0.4],
        [0.8, 0.75, 0.1, 0.2, 0.4, 0.05, 0.3, 0.2, 0.1, 0.25],
        [0.4, 0.4, 0.9, 0.7, 0.25, 0.2, 0.05, 0.1, 0.4, 0.25],
    ]
)
MU10.setflags(write=False)


def hard_instance(a: int, b: int, delta: float, extra: int = 0) -> MaxMinInstance:
    """Build the instance on which exploring one pair takes one whole matching.

    Player 0 is the root; then come a players of set A and b of set B, and arm i is the home of
    player i: N = 1 + a + b. The root's home gives 1/2 = gamma*, the others' give 1; the root
    likes the homes of A, the players of B like the root's home (both 1). The a b pairs (player
    of A, home of B) give 1/2 - delta, all other pairs 0. A matching of positive value other than
    the homes turns one cycle ``root -> home of i -> home of j -> root``, so it shows one of the
    a b pairs, and costs delta.

    Parameters
    ----------
    a, b : int
        Sizes of A and B, at least 1.
    delta : float
        Gap of the hard pairs, in (1e-12, 1/2): smaller ones are lost in rounding.
    extra : int
        Number of arms that belong to nobody, at least 0: they give the root 1/2 - delta and the
        others 0, and K = N + extra.

    Returns
    -------
    MaxMinInstance
        With Gaussian rewards of variance 1. Players and arms 1..a are A, a+1..a+b are B.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    a, b, delta, extra = check_hard(a, b, delta, extra)
    num_players = 1 + a + b
    set_a, set_b = slice(1, 1 + a), slice(1 + a, num_players)
    means = np.zeros((num_players, num_players + extra))
    np.fill_diagonal(means, 1.0)
    means[0, 0] = 0.5
    means[0, set_a] = 1.0
    means[set_b, 0] = 1.0
    means[set_a, set_b] = 0.5 - delta
    means[0, num_players:] = 0.5 - delta
    return MaxMinInstance(means)


def check_hard(a: int, b: int, delta: float, extra: int) -> tuple[int, int, float, int]:
    """Return the arguments of `hard_instance`; raise ValueError if one is out of its range."""
    sizes = check_integer("a", a), check_integer("b", b)
    gap = check_positive("delta", delta)
    if not TIE < 0.5 - (0.5 - gap) < 0.5:  # the gap as the rounded means have it
        raise ValueError(f"delta must lie in ({TIE}, 0.5), got {delta!r}")
    return *sizes, gap, check_integer("extra", extra, low=0)


def random_instance(num_players: int, num_arms: int, seed: int) -> MaxMinInstance:
    """Draw the means independently and uniformly from [0, 1].

    Parameters
    ----------
    num_players, num_arms : int
        N and K, 1 <= N <= K.
    seed : int
        Seed of the means, at least 0.

    Returns
    -------
    MaxMinInstance
        With Gaussian rewards of variance 1.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    num_players = check_integer("num_players", num_players)
    num_arms = check_integer("num_arms", num_arms, low=num_players)
    rng = np.random.default_rng(check_integer("seed", seed, low=0, high=None))
    return MaxMinInstance(rng.random((num_players, num_arms)))


@dataclass(frozen=True, eq=False)
class RunResult:
    """Regret curves of independent runs of one algorithm on one instance.

    While the players hold their arms the pseudo-regret grows at a constant rate, so a curve is
    kept as its corners, not as an array of length T. A phase in which the arms change every round
    (a message, a musical-chairs game) is one straight piece with the right ends.

    Parameters
    ----------
    times : ndarray of int, shape (S, E)
        Corners of each run's curve, from 0 to the horizon T; short rows are filled up with T.
    cum_regret : ndarray, shape (S, E)
        Regret R(t) at these times.
    epochs : ndarray of int, shape (S,)
        Number of eliminations (DFE), or of epochs or plans that were begun (baselines).
    comm_rounds : ndarray of int, shape (S,)
        Rounds spent on talking instead of playing, the start-up of the protocol included.
    comm_regret : ndarray, shape (S,)
        The part of the regret that they cost.
    failures : ndarray of int, shape (S,)
        Number of times that the algorithm met what has no place on the good event.
    eliminated_in : ndarray of int, shape (S, N, K), optional
        Epoch in which each pair was dropped, -1 if never; None for algorithms that drop none.
    """

    times: NDArray[np.int_]
    cum_regret: NDArray[np.float64]
    epochs: NDArray[np.int_]
    comm_rounds: NDArray[np.int_]
    comm_regret: NDArray[np.float64]
    failures: NDArray[np.int_]
    eliminated_in: NDArray[np.int_] | None = field(default=None)

    @property
    def horizon(self) -> int:
        """Number of rounds T."""
        return int(self.times[0, -1])

    @property
    def final(self) -> NDArray[np.float64]:
        """Regret R(T) of each run, shape (S,)."""
        return self.cum_regret[:, -1]

    @property
    def plausible_history(self) -> NDArray[np.bool_]:
        """Plausible pairs after 0, 1, 2, ... eliminations, shape (S, max(epochs) + 1, N, K)."""
        if self.eliminated_in is None:
            raise ValueError("this algorithm eliminates no pairs, so it has no plausible_history")
        epoch = np.arange(self.epochs.max() + 1)[:, None, None]
        fell = self.eliminated_in[:, None]
        return (fell < 0) | (fell >= epoch)

    def at(self, grid: ArrayLike) -> NDArray[np.float64]:
        """Read the curves at given times.

        Parameters
        ----------
        grid : array_like, shape (G,)
            Times in [0, T].

        Returns
        -------
        ndarray, shape (S, G)
            Regret by linear interpolation between the corners.

        Raises
        ------
        ValueError
            If ``grid`` is not one-dimensional, is not real and finite, or leaves [0, T].

        Notes
        -----
        Algorithms that know T depend on it: R(t) read here, t < T, is not R(t) of a run whose
        horizon is t, where the confidence intervals are narrower.
        """
        grid = as_reals("grid", grid)
        if grid.ndim != 1 or not ((grid >= 0) & (grid <= self.horizon)).all():
            raise ValueError(f"grid must be 1-D with times in [0, {self.horizon}]")
        rows = zip(self.times, self.cum_regret, strict=True)
        return np.array([np.interp(grid, times, regret) for times, regret in rows])


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its regret as consecutive pieces of constant slope, and its tallies.

    Parameters
    ----------
    rounds : ndarray of int, shape (M,)
        Length of each piece; the sum is the horizon.
    slopes : ndarray, shape (M,)
        Regret a round on each piece.
    epochs, comm_rounds, comm_regret, failures, eliminated_in
        As in `RunResult`, for this run.
    """

    rounds: NDArray[np.int_]
    slopes: NDArray[np.float64]
    epochs: int = 0
    comm_rounds: int = 0
    comm_regret: float = 0.0
    failures: int = 0
    eliminated_in: NDArray[np.int_] | None = None

    def corners(self) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
        """Return the curve's corners: times and regrets, pieces of equal slope joined."""
        rounds, slopes = self.rounds[self.rounds > 0], self.slopes[self.rounds > 0]
        ends = np.append(slopes[1:] != slopes[:-1], True)
        times = np.cumsum(rounds)[ends]
        regret = np.cumsum(rounds * slopes)[ends]
        return np.append(0, times), np.append(0.0, regret)


def collect(runs: Sequence[Run]) -> RunResult:
    """Gather runs of the same horizon into one result.

    Parameters
    ----------
    runs : sequence of Run
        At least one.

    Returns
    -------
    RunResult
        The runs in the given order.

    Raises
    ------
    ValueError
        If some runs have ``eliminated_in`` and others do not.
    """
    curves = [run.corners() for run in runs]
    width = max(len(times) for times, _ in curves)

    def filled(row: NDArray) -> NDArray:
        return np.pad(row, (0, width - len(row)), mode="edge")

    tallies = {
        name: np.array([getattr(run, name) for run in runs])
        for name in ("epochs", "comm_rounds", "comm_regret", "failures")
    }
    fell = [run.eliminated_in for run in runs if run.eliminated_in is not None]
    if fell and len(fell) < len(runs):
        raise ValueError(f"{len(fell)} of {len(runs)} runs have eliminated_in: it must be all or 0")
    return RunResult(
        times=np.array([filled(times) for times, _ in curves]),
        cum_regret=np.array([filled(regret) for _, regret in curves]),
        eliminated_in=np.array(fell) if fell else None,
        **tallies,
    )


def start_runs(
    instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
) -> tuple[int, list[np.random.Generator]]:
    """Check the arguments that every simulation takes, and make one random stream a run.

    Parameters
    ----------
    instance : MaxMinInstance
        The problem.
    horizon : int
        Number of rounds T, in 1..2^63-1.
    n_seeds : int
        Number of independent runs S, at least 1.
    rng : int or numpy.random.Generator
        Seed (at least 0), or a generator to spawn the streams from: no number is drawn from it.

    Returns
    -------
    horizon : int
        T.
    streams : list of numpy.random.Generator
        S streams. The first streams do not depend on how many there are.

    Raises
    ------
    TypeError
        If ``instance`` or ``rng`` has the wrong type.
    ValueError
        If a number is out of its range.
    """
    check_type("instance", instance, MaxMinInstance)
    horizon, n_seeds = check_integer("horizon", horizon), check_integer("n_seeds", n_seeds)
    if not isinstance(rng, np.random.Generator):
        if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
            raise TypeError(f"rng must be an integer seed or a Generator, got {type(rng).__name__}")
        rng = np.random.default_rng(check_integer("rng", rng, low=0, high=None))
    return horizon, rng.spawn(n_seeds)


def blocks(rounds: int) -> Iterator[int]:
    """Cut a number of rounds into blocks of at most BLOCK."""
    for start in range(0, rounds, BLOCK):
        yield min(BLOCK, rounds - start)
