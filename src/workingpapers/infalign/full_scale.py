"""InfAlign-CTRL on real language models: a policy, a reward model and prompts from this machine.

Nothing is fetched. Prompts come from a file of JSON lines whose checksum is written down when it is
first used, and verified from then on.
"""

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

from workingpapers.arguments import check_choice, check_integer, check_positive, check_type
from workingpapers.contexts import seeded
from workingpapers.infalign.ctrl import Algorithm, train_ctrl
from workingpapers.infalign.decoding import BestOfN, Procedure, Sampling, WorstOfN
from workingpapers.infalign.experiments import METHODS, beta_for
from workingpapers.infalign.monte_carlo import estimate_win_rate
from workingpapers.infalign.rollouts import (
    Reward,
    Tokens,
    calibrate,
    classifier_reward,
    sample_responses,
    score,
    stream,
)
from workingpapers.language import new_transformer, small_config, train_tokenizer

__all__ = [
    "Assistant",
    "align_language_model",
    "load_assistant",
    "locked",
    "read_prompts",
    "write_rehearsal",
]

ASSISTANT = "\n\nAssistant:"
PROCEDURES: dict[str, Procedure] = {
    "sampling": Sampling(),
    "best_4": BestOfN(4),
    "best_32": BestOfN(32),
    "worst_4": WorstOfN(4),
}


def locked(file: str | PathLike[str]) -> Path:
    """Return a file's path, once it is sure that it is the file of the first time.

    Its sha256 is written to ``<file>.sha256`` at the first use, and compared at every other.

    Parameters
    ----------
    file : path
        An existing file.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is another one than at its first use, or the lock is broken.
    """
    file = Path(file)
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    lock = file.with_name(f"{file.name}.sha256")
    if not lock.exists():
        _write_whole(lock, f"{found}  {file.name}\n")
    expected = re.match(rb"([0-9a-f]{64})\s", lock.read_bytes())
    if expected is None:
        raise ValueError(f"lock {lock} must begin with a sha256; delete it to lock the file anew")
    expected = expected[1].decode()
    if found != expected:
        raise ValueError(
            f"file {file} is not that of its first use: its sha256 is {found}, {lock.name} "
            f"says {expected}"
        )
    return file


def _write_whole(file: Path, text: str) -> None:
    """Write a file that nobody ever sees half of."""
    part = file.with_name(f"{file.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(file)


def read_prompts(file: str | PathLike[str]) -> list[str]:
    """Read the prompts of a preference data set, each once, in their order.

    Parameters
    ----------
    file : path
        JSON lines in UTF-8, packed with gzip if the name ends in ``.gz``. Each has a ``prompt``; or
        ``chosen``, a dialogue whose last answer is left out (Anthropic's hh-rlhf); or ``info`` with
        a ``post`` to be summarised (OpenAI's summarize_from_feedback).

    Returns
    -------
    list of str

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If a line is none of these, or there is none; with the line's number.
    """
    file = Path(file)
    prompts: dict[str, None] = {}
    number = 0
    try:
        with (gzip.open if file.suffix.lower() == ".gz" else open)(file, "rb") as lines:
            for line in lines:
                number += 1
                prompt = _prompt(json.loads(line.decode()))
                prompt.encode()  # half a surrogate pair is JSON, but no text
                prompts[prompt] = None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{file.name} is broken after line {number}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file.name}:{number} must be a JSON record: {error}") from error
    if not prompts:
        raise ValueError(f"file {file} must hold at least one prompt, got none")
    return list(prompts)


def _prompt(record: Any) -> str:
    """Return the prompt of a record of one of the three kinds."""
    if isinstance(record, dict):
        if "prompt" in record:
            return _text(record, "prompt")
        if "chosen" in record:
            dialogue = _text(record, "chosen")
            if ASSISTANT in dialogue:
                return dialogue[: dialogue.rindex(ASSISTANT) + len(ASSISTANT)]
        elif isinstance(info := record.get("info"), dict):
            title = f"TITLE: {_text(info, 'title')}\n" if info.get("title") else ""
            return f"{title}POST: {_text(info, 'post')}\nTL;DR:"
    raise ValueError("it has no prompt, no chosen dialogue with an answer, and no info with a post")


def _text(record: dict, key: str) -> str:
    """Return a value that must be a text which is not empty."""
    if not isinstance(record.get(key), str) or not record[key]:
        raise ValueError(f"{key} is no text, or an empty one")
    return record[key]


@dataclass(frozen=True, eq=False)
class Assistant:
    """A policy that is to be aligned, and what judges it.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        Causal language model.
    tokenizer : transformers.PreTrainedTokenizerBase
        Its tokenizer.
    reward : callable
        Reward of prompts and responses in the policy's tokens.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    reward: Reward

    def encode(self, prompts: list[str], longest: int) -> Iterator[Tokens]:
        """Yield the tokens of the prompts that have at most ``longest``."""
        for prompt in prompts:
            tokens = np.array(self.tokenizer.encode(prompt), dtype=np.int64)
            if 0 < len(tokens) <= longest:
                yield tokens


def load_assistant(
    policy: str | PathLike[str],
    reward_model: str | PathLike[str],
    *,
    device: torch.device | str = "cpu",
    dtype: str = "float32",
) -> Assistant:
    """Load Hugging Face models from folders of this machine.

    Parameters
    ----------
    policy : path
        Folder of a causal language model and its tokenizer.
    reward_model : path
        Folder of a sequence classifier with one label and its tokenizer.
    device : torch.device or str, default "cpu"
        Where they go.
    dtype : {"float32", "bfloat16"}
        Of the policy. Steps of AdamW are smaller than what bfloat16 resolves unless the learning
        rate is large; the reward model, which is not trained, has the dtype it was saved in.

    Returns
    -------
    Assistant

    Raises
    ------
    FileNotFoundError
        If a folder is not there.
    ValueError
        If an argument is not as described, or a folder lacks some of its model's weights.
    """
    check_choice("dtype", dtype, ("float32", "bfloat16"))
    for name, folder in (("policy", policy), ("reward_model", reward_model)):
        # transformers would look for another name on the network
        if not os.fspath(folder) or not Path(folder).is_dir():
            raise FileNotFoundError(f"{name} must be a folder, and there is no folder {folder!r}")
    with _quiet():
        tokenizer, model = _load(AutoModelForCausalLM, "policy", policy, getattr(torch, dtype))
        judge_tokenizer, judge = _load(
            AutoModelForSequenceClassification, "reward_model", reward_model, "auto"
        )
    if judge.config.pad_token_id is None:
        padding = judge_tokenizer.pad_token_id, judge_tokenizer.eos_token_id
        judge.config.pad_token_id = next((token for token in padding if token is not None), None)
    reward = classifier_reward(
        judge.to(device),
        decode=lambda tokens: tokenizer.decode(tokens, skip_special_tokens=True),
        encode=judge_tokenizer.encode,
    )
    return Assistant(model.to(device), tokenizer, reward)


def _load(
    kind: type, name: str, folder: str | PathLike[str], dtype: torch.dtype | str
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Load a tokenizer and a model whose weights are all there: missing ones would be random."""
    here = {"local_files_only": True}
    model, found = kind.from_pretrained(folder, dtype=dtype, output_loading_info=True, **here)
    if found["missing_keys"]:
        raise ValueError(
            f"{name} must hold all weights of a {type(model).__name__}, and {folder} lacks "
            f"{sorted(found['missing_keys'])}"
        )
    return AutoTokenizer.from_pretrained(folder, **here), model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars of loading and saving models."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def align_language_model(
    assistant: Assistant,
    prompts: list[str],
    method: str,
    kl: float,
    *,
    algorithm: Algorithm = "rloo",
    num_train: int = 500,
    num_test: int = 100,
    num_samples: int = 100,
    num_comparisons: int = 8,
    longest_prompt: int = 256,
    num_tokens: int = 128,
    rollouts_per_prompt: int = 8,
    prompts_per_step: int = 16,
    steps: int = 1000,
    lr: float = 1e-6,
    lora_rank: int | None = None,
    batch_size: int = 64,
    seed: int,
    progress: bool = False,
) -> dict[str, float]:
    """Calibrate, transform, train a copy of the policy, and compare it with the policy.

    Parameters
    ----------
    assistant : Assistant
        Policy and reward.
    prompts : list of str
        At least ``num_train + num_test`` that are short enough, none of them twice; the first are
        trained on, the next are kept for the comparison.
    method : str
        One of `METHODS`.
    kl : float
        Divergence in nats that training aims at, by `beta_for` with the base responses' rewards.
    algorithm : {"rloo", "ppo"}
        As for `train_ctrl`.
    num_train, num_test : int
        Numbers of prompts; by default 500 and 100.
    num_samples : int, default 100
        Base responses to each prompt for the calibration, K.
    num_comparisons : int, default 8
        Comparisons a test prompt.
    longest_prompt, num_tokens : int
        Greatest lengths of prompts and responses, in tokens; by default 256 and 128.
    rollouts_per_prompt, prompts_per_step, steps, lr, batch_size
        As for `train_ctrl`.
    lora_rank : int, optional
        Train low-rank adapters of this rank in all linear layers, in float32, instead of the
        weights (LoRA; Hu et al., 2022), by the library ``peft``: the optimiser then keeps nothing
        for the weights. It wants a larger learning rate, such as 1e-4.
    seed : int
        Of all that is drawn, at least 0.
    progress : bool, default False
        Show a progress bar.

    Returns
    -------
    dict
        ``reached``, the divergence, and the win rates ``sampling``, ``best_4``, ``best_32`` and
        ``worst_4`` on the test prompts; the standard error over prompts of each win rate
        (``sampling_error``, ...).

    Raises
    ------
    ModuleNotFoundError
        If adapters are asked for, and ``peft`` is not installed.
    TypeError, ValueError
        If an argument is not as described, or the reward cannot judge a text: before training, one
        answer to each test prompt is judged.
    """
    check_type("assistant", assistant, Assistant)
    check_choice("method", method, tuple(METHODS))
    check_choice("algorithm", algorithm, ("rloo", "ppo"))
    check_positive("kl", kl)
    check_positive("lr", lr)
    ones = {"longest_prompt": longest_prompt, "num_tokens": num_tokens, "batch_size": batch_size}
    ones |= {"prompts_per_step": prompts_per_step, "steps": steps}
    ones |= {} if lora_rank is None else {"lora_rank": lora_rank}
    twos = {"num_train": num_train, "num_test": num_test, "num_samples": num_samples}
    twos |= {"num_comparisons": num_comparisons, "rollouts_per_prompt": rollouts_per_prompt}
    for low, counts in enumerate(({"seed": seed}, ones, twos)):
        for name, count in counts.items():
            check_integer(name, count, low)
    _check_prompts(prompts)
    encoded = list(islice(assistant.encode(prompts, longest_prompt), num_train + num_test))
    if len(encoded) < num_train + num_test:
        raise ValueError(
            f"prompts must hold {num_train + num_test} of at most {longest_prompt} tokens, "
            f"got {len(encoded)}"
        )
    train, test = encoded[:num_train], encoded[num_train : num_train + num_test]
    reference, policy = assistant.model, deepcopy(assistant.model)
    if lora_rank is not None:
        _add_adapters(policy, lora_rank, seed)
    answers = {"num_tokens": num_tokens, "stop": assistant.tokenizer.eos_token_id}
    answers |= {"batch_size": batch_size}
    tried = sample_responses(reference, test, rng=stream(seed, "trial"), **answers)
    score(assistant.reward, test, tried)  # better now than after the training
    answers |= {"seed": seed}
    calibrator = calibrate(reference, train, assistant.reward, num_samples, **answers)
    base = np.full_like(calibrator.base_rewards, 1 / num_samples)
    train_ctrl(
        policy,
        reference,
        train,
        assistant.reward,
        METHODS[method],
        beta_for(METHODS[method], kl, base, calibrator.base_rewards),
        calibrator,
        rollouts_per_prompt=rollouts_per_prompt,
        prompts_per_step=prompts_per_step,
        steps=steps,
        lr=lr,
        algorithm=algorithm,
        progress=progress,
        **answers,
    )
    task = policy, reference, test, assistant.reward
    found = {
        name: estimate_win_rate(*task, procedure, num_comparisons, **answers)
        for name, procedure in PROCEDURES.items()
    }
    row = {"reached": found["best_32"].kl}  # from the most answers
    for name, estimate in found.items():
        row |= {name: estimate.value, f"{name}_error": estimate.standard_error}
    return row


def _add_adapters(model: PreTrainedModel, rank: int, seed: int) -> None:
    """Freeze a model's weights, and add low-rank matrices to train, which change nothing yet."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"lora_rank needs peft (pip install peft): {error}") from error
    settings = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear")
    settings.fan_in_fan_out = model.config.model_type == "gpt2"  # which keeps weights transposed
    with seeded(seed):
        inject_adapter_in_model(settings, model)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


def _check_prompts(prompts: list[str]) -> None:
    """Raise unless these are texts, none of them twice: or some are trained and tested on."""
    check_type("prompts", prompts, list)
    for i, prompt in enumerate(prompts):
        check_type(f"prompts[{i}]", prompt, str)
    if len(set(prompts)) < len(prompts):
        number = len(prompts) - len(set(prompts))
        raise ValueError(f"prompts must differ from each other, got {number} again")


def write_rehearsal(folder: str | PathLike[str], prompts: list[str], seed: int = 0) -> None:
    """Write an untrained tiny policy, a reward model and prompts, to rehearse with.

    Parameters
    ----------
    folder : path
        Gets the folders ``policy`` and ``reward_model`` and the file ``prompts.jsonl``.
    prompts : list of str
        What the tokenizer is made of, too.
    seed : int, default 0
        Of the weights, at least 0.
    """
    folder = Path(folder)
    tokenizer = train_tokenizer(prompts, vocab_size=300)
    tokenizer.add_special_tokens(["<end>"])
    shared = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>"
    )
    config = small_config("llama", len(shared), max_length=64)
    judge = small_config("llama", len(shared), max_length=64)
    judge.num_labels, judge.pad_token_id = 1, shared.pad_token_id
    with seeded(seed):
        classifier = AutoModelForSequenceClassification.from_config(judge)
    with _quiet():
        new_transformer(config, seed).save_pretrained(folder / "policy")
        classifier.save_pretrained(folder / "reward_model")
    for name in ("policy", "reward_model"):
        shared.save_pretrained(folder / name)
    lines = "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
    (folder / "prompts.jsonl").write_text(lines, encoding="utf-8")
