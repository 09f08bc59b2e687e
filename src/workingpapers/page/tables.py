"""Tables as a page shows them: numbers aligned, a caption, claims with their verdicts."""

import html

import pandas as pd

from workingpapers.lab import Results
from workingpapers.page.show import Shown


def table(frame: pd.DataFrame, *, caption: str) -> Shown:
    """Return a table to display.

    Parameters
    ----------
    frame : DataFrame
        The rows as they shall read: format the numbers first. The index is not shown.
    caption : str
        What the table shows.
    """
    if frame.empty:
        raise ValueError("frame is empty: there is nothing to show")
    head = "".join(f'<th scope="col">{_cell(name)}</th>' for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(_data_cell(value) for value in row) + "</tr>"
        for row in frame.itertuples(index=False)
    )
    page = (
        '<div class="wp-table" tabindex="0" role="region" '
        f'aria-label="{html.escape(caption)}"><table><caption>{_cell(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
    return Shown({"text/html": page, "text/plain": frame.to_string(index=False)})


def claims_table(results: Results) -> Shown:
    """Return the claims of a result file beside the paper's own figures.

    Parameters
    ----------
    results : workingpapers.lab.Results
        What ``workingpapers reproduce`` wrote.
    """
    rows = [
        {
            "claim": claim["sentence"],
            "in the paper": claim["paper"],
            "measured": _measured(claim),
            "needed": claim["threshold"],
            "verdict": "holds" if claim["holds"] else "does not hold",
        }
        for claim in results.claims
    ]
    made = f"Measured with 95% intervals by: {results.command}"
    return table(pd.DataFrame(rows), caption=made)


def _measured(claim: dict) -> str:
    figure = f"{claim['value']:.4g} [{claim['low']:.4g}, {claim['high']:.4g}]"
    return f"{figure}\n{claim['metric']}, n = {claim['n']}"


def _cell(value) -> str:
    return html.escape(str(value)).replace("\n", "<br>")


def _data_cell(value) -> str:
    text = _cell(value)
    if "<br>" in text:
        return f"<td>{text}</td>"
    number = text.replace(",", "").replace("−", "-").split(" ")[0].rstrip("%×")
    try:
        float(number)
    except ValueError:
        return f"<td>{text}</td>"
    return f'<td class="wp-number">{text}</td>'
