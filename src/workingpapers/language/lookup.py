"""Hashing and look-up: what tables that are keyed by contexts are made of."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["GOLDEN", "find", "mix64", "row_entries"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, odd


def mix64(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scramble 64-bit words, in place and invertibly, so that one changed bit changes half of all.

    The finaliser of SplitMix64 (Steele, Lea and Flood 2014, with Stafford's thirteenth set of
    constants). Arithmetic is modulo 2^64, hence the same on every platform.

    Parameters
    ----------
    words : ndarray of uint64
        Overwritten.

    Returns
    -------
    ndarray of uint64
        ``words`` itself.
    """
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def find(values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each wanted value among ascending ones; -1 where it is not there.

    Parameters
    ----------
    values : (N,) int64 array
        Ascending.
    wanted : (M,) int64 array

    Returns
    -------
    (M,) int64 array
    """
    if not len(values):
        return np.full(len(wanted), -1)
    places = np.minimum(np.searchsorted(values, wanted), len(values) - 1)
    return np.where(values[places] == wanted, places, -1)


def row_entries(
    starts: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gather the entries of some rows of a table whose rows are of different lengths.

    Parameters
    ----------
    starts : (R + 1,) int64 array
        Row r holds the entries ``starts[r]..starts[r+1]-1``.
    rows : (N,) int64 array
        Of 0..R-1.

    Returns
    -------
    entries : (E,) int64 array
        Those of the first row, then those of the second, and so on.
    owners : (E,) int64 array
        The place in ``rows``, 0..N-1, that each belongs to.
    """
    begin = starts[rows]
    lengths = starts[rows + 1] - begin
    skipped = np.cumsum(lengths) - lengths
    entries = np.arange(lengths.sum()) + np.repeat(begin - skipped, lengths)
    return entries, np.repeat(np.arange(len(rows)), lengths)
