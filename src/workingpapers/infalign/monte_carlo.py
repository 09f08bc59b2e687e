"""Win rates of language models by sampling, with the errors that sampling leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from transformers import PreTrainedModel

from workingpapers.arguments import check_integer, check_type
from workingpapers.infalign.decoding import Procedure
from workingpapers.infalign.rollouts import (
    Reward,
    Tokens,
    same_tokens,
    sample_responses,
    score,
    sequence_log_probs,
    stream,
)
from workingpapers.lab import Estimate, mean_interval

__all__ = ["WinRateEstimate", "estimate_win_rate"]


@dataclass(frozen=True, eq=False)
class WinRateEstimate:
    """Win rate and divergence of a policy against the base, from samples.

    Attributes
    ----------
    win_rates : ndarray, shape (P,)
        Mean of the comparisons of each prompt; ties count half.
    kls : ndarray, shape (P,)
        ``KL(policy || base)`` of each prompt in nats: mean log-ratio of the policy's own samples.
        Unbiased, so it may be below 0.
    win_rate_errors, kl_errors : ndarray, shape (P,)
        Standard errors of these means over the samples of each prompt.
    """

    win_rates: NDArray[np.float64]
    kls: NDArray[np.float64]
    win_rate_errors: NDArray[np.float64]
    kl_errors: NDArray[np.float64]

    @property
    def value(self) -> float:
        """Win rate, the mean over prompts."""
        return float(self.win_rates.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the win rate over prompts, for other prompts of their kind.

        What the answers to one prompt have in common is not averaged out by sampling more of them.
        """
        return float(self.win_rates.std(ddof=1) / np.sqrt(len(self.win_rates)))

    @property
    def sampling_error(self) -> float:
        """Standard error of the win rate on these very prompts."""
        return _error_of_mean(self.win_rate_errors)

    @property
    def kl(self) -> float:
        """Divergence in nats, the mean over prompts."""
        return float(self.kls.mean())

    @property
    def kl_error(self) -> float:
        """Standard error of the divergence on these very prompts."""
        return _error_of_mean(self.kl_errors)

    def interval(self, level: float = 0.95) -> Estimate:
        """Return the win rate with Student's t interval over prompts."""
        return mean_interval(self.win_rates, level)


def _error_of_mean(errors: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.square(errors).sum()) / len(errors))


def estimate_win_rate(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    prompts: Sequence[ArrayLike],
    reward_fn: Reward,
    procedure: Procedure,
    num_comparisons: int = 100,
    *,
    num_tokens: int,
    stop: int | None = None,
    seed: int,
    batch_size: int = 256,
) -> WinRateEstimate:
    """Estimate the inference-time win rate ``W_r(T(policy) > T(base))``: both sides are decoded.

    For each prompt and comparison N responses are drawn from either model, and the two that the
    procedure keeps are compared (Section 3 of the paper).

    Parameters
    ----------
    policy, reference : transformers.PreTrainedModel
        Causal language models that share their tokens.
    prompts : sequence of (L_i,) integers
        At least 2.
    reward_fn : callable
        ``reward_fn(prompts, responses)`` is a finite number a response. It chooses and judges.
    procedure : Procedure
        `Sampling`, `BestOfN` or `WorstOfN`.
    num_comparisons : int, default 100
        Comparisons a prompt, at least 2.
    num_tokens : int
        Greatest length of a response.
    stop : int, optional
        Token that ends a response.
    seed : int
        At least 0.
    batch_size : int, default 256
        Responses at a time; the responses do not depend on it.

    Returns
    -------
    WinRateEstimate

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("procedure", procedure, Procedure)
    num_comparisons = check_integer("num_comparisons", num_comparisons, low=2)
    ours, theirs = stream(seed, "policy"), stream(seed, "base")
    prompts = same_tokens(policy, reference).check_texts("prompts", prompts, min_length=1)
    if len(prompts) < 2:
        raise ValueError(f"prompts must be at least 2, got {len(prompts)}")
    asked = [prompt for prompt in prompts for _ in range(num_comparisons * procedure.n)]
    shape = (len(prompts), num_comparisons, procedure.n)

    def kept(responses: list[Tokens]) -> NDArray[np.float64]:
        """Rewards (prompts, comparisons) of the responses that the procedure keeps."""
        rewards = score(reward_fn, asked, responses).reshape(shape)
        return np.take_along_axis(rewards, procedure.select(rewards)[..., None], -1)[..., 0]

    answers = sample_responses(policy, asked, num_tokens, ours, stop, batch_size)
    base_answers = sample_responses(reference, asked, num_tokens, theirs, stop, batch_size)
    policy_log_probs, base_log_probs = (
        sequence_log_probs(model, asked, answers, batch_size).double().cpu().numpy()
        for model in (policy, reference)
    )
    wins = (np.sign(kept(answers) - kept(base_answers)) + 1) / 2
    log_ratios = (policy_log_probs - base_log_probs).reshape(len(prompts), -1)
    return WinRateEstimate(*_means(wins, log_ratios), *_errors(wins, log_ratios))


def _means(*samples: NDArray) -> list[NDArray[np.float64]]:
    return [rows.mean(-1) for rows in samples]


def _errors(*samples: NDArray) -> list[NDArray[np.float64]]:
    return [rows.std(-1, ddof=1) / np.sqrt(rows.shape[-1]) for rows in samples]
