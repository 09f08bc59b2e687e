"""Watermarks keyed by context: red-green lists (KGW), and Aaronson's Gumbel trick.

A *colour* is what the owner of the key sees on a token: X_t = F(c_t, w_t), with the context c_t of
the h tokens before w_t. The colour of unmarked text has a known law; sampling with the watermark
shifts it upwards.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import (
    as_reals,
    check_choice,
    check_integer,
    check_nonnegative,
)
from workingpapers.watermark_spoofing.detection import (
    DetectionResult,
    exponential_test,
    green_test,
)
from workingpapers.watermark_spoofing.prf import (
    TokenPRF,
    as_tokens,
    check_probability,
    to_unit,
    unit_threshold,
)

__all__ = ["KGW", "Aaronson", "Scheme"]


class Scheme(ABC):
    """What all watermarks share.

    Every method that takes ``tokens`` scores the positions ``max(prompt_length, h), ..., T-1``:
    the first ``prompt_length`` tokens are context only, and without h tokens before it a token
    has no colour. T' is the number of these positions. One text at a time: contexts never cross
    the border of a text.

    Attributes
    ----------
    key : int
        The secret key xi.
    vocab_size : int
        Number of tokens V.
    context_width : int
        Number h of tokens before a token that make its context.
    name : str
        The scheme's name in the literature.
    """

    key: int
    vocab_size: int
    context_width: int

    @property
    @abstractmethod
    def name(self) -> str:
        """The scheme's name in the literature."""

    @abstractmethod
    def colors(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.float64]:
        """Return the colours X_t of the scored positions, shape (T',)."""

    @abstractmethod
    def process(
        self, contexts: ArrayLike, logits: ArrayLike, index: int = 0
    ) -> NDArray[np.floating]:
        """Return the logits (B, V) with the watermark in them."""

    @abstractmethod
    def detect_texts(
        self, texts: Sequence[ArrayLike], prompt_lengths: Sequence[int]
    ) -> DetectionResult:
        """Test whether texts, taken together, carry the watermark."""

    def detect(self, tokens: ArrayLike, prompt_length: int = 0) -> DetectionResult:
        """Test whether one text carries the watermark; see `detect_texts`.

        Arguments and errors as for `positions`.
        """
        return self.detect_texts([tokens], [prompt_length])

    def positions(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.int64]:
        """Return the scored positions, shape (T',): all from max(prompt_length, h) on.

        Parameters
        ----------
        tokens : array_like of int, shape (T,)
            A text, in 0..V-1.
        prompt_length : int
            How many tokens at its start are the prompt, at least 0.

        Returns
        -------
        ndarray of int, shape (T',)
            At least one.

        Raises
        ------
        ValueError
            If a token is out of its range, or no position is left to score.
        """
        tokens, start = self._scored(tokens, prompt_length)
        return np.arange(start, len(tokens))

    def contexts(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.int64]:
        """Return the contexts c_t of the scored positions, shape (T', h), oldest token first.

        Arguments and errors as for `positions`.
        """
        return self.keys(tokens, prompt_length)[:, :-1]

    def keys(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.int64]:
        """Return what must be distinct for a colour to be new: context and token, (T', h + 1).

        Arguments and errors as for `positions`.
        """
        tokens, start = self._scored(tokens, prompt_length)
        width = self.context_width
        return sliding_window_view(tokens, width + 1)[start - width :]

    def _scored(self, tokens: ArrayLike, prompt_length: int) -> tuple[NDArray[np.int64], int]:
        """Return the checked tokens, and the first position that is scored."""
        tokens = as_tokens("tokens", tokens, self.vocab_size, ndim=1)
        start = max(check_integer("prompt_length", prompt_length, low=0), self.context_width)
        if len(tokens) <= start:
            raise ValueError(
                f"tokens must be more than {start} (prompt_length {prompt_length}, "
                f"context_width {self.context_width}), got {len(tokens)}"
            )
        return tokens, start

    def _as_contexts(self, contexts: ArrayLike) -> NDArray[np.int64]:
        """Return contexts as an array (N, h) of token ids; raise ValueError for anything else."""
        contexts = as_tokens("contexts", contexts, self.vocab_size, ndim=2)
        if contexts.shape[1] != self.context_width:
            raise ValueError(
                f"contexts must have {self.context_width} columns, got {contexts.shape[1]}"
            )
        return contexts

    def _step(
        self, contexts: ArrayLike, logits: ArrayLike
    ) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
        """Return checked contexts (B, h) and logits (B, V) of one step of generation."""
        contexts = self._as_contexts(contexts)
        try:
            logits = np.asarray(logits)
        except (TypeError, ValueError) as error:  # ragged, or a tensor that numpy cannot hold
            raise ValueError(f"logits must be an array of numbers: {error}") from error
        if logits.dtype.kind != "f":
            logits = as_reals("logits", logits)  # integers become floats; other things are refused
        shape = (len(contexts), self.vocab_size)
        if logits.shape != shape:
            raise ValueError(f"logits must have shape {shape}, got {logits.shape}")
        if not np.isfinite(logits.max(axis=1)).all():
            raise ValueError("logits must hold a finite number in each row, and no NaN or +inf")
        return contexts, logits


class _Hashed(Scheme):
    """A watermark whose colours are made of a hash of context and token."""

    prf: TokenPRF

    def hashes(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.uint64]:
        """Return the mixed bits behind the colours of the scored positions, shape (T',).

        Arguments and errors as for `positions`.
        """
        keys = self.keys(tokens, prompt_length)
        return self.prf.bits(keys[:, :-1], keys[:, -1])

    def _distinct_hashes(
        self, texts: Sequence[ArrayLike], prompt_lengths: Sequence[int]
    ) -> NDArray[np.uint64]:
        """Return the hashes of several texts, each once: the same draw is no new evidence."""
        pairs = zip(texts, prompt_lengths, strict=True)
        hashes = np.sort(np.concatenate([self.hashes(*pair) for pair in pairs]))
        return hashes[np.append(True, hashes[1:] != hashes[:-1])]  # np.unique hashes once more


KGWSeeding = Literal["sum", "self", "unigram"]
LARGEST_DELTA = 1000.0  # red is then 10^434 times less likely, and no logit overflows
DEFAULT_WIDTH = {"sum": 1, "self": 3, "unigram": 0}


@dataclass(frozen=True)
class KGW(_Hashed):
    """The red-green watermark of Kirchenbauer et al. (2023): green tokens get +delta.

    Context and key split the vocabulary into a green list G of share gamma and a red rest. The
    colour is ``X_t = 1{w_t in G(c_t)}``. Unmarked text is green at rate gamma.

    Every token falls into the list by a coin of its own, ``u(c, v) < gamma``, so a list has
    Binomial(V, gamma) tokens rather than exactly floor(gamma V). One hash then tells a colour,
    where the exact list takes V; unmarked text is green with probability gamma exactly, for any V.

    Parameters
    ----------
    key : int
        Secret key, in 0..2^64-1.
    vocab_size : int
        Number of tokens V.
    context_width : int, optional
        Number h of previous tokens that seed the list. Default 1 for ``"sum"``, 3 for ``"self"``
        and 0, the only choice, for ``"unigram"``.
    gamma : float
        Share of green tokens, in (0, 1).
    delta : float
        Boost of green logits, in 0..1000.
    seeding : {"sum", "self", "unigram"}
        ``"sum"``: LeftHash for h = 1, SumHash beyond. ``"self"``: SelfHash, anchored min-hash in
        which the candidate takes part; the public code calls h = 3 "context width 4".
        ``"unigram"``: one list for all contexts.
    top_candidates : int, optional
        Boost green tokens among so many of the most likely candidates only (with ties), as the
        public code does for SelfHash, with 40. Default: all.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """

    key: int = field(repr=False)
    vocab_size: int
    context_width: int | None = None
    gamma: float = 0.25
    delta: float = 2.0
    seeding: KGWSeeding = "sum"
    top_candidates: int | None = None

    def __post_init__(self) -> None:
        check_choice("seeding", self.seeding, get_args(KGWSeeding))
        width = DEFAULT_WIDTH[self.seeding] if self.context_width is None else self.context_width
        low, high = (0, 0) if self.seeding == "unigram" else (1, 2**31)
        width = check_integer("context_width", width, low, high)
        object.__setattr__(self, "context_width", width)
        delta = check_nonnegative("delta", self.delta)
        if delta > LARGEST_DELTA:
            raise ValueError(f"delta must be at most {LARGEST_DELTA:g}, got {self.delta!r}")
        object.__setattr__(self, "delta", delta)
        gamma = check_probability("gamma", self.gamma, open_ends=True)
        object.__setattr__(self, "gamma", gamma)
        vocab_size = self.prf.vocab_size  # which checks it, and the key
        if self.top_candidates is not None:
            check_integer("top_candidates", self.top_candidates, 1, vocab_size)

    @cached_property
    def prf(self) -> TokenPRF:
        """The keyed function u(c, v)."""
        return TokenPRF(self.key, self.vocab_size, "self" if self.seeding == "self" else "sum")

    @property
    def name(self) -> str:
        """LeftHash, SumHash, SelfHash or Unigram, with h."""
        if self.seeding == "unigram":
            return "Unigram"
        kind = {"self": "SelfHash", "sum": "LeftHash" if self.context_width == 1 else "SumHash"}
        return f"{kind[self.seeding]} h={self.context_width}"

    def green(self, contexts: ArrayLike) -> NDArray[np.bool_]:
        """Return the green lists of contexts (N, h) as masks, shape (N, V).

        Raises ValueError if ``contexts`` has another width or a token out of its range.
        """
        contexts = self._as_contexts(contexts)
        mask = np.empty((len(contexts), self.vocab_size), dtype=bool)
        threshold = unit_threshold(self.gamma)
        for rows, bits in self.prf.chunks(contexts):
            np.less(bits, threshold, out=mask[rows])
        return mask

    def colors(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.float64]:
        """Return 1 for green and 0 for red tokens, at the scored positions.

        Parameters
        ----------
        tokens : array_like of int, shape (T,)
            A text, in 0..V-1.
        prompt_length : int
            How many tokens at its start are the prompt, at least 0.

        Returns
        -------
        ndarray, shape (T',)
            Colours of the `positions`.

        Raises
        ------
        ValueError
            If a token is out of its range, or no position is left to score.
        """
        return self._colored(self.hashes(tokens, prompt_length))

    def _colored(self, hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
        return (hashes < unit_threshold(self.gamma)).astype(np.float64)

    def process(
        self, contexts: ArrayLike, logits: ArrayLike, index: int = 0
    ) -> NDArray[np.floating]:
        """Add delta to the logits of green tokens.

        Parameters
        ----------
        contexts : array_like of int, shape (B, h)
            The last h tokens of every text.
        logits : array_like of float, shape (B, V)
            Next-token logits; -inf forbids a token.
        index : int
            Number of tokens generated so far; of no importance here.

        Returns
        -------
        ndarray, shape (B, V)
            New logits, of the dtype of ``logits``.

        Raises
        ------
        ValueError
            If shapes do not agree, a token is out of its range, or a logit is NaN or +inf.
        """
        contexts, logits = self._step(contexts, logits)
        boosted = self._boosted(self.green(contexts), logits)
        return logits + boosted * logits.dtype.type(self.delta)

    def _boosted(self, green: NDArray[np.bool_], logits: NDArray) -> NDArray[np.bool_]:
        """Mark the green tokens that get the boost."""
        boosted = green
        if self.top_candidates is not None and self.top_candidates < self.vocab_size:
            rank = self.vocab_size - self.top_candidates
            boosted = green & (logits >= np.partition(logits, rank, axis=1)[:, rank, None])
        return boosted

    def green_probability(self, contexts: ArrayLike, logits: ArrayLike) -> NDArray[np.float64]:
        """Return P(X_t = 1 | past) for text that is sampled with this watermark.

        With q the model's distribution and G the green list it is
        ``q(G) e^delta / (1 + (e^delta - 1) q(G))``; only tokens of G among the top candidates
        count as boosted if there is a limit on them.

        Parameters
        ----------
        contexts : array_like of int, shape (N, h)
            Contexts c_t.
        logits : array_like of float, shape (N, V)
            The model's logits or log-probabilities at these positions, without the watermark.

        Returns
        -------
        ndarray, shape (N,)
            In [0, 1].

        Raises
        ------
        ValueError
            As for `process`.
        """
        contexts, logits = self._step(contexts, logits)
        logits = logits.astype(np.float64, copy=False)
        green = self.green(contexts)
        logits = logits + self.delta * self._boosted(green, logits)
        weight = np.exp(logits - logits.max(axis=1, keepdims=True))
        return (weight * green).sum(axis=1) / weight.sum(axis=1)

    def detect_texts(
        self, texts: Sequence[ArrayLike], prompt_lengths: Sequence[int]
    ) -> DetectionResult:
        """Count green tokens of texts, every (seed, token) once, against Binomial(T', gamma).

        Contexts that share their seed give a token one colour: those with one sum, and for
        SelfHash those with one smallest pair, which recurs in many contexts. So what is counted
        once is the seed with its token, not the context: only then are the colours independent.

        Parameters
        ----------
        texts : sequence of array_like of int, each of shape (T_i,)
            Texts, in 0..V-1.
        prompt_lengths : sequence of int
            How many tokens at the start of each are its prompt, at least 0.

        Returns
        -------
        DetectionResult
            ``z = (green - gamma T') / sqrt(T' gamma (1 - gamma))``, and the exact binomial
            probability of at least so many green tokens.

        Raises
        ------
        ValueError
            As for `colors`.
        """
        colors = self._colored(self._distinct_hashes(texts, prompt_lengths))
        return green_test(colors, self.gamma)


@dataclass(frozen=True)
class Aaronson(_Hashed):
    """Aaronson's watermark (2022): the Gumbel trick with pseudo-random noise.

    The token is ``argmax_v u(c, v)^(1 / p_v)``, which is the argmax of ``logits_v + g_v`` with the
    Gumbel noise ``g_v = -log(-log u(c, v))``. Over random keys the token has law p, so nothing is
    distorted; given key, context and model it is certain. The colour is
    ``X_t = -log(1 - u(c_t, w_t))``: Exp(1) in unmarked text, larger in marked text.

    Parameters
    ----------
    key : int
        Secret key, in 0..2^64-1.
    vocab_size : int
        Number of tokens V.
    context_width : int
        Number h of previous tokens in the context, at least 0.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    A text that comes back to a context goes on as it did before, and may turn in a circle for
    ever. `processor` with ``skip_repeated=True`` samples without the mark there.
    """

    key: int = field(repr=False)
    vocab_size: int
    context_width: int = 3

    def __post_init__(self) -> None:
        width = check_integer("context_width", self.context_width, 0, 2**31)
        object.__setattr__(self, "context_width", width)
        _ = self.prf  # checks key and vocab_size

    @cached_property
    def prf(self) -> TokenPRF:
        """The keyed function u(c, v)."""
        return TokenPRF(self.key, self.vocab_size, "ordered")

    @property
    def name(self) -> str:
        """AAR, with h."""
        return f"AAR h={self.context_width}"

    def colors(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.float64]:
        """Return ``-log(1 - u)`` of the tokens at the scored positions; see `KGW.colors`."""
        return -np.log1p(-to_unit(self.hashes(tokens, prompt_length)))

    def process(
        self, contexts: ArrayLike, logits: ArrayLike, index: int = 0
    ) -> NDArray[np.floating]:
        """Leave one token possible: the argmax of logits and noise; see `KGW.process`.

        Its logit is 0, all others are -inf.
        """
        contexts, logits = self._step(contexts, logits)
        winners = np.empty(len(contexts), dtype=np.int64)
        for rows, bits in self.prf.chunks(contexts):
            winners[rows] = gumbel_argmax(logits[rows], to_unit(bits))
        return only(winners, logits)

    def detect_texts(
        self, texts: Sequence[ArrayLike], prompt_lengths: Sequence[int]
    ) -> DetectionResult:
        """Compare the sum of colours, every (context, token) once, with Gamma(T', 1).

        Parameters
        ----------
        texts, prompt_lengths
            As for `KGW.detect_texts`.

        Returns
        -------
        DetectionResult
            ``z = (sum - T') / sqrt(T')``, and the exact tail of the gamma law.

        Raises
        ------
        ValueError
            As for `KGW.colors`.
        """
        hashes = self._distinct_hashes(texts, prompt_lengths)
        return exponential_test(-np.log1p(-to_unit(hashes)))


def gumbel_argmax(logits: NDArray, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the argmax of logits and Gumbel noise ``-log(-log u)`` in every row."""
    return np.argmax(logits - np.log(-np.log(uniforms)), axis=1)


def only(winners: NDArray[np.int64], logits: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return logits of the same shape and dtype that are 0 for the winners and -inf elsewhere."""
    out = np.full_like(logits, -np.inf)
    np.put_along_axis(out, winners[:, None], 0, axis=1)
    return out
