"""benchmarks/shipped.py: from trained models to rows, a picture and a replaced checkpoint."""

import json
import sys
from pathlib import Path

import pytest

from fixtures import built, discussions
from ramify import RamifyError
from ramify.inference import held_out
from ramify.inference.evaluation import Scores
from ramify.recipes import shipped as recipe
from ramify.recipes.running_text import bert
from ramify.runs import execute

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

sys.path.insert(0, str(BENCHMARKS))
try:
    import shipped as benchmark
    from rows import read
finally:
    sys.path.remove(str(BENCHMARKS))

TINY = {"model.dim": "16", "model.num_heads": "2", "model.ffn_dim": "32"}
FEW = {"train.target_tokens": "0", "train.steps": "2", "train.evaluate_every": "1"}


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """A small shipped model and a BERT, their scores, and the table of these."""
    folder = tmp_path_factory.mktemp("benchmark")
    data = folder / "open"
    Path(built(discussions(12, 5), folder, split=(0.4, 0.3, 0.3)).path).rename(data)
    run = recipe.shipped(str(data)).changed(TINY | FEW | {"tokenizer.vocab_size": "200"})
    execute(run, folder / "tree", cpu=True)
    recipe.pack(folder / "tree", str(data), folder / "tree" / "packed")
    text = bert(str(data), rows="comments", tokenizer=str(folder / "tree"), max_tokens=256)
    execute(text.changed(TINY | FEW | {"input.max_context": "8"}), folder / "bert", cpu=True)
    models = [f"shipped={folder / 'tree' / 'packed'}", f"bert={folder / 'bert'}"]
    benchmark.main(["score", "--data", str(folder), "--out", str(folder / "out"), "--sets", "open", "--", *models])
    benchmark.main(["keep", "--out", str(folder / "out"), "--to", str(folder / "scores.parquet")])
    return folder


def test_rows_come_from_the_scores(scored):
    rows = scored / "rows.jsonl"
    benchmark.main(["table", "--out", str(scored / "scores.parquet"), "--rows", str(rows)])
    by_name = {row.name: row for row in read(rows)}
    tree = Scores.load(scored / "out" / "shipped" / "open-256-own.npz")
    text = Scores.load(scored / "out" / "bert" / "open-256-own.npz")
    assert tree.count.tolist() == text.count.tolist()
    losses = [float(scores.summary()["loss"]) for scores in (tree, text)]
    assert float(by_name["tree-losses.this_model.open_256"].value) == pytest.approx(losses[0], abs=1e-4)
    saved = by_name["tree-saved.over_bert.open_256"]
    assert float(saved.value) == pytest.approx(losses[1] - losses[0], abs=1e-4)
    assert saved.interval is not None
    weights = [row.note for row in by_name.values() if "cache" in row.row and row.table == "tree-losses"]
    assert len(weights) == 2 * 3
    assert all(note.startswith("weight of the cache on open, ") for note in weights)


def test_scores_stay_those_of_their_model(scored):
    words = ["score", "--data", str(scored), "--out", str(scored / "out"), "--sets", "open", "--"]
    written = {file: file.stat().st_mtime_ns for file in (scored / "out" / "bert").glob("open*")}
    benchmark.main([*words, f"bert={scored / 'bert'}"])
    assert {file: file.stat().st_mtime_ns for file in (scored / "out" / "bert").glob("open*")} == written
    with pytest.raises(RamifyError, match=r"bert holds scores of other weights than those of .*packed\. Name another"):
        benchmark.main([*words, f"bert={scored / 'tree' / 'packed'}"])


def test_the_weight_of_the_cache_is_chosen_once_per_reading(scored, tmp_path, monkeypatch):
    chosen, choose = [], held_out.cache_weights

    def counted(task, store, contexts):
        chosen.append(task.input.max_tokens)
        return choose(task, store, contexts)

    monkeypatch.setattr(held_out, "cache_weights", counted)
    (tmp_path / "data").mkdir()
    for name in ("open", "demo"):
        (tmp_path / "data" / name).symlink_to(scored / "open")
    words = ["score", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--sets", "open", "demo", "--"]
    benchmark.main([*words, f"bert={scored / 'bert'}"])
    assert sorted(chosen) == [128, 256]
    assert len(list((tmp_path / "out" / "bert").glob("*-own-cache.npz"))) == 4


def test_a_picture_shows_the_curves_by_epoch(scored):
    assert [len((scored / "out" / name / "curve.jsonl").read_text().splitlines()) for name in ("shipped", "bert")] == [2, 2]
    benchmark.main(["picture", "--out", str(scored / "scores.parquet"), "--svg", str(scored / "curves.svg")])
    assert "epochs" in (scored / "curves.svg").read_text()


def test_ship_replaces_the_model_and_marks_its_results(scored, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "CHECKPOINT", tmp_path)
    benchmark.main(["ship", str(scored / "tree" / "packed")])
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / file).read_bytes() == (scored / "tree" / "packed" / file).read_bytes()
    card = (tmp_path / "README.md").read_text("utf-8")
    assert card.endswith("## Held-out results\n\n<!-- block: checkpoint-held-out -->\n<!-- /block -->\n")
    assert json.loads((tmp_path / "config.json").read_text())["task"]["mask_rate"] == 0.15
