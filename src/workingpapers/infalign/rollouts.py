"""What a policy answers, and what that is worth: samples, whole response spaces, rewards.

A policy is any Hugging Face causal language model; prompts and responses are arrays of token ids. A
reward is a function of prompts and responses, or a sequence classifier behind `classifier_reward`.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import PreTrainedModel

from workingpapers.arguments import as_reals, check_integer, check_type
from workingpapers.contexts import evaluating
from workingpapers.infalign.calibration import Method, RewardCalibrator
from workingpapers.language import (
    TransformerLM,
    generate,
    response_log_probs,
    reward_scores,
)

__all__ = [
    "Reward",
    "calibrate",
    "classifier_reward",
    "enumerate_log_probs",
    "enumerate_responses",
    "response_distribution",
    "sample_responses",
    "score",
    "sequence_log_probs",
]

Tokens = NDArray[np.int64]
Reward = Callable[[Sequence[Tokens], Sequence[Tokens]], ArrayLike]

LARGEST_SPACE = 1_000_000  # responses that are still written out


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of a seed and a purpose: those of one seed share no draws."""
    return np.random.default_rng([check_integer("seed", seed, low=0), *purpose.encode()])


def same_tokens(policy: PreTrainedModel, reference: PreTrainedModel) -> TransformerLM:
    """Return the policy as a language model, once it is sure that both have the same tokens."""
    lm, base = TransformerLM(policy), TransformerLM(reference)
    if lm.vocab_size != base.vocab_size:
        raise ValueError(
            f"reference must have the policy's {lm.vocab_size} tokens, got {base.vocab_size}"
        )
    return lm


def sample_responses(
    policy: PreTrainedModel,
    prompts: Sequence[ArrayLike],
    num_tokens: int,
    rng: np.random.Generator,
    stop: int | None = None,
    batch_size: int = 256,
) -> list[Tokens]:
    """Draw a response to each prompt, at temperature 1 and without truncation.

    Truncated samples (top-k, top-p) would not be the policy's own: estimates of its divergence and
    of its gradient would be biased.

    Parameters
    ----------
    policy : transformers.PreTrainedModel
        A causal language model.
    prompts : sequence of (L_i,) integers
        Of any lengths of at least 1; a prompt that is given twice gets two responses.
    num_tokens : int
        Greatest length of a response, at least 1.
    rng : numpy.random.Generator
        Each response draws from a child of its own.
    stop : int, optional
        Token that ends a response.
    batch_size : int, default 256
        Responses at a time; the responses do not depend on it.

    Returns
    -------
    list of (T_i,) int64 arrays
        The responses, with the stop token if one was drawn.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a text becomes too long for the policy.
    """
    check_integer("batch_size", batch_size)
    check_type("rng", rng, np.random.Generator)
    lm = TransformerLM(policy)
    prompts = lm.check_texts("prompts", prompts, min_length=1)
    drawn = [
        generate(lm, prompts[rows], num_tokens, rng, stop=stop)
        for rows in parts(len(prompts), batch_size)
    ]
    return [_upto(stop, response) for part in drawn for response in part]


def parts(count: int, size: int) -> list[slice]:
    """Cut a batch into parts."""
    return [slice(start, start + size) for start in range(0, count, size)]


def _upto(stop: int | None, response: Tokens) -> Tokens:
    """Cut a response after its first stop token."""
    ends = np.flatnonzero(response == stop) if stop is not None else ()
    return response[: ends[0] + 1] if len(ends) else response


@torch.no_grad()
def sequence_log_probs(
    policy: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    batch_size: int = 256,
) -> Tensor:
    """Log-probabilities of responses, without gradients and without dropout.

    Parameters
    ----------
    policy : transformers.PreTrainedModel
        A causal language model.
    prompts, responses : sequences of (L_i,) integers
        One response a prompt, each of at least 1 token.
    batch_size : int, default 256
        Responses at a time.

    Returns
    -------
    Tensor, shape (B,)
        In nats, sums over the tokens of each response.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_integer("batch_size", batch_size)
    lm = TransformerLM(policy)
    prompts = lm.check_texts("prompts", prompts, min_length=1)
    responses = lm.check_texts("responses", responses, min_length=1)
    if len(prompts) != len(responses):
        raise ValueError(f"responses must be {len(prompts)}, one a prompt, got {len(responses)}")
    with evaluating(policy):
        log_probs = [
            response_log_probs(policy, prompts[rows], responses[rows])
            for rows in parts(len(prompts), batch_size)
        ]
    return torch.cat(log_probs)


def score(
    reward_fn: Reward, prompts: Sequence[Tokens], responses: Sequence[Tokens]
) -> NDArray[np.float64]:
    """Ask for the rewards of responses, and check what comes back.

    Parameters
    ----------
    reward_fn : callable
        ``reward_fn(prompts, responses)`` is a finite number a response, as an array, a tensor of
        any dtype and on any device, or a sequence.
    prompts, responses : sequences of (L_i,) integers
        One response a prompt.

    Returns
    -------
    ndarray of float64, shape (B,)

    Raises
    ------
    TypeError
        If ``reward_fn`` cannot be called.
    ValueError
        If it gives anything else.
    """
    if not callable(reward_fn):
        raise TypeError(f"reward_fn must be callable, got {type(reward_fn).__name__}")
    rewards = reward_fn(prompts, responses)
    if isinstance(rewards, list | tuple):
        rewards = [_plain(one) for one in rewards]
    return as_reals("rewards of reward_fn", _plain(rewards), (len(responses),))


def _plain(values: ArrayLike | Tensor) -> ArrayLike:
    """Turn tensors, also those that numpy cannot hold, into arrays."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    return (values.double() if values.is_floating_point() else values).numpy()


def classifier_reward(
    model: PreTrainedModel,
    decode: Callable[[Sequence[int]], str] | None = None,
    encode: Callable[[str], Sequence[int]] | None = None,
    batch_size: int = 64,
) -> Reward:
    """Take a Hugging Face sequence classifier as the reward.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With one label. It reads a prompt and its response as one text.
    decode, encode : callable, optional
        From the policy's tokens to text, and from text to the model's tokens, such as
        ``tokenizer.decode`` and ``tokenizer.encode`` of the two. By default both share their
        tokens.
    batch_size : int, default 64
        Texts at a time.

    Returns
    -------
    callable
        A reward, as `score` takes it.

    Raises
    ------
    TypeError
        If ``model`` is not one.
    ValueError
        If the model has more than one label, only one of ``decode`` and ``encode`` is given, or
        another argument is not as described.
    """
    check_type("model", model, PreTrainedModel)
    if model.config.num_labels != 1:
        raise ValueError(f"model must have one label, got {model.config.num_labels}")
    check_integer("batch_size", batch_size)
    if (decode is None) != (encode is None):
        raise ValueError("decode and encode must be given both, or neither")

    def reward(prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> NDArray[np.float64]:
        texts = [np.concatenate(pair) for pair in zip(prompts, responses, strict=True)]
        if decode is not None:
            texts = [encode(decode(text.tolist())) for text in texts]
        return reward_scores(model, texts, batch_size)

    return reward


def calibrate(
    reference: PreTrainedModel,
    prompts: Sequence[ArrayLike],
    reward_fn: Reward,
    num_samples: int = 100,
    *,
    num_tokens: int,
    stop: int | None = None,
    method: Method = "empirical",
    seed: int,
    batch_size: int = 256,
) -> RewardCalibrator:
    """Calibrate the reward offline: score K base responses to every prompt (step 1 of CTRL).

    Parameters
    ----------
    reference : transformers.PreTrainedModel
        The base policy pi0.
    prompts : sequence of (L_i,) integers
        Token texts.
    reward_fn : callable
        As for `score`.
    num_samples : int, default 100
        K.
    num_tokens, stop, batch_size
        As for `sample_responses`.
    method : {"empirical", "quantile"}
        As for `RewardCalibrator`.
    seed : int
        At least 0.

    Returns
    -------
    RewardCalibrator
        Fitted; its prompt i is ``prompts[i]``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    num_samples = check_integer("num_samples", num_samples)
    rng = stream(seed, "calibration")
    calibrator = RewardCalibrator(method)
    prompts = TransformerLM(reference).check_texts("prompts", prompts, min_length=1)
    asked = [prompt for prompt in prompts for _ in range(num_samples)]
    responses = sample_responses(reference, asked, num_tokens, rng, stop, batch_size)
    return calibrator.fit(score(reward_fn, asked, responses).reshape(len(prompts), num_samples))


def enumerate_responses(vocab_size: int, length: int) -> Tokens:
    """List all responses of one length, in alphabetical order.

    Parameters
    ----------
    vocab_size : int
        Number of tokens V, at least 1.
    length : int
        L, in 0..1,000,000.

    Returns
    -------
    ndarray of int64, shape (V^L, L)

    Raises
    ------
    ValueError
        If an argument is not as described, or there are more than a million.
    """
    number = _size_of_space(vocab_size, length)
    places = vocab_size ** np.arange(length, dtype=np.int64)[::-1]
    return np.arange(number, dtype=np.int64)[:, None] // places % vocab_size


def _size_of_space(vocab_size: int, length: int) -> int:
    """Return V^L, if so many responses can be listed."""
    vocab_size = check_integer("vocab_size", vocab_size)
    length = check_integer("length", length, low=0, high=LARGEST_SPACE)
    number = vocab_size ** min(length, LARGEST_SPACE.bit_length())
    if number > LARGEST_SPACE:
        raise ValueError(
            f"length must leave at most {LARGEST_SPACE} responses, got {vocab_size}^{length}"
        )
    return number


def enumerate_log_probs(
    policy: PreTrainedModel, prompts: Sequence[ArrayLike], length: int
) -> Tensor:
    """Log-probabilities of all responses of one length; differentiable.

    Responses that differ in their last token only share a row of the batch: V^(L-1) rows are read
    instead of V^L.

    Parameters
    ----------
    policy : transformers.PreTrainedModel
        A causal language model with V tokens, used in the mode in which it is.
    prompts : sequence of (L_i,) integers
        Token texts.
    length : int
        L, at least 1.

    Returns
    -------
    Tensor of float32, shape (prompts, V^L)
        In the order of `enumerate_responses`; of float64 if the policy is.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, there are more than a million responses, or a text
        becomes too long for the policy.
    """
    lm = TransformerLM(policy)
    prompts = lm.check_texts("prompts", prompts, min_length=1)
    _size_of_space(lm.vocab_size, check_integer("length", length))
    prefixes = enumerate_responses(lm.vocab_size, length - 1)
    longest = max(map(len, prompts)) + length
    if lm.max_length is not None and longest > lm.max_length:
        raise ValueError(
            f"length must leave prompts with responses at most {lm.max_length} tokens "
            f"(max_length), got {longest}"
        )
    prefixes = torch.from_numpy(prefixes).to(lm.device)
    return torch.stack([_log_probs_after(policy, prompt, prefixes) for prompt in prompts])


def _log_probs_after(policy: PreTrainedModel, prompt: Tokens, prefixes: Tensor) -> Tensor:
    """Log-probabilities (V^L,) of every prefix with every last token."""
    start = torch.from_numpy(prompt).to(prefixes.device).expand(len(prefixes), -1)
    logits = policy(input_ids=torch.cat([start, prefixes], 1), use_cache=False).logits
    logits = logits if logits.dtype == torch.float64 else logits.float()
    log_probs = logits[:, len(prompt) - 1 :].log_softmax(-1)
    before = log_probs[:, :-1].gather(-1, prefixes[..., None])[..., 0].sum(-1)
    return (before[:, None] + log_probs[:, -1]).flatten()


@torch.no_grad()
def response_distribution(
    policy: PreTrainedModel, prompts: Sequence[ArrayLike], length: int
) -> NDArray[np.float64]:
    """Distribution over all responses of one length, without dropout.

    Parameters
    ----------
    policy, prompts, length
        As for `enumerate_log_probs`.

    Returns
    -------
    ndarray of float64, shape (prompts, V^L)
        Rows are scaled to sum to 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there are more than a million responses.
    """
    check_type("policy", policy, PreTrainedModel)
    with evaluating(policy):
        probs = enumerate_log_probs(policy, prompts, length).double().exp().cpu().numpy()
    return probs / probs.sum(-1, keepdims=True)
