"""What training minimises: policy-gradient losses, pair losses, and imitation of the best of N.

All take log-probabilities of whole responses, so that they serve any model. The returns of
KL-regularised RL are in units of beta, which keeps gradients of one size for all transforms:
``R / beta - log(pi / pi0)``.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn.functional import logsigmoid

from workingpapers.arguments import as_reals, check_integer, check_positive, check_type

LARGEST_LOG_RATIO = 30.0  # of policy to old policy; exp of 89 overflows in single precision

__all__ = [
    "best_of_n_sft_loss",
    "best_of_n_weights",
    "dpo_loss",
    "exact_loss",
    "ipo_loss",
    "leave_one_out",
    "ppo_loss",
    "rloo_loss",
]


def leave_one_out(returns: Tensor) -> Tensor:
    """Advantages: each return minus the mean of the other returns of its prompt.

    The baseline does not depend on the sample that it is for, so it leaves the gradient unbiased
    (Kool, van Hoof and Welling, 2019; RLOO).

    Parameters
    ----------
    returns : Tensor, shape (..., n)
        Of n >= 2 samples of one policy to one prompt, finite.

    Returns
    -------
    Tensor of float64, shape (..., n)
        Each row sums to 0.

    Raises
    ------
    TypeError, ValueError
        If ``returns`` are not as described, or differ by more than a float64 holds.
    """
    check_type("returns", returns, Tensor)
    _check_finite("returns", returns)
    if returns.ndim < 1 or returns.shape[-1] < 2:
        raise ValueError(f"returns must be of n >= 2 samples, got shape {tuple(returns.shape)}")
    n, returns = returns.shape[-1], returns.double()
    advantages = n / (n - 1) * (returns - returns.mean(-1, keepdim=True))
    if not advantages.isfinite().all():
        raise ValueError(f"returns must differ by less, got {returns.min()} to {returns.max()}")
    return advantages


def rloo_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE: ``-mean(advantage * log pi(y))``; its gradient is the policy gradient.

    Parameters
    ----------
    log_probs : Tensor, shape (B,)
        Log-probabilities of samples of the policy, finite.
    advantages : Tensor, shape (B,)
        Finite; no gradient is taken of them.

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    _check_rows(log_probs=log_probs, advantages=advantages)
    return -(advantages.detach().double() * log_probs).mean()


def ppo_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, clip: float = 0.2
) -> Tensor:
    """Clipped policy gradient, ``-mean(min(ratio * A, clip(ratio) * A))`` (Schulman et al., 2017).

    The whole response is one action: the ratio is that of the policy to the one that answered.
    While the two are the same the gradient is that of :func:`rloo_loss`. A ratio counts as at most
    exp(30), and has no gradient beyond.

    Parameters
    ----------
    log_probs : Tensor, shape (B,)
        Log-probabilities of the samples under the policy, finite.
    old_log_probs : Tensor, shape (B,)
        The same under the policy that they were drawn from.
    advantages : Tensor, shape (B,)
        Finite; no gradient is taken of them.
    clip : float, default 0.2
        The ratio counts within ``1 - clip .. 1 + clip``; in (0, 1).

    Returns
    -------
    Tensor
        A scalar.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    _check_rows(log_probs=log_probs, old_log_probs=old_log_probs, advantages=advantages)
    if check_positive("clip", clip) >= 1:
        raise ValueError(f"clip must be in (0, 1), got {clip!r}")
    advantages = advantages.detach().double()
    log_ratio = log_probs.double() - old_log_probs.detach()
    ratio = log_ratio.clamp(max=LARGEST_LOG_RATIO).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def exact_loss(
    log_probs: Tensor, reference_log_probs: Tensor, rewards: Tensor, beta: float
) -> Tensor:
    """Loss of KL-regularised RL on a response space that is known whole: no sampling.

    ``-sum_y pi(y) (R(y) / beta - log(pi(y) / pi0(y)))``, least at the Gibbs policy
    ``pi0 exp(R / beta) / Z``, where it is ``-log Z``.

    Parameters
    ----------
    log_probs, reference_log_probs : Tensor, shape (..., M)
        Log-probabilities of all M responses under policy and reference, finite.
    rewards : Tensor, shape (..., M)
        Finite.
    beta : float
        Weight of the divergence, above 0.

    Returns
    -------
    Tensor
        A scalar: the mean over the leading axes.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    beta = check_positive("beta", beta)
    given = {"reference_log_probs": reference_log_probs, "rewards": rewards}
    _check_same_shape({"log_probs": log_probs, **given})
    returns = rewards / beta - (log_probs - reference_log_probs)
    return -(log_probs.exp() * returns).sum(-1).mean()


def dpo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
) -> Tensor:
    """Loss of direct preference optimisation, the mean over pairs.

    ``-log sigmoid(beta * h)``, where ``h`` is the log-ratio of policy to reference of the chosen
    response minus that of the rejected one (Rafailov et al., 2023, equation 7).

    Parameters
    ----------
    policy_chosen, policy_rejected : Tensor, shape (pairs,)
        Log-probabilities of the responses under the policy, finite.
    reference_chosen, reference_rejected : Tensor, shape (pairs,)
        The same under the reference.
    beta : float
        Strength of the pull to the reference, above 0.

    Returns
    -------
    Tensor
        A scalar, differentiable in the policy's log-probabilities.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    beta = check_positive("beta", beta)
    h = _margin(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return -logsigmoid(beta * h).mean()


def ipo_loss(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
    beta: float,
) -> Tensor:
    """Loss of identity preference optimisation, the mean over pairs.

    ``(h - 1 / (2 beta))**2``, with ``h`` as in :func:`dpo_loss` (Azar et al., 2024, equation 17,
    where beta is called tau). On pairs drawn from the reference its minimiser is the Gibbs policy
    of the calibrated reward: InfAlign without a decoding procedure.

    Parameters
    ----------
    policy_chosen, policy_rejected : Tensor, shape (pairs,)
        Log-probabilities of the responses under the policy, finite. Divide them, and the
        reference's, by the lengths of the responses for the loss per token.
    reference_chosen, reference_rejected : Tensor, shape (pairs,)
        The same under the reference.
    beta : float
        Strength of the pull to the reference, above 0.

    Returns
    -------
    Tensor
        A scalar, differentiable in the policy's log-probabilities.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    beta = check_positive("beta", beta)
    h = _margin(policy_chosen, policy_rejected, reference_chosen, reference_rejected)
    return (h - 1 / (2 * beta)).square().mean()


def best_of_n_sft_loss(log_probs: Tensor, rewards: ArrayLike, n: int) -> Tensor:
    """Cross-entropy of the policy on the best of N samples: forward-KL distillation.

    Of each group of base samples all subsets of N are looked at, and the best of each is imitated
    (the fine-tuning term of BoNBoN; Gui et al., 2024, section 4). With groups of N that is the
    plain loss on the best sample; larger groups give the same in expectation, with less variance.

    Parameters
    ----------
    log_probs : Tensor, shape (groups, samples)
        Log-probabilities under the policy of samples of the base model, finite.
    rewards : array_like, shape (groups, samples)
        Rewards of the samples, finite.
    n : int
        N, in 1..samples.

    Returns
    -------
    Tensor
        A scalar: the mean over groups, differentiable in ``log_probs``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("log_probs", log_probs, Tensor)
    _check_finite("log_probs", log_probs)
    if log_probs.ndim != 2:
        raise ValueError(f"log_probs must be (groups, samples), got {tuple(log_probs.shape)}")
    weights = best_of_n_weights(as_reals("rewards", rewards, tuple(log_probs.shape)), n)
    weights = torch.from_numpy(weights).to(log_probs.device, log_probs.dtype)
    return -(weights * log_probs).sum(-1).mean()


def best_of_n_weights(rewards: ArrayLike, n: int) -> NDArray[np.float64]:
    """Share of all subsets of N samples in which each sample is the best.

    A sample whose reward is the k-th smallest of K is the best of ``C(k-1, N-1)`` of the
    ``C(K, N)`` subsets. Subsets with several best samples are shared out among these.

    Parameters
    ----------
    rewards : array_like, shape (..., samples)
        Finite.
    n : int
        N, in 1..samples.

    Returns
    -------
    ndarray of float64, shape (..., samples)
        Each row sums to 1.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    rewards = as_reals("rewards", rewards)
    if rewards.ndim < 1 or not rewards.size:
        raise ValueError(f"rewards must have samples on its last axis, got shape {rewards.shape}")
    samples = rewards.shape[-1]
    n = check_integer("n", n, high=samples)
    below_or_equal = rankdata(rewards, "max", axis=-1)
    below = rankdata(rewards, "min", axis=-1) - 1
    # log(C(k, n) / C(K, n)) for k of n..K is the sum of log(1 - n/j) over j > k. Places below n,
    # where it would be -inf, are left out at the end.
    logs = np.zeros(samples + 1)
    logs[n:samples] = np.log1p(-n / np.arange(n + 1, samples + 1))[::-1].cumsum()[::-1]
    upper = logs[below_or_equal]
    lost = np.where(below < n, -1.0, np.expm1(np.minimum(logs[below] - upper, 0.0)))
    return np.where(below_or_equal < n, 0.0, -np.exp(upper) * lost / (below_or_equal - below))


def _margin(
    policy_chosen: Tensor,
    policy_rejected: Tensor,
    reference_chosen: Tensor,
    reference_rejected: Tensor,
) -> Tensor:
    """Log-ratio of the chosen response minus that of the rejected one."""
    _check_rows(
        policy_chosen=policy_chosen,
        policy_rejected=policy_rejected,
        reference_chosen=reference_chosen,
        reference_rejected=reference_rejected,
    )
    return (policy_chosen - reference_chosen) - (policy_rejected - reference_rejected)


def _check_rows(**given: Tensor) -> None:
    """Raise unless all are finite, of one length and on one axis."""
    _check_same_shape(given)
    for name, values in given.items():
        if values.ndim != 1:
            raise ValueError(f"{name} must have one axis, got shape {tuple(values.shape)}")


def _check_same_shape(given: dict[str, Tensor]) -> None:
    """Raise unless all are finite tensors of the shape of the first."""
    first, expected = next(iter(given.items()))
    for name, values in given.items():
        check_type(name, values, Tensor)
        if values.shape != expected.shape:
            raise ValueError(
                f"{name} must be of shape {tuple(expected.shape)}, as {first} is, "
                f"got {tuple(values.shape)}"
            )
        _check_finite(name, values)


def _check_finite(name: str, values: Tensor) -> None:
    if not values.numel() or not values.is_floating_point():
        kind = f"{values.dtype} of shape {tuple(values.shape)}"
        raise ValueError(f"{name} must hold real numbers, at least one, got {kind}")
    if not values.isfinite().all():
        place = tuple((~values.isfinite()).nonzero()[0].tolist())
        raise ValueError(f"{name} must be finite, got {float(values[place])} at {place}")
