"""DFE, Decentralized Fair Elimination: explore what is plausible, compare, drop, repeat.

An epoch has three steps. *Explore*: play matchings that together cover all plausible pairs, each
for 2^p rounds in epoch p. *Communicate* the empirical means. *Eliminate* the pairs that are too
bad for an optimal matching (type 1) and those that no matching can contain any more (type 2).

The simulation is event-driven. While a matching is held, the pseudo-regret grows at a known rate
and only the sums of the rewards matter: one draw for each pair and epoch. A run to any horizon
costs O(log T) epochs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    INT64_MAX,
    as_reals,
    check_choice,
    check_fields,
    check_nonnegative,
    check_positive,
)
from workingpapers.fair_bandits.communication import (
    StartUp,
    code_length,
    decode,
    encode,
    epoch_message,
    start_up,
)
from workingpapers.fair_bandits.instances import (
    MaxMinInstance,
    Run,
    RunResult,
    blocks,
    collect,
    start_runs,
)
from workingpapers.fair_bandits.matching import (
    Cover,
    allowed_pairs,
    as_graph,
    bottleneck_matching,
    exploration_cover,
)
from workingpapers.fair_bandits.theory import confidence_radius

__all__ = ["DFE", "Elimination", "EpochRecord", "Knowledge", "eliminate"]

Communication = Literal["free", "collision"]
CommRegret = Literal["exact", "bound"]
Draws = Literal["sums", "rounds"]


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What the players know together between two epochs; all matrices have shape (N, K).

    Parameters
    ----------
    plausible : ndarray of bool
        Pairs that are still in play, P.
    counts : ndarray of int
        Rewards seen of each pair, over the whole run, n.
    sums : ndarray
        Sums of these rewards, S.
    lower, upper : ndarray
        Confidence bounds LCB and UCB. Those of a dropped pair stay as they were.
    """

    plausible: NDArray[np.bool_]
    counts: NDArray[np.int_]
    sums: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @classmethod
    def nothing(cls, shape: tuple[int, int]) -> "Knowledge":
        """Return the state before the first round: everything is plausible."""
        unknown = np.full(shape, np.inf)
        return cls(np.ones(shape, bool), np.zeros(shape, int), np.zeros(shape), -unknown, unknown)


@dataclass(frozen=True, eq=False)
class Elimination:
    """What one elimination step does.

    Parameters
    ----------
    g_low : float
        Lower confidence bound on gamma*: the bottleneck value of the LCBs.
    by_bound : ndarray of bool, shape (N, K)
        Pairs that fall by type 1: their UCB is below ``g_low``.
    by_structure : ndarray of bool, shape (N, K)
        Pairs that fall by type 2: no matching of what is left contains them.
    failed : bool
        True if nothing would be left, which the good event excludes; then nothing falls.
    """

    g_low: float
    by_bound: NDArray[np.bool_]
    by_structure: NDArray[np.bool_]
    failed: bool

    @property
    def fallen(self) -> NDArray[np.bool_]:
        """Pairs that fall by either type, shape (N, K)."""
        return self.by_bound | self.by_structure


def eliminate(plausible: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> Elimination:
    """Find the plausible pairs that an optimal matching does not need.

    Parameters
    ----------
    plausible : array_like of bool, shape (N, K)
        Plausible pairs P.
    lower, upper : array_like, shape (N, K)
        Confidence bounds of all pairs, dropped ones included; lower <= upper, maybe infinite.

    Returns
    -------
    Elimination
        Both types of elimination.

    Raises
    ------
    ValueError
        If an argument has the wrong shape or kind, a bound is NaN, or a lower one above its upper.
    """
    plausible = as_graph(plausible, "plausible")
    lower = as_reals("lower", lower, plausible.shape, infinite=True)
    upper = as_reals("upper", upper, plausible.shape, infinite=True)
    if (lower > upper).any():
        raise ValueError("lower must be <= upper for every pair")
    g_low, _ = bottleneck_matching(lower)
    by_bound = plausible & (upper < g_low)
    survivors = plausible & ~by_bound
    by_structure = survivors & ~allowed_pairs(survivors)
    if not (survivors & ~by_structure).any():
        nothing = np.zeros_like(plausible)
        return Elimination(g_low, nothing, nothing, failed=True)
    return Elimination(g_low, by_bound, by_structure, failed=False)


def block_length(growth: float, epoch: int) -> int:
    """Return ``ceil(growth^p)``: for how many rounds epoch p holds each matching.

    Parameters
    ----------
    growth : float
        Base b, at least 1.
    epoch : int
        Epoch p.

    Returns
    -------
    int
        At most 2^63 - 1, which no horizon exceeds.
    """
    if epoch * math.log2(growth) > 64:  # the power may be beyond the floats
        return INT64_MAX
    return min(math.ceil(growth**epoch), INT64_MAX)


@dataclass(frozen=True, eq=False)
class EpochRecord:
    """All that happened in one epoch of one run.

    Parameters
    ----------
    epoch : int
        Epoch number p, from 0.
    start : int
        Rounds played before it.
    matchings : ndarray of int, shape (L, N)
        The matchings, in the order of play.
    block : int
        Rounds that each matching is meant to be held.
    rounds : ndarray of int, shape (L,)
        Rounds that it was held: fewer where the horizon came first.
    slopes : ndarray, shape (L,)
        Regret a round of each matching.
    before : Knowledge
        What was known at the start.
    after : Knowledge
        What is known at the end; the same as ``before`` if the epoch was cut off.
    elimination : Elimination or None
        None if the horizon came before the end of the communication.
    comm_rounds : int
        Rounds of communication.
    comm_regret : float
        Their regret.
    """

    epoch: int
    start: int
    matchings: NDArray[np.int_]
    block: int
    rounds: NDArray[np.int_]
    slopes: NDArray[np.float64]
    before: Knowledge
    after: Knowledge
    elimination: Elimination | None = None
    comm_rounds: int = 0
    comm_regret: float = 0.0

    @property
    def explored(self) -> int:
        """Round at which the exploration ended."""
        return self.start + int(self.rounds.sum())

    @property
    def end(self) -> int:
        """Round at which the epoch ended."""
        return self.explored + self.comm_rounds

    @property
    def means(self) -> NDArray[np.float64]:
        """Empirical means of all pairs at the end, shape (N, K); NaN where nothing was seen."""
        counts = self.after.counts
        return np.where(counts > 0, self.after.sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class DFE:
    """Decentralized Fair Elimination.

    Parameters
    ----------
    cover : {"structured", "pairwise", "greedy"}
        How the plausible pairs are covered by matchings, see `exploration_cover`.
    c : float
        Exploration constant of the radius ``sigma sqrt(c ln T / n)``. 4 carries the guarantee; the
        comparison with earlier methods is also shown at 1.5, which has none.
    growth : float
        Base b of the epoch lengths ``ceil(b^p)``, at least 1. With 1 and the pairwise cover,
        pairs are dropped after every sweep.
    communication : {"free", "collision"}
        ``free``: the means are known to all at no cost. ``collision``: they are rounded and sent
        bit by bit through collisions, see `communication`; the true means must lie in [0, 1].
    comm_regret : {"exact", "bound"}
        Charge the rounds of the protocol what they cost, or gamma* each.
    tol : float
        If positive: once the bottleneck value of the UCBs is at most ``tol`` above that of the
        LCBs, both over the plausible pairs only, commit to the bottleneck matching of these LCBs
        for good. 0, the default, never commits.
    draws : {"sums", "rounds"}
        Draw the sum of a pair's rewards in an epoch at once, or every single reward in the order
        of play. The second is slow; it gives the numbers of `simulate_round_by_round` exactly.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Of the published algorithm only the parts are described: the three steps, doubling, both
    eliminations. Epoch lengths, the protocol and the stopping rule are reconstructions.
    """

    cover: Cover = "structured"
    c: float = 4.0
    growth: float = 2.0
    communication: Communication = "free"
    comm_regret: CommRegret = "exact"
    tol: float = 0.0
    draws: Draws = "sums"

    def __post_init__(self) -> None:
        check_choice("cover", self.cover, get_args(Cover))
        check_fields(self, check_positive, "c", "growth")
        check_fields(self, check_nonnegative, "tol")
        if self.growth < 1:
            raise ValueError(f"growth must be >= 1, got {self.growth}")
        check_choice("communication", self.communication, get_args(Communication))
        check_choice("comm_regret", self.comm_regret, get_args(CommRegret))
        if self.tol > 0 and self.communication != "free":
            raise ValueError("tol needs communication='free': followers do not know the bounds")
        check_choice("draws", self.draws, get_args(Draws))

    def simulate(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> RunResult:
        """Run the algorithm several times.

        Parameters
        ----------
        instance : MaxMinInstance
            The problem.
        horizon : int
            Number of rounds T, in 1..2^63-1; the algorithm knows it.
        n_seeds : int
            Number of independent runs S, at least 1.
        rng : int or numpy.random.Generator
            Seed, or generator to spawn the streams from; the first runs do not depend on S. A
            generator is only spawned from: no number is drawn from it, and a second call with it
            gets other streams.

        Returns
        -------
        RunResult
            Curves with a corner at every change of matching; memory O(S (E + N K)).

        Raises
        ------
        TypeError
            If ``instance`` or ``rng`` has the wrong type.
        ValueError
            If a number is out of its range, or the means are outside [0, 1] with collisions.
        """
        horizon, streams = self._start(instance, horizon, n_seeds, rng)
        return collect([_Play.begin(self, instance, horizon, rng).tally() for rng in streams])

    def trace(self, instance: MaxMinInstance, horizon: int, seed: int) -> list[EpochRecord]:
        """Run the algorithm once and keep everything: the first run of `simulate` with this seed.

        Parameters
        ----------
        instance : MaxMinInstance
            The problem.
        horizon : int
            Number of rounds T, in 1..2^63-1.
        seed : int
            Seed, at least 0.

        Returns
        -------
        list of EpochRecord
            The epochs in order; the last one is usually cut off by the horizon.

        Raises
        ------
        TypeError, ValueError
            As `simulate`.
        """
        horizon, (stream,) = self._start(instance, horizon, 1, seed)
        return list(_Play.begin(self, instance, horizon, stream).epochs())

    def _start(
        self, instance: MaxMinInstance, horizon: int, n_seeds: int, rng: int | np.random.Generator
    ) -> tuple[int, list[np.random.Generator]]:
        started = start_runs(instance, horizon, n_seeds, rng)
        means = instance.means
        if self.communication == "collision" and (means.min() < 0 or means.max() > 1):
            raise ValueError("means must lie in [0, 1] for communication='collision'")
        return started


@dataclass(frozen=True, eq=False)
class _Play:
    """One run of an algorithm, after the start-up of its communication."""

    algorithm: DFE
    instance: MaxMinInstance
    horizon: int
    start: StartUp
    rng: np.random.Generator

    @classmethod
    def begin(
        cls, algorithm: DFE, instance: MaxMinInstance, horizon: int, rng: np.random.Generator
    ) -> "_Play":
        num_players = instance.num_players
        if algorithm.communication == "collision":
            start = start_up(num_players, instance.num_arms, horizon, rng)
        else:
            start = StartUp(np.empty((0, num_players), dtype=int), np.arange(num_players))
        return cls(algorithm, instance, horizon, start, rng)

    def epochs(self) -> Iterator[EpochRecord]:
        """Yield the epochs until the horizon."""
        now, epoch = len(self.start.arms), 0
        known = Knowledge.nothing(self.instance.means.shape)
        while self.start.settled and now < self.horizon:
            record = self.epoch(epoch, now, known)
            yield record
            now, epoch, known = record.end, epoch + 1, record.after

    def epoch(self, epoch: int, now: int, known: Knowledge) -> EpochRecord:
        """Explore, communicate, eliminate; stop where the horizon comes."""
        matchings, block = self.schedule(epoch, known)
        left = self.horizon - now  # with block * i a Python int: no product of int64s overflows
        rounds = np.array([min(block, max(0, left - block * i)) for i in range(len(matchings))])
        slopes = self.instance.regret(matchings)
        record = EpochRecord(epoch, now, matchings, block, rounds, slopes, known, known)
        if rounds[-1] < block:
            return record
        seen, codes, length = self.report(self.explore(known, matchings, block))
        elimination = eliminate(seen.plausible, seen.lower, seen.upper)
        after = replace(seen, plausible=seen.plausible & ~elimination.fallen)
        bits = self.message(seen, after.plausible, codes, length)
        left = self.horizon - record.end
        talked, price = min(len(bits), left), self.price(bits[:left])
        record = replace(record, comm_rounds=talked, comm_regret=price)
        if talked < len(bits):
            return record
        return replace(record, after=after, elimination=elimination)

    def schedule(self, epoch: int, known: Knowledge) -> tuple[NDArray[np.int_], int]:
        """Return the matchings of an epoch and the rounds that each is held."""
        algorithm = self.algorithm
        if algorithm.tol > 0:
            best, _ = bottleneck_matching(np.where(known.plausible, known.upper, -np.inf))
            sure, matching = bottleneck_matching(np.where(known.plausible, known.lower, -np.inf))
            if best - sure <= algorithm.tol:
                return matching[None], self.horizon
        by_rank = self.start.ranks.argsort()
        matchings = exploration_cover(known.plausible[by_rank], algorithm.cover)
        block = min(block_length(algorithm.growth, epoch), self.horizon)
        return matchings[:, self.start.ranks], block

    def explore(self, known: Knowledge, matchings: NDArray[np.int_], block: int) -> Knowledge:
        """Hold each matching for a block of rounds, and add up the rewards."""
        pulls = np.zeros_like(known.counts)
        np.add.at(pulls, (np.arange(len(pulls)), matchings), block)
        if self.algorithm.draws == "sums":
            sums = known.sums + self.instance.reward_sums(pulls, self.rng)
        else:
            sums = self.add_every_reward(known.sums, matchings, block)
        return replace(known, counts=known.counts + pulls, sums=sums)

    def add_every_reward(
        self, sums: NDArray[np.float64], matchings: NDArray[np.int_], block: int
    ) -> NDArray[np.float64]:
        """Add single rewards one after the other, as a player would: the same to the last bit."""
        sums, players = sums.copy(), np.arange(len(sums))
        for matching in matchings:
            for rounds in blocks(block):
                rewards = self.instance.rewards(matching, rounds, self.rng)
                running = np.add.accumulate(np.vstack([sums[players, matching], rewards]))
                sums[players, matching] = running[-1]
        return sums

    def report(self, seen: Knowledge) -> tuple[Knowledge, NDArray[np.int_], int]:
        """Renew the bounds of plausible pairs; return also the codes sent and their length."""
        algorithm, instance = self.algorithm, self.instance
        means = seen.sums / seen.counts
        radius = confidence_radius(seen.counts, self.horizon, algorithm.c, instance.sigma)
        codes, length = np.zeros_like(seen.counts), 0
        if algorithm.communication == "collision":
            length = code_length(radius[seen.plausible].min())
            codes = encode(means, length)
            means, radius = decode(codes, length), radius + 0.5 / 2**length
        lower = np.where(seen.plausible, means - radius, seen.lower)
        upper = np.where(seen.plausible, means + radius, seen.upper)
        return replace(seen, lower=lower, upper=upper), codes, length

    def message(
        self, seen: Knowledge, survivors: NDArray[np.bool_], codes: NDArray[np.int_], length: int
    ) -> NDArray[np.bool_]:
        """Return the bits that the epoch's communication takes, none if it is free."""
        if self.algorithm.communication == "free":
            return np.empty(0, dtype=bool)
        by_rank = self.start.ranks.argsort()
        return epoch_message(codes[by_rank], length, seen.plausible[by_rank], survivors[by_rank])

    def price(self, bits: NDArray[np.bool_]) -> float:
        """Return the regret of sending bits: a 1 is a collision, a 0 is played at home."""
        gamma_star = self.instance.gamma_star
        if self.algorithm.comm_regret == "bound":
            return len(bits) * gamma_star
        at_home = float(self.instance.regret(self.start.ranks))
        ones = int(bits.sum())
        return ones * gamma_star + (len(bits) - ones) * at_home

    def opening(self) -> tuple[int, float]:
        """Return the rounds of the start-up, as far as the horizon allows, and their regret."""
        arms = self.start.arms[: self.horizon]
        if self.algorithm.comm_regret == "bound":
            return len(arms), len(arms) * self.instance.gamma_star
        return len(arms), float(self.instance.regret(arms).sum())

    def tally(self) -> Run:
        """Play to the horizon; keep the regret and the counts."""
        records = list(self.epochs())
        complete = [record for record in records if record.elimination is not None]
        talked, talk_regret = self.opening()
        pieces = [(talked, talk_regret / max(talked, 1))]
        for record in records:
            pieces.extend(zip(record.rounds, record.slopes, strict=True))
            pieces.append((record.comm_rounds, record.comm_regret / max(record.comm_rounds, 1)))
        if not self.start.settled:  # nothing can be relied on: charge the most that it can cost
            pieces.append((self.horizon - talked, self.instance.gamma_star))
        eliminated_in = np.full(self.instance.means.shape, -1)
        for record in complete:
            eliminated_in[record.before.plausible & ~record.after.plausible] = record.epoch
        rounds, slopes = map(np.array, zip(*pieces, strict=True))
        return Run(
            rounds,
            slopes,
            epochs=len(complete),
            comm_rounds=talked + sum(record.comm_rounds for record in records),
            comm_regret=talk_regret + sum(record.comm_regret for record in records),
            failures=sum(record.elimination.failed for record in complete)
            + (not self.start.settled),
            eliminated_in=eliminated_in,
        )
