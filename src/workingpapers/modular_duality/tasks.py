"""Tasks of the experiments: a teacher's endless examples, and images that are at hand."""

import gzip
import io
import math
import tarfile
import zlib
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

from workingpapers.arguments import check_fields, check_integer, check_type
from workingpapers.modular_duality.norms import check_tensor, unit_rms

__all__ = ["Images", "Teacher", "digits", "read_cifar10"]

INPUTS, CLASSES = 64, 10


@dataclass(frozen=True)
class Teacher:
    """Endless examples whose label is the class that a fixed random network prefers.

    Inputs are Gaussian, scaled to RMS 1. The teacher is ``W2 relu(W1 x)`` with 64 hidden units,
    entries of variance ``2 / inputs`` and ``4 / 64``.

    Parameters
    ----------
    inputs, classes : int
        Sizes, at least 1; by default 64 and 10.
    seed : int, default 0
        Of the teacher, at least 0.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """

    inputs: int = INPUTS
    classes: int = CLASSES
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, check_integer, "inputs", "classes")
        check_fields(self, partial(check_integer, low=0), "seed")

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``size`` new examples, at least 1: inputs (size, inputs) and labels (size,)."""
        size = check_integer("size", size)
        first, second = _teacher_weights(self)
        x = unit_rms(torch.randn(size, self.inputs, generator=generator))
        return x, (torch.relu(x @ first.mT) @ second.mT).argmax(-1)


@lru_cache(maxsize=8)
def _teacher_weights(teacher: Teacher) -> tuple[Tensor, Tensor]:
    # Drawn by numpy: with a torch seed, a network of that seed could start from the teacher.
    rng, hidden = np.random.default_rng(teacher.seed), 64
    first = rng.normal(0, math.sqrt(2 / teacher.inputs), (hidden, teacher.inputs))
    second = rng.normal(0, math.sqrt(4 / hidden), (teacher.classes, hidden))
    return torch.from_numpy(first).float(), torch.from_numpy(second).float()


@dataclass(frozen=True, eq=False)
class Images:
    """A fixed set of examples, from which batches are drawn without replacement.

    Parameters
    ----------
    x : Tensor, shape (examples, inputs)
        Finite.
    labels : Tensor of int64, shape (examples,)
        In 0..classes-1.
    classes : int, default 10
        Number of classes, at least 1.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    x: Tensor
    labels: Tensor
    classes: int = CLASSES

    def __post_init__(self) -> None:
        check_tensor("x", self.x, axes=2)
        check_type("labels", self.labels, Tensor)
        check_fields(self, check_integer, "classes")
        if self.x.ndim > 2:
            raise ValueError(f"x must have 2 axes; got shape {tuple(self.x.shape)}")
        if self.labels.shape != self.x.shape[:1] or self.labels.dtype != torch.int64:
            raise ValueError(
                f"labels must be int64, one an example; got {self.labels.dtype}, "
                f"shape {tuple(self.labels.shape)} for {len(self.x)} examples"
            )
        check_range("labels", self.labels, self.classes)

    @property
    def inputs(self) -> int:
        """Size of an example."""
        return self.x.shape[1]

    def batch(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw ``size`` different examples: inputs (size, inputs) and labels (size,)."""
        size = check_integer("size", size, high=len(self.x))
        chosen = torch.randperm(len(self.x), generator=generator)[:size]
        return self.x[chosen], self.labels[chosen]


def digits() -> Images:
    """Load scikit-learn's digits: 1797 images of 64 pixels, centred, each scaled to RMS 1."""
    pixels, labels = load_digits(return_X_y=True)
    return _centred(torch.from_numpy(pixels), torch.from_numpy(labels))


def read_cifar10(archive: str | Path) -> Images:
    """Read CIFAR-10's 50,000 training images, centred, each scaled to RMS 1.

    Parameters
    ----------
    archive : path
        The "binary version", ``cifar-10-binary.tar.gz``: five files of training images, in which
        an example is a byte for the label and 3072 for the pixels.

    Returns
    -------
    Images

    Raises
    ------
    FileNotFoundError
        If it is not there.
    ValueError
        If it is damaged, or does not hold such files.
    """
    packed = Path(archive).read_bytes()
    try:  # all of it is unpacked, for the checksum comes last
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
            rows = [_cifar_rows(tar, number) for number in range(1, 6)]
    except (gzip.BadGzipFile, zlib.error, EOFError, tarfile.TarError, ValueError) as error:
        raise ValueError(f"archive {archive} is not that of CIFAR-10: {error}") from error
    table = torch.from_numpy(np.concatenate(rows))
    return _centred(table[:, 1:].double(), table[:, 0].long())


def _cifar_rows(tar: tarfile.TarFile, number: int) -> NDArray[np.uint8]:
    """Read the examples (n, 3073) of one of the five files."""
    name = f"cifar-10-batches-bin/data_batch_{number}.bin"
    if name not in tar.getnames() or not tar.getmember(name).isfile():
        raise ValueError(f"it must hold a file {name}")
    content = tar.extractfile(name).read()
    if not content or len(content) % 3073:
        raise ValueError(f"{name} must hold examples of 3073 bytes; got {len(content)} bytes")
    return np.frombuffer(content, np.uint8).reshape(-1, 3073)


def check_range(name: str, integers: Tensor, count: int) -> None:
    """Raise unless all are in 0..count-1."""
    low, high = int(integers.min()), int(integers.max())
    if low < 0 or high >= count:
        raise ValueError(f"{name} must be in 0..{count - 1}; got {low}..{high}")


def _centred(x: Tensor, labels: Tensor) -> Images:
    return Images(unit_rms(x - x.mean(0)).float(), labels)
