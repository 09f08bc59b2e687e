"""What every language model of the book can do, whatever it is made of."""

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from workingpapers.arguments import check_type
from workingpapers.language.tokens import Texts, as_token_texts, rows_by_length

__all__ = ["CausalLM", "Decoding", "perplexity"]

ROWS_AT_A_TIME = 32


class Decoding(ABC):
    """A batch of texts that grow by one token at a time.

    Attributes
    ----------
    logits : (B, V) floating tensor
        Of the next token of each text, up to a constant a row. New at every step.
    """

    logits: Tensor

    @abstractmethod
    def append(self, tokens: Tensor) -> None:
        """Add one token, (B,) int64, to each text and renew ``logits``."""


class CausalLM(ABC):
    """Distribution of the next token of a text, given all tokens before it.

    Attributes
    ----------
    vocab_size : int
        V; tokens are 0..V-1.
    max_length : int or None
        Number of tokens that the model can read; None if there is no limit.
    device : torch.device
        Of all tensors that come from the model.
    """

    vocab_size: int
    max_length: int | None = None
    device: torch.device = torch.device("cpu")

    @abstractmethod
    def start(self, prompts: Texts) -> Decoding:
        """Begin to continue prompts, which may differ in length.

        Parameters
        ----------
        prompts : sequence of (L_i,) integers, or (B, L) integers

        Returns
        -------
        Decoding

        Raises
        ------
        TypeError, ValueError
            If ``prompts`` are not token texts, or too long for the model.
        """

    @abstractmethod
    def position_log_probs(self, batch: Texts) -> Tensor:
        """Log-probabilities of the next token after each position.

        Parameters
        ----------
        batch : (B, T) integers

        Returns
        -------
        (B, T, V) floating tensor
            Entry (b, t, v): that v follows the first t + 1 tokens of text b.

        Raises
        ------
        TypeError, ValueError
            If ``batch`` is not as described, or too long for the model.
        """

    def next_log_probs(self, prefixes: Texts) -> Tensor:
        """Log-probabilities of the next token after each prefix.

        Parameters
        ----------
        prefixes : sequence of (L_i,) integers, or (B, L) integers

        Returns
        -------
        (B, V) floating tensor

        Raises
        ------
        TypeError, ValueError
            If ``prefixes`` are not token texts, or too long for the model.
        """
        return self.start(prefixes).logits.log_softmax(-1)

    def token_log_probs(self, batch: Texts) -> Tensor:
        """Log-probability of each token but the first, given those before it.

        Parameters
        ----------
        batch : (B, T) integers
            T at least 2.

        Returns
        -------
        (B, T - 1) floating tensor

        Raises
        ------
        TypeError, ValueError
            If ``batch`` is not as described, or too long for the model.
        """
        tokens = self.check_batch("batch", batch, min_length=2)
        log_probs = self.position_log_probs(tokens[:, :-1])
        return log_probs.gather(-1, tokens[:, 1:, None].to(log_probs.device))[..., 0]

    def check_batch(self, name: str, batch: Texts, min_length: int = 1) -> Tensor:
        """Return texts of one length as a (B, T) int64 tensor; raise ValueError for others."""
        texts = self.check_texts(name, batch, min_length)
        if len({len(text) for text in texts}) > 1:
            raise ValueError(f"{name} must have rows of one length, got {sorted(map(len, texts))}")
        return torch.from_numpy(np.stack(texts)).to(self.device)

    def check_texts(self, name: str, texts: Texts, min_length: int) -> list[np.ndarray]:
        """Return texts that the model can read; raise ValueError for others."""
        texts = as_token_texts(name, texts, self.vocab_size, min_length)
        longest = max(map(len, texts))
        if self.max_length is not None and longest > self.max_length:
            raise ValueError(
                f"{name} must have <= {self.max_length} tokens (max_length), got {longest}"
            )
        return texts


def perplexity(lm: CausalLM, texts: Texts) -> float:
    """Perplexity: exp(-mean log-probability) of all tokens but the first of each text.

    Parameters
    ----------
    lm : CausalLM
    texts : sequence of (T_i,) integers, or (B, T) integers
        At least 2 tokens each.

    Returns
    -------
    float
        At least 1; ``lm.vocab_size`` for a uniform guess.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or ``texts`` are too long for the model.
    """
    check_type("lm", lm, CausalLM)
    texts = lm.check_texts("texts", texts, 2)
    total = 0.0
    for rows in rows_by_length(texts, ROWS_AT_A_TIME):
        total += lm.token_log_probs([texts[row] for row in rows]).double().sum().item()
    return math.exp(-total / sum(len(text) - 1 for text in texts))
