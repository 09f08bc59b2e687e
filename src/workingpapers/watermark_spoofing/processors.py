"""The watermark at the moment of sampling: logits processors for any model that can take one."""

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import LogitsProcessor

from workingpapers.arguments import check_integer, check_type
from workingpapers.watermark_spoofing.kth import KTH
from workingpapers.watermark_spoofing.schemes import Scheme

__all__ = ["WatermarkProcessor", "processor"]


class WatermarkProcessor(LogitsProcessor):
    """Put a scheme's watermark into the logits of a batch of texts; made by `processor`."""

    def __init__(
        self,
        scheme: Scheme,
        prompt_length: int,
        rng: np.random.Generator | None,
        skip_repeated: bool,
        shifts: ArrayLike | None,
    ) -> None:
        self.scheme = scheme
        self.prompt_length = prompt_length
        self.skip_repeated = skip_repeated
        self.rng = rng
        self.shifts = shifts

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits (B, V) with the mark in them, given all tokens so far (B, L)."""
        tokens, length = input_ids.cpu().numpy(), input_ids.shape[1]
        width = self.scheme.context_width
        if length < self.prompt_length:
            raise ValueError(
                f"prompt_length must be <= {length}, the tokens given, got {self.prompt_length}"
            )
        if length < width:
            return scores  # no context yet, so no colour either
        logits = as_numpy(scores)
        contexts, index = tokens[:, length - width :], length - self.prompt_length
        if isinstance(self.scheme, KTH):
            marked = self.scheme.process(contexts, logits, index, self._row_shifts(len(tokens)))
        else:
            marked = self.scheme.process(contexts, logits, index)
        if self.skip_repeated:
            seen = repeated(tokens, width, max(self.prompt_length, width))
            marked[seen] = logits[seen]
        return torch.from_numpy(marked).to(scores)

    def _row_shifts(self, num_texts: int) -> ArrayLike:
        """Return the start shifts, drawn at the first step if they were not given."""
        if self.shifts is None:
            self.shifts = self.scheme.draw_shifts(num_texts, self.rng)
        return self.shifts


def as_numpy(scores: Tensor) -> NDArray[np.floating]:
    """Return logits as an array, half precision as float32, which numpy lacks in part."""
    scores = scores.detach().cpu()
    return (scores if scores.dtype == torch.float64 else scores.float()).numpy()


def repeated(tokens: NDArray[np.int64], width: int, start: int) -> NDArray[np.bool_]:
    """Say in which rows the context at the end was one before, at a position from ``start`` on."""
    number = max(tokens.shape[1] - start, 0)
    same = np.ones((len(tokens), number), dtype=bool)
    for place in range(width):
        column = start - width + place
        same &= tokens[:, column : column + number] == tokens[:, place - width, None]
    return same.any(axis=1)


def processor(
    scheme: Scheme,
    prompt_length: int,
    rng: np.random.Generator | None = None,
    skip_repeated: bool = False,
    shifts: ArrayLike | None = None,
) -> WatermarkProcessor:
    """Return the logits processor that makes a model write with the watermark.

    It works in `workingpapers.language.generate` and in ``model.generate(logits_processor=[...])``
    of transformers alike, last in the list: what comes after it may undo the mark. Where a text
    has fewer than h tokens so far there is no context, and no mark.

    Parameters
    ----------
    scheme : Scheme
        The watermark.
    prompt_length : int
        Number of tokens before the first generated one, at least 0: columns of ``input_ids`` at
        the first step, whatever padding stands left of shorter prompts.
    rng : numpy.random.Generator, optional
        For a `KTH` with more than one shift: draws one shift a text, at the first step. The
        processor then serves one batch.
    skip_repeated : bool
        Leave the logits alone in a context that the same text already generated from, as
        `Aaronson` needs lest it turn in a circle. For schemes with h of at least 1 that are keyed
        by context.
    shifts : array_like of int, shape (B,) or (), optional
        For `KTH`: start shifts of the texts, instead of ``rng``.

    Returns
    -------
    WatermarkProcessor
        Callable ``(input_ids (B, L), scores (B, V)) -> scores``. The new scores are of the
        dtype, and on the device, of the old.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If an argument is out of its range, is missing, or has no meaning for the scheme.
    """
    check_type("scheme", scheme, Scheme)
    prompt_length = check_integer("prompt_length", prompt_length, low=0)
    check_type("skip_repeated", skip_repeated, bool)
    if not isinstance(scheme, KTH):
        if rng is not None or shifts is not None:
            raise ValueError(f"rng and shifts are for KTH only, got them for {scheme.name}")
        if skip_repeated and scheme.context_width == 0:
            raise ValueError("skip_repeated needs a context, but the scheme has context_width 0")
        return WatermarkProcessor(scheme, prompt_length, None, skip_repeated, None)
    if skip_repeated:
        raise ValueError("skip_repeated is for schemes keyed by context; KTH is keyed by position")
    if rng is not None and shifts is not None:
        raise ValueError("rng and shifts must not both be given: shifts are drawn, or known")
    if rng is not None:
        check_type("rng", rng, np.random.Generator)
    elif shifts is None:
        if scheme.shifts > 1:
            raise ValueError(f"rng or shifts must be given for KTH with {scheme.shifts} shifts")
        shifts = 0
    if shifts is not None:
        shifts = scheme.check_shifts(shifts, np.size(shifts))
    return WatermarkProcessor(scheme, prompt_length, rng, False, shifts)
