"""Writing texts: token by token, with logits processors, each text with a generator of its own."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.auto import trange

from workingpapers.arguments import check_integer, check_type
from workingpapers.language.causal import CausalLM
from workingpapers.language.tokens import Texts, rows_by_length

__all__ = ["generate"]

Processor = Callable[[Tensor, Tensor], Tensor]


@torch.no_grad()
def generate(
    lm: CausalLM,
    prompts: Texts,
    num_tokens: int,
    rng: np.random.Generator | None = None,
    processors: Sequence[Processor] = (),
    stop: int | None = None,
    progress: bool = False,
) -> NDArray[np.int64]:
    """Continue prompts.

    Each text draws from a generator of its own, spawned from ``rng``: one number a token, which
    is put through the inverse of the distribution function. Prompts of one length are continued
    together, those of different lengths in turn, the shortest first. So the texts are the same
    whether prompts are given at once or in parts (but for the rounding of a model that computes a
    batch otherwise than a row), and a longer text begins with the shorter one.

    Parameters
    ----------
    lm : CausalLM
    prompts : sequence of (L_i,) integers, or (B, L) integers
        At least one token each, or all empty.
    num_tokens : int
        Length of the continuations, at least 1.
    rng : numpy.random.Generator, optional
        By default no chance: always the token of the greatest logit (greedy decoding).
    processors : sequence of callables
        ``process(tokens, logits) -> logits`` with all tokens so far, (B, L) int64, and (B, V)
        logits, applied in their order: any ``transformers.LogitsProcessor``. It sees prompts of
        one length, without padding. One that keeps a state meets a new generation, L back at the
        start, for each length of prompts.
    stop : int, optional
        Token that ends a text.
    progress : bool, default False
        Whether to show a progress bar for each length of prompts.

    Returns
    -------
    (B, num_tokens) int64 array
        The continuations, without the prompts. After its first ``stop``, a text holds nothing but
        ``stop``.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, a text becomes too long for the model, a processor
        returns anything but (B, V) floating logits, or those of a token are NaN, +inf, or all -inf.
    """
    check_type("lm", lm, CausalLM)
    num_tokens = check_integer("num_tokens", num_tokens)
    if rng is not None:
        check_type("rng", rng, np.random.Generator)
    if stop is not None:
        stop = check_integer("stop", stop, low=0, high=lm.vocab_size - 1)
    processors = _check_processors(processors)
    prompts = lm.check_texts("prompts", prompts, min_length=0)
    shortest, longest = min(map(len, prompts)), max(map(len, prompts))
    if shortest == 0 < longest:
        raise ValueError(f"prompts must not be empty beside one of {longest} tokens")
    if lm.max_length is not None and longest + num_tokens - 1 > lm.max_length:
        raise ValueError(
            f"num_tokens must be <= {lm.max_length - longest + 1} after {longest} tokens "
            f"(max_length {lm.max_length}), got {num_tokens}"
        )
    uniforms = None if rng is None else _uniforms(rng, len(prompts), num_tokens)
    texts = np.empty((len(prompts), num_tokens), dtype=np.int64)
    for rows in rows_by_length(prompts):
        own = None if uniforms is None else uniforms[:, rows].to(lm.device)
        starts = np.stack([prompts[row] for row in rows])
        texts[rows] = _continue(lm, starts, num_tokens, own, processors, stop, progress)
    return texts


def _check_processors(processors: Sequence[Processor]) -> Sequence[Processor]:
    if not isinstance(processors, Sequence):
        raise TypeError(f"processors must be a sequence, got {type(processors).__name__}")
    for i, process in enumerate(processors):
        if not callable(process):
            raise TypeError(f"processors[{i}] must be callable, got {type(process).__name__}")
    return processors


def _continue(
    lm: CausalLM,
    prompts: NDArray[np.int64],
    num_tokens: int,
    uniforms: Tensor | None,
    processors: Sequence[Processor],
    stop: int | None,
    progress: bool,
) -> NDArray[np.int64]:
    """Continue (B, L) prompts with the (num_tokens, B) uniform numbers, if any."""
    rows, length = prompts.shape
    tokens = torch.zeros((rows, length + num_tokens), dtype=torch.int64, device=lm.device)
    tokens[:, :length] = torch.from_numpy(prompts)
    ended = torch.zeros(rows, dtype=torch.bool, device=lm.device)
    decoding = lm.start(prompts)
    for step in trange(num_tokens, desc="tokens", disable=None if progress else True):
        logits = _process(processors, tokens[:, : length + step], decoding.logits)
        chosen = _choose(logits, None if uniforms is None else uniforms[step])
        if stop is not None:
            chosen[ended] = stop
            ended = chosen == stop
        tokens[:, length + step] = chosen
        if stop is not None and ended.all():
            tokens[:, length + step :] = stop
            break
        if step + 1 < num_tokens:
            decoding.append(chosen)
    return tokens[:, length:].cpu().numpy()


def _process(processors: Sequence[Processor], tokens: Tensor, logits: Tensor) -> Tensor:
    """Logits after all processors, each of which must return logits of the same shape."""
    shape = logits.shape
    for i, process in enumerate(processors):
        logits = process(tokens, logits)
        known = isinstance(logits, Tensor)
        if not known or logits.shape != shape or not logits.is_floating_point():
            found = f"{tuple(logits.shape)} {logits.dtype}" if known else type(logits).__name__
            raise ValueError(f"processors[{i}] must return {tuple(shape)} logits, got {found}")
    return logits


def _uniforms(rng: np.random.Generator, rows: int, number: int) -> Tensor:
    """Uniform numbers (number, rows), a column from each spawned generator."""
    columns = [child.random(number) for child in rng.spawn(rows)]
    return torch.from_numpy(np.stack(columns, axis=1))


def _choose(logits: Tensor, uniforms: Tensor | None) -> Tensor:
    """Next token of each row: the likeliest, or that at ``uniforms`` of the distribution."""
    best = logits.amax(-1, keepdim=True)
    if not best.isfinite().all():
        raise ValueError("logits must hold a finite number in each row, and no NaN or +inf")
    if uniforms is None:
        return logits.argmax(-1)
    mass = (logits - best).exp_().cumsum(-1, dtype=torch.float64)
    total = mass[:, -1]
    aim = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(mass, aim[:, None], right=True)[:, 0]
