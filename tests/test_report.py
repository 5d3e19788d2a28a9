"""The page of a run: self-contained, escaped, correct, and available for unfinished runs, too."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import ramify
from fixtures import built, discussion, discussions, star
from ramify.batching.forest import node_seeds
from ramify.errors import RamifyError
from ramify.inference.evaluation import evaluate, gain
from ramify.inference.held_out import ancestor_words, fillings, mask_longest_word, measure, readable
from ramify.inference.held_out import discussions as units_of
from ramify.recipes import RECIPES
from ramify.report import charts, write_page, write_report
from ramify.report.html import HtmlSection, draw, percent, shortened, text
from ramify.runs import execute
from ramify.runs.comment_trees.report import curves
from ramify.runs.sections import Chart, DotChart, Dots, Line, number, smooth
from ramify.training.metrics_log import METRICS, read_metrics
from ramify.tree import Node, Tree

HOSTILE = '<script>alert("x")</script> & <b onmouseover=go>bold</b> \x07 \u202e'

SETTINGS = {
    "model.dim": "16",
    "model.ffn_dim": "32",
    "model.num_heads": "2",
    "tokenizer.vocab_size": "400",
    "train.budget": "512",
    "train.log_every": "1",
    "train.evaluate_every": "2",
    "train.checkpoint_every": "2",
}
LAYERS = {
    "tree-mlm": {"model.encoder_layers": "1", "model.decoder_layers": "1"},
    "bert": {"model.num_layers": "1"},
}
ROWS = {"bert": {"rows": "comments"}}


def hostile(tree):
    """The same discussion in which every text begins with markup."""
    nodes = tuple(Node(f"{HOSTILE} {node.text}", node.parents, id=node.id) for node in tree.nodes)
    return Tree(nodes, id=tree.id, meta={"title": HOSTILE})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    trees = [hostile(tree) for tree in discussions(24, 12, seed=3)]
    return built(trees, tmp_path_factory.mktemp("data"), split=(0.5, 0.5, 0.0))


def trained(recipe, store, out):
    execute(RECIPES[recipe](str(store.path), steps=5, **ROWS.get(recipe, {})).changed(SETTINGS | LAYERS[recipe]), out)
    return out


@pytest.fixture(scope="module")
def run(store, tmp_path_factory):
    return trained("tree-mlm", store, tmp_path_factory.mktemp("runs") / "tree")


@pytest.fixture(scope="module")
def page(run):
    return write_report(run).read_text("utf-8")


@pytest.fixture
def copy(run, tmp_path):
    return shutil.copytree(run, tmp_path / "run")


def unfinished(run):
    for name in ("config.json", "model.safetensors"):
        (run / name).unlink()
    return run


class Page(HTMLParser):
    """Fails on tags that are not closed in order; collects tags, attributes and text."""

    EMPTY = ("meta", "br")

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attributes, self.words = [], [], [], []
        self.feed(html)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


# --- the page of a finished run ---------------------------------------------------------------------------------------


def test_page_is_self_contained(page):
    parsed = Page(page)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(parsed.tags)
    assert not {"src", "href", "srcset", "data", "action"} & {name for name, _ in parsed.attributes}
    assert not re.search(r"https?://|url\(|@import", page)
    pictures = re.findall(r"<figure>(.*?)</figure>", page)
    assert len(pictures) == 9
    for svg in pictures:
        ElementTree.fromstring(svg)


def test_users_text_is_escaped(page):
    parsed = Page(page)
    assert not {"onmouseover"} & {name for name, _ in parsed.attributes}
    assert 'alert("x")' in parsed.text
    assert "<b onmouseover=go>" in parsed.text
    assert "\x07" not in page


def test_page_has_every_part(page, run, store):
    parsed = Page(page)
    record = json.loads((run / "run.json").read_text())
    assert parsed.tags.count("article") == 10
    assert parsed.tags.count("figure") == 9
    assert record["environment"]["command"].split()[0] in parsed.text
    assert record["environment"]["hardware"] in parsed.text
    assert store.hash in parsed.text
    assert f"{record['cut']['tokens']:,} in" in parsed.text
    assert f"{record['parameters']:,}" in parsed.text
    assert f'"regime": "{record["run"]["view"]["regime"]}"' in parsed.text
    assert "color-scheme: dark" in page


def test_table_shows_the_scores_of_the_model(page, run, store):
    task = ramify.load(run).task
    trees = store.split("dev")
    scores = {}
    for context in ("tree", "none"):
        view, collator = units_of(task, task.input.forest(store, task.tokenizer), trees, context=context)
        scores[context] = evaluate(task, view, collator, trees, draws=2)
    saved = gain(scores["tree"], scores["none"])
    shown = Page(page).text
    assert f"{scores['tree'].summary()['loss']:.3f}" in shown
    assert f"{scores['none'].summary()['loss']:.3f}" in shown
    for interval in saved.values():
        assert number(interval.value, "+.3f") in shown
        assert f"{number(interval.low, '+.3f')} to {number(interval.high, '+.3f')}" in shown
    assert f"{number(saved['all'].value, '+.4f')} nats per masked token" in shown


def test_tables_show_every_control_by_depth_and_class(page, run, store):
    """Another branch is compared on the comments that have one, with the context of training on the same comments."""
    task, trees = ramify.load(run).task, store.split("dev")
    forest = task.input.forest(store, task.tokenizer)
    measured = measure(task, store, "dev", draws=2, controls=("mismatched", "sibling-branch"))
    assert list(measured.scores) == ["tree", "none", "mismatched", "sibling-branch"]
    assert list(measured.limited) == ["sibling-branch"]
    words = ancestor_words(task, forest)
    for context in ("mismatched", "sibling-branch"):
        only = readable(forest, trees, context)
        own, other = (
            evaluate(task, *units_of(task, forest, trees, context=each, only=only), trees, draws=2, words=words)
            for each in ("tree", context)
        )
        assert measured.scores[context].loss.tolist() == other.loss.tolist()
        np.testing.assert_allclose(measured.scores_beside(context).loss, own.loss, rtol=0, atol=1e-4)
        saved = measured.saved[context]
        assert saved.keys() == gain(own, other).keys()
        shown = Page(page).text
        for interval in saved.values():
            assert number(interval.value, "+.3f") in shown
            assert f"{number(interval.low, '+.3f')} to {number(interval.high, '+.3f')}" in shown
    share = measured.limited["sibling-branch"].count.sum() / measured.scores["tree"].count.sum()
    assert 0 < share < 1
    assert f"covers the comments that can read it, with {share:.0%} of the masked tokens" in shown
    charts = re.findall(r'<svg[^>]* aria-label="saved, nats per masked token by (depth|words).*?</svg>', page, re.DOTALL)
    assert charts == ["depth", "words"]


def test_controls_that_the_trees_do_not_allow_are_left_out(run, tmp_path):
    task = ramify.load(run).task
    lone = built([hostile(discussions(1, 12)[0])], tmp_path / "one", split=(0.0, 1.0, 0.0))
    assert "mismatched" not in measure(task, lone, "dev", draws=1, controls=("mismatched", "sibling-branch")).scores
    flat = built((discussion(star(4), seed=n, name=f"t{n}") for n in range(3)), tmp_path / "flat", split=(0.0, 1.0, 0.0))
    found = measure(task, flat, "dev", draws=1, controls=("mismatched", "sibling-branch"))
    assert list(found.scores) == ["tree", "none", "mismatched"]


def test_gain_is_logged_beside_the_dev_loss(run, store):
    last = read_metrics(run)[-1]
    task = ramify.load(run).task
    best = min(read_metrics(run), key=lambda record: record.get("dev_loss", np.inf))
    measured = measure(task, store, "dev", draws=1)
    assert "dev_loss_none" in last
    assert measured.scores["tree"].summary()["loss"] == pytest.approx(best["dev_loss"], abs=1e-6)
    assert measured.scores["none"].summary()["loss"] == pytest.approx(best["dev_loss_none"], abs=1e-6)


@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_page_in_a_browser(page, run, tmp_path):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,2000"]
    command += [f"--user-data-dir={tmp_path}", f"--screenshot={tmp_path / 'page.png'}", f"file://{run / 'report.html'}"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    from matplotlib import image

    picture = image.imread(tmp_path / "page.png")[..., :3]
    assert picture.shape[:2] == (2000, 1200)
    # Ink in every fifth of the page: it is laid out from top to bottom, not cut off or blank.
    for band in np.array_split(picture, 5):
        assert (np.abs(band - band[0, 0]).max(-1) > 0.3).mean() > 0.002


# --- unfinished and unusual runs --------------------------------------------------------------------------------------


def test_interrupted_run_shows_the_best_weights(copy, page):
    shown = Page(write_report(unfinished(copy)).read_text("utf-8"))
    assert "unfinished" in shown.text
    # The finished run holds the same weights, so the same table.
    assert re.findall(r"<tbody>.*?</tbody>", page) == re.findall(
        r"<tbody>.*?</tbody>", (copy / "report.html").read_text("utf-8")
    )


def test_run_without_weights(copy):
    unfinished(copy)
    (copy / "best.safetensors").unlink()
    shutil.rmtree(copy / "checkpoints")
    shown = Page(write_report(copy).read_text("utf-8"))
    assert "has no checkpoint yet" in shown.text
    assert shown.tags.count("figure") == 7


def test_run_that_was_killed_before_its_first_step(copy):
    unfinished(copy)
    (copy / METRICS).unlink()
    assert "has not logged a step yet" in Page(write_report(copy, evaluate=False).read_text("utf-8")).text


def test_truncated_metrics_line_is_left_out(copy):
    whole = read_metrics(copy)
    lines = (copy / METRICS).read_text()
    (copy / METRICS).write_text(lines[:-20])
    assert read_metrics(copy) == whole[:-1]
    write_report(copy, evaluate=False)


def test_moved_data_set(copy):
    record = json.loads((copy / "run.json").read_text())
    record["run"]["data"] = "/nowhere"
    (copy / "run.json").write_text(json.dumps(record))
    assert "The data set cannot be opened" in Page(write_report(copy).read_text("utf-8")).text


def test_other_data_set_is_marked_as_other(copy, tmp_path):
    other = built(discussions(12, 8, seed=50), tmp_path / "other", split=(0.0, 1.0, 0.0))
    assert "not the data set that the model was trained on" in Page(write_report(copy, other.path).read_text("utf-8")).text


def test_empty_split_is_reported(copy):
    assert "no trees in the split 'test'" in Page(write_report(copy, split="test").read_text("utf-8")).text


def test_one_tree_has_no_interval(copy, tmp_path):
    other = built(discussions(1, 8, seed=50), tmp_path / "one", split=(0.0, 1.0, 0.0))
    shown = Page(write_report(copy, other.path).read_text("utf-8")).text
    assert "nats per masked token (one tree only)" in shown


def test_resumption_and_chaining_are_reported(copy):
    record = json.loads((copy / "run.json").read_text())
    record["resumed"] = [{"commit": "abc1234", "hardware": "another machine"}]
    record["cut"]["texts_chained"] = 1234
    (copy / "run.json").write_text(json.dumps(record))
    shown = Page(write_report(copy, evaluate=False).read_text("utf-8")).text
    assert "at commit abc1234, on another machine" in shown
    assert re.search(r"texts cut into a chain of nodes\s*1,234", shown)


def test_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RamifyError, match="is not a run"):
        write_report(tmp_path)


def test_model_without_context_has_one_column(store, tmp_path):
    run = trained("bert", store, tmp_path / "bert")
    assert not any("dev_loss_none" in record for record in read_metrics(run))
    page = write_report(run).read_text("utf-8")
    assert Page(page).tags.count("figure") == 3
    assert "saved" not in Page(page).text
    assert "with ancestors" not in Page(page).text


# --- filled masks -----------------------------------------------------------------------------------------------------


def test_masks_are_chosen_by_the_rule(run, store):
    task = ramify.load(run).task
    found = fillings(task, store, "dev")
    inside = np.isin(store.tree_of(np.arange(store.num_nodes)), store.split("dev"))
    nodes = np.flatnonzero(inside & (store.depth >= 2))
    nodes = nodes[np.argsort(node_seeds(store, nodes))]
    expected = []
    for node, own in zip(nodes, store.texts(nodes)):
        place = mask_longest_word(task, own, task.tokenizer.encode(own))
        if place is not None:
            expected.append((own[: place[0]], own[place[0] : place[1]], int(store.depth[node])))
    assert [(each.before, each.word, len(each.ancestors)) for each in found] == expected[:10]


def test_longest_word_of_one_piece(run):
    task = ramify.load(run).task
    own = "bold script alert alert"
    ids = task.tokenizer.encode(own)
    start, stop, place = mask_longest_word(task, own, ids)
    assert own[start:stop] == "script"
    assert task.tokenizer.decode([ids[place]]) == "script"
    assert mask_longest_word(task, "?! 12", task.tokenizer.encode("?! 12")) is None
    long = "alert " * task.input.max_tokens
    assert mask_longest_word(task, long, task.tokenizer.encode(long)) is None


def test_filled_masks_equal_fill_mask(run, store):
    model = ramify.load(run)
    task = model.task
    example = fillings(task, store, "dev", count=1)[0]
    mask = task.tokenizer.token(task.tokenizer.mask_id)
    texts = [*example.ancestors, f"{example.before}{mask}{example.after}"]
    thread = Tree(tuple(Node(own, (place - 1,) if place else (), id=str(place)) for place, own in enumerate(texts)))
    for context, guess in example.guesses.items():
        answer = model.fill_mask(thread, len(texts) - 1, context=context, top_k=3).masks[0].tokens
        assert [token for token, _ in guess.tokens] == [each.token for each in answer]
        assert [share for _, share in guess.tokens] == pytest.approx([each.probability for each in answer], abs=1e-6)
        word = model.fill_mask(thread, len(texts) - 1, context=context, top_k=task.tokenizer.vocab_size).masks[0].tokens
        assert guess.probability == pytest.approx(
            next(each.probability for each in word if each.token == example.word.lower()), abs=1e-6
        )


# --- charts and text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.031, 0.002), (5.9, 6.4), (0.0, 6e6), (1e-9, 2e-9)])
def test_ticks_are_round_and_inside(low, high):
    axis = charts.Axis(low, high, 0.0, 100.0)
    ticks = np.array(axis.ticks(6))
    steps = np.diff(ticks)
    assert 2 <= len(ticks) <= 7
    assert ticks.min() >= low - 1e-9 * (high - low)
    assert ticks.max() <= high + 1e-9 * (high - low)
    assert np.allclose(steps, steps[0])
    assert round(steps[0] / 10 ** np.floor(np.log10(steps[0]) + 1e-9), 6) in (1, 2, 5)


def test_smooth_is_the_mean_of_the_last_values():
    values = np.random.default_rng(0).normal(size=50)
    expected = [values[max(0, end - 7) : end].mean() for end in range(1, 51)]
    assert np.allclose(smooth(values, 7), expected)


def test_chart_keeps_the_first_and_the_last_point():
    x = np.arange(1, 5001.0)
    svg = charts.line_chart(Chart((Line("a<b", "train", x, np.sin(x / 500)),), "steps", "loss"))
    line = ElementTree.fromstring(svg).find(".//polyline").get("points").split()
    assert len(line) == charts.POINTS
    assert float(line[-1].split(",")[0]) == charts.WIDTH - charts.RIGHT


def test_chart_leaves_out_infinite_values():
    x, y = np.arange(4.0), np.array([1.0, np.nan, 2.0, np.inf])
    svg = charts.line_chart(Chart((Line("a", "dev", x, y, marks=True),), "steps", "loss"))
    assert len(ElementTree.fromstring(svg).findall("circle")) == 2


def test_dot_chart():
    series = (
        Dots("a<b", "none", ((0.1, 0.0, 0.2), None, (-0.1, -0.3, 0.1))),
        Dots("c", "gain", ((0.2, 0.1, 0.4), (np.nan, 0.0, 0.0), None)),
    )
    tree = ElementTree.fromstring(charts.dot_chart(DotChart(("1", "2", "<3"), series, "depth", "saved")))
    dots = {kind: [each for each in tree.findall("circle") if each.get("class") == kind] for kind in ("none", "gain")}
    assert [len(each) for each in dots.values()] == [2, 1]
    assert [each.find("title").text for each in dots["none"]] == [
        "a<b, 1: +0.1000 (+0.0000 to +0.2000)",
        "a<b, <3: -0.1000 (-0.3000 to +0.1000)",
    ]
    bars = [each for each in tree.findall("line") if each.get("class") in ("none", "gain")]
    (zero,) = (each for each in tree.findall("line") if each.get("class") == "zero")
    # SVG's y axis points down.
    heights = {name: float(dots[kind][place].get("cy")) for name, kind, place in (("+", "none", 0), ("-", "none", 1))}
    assert heights["+"] < float(zero.get("y1")) < heights["-"]
    assert float(bars[0].get("y1")) > heights["+"] > float(bars[0].get("y2"))
    # Series stand side by side within a category.
    first, second = float(dots["none"][0].get("cx")), float(dots["gain"][0].get("cx"))
    assert 0 < second - first < (charts.WIDTH - charts.LEFT) / 3
    assert "nothing to draw" in charts.dot_chart(DotChart(("1",), (Dots("a", "none", (None,)),), "x", "y"))


def test_curve_of_the_spread():
    metrics = [{"step": step, "loss": 1.0, "target_tokens": 10 * step} for step in range(5)]
    for step in (3, 4):
        metrics[step]["context_spread"] = 0.1 * step
    body = draw(curves(metrics, "tree")).body
    assert body.count('<circle class="spread"') == 2
    assert '<span class="key spread">' in body
    assert "spread" not in draw(curves(metrics[:2], "tree")).body


def test_empty_curves():
    assert "No steps have been logged" in draw(curves([], "tree")).body


def test_text_is_one_escaped_line():
    assert text("a\n <b>&\x00\ud800'") == "a &lt;b&gt;&amp;\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}&#x27;"
    assert shortened("one two  three", 9) == "one two …"
    assert shortened("one  two", 9) == "one two"
    assert [percent(share) for share in (1.0, 0.123, 0.0123, 4.56e-5, 0.0)] == [
        "100 %",
        "12 %",
        "1.2 %",
        "0.0046 %",
        "0.0000000 %",
    ]


@pytest.mark.ill_typed
def test_page_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, kind="k", title="t", lead="", sections=[HtmlSection("s", "<p>x</p>")])
    before = path.read_text("utf-8")
    with pytest.raises(AttributeError):
        write_page(path, kind="k", title="t", lead="", sections=[None])
    assert path.read_text("utf-8") == before
    assert list(tmp_path.iterdir()) == [path]
