"""How often n-grams stand in a reference corpus: a stand-in for what a spoofer has seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import ArrayLike, NDArray

from workingpapers.arguments import as_array, check_fields, check_integer, check_type
from workingpapers.language import window_keys
from workingpapers.language.lookup import find
from workingpapers.watermark_spoofing.prf import as_tokens

__all__ = ["NGramCounts"]


@dataclass(frozen=True, eq=False)
class NGramCounts:
    """Counts of all windows of n tokens in a corpus; made by `from_texts` or `load`.

    Kept as sorted 64-bit keys. A window is a number in base V as long as that fits; beyond, it is
    hashed, and a collision would add another window's count: harmless noise, and very rare.

    Parameters
    ----------
    n : int
        Number of tokens in a window, at least 1.
    vocab_size : int
        Number of tokens V.
    windows : ndarray of int64, shape (K,)
        Keys of the windows seen, ascending.
    counts : ndarray of int64, shape (K,)
        How often each was seen, at least 1.

    Raises
    ------
    ValueError
        If they are not as described.
    """

    n: int
    vocab_size: int
    windows: NDArray[np.int64]
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "n", "vocab_size")
        windows = as_array("windows", self.windows, "integers")
        if windows.ndim != 1 or not len(windows) or (windows[1:] <= windows[:-1]).any():
            raise ValueError("windows must be at least one key, each larger than the one before")
        counts = as_array("counts", self.counts, "integers", windows.shape)
        if counts.min() < 1:
            raise ValueError(f"counts must be at least 1, got {counts.min()}")

    @classmethod
    def from_texts(cls, texts: Sequence[ArrayLike], n: int, vocab_size: int) -> "NGramCounts":
        """Count the windows of texts; none crosses the border of a text.

        Parameters
        ----------
        texts : sequence of array_like of int, shapes (T_i,)
            Token ids in 0..V-1, at least one text; texts shorter than n hold no window.
        n : int
            Number of tokens in a window, at least 1.
        vocab_size : int
            Number of tokens V.

        Returns
        -------
        NGramCounts
            The counts.

        Raises
        ------
        ValueError
            If a token or a number is out of its range, or no text holds a window.
        """
        n, vocab_size = check_integer("n", n), check_integer("vocab_size", vocab_size)
        texts = [as_tokens(f"texts[{i}]", t, vocab_size, ndim=1) for i, t in enumerate(texts)]
        keys = [window_keys(text, n, vocab_size) for text in texts if len(text) >= n]
        if not keys:
            raise ValueError(
                f"texts must hold a window of {n} tokens, got {len(texts)} shorter texts"
            )
        windows, counts = np.unique(np.concatenate(keys), return_counts=True)
        return cls(n, vocab_size, windows, counts)

    def count(self, windows: ArrayLike) -> NDArray[np.int64]:
        """Look up how often windows were seen.

        Parameters
        ----------
        windows : array_like of int, shape (N, n)
            Token ids in 0..V-1.

        Returns
        -------
        ndarray of int64, shape (N,)
            0 for windows that were not seen.

        Raises
        ------
        ValueError
            If ``windows`` has another shape, or a token is out of its range.
        """
        windows = as_tokens("windows", windows, self.vocab_size, ndim=2)
        if windows.shape[1] != self.n:
            raise ValueError(f"windows must have {self.n} columns, got {windows.shape[1]}")
        keys = window_keys(windows, self.n, self.vocab_size)[:, 0]
        places = find(self.windows, keys)
        return np.where(places >= 0, self.counts[places], 0)

    @property
    def total(self) -> int:
        """Number of windows in the corpus, repeats included."""
        return int(self.counts.sum())

    def save(self, path: str | PathLike) -> None:
        """Write the counts to a compressed file in numpy's npz format, whatever its name is."""
        with Path(path).open("wb") as file:
            np.savez_compressed(
                file, n=self.n, vocab_size=self.vocab_size, windows=self.windows, counts=self.counts
            )

    @classmethod
    def load(cls, path: str | PathLike) -> "NGramCounts":
        """Read counts that `save` wrote; nothing in the file is executed.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        NGramCounts
            The counts.

        Raises
        ------
        OSError
            If the file cannot be opened.
        ValueError
            If the file does not hold counts.
        """
        with Path(path).open("rb") as file:
            try:
                return cls(**_fields(np.load(file, allow_pickle=False)))
            except Exception as error:  # a broken archive raises errors of many kinds
                raise ValueError(
                    f"path must name a file of counts, {path} is none: {error}"
                ) from error


def _fields(stored: NpzFile) -> dict[str, object]:
    """Return the fields of counts in an archive."""
    check_type("the file", stored, NpzFile)
    names = {"n", "vocab_size", "windows", "counts"}
    if names != set(stored):
        raise ValueError(f"it lacks {sorted(names - set(stored))} or has more")
    return {name: stored[name] if stored[name].ndim else stored[name].item() for name in names}
