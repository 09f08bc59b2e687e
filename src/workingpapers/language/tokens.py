"""Tokens: a byte-level tokenizer, and the forms in which texts of tokens are handed around."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from workingpapers.arguments import as_array, check_choice, check_integer, check_type
from workingpapers.language.lookup import GOLDEN, mix64

__all__ = ["as_token_texts", "blocks", "encode", "pad", "train_tokenizer", "window_keys"]

Texts = Sequence[ArrayLike] | NDArray[np.integer] | Tensor
Tokens = NDArray[np.int64]

ANY = 2**63 - 1  # where the vocabulary does not matter
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def train_tokenizer(texts: Iterable[str], vocab_size: int = 1024) -> Tokenizer:
    """Train a byte-level BPE tokenizer; the same texts always give the same one.

    Every byte is a token, so that any text can be encoded and comes back exactly. There are no
    special tokens.

    Parameters
    ----------
    texts : iterable of str
        At least one.
    vocab_size : int, default 1024
        At least 256. Short texts may not hold enough different words to fill it.

    Returns
    -------
    tokenizers.Tokenizer

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    texts = _check_strings(texts)
    vocab_size = check_integer("vocab_size", vocab_size, low=len(ALPHABET))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> list[Tokens]:
    """Turn each text into its tokens; ``tokenizer.decode`` of a byte-level one turns them back.

    Parameters
    ----------
    tokenizer : tokenizers.Tokenizer
        Without truncation and padding.
    texts : iterable of str
        At least one.

    Returns
    -------
    list of (T_i,) int64 arrays
        One a text.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("tokenizer", tokenizer, Tokenizer)
    if tokenizer.truncation or tokenizer.padding:
        raise ValueError(
            "tokenizer must neither truncate nor pad, which changes texts; call its "
            "no_truncation() and no_padding() first"
        )
    encodings = tokenizer.encode_batch_fast(_check_strings(texts), add_special_tokens=False)
    return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]


def _check_strings(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"texts must be an iterable of str, got one {type(texts).__name__}")
    texts = list(texts)
    if not texts:
        raise ValueError("texts must hold at least one text, got none")
    for i, text in enumerate(texts):
        check_type(f"texts[{i}]", text, str)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{i}] must be valid Unicode: {error}") from error
    return texts


def rows_by_length(texts: Sequence[Tokens], at_most: int = ANY) -> Iterator[NDArray[np.int64]]:
    """Row numbers of texts of one length, at most so many at a time, the shortest first."""
    lengths = np.array([len(text) for text in texts])
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        for start in range(0, len(rows), at_most):
            yield rows[start : start + at_most]


def as_token_texts(name: str, texts: Texts, vocab_size: int, min_length: int = 1) -> list[Tokens]:
    """Check texts of tokens; return one int64 array a text.

    Parameters
    ----------
    name : str
        Of the argument, for the message.
    texts : sequence of (T_i,) integers, or (B, T) integers
        Arrays, tensors or lists; at least one.
    vocab_size : int
        All tokens must be of 0..vocab_size-1.
    min_length : int, default 1
        Least number of tokens of a text.

    Returns
    -------
    list of (T_i,) int64 arrays

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    if isinstance(texts, str | bytes) or not hasattr(texts, "__len__"):
        raise TypeError(f"{name} must be a sequence of token texts, got {type(texts).__name__}")
    if not len(texts):
        raise ValueError(f"{name} must hold at least one text, got none")
    return [as_tokens(f"{name}[{i}]", text, vocab_size, min_length) for i, text in enumerate(texts)]


def as_tokens(name: str, text: ArrayLike, vocab_size: int, min_length: int) -> Tokens:
    """Check one text of tokens, as :func:`as_token_texts` checks several."""
    if isinstance(text, Tensor):
        text = text.cpu().numpy()
    if isinstance(text, list | tuple) and not text:
        text = np.empty(0, dtype=np.int64)  # numpy takes [] for real numbers
    tokens = as_array(name, text, "integers").astype(np.int64, copy=False)
    if tokens.ndim != 1 or len(tokens) < min_length:
        raise ValueError(f"{name} must be 1-D with >= {min_length} tokens, got {tokens.shape}")
    if len(tokens) and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        wrong = tokens[(tokens < 0) | (tokens >= vocab_size)][0]
        raise ValueError(f"{name} must hold tokens of 0..{vocab_size - 1}, got {wrong}")
    return tokens


def pad(texts: Sequence[Tokens], value: int = 0, side: str = "right") -> tuple[Tensor, Tensor]:
    """Put texts of different lengths into one batch.

    Parameters
    ----------
    texts : sequence of (T_i,) integers
        At least one.
    value : int, default 0
        What to fill up with: a token, or any other 64-bit integer.
    side : {"right", "left"}
        Where it stands.

    Returns
    -------
    tokens : (B, max T_i) int64 tensor
    mask : (B, max T_i) int64 tensor
        1 for tokens, 0 for filling.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    texts = as_token_texts("texts", texts, ANY, min_length=0)
    value = check_integer("value", value, low=-(2**63))
    check_choice("side", side, ("right", "left"))
    longest = max(map(len, texts))
    tokens = np.full((len(texts), longest), value, dtype=np.int64)
    mask = np.zeros((len(texts), longest), dtype=np.int64)
    for i, text in enumerate(texts):
        place = slice(0, len(text)) if side == "right" else slice(longest - len(text), longest)
        tokens[i, place] = text
        mask[i, place] = 1
    return torch.from_numpy(tokens), torch.from_numpy(mask)


def blocks(texts: Sequence[ArrayLike], length: int) -> NDArray[np.int64]:
    """Cut each text into blocks of one length; what is left over at its end is dropped.

    Parameters
    ----------
    texts : sequence of (T_i,) integers
        ``[tokens]`` for one long text.
    length : int
        At least 1.

    Returns
    -------
    (N, length) int64 array
        In the order of the texts.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or no text is long enough.
    """
    length = check_integer("length", length)
    texts = as_token_texts("texts", texts, ANY, min_length=0)
    pieces = [text[: len(text) // length * length].reshape(-1, length) for text in texts]
    whole = np.concatenate(pieces)
    if not len(whole):
        raise ValueError(f"texts must hold one of >= {length} tokens, got {max(map(len, texts))}")
    return whole


def window_keys(tokens: ArrayLike, width: int, vocab_size: int) -> NDArray[np.int64]:
    """Give each window of ``width`` successive tokens a number.

    A window is read as a number in base ``vocab_size``. Where that does not fit into 63 bits it is
    a 64-bit hash, so that different windows may, very rarely, get one key.

    Parameters
    ----------
    tokens : (..., T) integers
        Of 0..vocab_size-1; T at least ``width``.
    width : int
        At least 0. The window of 0 tokens has key 0.
    vocab_size : int
        At least 1.

    Returns
    -------
    (..., T - width + 1) int64 array

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    width = check_integer("width", width, low=0)
    vocab_size = check_integer("vocab_size", vocab_size)
    tokens = as_array("tokens", tokens, "integers")
    if tokens.ndim < 1 or tokens.shape[-1] < width:
        raise ValueError(f"tokens must have >= {width} in the last axis, got {tokens.shape}")
    if tokens.size and not (tokens.min() >= 0 and tokens.max() < vocab_size):
        raise ValueError(
            f"tokens must be of 0..{vocab_size - 1}, got {tokens.min()}..{tokens.max()}"
        )
    return keys_of(tokens, width, vocab_size)


def keys_of(tokens: NDArray[np.integer], width: int, vocab_size: int) -> NDArray[np.int64]:
    """:func:`window_keys` without the checks."""
    number = tokens.shape[-1] - width + 1
    fits = vocab_size**width <= 2**63
    tokens = tokens.astype(np.uint64)
    keys = np.zeros((*tokens.shape[:-1], number), dtype=np.uint64)
    for place in range(width):
        token = tokens[..., place : place + number]
        keys = keys * np.uint64(vocab_size) + token if fits else mix64((keys ^ token) + GOLDEN)
    return keys.view(np.int64)
