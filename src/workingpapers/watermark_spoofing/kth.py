"""The watermark keyed by position: the Gumbel trick along a secret sequence (KTH-EXP).

Kuditipudi et al. (2024). Colours do not depend on context, so no window of tokens tells where in
the key sequence a text stands: the detector must align the two, and edits shift the alignment.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import as_array, check_integer, check_positive, check_type
from workingpapers.watermark_spoofing.detection import DetectionResult
from workingpapers.watermark_spoofing.prf import TokenPRF, to_unit
from workingpapers.watermark_spoofing.schemes import Scheme, gumbel_argmax, only

__all__ = ["KTH"]

COLORS_AT_A_TIME = 1 << 22  # of random sequences: 32 megabytes


@dataclass(frozen=True)
class KTH(Scheme):
    """Distortion-free watermark along a key sequence xi in (0, 1)^(n x V), without context.

    A text draws a start shift tau, and its generated token number i = 0, 1, ... is
    ``argmax_v xi[(i + tau) mod n, v]^(1 / p_v)``. The colour is
    ``X = -log(1 - xi[(i + tau) mod n, w])``: Exp(1) in unmarked text, larger in marked text.

    Numbers count generated tokens from the end of the prompt. (In the code of Gu et al. (2024)
    they count the prompt's too: that is a shift by the length of the prompt.) For the spoofing
    test, which needs contexts, h = 1.

    Parameters
    ----------
    key : int
        Secret key from which the sequence is made, in 0..2^64-1.
    vocab_size : int
        Number of tokens V.
    length : int
        Length n of the key sequence.
    shifts : int
        Number s of start shifts that texts draw from, in 1..n: 0, n/s, 2 n/s, ..., rounded down.

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """

    key: int = field(repr=False)
    vocab_size: int
    length: int = 256
    shifts: int = 1
    context_width = 1  # of the spoofing test's contexts; no field

    def __post_init__(self) -> None:
        length = check_integer("length", self.length, 1, 2**31)
        object.__setattr__(self, "length", length)
        object.__setattr__(self, "shifts", check_integer("shifts", self.shifts, 1, length))
        TokenPRF(self.key, self.vocab_size)  # checks key and vocab_size

    @cached_property
    def sequence(self) -> NDArray[np.float64]:
        """The key sequence xi, shape (n, V); read-only."""
        prf = TokenPRF(self.key, max(self.vocab_size, self.length))
        places = np.arange(self.length)[:, None]
        sequence = np.concatenate(
            [to_unit(bits[:, : self.vocab_size]) for _, bits in prf.chunks(places)]
        )
        sequence.setflags(write=False)
        return sequence

    @property
    def name(self) -> str:
        """KTH, with n."""
        return f"KTH n={self.length}"

    @property
    def starts(self) -> NDArray[np.int64]:
        """The start shifts that texts draw from, shape (s,)."""
        return np.arange(self.shifts) * self.length // self.shifts

    def draw_shifts(self, num_texts: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw a start shift for every text.

        Parameters
        ----------
        num_texts : int
            Number of texts B, at least 1.
        rng : numpy.random.Generator
            Source of randomness. The first texts' shifts do not depend on how many there are.

        Returns
        -------
        ndarray of int, shape (B,)
            Entries of `starts`.

        Raises
        ------
        TypeError
            If ``rng`` is not a Generator.
        ValueError
            If ``num_texts`` is not an integer >= 1.
        """
        check_type("rng", rng, np.random.Generator)
        uniform = rng.random(check_integer("num_texts", num_texts))
        return self.starts[(uniform * self.shifts).astype(int)]

    def colors(
        self, tokens: ArrayLike, prompt_length: int = 0, shift: int | None = None
    ) -> NDArray[np.float64]:
        """Return the colours of the scored positions.

        Parameters
        ----------
        tokens : array_like of int, shape (T,)
            A text, in 0..V-1.
        prompt_length : int
            How many tokens at its start are the prompt, at least 0.
        shift : int, optional
            Start shift tau, in 0..n-1. Default: the one of `starts` with the largest sum of
            colours, which is a choice that lifts the colours of unmarked text as well.

        Returns
        -------
        ndarray, shape (T',)
            Colours of the `positions`.

        Raises
        ------
        ValueError
            If an argument is out of its range, or no position is left to score.
        """
        tokens, start = self._scored(tokens, prompt_length)
        places = self._places(tokens, start, prompt_length, shift)
        return -np.log1p(-self.sequence[places, tokens[start:]])

    def keys(
        self, tokens: ArrayLike, prompt_length: int = 0, shift: int | None = None
    ) -> NDArray[np.int64]:
        """Return place in the key sequence, previous token and token, shape (T', 3).

        Arguments and errors as for `colors`.
        """
        tokens, start = self._scored(tokens, prompt_length)
        places = self._places(tokens, start, prompt_length, shift)
        return np.stack([places, tokens[start - 1 : -1], tokens[start:]], axis=1)

    def contexts(self, tokens: ArrayLike, prompt_length: int = 0) -> NDArray[np.int64]:
        """Return the token before every scored position, shape (T', 1), for the spoofing test."""
        tokens, start = self._scored(tokens, prompt_length)
        return tokens[start - 1 : -1, None]

    def _places(
        self, tokens: NDArray, start: int, prompt_length: int, shift: int | None
    ) -> NDArray[np.int64]:
        """Return the places in the key sequence of the tokens from ``start`` on."""
        numbers = np.arange(start, len(tokens)) - prompt_length
        if shift is None:
            shift = self.starts[0]
            if self.shifts > 1:
                kinds, text = np.unique(tokens[start:], return_inverse=True)
                sums = alignment_scores(self._colors_of(kinds), text, None)[0]
                shift = self.starts[np.argmax(sums[(self.starts + numbers[0]) % self.length])]
        return (numbers + check_integer("shift", shift, 0, self.length - 1)) % self.length

    def _colors_of(self, kinds: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the colours (1, K, n) of K kinds of token at all places."""
        return -np.log1p(-self.sequence[:, kinds].T)[None]

    def process(
        self,
        contexts: ArrayLike,
        logits: ArrayLike,
        index: int = 0,
        shifts: ArrayLike = 0,
    ) -> NDArray[np.floating]:
        """Leave one token possible: the argmax of logits and noise; see `Aaronson.process`.

        Parameters
        ----------
        contexts : array_like of int, shape (B, 1)
            The last token of every text; of no importance here.
        logits : array_like of float, shape (B, V)
            Next-token logits; -inf forbids a token.
        index : int
            Number of tokens generated so far, i.
        shifts : array_like of int, shape (B,) or ()
            Start shifts tau, in 0..n-1.

        Returns
        -------
        ndarray, shape (B, V)
            0 for the winner, -inf for all others; of the dtype of ``logits``.

        Raises
        ------
        ValueError
            If shapes do not agree, a number is out of its range, or a logit is NaN or +inf.
        """
        _, logits = self._step(contexts, logits)
        shifts = self.check_shifts(shifts, len(logits))
        places = (check_integer("index", index, low=0) + shifts) % self.length
        return only(gumbel_argmax(logits, self.sequence[places]), logits)

    def check_shifts(self, shifts: ArrayLike, num_texts: int) -> NDArray[np.int64]:
        """Return start shifts, one for all texts or one each; raise ValueError for others."""
        shifts = as_array("shifts", shifts, "integers").astype(np.int64, copy=False)
        if shifts.shape not in ((), (num_texts,)):
            raise ValueError(f"shifts must be one or {num_texts}, got shape {shifts.shape}")
        if shifts.size and not (shifts.min() >= 0 and shifts.max() < self.length):
            raise ValueError(f"shifts must lie in 0..{self.length - 1}, got {shifts!r}")
        return shifts

    def detect(
        self,
        tokens: ArrayLike,
        prompt_length: int = 0,
        edit_cost: float | None = None,
        resamples: int = 99,
        rng: int | np.random.Generator | None = None,
    ) -> DetectionResult:
        """Test whether one text carries the watermark; see `detect_texts`."""
        return self.detect_texts([tokens], [prompt_length], edit_cost, resamples, rng)

    def detect_texts(
        self,
        texts: Sequence[ArrayLike],
        prompt_lengths: Sequence[int],
        edit_cost: float | None = None,
        resamples: int = 99,
        rng: int | np.random.Generator | None = None,
    ) -> DetectionResult:
        """Align texts with the key sequence, and with sequences of keys that they never saw.

        The score of a text is the largest sum of colours over its alignments with the sequence;
        the scores of several texts, each with an alignment of its own, are added up.
        Plain alignment tries every start shift 0..n-1. With an ``edit_cost`` the text may also
        skip places of the sequence (a token was deleted from it) or own tokens (one was
        inserted), each at that cost: the Levenshtein alignment, in which a token w against place j
        costs ``log(1 - xi[j, w])``.

        The p-value is the permutation test of the authors: the rank of the score among those of
        the same texts against fresh random sequences, each of which serves all texts. It is exact
        for texts that do not know the key, repeated tokens included, so nothing is dropped here.

        Plain alignment takes time in proportion to the kinds of token; edits take a step a token.

        Parameters
        ----------
        texts, prompt_lengths
            As for `KGW.detect_texts`.
        edit_cost : float, optional
            Cost of one skipped place or token, above 0. Default: no edits. About the mean colour
            of marked text, 2 or 3, is a good cost: a cheap edit helps unmarked text as well.
        resamples : int
            Number of fresh sequences R, at least 2; no p-value is below 1/(R+1).
        rng : int or numpy.random.Generator, optional
            Seed, or source, of the fresh sequences. Default: made of key and texts, so that the
            same texts give the same result, and other texts meet other sequences.

        Returns
        -------
        DetectionResult
            The statistic is the score in standard deviations of the scores of fresh sequences.
            ``shift`` is the place of the first generated token in the best alignment, for one
            text. With an ``edit_cost``, ``mean_color`` is the score a token: the costs of the edits
            have been taken off.

        Raises
        ------
        TypeError
            If ``rng`` is neither an integer nor a Generator.
        ValueError
            If an argument is out of its range, or no position is left to score.
        """
        pairs = [self._scored(*pair) for pair in zip(texts, prompt_lengths, strict=True)]
        if edit_cost is not None:
            edit_cost = check_positive("edit_cost", edit_cost)
        resamples = check_integer("resamples", resamples, low=2)
        scored = [tokens[start:] for tokens, start in pairs]
        rng = self._own_generator(scored) if rng is None else as_generator(rng)
        ends = np.cumsum([len(tokens) for tokens in scored])
        kinds, joined = np.unique(np.concatenate(scored), return_inverse=True)
        pieces = np.split(joined, ends[:-1])
        true = [alignment_scores(self._colors_of(kinds), text, edit_cost)[0] for text in pieces]
        score = sum(places.max() for places in true)
        fresh = self._fresh_scores(len(kinds), pieces, edit_cost, resamples, rng)
        shift = None
        if len(pairs) == 1:
            shift = int((true[0].argmax() - (pairs[0][1] - prompt_lengths[0])) % self.length)
        return DetectionResult(
            statistic=float((score - fresh.mean()) / fresh.std(ddof=1)),
            pvalue=float((1 + np.sum(fresh >= score)) / (1 + resamples)),
            num_tokens=int(ends[-1]),
            mean_color=float(score / ends[-1]),
            shift=shift,
        )

    def _own_generator(self, texts: Sequence[NDArray[np.int64]]) -> np.random.Generator:
        """Return a generator that is made of the key and of the texts."""
        digest = hashlib.blake2b(int(self.key).to_bytes(8, "little"), digest_size=16)
        for text in texts:
            digest.update(len(text).to_bytes(8, "little") + text.astype("<i8").tobytes())
        return np.random.default_rng(int.from_bytes(digest.digest(), "little"))

    def _fresh_scores(
        self,
        num_kinds: int,
        texts: Sequence[NDArray[np.int64]],
        edit_cost: float | None,
        resamples: int,
        rng: np.random.Generator,
    ) -> NDArray[np.float64]:
        """Return the scores of texts against random sequences, whose colours are Exp(1)."""
        size = num_kinds * self.length
        step = max(1, COLORS_AT_A_TIME // size)
        scores = []
        for first in range(0, resamples, step):
            number = min(step, resamples - first)
            colors = rng.standard_exponential((number, num_kinds, self.length))
            scores.append(
                sum(alignment_scores(colors, text, edit_cost).max(axis=1) for text in texts)
            )
        return np.concatenate(scores)


def alignment_scores(
    colors: NDArray[np.float64], text: NDArray[np.int64], edit_cost: float | None
) -> NDArray[np.float64]:
    """Return the best score of a text from every place of key sequences, by dynamic programming.

    Let S_i(j) be the best score of tokens i, i+1, ... when place j is next. The last has
    S_T(j) = 0, and before it ``S_i(j) = colors[w_i, j] + S_{i+1}(j+1)``, places modulo n. With
    edits, token i may also be left out, ``S_{i+1}(j) - cost``, or place j, ``S_i(j+1) - cost``.

    Parameters
    ----------
    colors : ndarray, shape (R, K, n)
        Colour of each of K kinds of token at each of n places, in R sequences.
    text : ndarray of int, shape (T,)
        Kinds of token, in 0..K-1.
    edit_cost : float, optional
        Cost of one edit, above 0. Default: no edits.

    Returns
    -------
    ndarray, shape (R, n)
        S_0.
    """
    if edit_cost is None:
        return _plain_scores(colors, text)
    score = np.zeros((len(colors), colors.shape[2]))
    for token in text[::-1]:
        rest, score = score, colors[:, token] + np.roll(score, -1, axis=1)
        score = skip_places(np.maximum(score, rest - edit_cost), edit_cost)
    return score


def _plain_scores(colors: NDArray[np.float64], text: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums ``Σ_i colors[w_i, (j + i) mod n]``: circular correlations, by Fourier."""
    kinds, text = np.unique(text, return_inverse=True)
    n = colors.shape[2]
    counts = np.zeros((len(kinds), n))  # of each kind at tokens number i = m mod n
    np.add.at(counts, (text, np.arange(len(text)) % n), 1)
    wanted = np.fft.rfft(counts).conj()
    spectra = [(np.fft.rfft(sequence[kinds]) * wanted).sum(axis=0) for sequence in colors]
    return np.fft.irfft(spectra, n)


def skip_places(score: NDArray[np.float64], cost: float) -> NDArray[np.float64]:
    """Return ``max over d >= 0 of score[:, (j + d) mod n] - d cost`` for every place j."""
    n = score.shape[1]
    slope = cost * np.arange(2 * n)
    ahead = np.concatenate([score, score], axis=1) - slope  # d up to n - 1 wraps around once
    return np.maximum.accumulate(ahead[:, ::-1], axis=1)[:, : n - 1 : -1] + slope[:n]


def as_generator(rng: int | np.random.Generator) -> np.random.Generator:
    """Return a generator, made from a seed if need be; raise TypeError for anything else."""
    if isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer):
        raise TypeError(f"rng must be an integer seed or a Generator, got {type(rng).__name__}")
    return np.random.default_rng(check_integer("rng", rng, low=0, high=None))
