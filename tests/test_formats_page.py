"""The page *Formats* is that of the table of readers, and its examples are recognised."""

import importlib.util
from pathlib import Path

import pytest

from ramify.readers import FORMATS, chat_json, mail, nested, play
from ramify.readers.chat_json import PROGRAMS
from ramify.readers.nested_layouts import LAYOUTS

SCRIPT = Path(__file__).parents[1] / "docs" / "formats_page.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("formats_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date(script):
    assert script.page() == script.PAGE.read_text("utf-8"), "Run python docs/formats_page.py"


def test_every_format_and_layout_is_described(script):
    sources = script.sources()
    assert sources.keys() == FORMATS.keys()
    for entries in sources.values():
        for entry in entries:
            assert entry.keys() - {"name"} == {"source", "how", "kept", "example"}
            assert all(entry.values())
    assert [entry["name"] for entry in sources["nested"] if "name" in entry] == list(LAYOUTS)
    assert [entry["name"] for entry in sources["chat-json"]] == list(PROGRAMS)


def test_examples_are_recognised(script, tmp_path):
    sources = script.sources()
    for entry in sources["nested"]:
        if "name" in entry:
            name = f"x{LAYOUTS[entry['name']].late}"
            assert nested._fitting(tmp_path / name, written(tmp_path / name, entry)) is LAYOUTS[entry["name"]], entry["name"]
    for entry in sources["chat-json"]:
        assert chat_json._fitting(entry["example"].encode()) is PROGRAMS[entry["name"]], entry["name"]
    assert not play.refuses(tmp_path / "x", sources["play"][0]["example"].encode())
    assert not mail.refuses(tmp_path / "x", sources["mail"][0]["example"].encode() + b"\nFrom: ann\n")


def written(path, entry):
    path.write_text(entry["example"], encoding="utf-8")
    return path.read_bytes()
