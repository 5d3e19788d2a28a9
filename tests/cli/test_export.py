"""`ramify data export`: data sets out as JSON lines, and in again as one."""

from typer.testing import CliRunner

from fixtures import built, discussions
from ramify.cli import app
from ramify.dataset import Policy, build
from ramify.errors import RamifyError
from ramify.readers.jsonl import read_jsonl


def test_several_data_sets_become_one(tmp_path):
    stores = [built(discussions(5, 9, seed=seed), tmp_path / str(seed)) for seed in (0, 100)]
    trees = {store.path: [tree.to_json() for tree in store.trees()] for store in stores}
    out = tmp_path / "both.jsonl"
    result = CliRunner().invoke(app, ["data", "export", *map(str, trees), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [tree.to_json() for tree in read_jsonl(out)] == [line for lines in trees.values() for line in lines]


def test_data_set_survives_export_and_build(tmp_path):
    store = built(discussions(8, 6), tmp_path / "own")
    out = tmp_path / "trees.jsonl"
    CliRunner().invoke(app, ["data", "export", str(store.path), "--out", str(out)])
    # Some texts have no words. They were kept, so they must be kept again.
    assert build([out], "jsonl", tmp_path / "again", policy=Policy(empty="keep")).hash == store.hash


def test_letters_of_a_title_survive_export_and_build(tmp_path):
    (tmp_path / "RS").write_text('{"id": "s1", "title": "café ☕", "selftext": "", "author": "a", "created_utc": 1}\n')
    store = build([tmp_path / "RS"], "pushshift", tmp_path / "own")
    out = tmp_path / "trees.jsonl"
    CliRunner().invoke(app, ["data", "export", str(store.path), "--out", str(out)])
    assert build([out], "jsonl", tmp_path / "again").hash == store.hash


def test_failed_export_leaves_nothing(tmp_path):
    store = built(discussions(2, 3), tmp_path / "own")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    result = CliRunner().invoke(app, ["data", "export", str(store.path), str(damaged), "--out", str(tmp_path / "out.jsonl")])
    assert isinstance(result.exception, RamifyError)
    assert not list(tmp_path.glob("*out.jsonl*"))
