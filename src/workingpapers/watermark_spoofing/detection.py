"""What a watermark detector says, and the exact laws that it compares a text with."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from workingpapers.arguments import as_array

__all__ = ["DetectionResult", "first_occurrences"]


@dataclass(frozen=True)
class DetectionResult:
    """How strongly a text carries a watermark.

    Parameters
    ----------
    statistic : float
        z: how many standard deviations of unmarked text lie between this text and the mean of
        unmarked text. Large means marked.
    pvalue : float
        Probability that unmarked text scores at least as high.
    num_tokens : int
        Number of tokens that were scored, T: repeats are not counted where the scheme drops them.
    mean_color : float
        Mean colour of these tokens: for the red-green watermark the green fraction. Where an
        alignment may edit, what the edits cost is taken off the sum of colours first.
    shift : int, optional
        Where the text starts in the key sequence, for the scheme that has one; for one text.
    """

    statistic: float
    pvalue: float
    num_tokens: int
    mean_color: float
    shift: int | None = None


def green_test(colors: NDArray[np.float64], gamma: float) -> DetectionResult:
    """Compare the number of green tokens with Binomial(T, gamma)."""
    total, green = len(colors), int(colors.sum())
    z = (green - gamma * total) / np.sqrt(total * gamma * (1 - gamma))
    pvalue = special.bdtrc(green - 1, total, gamma)  # of more than green - 1
    return DetectionResult(float(z), float(pvalue), total, green / total)


def exponential_test(colors: NDArray[np.float64]) -> DetectionResult:
    """Compare a sum of colours, Exp(1) each in unmarked text, with Gamma(T, 1)."""
    total, score = len(colors), float(colors.sum())
    z = (score - total) / np.sqrt(total)
    return DetectionResult(float(z), float(special.gammaincc(total, score)), total, score / total)


def first_occurrences(keys: ArrayLike) -> NDArray[np.bool_]:
    """Mark the first of every set of equal rows.

    Repeated n-grams have the same colour over again: counted twice, they are not two pieces of
    evidence. For several texts, stack their keys.

    Parameters
    ----------
    keys : array_like of int, shape (T, n)
        Rows as a scheme's ``keys`` returns them.

    Returns
    -------
    ndarray of bool, shape (T,)
        True where a row comes for the first time.

    Raises
    ------
    ValueError
        If ``keys`` is not a two-dimensional array of integers.

    Examples
    --------
    >>> first_occurrences([[1, 2], [3, 4], [1, 2]]).tolist()
    [True, True, False]
    """
    keys = as_array("keys", keys, "integers")
    if keys.ndim != 2 or keys.shape[1] == 0:
        raise ValueError(f"keys must have 2 axes, the second not empty, got shape {keys.shape}")
    order = np.lexsort(keys.T)  # a stable sort: equal rows stay in their order
    rows = keys[order]
    new = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))[: len(rows)]
    first = np.zeros(len(keys), dtype=bool)
    first[order[new]] = True
    return first
