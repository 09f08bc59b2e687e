"""The test for spoofed text: the rank correlation of colour and context frequency.

A spoofer knows colours only where its training data taught it, and frequent contexts are more often
in that data. So in spoofed text green tokens stand in frequent contexts; in genuine text they do
not. The structure (rank correlation, the Standard and the Reprompting test) is the paper's; the
exact formulas were worked out here, since its body was not at hand, and are checked by calibration.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm, rankdata

from workingpapers.arguments import as_reals, check_choice, check_integer, check_type
from workingpapers.language import CausalLM, as_token_texts
from workingpapers.watermark_spoofing.evidence import (
    Evidence,
    FrequencyBin,
    ScoredTexts,
    Texts,
    counts_for,
    prompt_lengths_of,
    read,
    scored_texts,
    with_context,
)
from workingpapers.watermark_spoofing.reference import NGramCounts
from workingpapers.watermark_spoofing.schemes import KGW, Scheme

__all__ = ["SpoofingTestResult", "copies", "spearman_z", "spoofing_test"]

MODES = ("standard", "reprompting", "model")
TRANSFORMS = ("plain", "fisher")
LEAST_POSITIONS = 10
COMPARED = 20  # tokens in which a copy is known


def spearman_z(
    colors: ArrayLike, frequencies: ArrayLike, transform: str = "plain"
) -> tuple[float, float]:
    """Return Spearman's rank correlation of two sequences, and its z-score.

    ``Z_S = ρ √(T-1)``, with average ranks for ties. 1/(T-1) is the exact variance of ρ over random
    pairings, ties or none. For binary colours Z_S is the Mann-Whitney z, corrected for ties, of the
    frequencies at green tokens against those at red ones (Prop. 3).

    Parameters
    ----------
    colors : array_like, shape (T,)
        X: colour of each position, binary or real; finite and not all equal.
    frequencies : array_like, shape (T,)
        Y: frequency of each position's context, on any increasing scale; finite, not all equal.
    transform : {"plain", "fisher"}
        ``"fisher"`` gives ``√(T-3) artanh(ρ)`` instead; it needs T > 3 and abs(ρ) < 1.

    Returns
    -------
    rho, z : float

    Raises
    ------
    ValueError
        If an argument is not as described; the message names the sequence that does not vary.
    """
    colors = as_reals("colors", colors)
    frequencies = as_reals("frequencies", frequencies)
    if colors.ndim != 1 or frequencies.shape != colors.shape:
        raise ValueError(
            "colors and frequencies must be sequences of one length, got shapes "
            f"{colors.shape} and {frequencies.shape}"
        )
    found = _correlate(colors, frequencies, transform)
    return found.rho, found.z


@dataclass(frozen=True)
class _Correlation:
    """A rank correlation on the scale of a transform, with its variance there."""

    rho: float
    effect: float
    variance: float

    @property
    def z(self) -> float:
        return self.effect / math.sqrt(self.variance)

    def against(self, others: Sequence["_Correlation"], one_length: bool) -> float:
        """Return the z-score of the difference from the mean of independent others.

        Texts of one length are compared by their z-scores, others by their correlations. The
        two agree where repeats leave all with equally many distinct positions.
        """
        if one_length:
            mean, spread = np.mean([other.z for other in others]), 1 + 1 / len(others)
            return float((self.z - mean) / math.sqrt(spread))
        mean = np.mean([other.effect for other in others])
        spread = sum(other.variance for other in others) / len(others) ** 2
        return float((self.effect - mean) / math.sqrt(self.variance + spread))


def _correlate(colors: NDArray, frequencies: NDArray, transform: str) -> _Correlation:
    check_choice("transform", transform, TRANSFORMS)
    x, y = _centred_ranks("colors", colors), _centred_ranks("frequencies", frequencies)
    rho = float(np.clip(x @ y / math.sqrt((x @ x) * (y @ y)), -1, 1))  # rounding may overshoot
    if transform == "plain":
        return _Correlation(rho, rho, 1 / (len(x) - 1))
    if len(x) <= 3 or abs(rho) == 1:
        raise ValueError(
            "transform 'fisher' needs more than 3 positions that are not perfectly correlated, got "
            f"{len(x)} with correlation {rho:g}"
        )
    return _Correlation(rho, math.atanh(rho), 1 / (len(x) - 3))


def _centred_ranks(name: str, values: NDArray) -> NDArray[np.float64]:
    if len(values) == 0 or values.min() == values.max():
        what = f"all are {values[0]:g}" if len(values) else "there are none"
        raise ValueError(f"{name} must hold at least two different values, {what}")
    return rankdata(values) - (len(values) + 1) / 2


@dataclass(frozen=True)
class SpoofingTestResult:
    """What the test says of a text.

    Attributes
    ----------
    statistic : float
        Z: about standard normal if the text is genuine, large if it is spoofed.
    pvalue : float
        ``1 - Φ(Z)``: one-sided, since spoofing makes the correlation positive.
    rho : float
        Rank correlation of colour and frequency in the text.
    num_tokens : int
        Number of scored positions.
    num_unique : int
        T': the number of them that the statistic uses.
    zero_share : float
        Share of those whose frequency is 0.
    frequency_bins : tuple of FrequencyBin
        Mean colour by frequency: the picture that explains the verdict.
    """

    statistic: float
    pvalue: float
    rho: float
    num_tokens: int
    num_unique: int
    zero_share: float
    frequency_bins: tuple[FrequencyBin, ...]


def spoofing_test(
    texts: Texts,
    scheme: Scheme,
    reference: NGramCounts | None,
    mode: str = "standard",
    reprompted: Texts | Sequence[Texts] | None = None,
    model: CausalLM | Sequence[CausalLM] | None = None,
    score: str = "context",
    known_data: NGramCounts | None = None,
    dedup: bool | None = None,
    prompt_lengths: int | Sequence[int] = 0,
    transform: str = "plain",
    bins: int = 10,
) -> SpoofingTestResult:
    """Test whether watermarked text was forged by a model that had learned the watermark.

    Three tests share the two sequences X (colours) and Y (context frequencies):

    - Standard: ``Z_S`` of :func:`spearman_z`. It is calibrated where colour and context frequency
      are independent in genuine text: wide contexts, SelfHash.
    - Reprompting: ``Z_R = (Z_S - mean Z'_j) / √(1 + 1/k)`` against k texts that the model under
      protection wrote anew on the same subjects, each with as many scored positions. A dependence
      that genuine text has cancels. Against texts of other lengths
      ``(ρ - mean ρ'_j) / √(1/(T-1) + Σ_j 1/(T'_j-1) / k²)``, where T counts distinct positions.
    - Model: ``Z_M = Σ a_t (X_t - p_t) / √(Σ a_t² p_t (1-p_t))``, where ``p_t`` is the probability
      of green under the watermarked model itself and ``a_t = log(1 + Y_t)`` minus its mean over
      the contexts of the reference, so that it is settled before the token. Where Y_t is too (see
      ``score``) the sum is a martingale: it needs no independence. Only for :class:`KGW`, and for a
      model that marks every token.

    Parameters
    ----------
    texts : sequence of array_like of int, each of shape (T_i,)
        Token ids of texts that are known to have one source.
    scheme : Scheme
        The watermark with its secret key.
    reference : NGramCounts or None
        Counts in ordinary text, of n-grams of :func:`gram_width`; None with ``"known_data"``.
    mode : {"standard", "reprompting", "model"}
        Which of the three tests.
    reprompted : sequence of texts, or of k sequences of texts; optional
        What the model wrote anew, for ``"reprompting"``, with prompts of the same lengths.
    model : CausalLM or sequence of CausalLM, optional
        The model without its watermark, for ``"model"``; one for each text where the prompt is not
        in the text.
    score : {"context", "ngram", "unigram", "known_data"}
        What Y counts: the context; context and token; the token; or whether context and token
        stand in the spoofer's data, for who has logged it. Only the first is settled before the
        token is drawn: the others correlate with colour in genuine text too, and are of use only
        with Reprompting.
    known_data : NGramCounts, optional
        Counts in the spoofer's data, for ``"known_data"``.
    dedup : bool, optional
        Whether to count repeated n-grams once. By default yes, but not for ``"model"``, whose sum
        is a martingale with repeats, and would not be if what it keeps depended on the tokens.
    prompt_lengths : int or sequence of int, default 0
        Number of tokens at the head of each text that are its prompt.
    transform : {"plain", "fisher"}
        As for :func:`spearman_z`; not for ``"model"``.
    bins : int, default 10
        Number of groups of rising frequency in the result, at least 1.

    Returns
    -------
    SpoofingTestResult

    Warns
    -----
    UserWarning
        If a reprompted text begins with the same tokens as a text under test: a copy compares the
        text with itself (AAR and KTH give the same text for the same prompt and shift).

    Raises
    ------
    ValueError
        If there are fewer than 10 positions to rank, X or Y does not vary, texts or a model are
        missing or given in vain, or an argument is out of its range.
    TypeError
        If an argument has the wrong type.
    """
    pairs, counts, again, models = check_arguments(
        texts=texts,
        scheme=scheme,
        reference=reference,
        mode=mode,
        reprompted=reprompted,
        model=model,
        score=score,
        known_data=known_data,
        dedup=dedup,
        prompt_lengths=prompt_lengths,
        transform=transform,
        bins=bins,
    )
    everything = read(pairs, scheme, counts, score)
    dedup = mode != "model" if dedup is None else dedup
    evidence = _enough(everything.distinct() if dedup else everything, "texts")
    found = _correlate(evidence.colors, evidence.frequencies, transform)
    if mode == "standard":
        statistic = found.z
    elif mode == "reprompting":
        others, lengths = [], {len(everything.colors)}
        for name, second in again.items():
            _warn_of_copies(pairs, second)
            sample = read(second, scheme, counts, score)
            lengths.add(len(sample.colors))
            sample = _enough(sample.distinct() if dedup else sample, name)
            others.append(_correlate(sample.colors, sample.frequencies, transform))
        statistic = found.against(others, one_length=len(lengths) == 1)
    else:
        parts = [
            surplus_green(pair, scheme, lm, counts, score)
            for pair, lm in zip(pairs, models, strict=True)
        ]
        statistic = martingale_z(*np.sum(parts, axis=0))
    return SpoofingTestResult(
        statistic=statistic,
        pvalue=float(norm.sf(statistic)),
        rho=found.rho,
        num_tokens=len(everything.colors),
        num_unique=len(evidence.colors),
        zero_share=float(np.mean(evidence.frequencies == 0)),
        frequency_bins=evidence.frequency_bins(bins),
    )


def check_arguments(
    texts: Texts,
    scheme: Scheme,
    reference: NGramCounts | None,
    mode: str,
    reprompted: Texts | Sequence[Texts] | None,
    model: CausalLM | Sequence[CausalLM] | None,
    score: str,
    known_data: NGramCounts | None,
    dedup: bool | None,
    prompt_lengths: int | Sequence[int],
    transform: str,
    bins: int,
) -> tuple[ScoredTexts, NGramCounts, dict[str, ScoredTexts], list[CausalLM]]:
    """Check all arguments of the test; return texts, counts, reprompted texts and models."""
    check_choice("transform", transform, TRANSFORMS)
    check_integer("bins", bins)
    pairs = scored_texts("texts", texts, scheme, prompt_lengths)
    _check_mode(mode, scheme, reprompted, model, transform, dedup)
    counts = counts_for(scheme, reference, score, known_data)
    again = {
        name: scored_texts(name, texts, scheme, prompt_lengths)
        for name, texts in ({} if reprompted is None else rounds(reprompted)).items()
    }
    return pairs, counts, again, [] if model is None else _models(model, pairs, scheme)


def _check_mode(
    mode: str, scheme: Scheme, reprompted: object, model: object, transform: str, dedup: object
) -> None:
    """Raise unless a mode is given all that it needs, and nothing else."""
    check_choice("mode", mode, MODES)
    for name, value, needed in (("reprompted", reprompted, MODES[1]), ("model", model, MODES[2])):
        if (value is not None) != (mode == needed):
            found = "none" if value is None else f"some with mode {mode!r}"
            raise ValueError(
                f"{name} must be given if, and only if, mode is {needed!r}, got {found}"
            )
    if dedup is not None:
        check_type("dedup", dedup, bool)
    if mode == "model":
        check_type("scheme", scheme, KGW)
        if dedup or transform != "plain":
            raise ValueError(
                "mode 'model' takes neither dedup=True nor a transform, "
                f"got dedup = {dedup}, transform = {transform!r}"
            )


def _enough(evidence: Evidence, name: str) -> Evidence:
    if len(evidence.colors) < LEAST_POSITIONS:
        raise ValueError(
            f"{name} must have at least {LEAST_POSITIONS} distinct positions to score, "
            f"got {len(evidence.colors)}"
        )
    return evidence


def rounds(reprompted: Texts | Sequence[Texts]) -> dict[str, Texts]:
    """Return rounds of reprompted texts, by the name that messages call them."""
    outer = _listed(reprompted)
    first = _listed(outer[0])[0]
    if not (hasattr(first, "__len__") and getattr(first, "ndim", 1)):  # a token
        return {"reprompted": outer}
    return {f"reprompted[{j}]": _listed(again) for j, again in enumerate(outer)}


def _listed(level: Texts | Sequence[Texts]) -> list:
    if isinstance(level, str | bytes) or not hasattr(level, "__len__") or not len(level):
        raise ValueError(
            "reprompted must hold texts, or rounds of texts, in sequences that are not empty, "
            f"got {level!r}"
        )
    return list(level)


def copies(
    texts: Texts, others: Texts, prompt_lengths: int | Sequence[int] = 0, num_tokens: int = COMPARED
) -> NDArray[np.bool_]:
    """Say which texts begin like the other text in their place.

    The schemes that derandomise sampling (AAR, KTH) give the same text whenever prompt, key and
    shift are the same. Such a text is no second draw: prompt anew, or at another shift.

    Parameters
    ----------
    texts, others : sequence of array_like of int
        The same number of texts.
    prompt_lengths : int or sequence of int, default 0
        Tokens at the head of both texts that are the prompt, and are not compared.
    num_tokens : int, default 20
        Number of tokens that are compared; where one of the two has fewer, its number. Where it
        has none they are no copies.

    Returns
    -------
    ndarray of bool, one a text

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    texts = as_token_texts("texts", texts, 2**63 - 1)
    others = as_token_texts("others", others, 2**63 - 1)
    if len(texts) != len(others):
        raise ValueError(f"others must hold {len(texts)} texts, got {len(others)}")
    num_tokens = check_integer("num_tokens", num_tokens)
    lengths = prompt_lengths_of(prompt_lengths, texts)
    heads, others = (
        _heads(list(zip(side, lengths, strict=True)), num_tokens) for side in (texts, others)
    )
    return _alike(heads, others, least=1)


def _heads(pairs: ScoredTexts, num_tokens: int) -> NDArray[np.int64]:
    """Return the first tokens after each prompt, (N, num_tokens); -1 where a text is over."""
    heads = np.full((len(pairs), num_tokens), -1)
    for row, (text, length) in zip(heads, pairs, strict=True):
        piece = text[length : length + num_tokens]
        row[: len(piece)] = piece
    return heads


def _alike(heads: NDArray[np.int64], others: NDArray[np.int64], least: int) -> NDArray[np.bool_]:
    """Say which rows agree where both have tokens, and have at least so many."""
    both = (heads >= 0) & (others >= 0)
    return ((heads == others) | ~both).all(axis=-1) & (both.sum(axis=-1) >= least)


def copied(pairs: ScoredTexts, again: ScoredTexts) -> list[int]:
    """Return which of the texts written again begin like any of the texts under test."""
    heads, others = (_heads(side, COMPARED) for side in (pairs, again))
    return [j for j, row in enumerate(others) if _alike(heads, row, LEAST_POSITIONS).any()]


def _warn_of_copies(pairs: ScoredTexts, again: ScoredTexts) -> None:
    same = len(copied(pairs, again))
    if same:
        warnings.warn(
            f"{same} of {len(again)} reprompted texts begin as copies of the text under test: they "
            "say nothing of it; generate them with other prompts or shifts",
            UserWarning,
            stacklevel=3,
        )


def _models(
    model: CausalLM | Sequence[CausalLM], pairs: ScoredTexts, scheme: Scheme
) -> list[CausalLM]:
    """Return one model a text; raise unless all are models in the tokens of the scheme."""
    models = [model] * len(pairs) if isinstance(model, CausalLM) else list(model)
    if len(models) != len(pairs):
        raise ValueError(f"model must be one or {len(pairs)}, one a text, got {len(models)}")
    for lm in models:
        check_type("model", lm, CausalLM)
        if lm.vocab_size != scheme.vocab_size:
            raise ValueError(f"model must have vocab_size {scheme.vocab_size}, got {lm.vocab_size}")
    return models


def surplus_green(
    pair: tuple[NDArray[np.int64], int],
    scheme: KGW,
    lm: CausalLM,
    counts: NGramCounts,
    score: str = "context",
) -> tuple[float, float]:
    """Return the two sums that Z_M of one text is made of; those of several texts add up.

    Parameters
    ----------
    pair : tuple of (T,) int64 array and int
        A checked text, and the length of its prompt.
    scheme : KGW
    lm : CausalLM
        The model without its watermark.
    counts : NGramCounts
        Of the reference.
    score : str, default "context"
        As for :func:`spoofing_test`.

    Returns
    -------
    surplus : float
        ``sum a_t (X_t - p_t)``: green tokens beyond what the model expects, weighted by centred
        log frequency.
    variance : float
        ``sum a_t^2 p_t (1 - p_t)``.
    """
    text, length = pair
    evidence = read([pair], scheme, counts, score)
    positions = scheme.positions(text, length)
    kept = with_context(scheme, positions)
    log_probs = lm.position_log_probs(text[None, :-1])[0, positions[kept] - 1].cpu().numpy()
    chances = scheme.green_probability(scheme.contexts(text, length)[kept], log_probs)
    seen = np.minimum(counts.counts, 1) if score == "known_data" else counts.counts
    weights = np.log1p(evidence.frequencies)
    weights -= np.average(np.log1p(seen), weights=counts.counts)
    surplus = weights @ (evidence.colors - chances)
    return float(surplus), float(weights**2 @ (chances * (1 - chances)))


def martingale_z(surplus: float, variance: float) -> float:
    """Return Z_M from the sums of :func:`surplus_green`; raise where nothing was left to chance."""
    if variance == 0:
        raise ValueError("model must leave the colour of some token open, it settles all")
    return float(surplus / math.sqrt(variance))
