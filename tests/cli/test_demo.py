"""`ramify demo`, and the sample and checkpoint that travel with the package."""

import json
import re

import pytest
from typer.testing import CliRunner

import ramify
from ramify import RamifyError, cli
from ramify.cli import app
from ramify.cli.demo import _sparkline, saving
from ramify.dataset.store import Store
from ramify.inference.evaluation import gain
from ramify.inference.held_out import cache_weights, measure
from ramify.metrics import Interval
from ramify.readers.jsonl import read_jsonl
from ramify.sample import CHECKPOINT, DISCUSSIONS

MOST_BYTES = 10_000_000


def in_a_minute(out):
    """The output of the demo with a few updates and one mask per comment."""
    result = CliRunner().invoke(app, ["demo", "--out", str(out), "--steps", "3", "--draws", "1"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def demo_with_measures(tmp_path_factory):
    """The folder of a demo, its output, and what it has measured."""
    out, evaluate, measures = tmp_path_factory.mktemp("demo"), cli.demo._evaluate, []

    def kept(store, draws):
        measures.append(evaluate(store, draws))
        return measures[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli.demo, "_evaluate", kept)
        printed = in_a_minute(out)
    return out, printed, *measures


@pytest.fixture
def demo(demo_with_measures):
    return demo_with_measures[:2]


def test_demo_prints_the_gain_of_the_checkpoint(demo_with_measures):
    _, printed, (_, measured) = demo_with_measures
    for other in ("none", "mismatched"):
        saved = gain(measured.scores["tree"], measured.scores[other])["all"]
        assert f"{saved.value:+.4f} (95 % interval {saved.low:+.4f} to {saved.high:+.4f}" in printed
    assert f"{measured.scores['tree'].count.sum():,} masked tokens in 40 trees" in printed


def test_demo_prints_absolute_losses_beside_those_of_the_card(demo):
    out, printed = demo
    task, store = ramify.load(CHECKPOINT).task, Store.open(out / "data")
    caches = cache_weights(task, store, ("none",))
    # The weight of the cache is chosen on dev, so its loss is that of the other trees.
    assert not len(store.split("test"))
    measured = measure(task, store, "train", draws=1, caches=caches)
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    dev, others = len(store.split("dev")), len(store.split("train"))
    chosen = f"The cache has weight {caches['none']:g}, chosen on the {dev} trees that are held out above."
    assert f"{chosen} On the other {others} trees:" in lines
    for name, scores in (
        ("with ancestors", measured.scores["tree"]),
        ("without context", measured.scores["none"]),
        ("without context, cache of ancestors' words", measured.cached["none"]),
    ):
        assert f"{name} {scores.summary()['loss']:.4f}" in lines


def test_demo_prints_the_results_of_the_card(demo):
    card = (CHECKPOINT / "README.md").read_text("utf-8").partition("## Held-out results")[2]
    rows = re.findall(r"^\| (?!---)(.+) \|$", card, re.MULTILINE)
    assert len(rows) > 5
    lines = [" ".join(line.split()) for line in demo[1].splitlines()]
    first = lines.index(rows[1].replace("**", "").replace(" | ", " "))
    assert lines[first - 1 : first - 1 + len(rows)] == [row.replace("**", "").replace(" | ", " ") for row in rows]


def test_an_interval_that_holds_zero_is_said():
    assert "no difference" in saving("without context", Interval(0.01, -0.01, 0.03, 0.4))
    assert "no difference" not in saving("without context", Interval(0.02, 0.01, 0.03, 0.0001))


def test_demo_attributes_the_gain_to_the_checkpoint(demo):
    printed_text = " ".join(demo[1].split())
    assert "Six hundred comments are far too few to learn" in printed_text
    assert "shipped checkpoint" in printed_text
    assert "benchmarks/results.md" in printed_text


def test_demo_leaves_a_report(demo):
    out, printed = demo
    page = (out / "report.html").read_text("utf-8")
    assert str(out / "report.html") in printed
    assert page.count("<article>") == 10
    assert "shipped checkpoint" in page
    assert not re.search(r"https?://|<script|<link", page)


def test_demo_runs_again_in_the_same_folder(demo_with_measures, monkeypatch):
    out, _, measures = demo_with_measures
    # The same trees have the same measures.
    monkeypatch.setattr(cli.demo, "_evaluate", lambda store, draws: measures)
    (out / "report.html").unlink()
    in_a_minute(out)
    assert (out / "report.html").exists()
    assert not list(out.parent.glob(".*.lock"))


def test_demo_does_not_touch_runs_created_meanwhile(tmp_path, monkeypatch):
    """The demo clears its folder at the start only, and a second demo in the same folder is refused meanwhile."""
    out, build = tmp_path / "demo", cli.demo._build
    for kind in ("old", "new"):
        (out / kind).mkdir(parents=True)
    (out / ".ramify-demo").touch()
    (out / "old" / "run.json").touch()
    (out / "old").rename(out / "run")

    def appear(folder):
        assert not (out / "run").exists()
        (out / "new" / "run.json").touch()
        (out / "new").rename(out / "run")
        with pytest.raises(RamifyError, match="demo is being written by another process"):
            cli.demo.demo(out)
        return build(folder)

    monkeypatch.setattr(cli.demo, "_build", appear)
    with pytest.raises(RamifyError, match="already holds a run"):
        cli.demo.demo(out, steps=1, draws=1)
    assert (out / "run" / "run.json").exists()


def test_sample_has_the_documented_size():
    trees = list(read_jsonl(DISCUSSIONS))
    assert len(trees) == 40
    assert sum(len(tree) - 1 for tree in trees) == 600
    assert "Apache" in (DISCUSSIONS.parent / "README.md").read_text("utf-8")


def test_checkpoint_is_small_half_precision_and_licensed():
    from safetensors import safe_open

    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) <= MOST_BYTES
    with safe_open(CHECKPOINT / "model.safetensors", "pt") as tensors:
        assert {str(tensors.get_tensor(name).dtype) for name in tensors.keys()} == {"torch.float16"}  # noqa: SIM118
    card = (CHECKPOINT / "README.md").read_text("utf-8")
    assert "license: cc-by-sa-4.0" in card
    assert "ramify train shipped" in card
    assert json.loads((CHECKPOINT / "config.json").read_text())["model"]["name"] == "tree-mlm"


def test_sparkline_spans_the_values():
    assert _sparkline([3.0, 2.0, 1.0]) == "█▅▁"
    assert len(_sparkline([float(value) for value in range(1000)])) == 40
