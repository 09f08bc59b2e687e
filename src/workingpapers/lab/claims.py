"""A paper's claims as data, and the rule by which one holds."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from workingpapers.lab.arguments import is_finite
from workingpapers.lab.statistics import Estimate


@dataclass(frozen=True)
class Claim:
    """Something a paper says, with the measurement and the threshold that decide on it.

    A claim *holds* only if the whole 95% interval of its estimate lies on the right side:
    ``low >= at_least`` and ``high <= at_most``, for those of the two that are given.

    Parameters
    ----------
    id : str
        Short name, unique in its list.
    sentence : str
        The claim in a sentence.
    paper : str
        The paper's own figure or statement, and where it stands.
    experiment : str or sequence of str
        Name of the experiment, or the names of several, that it is measured on.
    measure : callable
        ``measure(table, ...)`` takes the table of each experiment, in that order, and returns an
        :class:`Estimate` at level 0.95. The first line of its docstring says what is measured;
        if there is none its name does.
    at_least, at_most : float, optional
        The thresholds; at least one is given, and ``at_least <= at_most``.
    note : str, optional
        What the reader of the result should know, such as why the claim does not hold.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.
    """

    id: str
    sentence: str
    paper: str
    experiment: str | Sequence[str]
    measure: Callable[..., Estimate]
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    def __post_init__(self):
        for name in ("id", "sentence", "paper"):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"{name} must be a text that is not empty; got {text!r}")
        if not isinstance(self.note, str):
            raise TypeError(f"note must be a text; got {self.note!r}")
        names = self.experiments if isinstance(self.experiment, Sequence) else ()
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError(f"experiment must be a name or names; got {self.experiment!r}")
        if not callable(self.measure):
            raise TypeError(f"measure must be a function; got {self.measure!r}")
        self._check_thresholds()

    @property
    def experiments(self) -> tuple[str, ...]:
        """The names of the experiments, also where there is only one."""
        return (self.experiment,) if isinstance(self.experiment, str) else tuple(self.experiment)

    @property
    def metric(self) -> str:
        """What is measured, in words."""
        doc = inspect.getdoc(self.measure) if hasattr(self.measure, "__name__") else None
        name = getattr(self.measure, "__name__", type(self.measure).__name__)
        return (doc or "").partition("\n")[0].strip(" .") or name.replace("_", " ")

    @property
    def threshold(self) -> str:
        """The thresholds as text, such as "≥ 0.9"."""
        bounds = (("≥", self.at_least), ("≤", self.at_most))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)

    def holds(self, estimate: Estimate) -> bool:
        """Return whether the whole interval lies on the right side of the threshold(s)."""
        above = self.at_least is None or estimate.low >= self.at_least
        below = self.at_most is None or estimate.high <= self.at_most
        return bool(above and below)

    def _check_thresholds(self) -> None:
        if self.at_least is None and self.at_most is None:
            raise ValueError(f"claim {self.id!r} needs at_least or at_most, or both; got neither")
        for name in ("at_least", "at_most"):
            bound = getattr(self, name)
            if bound is None:
                continue
            if isinstance(bound, bool) or not is_finite(bound):
                raise ValueError(f"{name} must be a finite number or None; got {bound!r}")
        if None not in (self.at_least, self.at_most) and self.at_least > self.at_most:
            raise ValueError(
                f"at_least must not be above at_most; got {self.at_least} and {self.at_most}"
            )


def evaluate(claims: Iterable[Claim], tables: Mapping[str, pd.DataFrame]) -> list[dict[str, Any]]:
    """Measure the claims on the tables.

    Parameters
    ----------
    claims : iterable of Claim
        With different ids.
    tables : mapping of str to pandas.DataFrame
        The table of each experiment, by name.

    Returns
    -------
    list of dict
        A record a claim, as it stands in a result file: ``id, sentence, paper, metric, value,
        low, high, n, threshold, holds, note``.

    Raises
    ------
    ValueError
        If two claims share an id, one names an experiment that is not there, or its interval is
        not a 95% one.
    TypeError
        If a measure does not return an :class:`Estimate`.
    """
    claims = list(claims)
    check_claims(claims, tables)
    return [_record(claim, _estimate(claim, tables)) for claim in claims]


def check(holds: bool, sentence: str) -> None:
    """Print that a claim holds, or fail.

    Parameters
    ----------
    holds : bool
        Whether it does.
    sentence : str
        The claim.

    Raises
    ------
    AssertionError
        If the claim does not hold.
    TypeError
        If ``holds`` is not a bool, or ``sentence`` not a text.
    """
    if not isinstance(holds, bool | np.bool_):
        raise TypeError(f"holds must be a bool; got {holds!r}")
    if not isinstance(sentence, str):
        raise TypeError(f"sentence must be a text; got {sentence!r}")
    if not holds:
        raise AssertionError(f"claim does not hold: {sentence}")
    print(f"claim holds: {sentence}")


def check_claims(claims: Sequence[Claim], experiments: Mapping | Sequence[str]) -> None:
    """Raise unless the ids differ and every experiment that a claim names is there."""
    seen = set()
    for claim in claims:
        if not isinstance(claim, Claim):
            raise TypeError(f"claims must hold Claims; got {claim!r}")
        if claim.id in seen:
            raise ValueError(f"claims must have different ids; got {claim.id!r} twice")
        seen.add(claim.id)
        for name in claim.experiments:
            if name not in experiments:
                raise ValueError(
                    f"claim {claim.id!r} names the experiment {name!r}; there are "
                    f"{sorted(experiments)}"
                )


def _estimate(claim: Claim, tables: Mapping[str, pd.DataFrame]) -> Estimate:
    try:
        estimate = claim.measure(*(tables[name] for name in claim.experiments))
    except Exception as error:
        error.add_note(f"while measuring the claim {claim.id!r}")
        raise
    if not isinstance(estimate, Estimate):
        raise TypeError(f"claim {claim.id!r}: measure must return an Estimate; got {estimate!r}")
    if estimate.level != 0.95:
        raise ValueError(f"claim {claim.id!r}: level must be 0.95; got {estimate.level}")
    return estimate


def _record(claim: Claim, estimate: Estimate) -> dict[str, Any]:
    return {
        "id": claim.id,
        "sentence": claim.sentence,
        "paper": claim.paper,
        "metric": claim.metric,
        "value": float(estimate.value),
        "low": float(estimate.low),
        "high": float(estimate.high),
        "n": int(estimate.n),
        "threshold": claim.threshold,
        "holds": claim.holds(estimate),
        "note": claim.note,
    }
