"""InfAlign-CTRL: calibrate the reward, transform it, and train the policy on that (Section 4).

The reward is calibrated offline by `workingpapers.infalign.calibrate`; the transform is designed
offline by the functions of `workingpapers.infalign.continuum`, without regard to the task. What is
left is KL-regularised RL, here by REINFORCE with a leave-one-out baseline, by clipped policy
gradients, or, where the responses can be listed, by the exact gradient.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from tqdm.auto import trange
from transformers import PreTrainedModel

from workingpapers.arguments import check_choice, check_integer, check_positive, check_type
from workingpapers.contexts import evaluating
from workingpapers.infalign.calibration import RewardCalibrator
from workingpapers.infalign.losses import (
    best_of_n_sft_loss,
    dpo_loss,
    exact_loss,
    ipo_loss,
    leave_one_out,
    ppo_loss,
    rloo_loss,
)
from workingpapers.infalign.rollouts import (
    Reward,
    Tokens,
    enumerate_log_probs,
    enumerate_responses,
    parts,
    same_tokens,
    sample_responses,
    score,
    sequence_log_probs,
    stream,
)
from workingpapers.infalign.transforms import Transform
from workingpapers.language import TransformerLM, response_log_probs

__all__ = ["TrainingRun", "shaped_reward", "train_ctrl", "train_offline"]

Algorithm = Literal["rloo", "ppo", "exact"]
Uncalibrated = Literal["raw", "z-scored"]
Objective = Literal["dpo", "ipo", "best_of_n"]

Shape = Callable[[ArrayLike, ArrayLike], tuple[NDArray[np.float64], NDArray[np.float64]]]

CLIP_NORM = 1.0  # longer gradients are shortened to this length
PPO_DEFAULTS = 4, 0.2  # epochs and clip
TRAINABLE = torch.float32, torch.float64, torch.bfloat16


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """What the policy did at each step, before the step.

    Attributes
    ----------
    quantile : ndarray, shape (steps,)
        Mean calibrated reward u of its answers: its win rate against the base.
    reward : ndarray, shape (steps,)
        Mean of the reward R that it is trained on.
    kl : ndarray, shape (steps,)
        ``KL(policy || reference)`` in nats: the mean log-ratio of its own answers, which is an
        unbiased estimate and may be below 0; exact with ``algorithm="exact"``.
    above, below : ndarray, shape (steps,)
        Shares of its answers with u > 0.9, and with u < 0.1.
    """

    quantile: NDArray[np.float64]
    reward: NDArray[np.float64]
    kl: NDArray[np.float64]
    above: NDArray[np.float64]
    below: NDArray[np.float64]


def shaped_reward(
    transform: Transform | Uncalibrated,
    calibrator: RewardCalibrator,
    prompt_index: ArrayLike,
    rewards: ArrayLike,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn rewards into what the policy is trained on.

    Parameters
    ----------
    transform : Transform or {"raw", "z-scored"}
        Phi, applied to the calibrated reward; or one of the baselines without calibration: the
        reward as it is, or standardised by mean and standard deviation of the prompt's base
        rewards.
    calibrator : RewardCalibrator
        Fitted to the base rewards of every prompt.
    prompt_index : array_like of int, shape (B,)
        Prompt of each reward.
    rewards : array_like, shape (B,)
        Finite.

    Returns
    -------
    quantile : ndarray, shape (B,)
        Calibrated rewards u in [0, 1].
    shaped : ndarray, shape (B,)
        ``Phi(u)``, or what the baseline makes of the reward.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, a prompt was not seen by the calibrator, or base rewards
        that do not vary are to be standardised.
    """
    return _shaping(transform, calibrator)(prompt_index, rewards)


def _shaping(transform: Transform | Uncalibrated, calibrator: RewardCalibrator) -> Shape:
    """Make the function of prompts and rewards that `shaped_reward` is."""
    check_type("calibrator", calibrator, RewardCalibrator)
    if not isinstance(transform, Transform):
        check_choice("transform", transform, get_args(Uncalibrated))
    means, sds = np.zeros(calibrator.num_prompts), np.ones(calibrator.num_prompts)
    if transform == "z-scored":
        means, sds = _means_and_sds(calibrator.base_rewards)

    def shape(prompt_index: ArrayLike, rewards: ArrayLike) -> tuple[NDArray, NDArray]:
        quantile = calibrator.transform(prompt_index, rewards)
        if isinstance(transform, Transform):
            return quantile, transform(quantile)
        prompt_index = np.asarray(prompt_index)
        return quantile, (np.asarray(rewards, float) - means[prompt_index]) / sds[prompt_index]

    return shape


def _means_and_sds(base_rewards: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and standard deviations (P,) of sorted base rewards (P, K)."""
    with np.errstate(over="ignore", invalid="ignore"):
        means, sds = base_rewards.mean(1), base_rewards.std(1)
    # The computed deviation of equal numbers is that of their rounding, and not 0.
    varying = (base_rewards[:, 0] < base_rewards[:, -1]) & (sds > 0) & np.isfinite(sds)
    if not varying.all():
        raise ValueError(
            "base rewards of calibrator must vary, within what a float64 resolves, to be z-scored; "
            f"prompt {varying.argmin()}'s do not"
        )
    return means, sds


def train_ctrl(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    prompts: Sequence[ArrayLike],
    reward_fn: Reward,
    transform: Transform | Uncalibrated,
    beta: float,
    calibrator: RewardCalibrator,
    *,
    num_tokens: int,
    stop: int | None = None,
    rollouts_per_prompt: int = 64,
    prompts_per_step: int | None = None,
    steps: int = 300,
    lr: float = 3e-3,
    algorithm: Algorithm = "rloo",
    ppo_epochs: int = 4,
    ppo_clip: float = 0.2,
    batch_size: int = 256,
    seed: int,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> TrainingRun:
    """Train a policy, in place, on the calibrated and transformed reward (steps 2 and 3 of CTRL).

    Each step draws answers to the prompts at temperature 1, calibrates and transforms their
    rewards, and takes a step of AdamW (cosine schedule, no weight decay, gradients no longer than
    1) along the gradient of ``E R / beta - KL(policy || reference)``. Dropout is off.

    Parameters
    ----------
    policy : transformers.PreTrainedModel
        Causal language model that is trained: those of its parameters that require gradients. It
        usually starts as a copy of ``reference``. Not in float16, which AdamW's steps underflow in.
    reference : transformers.PreTrainedModel
        The base policy pi0; not changed.
    prompts : sequence of (L_i,) integers
        Token texts of any lengths of at least 1; prompt i is that of ``calibrator``.
    reward_fn : callable
        ``reward_fn(prompts, responses)`` is a finite number a response. See `classifier_reward`.
    transform : Transform or {"raw", "z-scored"}
        Phi, or a baseline without calibration; see `shaped_reward`.
    beta : float
        Weight of the divergence, above 0.
    calibrator : RewardCalibrator
        Fitted to base rewards; see `calibrate`.
    num_tokens : int
        Greatest length of a response, at least 1.
    stop : int, optional
        Token that ends a response, and counts as part of it.
    rollouts_per_prompt : int, default 64
        Answers to each prompt of a step, at least 2; "exact" draws none.
    prompts_per_step : int, optional
        Prompts of a step, drawn with replacement; by default all of them, once each, as "exact"
        needs it.
    steps : int, default 300
        At least 1.
    lr : float, default 3e-3
        Learning rate at the start, above 0; it falls to 0 along a cosine.
    algorithm : {"rloo", "ppo", "exact"}
        REINFORCE with a leave-one-out baseline; clipped policy gradients, several steps on the same
        answers; or the exact gradient over all V^num_tokens responses to all prompts, which needs
        a space of at most a million and no ``stop``.
    ppo_epochs : int, default 4
        Optimiser steps on the answers of a step, for "ppo" only.
    ppo_clip : float, default 0.2
        How far the probability of an answer may move in a step, for "ppo" only; in (0, 1).
    batch_size : int, default 256
        Answers at a time, for the memory's sake: the run is the same up to rounding.
    seed : int
        Of the answers, at least 0.
    device : torch.device or str, optional
        Where to train; both models are moved there. By default where the policy is.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    TrainingRun
        One entry a step.

    Raises
    ------
    FloatingPointError
        If a gradient is infinite or NaN.
    TypeError, ValueError
        If an argument is not as described, or a text becomes too long for a model.
    """
    check_choice("algorithm", algorithm, get_args(Algorithm))
    beta, shape = check_positive("beta", beta), _shaping(transform, calibrator)
    rollouts = check_integer("rollouts_per_prompt", rollouts_per_prompt, low=2)
    epochs, clip = check_integer("ppo_epochs", ppo_epochs), check_positive("ppo_clip", ppo_clip)
    if clip >= 1:
        raise ValueError(f"ppo_clip must be in (0, 1), got {ppo_clip!r}")
    if algorithm != "ppo" and (epochs, clip) != PPO_DEFAULTS:
        raise ValueError("ppo_epochs and ppo_clip must be given for algorithm 'ppo' only")
    if algorithm == "exact" and prompts_per_step is not None:
        raise ValueError(f"prompts_per_step must be None for 'exact', got {prompts_per_step!r}")
    rng = stream(seed, "training")
    sizes = num_tokens, stop, batch_size, prompts_per_step, steps, lr
    task = _Task.of(policy, reference, prompts, reward_fn, *sizes, device)
    if calibrator.num_prompts != len(task.prompts):
        raise ValueError(
            f"calibrator must be of the {len(task.prompts)} prompts, got {calibrator.num_prompts}"
        )
    if algorithm == "exact":
        step = _exact_step(task, shape, beta)
    elif algorithm == "ppo":
        loss = partial(ppo_loss, clip=clip)
        step = _sampled_step(task, shape, beta, rollouts, loss, epochs, rng)
    else:
        step = _sampled_step(task, shape, beta, rollouts, _on_policy, 1, rng)
    lines = _train(task, step, progress)
    return TrainingRun(**{name: np.array([line[name] for line in lines]) for name in lines[0]})


def train_offline(
    policy: PreTrainedModel,
    reference: PreTrainedModel,
    prompts: Sequence[ArrayLike],
    reward_fn: Reward,
    objective: Objective,
    strength: float,
    *,
    num_tokens: int,
    stop: int | None = None,
    samples_per_prompt: int = 64,
    prompts_per_step: int | None = None,
    steps: int = 300,
    lr: float = 3e-3,
    batch_size: int = 256,
    seed: int,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Train a policy, in place, on answers of the base policy: the baselines DPO, IPO and BoNBoN.

    Each step draws new answers of the reference. For the pair losses they are paired at random,
    and the one with the larger reward is chosen; pairs that tie are left out. The optimiser is that
    of `train_ctrl`.

    Parameters
    ----------
    policy, reference, prompts, reward_fn, num_tokens, stop, steps, lr
        As for `train_ctrl`.
    objective : {"dpo", "ipo", "best_of_n"}
        `dpo_loss`, `ipo_loss` or `best_of_n_sft_loss`.
    strength : float
        beta of the pair losses; N, an integer of at most ``samples_per_prompt``, for "best_of_n".
    samples_per_prompt : int, default 64
        Answers to each prompt of a step, at least 2; an even number for the pair losses.
    prompts_per_step : int, optional
        Prompts of a step, drawn with replacement; by default all of them, once each.
    batch_size, seed, device, progress
        As for `train_ctrl`.

    Returns
    -------
    ndarray, shape (steps,)
        The loss of each step before the step.

    Raises
    ------
    FloatingPointError
        If a gradient is infinite or NaN.
    TypeError, ValueError
        If an argument is not as described, a text becomes too long for a model, or all pairs of a
        step tie.
    """
    check_choice("objective", objective, get_args(Objective))
    samples = check_integer("samples_per_prompt", samples_per_prompt, low=2)
    if objective == "best_of_n":
        strength = check_integer("strength", strength, high=samples)
    elif samples % 2:
        raise ValueError(f"samples_per_prompt must be even to be paired, got {samples}")
    else:
        strength = check_positive("strength", strength)
    rng = stream(seed, "training")
    sizes = num_tokens, stop, batch_size, prompts_per_step, steps, lr
    task = _Task.of(policy, reference, prompts, reward_fn, *sizes, device)

    def step(descend: Descend) -> float:
        questions, answers, rewards = task.answered(reference, task.asked(samples, rng), rng)
        if objective == "best_of_n":
            rewards = rewards.reshape(-1, samples)

            def loss_of(log_probs: Tensor) -> Tensor:
                return best_of_n_sft_loss(log_probs.reshape(rewards.shape), rewards, strength)

        else:
            kept = _pairs(rewards)
            questions, answers = ([texts[i] for i in kept] for texts in (questions, answers))
            base = sequence_log_probs(reference, questions, answers, task.batch_size).chunk(2)
            loss_of_pairs = {"dpo": dpo_loss, "ipo": ipo_loss}[objective]

            def loss_of(log_probs: Tensor) -> Tensor:
                return loss_of_pairs(*log_probs.chunk(2), *base, strength)

        loss = _backward(task, questions, answers, loss_of)
        descend(1.0)
        return loss

    return np.array(_train(task, step, progress))


def _pairs(rewards: NDArray[np.float64]) -> NDArray[np.int64]:
    """Pair neighbours: places of all chosen ones, and then of all rejected ones."""
    first, second = rewards.reshape(-1, 2).T
    decided = np.flatnonzero(first != second)
    if not len(decided):
        raise ValueError("reward_fn must not give all answers to a prompt one reward")
    chosen = 2 * decided + (first < second)[decided]
    return np.append(chosen, chosen ^ 1)  # the other one has the same index but for the last bit


def _backward(
    task: "_Task",
    questions: list[Tokens],
    answers: list[Tokens],
    loss_of: Callable[[Tensor], Tensor],
) -> float:
    """Add the gradient of a function of the policy's log-probabilities; return its value."""
    values, log_probs = _log_probs_twice(task, questions, answers)
    values.requires_grad_()
    loss = loss_of(values)
    slopes = torch.autograd.grad(loss, values)[0]
    for rows in parts(len(answers), task.batch_size):
        if log_probs is None:
            part = response_log_probs(task.policy, questions[rows], answers[rows])
        else:
            part = log_probs
        (slopes[rows] * part).sum().backward()
    return float(loss.detach())


@dataclass(frozen=True, eq=False)
class _Task:
    """Two models, and questions to them whose answers have rewards."""

    policy: PreTrainedModel
    reference: PreTrainedModel
    prompts: list[Tokens]
    reward_fn: Reward
    num_tokens: int
    stop: int | None
    batch_size: int
    prompts_per_step: int | None
    steps: int
    lr: float

    @classmethod
    def of(
        cls,
        policy: PreTrainedModel,
        reference: PreTrainedModel,
        prompts: Sequence[ArrayLike],
        reward_fn: Reward,
        num_tokens: int,
        stop: int | None,
        batch_size: int,
        prompts_per_step: int | None,
        steps: int,
        lr: float,
        device: torch.device | str | None,
    ) -> Self:
        """Check arguments, and put the two models on one device."""
        lm = same_tokens(policy, reference)
        if policy is reference:
            raise ValueError("reference must be another model than policy, got the same one")
        dtypes = {p.dtype for p in policy.parameters() if p.requires_grad}
        if not dtypes or not dtypes <= set(TRAINABLE):
            raise ValueError(
                f"policy must have parameters that require gradients, of {TRAINABLE}, "
                f"got {dtypes or 'none'}"
            )
        prompts = lm.check_texts("prompts", prompts, min_length=1)
        if not callable(reward_fn):
            raise TypeError(f"reward_fn must be callable, got {type(reward_fn).__name__}")
        num_tokens = check_integer("num_tokens", num_tokens)
        sizes = check_integer("batch_size", batch_size), prompts_per_step
        if prompts_per_step is not None:
            check_integer("prompts_per_step", prompts_per_step)
        steps, lr = check_integer("steps", steps), check_positive("lr", lr)
        for model in (reference, policy):
            model.to(policy.device if device is None else device)
        return cls(policy, reference, prompts, reward_fn, num_tokens, stop, *sizes, steps, lr)

    def asked(self, repeats: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Choose the prompts of a step: their indices, each repeated in a row."""
        if self.prompts_per_step is None:
            return np.arange(len(self.prompts)).repeat(repeats)
        return rng.integers(len(self.prompts), size=self.prompts_per_step).repeat(repeats)

    def answered(
        self, model: PreTrainedModel, index: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[list[Tokens], list[Tokens], NDArray[np.float64]]:
        """Let a model answer prompts; return these, the answers and their rewards."""
        questions = [self.prompts[i] for i in index]
        answers = sample_responses(
            model, questions, self.num_tokens, rng, self.stop, self.batch_size
        )
        return questions, answers, score(self.reward_fn, questions, answers)


Descend = Callable[[float], None]
Step = Callable[[Descend], Any]


def _train(task: _Task, step: Step, progress: bool) -> list:
    """Make steps; each computes gradients and descends once or more. Return what they return.

    Gradients are divided by a scale, so that those of steep transforms stay within single precision
    until they are clipped.
    """
    parameters = [p for p in task.policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=task.lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.steps)
    optimizer.zero_grad()

    def descend(scale: float) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
        if not math.isfinite(norm):
            raise FloatingPointError("the gradient is not finite any more: lower lr or raise beta")
        for gradient in gradients:
            gradient.mul_(min(scale, CLIP_NORM / norm) if norm else scale)
        optimizer.step()
        optimizer.zero_grad()

    lines = []
    with evaluating(task.policy), evaluating(task.reference):
        for _ in trange(task.steps, desc="training", disable=None if progress else True):
            lines.append(step(descend))
            schedule.step()
    return lines


def _on_policy(log_probs: Tensor, _: Tensor, advantages: Tensor) -> Tensor:
    """REINFORCE does not look back at the policy that the answers were drawn from."""
    return rloo_loss(log_probs, advantages)


def _sampled_step(
    task: _Task,
    shape: Shape,
    beta: float,
    rollouts: int,
    loss: Callable[[Tensor, Tensor, Tensor], Tensor],
    epochs: int,
    rng: np.random.Generator,
) -> Step:
    """Make the step that answers, compares answers to one prompt, and follows the gradient."""

    def step(descend: Descend) -> dict[str, float]:
        index = task.asked(rollouts, rng)
        questions, answers, rewards = task.answered(task.policy, index, rng)
        quantile, shaped = shape(index, rewards)
        old, first = _log_probs_twice(task, questions, answers)
        base = sequence_log_probs(task.reference, questions, answers, task.batch_size)
        # In double precision, and rounded to the policy's own only with the gradient: rewards
        # and beta of steep transforms are beyond what a float32 holds, their ratios are not.
        returns = _in_units(shaped, beta).to(old.device) - (old - base)
        advantages = leave_one_out(returns.reshape(-1, rollouts)).flatten()
        scale = _largest(advantages)
        for epoch in range(epochs):
            for rows in parts(len(index), task.batch_size):
                if epoch or first is None:
                    log_probs = response_log_probs(task.policy, questions[rows], answers[rows])
                else:
                    log_probs = first
                share = len(log_probs) / len(index)
                (share / scale * loss(log_probs, old[rows], advantages[rows])).backward()
            descend(scale)
        weights = np.full(len(index), 1 / len(index))
        return _line(weights, quantile, shaped, (old - base).double().cpu().numpy())

    return step


def _in_units(shaped: NDArray[np.float64], beta: float) -> Tensor:
    """Return ``R / beta`` in double precision."""
    with np.errstate(over="ignore"):
        returns = shaped / beta
    if not np.isfinite(returns).all():
        raise ValueError(f"beta must be larger for R of {shaped.min()}..{shaped.max()}, got {beta}")
    return torch.from_numpy(returns)


def _largest(returns: Tensor) -> float:
    """Return the size of the largest, at least 1."""
    return max(1.0, float(returns.abs().max()))


def _log_probs_twice(
    task: _Task, questions: list[Tokens], answers: list[Tokens]
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of the policy's answers without gradients, and, if they fit, with."""
    if len(answers) > task.batch_size:
        return sequence_log_probs(task.policy, questions, answers, task.batch_size), None
    log_probs = response_log_probs(task.policy, questions, answers)
    return log_probs.detach(), log_probs


def _exact_step(task: _Task, shape: Shape, beta: float) -> Step:
    """Make the step that follows the exact gradient over all responses."""
    if task.stop is not None:
        raise ValueError(f"stop must be None where responses are listed, got {task.stop!r}")
    with evaluating(task.reference), torch.no_grad():
        base = enumerate_log_probs(task.reference, task.prompts, task.num_tokens)
    responses = enumerate_responses(TransformerLM(task.policy).vocab_size, task.num_tokens)
    index = np.arange(len(task.prompts)).repeat(len(responses))
    answers = [response for _ in task.prompts for response in responses]
    rewards = score(task.reward_fn, [task.prompts[i] for i in index], answers)
    quantile, shaped = (part.reshape(len(task.prompts), -1) for part in shape(index, rewards))
    centred = shaped - shaped.mean(1, keepdims=True)  # only differences matter
    targets = _in_units(centred, beta).to(base.device)
    scale = _largest(targets)

    def step(descend: Descend) -> dict[str, float]:
        log_probs = enumerate_log_probs(task.policy, task.prompts, task.num_tokens)
        (exact_loss(log_probs, base, targets, 1.0) / scale).backward()
        descend(scale)
        log_probs = log_probs.detach()
        probs, log_ratios = (x.double().cpu().numpy() for x in (log_probs.exp(), log_probs - base))
        return _line(probs / probs.sum(), quantile, shaped, log_ratios)

    return step


def _line(weights: NDArray, quantile: NDArray, shaped: NDArray, log_ratios: NDArray) -> dict:
    """Return what is noted of a step: means over the answers, with weights that sum to 1."""
    values = {
        "quantile": quantile,
        "reward": shaped,
        "kl": log_ratios,
        "above": quantile > 0.9,
        "below": quantile < 0.1,
    }
    return {name: float((weights * value).sum()) for name, value in values.items()}
