"""Training small models, and keeping them: checkpoints without code."""

import json
import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm.auto import trange
from transformers import AutoConfig, PreTrainedModel

from workingpapers.arguments import (
    as_array,
    check_integer,
    check_nonnegative,
    check_positive,
    check_type,
)
from workingpapers.contexts import seeded
from workingpapers.language.tokens import Texts
from workingpapers.language.transformer import TransformerLM, new_transformer

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint", "train"]


def train(
    model: PreTrainedModel,
    blocks: Texts,
    steps: int,
    *,
    mask: ArrayLike | None = None,
    batch_size: int = 32,
    lr: float = 3e-3,
    warmup: int = 20,
    weight_decay: float = 0.0,
    max_norm: float = 1.0,
    seed: int = 0,
    progress: bool = False,
) -> NDArray[np.float64]:
    """Train a causal language model on blocks of tokens, in place.

    AdamW (Loshchilov & Hutter, 2019) on the mean cross-entropy of the next token. The learning
    rate rises linearly for ``warmup`` steps and then falls to 0 along a cosine.

    Parameters
    ----------
    model : transformers.PreTrainedModel
        Trained where it lies; then in evaluation mode.
    blocks : (N, T) integers
        T at least 2. Each step takes ``batch_size`` of them, drawn with replacement.
    steps : int
        At least 1.
    mask : (N, T) booleans, optional
        The tokens to be predicted; the first of a block never is. At least one in each block. By
        default, all.
    batch_size : int, default 32
    lr : float, default 3e-3
        Greatest learning rate, > 0.
    warmup : int, default 20
        Steps, at least 0.
    weight_decay : float, default 0
        At least 0.
    max_norm : float, default 1
        Longer gradients are shortened to this length, > 0.
    seed : int, default 0
        Of the draws and of dropout, at least 0.
    progress : bool, default False
        Whether to show a progress bar.

    Returns
    -------
    (steps,) float array
        The loss of each step's batch before the step, in nats a token.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    RuntimeError
        If the loss is no longer finite.
    """
    tokens = TransformerLM(model).check_batch("blocks", blocks, min_length=2)
    mask = _check_mask(mask, tuple(tokens.shape)).to(tokens.device)
    steps = check_integer("steps", steps)
    batch_size = check_integer("batch_size", batch_size)
    warmup = check_integer("warmup", warmup, low=0)
    lr, max_norm = check_positive("lr", lr), check_positive("max_norm", max_norm)
    weight_decay = check_nonnegative("weight_decay", weight_decay)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=weight_decay)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: _learning_rate(step, steps, warmup)
    )
    losses = np.empty(steps)
    model.train()
    with seeded(seed, model.device):
        for step in trange(steps, desc="training", disable=None if progress else True):
            chosen = rng.integers(len(tokens), size=batch_size)
            loss = _loss(model, tokens[chosen], mask[chosen])
            losses[step] = loss.item()
            if not math.isfinite(losses[step]):
                raise RuntimeError(f"the loss of step {step} is {losses[step]}; lower lr")
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            optimizer.step()
            scheduler.step()
    model.eval()
    return losses


def _check_mask(mask: ArrayLike | None, shape: tuple[int, ...]) -> Tensor:
    """Which tokens are to be predicted; those of the first column never are."""
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    mask = as_array("mask", mask, "boolean", shape)
    if not mask[:, 1:].any(axis=1).all():
        raise ValueError("mask must leave a token to predict in each block")
    return torch.from_numpy(mask)


def _loss(model: PreTrainedModel, tokens: Tensor, mask: Tensor) -> Tensor:
    """Mean cross-entropy of the tokens to be predicted."""
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    wanted = mask[:, 1:]
    return cross_entropy(logits[wanted].float(), tokens[:, 1:][wanted])


def _learning_rate(step: int, steps: int, warmup: int) -> float:
    """Share of the greatest learning rate at a step."""
    if step < warmup:
        return (step + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))


@dataclass(frozen=True)
class Checkpoint:
    """A model that was kept.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        On the CPU, in evaluation mode.
    tokenizer : tokenizers.Tokenizer or None
    command : str
        What made it.
    """

    model: PreTrainedModel
    tokenizer: Tokenizer | None
    command: str


def save_checkpoint(
    path: str | PathLike[str],
    model: PreTrainedModel,
    tokenizer: Tokenizer | None = None,
    *,
    command: str,
) -> None:
    """Keep a model in a folder, in the layout of Hugging Face.

    Parameters
    ----------
    path : path
        Of the folder, which is made if needed. It gets ``config.json``, ``model.safetensors`` and,
        with a tokenizer, ``tokenizer.json``.
    model : transformers.PreTrainedModel
        A causal language model that transformers knows.
    tokenizer : tokenizers.Tokenizer, optional
    command : str
        What made the model; kept in the head of the weights' file.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """
    check_type("model", model, PreTrainedModel)
    check_type("command", command, str)
    if tokenizer is not None:
        check_type("tokenizer", tokenizer, Tokenizer)
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(model.config.to_json_string(), encoding="utf-8")
    tied = _tied_names(model)
    weights = {
        name: tensor.cpu().contiguous()
        for name, tensor in model.state_dict().items()
        if name not in tied
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt", "command": command})
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))


def _tied_names(model: PreTrainedModel) -> set[str]:
    """Names of weights that are others' under a second name."""
    first_name: dict[int, str] = {}
    return {
        name
        for name, tensor in model.state_dict(keep_vars=True).items()
        if first_name.setdefault(id(tensor), name) != name
    }


def load_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Load what :func:`save_checkpoint` kept. Nothing of it is run.

    Parameters
    ----------
    path : path
        Of the folder.

    Returns
    -------
    Checkpoint

    Raises
    ------
    OSError
        If a file is missing.
    ValueError
        If a file does not hold what it should, or the weights do not fit the configuration.
    """
    folder = Path(path)
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        with safe_open(folder / "model.safetensors", framework="pt") as file:
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            command = (file.metadata() or {}).get("command", "")
        model = new_transformer(AutoConfig.for_model(**settings), seed=0)
        _put_weights(model, weights)
        file = folder / "tokenizer.json"
        exists = file.exists()
        tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8")) if exists else None
    except OSError:
        raise
    except Exception as error:  # the libraries raise errors of any class over files out of order
        raise ValueError(f"{folder} must hold a checkpoint: {error}") from error
    return Checkpoint(model, tokenizer, command)


def _put_weights(model: PreTrainedModel, weights: dict[str, Tensor]) -> None:
    """Take over weights in their own dtype; raise ValueError if they are not the model's."""
    tied = _tied_names(model)
    try:
        found = model.load_state_dict(weights, strict=False, assign=True)
    except RuntimeError as error:
        raise ValueError(f"the weights do not fit config.json: {error}") from error
    missing = sorted(set(found.missing_keys) - tied)
    if missing or found.unexpected_keys:
        raise ValueError(
            f"the weights do not fit config.json: missing {missing}, "
            f"unexpected {found.unexpected_keys}"
        )
    model.tie_weights()
