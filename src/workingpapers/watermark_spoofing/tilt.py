"""Subjects: a language model that prefers some words for the length of a text.

A large model writes what its prompt asks for. Here the part of the prompt is played by a vector θ
over the vocabulary, fixed for a text: two texts with one θ are two answers to one question.
"""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from workingpapers.arguments import as_reals, check_integer, check_nonnegative, check_type
from workingpapers.language import CausalLM, Decoding

__all__ = ["TiltedLM", "draw_tilts"]


def draw_tilts(
    num_texts: int, vocab_size: int, rng: np.random.Generator, scale: float = 1.0
) -> NDArray[np.float32]:
    """Draw a subject for every text, ``θ ~ N(0, scale² I)``.

    Parameters
    ----------
    num_texts, vocab_size : int
        B and V, at least 1.
    rng : numpy.random.Generator
    scale : float, default 1
        Standard deviation s, at least 0.

    Returns
    -------
    (B, V) float32 array

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    shape = check_integer("num_texts", num_texts), check_integer("vocab_size", vocab_size)
    check_type("rng", rng, np.random.Generator)
    scale = check_nonnegative("scale", scale)
    return rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)


class TiltedLM(CausalLM):
    """A language model with a subject for each text: ``p(v | c, θ) ∝ p(v | c) exp(θ_v)``.

    Parameters
    ----------
    base : CausalLM
    tilts : (V,) or (B, V) array_like of float
        θ, finite; with B rows the model takes batches of B texts only, the b-th on subject b.

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """

    def __init__(self, base: CausalLM, tilts: ArrayLike):
        check_type("base", base, CausalLM)
        tilts = as_reals("tilts", tilts)
        if tilts.ndim not in (1, 2) or tilts.shape[-1] != base.vocab_size or not len(tilts):
            raise ValueError(
                f"tilts must have shape (V,) or (B, V), V = {base.vocab_size}, got {tilts.shape}"
            )
        self.base = base
        self.vocab_size = base.vocab_size
        self.max_length = base.max_length
        self.tilts = torch.from_numpy(tilts).float()

    @property
    def device(self) -> torch.device:
        """Where the base lies."""
        return self.base.device

    def start(self, prompts) -> Decoding:
        """Begin to continue prompts, as in :class:`CausalLM`."""
        return _TiltedDecoding(self.base.start(prompts), self._tilts_of(len(prompts)))

    def position_log_probs(self, batch) -> Tensor:
        """Log-probabilities of the next token after each position, as in :class:`CausalLM`."""
        tilts = self._tilts_of(len(batch))
        logits = self.base.position_log_probs(batch)
        return (logits + (tilts if tilts.ndim == 1 else tilts[:, None])).log_softmax(-1)

    def _tilts_of(self, num_texts: int) -> Tensor:
        if self.tilts.ndim == 2 and len(self.tilts) != num_texts:
            raise ValueError(f"texts must be {len(self.tilts)}, one a tilt, got {num_texts}")
        return self.tilts.to(self.device)


class _TiltedDecoding(Decoding):
    def __init__(self, base: Decoding, tilts: Tensor):
        self._base, self._tilts = base, tilts

    @property
    def logits(self) -> Tensor:
        return self._base.logits + self._tilts

    def append(self, tokens: Tensor) -> None:
        self._base.append(tokens)
