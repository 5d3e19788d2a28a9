"""Rows of results, the pages generated from them, and every decimal number of README and model cards."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results"
ROW = {
    "name": "speed.words.fast",
    "value": 75.60,
    "unit": "%",
    "command": "python benchmarks/chat.py",
    "commit": "cee5228",
    "hardware": "A",
    "date": "2026-11-24",
    "seeds": [0],
    "note": "",
    "table": "speed",
    "row": "words",
    "column": "fast",
}

sys.path.insert(0, str(BENCHMARKS))
try:
    import rows
    import tables
finally:
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def known() -> dict[str, rows.Row]:
    return tables.all_rows()


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "speed.jsonl"
    file.write_text(json.dumps(ROW | changes) + "\n")
    return file


# --- rows ------------------------------------------------------------------------------------------------------------------


def test_rows_give_their_origin(known):
    """Reading checks the schema of each row; this test checks properties across rows."""
    assert len(known) > 3000
    machines = tables.settings("machines")
    for row in known.values():
        assert row.hardware in machines, row.name
        assert row.name.startswith(f"{row.table}."), row.name
        assert bool(row.source) == (row.hardware == "published"), row.name
        assert row.interval is None or row.interval[0] <= row.value <= row.interval[1], row.name


def test_machines_name_their_processor():
    assert all(machine["processor"] for machine in tables.settings("machines").values())


def test_commits_of_rows_are_in_the_history(known):
    def git(*words: str, **options: Any) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, **options).stdout

    if not (ROOT / ".git").exists() or git("rev-parse", "--is-shallow-repository").strip() == "true":
        pytest.skip("the history is not here")
    commits = sorted({row.commit for row in known.values()} - {""})
    found = git("cat-file", "--batch-check", input="\n".join([*commits, "0123456"])).splitlines()
    missing = [line.split()[0] for line in found if line.split()[1] != "commit"]
    assert missing == ["0123456"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": ""}, "command"),
        ({"command": "python speed.py --data /home/ann/data"}, "command names /home/ann/data"),
        ({"commit": ""}, "commit and source are both empty"),
        ({"commit": "main"}, "commit"),
        ({"date": "24.11.2026"}, "date"),
        ({"seeds": "0"}, "seeds"),
        ({"name": "Speed"}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_incomplete_row_is_refused(tmp_path, changes, message):
    with pytest.raises(ValueError, match=rf"speed\.jsonl, line 1: .*{message}"):
        rows.read(written(tmp_path, **changes))


def test_numbers_keep_their_digits(tmp_path):
    file = tmp_path / "speed.jsonl"
    file.write_text(json.dumps(ROW).replace("75.6", "75.60") + "\n")
    (row,) = rows.read(file)
    assert '"value":75.60' in rows.to_line(row)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"value": 75.67}, "75.7"),
        ({"value": 3.64045}, "3.64"),
        ({"value": 5.1000}, "5.1"),
        ({"value": 0.0003104}, "0.000310"),
        ({"value": 9649.64}, "9,650"),
        ({"value": 1004252}, "1,004,252"),
        ({"value": 7e-16}, "7e-16"),
        ({"value": -1.98442}, "−1.98"),
        ({"value": 0.0000}, "0.0"),
        ({"value": 1.6967, "spread": 0.0346}, "1.70 ± 0.03"),
        ({"value": 1.7476, "spread": 0.0009}, "1.7476 ± 0.0009"),
        ({"value": 55.18, "interval": [52.82, 57.59]}, "55.2 (52.8 to 57.6)"),
        ({"value": 1.5, "interval": [-0.004, 3.104]}, "1.5 (0.00 to 3.10)"),
        ({"value": 0.59, "interval": [-1.65, 2.96], "p": 0.24424}, "0.59 (−1.65 to 2.96, p = 0.244)"),
    ],
)
def test_figures_have_three_significant_digits(tmp_path, changes, shown):
    """More if the uncertainty begins further right. Whole numbers stay exact, and no digit is invented."""
    (row,) = rows.read(written(tmp_path, **changes))
    assert tables.in_full(row) == shown


def test_a_table_may_need_a_fourth_digit(tmp_path, monkeypatch):
    (row,) = rows.read(written(tmp_path, value=99.3861))
    assert tables.value_of(row) == "99.4"
    monkeypatch.setattr(tables, "digits_of_tables", lambda: {"speed": 4})
    assert tables.value_of(row) == "99.39"


def test_no_percentage_below_the_whole_is_shown_as_whole(known):
    near = [row for row in known.values() if row.unit.startswith("%") and 99 < row.value < 100]
    assert near
    assert [row.name for row in near if tables.value_of(row).startswith("100")] == []


def test_a_figure_that_has_not_changed_keeps_its_origin(tmp_path):
    file = written(tmp_path)
    (old,) = rows.read(file)
    later = msgspec.structs.replace(old, commit="8d7f625", date=old.date + timedelta(days=1))
    worse = msgspec.structs.replace(later, name="speed.words.slow", column="slow")
    rows.replace_rows(file, [later, worse])
    assert rows.read(file) == [old, worse]
    changed = msgspec.structs.replace(later, value=Decimal("75.61"))
    added = msgspec.structs.replace(later, name="speed.words.medium", column="medium")
    rows.replace_rows(file, [changed, added])
    assert rows.read(file) == [changed, added, worse]


def test_benchmarks_append_rows(tmp_path):
    """A benchmark of one second, run as documented."""
    file = tmp_path / "engine.jsonl"
    command = [sys.executable, "benchmarks/backprop.py", "speed", "--append", str(file), "A"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    found = rows.read(file)
    assert {"engine_speed.single_numbers.microseconds_an_operation_ramify"} <= {row.name for row in found}
    assert all(row.command == "python benchmarks/backprop.py speed" and row.value > 0 for row in found)


def test_numbers_of_nested_records_become_columns():
    record = {"fp32": {"seconds": 1.5, "share": 2}, "name": "x", "whole": True, "range": [1, 2]}
    assert dict(rows._numbers(record)) == {"fp32, seconds": 1.5, "fp32, share": 2}


# --- pages -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> Mapping[Path, str]:
    return tables.written()


def test_pages_equal_their_rows(made):
    stale = [file.name for file, text in made.items() if not file.exists() or file.read_text("utf-8") != text]
    assert not stale, f"run python benchmarks/tables.py: {', '.join(stale)}"


def test_stale_page_is_reported_and_regenerated(tmp_path, monkeypatch, made):
    page = tmp_path / "page.md"
    page.write_text("75.60")
    monkeypatch.setattr(tables, "written", lambda: {page: "75.61"})
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    printed: list[str] = []
    assert tables.main(["--check"], printed.append) == 1
    assert "page.md: stale" in printed[0]
    assert page.read_text() == "75.60"
    assert tables.main([], printed.append) == 0
    assert page.read_text() == "75.61"
    assert tables.main(["--check"], printed.append) == 0


def test_no_page_is_too_long(made):
    sizes = {file.name: len(text.encode()) for file, text in made.items() if file.is_relative_to(BENCHMARKS)}
    assert len(sizes) >= 10
    assert max(sizes.values()) <= tables.MOST_BYTES, sizes


def test_summary_fits_a_screen_with_a_verdict_per_claim(made):
    head = made[tables.INDEX].split("\n## ")[0].splitlines()
    assert len(head) <= 40
    claims = [line for line in head if line.startswith("| ")][2:]
    assert len(claims) > 10
    verdicts = [line.strip("| ").split(" | ")[-1] for line in claims]
    allowed_verdicts = r"(ahead|behind|met|missed|between|negative|no verdict|conversations missed)"
    assert all(re.match(allowed_verdicts, verdict) for verdict in verdicts)


def test_log_is_dated_and_negative():
    entries = tables.settings("log")["tables"]
    dates = [entry["date"] for entry in entries]
    assert dates == sorted(dates, reverse=True)
    assert {entry["verdict"] for entry in entries} == {"negative"}


def test_every_page_is_in_the_documentation():
    listed = (ROOT / "docs/results.md").read_text("utf-8")
    for name in tables.pages():
        page = "log" if name == "log" else f"results/{name}"
        assert f"\n{page}\n" in listed, page
        assert f"benchmarks/{page}.md" in (ROOT / "docs" / f"{page}.md").read_text("utf-8")


def test_two_figures_in_one_cell_are_refused(tmp_path):
    (row,) = rows.read(written(tmp_path))
    with pytest.raises(ValueError, match="share a cell"):
        tables.drawn_table({}, [row, row])


def test_uncertainty_of_a_figure_is_printed(tmp_path):
    changes = {"spread": 0.5, "interval": [75, 76], "p": 0.0001, "range": [-1, 1234567], "runs": [1, 2], "target": "at most 80"}
    (row,) = rows.read(written(tmp_path, **changes))
    full = "75.6 ± 0.5 (75 to 76, p ≤ 0.0001) [−1 to 1,234,567] [1, 2] (target: at most 80)"
    assert tables.in_full(row) == full
    assert tables.with_figures("{speed.words.fast} {speed.words.fast:.0f}", {row.name: row}) == "75.6 ± 0.5 76"


# --- README and model cards ------------------------------------------------------------------------------------------------


def allowed(name: str) -> list[str]:
    return [entry["text"] for entry in tables.settings("allowed")["allowed"] if name in entry["files"]]


@pytest.mark.parametrize("file", tables.held_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_decimal_numbers_come_from_rows(file):
    loose = tables.unheld(file.read_text("utf-8"), allowed(str(file.relative_to(ROOT))))
    assert not loose, f"{loose}: name a row in a marker (benchmarks/tables.py), or add to benchmarks/results/allowed.toml"


def test_allowed_numbers_exist_and_have_a_reason():
    for entry in tables.settings("allowed")["allowed"]:
        assert len(entry["reason"]) > 10, entry
        assert tables.unheld(entry["text"], ()), f"{entry['text']} holds no decimal number"
        for name in entry["files"]:
            assert entry["text"] in (ROOT / name).read_text("utf-8"), f"{name} no longer says {entry['text']}"


@pytest.mark.parametrize(
    ("text", "loose"),
    [
        ("it finds 75.08 % or .36", ["75.08", ".36"]),
        ("a tolerance of 1e-10", ["1e-10"]),
        ("<!-- row: a.b.c -->75.08<!-- /row --> and 3", []),
        ("<!-- block: x -->\n| 75.08 |\n<!-- /block -->", []),
        ("Python 3.11, v1.2.3, trees.jsonl, 5,900", []),
    ],
)
def test_unsupported_numbers_are_found(text, loose):
    assert tables.unheld(text, ["Python 3.11", "v1.2.3"]) == loose


def test_markers_are_filled(tmp_path):
    (row,) = rows.read(written(tmp_path))
    text = "now <!-- row: speed.words.fast:.0f -->1<!-- /row --> %"
    assert tables.filled(text, {row.name: row}) == "now <!-- row: speed.words.fast:.0f -->76<!-- /row --> %"
    with pytest.raises(ValueError, match=r"row .* does not exist"):
        tables.filled(text, {})
