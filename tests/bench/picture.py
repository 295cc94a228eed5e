"""Tables on the terminal, and as one picture."""

import re
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table as RichTable

WIDTH = 150


def save_tables(tables: Sequence[tuple[str, list[str], list[list[str]]]], path: Path) -> None:
    """Prints (title, header, lines) tables and writes them to an SVG file that needs nothing from elsewhere."""
    console = Console(record=True, width=WIDTH)
    for title, header, lines in tables:
        table = RichTable(*header, title=title, title_justify="left")
        for line in lines:
            table.add_row(*line)
        console.print(table)
    path.parent.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title="python -m tests.bench.speculation")
    # The fonts that rich asks for would be fetched by whoever looks at it.
    path.write_text(re.sub(r"@font-face\s*{[^}]*}", "", svg))
