"""Listings on stdout: aligned columns, or JSON for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_option(verb: F) -> F:
    kinds = click.Choice(["table", "json"])
    return click.option("-o", "--output", type=kinds, default="table", show_default=True, help="Form of the listing.")(
        verb
    )


def print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def print_listing(items: Sequence[Mapping[str, object]], kind: str, columns: Sequence[str] | None = None) -> None:
    """columns: those that the table shows, all where not given; JSON has every one."""
    if kind == "json":
        print_json(list(items))
    elif items:
        click.echo(table(items, columns or list(items[0])))


def table(items: Sequence[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Left-aligned text columns under a heading, like kubectl's."""
    cells = [[name.upper().replace("_", "-") for name in columns]]
    cells += [[_cell(item[name]) for name in columns] for item in items]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
