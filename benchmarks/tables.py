"""Generate the pages of results from their rows, and fill in the figures of README, model cards and documentation.

    python benchmarks/tables.py            writes all files
    python benchmarks/tables.py --check    fails if a file differs from its rows

`results/PAGE.jsonl` holds the rows of a page and `results/PAGE.toml` its tables in order, each with a note. Both generate
`results/PAGE.md`. `results.toml` is the first page (benchmarks/results.md), `log.toml` the log (benchmarks/log.md).
`blocks.toml` holds tables for other files, `machines.toml` the machines, `allowed.toml` the decimal numbers without a row.

Rows hold all digits of a figure; pages show three significant ones (`places_of` says when more). `digits = 4` in a table of
`PAGE.toml` shows its figures with four, on all pages.

In notes and template tables, `{table.row.column}` is the value of a row, `{table.row.column:full}` the value with its spread,
interval and range, and `{table.row.column:.1f}` the rounded value. In other files, a comment names the row and the value
follows it:

    <!-- row: table.row.column -->74.59<!-- /row -->
    <!-- block: name -->
    (a table of blocks.toml)
    <!-- /block -->
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
from rows import ROOT, Row, read

RESULTS = HERE / "results"
INDEX, LOG = HERE / "results.md", HERE / "log.md"
MOST_BYTES = 40_000
PROGRAMS = ("python ", "ramify ", "OMP_NUM_THREADS=")
"""Prefixes of commands. Other origins are described in words."""
OTHER = ("results", "blocks", "machines", "allowed")
"""TOML files in `results` that do not describe a page of rows."""

Rows = Mapping[str, Row]


def held_files() -> list[Path]:
    """Return README and model cards. All decimal numbers in these files come from a row or are allowed."""
    return [ROOT / "README.md", *sorted((ROOT / "src/ramify").rglob("README.md"))]


def marked_files() -> list[Path]:
    """Return files with markers: the held files, pages of documentation, and sources of model cards."""
    others = [*sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "src/ramify").rglob("*.py"))]
    return [*held_files(), *(file for file in others if "<!-- /" in file.read_text("utf-8"))]


def pages() -> list[str]:
    """Return the names of the pages of rows, including the log. A page without a file of rows is not measured yet."""
    described = (file for file in RESULTS.glob("*.toml") if file.stem not in OTHER)
    return sorted(file.stem for file in described if file.with_suffix(".jsonl").exists())


def all_rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for file in sorted(RESULTS.glob("*.jsonl")):
        for row in read(file):
            if row.name in found:
                raise ValueError(f"{file.name}: row {row.name} is a duplicate. Rename or delete one of the two rows.")
            found[row.name] = row
    return found


def settings(name: str) -> dict[str, Any]:
    return tomllib.loads((RESULTS / f"{name}.toml").read_text("utf-8"))


# --- numbers ---------------------------------------------------------------------------------------------------------------


DIGITS = 3


@cache
def digits_of_tables() -> Mapping[str, int]:
    """Return the significant digits of tables whose comparisons need more than `DIGITS`."""
    described = [table for name in pages() for table in settings(name)["tables"] if "digits" in table]
    return {key: table["digits"] for table in described for key in (table["id"], *table.get("also", ()))}


def places_of(row: Row) -> int:
    """Return the number of decimal places of a row's figures: three significant digits (or `digits` of its table), and more if
    the first digit of the uncertainty stands further right. Negative: the value is rounded to tens, hundreds …"""
    uncertainties = [row.spread, *((high - low) / 2 for low, high in filter(None, (row.interval, row.range)))]
    of_value = digits_of_tables().get(row.table, DIGITS) - 1 - _magnitude(row.value)
    return max([of_value, *(-_magnitude(uncertainty) for uncertainty in uncertainties if uncertainty)])


def _magnitude(value: Decimal) -> int:
    return value.adjusted() if value else 0


def number(value: Decimal, places: int) -> str:
    """Format a number with at most `places` decimal places. Whole numbers stay exact, and no number gets more digits than its
    row has."""
    exponent = int(value.as_tuple().exponent)
    if exponent >= 0 or "E" in str(value):
        shown = f"{value:,}".lower()
    else:
        kept = min(places, -exponent)
        shown = f"{round(value, kept):z,.{max(kept, 0)}f}"
    return re.sub("^-", "−", shown)


def value_of(row: Row) -> str:
    places = places_of(row)
    return number(row.value, places) + (f" ± {number(row.spread, places)}" if row.spread is not None else "")


def in_full(row: Row) -> str:
    """Format the value with its spread, interval, range and runs."""
    places = places_of(row)
    parts = [value_of(row)]
    if row.interval:
        low, high = (number(bound, places) for bound in row.interval)
        p_value = ""
        if row.p is not None:
            sign = "≤" if row.p == Decimal("0.0001") else "="
            p_value = f", p {sign} {number(row.p, DIGITS - 1 - _magnitude(row.p))}"
        parts.append(f"({low} to {high}{p_value})")
    if row.range:
        parts.append(f"[{number(row.range[0], places)} to {number(row.range[1], places)}]")
    if row.runs:
        parts.append(f"[{', '.join(number(run, places) for run in row.runs)}]")
    if row.target:
        parts.append(f"(target: {row.target})")
    return " ".join(parts)


def shown(rows: Rows, name: str, form: str) -> str:
    if name not in rows:
        raise ValueError(f"row {name} does not exist. Correct the name or add the row.")
    row = rows[name]
    if form == "full":
        return in_full(row)
    return re.sub("^-", "−", f"{row.value:,{form}}") if form else value_of(row)


_REFERENCE = re.compile(r"\{([a-z0-9_-]+(?:\.[a-z0-9_-]+)+)(?::([^}]*))?\}")


def with_figures(text: str, rows: Rows) -> str:
    return _REFERENCE.sub(lambda match: shown(rows, match[1], match[2] or ""), text)


# --- tables ----------------------------------------------------------------------------------------------------------------


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


def template_table(table: Mapping[str, Any], rows: Rows) -> str:
    """Draw a table whose cells name the rows that fill them."""
    return markdown(table["head"], [[with_figures(cell, rows) for cell in line] for line in table["lines"]])


def seeds_of(rows: Iterable[Row]) -> str:
    seeds = sorted({seed for row in rows for seed in row.seeds})
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))


def drawn_table(table: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Draw a table with one line per `row` and one column per `column`, followed by the origins of the figures."""
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row.row, []).append(row)
    columns = list(dict.fromkeys([*table.get("columns", ()), *(row.column for row in rows)]))
    units = {row.unit for row in rows}
    by_column = {column: {row.unit for row in rows if row.column == column} for column in columns}

    def with_unit(column: str) -> str:
        (unit, *more) = sorted(by_column[column])
        return column if more or len(units) == 1 or unit in ("", column) else f"{column} ({unit})"

    def cell(column: str, own: list[Row]) -> str:
        figures = [row for row in own if row.column == column]
        if len(figures) > 1:
            raise ValueError(f"{figures[0].name} and {figures[1].name} share a cell. Change row or column of one.")
        in_cell = len(units) > 1 and len(by_column[column]) > 1
        return "".join(in_full(row) + (f" {row.unit}" if in_cell and row.unit else "") for row in figures)

    origins: dict[tuple[str, ...], int] = {}
    for row in rows:
        origins.setdefault(_origin(row), len(origins) + 1)
    seeds = {name: seeds_of(own) for name, own in lines.items()}
    # Lines that name their own seeds need no column of seeds.
    own_seeds = len(set(seeds.values())) > 1 and any(
        f"seed {each}" not in name for name, each in seeds.items() if each.isdigit()
    )
    strong = table.get("strong", ())
    head = [table.get("head", ""), *(["seeds"] if own_seeds else []), *map(with_unit, columns)]
    body = []
    for name, own in lines.items():
        label = f"**{name}**" if name in strong else name
        body.append([label, *([seeds[name]] if own_seeds else []), *(cell(column, own) for column in columns)])
        if len(origins) > 1:
            body[-1].append(", ".join(map(str, dict.fromkeys(origins[_origin(row)] for row in own))))
    text = [markdown(head + (["from"] if len(origins) > 1 else []), body), ""]
    said = [] if len(units) > 1 or not (unit := next(iter(units))) else [f"In {unit}."]
    if len(set(seeds.values())) == 1 and (all_seeds := seeds[rows[0].row]):
        said.append(f"Seeds: {all_seeds}.")
    if said:
        text += [" ".join(said), ""]
    text += [*_origins(origins), ""]
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.note and row.row not in notes.setdefault(row.note, []):
            notes[row.note].append(row.row)
    for note, names in notes.items():
        text.append(f"- {'all rows' if 1 < len(names) == len(lines) else '; '.join(names)}: {note}.")
    return "\n".join(text) + "\n"


def _origin(row: Row) -> tuple[str, ...]:
    """Return the origin of a figure: the command, and its commit, hardware and date."""
    if row.source:
        return f"published: {row.source}", ""
    quoted = f"`{row.command}`" if row.command.startswith(PROGRAMS) else row.command
    return quoted, f"{row.commit}, {row.hardware}, {row.date}"


def _origins(origins: Mapping[tuple[str, ...], int]) -> list[str]:
    """List the origins, numbered. A repeated command refers to its first line."""
    first: dict[str, int] = {}
    lines = []
    for (command, rest), place in origins.items():
        said = f"as {first[command]}" if command in first else command
        first.setdefault(command, place)
        lines.append(f"{place}. {said}" + (f" ({rest})" if rest else ""))
    return lines


def draw_page(name: str, rows: Sequence[Row], known: Rows) -> str:
    page = settings(name)
    text = [f"# {page['title']}", ""]
    if "intro" in page:
        text += [with_figures(page["intro"], known).strip(), ""]
    deeper = ""
    drawn = set()
    for table in page["tables"]:
        if "section" in table:
            text += [f"## {table['section']}", ""]
            deeper = "#"
        title = " – ".join(filter(None, [str(table.get("date", "")), table["title"], table.get("verdict")]))
        text += [f"##{deeper} {title}", ""]
        if "note" in table:
            text += [with_figures(table["note"], known).strip(), ""]
        if "lines" in table:
            text += [template_table(table, known), ""]
        for key in (table["id"], *table.get("also", ())) if "id" in table else ():
            text += [drawn_table(table, [row for row in rows if row.table == key])]
            drawn.add(key)
        if "picture" in table:
            text += [f"![{table['picture']['title']}]({table['picture']['file']})", ""]
        if "after" in table:
            text += [with_figures(table["after"], known).strip(), ""]
    if left := {row.table for row in rows} - drawn:
        raise ValueError(f"{name}.toml does not list table {', '.join(sorted(left))} of {name}.jsonl. Add it to tables.")
    return _tidy(text)


def draw_index(known: Rows) -> str:
    page = settings("results")
    text = [f"# {page['title']}", "", with_figures(page["intro"], known).strip(), ""]
    text += [template_table(page["summary"], known), "", "## Pages", ""]
    measured = pages()
    for name, said in ((name, said) for name, said in page["pages"].items() if name in measured):
        text.append(f"- [{settings(name)['title']}]({'log.md' if name == 'log' else f'results/{name}.md'}): {said}")
    text += ["", "## How to read the tables", "", page["reading"].strip(), "", "## Machines", ""]
    machines = settings("machines")
    fields = list(dict.fromkeys(field for machine in machines.values() for field in machine))
    lines = [[key, *(str(machine.get(field, "")) for field in fields)] for key, machine in machines.items()]
    text += [markdown(["key", *fields], lines), "", "## Not measured yet", "", page["open"].strip()]
    return _tidy(text)


def _tidy(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


# --- other files -------------------------------------------------------------------------------------------------------------

_MARKED = re.compile(r"(<!-- row: ([a-z0-9_.-]+?)(?::([^ ]+))? -->)(.*?)(<!-- /row -->)")
_BLOCK = re.compile(r"(<!-- block: ([a-z0-9-]+) -->\n)(.*?)(\n?<!-- /block -->)", re.DOTALL)


def filled(text: str, rows: Rows) -> str:
    """Return the text of a file with the content of its markers replaced."""
    blocks = settings("blocks")
    text = _MARKED.sub(lambda match: match[1] + shown(rows, match[2], match[3] or "") + match[5], text)
    return _BLOCK.sub(lambda match: f"{match[1]}{template_table(blocks[match[2]], rows)}\n<!-- /block -->", text)


def unheld(text: str, allowed: Iterable[str]) -> list[str]:
    """Return the decimal numbers of a text that are neither filled in by a marker nor part of an allowed phrase."""
    text = _BLOCK.sub(" ", _MARKED.sub(" ", text))
    for phrase in sorted(allowed, key=len, reverse=True):
        text = text.replace(phrase, " ")
    return re.findall(r"(?<![\w.])(?:\d*\.\d+(?:e-?\d+)?|\d+e-?\d+)(?!\w)", text)


def written() -> dict[Path, str]:
    """Return the expected content of every file that this module writes."""
    rows = all_rows()
    made = {INDEX: draw_index(rows)}
    for name in pages():
        own = read(RESULTS / f"{name}.jsonl")
        made[LOG if name == "log" else RESULTS / f"{name}.md"] = draw_page(name, own, rows)
    for file in marked_files():
        made[file] = filled(file.read_text("utf-8"), rows)
    return made


def main(arguments: Sequence[str] | None = None, say: Callable[[str], None] = print) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file differs from its rows")
    check = parser.parse_args(arguments).check
    stale = {file: text for file, text in written().items() if not file.exists() or file.read_text("utf-8") != text}
    for file, text in stale.items():
        say(f"{file.relative_to(ROOT)}: {'stale: run python benchmarks/tables.py' if check else 'written'}")
        if not check:
            file.write_text(text, "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
