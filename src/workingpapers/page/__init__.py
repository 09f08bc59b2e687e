"""What a page shows: live widgets, figures, tables, one style."""

from workingpapers.page.draw import axes, band, category_map, intervals, matching_graph
from workingpapers.page.explorer import Explorer
from workingpapers.page.show import show
from workingpapers.page.style import COLOURS, SEQUENTIAL, use_style
from workingpapers.page.tables import claims_table, table

__all__ = [
    "COLOURS",
    "SEQUENTIAL",
    "Explorer",
    "axes",
    "band",
    "category_map",
    "claims_table",
    "intervals",
    "matching_graph",
    "show",
    "table",
    "use_style",
]
