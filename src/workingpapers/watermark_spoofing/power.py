"""How many tokens a verdict takes: power of the spoofing tests in closed form (Prop. 6).

The model: a share q of the tokens stands in contexts that the spoofer has learned, where a token is
green with probability p1; elsewhere it is green with probability p0 < p1. The key holder does not
see which context was learned, only how frequent it is; κ is the correlation of the two. The
formulas are worked out here from the statistic's asymptotic law; the paper's own were not at hand.
"""

import math

from scipy.stats import norm

from workingpapers.arguments import as_reals, check_choice, check_integer
from workingpapers.watermark_spoofing.prf import check_probability

__all__ = ["expected_z", "power", "tokens_needed"]

MODES = ("standard", "reprompting")
LARGEST_ROOT = 2.0**31  # of a number of tokens


def expected_z(q: float, p1: float, p0: float, num_tokens: int, kappa: float = 1.0) -> float:
    """Return the mean of the Standard statistic on spoofed text.

    ``E Z_S ≈ √(T-1) κ (p1 - p0) √(q (1-q)) / √(p̄ (1-p̄))`` with ``p̄ = q p1 + (1-q) p0``: the
    correlation of two binary variables, colour and learned or not, times κ and √(T-1).

    Parameters
    ----------
    q : float
        Share of tokens in learned contexts, in 0..1.
    p1, p0 : float
        Probabilities of a green token in a learned and in another context, in 0..1. The overall
        share p̄ must be neither 0 nor 1: a colour that never changes has no correlation.
    num_tokens : int
        T, the number of distinct positions that the statistic ranks, at least 2.
    kappa : float, default 1
        Correlation of context frequency (ranked) and "was learned", in -1..1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    num_tokens = check_integer("num_tokens", num_tokens, low=2)
    return math.sqrt(num_tokens - 1) * _correlation(q, p1, p0, kappa)


def power(
    q: float,
    p1: float,
    p0: float,
    num_tokens: int,
    kappa: float = 1.0,
    alpha: float = 0.01,
    mode: str = "standard",
    reprompts: int = 1,
) -> float:
    """Return the probability that spoofed text is found out.

    ``Φ(E Z - z_(1-α))``, where ``E Z`` is :func:`expected_z`, divided by ``√(1 + 1/k)`` if the
    text is compared with k others that were generated anew.

    Parameters
    ----------
    q, p1, p0, num_tokens, kappa
        As for :func:`expected_z`.
    alpha : float, default 0.01
        False alarm rate of the test, above 0 and below 1.
    mode : {"standard", "reprompting"}
        Which of the two tests.
    reprompts : int, default 1
        Number k of texts to compare with, each as long as the one under test; at least 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an argument is out of its range.
    """
    alpha = check_probability("alpha", alpha, open_ends=True)
    mean = expected_z(q, p1, p0, num_tokens, kappa) / _price(mode, reprompts)
    return float(norm.sf(norm.isf(alpha) - mean))


def tokens_needed(
    q: float,
    p1: float,
    p0: float,
    kappa: float = 1.0,
    target: float = 0.9,
    alpha: float = 0.01,
    mode: str = "standard",
    reprompts: int = 1,
) -> int:
    """Return the smallest number of tokens at which the power reaches a target.

    It grows like 1/r², r being the correlation of colour and context frequency: a spoofer who has
    learned nearly every context (q → 1) cannot be found out at any length.

    Parameters
    ----------
    q, p1, p0, kappa, alpha, mode, reprompts
        As for :func:`power`.
    target : float, default 0.9
        The power that is wanted, above ``alpha`` and below 1.

    Returns
    -------
    int
        At least 2.

    Raises
    ------
    ValueError
        If an argument is out of its range, or colour and frequency are not positively
        correlated: then no number of tokens is enough.
    """
    alpha = check_probability("alpha", alpha, open_ends=True)
    target = check_probability("target", target, open_ends=True)
    if target <= alpha:
        raise ValueError(f"target must be above alpha = {alpha}, got {target}")
    correlation = _correlation(q, p1, p0, kappa)
    if correlation <= 0:
        raise ValueError(
            "q, p1, p0 and kappa must give a positive correlation, else no number of tokens is "
            f"enough; got q = {q}, p1 = {p1}, p0 = {p0}, kappa = {kappa}"
        )
    needed = _price(mode, reprompts) * float(norm.isf(alpha) + norm.ppf(target))
    if needed >= LARGEST_ROOT * correlation:
        raise ValueError(
            "q, p1, p0 and kappa must give a larger correlation, else more than 2^62 tokens are "
            f"needed; got q = {q}, p1 = {p1}, p0 = {p0}, kappa = {kappa}"
        )
    needed /= correlation
    return max(2, math.ceil(1 + needed**2))


def _correlation(q: float, p1: float, p0: float, kappa: float) -> float:
    """Return κ times the correlation of "green" and "learned"."""
    q, p1, p0 = (check_probability(*pair) for pair in (("q", q), ("p1", p1), ("p0", p0)))
    kappa = float(as_reals("kappa", kappa, shape=()))
    if abs(kappa) > 1:
        raise ValueError(f"kappa must be in -1..1, got {kappa!r}")
    green = q * p1 + (1 - q) * p0
    if not 0 < green < 1:
        raise ValueError(
            f"p1 and p0 must leave both colours possible, got p1 = {p1}, p0 = {p0}, q = {q}"
        )
    return kappa * (p1 - p0) * math.sqrt(q * (1 - q) / (green * (1 - green)))


def _price(mode: str, reprompts: int) -> float:
    """Return the factor by which a mode divides the mean of the statistic."""
    reprompts = check_integer("reprompts", reprompts)
    return math.sqrt(1 + 1 / reprompts) if check_choice("mode", mode, MODES) != MODES[0] else 1.0
