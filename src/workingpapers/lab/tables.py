"""Tables of runs, and how they stand in a file."""

from collections.abc import Sequence
from typing import Any

import pandas as pd


def table_of(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return a table whose cells equal those of the rows."""
    cells = zip(*rows, strict=True) if rows else ((),) * len(columns)
    return pd.DataFrame(
        {name: _column(list(values)) for name, values in zip(columns, cells, strict=True)}
    )


def table_record(table: pd.DataFrame, seeds: int) -> dict[str, Any]:
    """Return a table as it stands in a result file.

    Parameters
    ----------
    table : pandas.DataFrame
        Columns of strings, numbers, bools or None.
    seeds : int
        Number of seeds a case.

    Returns
    -------
    dict
        ``columns``, ``rows`` (lists of JSON scalars) and ``seeds``.
    """
    cells = table.astype(object).where(table.notna(), None)
    return {"columns": list(table.columns), "rows": cells.to_numpy().tolist(), "seeds": seeds}


def _column(values: list[Any]) -> pd.Series:
    # pandas takes None for NaN, and beside it makes integers floats: not all fit.
    column = pd.Series(values)
    return column if column.tolist() == values else pd.Series(values, dtype=object)
