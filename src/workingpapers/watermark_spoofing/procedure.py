"""The whole procedure: calibrate the test, look for the watermark, then test for forgery."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike
from scipy.stats import kstest, norm
from tqdm import tqdm

from workingpapers.arguments import as_reals, check_integer
from workingpapers.lab import Estimate, proportion_interval
from workingpapers.language import CausalLM
from workingpapers.watermark_spoofing.evidence import Texts
from workingpapers.watermark_spoofing.prf import check_probability
from workingpapers.watermark_spoofing.reference import NGramCounts
from workingpapers.watermark_spoofing.schemes import Scheme
from workingpapers.watermark_spoofing.spoofing_test import (
    SpoofingTestResult,
    check_arguments,
    copied,
    spoofing_test,
)

__all__ = ["CalibrationReport", "Examination", "calibrate", "examine"]


@dataclass(frozen=True)
class CalibrationReport:
    """How the test behaves on text that is known to be genuine.

    Attributes
    ----------
    mean, sd : float
        Of the statistics: 0 and 1 if the test is calibrated.
    ks_pvalue : float
        Of the Kolmogorov-Smirnov test of the statistics against N(0, 1).
    fpr_1, fpr_5 : Estimate
        Share of false alarms at 1% and at 5%, with exact binomial 95% intervals.
    """

    mean: float
    sd: float
    ks_pvalue: float
    fpr_1: Estimate
    fpr_5: Estimate

    @classmethod
    def of(cls, statistics: ArrayLike) -> "CalibrationReport":
        """Summarise statistics of independent genuine texts.

        Parameters
        ----------
        statistics : array_like of float, shape (N,)
            Finite, at least 2.

        Returns
        -------
        CalibrationReport

        Raises
        ------
        ValueError
            If they are not as described.
        """
        z = as_reals("statistics", statistics)
        if z.ndim != 1 or len(z) < 2:
            raise ValueError(f"statistics must be at least 2 numbers, got shape {z.shape}")
        alarms = [proportion_interval(int((norm.sf(z) < a).sum()), len(z)) for a in (0.01, 0.05)]
        return cls(float(z.mean()), float(z.std(ddof=1)), float(kstest(z, "norm").pvalue), *alarms)

    def __str__(self) -> str:
        return (
            f"Z: mean {self.mean:.2f}, sd {self.sd:.2f}, Kolmogorov-Smirnov p {self.ks_pvalue:.2g} "
            f"(n = {self.fpr_5.n})\n"
            f"false alarms at 5%: {self.fpr_5:.3f}\nfalse alarms at 1%: {self.fpr_1:.3f}"
        )


def calibrate(
    texts: Texts,
    scheme: Scheme,
    reference: NGramCounts | None,
    texts_per_test: int = 1,
    mode: str = "standard",
    reprompted: Texts | None = None,
    model: CausalLM | Sequence[CausalLM] | None = None,
    prompt_lengths: int = 0,
    progress: bool = False,
    **settings: object,
) -> CalibrationReport:
    """Test many genuine texts, and report how often the test is wrong.

    Who owns model and key can always do this, and should before choosing a mode: Standard is fit
    for use where the interval of its false alarms holds their nominal rate.

    Parameters
    ----------
    texts : sequence of array_like of int
        Genuine texts, tested in successive groups; what is left over is not used.
    scheme, reference, mode, prompt_lengths
        As for :func:`spoofing_test`.
    texts_per_test : int, default 1
        Number of texts in a group, at least 1. At least 2 groups.
    reprompted : sequence of texts, optional
        A second text for each, in the same order; for ``"reprompting"``.
    model : CausalLM or sequence of CausalLM, optional
        One for all, or one for each text; for ``"model"``.
    progress : bool, default False
        Show a progress bar.
    **settings
        Further arguments of :func:`spoofing_test`.

    Returns
    -------
    CalibrationReport

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described, or a test fails.
    """
    size = check_integer("texts_per_test", texts_per_test)
    if len(texts) < 2 * size:
        raise ValueError(f"texts must make at least 2 groups of {size}, got {len(texts)} texts")
    groups = [slice(start, start + size) for start in range(0, len(texts) - size + 1, size)]
    for name, value in (("reprompted", reprompted), ("model", model)):
        if value is not None and not isinstance(value, CausalLM) and len(value) != len(texts):
            raise ValueError(f"{name} must be one for each of {len(texts)} texts, got {len(value)}")
    statistics = []
    for group in tqdm(groups, desc="calibration", disable=None if progress else True):
        result = spoofing_test(
            texts[group],
            scheme,
            reference,
            mode,
            reprompted=None if reprompted is None else reprompted[group],
            model=model if model is None or isinstance(model, CausalLM) else model[group],
            prompt_lengths=prompt_lengths,
            **settings,
        )
        statistics.append(result.statistic)
    return CalibrationReport.of(statistics)


@dataclass(frozen=True)
class Examination:
    """What came of examining a text: first the watermark detector, then the spoofing test.

    Attributes
    ----------
    scheme_name : str
        The watermark.
    detection_z : float
        The detector's z-score over all texts.
    detection_threshold : float
        What it is held against.
    alpha : float
        False alarm rate of the spoofing test.
    mode : str
        Which of the tests.
    test : SpoofingTestResult or None
        None if the watermark was not found: then there is nothing to test.
    """

    scheme_name: str
    detection_z: float
    detection_threshold: float
    alpha: float
    mode: str
    test: SpoofingTestResult | None

    @property
    def verdict(self) -> str:
        """``"not watermarked"``, ``"spoofed"`` or ``"no sign of spoofing"``."""
        if self.test is None:
            return "not watermarked"
        return "spoofed" if self.test.pvalue < self.alpha else "no sign of spoofing"

    def __str__(self) -> str:
        found = ">=" if self.test is not None else "<"
        lines = [
            f"verdict: {self.verdict}",
            f"watermark: {self.scheme_name}, detector z = {self.detection_z:.2f} {found} threshold "
            f"{self.detection_threshold:g}",
        ]
        if self.test is not None:
            lines += self._test_lines()
        return "\n".join(lines)

    def _test_lines(self) -> list[str]:
        test = self.test
        small = "<" if test.pvalue < self.alpha else ">="
        counted = f"{test.num_unique} counted of {test.num_tokens}"
        if self.mode == "model":
            counted = f"{test.num_tokens}, repeats included"
        return [
            f"spoofing test: {self.mode}, Z = {test.statistic:.2f}, p = {test.pvalue:.3g} {small} "
            f"alpha = {self.alpha:g}",
            f"rank correlation of colour and context frequency: {test.rho:.3f}",
            f"positions: {counted}, "
            f"{test.zero_share:.0%} with contexts that the reference does not hold",
            "mean colour by context frequency:",
            *(
                f"  {group.low:g} to {group.high:g}: {group.mean_color:.3f} "
                f"({group.num_tokens} tokens)"
                for group in test.frequency_bins
            ),
        ]


def examine(
    texts: Texts,
    scheme: Scheme,
    reference: NGramCounts | None,
    mode: str = "standard",
    reprompted: Texts | Sequence[Texts] | None = None,
    alpha: float = 0.01,
    detection_threshold: float = 4.0,
    prompt_lengths: int | Sequence[int] = 0,
    **settings: object,
) -> Examination:
    """Say whether texts of one source carry the watermark, and if so whether they were forged.

    The detector comes first: the spoofing test says nothing of text without the watermark. It takes
    all texts together, and what comes again in any of them is counted once.

    Parameters
    ----------
    texts, scheme, reference, mode, reprompted, prompt_lengths
        As for :func:`spoofing_test`.
    alpha : float, default 0.01
        False alarm rate of the spoofing test, above 0 and below 1.
    detection_threshold : float, default 4
        z-score from which on the watermark counts as found.
    **settings
        Further arguments of :func:`spoofing_test`.

    Returns
    -------
    Examination
        Its ``str`` is a report to read; ``test.frequency_bins`` holds the data of the picture.

    Raises
    ------
    ValueError
        As for :func:`spoofing_test`, watermark or not; also if a reprompted text begins as a copy
        of one of the texts.
    TypeError
        If an argument has the wrong type.
    """
    alpha = check_probability("alpha", alpha, open_ends=True)
    threshold = float(as_reals("detection_threshold", detection_threshold, shape=()))
    call = inspect.signature(spoofing_test).bind(
        texts,
        scheme,
        reference,
        mode,
        reprompted=reprompted,
        prompt_lengths=prompt_lengths,
        **settings,
    )
    call.apply_defaults()
    pairs, _, rounds, _ = check_arguments(**call.arguments)
    for name, again in rounds.items():
        if same := copied(pairs, again):
            raise ValueError(
                f"{name} must not hold copies of the texts under test, got some in places {same}: "
                "prompt anew, or at another shift"
            )
    z = scheme.detect_texts(*zip(*pairs, strict=True)).statistic
    test = spoofing_test(**call.arguments) if z >= threshold else None
    return Examination(scheme.name, z, threshold, alpha, mode, test)
