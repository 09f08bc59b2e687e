"""Win rates: how often one policy beats another, before and after decoding."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr

from workingpapers.arguments import check_type
from workingpapers.infalign.calibration import Ranking, as_probabilities, as_rewards
from workingpapers.infalign.decoding import Procedure, Sampling

__all__ = ["inference_win_rate", "kl_divergence", "win_rate", "win_rate_gradient"]


def win_rate(policy: ArrayLike, base: ArrayLike, rewards: ArrayLike) -> NDArray[np.float64]:
    """Compute the win rate ``W_r(policy > base)`` of one draw against one draw.

    Parameters
    ----------
    policy, base : array_like, shape (M,) or (P, M)
        Policies over M responses, of one prompt or of P prompts; every row sums to one.
    rewards : array_like
        Finite rewards of the same shape.

    Returns
    -------
    float or ndarray
        Win rate in [0, 1], of shape () or (P,); ties count half.

    Raises
    ------
    ValueError
        If rewards are not finite, or probabilities are none, or shapes differ.
    """
    return inference_win_rate(policy, base, rewards, Sampling())


def inference_win_rate(
    policy: ArrayLike, base: ArrayLike, rewards: ArrayLike, procedure: Procedure
) -> NDArray[np.float64]:
    """Compute the inference-time win rate ``W_r(T(policy) > T(base))``: both sides are decoded.

    With groups of equal reward in ascending order, F_i and Q_i the policy's and the base's mass
    up to group i, and G the procedure's: ``W = sum_i (G(F_i) - G(F_{i-1})) (G(Q_i) +
    G(Q_{i-1})) / 2``.

    Parameters
    ----------
    policy, base, rewards : array_like
        As for `win_rate`.
    procedure : Procedure
        How both policies are decoded.

    Returns
    -------
    float or ndarray
        Win rate in [0, 1], of shape () or (P,).

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If rewards are not finite, or probabilities are none, or shapes differ.
    """
    policy, base, ranking = checked(policy, base, rewards, procedure)
    return ranked_win_rate(policy, base, ranking, procedure)


def win_rate_gradient(
    policy: ArrayLike, base: ArrayLike, rewards: ArrayLike, procedure: Procedure
) -> NDArray[np.float64]:
    """Compute ``R* = dW_r(T(policy) > T(base)) / d policy``, the reward of the theorem.

    A policy's probabilities sum to one, so R* is defined up to a constant. Here the best response
    has 0 and every other one at most 0: ``R_j = -sum_{j <= i < G} g(F_i) (G(Q_{i+1}) -
    G(Q_{i-1})) / 2`` for group j of G, in the notation of `inference_win_rate`. For one draw this
    is the calibrated reward less its largest value.

    Parameters
    ----------
    policy, base, rewards, procedure
        As for `inference_win_rate`.

    Returns
    -------
    ndarray, shape (M,) or (P, M)
        R* at the policy: the transformed reward whose KL-regularised optimum the policy must be
        (the characterisation theorem, Section 3 of the paper).

    Raises
    ------
    TypeError
        If ``procedure`` is none.
    ValueError
        If rewards are not finite, or probabilities are none, or shapes differ.
    """
    policy, base, ranking = checked(policy, base, rewards, procedure)
    return ranked_gradient(policy, base, ranking, procedure)


def kl_divergence(policy: ArrayLike, base: ArrayLike) -> NDArray[np.float64]:
    """Compute ``KL(policy || base)`` in nats.

    Parameters
    ----------
    policy, base : array_like, shape (M,) or (P, M)
        Policies of the same shape; every row sums to one.

    Returns
    -------
    float or ndarray
        Divergence, at least 0, of shape () or (P,); infinite if the policy has mass where the
        base has none.

    Raises
    ------
    ValueError
        If probabilities are none, or shapes differ.
    """
    base = as_probabilities("base", base)
    return divergence(as_probabilities("policy", policy, base.shape), base)


def checked(
    policy: ArrayLike, base: ArrayLike, rewards: ArrayLike, procedure: Procedure
) -> tuple[NDArray, NDArray, Ranking]:
    """Check what a win rate takes; return policy and base, scaled, and the ranking."""
    check_type("procedure", procedure, Procedure)
    rewards = as_rewards("rewards", rewards)
    policy = as_probabilities("policy", policy, rewards.shape)
    base = as_probabilities("base", base, rewards.shape)
    return policy, base, Ranking.of(rewards)


def divergence(policy: NDArray, base: NDArray) -> NDArray[np.float64]:
    """Return the KL divergence of checked policies."""
    return np.maximum(rel_entr(policy, base).sum(axis=-1), 0.0)[()]


def decoded_calibration(base: NDArray, ranking: Ranking, procedure: Procedure) -> NDArray:
    """Return, in order, every response's win rate against the decoded base policy."""
    below, upto = ranking.cumulative(base)
    return (procedure._cdf(below) + procedure._cdf(upto)) / 2


def ranked_win_rate(
    policy: NDArray, base: NDArray, ranking: Ranking, procedure: Procedure
) -> NDArray[np.float64]:
    """Compute `inference_win_rate` of checked policies whose rewards are ranked."""
    decoded = ranking.sort(procedure.ranked_distribution(policy, ranking))
    return (decoded * decoded_calibration(base, ranking, procedure)).sum(axis=-1)[()]


def ranked_gradient(
    policy: NDArray, base: NDArray, ranking: Ranking, procedure: Procedure
) -> NDArray[np.float64]:
    """Compute `win_rate_gradient` of checked policies whose rewards are ranked."""
    _, upto = ranking.cumulative(policy)
    rises = np.diff(decoded_calibration(base, ranking, procedure), axis=-1, append=0.0)
    rises[..., -1] = 0.0
    steps = procedure._slope(upto) * rises
    return ranking.unsort(-np.cumsum(steps[..., ::-1], axis=-1)[..., ::-1])
