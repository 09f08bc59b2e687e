"""The pseudo-random function behind every watermark: secret key, context, token -> number.

A watermark must be random to everyone but the owner of the key, and the owner must be able to
recompute any one number without the others. So nothing here draws from a generator: each number
is a hash of key, context and token, and costs the same alone or among thousands.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import as_array, check_choice, check_integer, check_nonnegative
from workingpapers.language.lookup import GOLDEN, mix64

__all__ = ["TokenPRF"]

Seeding = Literal["ordered", "sum", "self"]

ONE = np.uint64(1)
CHUNK = 1 << 16  # hashes that are mixed at once: half a megabyte, which a processor's cache holds


def to_unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Map 64 bits to the middle of one of 2^52 cells of (0, 1): never 0, never 1."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def unit_threshold(share: float) -> np.uint64:
    """Return the t for which ``bits < t`` says exactly the same as ``to_unit(bits) < share``."""
    return np.uint64(int(np.ceil(share * 2.0**52 - 0.5)) << 12)


def hash_tokens(tokens: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the public hashes H(v) of tokens: odd, so that products lose nothing."""
    return mix64((tokens.astype(np.uint64) + ONE) * GOLDEN) | ONE


@dataclass(frozen=True)
class TokenPRF:
    """Uniform numbers u(c, v) in (0, 1), one for every context c and candidate token v.

    Each token v has a fixed public 64-bit hash H(v), and the key gives a secret odd multiplier k.
    Context and candidate are folded into a seed s, and u is made of the mixed bits of ``s ^ H(v)``.
    The seedings differ in what they hear:

    - ``"ordered"``: every token of the context and its place.
    - ``"sum"``: ``s = k (1 + sum of the context)``, the additive function of the red-green
      watermark. Contexts of one sum share their numbers. (The 1 is ours: without it a context
      of sum 0 has a seed of 0 whatever the key is.)
    - ``"self"``: ``s = min of k H(i) H(v) over the tokens i of the context and v itself``, the
      anchored min-hash. The candidate takes part, so tokens that share the minimal pair share
      their number: a changed context token often changes nothing.

    Parameters
    ----------
    key : int
        Secret key xi, in 0..2^64-1.
    vocab_size : int
        Number of tokens V, in 1..2^31. A single number does not need the others, but
        `uniform_all` takes memory in proportion to V.
    seeding : {"ordered", "sum", "self"}
        How contexts become seeds.

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Examples
    --------
    >>> prf = TokenPRF(key=1, vocab_size=8)
    >>> everything = prf.uniform_all([[3, 5]])
    >>> bool(prf.uniform([[3, 5]], [2])[0] == everything[0, 2])
    True
    """

    key: int = field(repr=False)
    vocab_size: int
    seeding: Seeding = "ordered"

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", check_integer("key", self.key, 0, 2**64 - 1))
        object.__setattr__(
            self, "vocab_size", check_integer("vocab_size", self.vocab_size, 1, 2**31)
        )
        check_choice("seeding", self.seeding, get_args(Seeding))

    @cached_property
    def _multiplier(self) -> np.uint64:
        """The key's secret odd multiplier k."""
        return (mix64(np.array([self.key], dtype=np.uint64) + GOLDEN) | ONE)[0]

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        """H(v) of every token."""
        return hash_tokens(np.arange(self.vocab_size))

    def uniform(self, context: ArrayLike, token: ArrayLike) -> NDArray[np.float64]:
        """Return u(c, v) for pairs of a context and a token.

        Parameters
        ----------
        context : array_like of int, shape (N, h)
            Tokens before the candidate, oldest first, in 0..V-1; h may be 0.
        token : array_like of int, shape (N,)
            Candidates, in 0..V-1.

        Returns
        -------
        ndarray, shape (N,)
            In (0, 1).

        Raises
        ------
        ValueError
            If the shapes do not agree, or a token is out of its range.
        """
        return to_unit(self.bits(context, token))

    def uniform_all(self, context: ArrayLike) -> NDArray[np.float64]:
        """Return u(c, v) of every token v of the vocabulary, as an array of shape (N, V).

        Arguments and errors as for `uniform`.
        """
        context = self._as_contexts(context)
        out = np.empty((len(context), self.vocab_size))
        for rows, bits in self.chunks(context):
            out[rows] = to_unit(bits)
        return out

    def bits(self, context: ArrayLike, token: ArrayLike) -> NDArray[np.uint64]:
        """Return the 64 mixed bits from which `uniform` is made, shape (N,).

        Pairs with one seed and one candidate share them; others do not, but by a chance of 2^-64.
        """
        context = self._as_contexts(context)
        token = as_tokens("token", token, self.vocab_size, ndim=1)
        if len(token) != len(context):
            raise ValueError(f"token must be one a context, got {len(token)} for {len(context)}")
        own = hash_tokens(token)
        return mix64(self._seeds(context, own[:, None])[:, 0] ^ own)

    def chunks(self, context: NDArray) -> Iterator[tuple[slice, NDArray[np.uint64]]]:
        """Yield the mixed bits of all tokens for some rows of a checked context array at a time."""
        step = max(1, CHUNK // self.vocab_size)
        for start in range(0, len(context), step):
            rows = slice(start, start + step)
            yield rows, mix64(self._seeds(context[rows], self._hashes[None, :]) ^ self._hashes)

    def _seeds(self, context: NDArray, candidates: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the seeds of contexts (N, h) with candidates of hashes (N, M) or (1, M)."""
        k = self._multiplier
        if self.seeding == "sum":
            total = context.sum(axis=1, keepdims=True).astype(np.uint64)
            return mix64((total + ONE) * k)
        if self.seeding == "self":
            anchored = candidates * k
            seeds = np.repeat(anchored * candidates, len(context) // len(candidates), axis=0)
            pair = np.empty_like(seeds)
            for hashed in hash_tokens(context).T:
                np.minimum(seeds, np.multiply(hashed[:, None], anchored, out=pair), out=seeds)
            return seeds
        seeds = np.full((len(context), 1), k)
        for hashed in hash_tokens(context).T:
            seeds = mix64(seeds * GOLDEN + hashed[:, None])
        return seeds

    def _as_contexts(self, context: ArrayLike) -> NDArray[np.int64]:
        return as_tokens("context", context, self.vocab_size, ndim=2)


def as_tokens(name: str, values: ArrayLike, vocab_size: int, ndim: int) -> NDArray[np.int64]:
    """Return an array of token ids of that many axes; raise ValueError for anything else."""
    try:
        tokens = np.asarray(values)
    except (TypeError, ValueError) as error:  # ragged rows, or a tensor that numpy cannot hold
        raise ValueError(f"{name} must be an array of {ndim} axes of integers: {error}") from error
    if tokens.size:  # an empty list has no integers, and no wrong ones
        tokens = as_array(name, tokens, "integers")
    if tokens.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tokens.shape}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        raise ValueError(
            f"{name} must be token ids in 0..{vocab_size - 1}, got {tokens.min()}..{tokens.max()}"
        )
    return tokens.astype(np.int64, copy=False)


def check_probability(name: str, value: float, open_ends: bool = False) -> float:
    """Return a probability as a float; with open ends neither 0 nor 1."""
    try:
        number = check_nonnegative(name, value)
    except ValueError:
        number = math.inf
    if number > 1 or (open_ends and number in (0, 1)):
        allowed = "strictly between 0 and 1" if open_ends else "in 0..1"
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return number
