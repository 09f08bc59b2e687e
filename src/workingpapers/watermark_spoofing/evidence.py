"""What the test reads in a text: colours and context frequencies, position by position (step A)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

from workingpapers.arguments import check_choice, check_integer, check_type
from workingpapers.language import as_token_texts
from workingpapers.watermark_spoofing.detection import first_occurrences
from workingpapers.watermark_spoofing.reference import NGramCounts
from workingpapers.watermark_spoofing.schemes import Scheme

__all__ = ["Evidence", "FrequencyBin", "collect", "gram_width"]

SCORES = ("context", "ngram", "unigram", "known_data")

Texts = Sequence[ArrayLike]
ScoredTexts = list[tuple[NDArray[np.int64], int]]  # with the lengths of their prompts


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the test reads in texts: a row for each scored position, in the order of the texts.

    Attributes
    ----------
    colors : ndarray of float, shape (T,)
        X: the colour of the token, from the scheme and its key.
    frequencies : ndarray of float, shape (T,)
        Y: how often the context (or what the score counts) stands in the reference.
    keys : ndarray of int, shape (T, m)
        What makes a position a repeat of another: context and token, as the scheme says.
    """

    colors: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    keys: NDArray[np.int64]

    def distinct(self) -> "Evidence":
        """Keep the first position of each key: repeats share their colour, so count it once."""
        first = first_occurrences(self.keys)
        return Evidence(self.colors[first], self.frequencies[first], self.keys[first])

    def frequency_bins(self, bins: int = 10) -> tuple["FrequencyBin", ...]:
        """Cut the positions into groups of rising frequency; equal frequencies stay together.

        Parameters
        ----------
        bins : int, default 10
            Number of groups, at least 1; where many frequencies are equal there are fewer.

        Returns
        -------
        tuple of FrequencyBin
        """
        bins = check_integer("bins", bins)
        ranks = rankdata(self.frequencies)
        index = ((ranks - 0.5) * bins / len(ranks)).astype(int)
        return tuple(self._bin(index == value) for value in np.unique(index))

    def _bin(self, chosen: NDArray[np.bool_]) -> "FrequencyBin":
        frequencies, colors = self.frequencies[chosen], self.colors[chosen]
        return FrequencyBin(
            float(frequencies.min()), float(frequencies.max()), len(colors), float(colors.mean())
        )


@dataclass(frozen=True)
class FrequencyBin:
    """Positions whose contexts are about equally frequent.

    Attributes
    ----------
    low, high : float
        Smallest and largest frequency in the group.
    num_tokens : int
        Number of positions.
    mean_color : float
        Mean colour: the share of green tokens where colours are binary.
    """

    low: float
    high: float
    num_tokens: int
    mean_color: float


def gram_width(scheme: Scheme, score: str = "context") -> int:
    """Return the length of the n-grams that a score counts.

    Parameters
    ----------
    scheme : Scheme
        The watermark. Where its colours know no context (KTH, Unigram) the context that is counted
        is one token.
    score : {"context", "ngram", "unigram", "known_data"}
        As for :func:`spoofing_test`.

    Returns
    -------
    int
        The n for which :class:`NGramCounts` must have been made.
    """
    check_type("scheme", scheme, Scheme)
    check_choice("score", score, SCORES)
    width = max(scheme.context_width, 1)
    return {"context": width, "unigram": 1}.get(score, width + 1)


def collect(
    texts: Texts,
    scheme: Scheme,
    reference: NGramCounts | None,
    score: str = "context",
    known_data: NGramCounts | None = None,
    prompt_lengths: int | Sequence[int] = 0,
) -> Evidence:
    """Read colours, frequencies and keys off texts (step A of the test).

    Contexts never cross the border of a text. A prompt's tokens are context, but are not scored.

    Parameters
    ----------
    texts, scheme, reference, score, known_data, prompt_lengths
        As for :func:`spoofing_test`.

    Returns
    -------
    Evidence
        Of all scored positions, repeats included.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    pairs = scored_texts("texts", texts, scheme, prompt_lengths)
    return read(pairs, scheme, counts_for(scheme, reference, score, known_data), score)


def read(pairs: ScoredTexts, scheme: Scheme, counts: NGramCounts, score: str) -> Evidence:
    """Read what `collect` returns off checked texts, in checked counts."""
    rows = [_read(*pair, scheme, counts, score) for pair in pairs]
    return Evidence(*map(np.concatenate, zip(*rows, strict=True)))


def _read(
    text: NDArray[np.int64], prompt_length: int, scheme: Scheme, counts: NGramCounts, score: str
) -> tuple[NDArray, NDArray, NDArray]:
    """Return colours, frequencies and keys of one text."""
    positions = scheme.positions(text, prompt_length)
    kept = with_context(scheme, positions)
    ends = positions[kept] + (score != "context")  # "context" stops before the token
    spans = ends[:, None] + np.arange(-counts.n, 0)
    frequencies = counts.count(text[spans]).astype(float)
    if score == "known_data":
        frequencies = (frequencies > 0).astype(float)
    colors = scheme.colors(text, prompt_length)[kept]
    return colors, frequencies, scheme.keys(text, prompt_length)[kept]


def with_context(scheme: Scheme, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the positions with a context: colours that know none may stand where there is none."""
    return positions >= gram_width(scheme)


def scored_texts(
    name: str, texts: Texts, scheme: Scheme, prompt_lengths: int | Sequence[int]
) -> ScoredTexts:
    """Return texts with the lengths of their prompts; raise unless each has a token to score."""
    check_type("scheme", scheme, Scheme)
    texts = as_token_texts(name, texts, scheme.vocab_size)
    lengths = prompt_lengths_of(prompt_lengths, texts)
    for i, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        if len(text) <= max(length, scheme.context_width):
            raise ValueError(
                f"{name}[{i}] must have more tokens than its prompt ({length}) and a context "
                f"({scheme.context_width}), got {len(text)}"
            )
    return list(zip(texts, lengths, strict=True))


def counts_for(
    scheme: Scheme, reference: NGramCounts | None, score: str, known_data: NGramCounts | None
) -> NGramCounts:
    """Return the counts that a score looks into, once they fit it."""
    needed = gram_width(scheme, score)
    if (score == "known_data") != (known_data is not None):
        raise ValueError(
            "known_data must be given if, and only if, score is 'known_data', "
            f"got {known_data!r} with score {score!r}"
        )
    if score == "known_data" and reference is not None:
        raise ValueError(
            "reference must be None with score 'known_data', which does not look there"
        )
    name, counts = ("known_data", known_data) if known_data else ("reference", reference)
    check_type(name, counts, NGramCounts)
    if (counts.n, counts.vocab_size) != (needed, scheme.vocab_size):
        raise ValueError(
            f"{name} must count {needed}-grams over {scheme.vocab_size} tokens for score {score!r} "
            f"and {scheme.name}, got {counts.n}-grams over {counts.vocab_size}"
        )
    return counts


def prompt_lengths_of(prompt_lengths: int | Sequence[int], texts: Sequence) -> list[int]:
    """Return the length of each text's prompt; raise ValueError for anything else."""
    if np.ndim(prompt_lengths) == 0:
        return [check_integer("prompt_lengths", prompt_lengths, low=0)] * len(texts)
    lengths = [check_integer("prompt_lengths", length, low=0) for length in prompt_lengths]
    if len(lengths) != len(texts):
        raise ValueError(
            f"prompt_lengths must be one number or {len(texts)}, one a text, got {len(lengths)}"
        )
    return lengths
