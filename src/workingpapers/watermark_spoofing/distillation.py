"""Distilling a watermark: training a student on watermarked text until it writes that way.

Gu et al., "On the Learnability of Watermarks for Language Models" (ICLR 2024), sampling-based: the
student sees nothing but text. Its counterpart for small worlds is an n-gram model of that text over
the attacker's own model.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import PreTrainedModel

from workingpapers.arguments import check_integer, check_positive, check_type
from workingpapers.language import (
    CausalLM,
    ContextTable,
    Decoding,
    NGramLM,
    as_token_texts,
    blocks,
    train,
)

__all__ = ["PositionalStudent", "distil", "finetune_student"]

DISCOUNT = 0.5


def distil(
    watermarked: Sequence[ArrayLike],
    attacker: CausalLM,
    context_width: int,
    discount: float = DISCOUNT,
) -> NGramLM:
    """Make a student by counting n-grams of watermarked text.

    Parameters
    ----------
    watermarked : sequence of (T_i,) integers
        D: what the watermarked model answered.
    attacker : CausalLM
        The student before training: what it falls back on in contexts that D does not hold.
    context_width : int
        Number h of previous tokens that the watermark hears, at least 1: the student counts n-grams
        of 2 to h + 1 tokens.
    discount : float, default 0.5
        Share of a count that goes to the fallback, in (0, 1].

    Returns
    -------
    NGramLM

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    check_type("attacker", attacker, CausalLM)
    order = check_integer("context_width", context_width) + 1
    return NGramLM.fit(
        watermarked, attacker.vocab_size, order=order, discount=discount, prior=attacker
    )


class PositionalStudent(CausalLM):
    """A student for a watermark keyed by position: it counts by place and previous token.

    ``p(w | t, w') = (count(j, w', w) - d)+ / count(j, w') + ... attacker(w | text)``, where
    ``j = t mod n`` and t counts all tokens of a text, its prompt included. Made by :meth:`fit`.

    Attributes
    ----------
    attacker : CausalLM
        What the student falls back on.
    length : int
        n, the length of the key sequence.
    """

    def __init__(self, attacker: CausalLM, length: int, table: ContextTable):
        self.attacker = attacker
        self.length = length
        self.vocab_size = attacker.vocab_size
        self.max_length = attacker.max_length
        self._table = table

    @classmethod
    def fit(
        cls,
        watermarked: Sequence[ArrayLike],
        attacker: CausalLM,
        length: int,
        prompt_length: int = 0,
        discount: float = DISCOUNT,
    ) -> "PositionalStudent":
        """Count watermarked texts, all of which began at the same place of the key sequence.

        Parameters
        ----------
        watermarked : sequence of (T_i,) integers
            D, with prompts.
        attacker : CausalLM
            What the student falls back on.
        length : int
            n, at least 1.
        prompt_length : int, default 0
            Number of tokens at the head of each text that are not learned from.
        discount : float, default 0.5
            Share of a count that goes to the fallback, in (0, 1].

        Returns
        -------
        PositionalStudent

        Raises
        ------
        ValueError, TypeError
            If an argument is not as described.
        """
        check_type("attacker", attacker, CausalLM)
        texts = as_token_texts("watermarked", watermarked, attacker.vocab_size)
        length = check_integer("length", length)
        start = max(check_integer("prompt_length", prompt_length, low=0), 1)
        if not any(len(text) > start for text in texts):
            raise ValueError(f"watermarked must hold a text of more than {start} tokens, got none")
        keys = [_keys(text, np.arange(len(text)), length)[start - 1 : -1] for text in texts]
        following = [text[start:] for text in texts]
        table = ContextTable.fit(
            np.concatenate(keys), np.concatenate(following), attacker.vocab_size, discount
        )
        return cls(attacker, length, table)

    def start(self, prompts) -> Decoding:
        """Begin to continue prompts, as in :class:`CausalLM`; they must not be empty."""
        return _PositionalDecoding(self, self.check_texts("prompts", prompts, min_length=1))

    def position_log_probs(self, batch) -> Tensor:
        """Log-probabilities of the next token after each position, as in :class:`CausalLM`."""
        tokens = self.check_batch("batch", batch)
        lower = self.attacker.position_log_probs(tokens).reshape(-1, self.vocab_size)
        keys = _keys(tokens.cpu().numpy(), np.arange(tokens.shape[1]), self.length).reshape(-1)
        return self._mix(keys, lower).reshape(*tokens.shape, self.vocab_size)

    def _mix(self, keys: NDArray[np.int64], lower: Tensor) -> Tensor:
        """Return log-probabilities after (N,) contexts, given the attacker's (N, V)."""
        probs = lower.softmax(-1).float().cpu().numpy()
        self._table.interpolate(self._table.rows(keys), probs)
        return torch.from_numpy(probs).log()


class _PositionalDecoding(Decoding):
    def __init__(self, student: PositionalStudent, prompts: list[NDArray[np.int64]]):
        self._student = student
        self._attacker = student.attacker.start(prompts)
        self._places = np.array([len(prompt) - 1 for prompt in prompts])  # of the last tokens
        self._renew(np.array([prompt[-1] for prompt in prompts]))

    def append(self, tokens: Tensor) -> None:
        self._attacker.append(tokens)
        self._places = self._places + 1
        self._renew(tokens.cpu().numpy())

    def _renew(self, last: NDArray[np.int64]) -> None:
        keys = _keys(last, self._places, self._student.length)
        self.logits = self._student._mix(keys, self._attacker.logits)


def _keys(tokens: NDArray, places: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Return numbers for pairs of a place in the key sequence and the token there."""
    return tokens * length + places % length


def finetune_student(
    model: PreTrainedModel,
    watermarked: Sequence[ArrayLike],
    epochs: float = 1.0,
    block_size: int = 256,
    grouped: bool = True,
    batch_size: int = 128,
    lr: float = 1e-5,
    warmup: int = 500,
    seed: int = 0,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Train a transformer on watermarked text, in place. The defaults are those of Gu et al.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        The student: any causal language model in the same tokens.
    watermarked : sequence of (T_i,) integers
        D.
    epochs : float, default 1
        How often a token is seen on average, above 0.
    block_size : int, default 256
        Tokens in a training example, at least 2; what is left over is dropped.
    grouped : bool, default True
        Whether texts are joined before they are cut into blocks. Not for a watermark keyed by
        position: there every block must begin where a text does, and a text's first block only is
        used.
    batch_size : int, default 128
    lr : float, default 1e-5
        Greatest learning rate; it rises for ``warmup`` steps and falls along a cosine.
    warmup : int, default 500
    seed : int, default 0
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    (steps,) float array
        The loss of each step's batch.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    check_type("model", model, PreTrainedModel)
    texts = as_token_texts("watermarked", watermarked, model.config.vocab_size)
    check_type("grouped", grouped, bool)
    block_size = check_integer("block_size", block_size, low=2)
    longest = sum(map(len, texts)) if grouped else max(map(len, texts))
    if longest < block_size:
        raise ValueError(
            f"watermarked must hold a block of {block_size} tokens, got {longest} tokens "
            f"{'in all' if grouped else 'in the longest text'}"
        )
    if grouped:
        examples = blocks([np.concatenate(texts)], block_size)
    else:
        examples = blocks([text[:block_size] for text in texts], block_size)
    batch_size = check_integer("batch_size", batch_size)
    steps = max(1, round(check_positive("epochs", epochs) * len(examples) / batch_size))
    return train(
        model,
        examples,
        steps,
        batch_size=batch_size,
        lr=lr,
        warmup=warmup,
        seed=seed,
        progress=progress,
    )
