"""What the analysis promises: confidence radius, failure probability, bounds on the regret.

The theorems' orders are the paper's: O((N^2 + K) log T / Delta) above, Omega(max(N^2, K) log T /
Delta) below, equal up to constants. The constants are worked out here, each in its docstring.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    as_array,
    check_integer,
    check_positive,
    check_type,
)
from workingpapers.fair_bandits.instances import MaxMinInstance, check_hard

__all__ = [
    "confidence_radius",
    "cover_bound",
    "elimination_epoch",
    "failure_probability",
    "lower_bound_slope",
    "upper_bound",
]


def confidence_radius(
    counts: ArrayLike, horizon: int, c: float = 4.0, sigma: float = 1.0
) -> NDArray[np.float64]:
    """Return the half-width of the confidence interval of a mean.

    The mean of n rewards is off by more than ``sigma sqrt(c ln T / n)`` with probability at most
    ``2 T^(-c/2)`` (Hoeffding's inequality for sub-Gaussian rewards).

    Parameters
    ----------
    counts : array_like of int
        Numbers of rewards n, at least 0.
    horizon : int
        Number of rounds T, in 1..2^63-1.
    c : float
        Exploration constant, above 0. The guarantee takes 4; the experiments also show 1.5.
    sigma : float
        Sub-Gaussian scale of the rewards, above 0.

    Returns
    -------
    ndarray
        Radii, of the shape of ``counts`` (a scalar for one count); infinite where n = 0.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    counts = as_array("counts", counts, "integers")
    if counts.min(initial=0) < 0:
        raise ValueError(f"counts must be integers >= 0, got {counts.min()}")
    log_horizon = math.log(check_integer("horizon", horizon))
    scale = check_positive("sigma", sigma) * math.sqrt(check_positive("c", c) * log_horizon)
    return np.where(counts > 0, scale / np.sqrt(np.maximum(counts, 1)), np.inf)[()]


def failure_probability(num_players: int, num_arms: int, horizon: int, c: float = 4.0) -> float:
    """Bound the probability that any confidence interval ever misses its mean.

    How often a pair was seen when it is checked depends on the rewards, because the covers do. So
    the interval must hold for all its first n rewards, n = 1..T: each fails with probability
    2 T^(-c/2), and there are N K pairs.

    Parameters
    ----------
    num_players, num_arms, horizon : int
        N, K and T, in 1..2^63-1.
    c : float
        Exploration constant, above 0.

    Returns
    -------
    float
        ``min(1, 2 N K T^(1 - c/2))``.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    pairs = check_integer("num_players", num_players) * check_integer("num_arms", num_arms)
    horizon = check_integer("horizon", horizon)
    return min(1.0, 2 * pairs * horizon ** (1 - check_positive("c", c) / 2))


def cover_bound(num_players: int, num_arms: int) -> int:
    """Bound the number of matchings of a structured cover.

    At most max(N, K - N) colours for the free arms, one base matching, and one matching for each
    of the N^2 - N other pairs of the base matching's arms.

    Parameters
    ----------
    num_players, num_arms : int
        N and K, 1 <= N <= K.

    Returns
    -------
    int
        ``N^2 - N + 1 + max(N, K - N)``, never above N^2 + K.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    num_players = check_integer("num_players", num_players)
    num_arms = check_integer("num_arms", num_arms, low=num_players)
    return num_players * (num_players - 1) + 1 + max(num_players, num_arms - num_players)


def elimination_epoch(gap: float, horizon: int, c: float = 4.0, sigma: float = 1.0) -> int:
    """Predict the last epoch that a pair of a given gap can survive to see the end of.

    After epoch p a plausible pair has n >= 2^(p+1) - 1 rewards, so a radius of at most
    r = sigma sqrt(c ln T / n). On the good event a pair of gap g has UCB <= gamma* - g + 2 r,
    and the pairs of an optimal matching have LCB >= gamma* - 2 r. So it falls once 4 r < g.

    Parameters
    ----------
    gap : float
        The pair's gap, above 0.
    horizon : int
        Number of rounds T, in 1..2^63-1.
    c, sigma : float
        Exploration constant and scale of the rewards, above 0.

    Returns
    -------
    int
        Smallest p with ``4 sigma sqrt(c ln T / (2^(p+1) - 1)) < gap``: on the good event, with
        doubling epochs and free communication, the pair is gone after epoch p if not before.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    radius_of_one = float(confidence_radius(1, horizon, c, sigma))
    needed = (4 * radius_of_one / check_positive("gap", gap)) ** 2  # rewards, exceeded strictly
    return math.floor(math.log2(needed + 1))


def upper_bound(instance: MaxMinInstance, horizon: int, c: float = 4.0) -> float:
    """Bound the expected regret of DFE: structured cover, doubling, free communication.

    A matching of epoch q >= 1 uses pairs that survived epoch q - 1, whose gaps are at most
    ``4 sigma sqrt(c ln T / (2^q - 1))``. So it costs at most ``4 sigma sqrt(2 c ln T) 2^(q/2)``
    in its 2^q rounds. The last epoch Q with any regret has ``2^Q <= 1 + 16 c sigma^2 ln T /
    Delta^2``, and the sum of 2^(q/2) over q = 1..Q is at most (2 + sqrt 2) 2^(Q/2). With a round
    of each matching in epoch 0 and at most L = `cover_bound` matchings an epoch::

        E R(T) <= L (D + (2 + sqrt 2) 4 sigma sqrt(2 c ln T) sqrt(1 + 16 c sigma^2 ln T / Delta^2))
                  + T D failure_probability

    where D is the largest gap (gamma* if some mean is 0). For small Delta the large term is
    77.3 c sigma^2 L ln T / Delta; the last one is at most 2 N K D for c = 4.

    Parameters
    ----------
    instance : MaxMinInstance
        The problem.
    horizon : int
        Number of rounds T, in 1..2^63-1.
    c : float
        Exploration constant, above 0.

    Returns
    -------
    float
        The bound; 0 if no pair is below gamma*.

    Raises
    ------
    TypeError
        If ``instance`` is not a MaxMinInstance.
    ValueError
        If a number is out of its range.
    """
    check_type("instance", instance, MaxMinInstance)
    horizon, c = check_integer("horizon", horizon), check_positive("c", c)
    shape = instance.means.shape
    failure = failure_probability(*shape, horizon, c)
    if instance.min_gap == math.inf:
        return 0.0
    worst = float(instance.gaps.max())
    spread = instance.sigma**2 * c * math.log(horizon)  # sigma^2 c ln T
    last_epoch = math.sqrt(1 + 16 * spread / instance.min_gap**2)
    explore = worst + (2 + math.sqrt(2)) * 4 * math.sqrt(2 * spread) * last_epoch
    return cover_bound(*shape) * explore + horizon * worst * failure


def lower_bound_slope(a: int, b: int, delta: float, sigma: float = 1.0, extra: int = 0) -> float:
    """Bound R(T) / ln T from below on `hard_instance`, for every consistent policy.

    Raising one hard pair above 1/2 would make its cycle the only optimal matching. A policy that
    does well on both instances must tell them apart, so (Lai and Robbins, with Gaussian rewards)
    it sees the pair about 2 sigma^2 ln T / delta^2 times. A round that costs only delta shows at
    most one of the a b pairs of A and B; a round of value 0 costs gamma* = 1/2 and shows at most
    min(a, b) of them. Hence a price of at least min(delta, 1 / (2 min(a, b))) a pair. The root
    sees at most one of the extra arms a round, at a price of at least delta; it can do so in the
    same round, so the larger of the two counts.

    Parameters
    ----------
    a, b : int
        Sizes of the two sets, at least 1.
    delta : float
        Gap of the hard pairs, in (1e-12, 1/2).
    sigma : float
        Standard deviation of the Gaussian rewards, above 0.
    extra : int
        Number of extra arms, at least 0.

    Returns
    -------
    float
        ``max(a b min(delta, 1 / (2 min(a, b))), extra delta) 2 sigma^2 / delta^2``; for small
        delta this is max(a b, extra) 2 sigma^2 / delta.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    a, b, delta, extra = check_hard(a, b, delta, extra)
    cycles = a * b * min(delta, 1 / (2 * min(a, b)))
    return max(cycles, extra * delta) * 2 * check_positive("sigma", sigma) ** 2 / delta**2
