"""benchmarks/shipped.py: from trained models to rows, a picture and a replaced checkpoint."""

import json
import sys
from pathlib import Path

import pytest

from fixtures import built, discussions
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
    found = {row.name: row for row in read(rows)}
    own = Scores.load(scored / "out" / "shipped" / "open-256-own.npz")
    text = Scores.load(scored / "out" / "bert" / "open-256-own.npz")
    assert own.count.tolist() == text.count.tolist()
    losses = [float(scores.summary()["loss"]) for scores in (own, text)]
    assert float(found["tree-losses.this_model.open_256"].value) == pytest.approx(losses[0], abs=1e-4)
    saved = found["tree-saved.over_bert.open_256"]
    assert float(saved.value) == pytest.approx(losses[1] - losses[0], abs=1e-4)
    assert saved.interval is not None
    assert {row.note for row in found.values() if "cache" in row.row and row.table == "tree-losses"} != {""}


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
