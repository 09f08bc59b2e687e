"""Hugging Face models: as language models, as policies to train, and as judges."""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from workingpapers.arguments import check_choice, check_integer, check_type
from workingpapers.contexts import evaluating, seeded
from workingpapers.language.causal import CausalLM, Decoding
from workingpapers.language.tokens import Texts, as_token_texts, pad, rows_by_length

__all__ = [
    "TransformerLM",
    "new_transformer",
    "response_log_probs",
    "reward_scores",
    "small_config",
    "token_log_probs",
]


class TransformerLM(CausalLM):
    """Any Hugging Face causal language model, without dropout and gradients.

    The model is used where it lies and as it is: on its device, in its dtype, with the weights
    that it has at the time. Half-precision logits are returned as float32.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        With a key-value cache.

    Raises
    ------
    TypeError
        If ``model`` is not one.
    """

    def __init__(self, model: PreTrainedModel):
        check_type("model", model, PreTrainedModel)
        if not model.can_generate() or _cache_name(model) is None:
            raise TypeError(
                f"model must be a causal LM with a key-value cache, got {type(model).__name__}"
            )
        self.model = model
        self.vocab_size = model.config.get_text_config().vocab_size
        self.max_length = _max_length(model)

    @property
    def device(self) -> torch.device:
        """Where the model lies now."""
        return self.model.device

    def start(self, prompts: Texts) -> Decoding:
        """Begin to continue prompts, as in :class:`CausalLM`; they must not be empty."""
        return _CachedDecoding(self, self.check_texts("prompts", prompts, min_length=1))

    @torch.no_grad()
    def position_log_probs(self, batch: Texts) -> Tensor:
        """Log-probabilities of the next token after each position, as in :class:`CausalLM`."""
        tokens = self.check_batch("batch", batch)
        with evaluating(self.model):
            return _logits(self.model, tokens).log_softmax(-1)

    @torch.no_grad()
    def token_log_probs(self, batch: Texts) -> Tensor:
        """Log-probability of each token but the first, as in :class:`CausalLM`."""
        tokens = self.check_batch("batch", batch, min_length=2)
        with evaluating(self.model):
            return token_log_probs(self.model, tokens)


class _CachedDecoding(Decoding):
    """Texts padded on the left; keys and values of what was read are kept."""

    def __init__(self, lm: TransformerLM, prompts: Sequence[NDArray[np.int64]]):
        self._model = lm.model
        self._max_length = lm.max_length
        tokens, mask = pad(prompts, side="left")
        self._mask = mask.to(lm.device)
        self._cache = None
        self._length = tokens.shape[1]
        self._read(tokens.to(lm.device))

    def append(self, tokens: Tensor) -> None:
        self._length += 1
        if self._max_length is not None and self._length > self._max_length:
            raise ValueError(f"texts must have <= {self._max_length} tokens, got {self._length}")
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(tokens), 1)], dim=1)
        self._read(tokens[:, None].to(self._mask.device))

    @torch.no_grad()
    def _read(self, tokens: Tensor) -> None:
        cache = _cache_name(self._model)
        with evaluating(self._model):
            options = {cache: self._cache, "use_cache": True, "logits_to_keep": 1}
            output = _forward(self._model, tokens, self._mask, **options)
        self._cache = getattr(output, cache)
        self.logits = _full(output.logits[:, -1])


def _forward(model: PreTrainedModel, tokens: Tensor, mask: Tensor | None, **options):
    """Output for tokens; with a mask, positions are counted from each text's own beginning."""
    if mask is not None:
        positions = (mask.cumsum(-1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        options |= {"attention_mask": mask, "position_ids": positions}
    arguments = _arguments(type(model))
    optional = ("position_ids", "logits_to_keep")  # known to most models, and needed by those
    options = {k: v for k, v in options.items() if k in arguments or k not in optional}
    return model(input_ids=tokens, **options)


def _logits(model: PreTrainedModel, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    return _full(_forward(model, tokens, mask, use_cache=False).logits)


def _full(logits: Tensor) -> Tensor:
    """At least single precision."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


@lru_cache
def _arguments(kind: type[PreTrainedModel]) -> frozenset[str]:
    return frozenset(inspect.signature(kind.forward).parameters)


def _cache_name(model: PreTrainedModel) -> str | None:
    """Name of the cache, which newer versions of transformers changed."""
    names = ("cache", "past_key_values")
    return next((name for name in names if name in _arguments(type(model))), None)


def _max_length(model: PreTrainedModel) -> int | None:
    """Return how many tokens a model can read, if there is a limit."""
    return getattr(model.config.get_text_config(), "max_position_embeddings", None)


def token_log_probs(
    model: PreTrainedModel, input_ids: Tensor, mask: Tensor | None = None
) -> Tensor:
    """Log-probability of each token but the first, given those before it; differentiable.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model, used in the mode (training or not) in which it is.
    input_ids : (B, T) int64 tensor
        B at least 1, T at least 2 and at most what the model can read; on the model's device.
    mask : (B, T) tensor, optional
        1 for tokens, 0 for padding on one side, left or right; at least one token a row. By
        default, all are tokens.

    Returns
    -------
    (B, T - 1) floating tensor
        0 where the token or the one before it is padding.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    _check_ids(TransformerLM(model), input_ids)
    mask = None if mask is None else _check_mask(mask, input_ids.shape)
    logits = _logits(model, input_ids, mask)[:, :-1]
    chosen = logits.gather(-1, input_ids[:, 1:, None])[..., 0]
    log_probs = chosen - logits.logsumexp(-1)
    if mask is None:
        return log_probs
    return log_probs.where((mask[:, 1:] * mask[:, :-1]).bool(), 0.0)


def _check_ids(lm: TransformerLM, ids: Tensor) -> None:
    check_type("input_ids", ids, Tensor)
    if ids.dtype != torch.int64 or ids.ndim != 2 or not len(ids) or ids.shape[1] < 2:
        raise ValueError(
            f"input_ids must be (B >= 1, T >= 2) int64, got {tuple(ids.shape)} {ids.dtype}"
        )
    if lm.max_length is not None and ids.shape[1] > lm.max_length:
        raise ValueError(f"input_ids must have T <= {lm.max_length}, got {ids.shape[1]}")
    low, high = ids.min().item(), ids.max().item()
    if low < 0 or high >= lm.vocab_size:
        raise ValueError(f"input_ids must be of 0..{lm.vocab_size - 1}, got {low}..{high}")


def _check_mask(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Mask as int64, if it is that of texts padded on one side."""
    check_type("mask", mask, Tensor)
    if mask.shape != shape:
        raise ValueError(f"mask must have shape {tuple(shape)}, got {tuple(mask.shape)}")
    tokens = mask == 1
    edges = (tokens[:, 1:] != tokens[:, :-1]).sum(-1)
    good = ((mask == 0) | tokens).all(-1) & tokens.any(-1) & (edges <= 1)
    if not good.all():
        row = int((~good).nonzero()[0, 0])
        raise ValueError(
            f"mask must be 1 for tokens and 0 for padding on one side, got {mask[row].tolist()} "
            f"in row {row}"
        )
    return mask.long()


def response_log_probs(model: PreTrainedModel, prompts: Texts, responses: Texts) -> Tensor:
    """Log-probability of each response given its prompt; differentiable.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        A causal language model, used in the mode (training or not) in which it is.
    prompts, responses : sequences of (L_i,) integers, or (B, L) integers
        Token texts of any lengths, at least 1. The end token, if it counts, is a response's last.

    Returns
    -------
    (B,) floating tensor
        Sums over the tokens of the responses.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    lm = TransformerLM(model)
    prompts = lm.check_texts("prompts", prompts, min_length=1)
    responses = lm.check_texts("responses", responses, min_length=1)
    if len(prompts) != len(responses):
        raise ValueError(f"responses must be {len(prompts)}, one a prompt, got {len(responses)}")
    whole = [np.concatenate(pair) for pair in zip(prompts, responses, strict=True)]
    whole = lm.check_texts("prompts with responses", whole, min_length=2)
    tokens, mask = (tensor.to(model.device) for tensor in pad(whole))
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=model.device)
    place = torch.arange(1, tokens.shape[1], device=model.device)
    log_probs = token_log_probs(model, tokens, mask)
    return log_probs.where(place >= lengths[:, None], 0.0).sum(-1)


@torch.no_grad()
def reward_scores(
    model: PreTrainedModel, texts: Texts, batch_size: int = 64
) -> NDArray[np.float64]:
    """Scores of a Hugging Face sequence classifier with one output: a reward model.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Its ``config.num_labels`` is 1. The score is that after a text's last token, whatever
        that is; ``config.pad_token_id`` plays no part.
    texts : sequence of (T_i,) integers, or (B, T) integers
        Token texts without padding.
    batch_size : int, default 64
        Texts of one length at a time; the scores do not depend on it.

    Returns
    -------
    (B,) float array

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("model", model, PreTrainedModel)
    if model.config.num_labels != 1:
        raise ValueError(f"model must have num_labels 1, got {model.config.num_labels}")
    texts = as_token_texts("texts", texts, model.config.get_text_config().vocab_size)
    longest, limit = max(map(len, texts)), _max_length(model)
    if limit is not None and longest > limit:
        raise ValueError(f"texts must have <= {limit} tokens, got {longest}")
    batch_size = check_integer("batch_size", batch_size)
    scores = np.empty(len(texts))
    with evaluating(model), _without_padding(model.config):
        for rows in rows_by_length(texts, batch_size):
            tokens = torch.from_numpy(np.stack([texts[row] for row in rows])).to(model.device)
            output = model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
            logits = getattr(output, "logits", None)
            if logits is None or logits.shape != (len(rows), 1):
                raise TypeError(f"model must be a sequence classifier, got {type(model).__name__}")
            scores[rows] = logits[:, 0].double().cpu().numpy()
    return scores


@contextmanager
def _without_padding(config: PretrainedConfig) -> Iterator[None]:
    """Take no token for padding for a while: classifiers look for the last one that is none."""
    configs = [c for c in (config, config.get_text_config()) if hasattr(c, "pad_token_id")]
    kept = [each.pad_token_id for each in configs]
    for each in configs:
        each.pad_token_id = -1
    try:
        yield
    finally:
        for each, token in zip(configs, kept, strict=True):
            each.pad_token_id = token


def small_config(
    kind: str,
    vocab_size: int,
    num_layers: int = 2,
    num_heads: int = 2,
    width: int = 32,
    feed_forward: int | None = None,
    max_length: int = 128,
) -> PretrainedConfig:
    """Configure a small model without dropout and special tokens.

    Parameters
    ----------
    kind : {"gpt2", "llama"}
    vocab_size : int
    num_layers, num_heads : int, default 2
        At least 1.
    width : int, default 32
        Of the residual stream; a multiple of ``num_heads``, for "llama" of twice as many.
    feed_forward : int, optional
        Hidden units of a feed-forward layer; by default ``4 * width``.
    max_length : int, default 128
        Number of tokens that the model can read.

    Returns
    -------
    transformers.PretrainedConfig
        With tied input and output embeddings.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    check_choice("kind", kind, ("gpt2", "llama"))
    vocab_size = check_integer("vocab_size", vocab_size)
    num_layers = check_integer("num_layers", num_layers)
    num_heads = check_integer("num_heads", num_heads)
    width = check_integer("width", width)
    if feed_forward is None:
        feed_forward = 4 * width
    feed_forward = check_integer("feed_forward", feed_forward)
    max_length = check_integer("max_length", max_length)
    unit = num_heads * (2 if kind == "llama" else 1)  # rotary positions turn pairs
    if width % unit:
        raise ValueError(f"width must be a multiple of {unit}, got {width}")
    tokens = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if kind == "gpt2":
        return GPT2Config(
            vocab_size=vocab_size,
            n_layer=num_layers,
            n_head=num_heads,
            n_embd=width,
            n_inner=feed_forward,
            n_positions=max_length,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            resid_pdrop=0.0,
            **tokens,
        )
    return LlamaConfig(
        vocab_size=vocab_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        hidden_size=width,
        intermediate_size=feed_forward,
        max_position_embeddings=max_length,
        tie_word_embeddings=True,
        **tokens,
    )


def new_transformer(config: PretrainedConfig, seed: int) -> PreTrainedModel:
    """Build an untrained causal language model.

    Parameters
    ----------
    config : transformers.PretrainedConfig
        Of any causal language model that transformers knows.
    seed : int
        Of the weights, at least 0.

    Returns
    -------
    transformers.PreTrainedModel
        On the CPU, in evaluation mode.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("config", config, PretrainedConfig)
    with seeded(seed):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False).eval()
