"""N-gram language models: counts of what followed each context, interpolated."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from workingpapers.arguments import as_array, as_reals, check_integer, check_positive
from workingpapers.language.causal import CausalLM, Decoding
from workingpapers.language.lookup import find, row_entries
from workingpapers.language.tokens import Texts, Tokens, as_token_texts, as_tokens, keys_of

__all__ = ["ContextTable", "NGramLM"]

Probs = NDArray[np.float32]

DENSE_LIMIT = 2**24  # entries of a table of all pairs: 64 MiB
POSITIONS_AT_A_TIME = 4096


@dataclass(frozen=True)
class ContextTable:
    """What followed each context, with absolute discounting (Ney, Essen & Kneser, 1994).

    p(v | c) = (count(c, v) - d)+ / count(c) + d distinct(c) / count(c) · lower(v), where
    distinct(c) is the number of different tokens seen after c.

    Attributes
    ----------
    contexts : (C,) int64 array
        Keys of the contexts seen, ascending.
    starts : (C + 1,) int64 array
        Row r holds the entries starts[r]..starts[r+1]-1.
    tokens : (E,) int64 array
        That followed, ascending in each row.
    shares : (E,) float32 array
        (count(c, v) - d) / count(c).
    weights : (C,) float32 array
        d distinct(c) / count(c), the weight of the lower distribution.
    """

    contexts: NDArray[np.int64]
    starts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    shares: Probs
    weights: Probs

    @classmethod
    def fit(cls, keys: ArrayLike, tokens: ArrayLike, vocab_size: int, discount: float):
        """Count pairs of a context and the token that followed it.

        Parameters
        ----------
        keys : (N,) int64
            Keys of contexts, as of :func:`window_keys`; N may be 0.
        tokens : (N,) integers
            Of 0..vocab_size-1.
        vocab_size : int
        discount : float
            d, in (0, 1].

        Returns
        -------
        ContextTable

        Raises
        ------
        ValueError
            If an argument is not as described.
        """
        keys = as_array("keys", keys, "integers").astype(np.int64, copy=False)
        vocab_size = check_integer("vocab_size", vocab_size)
        tokens = as_tokens("tokens", tokens, vocab_size, min_length=0)
        if keys.shape != tokens.shape:
            raise ValueError(f"keys must have shape {tokens.shape}, got {keys.shape}")
        discount = _check_discount(discount)
        contexts, rows = np.unique(keys, return_inverse=True)
        pairs, counts = np.unique(rows * vocab_size + tokens, return_counts=True)
        rows, tokens = np.divmod(pairs, vocab_size)
        distinct = np.bincount(rows, minlength=len(contexts))
        totals = np.bincount(rows, weights=counts, minlength=len(contexts))
        return cls(
            contexts=contexts,
            starts=np.concatenate([[0], np.cumsum(distinct)]),
            tokens=tokens,
            shares=((counts - discount) / totals[rows]).astype(np.float32),
            weights=(discount * distinct / totals).astype(np.float32),
        )

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each context, (N,) for (N,) keys; -1 for one that was not seen."""
        return find(self.contexts, keys)

    def interpolate(self, rows: NDArray[np.int64], lower: Probs) -> None:
        """Turn lower distributions (N, V) into those given contexts, in place.

        Parameters
        ----------
        rows : (N,) int64 array
            Of :meth:`rows`; where it is -1, the lower distribution stays.
        lower : (N, V) C-contiguous float array
        """
        seen = np.flatnonzero(rows >= 0)
        entries, owners = row_entries(self.starts, rows[seen])
        places = (seen * lower.shape[1])[owners] + self.tokens[entries]
        weights = np.ones(len(lower), dtype=np.float32)
        weights[seen] = self.weights[rows[seen]]
        lower *= weights[:, None]
        lower.reshape(-1)[places] += self.shares[entries]  # no place twice


def _check_discount(discount: float) -> float:
    discount = check_positive("discount", discount)
    if discount > 1:
        raise ValueError(f"discount must be <= 1, got {discount!r}")
    return discount


class NGramLM(CausalLM):
    """Interpolated n-gram model with absolute discounting; made by :meth:`fit`.

    Attributes
    ----------
    vocab_size, order : int
    prior : CausalLM or None
        What takes the place of the single tokens' distribution.
    """

    def __init__(
        self,
        vocab_size: int,
        base: CausalLM | Probs,
        tables: tuple[ContextTable, ...],
    ):
        self.vocab_size = vocab_size
        self.order = len(tables) + 1
        self.prior = base if isinstance(base, CausalLM) else None
        if self.prior is not None:
            self.max_length = self.prior.max_length
        self._base = None if self.prior is not None else base
        self._tables = tables
        self._pairs = self._dense_pairs()

    @classmethod
    def fit(
        cls,
        texts: Texts,
        vocab_size: int,
        order: int = 3,
        discount: float = 0.75,
        prior: CausalLM | ArrayLike | None = None,
    ) -> "NGramLM":
        """Count the n-grams of texts.

        The distribution given the last ``order - 1`` tokens backs off to that given one token
        less, and so on (:class:`ContextTable`). The last in line are the single tokens, discounted
        towards the uniform distribution, or else the prior.

        Parameters
        ----------
        texts : sequence of (T_i,) integers, or (B, T) integers
            No n-gram crosses their borders.
        vocab_size : int
            At least 1.
        order : int, default 3
            n, at least 1; at least 2 with a prior.
        discount : float, default 0.75
            In (0, 1].
        prior : CausalLM or (vocab_size,) probabilities, optional
            Takes the place of the counts of single tokens. Given a language model, the counts of
            two and more tokens correct its next-token distribution.

        Returns
        -------
        NGramLM

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described.
        """
        vocab_size = check_integer("vocab_size", vocab_size)
        order = check_integer("order", order, low=1 if prior is None else 2)
        discount = _check_discount(discount)
        texts = as_token_texts("texts", texts, vocab_size)
        if prior is None:
            base = np.full((1, vocab_size), 1 / vocab_size, dtype=np.float32)
            single = _count(texts, 0, vocab_size, discount)
            single.interpolate(single.rows(np.zeros(1, dtype=np.int64)), base)
            base = base[0]
        else:
            base = _check_prior(prior, vocab_size)
        tables = tuple(_count(texts, width, vocab_size, discount) for width in range(1, order))
        return cls(vocab_size, base, tables)

    def start(self, prompts: Texts) -> Decoding:
        """Begin to continue prompts, as in :class:`CausalLM`; they may be empty."""
        texts = self.check_texts("prompts", prompts, min_length=0)
        return _NGramDecoding(self, texts)

    def position_log_probs(self, batch: Texts) -> Tensor:
        """Log-probabilities of the next token after each position, as in :class:`CausalLM`."""
        tokens = self.check_batch("batch", batch)
        lower = None
        if self.prior is not None:
            lower = self.prior.position_log_probs(tokens).exp().float().cpu().numpy()
            lower = lower.reshape(-1, self.vocab_size)
        recent, known = self._windows(tokens.numpy())
        probs = self._next_probs(recent, known, lower)
        return _log(probs).reshape(*tokens.shape, self.vocab_size)

    def token_log_probs(self, batch: Texts) -> Tensor:
        """Log-probability of each token but the first, as in :class:`CausalLM`."""
        tokens = self.check_batch("batch", batch, min_length=2).numpy()
        if self.prior is not None:
            return super().token_log_probs(batch)
        recent, known = self._windows(tokens[:, :-1])
        following = tokens[:, 1:].reshape(-1)
        parts = []
        for start in range(0, len(following), POSITIONS_AT_A_TIME):
            part = slice(start, start + POSITIONS_AT_A_TIME)
            probs = self._next_probs(recent[part], known[part])
            parts.append(np.take_along_axis(probs, following[part, None], axis=1))
        return _log(np.concatenate(parts)).reshape(tokens.shape[0], -1)

    def _windows(self, batch: Tokens) -> tuple[Tokens, Tokens]:
        """Last ``order - 1`` tokens at each position, and how many of them there are."""
        width = self.order - 1
        rows, length = batch.shape
        padded = np.pad(batch, ((0, 0), (max(width - 1, 0), 0)))
        recent = np.empty((rows * length, width), dtype=np.int64)
        for place in range(width):
            recent[:, place] = padded[:, place : place + length].reshape(-1)
        known = np.minimum(np.arange(1, length + 1), width)
        return recent, np.tile(known, rows)

    def _next_probs(self, recent: Tokens, known: Tokens, lower: Probs | None = None) -> Probs:
        """Next-token distributions, of which a prior's (N, V) are used up.

        Parameters
        ----------
        recent : (N, order - 1) int64 array
            The last tokens of each text.
        known : (N,) int64 array
            How many of them, counted from the end, belong to the text.
        lower : (N, V) float32 array, optional
            What the prior says; only with a prior.

        Returns
        -------
        (N, V) float32 array
        """
        done = 0
        if lower is None and self._pairs is None:
            lower = np.tile(self._base, (len(recent), 1))
        elif lower is None:
            lower = np.take(self._pairs, np.where(known > 0, recent[:, -1], -1), axis=0)
            done = 1
        for width in range(done + 1, self.order):
            table = self._tables[width - 1]
            rows = table.rows(keys_of(recent[:, -width:], width, self.vocab_size)[:, 0])
            rows[known < width] = -1
            table.interpolate(rows, lower)
        return lower

    def _dense_pairs(self) -> Probs | None:
        """Distributions after each token and, in the last row, after none; if they are few."""
        if self._base is None or not self._tables or self.vocab_size**2 > DENSE_LIMIT:
            return None
        pairs = np.tile(self._base, (self.vocab_size + 1, 1))
        rows = self._tables[0].rows(np.arange(self.vocab_size))
        self._tables[0].interpolate(np.append(rows, -1), pairs)
        return pairs


class _NGramDecoding(Decoding):
    """Texts of which only the last ``order - 1`` tokens are kept."""

    def __init__(self, lm: NGramLM, prompts: list[Tokens]):
        width = lm.order - 1
        self._lm = lm
        self._prior = None if lm.prior is None else lm.prior.start(prompts)
        self._known = np.array([min(len(prompt), width) for prompt in prompts])
        self._recent = np.zeros((len(prompts), width), dtype=np.int64)
        for row, prompt in enumerate(prompts):
            known = self._known[row]
            self._recent[row, width - known :] = prompt[len(prompt) - known :]
        self._renew()

    def append(self, tokens: Tensor) -> None:
        if self._prior is not None:
            self._prior.append(tokens)
        width = self._lm.order - 1
        new = tokens.cpu().numpy()[:, None]
        self._recent = np.concatenate([self._recent, new], axis=1)[:, 1:]
        self._known = np.minimum(self._known + 1, width)
        self._renew()

    def _renew(self) -> None:
        lower = None
        if self._prior is not None:
            lower = self._prior.logits.softmax(-1).float().cpu().numpy()
        self.logits = _log(self._lm._next_probs(self._recent, self._known, lower))


def _log(probs: Probs) -> Tensor:
    """Logarithm, in place; of 0 it is -inf."""
    return torch.from_numpy(probs).log_()


def _count(texts: list[Tokens], width: int, vocab_size: int, discount: float) -> ContextTable:
    """Table of what followed the contexts of ``width`` tokens."""
    long_enough = [text for text in texts if len(text) > width]
    keys = [keys_of(text[:-1], width, vocab_size) for text in long_enough]
    following = [text[width:] for text in long_enough]
    none = np.empty(0, dtype=np.int64)
    return ContextTable.fit(
        np.concatenate([*keys, none]), np.concatenate([*following, none]), vocab_size, discount
    )


def _check_prior(prior: CausalLM | ArrayLike, vocab_size: int) -> CausalLM | Probs:
    if isinstance(prior, CausalLM):
        if prior.vocab_size != vocab_size:
            raise ValueError(f"prior must have vocab_size {vocab_size}, got {prior.vocab_size}")
        return prior
    probs = as_reals("prior", prior, (vocab_size,))
    if (probs < 0).any() or abs(probs.sum() - 1) > 1e-6:
        raise ValueError(f"prior must be probabilities that sum to 1, got sum {probs.sum()}")
    return (probs / probs.sum()).astype(np.float32)
