"""DFE round by round: players that know only their own rewards and collisions.

Nothing here is fast. It is the meaning of the event-driven simulation in `elimination`: a plain
loop over rounds with free communication, and players that act out the whole collision protocol.
"""

import itertools
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import check_integer, check_positive, check_type
from workingpapers.fair_bandits.communication import (
    code_length,
    decode,
    encode,
    hopping_arms,
    musical_chairs_length,
)
from workingpapers.fair_bandits.elimination import DFE, block_length, eliminate
from workingpapers.fair_bandits.instances import (
    MaxMinInstance,
    Run,
    RunResult,
    alone,
    collect,
    start_runs,
)
from workingpapers.fair_bandits.matching import exploration_cover
from workingpapers.fair_bandits.theory import confidence_radius

__all__ = ["Agreement", "DFEPlayer", "Environment", "play", "simulate_round_by_round"]

# What a player does: it names an arm, and is told its reward and whether it collided.
Script = Generator[int, tuple[float, bool], None]


class Environment:
    """The arms: takes everybody's choice, gives rewards and collisions.

    Parameters
    ----------
    instance : MaxMinInstance
        The problem.
    rng : numpy.random.Generator
        Source of the rewards. Every round draws N numbers, whatever is played.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    """

    def __init__(self, instance: MaxMinInstance, rng: np.random.Generator) -> None:
        check_type("instance", instance, MaxMinInstance)
        check_type("rng", rng, np.random.Generator)
        self.instance = instance
        self.rng = rng

    def step(self, arms: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Play one round.

        Parameters
        ----------
        arms : array_like of int, shape (N,)
            Arm of every player, in 0..K-1.

        Returns
        -------
        rewards : ndarray, shape (N,)
            Rewards; 0 for players that collide.
        collided : ndarray of bool, shape (N,)
            Who was not alone on its arm.

        Raises
        ------
        ValueError
            If ``arms`` are not N integers in 0..K-1.
        """
        rewards = self.instance.rewards(arms, 1, self.rng)[0]  # which checks the arms
        clear = alone(np.asarray(arms, dtype=int), self.instance.num_arms)
        return rewards * clear, ~clear


def simulate_round_by_round(
    algorithm: DFE,
    instance: MaxMinInstance,
    horizon: int,
    n_seeds: int,
    rng: int | np.random.Generator,
) -> RunResult:
    """Run DFE with free communication as a plain loop over rounds.

    It takes the rewards from each stream in the order of play. So does ``DFE(draws="rounds")``
    in bulk: from the same seed both drop the same pairs in the same epochs, and their regrets
    differ by rounding only.

    Parameters
    ----------
    algorithm : DFE
        With ``communication="free"`` and ``tol=0``.
    instance, horizon, n_seeds, rng
        As for `DFE.simulate`.

    Returns
    -------
    RunResult
        Curves with corners at the ends of the epochs only.

    Raises
    ------
    TypeError
        If ``algorithm``, ``instance`` or ``rng`` has the wrong type.
    ValueError
        If a number is out of its range, or the algorithm communicates at a cost or commits.
    """
    check_type("algorithm", algorithm, DFE)
    if algorithm.communication != "free" or algorithm.tol != 0:
        raise ValueError("algorithm must have communication='free' and tol=0")
    horizon, streams = start_runs(instance, horizon, n_seeds, rng)
    return collect([_play_rounds(algorithm, instance, horizon, stream) for stream in streams])


def _play_rounds(
    algorithm: DFE, instance: MaxMinInstance, horizon: int, rng: np.random.Generator
) -> Run:
    environment, shape = Environment(instance, rng), instance.means.shape
    plausible, eliminated_in = np.ones(shape, dtype=bool), np.full(shape, -1)
    counts, sums = np.zeros(shape, dtype=int), np.zeros(shape)
    lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
    lengths, regrets, failures = [], [], 0
    for epoch in itertools.count():
        left = horizon - sum(lengths)
        matchings = exploration_cover(plausible, algorithm.cover)
        block = block_length(algorithm.growth, epoch)
        schedule = (matching for matching in matchings for _ in range(block))
        lengths.append(min(left, len(matchings) * block))
        regrets.append(_explore(environment, itertools.islice(schedule, left), counts, sums))
        if left < len(matchings) * block:
            break
        radius = confidence_radius(counts, horizon, algorithm.c, instance.sigma)
        lower = np.where(plausible, sums / counts - radius, lower)
        upper = np.where(plausible, sums / counts + radius, upper)
        elimination = eliminate(plausible, lower, upper)
        failures += elimination.failed
        eliminated_in[elimination.fallen] = epoch
        plausible = plausible & ~elimination.fallen
    rounds = np.array(lengths)
    slopes = np.array(regrets) / np.maximum(rounds, 1)
    return Run(rounds, slopes, epoch, failures=failures, eliminated_in=eliminated_in)


def _explore(
    environment: Environment,
    schedule: Iterable[NDArray[np.int_]],
    counts: NDArray[np.int_],
    sums: NDArray[np.float64],
) -> float:
    """Play the scheduled rounds, add to counts and sums, and return the regret."""
    instance, regret = environment.instance, 0.0
    for matching in schedule:
        rewards, _ = environment.step(matching)
        for player, arm in enumerate(matching):
            counts[player, arm] += 1
            sums[player, arm] += rewards[player]
        worst = min(instance.means[player, arm] for player, arm in enumerate(matching))
        regret += instance.gamma_star - worst
    return regret


@dataclass(frozen=True, eq=False)
class Agreement:
    """What a player holds after an epoch; rows of the matrices are in the order of the ranks.

    Parameters
    ----------
    explored, end : int
        Rounds that the player had seen when the exploration and the communication ended.
    codes : ndarray of int, shape (N, K)
        Coded means that it knows: its own row, and the plausible pairs of all if it leads. -1
        elsewhere.
    plausible : ndarray of bool, shape (N, K)
        Plausible pairs from now on.
    """

    explored: int
    end: int
    codes: NDArray[np.int_]
    plausible: NDArray[np.bool_]


class DFEPlayer:
    """One player of DFE with communication by collisions.

    It is told the number of arms, the horizon and the rules; in each round it sees its own reward
    and whether it collided. It does not know the number of players until it has met them. All
    players must start in the same round.

    Parameters
    ----------
    algorithm : DFE
        The rules, with ``communication="collision"``.
    num_arms : int
        Number of arms K.
    horizon : int
        Number of rounds T, in 2..2^63-1: one round is not enough to find a seat.
    sigma : float
        Sub-Gaussian scale of the rewards, above 0.
    rng : numpy.random.Generator
        The player's own randomness, used for musical chairs only.

    Attributes
    ----------
    rank, num_players : int
        Known after the start-up, -1 before; rank 0 leads.
    plausible : ndarray of bool, shape (N, K)
        Plausible pairs, rows in the order of the ranks; known after the start-up.
    agreements : list of Agreement
        One entry an epoch.

    Raises
    ------
    TypeError
        If ``algorithm`` or ``rng`` has the wrong type.
    ValueError
        If an argument is out of its range.
    """

    def __init__(
        self,
        algorithm: DFE,
        num_arms: int,
        horizon: int,
        sigma: float,
        rng: np.random.Generator,
    ) -> None:
        check_type("algorithm", algorithm, DFE)
        check_type("rng", rng, np.random.Generator)
        if algorithm.communication != "collision":
            raise ValueError("algorithm must have communication='collision'")
        self.algorithm = algorithm
        self.num_arms = check_integer("num_arms", num_arms)
        self.horizon = check_integer("horizon", horizon, low=2)
        self.sigma = check_positive("sigma", sigma)
        self.rng = rng
        self.rank = self.num_players = -1
        self.agreements: list[Agreement] = []
        self._clock = 0
        self._script = self._play()
        self._arm = next(self._script)

    def act(self) -> int:
        """Return the arm to play in this round."""
        return self._arm

    def observe(self, reward: float, collided: bool) -> None:
        """Take in this round's reward and whether there was a collision.

        Parameters
        ----------
        reward : float
            Own reward.
        collided : bool
            Whether somebody else was on the arm.

        Raises
        ------
        RuntimeError
            If the player found no seat in time, which happens with probability at most 1/T: it
            cannot take part in what follows.
        """
        self._clock += 1
        self._arm = self._script.send((float(reward), bool(collided)))

    def _play(self) -> Script:
        seat = yield from self._find_seat()
        yield from self._meet(seat)
        shape = (self.num_players, self.num_arms)
        self.plausible = np.ones(shape, dtype=bool)
        self.counts, self.sums = np.zeros(shape, dtype=int), np.zeros(self.num_arms)
        self.lower, self.upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        for epoch in itertools.count():
            yield from self._explore(epoch)
            explored = self._clock
            codes = yield from self._report()
            yield from self._agree()
            self.agreements.append(Agreement(explored, self._clock, codes, self.plausible))

    def _find_seat(self) -> Generator[int, tuple[float, bool], int]:
        """Musical chairs: pick arms at random until alone on one, then stay."""
        seat = None
        for _ in range(musical_chairs_length(self.num_arms, self.horizon)):
            arm = int(self.rng.integers(self.num_arms)) if seat is None else seat
            _, collided = yield arm
            if not collided:
                seat = arm
        if seat is None:
            raise RuntimeError("a player found no seat in time (probability at most 1/T)")
        return seat

    def _meet(self, seat: int) -> Script:
        """Sequential hopping: learn the own rank and the number of players."""
        met = []
        for arm in hopping_arms(seat, self.num_arms):
            _, collided = yield int(arm)
            met.append(collided)
        self.rank, self.num_players = sum(met[: 2 * seat]), 1 + sum(met)

    def _explore(self, epoch: int) -> Script:
        for matching in exploration_cover(self.plausible, self.algorithm.cover):
            block = block_length(self.algorithm.growth, epoch)
            arm = int(matching[self.rank])
            for _ in range(block):
                reward, _ = yield arm
                self.sums[arm] += reward
            self.counts[range(self.num_players), matching] += block

    def _report(self) -> Generator[int, tuple[float, bool], NDArray[np.int_]]:
        """Followers send their means; the leader renews the confidence bounds."""
        radius = confidence_radius(self.counts, self.horizon, self.algorithm.c, self.sigma)
        length = code_length(radius[self.plausible].min())
        codes = np.full(self.plausible.shape, -1)
        codes[self.rank] = own = encode(self.sums / self.counts[self.rank], length)
        for sender in range(1, self.num_players):
            for arm in np.flatnonzero(self.plausible[sender]):
                heard = yield from self._transmit(sender, 0, own[arm], length)
                if self.rank == 0:
                    codes[sender, arm] = heard
        slack = radius + 0.5 / 2**length
        means = decode(codes, length)
        self.lower = np.where(self.plausible, means - slack, self.lower)
        self.upper = np.where(self.plausible, means + slack, self.upper)
        return codes

    def _agree(self) -> Script:
        """Let the leader decide which pairs to keep, and tell each follower."""
        survivors = self.plausible.copy()
        if self.rank == 0:
            survivors &= ~eliminate(self.plausible, self.lower, self.upper).fallen
        for receiver in range(1, self.num_players):
            for pair in zip(*np.nonzero(self.plausible), strict=True):
                keep = yield from self._transmit(0, receiver, survivors[pair], 1)
                if self.rank == receiver:
                    survivors[pair] = keep
        self.plausible = survivors

    def _transmit(
        self, sender: int, receiver: int, value: int, length: int
    ) -> Generator[int, tuple[float, bool], int]:
        """Send a number bit by bit, highest first; return what was felt as collisions.

        All players call it together, and only the receiver's return value means something.
        """
        heard = 0
        for place in reversed(range(length)):
            jump = self.rank == sender and (int(value) >> place) & 1
            _, collided = yield receiver if jump else self.rank
            heard = 2 * heard + collided
        return heard


def play(environment: Environment, players: Sequence[DFEPlayer], rounds: int) -> NDArray[np.int_]:
    """Let players act side by side; each is told only what it would see.

    Parameters
    ----------
    environment : Environment
        The arms.
    players : sequence of DFEPlayer
        One for each row of the means.
    rounds : int
        Number of rounds n, at least 1.

    Returns
    -------
    ndarray of int, shape (n, N)
        What was played; ``environment.instance.regret`` prices it.

    Raises
    ------
    RuntimeError
        If a player found no seat in musical chairs.
    ValueError
        If there is not one player for each row, or ``rounds`` is not an integer of at least 1.
    """
    if len(players) != environment.instance.num_players:
        raise ValueError(f"players must be {environment.instance.num_players}, got {len(players)}")
    history = np.empty((check_integer("rounds", rounds), len(players)), dtype=int)
    for t in range(rounds):
        history[t] = [player.act() for player in players]
        rewards, collided = environment.step(history[t])
        for player, reward, hit in zip(players, rewards, collided, strict=True):
            player.observe(reward, hit)
    return history
