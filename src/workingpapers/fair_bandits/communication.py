"""Talking by colliding: how players that cannot speak agree on what to drop, and its price.

The players share a clock and feel collisions; nothing else. At the start they settle on distinct
arms (musical chairs) and learn their ranks (sequential hopping). Later one bit takes one round:
all sit on the arm of their own rank, and the sender jumps onto the receiver for a 1.

The paper's own protocol is not described in detail; this one is explicit, and every round of it
is counted. The functions here are what the event-driven simulation needs; `protocol` has the
players that really act it out.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    as_array,
    as_reals,
    check_integer,
    check_positive,
)
from workingpapers.fair_bandits.instances import alone

__all__ = [
    "StartUp",
    "code_length",
    "decode",
    "encode",
    "epoch_message",
    "hopping_arms",
    "musical_chairs",
    "musical_chairs_length",
    "start_up",
]


MOST_BITS = 52  # of a code: the middle of its cell takes one more, and a float holds 53


def musical_chairs_length(num_arms: int, horizon: int) -> int:
    """Return how many rounds the players give each other to settle.

    A player that is not yet settled finds a free arm that nobody else picks with probability at
    least (1/K) (1 - 1/K)^(K-1) >= 1 / (e K). After e K ln T rounds it is still without a seat
    with probability at most 1/T, and any of N players with probability at most N/T.

    Parameters
    ----------
    num_arms : int
        Number of arms K.
    horizon : int
        Number of rounds T.

    Returns
    -------
    int
        ``ceil(e K ln T)``.
    """
    return math.ceil(math.e * num_arms * math.log(horizon))


def musical_chairs(
    num_players: int, num_arms: int, rounds: int, rng: np.random.Generator
) -> tuple[NDArray[np.int_], NDArray[np.int_]]:
    """Play musical chairs: pick arms at random until alone on one, then keep it.

    Parameters
    ----------
    num_players, num_arms : int
        N and K.
    rounds : int
        Length of the game.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    arms : ndarray of int, shape (rounds, N)
        What was played.
    seats : ndarray of int, shape (N,)
        Arm on which each player settled, -1 for none.
    """
    arms = np.empty((rounds, num_players), dtype=int)
    seats = np.full(num_players, -1)
    for t in range(rounds):
        arms[t] = np.where(seats >= 0, seats, rng.integers(num_arms, size=num_players))
        seats = np.where(alone(arms[t], num_arms), arms[t], seats)
        if (seats >= 0).all():
            arms[t + 1 :] = seats
            break
    return arms, seats


def hopping_arms(seat: int, num_arms: int) -> NDArray[np.int_]:
    """Return the walk by which a player learns its rank and the number of players.

    It waits 2 x rounds on its seat x, then moves one arm a round, around the circle. Players with
    seats x < y meet once, in round x + y, while the second still waits. So a player's collisions
    while it waits are its rank, and all its collisions are the number of the others.

    Parameters
    ----------
    seat : int
        The player's seat x, in 0..K-1.
    num_arms : int
        Number of arms K.

    Returns
    -------
    ndarray of int, shape (2 K,)
        Its arm in each round.
    """
    return (seat + np.maximum(np.arange(2 * num_arms) - 2 * seat, 0)) % num_arms


@dataclass(frozen=True, eq=False)
class StartUp:
    """How the players begin.

    Parameters
    ----------
    arms : ndarray of int, shape (rounds, N)
        Arms played before the first exploration.
    ranks : ndarray of int, shape (N,)
        Rank of each player, a permutation of 0..N-1; the player of rank 0 leads.
    settled : bool
        Whether all players had a seat in time. If not, nothing that follows can be relied on.
    """

    arms: NDArray[np.int_]
    ranks: NDArray[np.int_]
    settled: bool = True


def start_up(num_players: int, num_arms: int, horizon: int, rng: np.random.Generator) -> StartUp:
    """Play musical chairs and sequential hopping.

    Parameters
    ----------
    num_players, num_arms, horizon : int
        N, K and T.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    StartUp
        ``ceil(e K ln T) + 2 K`` rounds.
    """
    rounds = musical_chairs_length(num_arms, horizon)
    chairs, seats = musical_chairs(num_players, num_arms, rounds, rng)
    hops = np.array([hopping_arms(seat, num_arms) for seat in seats]).T
    return StartUp(np.vstack([chairs, hops]), seats.argsort().argsort(), bool((seats >= 0).all()))


def code_length(radius: float) -> int:
    """Return how many bits a mean is sent with: enough to add little to its uncertainty.

    Parameters
    ----------
    radius : float
        Smallest confidence radius of a plausible pair, above 0. All players know it, because all
        know how often each pair was played.

    Returns
    -------
    int
        ``B = ceil(log2(8 / radius))``: half a step, 2^-B / 2, is at most radius / 16. At least 1,
        and at most 52, which is what a float can resolve in [0, 1].

    Raises
    ------
    ValueError
        If ``radius`` is not a finite number above 0.
    """
    radius = max(check_positive("radius", radius), 8 / 2**MOST_BITS)
    return max(1, math.ceil(math.log2(8 / radius)))


def encode(means: ArrayLike, length: int) -> NDArray[np.int_]:
    """Round means to one of 2^B equal cells of [0, 1]; means outside go to the cell at the end.

    True means are in [0, 1], so moving an empirical mean into [0, 1] only brings it closer.

    Parameters
    ----------
    means : array_like
        Empirical means, finite.
    length : int
        Number of bits B, in 1..52.

    Returns
    -------
    ndarray of int
        Cells, in 0..2^B-1.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    means = as_reals("means", means)
    length = check_integer("length", length, high=MOST_BITS)
    return np.clip(np.floor(means * 2.0**length), 0, 2**length - 1).astype(np.int64)


def decode(codes: ArrayLike, length: int) -> NDArray[np.float64]:
    """Return the middles of the cells: off by at most 2^-B / 2 from a mean in [0, 1].

    Parameters
    ----------
    codes : array_like of int
        Cells, in 0..2^B-1.
    length : int
        Number of bits B, in 1..52.

    Returns
    -------
    ndarray
        Means.

    Raises
    ------
    ValueError
        If ``codes`` are not integers, or ``length`` is out of its range.
    """
    length = check_integer("length", length, high=MOST_BITS)
    codes = as_array("codes", codes, "integers")
    return (codes + 0.5) / 2.0**length


def epoch_message(
    codes: NDArray[np.int_],
    length: int,
    plausible: NDArray[np.bool_],
    survivors: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Return all bits that are sent after an epoch, in order.

    Each follower sends the codes of its plausible arms, in the order of the arms and highest bit
    first; then the leader sends every follower one bit for each plausible pair: keep or drop.

    Parameters
    ----------
    codes : ndarray of int, shape (N, K)
        Coded means; rows in the order of the ranks, as in the other matrices.
    length : int
        Bits a code, B.
    plausible, survivors : ndarray of bool, shape (N, K)
        Plausible pairs before and after the elimination.

    Returns
    -------
    ndarray of bool
        One entry a round: at most ``(N - 1) (max_i |P_i| B + |P|)``.
    """
    sent = codes[1:][plausible[1:]]
    means = (sent[:, None] >> np.arange(length)[::-1]) & 1
    keep_or_drop = np.tile(survivors[plausible], len(plausible) - 1)
    return np.concatenate([means.ravel().astype(bool), keep_or_drop])
