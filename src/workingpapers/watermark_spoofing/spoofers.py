"""Stealing a watermark: counting how marked text differs from ordinary text, then imitating it.

Jovanović et al., "Watermark Stealing in Large Language Models" (ICML 2024). The thief counts which
tokens follow which context in watermarked and in ordinary text. Tokens that are more frequent in
the former are likely to be green there, and get a boost when the thief's own model writes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from tqdm import tqdm
from transformers import LogitsProcessor

from workingpapers.arguments import (
    check_choice,
    check_fields,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.language import CausalLM, as_token_texts, window_keys
from workingpapers.language.lookup import find, row_entries
from workingpapers.watermark_spoofing.prf import as_tokens, check_probability

__all__ = [
    "BoostTable",
    "GracefulEnding",
    "RepetitionPenalty",
    "StealingProcessor",
    "StealingSpoofer",
    "StolenWatermark",
]

UNKNOWN_BONUS = 1e-3  # what a token that ordinary text never has there gets above the best other
TIE_BREAK = 1e-4  # weight of the count where ratios are equal
LEARNING = ("fast", "slow")

Samples = tuple[NDArray[np.int64], NDArray[np.int64]]  # contexts (N, h) and tokens (N,)


@dataclass(frozen=True, eq=False)
class BoostTable:
    """Boosts in 0..1 of tokens, by context; what is not stored is 0.

    Attributes
    ----------
    contexts : (C,) int64 array
        Keys of contexts, ascending.
    starts : (C + 1,) int64 array
        Row r holds the entries starts[r]..starts[r+1]-1.
    tokens : (E,) int64 array
        Boosted tokens, ascending in each row.
    boosts : (E,) float32 array
        In (0, 1]; the best of each row has 1.
    vocab_size : int
        V.
    """

    contexts: NDArray[np.int64]
    starts: NDArray[np.int64]
    tokens: NDArray[np.int64]
    boosts: NDArray[np.float32]
    vocab_size: int

    @classmethod
    def fit(
        cls,
        watermarked: Samples,
        base: Samples,
        vocab_size: int,
        min_count: float = 2,
        clip: float = 2.0,
    ) -> "BoostTable":
        """Turn counts into boosts.

        The mass ratio of token v in context κ is ``r = p_wm(v | κ) / p_base(v | κ)``; it is 0 where
        v was seen too seldom in watermarked text, and a little above all others where it was seen
        there but never in ordinary text. Ratios below 1 become 0, those above ``clip`` become
        ``clip``; ties are broken by the watermarked count; then each row is divided by its maximum.

        Parameters
        ----------
        watermarked, base : pair of (N,) int64 arrays
            Keys of contexts and the tokens that followed, in the one and the other kind of text.
        vocab_size : int
            V, at least 1.
        min_count : float, default 2
            Least watermarked count, at least 1.
        clip : float, default 2
            Ratio from which on more is no better, at least 1.

        Returns
        -------
        BoostTable
        """
        contexts, rows = np.unique(watermarked[0], return_inverse=True)
        pairs, counts = np.unique(rows * vocab_size + watermarked[1], return_counts=True)
        places = find(contexts, base[0])
        known = places >= 0
        base_pairs = places[known] * vocab_size + base[1][known]
        base_pairs, base_counts = np.unique(base_pairs, return_counts=True)
        totals = np.bincount(rows, minlength=len(contexts))
        base_totals = np.bincount(places[known], minlength=len(contexts))

        pairs, counts = pairs[counts >= min_count], counts[counts >= min_count]
        rows, tokens = np.divmod(pairs, vocab_size)
        found = find(base_pairs, pairs)
        in_base = found >= 0
        ratios = np.zeros(len(pairs))
        expected = base_counts[found[in_base]] * totals[rows[in_base]]
        ratios[in_base] = counts[in_base] * base_totals[rows[in_base]] / expected
        best = np.maximum(_row_max(rows, ratios, len(contexts)), 1)
        ratios[~in_base] = best[rows[~in_base]] + UNKNOWN_BONUS

        green = ratios >= 1
        rows, tokens, counts = rows[green], tokens[green], counts[green]
        boosts = np.minimum(ratios[green], clip) / clip
        boosts += TIE_BREAK * counts / _row_max(rows, counts, len(contexts))[rows]
        boosts /= _row_max(rows, boosts, len(contexts))[rows]
        starts = np.searchsorted(rows, np.arange(len(contexts) + 1))
        return cls(contexts, starts, tokens, boosts.astype(np.float32), vocab_size)

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Row of each context, (N,) for (N,) keys; -1 for one that was not seen."""
        return find(self.contexts, keys)

    def add_to(self, out: NDArray[np.float32], keys: NDArray, weights: ArrayLike) -> None:
        """Add the boosts of contexts (B,), times weights of shape () or (B,), to ``out`` (B, V)."""
        rows = self.rows(keys)
        seen = np.flatnonzero(rows >= 0)
        entries, owners = row_entries(self.starts, rows[seen])
        texts = seen[owners]
        weights = np.broadcast_to(np.asarray(weights, dtype=np.float32), len(keys))
        out[texts, self.tokens[entries]] += weights[texts] * self.boosts[entries]

    def at(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """Boost of one token in each of (N,) rows; 0 in row -1."""
        places = find(
            self.entry_rows() * self.vocab_size + self.tokens, rows * self.vocab_size + tokens
        )
        found = (places >= 0) & (rows >= 0)
        boosts = np.zeros(len(rows))
        boosts[found] = self.boosts[places[found]]
        return boosts

    def lengths(self) -> NDArray[np.float64]:
        """Euclidean length of each row, (C,)."""
        squares = np.bincount(
            self.entry_rows(), weights=self.boosts.astype(float) ** 2, minlength=len(self.contexts)
        )
        return np.sqrt(squares)

    def entry_rows(self) -> NDArray[np.int64]:
        """Row of each entry, (E,)."""
        return np.repeat(np.arange(len(self.contexts)), np.diff(self.starts))


def _row_max(rows: NDArray[np.int64], values: NDArray, num_rows: int) -> NDArray[np.float64]:
    """Return the largest value of each row; 0 for an empty one."""
    best = np.zeros(num_rows)
    np.maximum.at(best, rows, values)
    return best


@dataclass(frozen=True)
class StealingSpoofer:
    """The settings of the attack; :meth:`fit` carries it out.

    The boost of token v in context c is
    ``b(v) = [w_full s_full + w_partial s_strong + w_empty s_empty] / (sum of weights used)``. Each
    s is a score in 0..1 from a :class:`BoostTable`: for all tokens of the context, for the one
    that seems to settle the colour, and for no context at all.

    A context token is *strong* if in every pair with another one its own scores are closer (in
    cosine) to the pair's scores than the other's are. There may be none, and then the weight
    ``w_partial`` is not used; where the context is one token, it is strong.

    Attributes
    ----------
    context_width : int
        Number h of previous tokens that seed the watermark, at least 0: the thief is taken to know
        it.
    vocab_size : int
        V.
    strength : float, default 7.5
        What a boost of 1 adds to a logit, at least 0.
    w_full, w_partial, w_empty : float, defaults 2, 1, 0.5
        Weights, at least 0, not all 0.
    min_count : int, default 2
        Watermarked count from which on a score is trusted, at least 1.
    min_mass : float, default 7e-5
        The same without context, as a share of the base corpus; at least 0.
    clip : float, default 2
        Mass ratio from which on more is no better, at least 1.
    ordered : bool, default False
        Whether contexts are told apart by the order of their tokens (with wildcards for those that
        a subset leaves out). By default they are not: additive and minimum seeds do not hear it.
    learning : {"fast", "slow"}
        ``"slow"`` leaves out tokens that the thief's own model finds the most likely ones: they
        would have come without a watermark.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """

    context_width: int
    vocab_size: int
    strength: float = 7.5
    w_full: float = 2.0
    w_partial: float = 1.0
    w_empty: float = 0.5
    min_count: int = 2
    min_mass: float = 7e-5
    clip: float = 2.0
    ordered: bool = False
    learning: str = "fast"

    def __post_init__(self) -> None:
        check_integer("context_width", self.context_width, low=0)
        check_integer("vocab_size", self.vocab_size)
        check_integer("min_count", self.min_count)
        check_fields(
            self,
            check_nonnegative,
            "strength",
            "w_full",
            "w_partial",
            "w_empty",
            "min_mass",
            "clip",
        )
        if self.clip < 1:
            raise ValueError(f"clip must be at least 1, got {self.clip!r}")
        if self.w_full + self.w_empty == 0:
            raise ValueError("w_full and w_empty must not both be 0: some token has no strong one")
        check_type("ordered", self.ordered, bool)
        check_choice("learning", self.learning, LEARNING)

    def fit(
        self,
        watermarked: Sequence[ArrayLike],
        base: Sequence[ArrayLike],
        attacker: CausalLM | None = None,
        progress: bool = False,
    ) -> "StolenWatermark":
        """Learn from watermarked and from ordinary text.

        Parameters
        ----------
        watermarked : sequence of (T_i,) integers
            D: what the watermarked model answered. Contexts do not cross the border of a text.
        base : sequence of (T_i,) integers
            Text without a watermark, in the same tokens.
        attacker : CausalLM, optional
            The thief's own model, for slow learning.
        progress : bool, default False
            Show a progress bar in slow learning.

        Returns
        -------
        StolenWatermark

        Raises
        ------
        ValueError, TypeError
            If an argument is not as described, or no text is longer than the context.
        """
        if (self.learning == "slow") != (attacker is not None):
            raise ValueError(
                "attacker must be given if, and only if, learning is 'slow', "
                f"got {attacker!r} with {self.learning!r}"
            )
        if attacker is not None:
            check_type("attacker", attacker, CausalLM)
            if attacker.vocab_size != self.vocab_size:
                raise ValueError(
                    f"attacker must have vocab_size {self.vocab_size}, got {attacker.vocab_size}"
                )
        marked = self._samples("watermarked", watermarked, attacker, progress)
        ordinary = self._samples("base", base)
        least = max(1, round(self.min_mass * len(ordinary[1])))
        sizes = {size for size in (0, 1, 2, self.context_width) if size <= self.context_width}
        tables = {}
        for size in sizes:
            first, second = (self._pooled(sample, size) for sample in (marked, ordinary))
            enough = self.min_count if size else least
            tables[size] = BoostTable.fit(first, second, self.vocab_size, enough, self.clip)
        return StolenWatermark(self, tables, self._stronger(marked[0], tables))

    def keys(self, contexts: NDArray[np.int64], subset: tuple[int, ...]) -> NDArray[np.int64]:
        """Return a number for what a subset of its places leaves of each context.

        Parameters
        ----------
        contexts : (N, h) int64 array
        subset : tuple of int
            Places, ascending.

        Returns
        -------
        (N,) int64 array
        """
        chosen = contexts[:, list(subset)]
        if not self.ordered:
            return window_keys(np.sort(chosen, axis=1), len(subset), self.vocab_size)[:, 0]
        masked = np.full_like(contexts, self.vocab_size)  # one more token: the wildcard
        masked[:, list(subset)] = chosen
        return window_keys(masked, self.context_width, self.vocab_size + 1)[:, 0]

    def _samples(
        self,
        name: str,
        texts: Sequence[ArrayLike],
        attacker: CausalLM | None = None,
        progress: bool = False,
    ) -> Samples:
        """Return all contexts (N, h) and the tokens (N,) that followed."""
        width = self.context_width
        windows = [np.empty((0, width + 1), dtype=np.int64)]
        texts = as_token_texts(name, texts, self.vocab_size)
        for text in tqdm(texts, desc=name, disable=None if progress else True):
            if len(text) <= width:
                continue
            rows = np.lib.stride_tricks.sliding_window_view(text, width + 1)
            windows.append(rows if attacker is None else rows[_surprises(text, attacker)[width:]])
        found = np.concatenate(windows)
        if not len(found):
            raise ValueError(
                f"{name} must hold a token after {width} others to learn from, got none"
            )
        return found[:, :-1], found[:, -1]

    def _pooled(self, samples: Samples, size: int) -> Samples:
        """Return keys and tokens for all subsets of one size of the context."""
        contexts, tokens = samples
        subsets = list(combinations(range(self.context_width), size))
        keys = [self.keys(contexts, subset) for subset in subsets]
        return np.concatenate(keys), np.tile(tokens, len(subsets))

    def _stronger(self, contexts: NDArray, tables: dict[int, BoostTable]) -> NDArray[np.int8]:
        """Say for each row of the table of pairs which member is the stronger: 1, -1; neither: 0.

        1 stands for the first member: the smaller token, or the earlier one where order counts.
        """
        if self.context_width < 2:
            return np.zeros(0, dtype=np.int8)
        pairs, singles = tables[2], tables[1]
        members = np.zeros((2, len(pairs.contexts)), dtype=np.int64)
        for subset in combinations(range(self.context_width), 2):
            rows = pairs.rows(self.keys(contexts, subset))
            keys = np.stack([self.keys(contexts, (place,)) for place in subset])
            members[:, rows] = np.where(self.swapped(contexts, subset), keys[::-1], keys)
        first, second = (_likeness(pairs, singles, singles.rows(keys)) for keys in members)
        return np.sign(first - second).astype(np.int8)

    def swapped(self, contexts: NDArray[np.int64], pair: tuple[int, int]) -> NDArray[np.bool_]:
        """Say where the second token of a pair of places is its first member, (N,)."""
        first, second = contexts[:, pair].T
        return (first > second) & (not self.ordered)


def _surprises(text: NDArray[np.int64], attacker: CausalLM) -> NDArray[np.bool_]:
    """Mark the tokens that are not what a model finds the most likely; the first one counts."""
    if len(text) < 2:
        return np.ones(len(text), dtype=bool)
    likely = attacker.position_log_probs(text[None, :-1])[0].argmax(-1).cpu().numpy()
    return np.concatenate([[True], text[1:] != likely])


def _likeness(
    pairs: BoostTable, singles: BoostTable, member_rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the cosine of each pair's boosts with those of a member, times the pair's length."""
    rows = pairs.entry_rows()
    shared = pairs.boosts * singles.at(member_rows[rows], pairs.tokens)
    products = np.bincount(rows, weights=shared, minlength=len(pairs.contexts))
    lengths = np.where(member_rows >= 0, singles.lengths()[member_rows], 0)
    # Products of no entries at all are integers.
    return np.divide(products, lengths, out=np.zeros(len(products)), where=lengths > 0)


@dataclass(frozen=True, eq=False)
class StolenWatermark:
    """What the thief has learned: a boost for every token in every context.

    Attributes
    ----------
    spoofer : StealingSpoofer
        The settings.
    tables : dict of int to BoostTable
        By the number of context tokens that count: 0, 1, 2 and h.
    stronger : (C,) int8 array
        For each row of the table of pairs, which member is the stronger.
    """

    spoofer: StealingSpoofer
    tables: dict[int, BoostTable]
    stronger: NDArray[np.int8]

    def boosts(self, contexts: ArrayLike) -> NDArray[np.float32]:
        """Return the boosts b of all tokens.

        Parameters
        ----------
        contexts : (B, h) integers
            The last h tokens of each text, oldest first.

        Returns
        -------
        (B, V) float32 array
            In 0..1.

        Raises
        ------
        ValueError
            If the shape or a token is wrong.
        """
        contexts = self._check(contexts)
        spoofer, width = self.spoofer, self.spoofer.context_width
        out = np.tile(self._empty * np.float32(spoofer.w_empty), (len(contexts), 1))
        whole = tuple(range(width))
        self.tables[width].add_to(out, spoofer.keys(contexts, whole), spoofer.w_full)
        strong = self.strong(contexts)
        for place in range(width):
            chosen = np.flatnonzero(strong == place)
            part = out[chosen]
            self.tables[1].add_to(part, spoofer.keys(contexts[chosen], (place,)), spoofer.w_partial)
            out[chosen] = part
        used = spoofer.w_full + spoofer.w_empty + spoofer.w_partial * (strong >= 0)
        return out / used[:, None].astype(np.float32)

    def strong(self, contexts: ArrayLike) -> NDArray[np.int64]:
        """Return the place of each context's strong token; -1 where there is none.

        Parameters
        ----------
        contexts : (B, h) integers

        Returns
        -------
        (B,) int64 array

        Raises
        ------
        ValueError
            If the shape or a token is wrong.
        """
        contexts = self._check(contexts)
        width = self.spoofer.context_width
        wins = np.zeros((len(contexts), width), dtype=np.int64)
        for pair in combinations(range(width), 2):
            rows = self.tables[2].rows(self.spoofer.keys(contexts, pair))
            verdict = np.where(rows >= 0, self.stronger[rows], 0) if len(self.stronger) else 0
            verdict = np.where(self.spoofer.swapped(contexts, pair), -verdict, verdict)
            wins[:, pair[0]] += verdict == 1
            wins[:, pair[1]] += verdict == -1
        winner = wins == width - 1
        return np.where(winner.any(axis=1), winner.argmax(axis=1) if width else 0, -1)

    @property
    def _empty(self) -> NDArray[np.float32]:
        """Boosts without context, (V,)."""
        out = np.zeros((1, self.spoofer.vocab_size), dtype=np.float32)
        anything = np.zeros((1, self.spoofer.context_width), dtype=np.int64)
        self.tables[0].add_to(out, self.spoofer.keys(anything, ()), 1.0)
        return out[0]

    def _check(self, contexts: ArrayLike) -> NDArray[np.int64]:
        """Return contexts (B, h) as an array; raise ValueError for others."""
        width, size = self.spoofer.context_width, self.spoofer.vocab_size
        if width == 0:
            return np.zeros((len(contexts), 0), dtype=np.int64)
        contexts = as_tokens("contexts", contexts, size, ndim=2)
        if contexts.shape[1] != width:
            raise ValueError(f"contexts must have {width} columns, got {contexts.shape[1]}")
        return contexts


class StealingProcessor(LogitsProcessor):
    """Write as if one held the key: add strength times boost to the logits.

    With an end token, a text is not let go before it is likely to pass the detector: while its
    estimated z is below ``least_z`` the end token is forbidden. A token is taken to be green with
    probability ``min(1, γ + (1-γ) b)``; its mean under the model without boosts is summed up over
    the text, and set against γ as the detector does.

    Parameters
    ----------
    stolen : StolenWatermark
    end_token : int, optional
        Token that ends a text.
    gamma : float, default 0.25
        Share γ of green tokens that the thief assumes, above 0 and below 1.
    least_z : float, default 5
        Estimated z from which on a text may end.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """

    def __init__(
        self,
        stolen: StolenWatermark,
        end_token: int | None = None,
        gamma: float = 0.25,
        least_z: float = 5.0,
    ) -> None:
        check_type("stolen", stolen, StolenWatermark)
        high = stolen.spoofer.vocab_size - 1
        self.stolen = stolen
        self.end_token = (
            None if end_token is None else check_integer("end_token", end_token, 0, high)
        )
        self.gamma = check_probability("gamma", gamma, open_ends=True)
        self.least_z = check_nonnegative("least_z", least_z)
        self._tokens = torch.zeros(0, 0)  # the texts at the last step
        self._green = torch.zeros(0)  # expected number of green tokens of each text
        self._steps = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the boosted logits (B, V), given all tokens so far (B, L)."""
        width = self.stolen.spoofer.context_width
        length = input_ids.shape[1]
        boosts = torch.zeros_like(scores)  # without context
        if length >= width:
            contexts = input_ids[:, length - width :].cpu().numpy()
            boosts = torch.from_numpy(self.stolen.boosts(contexts)).to(scores)
        boosted = scores + self.stolen.spoofer.strength * boosts
        if self.end_token is not None:
            poor = self._estimate(input_ids, boosts, scores) < self.least_z
            boosted[poor, self.end_token] = -math.inf
        return boosted

    def _estimate(self, tokens: Tensor, boosts: Tensor, scores: Tensor) -> Tensor:
        """Return the estimated z of each text, (B,), with the token that is about to come."""
        moved = tokens.device != self._tokens.device  # which torch.equal does not forgive
        if moved or not torch.equal(tokens[:, :-1], self._tokens):  # a new generation
            self._green, self._steps = scores.new_zeros(len(scores)), 0
        chances = (self.gamma + (1 - self.gamma) * boosts).clamp(max=1)
        self._green = self._green + (chances * scores.softmax(-1)).sum(-1)
        self._tokens, self._steps = tokens.clone(), self._steps + 1
        spread = math.sqrt(self._steps * self.gamma * (1 - self.gamma))
        return (self._green - self.gamma * self._steps) / spread


class RepetitionPenalty(LogitsProcessor):
    """Make tokens that would repeat an n-gram of the answer less likely.

    A boost is the same whenever its context comes again, so that a spoofed text is prone to
    repeat itself. Logits below 0 are multiplied by the penalty, others divided.

    Parameters
    ----------
    n : int
        Length of the n-grams, at least 1; h + 1 in the attack.
    prompt_length : int
        Number of tokens that belong to the prompt, at least 0: they may be repeated.
    penalty : float, default 1.6
        At least 1.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(self, n: int, prompt_length: int, penalty: float = 1.6) -> None:
        self.n = check_integer("n", n)
        self.prompt_length = check_integer("prompt_length", prompt_length, low=0)
        self.penalty = check_positive("penalty", penalty)
        if self.penalty < 1:
            raise ValueError(f"penalty must be at least 1, got {penalty!r}")

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits (B, V), given all tokens so far (B, L)."""
        answer = input_ids[:, self.prompt_length :]
        starts = answer.shape[1] - self.n + 1  # n-grams so far
        if starts < 1:
            return scores
        same = torch.ones(len(answer), starts, dtype=torch.bool, device=answer.device)
        for place in range(self.n - 1):
            now = answer[:, starts + place, None]  # of the n-gram that is about to be finished
            same &= answer[:, place : place + starts] == now
        rows, columns = same.nonzero(as_tuple=True)
        repeated = torch.zeros_like(scores, dtype=torch.bool)
        repeated[rows, answer[rows, columns + self.n - 1]] = True
        penalised = torch.where(scores < 0, scores * self.penalty, scores / self.penalty)
        return torch.where(repeated, penalised, scores)


class GracefulEnding(LogitsProcessor):
    """End a text at the end of a sentence only, and there for certain once it is long enough.

    Parameters
    ----------
    period_token, end_token : int
        Tokens that end a sentence and a text, at least 0 and not the same.
    panic_from : int
        Number of tokens, prompt included, after which a text ends at its next period; at least 1.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    def __init__(self, period_token: int, end_token: int, panic_from: int) -> None:
        self.period_token = check_integer("period_token", period_token, low=0)
        self.end_token = check_integer("end_token", end_token, low=0)
        if self.period_token == self.end_token:
            raise ValueError(f"end_token must not be the period_token, both are {end_token}")
        self.panic_from = check_integer("panic_from", panic_from)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits (B, V), given all tokens so far (B, L)."""
        scores = scores.clone()
        after_period = input_ids[:, -1] == self.period_token
        scores[~after_period, self.end_token] = -math.inf
        if input_ids.shape[1] > self.panic_from:
            ending = torch.full_like(scores[0], -math.inf)
            ending[self.end_token] = 0
            scores[after_period] = ending
        return scores
