"""A small world to study spoofing in: a model, a thief with a model, a public reference, subjects.

The same code serves n-gram models of a Bible and Hugging Face models at the paper's size: a world
is made of language models, and of texts for whatever is counted or asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from workingpapers.arguments import check_integer, check_nonnegative, check_type
from workingpapers.language import (
    CausalLM,
    NGramLM,
    TransformerLM,
    blocks,
    encode,
    generate,
    king_james_bible,
    new_transformer,
    small_config,
    train,
    train_tokenizer,
)
from workingpapers.watermark_spoofing.prf import as_tokens
from workingpapers.watermark_spoofing.spoofing_test import copies
from workingpapers.watermark_spoofing.tilt import TiltedLM, draw_tilts

__all__ = [
    "Subjects",
    "World",
    "bible_world",
    "huggingface_world",
    "llama_world",
    "ngram_world",
    "transformer_world",
    "write",
    "write_anew",
]

FOLDS = 5
TRAINED_TOKENS = 128  # in an example


@dataclass(frozen=True, eq=False)
class Subjects:
    """What texts are to be about: a passage each to begin from and, in a small world, a tilt.

    Attributes
    ----------
    passages : (B, N) int64 array
        Ordinary text, of which a prompt is a piece.
    tilts : (B, V) float32 array or None
        θ of each text.
    prompt_length : int
        Number of tokens in a prompt, at most N.
    """

    passages: NDArray[np.int64]
    tilts: NDArray[np.float32] | None
    prompt_length: int

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, chosen: slice | NDArray[np.int64]) -> "Subjects":
        tilts = None if self.tilts is None else self.tilts[chosen]
        return Subjects(self.passages[chosen], tilts, self.prompt_length)

    def prompts(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw a prompt on each subject: a piece of its passage, at a random place.

        Two draws are two prompts on one subject, as Reprompting asks for.

        Parameters
        ----------
        rng : numpy.random.Generator

        Returns
        -------
        (B, prompt_length) int64 array
        """
        last = self.passages.shape[1] - self.prompt_length
        starts = rng.integers(last + 1, size=len(self))
        places = starts[:, None] + np.arange(self.prompt_length)
        return np.take_along_axis(self.passages, places, axis=1)


@dataclass(frozen=True, eq=False)
class World:
    """A provider, a thief, and the public.

    Attributes
    ----------
    model : CausalLM
        M, the provider's model, without its watermark.
    attacker : CausalLM
        The thief's own model, in the same tokens.
    reference : (N, L) int64 array
        Ordinary text that the provider counts contexts in; prompts are pieces of it.
    ordinary : (N', L) int64 array
        Ordinary text that the thief has.
    prompt_length : int, default 3
        Number of tokens in a prompt.
    tilt_scale : float, default 1
        Standard deviation of the subjects' tilts; 0 for models that follow their prompts.
    """

    model: CausalLM
    attacker: CausalLM
    reference: NDArray[np.int64]
    ordinary: NDArray[np.int64]
    prompt_length: int = 3
    tilt_scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("model", "attacker"):
            check_type(name, getattr(self, name), CausalLM)
        if self.model.vocab_size != self.attacker.vocab_size:
            raise ValueError(
                f"attacker must have vocab_size {self.model.vocab_size}, "
                f"got {self.attacker.vocab_size}"
            )
        for name in ("reference", "ordinary"):
            texts = as_tokens(name, getattr(self, name), self.vocab_size, ndim=2)
            if not texts.size:
                raise ValueError(f"{name} must hold tokens, got shape {texts.shape}")
            object.__setattr__(self, name, texts)
        check_integer("prompt_length", self.prompt_length, 1, self.reference.shape[1])
        check_nonnegative("tilt_scale", self.tilt_scale)

    @property
    def vocab_size(self) -> int:
        """V, of both models."""
        return self.model.vocab_size

    def subjects(self, num_texts: int, rng: np.random.Generator) -> Subjects:
        """Draw subjects: passages of the reference, with replacement, and tilts.

        Parameters
        ----------
        num_texts : int
            B, at least 1.
        rng : numpy.random.Generator

        Returns
        -------
        Subjects
        """
        num_texts = check_integer("num_texts", num_texts)
        passages = self.reference[rng.integers(len(self.reference), size=num_texts)]
        tilts = None
        if self.tilt_scale:
            tilts = draw_tilts(num_texts, self.vocab_size, rng, self.tilt_scale)
        return Subjects(passages, tilts, self.prompt_length)


def ngram_world(
    texts: Sequence[str],
    vocab_size: int = 1024,
    block_size: int = 2000,
    order: int = 3,
    tilt_scale: float = 1.0,
) -> World:
    """Make a world of n-gram models out of text.

    The tokens (byte-level BPE, trained on all of the text) are cut into blocks, which are dealt
    round to five folds: two train M, one is the reference, two train the attacker's model.

    Parameters
    ----------
    texts : sequence of str
        At least five blocks of tokens in all.
    vocab_size : int, default 1024
        V, at least 256.
    block_size : int, default 2000
        Tokens in a block, at least 4.
    order : int, default 3
        Of the n-gram models.
    tilt_scale : float, default 1
        Standard deviation of the subjects' tilts.

    Returns
    -------
    World

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    own, reference, ordinary = _deal(texts, train_tokenizer(texts, vocab_size), block_size)
    model = NGramLM.fit(own, vocab_size, order)
    attacker = NGramLM.fit(ordinary, vocab_size, order)
    return World(model, attacker, reference, ordinary, tilt_scale=tilt_scale)


def _deal(
    texts: Sequence[str], tokenizer: Tokenizer, block_size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return blocks of tokens: the provider's, the reference and the thief's."""
    block_size = check_integer("block_size", block_size, low=4)
    tokens = np.concatenate(encode(tokenizer, texts))
    pieces = blocks([tokens], block_size)
    if len(pieces) < FOLDS:
        raise ValueError(
            f"texts must hold {FOLDS} blocks of {block_size} tokens, got {len(tokens)} tokens"
        )
    first, second, reference, third, fourth = (pieces[fold::FOLDS] for fold in range(FOLDS))
    return np.concatenate([first, second]), reference, np.concatenate([third, fourth])


def transformer_world(
    texts: Sequence[str],
    seed: int,
    vocab_size: int = 1024,
    block_size: int = 256,
    width: int = 64,
    steps: int = 600,
    prompt_length: int = 16,
    device: str = "cpu",
    progress: bool = False,
) -> World:
    """Make a world of two small Llamas, which are trained here.

    They follow their prompts, so there are no tilts.

    Parameters
    ----------
    texts : sequence of str
        At least five blocks of tokens in all, dealt as by :func:`ngram_world`.
    seed : int
        Of weights and training, at least 0.
    vocab_size : int, default 1024
        V, at least 256.
    block_size : int, default 256
        Tokens in a block, and the longest text that the models can read.
    width : int, default 64
        Of the models, which have 2 layers.
    steps : int, default 600
        Of training, each on 2048 tokens.
    prompt_length : int, default 16
        Number of tokens in a prompt.
    device : str, default "cpu"
        Where the models are trained and stay.
    progress : bool, default False
        Show progress bars.

    Returns
    -------
    World

    Raises
    ------
    ValueError, TypeError
        If an argument is not as described.
    """
    own, reference, ordinary = _deal(texts, train_tokenizer(texts, vocab_size), block_size)
    config = small_config("llama", vocab_size, width=width, max_length=block_size)
    models = []
    for offset, tokens in enumerate((own, ordinary)):
        model = new_transformer(config, 2 * seed + offset).to(device)
        examples = blocks(tokens, min(block_size, TRAINED_TOKENS))
        train(model, examples, steps, batch_size=16, seed=2 * seed + offset, progress=progress)
        models.append(TransformerLM(model))
    return World(*models, reference, ordinary, prompt_length, tilt_scale=0.0)


@lru_cache(maxsize=1)
def bible_world() -> World:
    """Make the world of the King James Bible, with 1024 tokens; kept once it is made.

    Returns
    -------
    World
    """
    return ngram_world(king_james_bible().texts)


@lru_cache(maxsize=1)
def llama_world(device: str = "cpu") -> World:
    """Make the world of two small Llamas that are trained on the Bible; kept once it is made.

    Parameters
    ----------
    device : str, default "cpu"
        Where they are trained, and write.

    Returns
    -------
    World
    """
    return transformer_world(king_james_bible().texts, seed=0, steps=400, device=device)


def huggingface_world(
    model: str | PathLike[str],
    attacker: str | PathLike[str],
    texts: Sequence[str],
    prompt_length: int = 50,
    block_size: int = 200,
    device: str = "cpu",
) -> World:
    """Make a world of two models that lie on this machine.

    Parameters
    ----------
    model, attacker : path
        Folders as ``save_pretrained`` writes them, with safetensors: the provider's and the
        thief's. Nothing is fetched, and no code in them is run. They must share a tokenizer, which
        is read from ``model``'s ``tokenizer.json``.
    texts : sequence of str
        Ordinary text, dealt as by :func:`ngram_world`: the first two folds are not used.
    prompt_length : int, default 50
        Tokens in a prompt.
    block_size : int, default 200
        Tokens in a passage, of which a prompt is a piece.
    device : str, default "cpu"
        Where the models are put.

    Returns
    -------
    World

    Raises
    ------
    OSError
        If a file is missing.
    ValueError, TypeError
        If an argument is not as described.
    """
    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    _, reference, ordinary = _deal(texts, tokenizer, block_size)
    models = [TransformerLM(_load(folder).to(device)) for folder in (model, attacker)]
    return World(*models, reference, ordinary, prompt_length, tilt_scale=0.0)


def _load(folder: str | PathLike[str]) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        str(folder),
        local_files_only=True,
        use_safetensors=True,
        trust_remote_code=False,
        dtype="auto",
    ).eval()


def write(
    lm: CausalLM,
    subjects: Subjects,
    num_tokens: int,
    rng: np.random.Generator,
    processors: Callable[[], Sequence] = list,
    batch_size: int = 300,
    progress: bool = False,
) -> NDArray[np.int64]:
    """Let a model write a text on each subject.

    Parameters
    ----------
    lm : CausalLM
    subjects : Subjects
    num_tokens : int
        Tokens to be written after the prompt, at least 1.
    rng : numpy.random.Generator
        Draws prompts and tokens.
    processors : callable
        Returns logits processors for one batch, which may be changed by use. Default: none.
    batch_size : int, default 300
        Number of texts at a time, at least 1; it changes speed only.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    (B, prompt_length + num_tokens) int64 array
        The texts, prompts included.
    """
    check_integer("batch_size", batch_size)
    prompts = subjects.prompts(rng)
    parts = []
    for start in range(0, len(subjects), batch_size):
        batch = slice(start, start + batch_size)
        tilts = subjects[batch].tilts
        writer = lm if tilts is None else TiltedLM(lm, tilts)
        parts.append(
            generate(writer, prompts[batch], num_tokens, rng, processors(), progress=progress)
        )
    return np.concatenate([prompts, np.concatenate(parts)], axis=1)


def write_anew(
    lm: CausalLM,
    subjects: Subjects,
    texts: NDArray[np.int64],
    rng: np.random.Generator,
    rounds: int = 20,
    **options: object,
) -> NDArray[np.int64]:
    """Let a model write a second text on each subject; one that copies the first is thrown away.

    Parameters
    ----------
    lm, subjects, rng
        As for :func:`write`.
    texts : (B, L) int64 array
        The first texts, prompts included.
    rounds : int, default 20
        How often copies are written again, at least 1.
    **options
        Of :func:`write`.

    Returns
    -------
    (B, L) int64 array

    Raises
    ------
    RuntimeError
        If there are still copies after the last round.
    """
    second = write(lm, subjects, rng=rng, **options)
    for left in range(check_integer("rounds", rounds), -1, -1):
        same = np.flatnonzero(copies(texts, second, subjects.prompt_length))
        if not len(same):
            return second
        if left:
            second[same] = write(lm, subjects[same], rng=rng, **options)
    raise RuntimeError(f"after {rounds} rounds {len(same)} texts are still copies of the first")
