"""What DFE is compared with: earlier distributed algorithms, and yardsticks.

Every class has the method ``simulate(instance, horizon, n_seeds, rng) -> RunResult`` of `DFE`.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from workingpapers.arguments import (
    check_choice,
    check_fields,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.fair_bandits.instances import (
    MaxMinInstance,
    Run,
    RunResult,
    alone,
    blocks,
    collect,
    start_runs,
)
from workingpapers.fair_bandits.matching import bottleneck_matching
from workingpapers.fair_bandits.theory import confidence_radius

__all__ = [
    "CentralizedUCB",
    "ExploreThenCommit",
    "LeshemAuction",
    "MyFairBandit",
    "Oracle",
    "SumOptimal",
    "UniformPlay",
]

Confidence = Literal["paper", "hoeffding"]


@dataclass(frozen=True)
class Oracle:
    """Play a max-min matching from the first round: no regret."""

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = start_runs(instance, horizon, n_seeds, rng)
        return collect([_held(instance, instance.optimal_matching, horizon) for _ in streams])


@dataclass(frozen=True)
class SumOptimal:
    """Play a matching of largest *total* mean, which knows the means and may starve a player."""

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = start_runs(instance, horizon, n_seeds, rng)
        _, matching = linear_sum_assignment(instance.means, maximize=True)
        return collect([_held(instance, matching, horizon) for _ in streams])


def _held(instance: MaxMinInstance, matching: NDArray[np.int_], horizon: int) -> Run:
    return Run(np.array([horizon]), instance.regret(matching[None]))


@dataclass(frozen=True)
class UniformPlay:
    """Every player picks a uniformly random arm in every round: regret linear in T."""

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = start_runs(instance, horizon, n_seeds, rng)
        rounds = np.diff(np.unique(np.linspace(0, horizon, 101).astype(int)))
        regrets = np.array([_explore_uniformly(instance, n, streams)[1] for n in rounds])
        return collect([Run(rounds, slopes) for slopes in (regrets / rounds[:, None]).T])


@dataclass(frozen=True)
class ExploreThenCommit:
    """Explore all pairs equally, then play the best matching of the empirical means for good.

    Parameters
    ----------
    m : int or "theory"
        Sweeps, each a Latin square of K rounds. ``"theory"`` takes ``ceil(8 sigma^2 ln T /
        Delta^2)``: then a mean is off by Delta / 2 with probability at most 2 / T. It must be told
        the smallest gap Delta, which no player knows. Sweeps that do not fit into T are cut off.

    Raises
    ------
    ValueError
        If ``m`` is neither an integer of at least 1 nor ``"theory"``.
    """

    m: int | Literal["theory"] = "theory"

    def __post_init__(self) -> None:
        if self.m != "theory":
            check_fields(self, check_integer, "m")

    def sweeps(self, instance: MaxMinInstance, horizon: int) -> int:
        """Return the number of sweeps m on an instance.

        Parameters
        ----------
        instance : MaxMinInstance
            The problem.
        horizon : int
            Number of rounds T, in 1..2^63-1.

        Returns
        -------
        int
            At least 1.

        Raises
        ------
        TypeError
            If ``instance`` has the wrong type.
        ValueError
            If ``horizon`` is out of its range.
        """
        check_type("instance", instance, MaxMinInstance)
        horizon = check_integer("horizon", horizon)
        if self.m != "theory":
            return self.m
        return max(1, math.ceil(8 * (instance.sigma / instance.min_gap) ** 2 * math.log(horizon)))

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = start_runs(instance, horizon, n_seeds, rng)
        rounds = min(self.sweeps(instance, horizon) * instance.num_arms, horizon)
        pulls, regret = _round_robin(instance, rounds)
        runs = []
        for stream in streams:
            matching = _empirical_best(instance.reward_sums(pulls, stream), pulls)
            slopes = np.array([regret / rounds, float(instance.regret(matching))])
            runs.append(Run(np.array([rounds, horizon - rounds]), slopes, epochs=1))
        return collect(runs)


@dataclass(frozen=True)
class LeshemAuction:
    """Explore in turns, agree on a matching by a distributed auction, play it; ever longer.

    Epoch k = 1, 2, ... has ``ceil(exploration ln(k + 1))`` rounds of round-robin exploration, an
    auction of ``10 N^3`` rounds, and ``2^k`` rounds of the bottleneck matching of the empirical
    means of all rewards so far. Of the auction (Leshem, 2023) only the outcome and the price are
    simulated: each of its rounds is charged gamma*.

    Parameters
    ----------
    exploration : float
        Length factor L of the exploration, above 0.

    Raises
    ------
    ValueError
        If ``exploration`` is not above 0.
    """

    exploration: float = 1000.0

    def __post_init__(self) -> None:
        check_fields(self, check_positive, "exploration")

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = _start_charged(instance, horizon, n_seeds, rng)
        return collect([self._run(instance, horizon, stream) for stream in streams])

    def _run(self, instance: MaxMinInstance, horizon: int, rng: np.random.Generator) -> Run:
        ledger = _Ledger(horizon)
        counts, sums = np.zeros(instance.means.shape, int), np.zeros(instance.means.shape)
        auctions = k = 0
        while ledger.left > 0:
            k += 1
            explore = ledger.grant(math.ceil(self.exploration * math.log(k + 1)))
            pulls, regret = _round_robin(instance, explore)
            ledger.enter(explore, regret)
            counts, sums = counts + pulls, sums + instance.reward_sums(pulls, rng)
            auction = ledger.grant(10 * instance.num_players**3)
            ledger.enter(auction, auction * instance.gamma_star)
            auctions += auction
            exploit = ledger.grant(2**k)
            ledger.enter(exploit, exploit * float(instance.regret(_empirical_best(sums, counts))))
        return Run(*ledger.pieces(), k, auctions, auctions * instance.gamma_star)


@dataclass(frozen=True)
class CentralizedUCB:
    """Play the bottleneck matching of the upper confidence bounds, with one mind for all players.

    Parameters
    ----------
    c : float
        Exploration constant of the radius, above 0.
    patience : float
        A matching is kept until some pair of it has been seen this fraction more often: about
        ``ln(T) / patience`` plans instead of T. 0 plans in every round.

    Raises
    ------
    ValueError
        If ``c`` is not above 0, or ``patience`` is negative or not finite.
    """

    c: float = 4.0
    patience: float = 0.1

    def __post_init__(self) -> None:
        check_fields(self, check_positive, "c")
        check_fields(self, check_nonnegative, "patience")

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = start_runs(instance, horizon, n_seeds, rng)
        return collect([self._run(instance, horizon, stream) for stream in streams])

    def _run(self, instance: MaxMinInstance, horizon: int, rng: np.random.Generator) -> Run:
        ledger, players = _Ledger(horizon), np.arange(instance.num_players)
        counts, sums = np.zeros(instance.means.shape, int), np.zeros(instance.means.shape)
        plans = 0
        while ledger.left > 0:
            radius = confidence_radius(counts, horizon, self.c, instance.sigma)
            _, matching = bottleneck_matching(sums / np.maximum(counts, 1) + radius)
            rarest = counts[players, matching].min()
            hold = ledger.grant(max(1, math.ceil(self.patience * rarest)))
            ledger.enter(hold, hold * float(instance.regret(matching)))
            pulls = np.zeros_like(counts)
            pulls[players, matching] = hold
            counts, sums = counts + pulls, sums + instance.reward_sums(pulls, rng)
            plans += 1
        return Run(*ledger.pieces(), plans)


@dataclass(frozen=True)
class MyFairBandit:
    """My Fair Bandit: raise a common target while the players can find arms that meet it.

    Nobody communicates. Epoch k = 1, 2, ... has four phases: ``ceil(c1 ln(k + 1))`` rounds of
    uniformly random arms, whose rewards count if they are free of collisions;
    ``ceil(c2 ln(k + 1))`` rounds of matching, in which a player that collided picks a random arm
    among those it accepts, ``mean >= gamma - C``, and otherwise stays; K rounds in which all learn
    whether the last of these was free of collisions; ``ceil(c3 (4/3)^k)`` rounds of the matching
    with the highest target that worked in epochs ``ceil(k/2)..k``. A target that worked is raised
    by ``eps``. From time to time the target starts again at 0 with ``eps = 1 / (1 + ln k)``.

    Parameters
    ----------
    c1, c2, c3 : float
        Length factors of exploration, matching and exploitation, above 0.
    confidence : {"paper", "hoeffding"}
        ``C = sqrt(K / ln V)`` for V collision-free rewards, or ``2 sigma sqrt(ln T / V)``. With
        the first, arms that miss the target by Delta are accepted until V > exp(K / Delta^2).

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Source: Bistritz, Baharav, Leshem and Bambos (2020). Where it is silent: of equal targets the
    latest is taken; a player that accepts no arm picks among all, and reports failure; while
    nothing has worked the last arms are kept; in a failed consensus phase the players that
    collided keep colliding, so each of its rounds costs gamma*.
    """

    c1: float = 1000.0
    c2: float = 2000.0
    c3: float = 3000.0
    confidence: Confidence = "paper"

    def __post_init__(self) -> None:
        check_fields(self, check_positive, "c1", "c2", "c3")
        check_choice("confidence", self.confidence, get_args(Confidence))

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the baseline; arguments, result and errors as for `DFE.simulate`."""
        horizon, streams = _start_charged(instance, horizon, n_seeds, rng)
        runs = _FairRuns(self, instance, horizon, streams)
        for k, restart, step in _target_steps():
            runs.explore(k)
            if restart:
                runs.target = np.zeros(len(streams))
            runs.match(k)
            runs.agree()
            runs.exploit(k)
            runs.target = runs.target + step * runs.worked
            if runs.ledger.left == 0:
                break
        return runs.result(k)


class _FairRuns:
    """The state of all runs of My Fair Bandit, side by side; the phases have common lengths."""

    def __init__(
        self,
        rules: MyFairBandit,
        instance: MaxMinInstance,
        horizon: int,
        streams: Sequence[np.random.Generator],
    ) -> None:
        shape = (len(streams), *instance.means.shape)
        self.rules, self.instance, self.horizon, self.streams = rules, instance, horizon, streams
        self.ledger = _Ledger(horizon)
        self.counts, self.sums = np.zeros(shape, dtype=int), np.zeros(shape)
        self.target = np.zeros(len(streams))  # gamma of each run
        self.tried: list[tuple[NDArray, NDArray]] = []  # targets (-1: failed) and their arms
        self.talk, self.talk_regret = 0, np.zeros(len(streams))

    def explore(self, k: int) -> None:
        """Play random arms; count the rewards that are free of collisions."""
        rounds = self.ledger.grant(math.ceil(self.rules.c1 * math.log(k + 1)))
        pulls, regret = _explore_uniformly(self.instance, rounds, self.streams)
        self.ledger.enter(rounds, regret)
        self.counts = self.counts + pulls
        draws = zip(pulls, self.streams, strict=True)
        self.sums = self.sums + [self.instance.reward_sums(pull, rng) for pull, rng in draws]

    def match(self, k: int) -> None:
        """Look for a matching in which everybody accepts its arm."""
        means = self.sums / np.maximum(self.counts, 1)
        accepted = means >= self.target[:, None, None] - self.width()
        rounds = self.ledger.grant(math.ceil(self.rules.c2 * math.log(k + 1)))
        self.arms, self.worked, regret = _settle(self.instance, accepted, rounds, self.streams)
        self.ledger.enter(rounds, regret)

    def width(self) -> NDArray[np.float64]:
        """Return the width C of every pair's confidence interval, shape (S, N, K)."""
        if self.rules.confidence == "hoeffding":
            return confidence_radius(self.counts, self.horizon, 4.0, self.instance.sigma)
        known = self.counts > 1  # only then is the logarithm positive
        log_counts = np.log(np.where(known, self.counts, 2))
        return np.where(known, np.sqrt(self.instance.num_arms / log_counts), np.inf)

    def agree(self) -> None:
        """Let everybody learn whether it worked: who collided goes on colliding for K rounds."""
        rounds = self.ledger.grant(self.instance.num_arms)
        price = np.where(self.worked, self.instance.regret(self.arms), self.instance.gamma_star)
        self.ledger.enter(rounds, rounds * price)
        self.talk, self.talk_regret = self.talk + rounds, self.talk_regret + rounds * price
        self.tried.append((np.where(self.worked, self.target, -1.0), self.arms))

    def exploit(self, k: int) -> None:
        """Play the arms of the highest target that worked in the later half of the epochs."""
        recent = self.tried[math.ceil(k / 2) - 1 :][::-1]
        targets, arms = (np.array(column) for column in zip(*recent, strict=True))
        best = arms[targets.argmax(axis=0), np.arange(len(self.streams))]
        rounds = self.ledger.grant(math.ceil(self.rules.c3 * (4 / 3) ** k))
        self.ledger.enter(rounds, rounds * self.instance.regret(best))

    def result(self, epochs: int) -> RunResult:
        """Gather the runs."""
        rounds, slopes = self.ledger.pieces()
        columns = zip(slopes.T, self.talk_regret, strict=True)
        return collect([Run(rounds, slope, epochs, self.talk, price) for slope, price in columns])


def _start_charged(
    instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
) -> tuple[int, list[np.random.Generator]]:
    """Start runs with rounds that are charged gamma* as the most that a round can cost."""
    started = start_runs(instance, horizon, n_seeds, rng)
    if instance.means.min() < 0:
        raise ValueError(
            f"means must be >= 0 where rounds are charged gamma*, got {instance.means.min()}"
        )
    return started


def _target_steps() -> Iterator[tuple[int, bool, float]]:
    """Yield epoch k, whether the target starts again at 0, and the step eps, for MyFairBandit."""
    waited, expiry, step = 0, 1, 1.0
    for k in itertools.count(1):
        waited += 1
        restart = waited == expiry
        if restart:
            waited, expiry, step = 0, max(1, k // 3), 1 / (1 + math.log(k))
        yield k, restart, step


def _explore_uniformly(
    instance: MaxMinInstance, rounds: int, streams: Sequence[np.random.Generator]
) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
    """Play random arms; return the collision-free pulls (S, N, K) and the regrets (S,)."""
    num_players, num_arms = instance.means.shape
    pulls = np.zeros((len(streams), num_players, num_arms), dtype=int)
    regret = np.zeros(len(streams))
    for n in blocks(rounds):
        arms = np.stack([rng.integers(num_arms, size=(n, num_players)) for rng in streams])
        seed, t, player = np.nonzero(alone(arms, num_arms))
        np.add.at(pulls, (seed, player, arms[seed, t, player]), 1)
        regret += instance.regret(arms).sum(axis=1)
    return pulls, regret


def _settle(
    instance: MaxMinInstance,
    accepted: NDArray[np.bool_],
    rounds: int,
    streams: Sequence[np.random.Generator],
) -> tuple[NDArray[np.int_], NDArray[np.bool_], NDArray[np.float64]]:
    """Let players that collide pick again among the arms they accept.

    Returns the last arms (S, N), whether all are content with them (S,), and the regrets (S,).
    """
    num_seeds, num_players, num_arms = accepted.shape
    content = accepted.any(axis=-1)
    accepted = accepted | ~content[..., None]
    first_accepted = np.argsort(~accepted, axis=-1, kind="stable")
    arms = np.zeros((num_seeds, num_players), dtype=int)
    moving = np.ones((num_seeds, num_players), dtype=bool)
    regret = np.zeros(num_seeds)
    for n in blocks(rounds):
        busy = np.flatnonzero(moving.any(axis=-1))
        played = np.repeat(arms[:, None], n, axis=1)
        if len(busy):
            luck = np.stack([streams[s].random((n, num_players)) for s in busy])
            nth = (luck * accepted[busy].sum(axis=-1)[:, None]).astype(int)
            picks = first_accepted[busy[:, None, None], np.arange(num_players), nth]
            played[busy], moving[busy] = _settle_block(arms[busy], moving[busy], picks, num_arms)
        arms = played[:, -1]
        regret += instance.regret(played).sum(axis=1)
    return arms, content.all(axis=-1) & ~moving.any(axis=-1), regret


def _settle_block(
    arms: NDArray[np.int_], moving: NDArray[np.bool_], picks: NDArray[np.int_], num_arms: int
) -> tuple[NDArray[np.int_], NDArray[np.bool_]]:
    """Play a round for each of the picks, (S, n, N); return what was played and who collided."""
    played = np.empty_like(picks)
    for t in range(picks.shape[1]):
        arms = np.where(moving, picks[:, t], arms)
        moving = ~alone(arms, num_arms)
        played[:, t] = arms
        if not moving.any():
            played[:, t:] = arms[:, None]
            break
    return played, moving


class _Ledger:
    """Rounds and regrets of a run, phase by phase, up to the horizon."""

    def __init__(self, horizon: int) -> None:
        self.left = horizon
        self._rounds: list[int] = []
        self._regrets: list[float | NDArray[np.float64]] = []

    def grant(self, rounds: int) -> int:
        """Return how many of the rounds still fit."""
        return min(rounds, self.left)

    def enter(self, rounds: int, regret: float | NDArray[np.float64]) -> None:
        """Book a phase."""
        self.left -= rounds
        self._rounds.append(rounds)
        self._regrets.append(regret)

    def pieces(self) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
        """Return lengths (M,) and regrets a round (M, ...) of the phases."""
        rounds, regrets = np.array(self._rounds), np.array(self._regrets)
        divisor = np.maximum(rounds, 1).reshape(-1, *[1] * (regrets.ndim - 1))
        return rounds, regrets / divisor


def _round_robin(instance: MaxMinInstance, rounds: int) -> tuple[NDArray[np.int_], float]:
    """Play arm (t + i) mod K in round t; return the pulls (N, K) and the regret."""
    num_players, num_arms = instance.means.shape
    matchings = (np.arange(num_arms)[:, None] + np.arange(num_players)) % num_arms
    times = -((np.arange(num_arms) - rounds) // num_arms)  # rounded up, without overflow
    pulls = np.zeros(instance.means.shape, dtype=int)
    pulls[np.arange(num_players), matchings] = times[:, None]
    return pulls, float(times @ instance.regret(matchings))


def _empirical_best(sums: NDArray[np.float64], counts: NDArray[np.int_]) -> NDArray[np.int_]:
    """Return the bottleneck matching of the empirical means; unseen pairs count as worst."""
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    return bottleneck_matching(means)[1]
