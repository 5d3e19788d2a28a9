"""The pages on recurrent encoders, ELMo and the Transformer, and BERT's data flow: their examples run, and their pictures and
tables show what the package computes."""

import doctest
import importlib.util
import json
import re
import shlex

import numpy as np
import pytest

from fixtures.pages import DOCS, check_drawings, check_page_shows_all, figures_of, page_of

PAGES = {name: page_of(name) for name in ("recurrent", "elmo", "transformer", "bert")}


@pytest.fixture(scope="module")
def figures():
    module = figures_of("foundation_figures")
    before, module.UPDATES = module.UPDATES, 2
    yield module
    module.UPDATES = before


def cells(table):
    return {
        first: rest
        for first, *rest in ([cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines())
    }


@pytest.mark.parametrize("name", ["recurrent", "elmo", "transformer"])
def test_examples(name, capsys):
    text = "".join(re.findall(r"^```python\n(.*?)^```", PAGES[name], re.MULTILINE | re.DOTALL))
    examples = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
    assert len(examples.examples) > 10
    runner = doctest.DocTestRunner()
    runner.run(examples)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


def test_every_drawing_and_table_is_in_a_page(figures):
    check_page_shows_all("".join(PAGES.values()), figures)
    names = re.findall(r"\{drawing\} (\S+)", figures.computed_table())
    assert names == [*figures.COMPUTED]


def test_drawings_are_well_formed_and_inside_their_frames(figures):
    check_drawings(figures)


# --- receptive fields -----------------------------------------------------------------------------------------------------


def test_captions_say_which_squares_are_empty(figures):
    """What the pages say of small trained models."""
    count = len(figures.sentence().ids)
    later = np.triu(np.ones((count, count), dtype=bool), 1)
    one_sided = {"one way": later, "forward": later, "backward": later.T, "decoder": later}
    fields = (figures.recurrent_field(), figures.elmo_field(), figures.transformer_field())
    panels = {name: norms for field in fields for name, norms in field.panels.items()}
    assert len(panels) == 12
    for name, norms in panels.items():
        empty = one_sided.get(name.split(",")[0], np.zeros_like(later))
        np.testing.assert_array_equal(norms == 0, empty, err_msg=name)


def test_strength_is_the_logarithm_of_the_share(figures):
    norms = np.array([[1.0, 10.0, 100.0], [5.0, 0.0, 5e-9]])
    np.testing.assert_allclose(figures.strength(norms), [[1 / 3, 2 / 3, 1], [1, 0, 0]], atol=1e-12)


def test_gradients_vanish_with_distance_but_for_open_gates_and_attention(figures):
    last = {name: figures.distance_norms(name, fresh=True)[-1] for name in figures.READERS}
    assert last["RNN"] < 1e-6
    assert last["LSTM"] < 1e-5
    assert last["LSTM, open gates"] > 0.1
    assert last["Transformer"] > 0.01
    assert figures.short(0.0321) == "0.03"
    assert figures.short(4.2e-7) == "4·10<sup>−7</sup>"


def test_an_lstm_remembers_if_its_gates_are_open(figures):
    settings, _ = figures.REMEMBERING["LSTM, forget bias 0"]
    assert figures.recalled(settings, 0.0, between=24) < 0.5
    assert figures.recalled(settings, 3.0, between=24) > 0.9


def benchmark():
    spec = importlib.util.spec_from_file_location(
        "receptive_fields_benchmark", DOCS.parent / "benchmarks" / "receptive_fields.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_saved_fields_are_those_that_the_command_computes(figures, tmp_path):
    file = tmp_path / "fields.json"
    file.write_text('{"another": {"panels": {}}}')
    saved = figures.computed_fields()["tree-mlm-small"]
    benchmark().main([*shlex.split(saved["command"])[2:], "--out", str(file)])
    written = json.loads(file.read_text("utf-8"))
    assert written.keys() == {"another", "tree-mlm-small"}
    assert written["tree-mlm-small"]["command"] == saved["command"]
    assert written["tree-mlm-small"]["tokens"] == saved["tokens"]
    for name, norms in saved["panels"].items():
        np.testing.assert_allclose(written["tree-mlm-small"]["panels"][name], norms, rtol=0.02)


def test_parts_have_panels_of_their_own(tmp_path):
    file = tmp_path / "fields.json"
    benchmark().main(
        ["tree-mlm-small", "--describe", "a model", "--parts", "left", "right", "--text", "it is", "--out", str(file)]
    )
    saved = json.loads(file.read_text("utf-8"))["tree-mlm-small"]
    assert [*saved["panels"]] == [f"{part}, layer {layer}" for layer in (1, 2) for part in ("left", "right")]
    assert "--parts left right --text 'it is'" in saved["command"]


# --- tables ---------------------------------------------------------------------------------------------------------------


def test_variances_of_scores(figures):
    for size, (sums, scaled, *weights) in list(cells(figures.score_table()).items())[2:]:
        for cell, expected in ((sums, float(size)), (scaled, 1.0)):
            value, error = (float(part.replace(",", "")) for part in cell.split(" ± "))
            assert abs(value - expected) <= 4 * error
        assert float(weights[0]) >= float(weights[1]) - 0.005


def test_published_sizes_are_counted(figures):
    counted = {name: number for name, (_, number) in list(cells(figures.size_table()).items())[2:]}
    assert counted == {
        "ELMo": "93,600,864",
        "BERT, base": "109,482,240",
        "BERT, large": "335,141,888",
        "Transformer, base": "63,082,496",
        "Transformer, big": "214,245,376",
    }
    *parts, total = [row[0] for row in list(cells(figures.elmo_table()).values())[2:]]
    assert sum(int(part.replace(",", "")) for part in parts) == int(total.strip("*").replace(",", "")) == 93_600_864


def test_states_grow_and_gradients_shrink_with_depth_before_norms_only(figures):
    states, gradients = figures.fresh_stack("pre")
    assert states[-1] > 2 * states[0]
    assert gradients[-1] < 0.5 * gradients[0]
    states, gradients = figures.fresh_stack("post")
    assert states[-1] == pytest.approx(states[0], rel=0.05)
    assert gradients[-1] > 0.5 * gradients[0]


def test_data_flow_of_bert(figures):
    flow = figures.flow()
    assert " ".join(flow.pieces) == "[CLS] the dog [MASK] [SEP] the cat [MASK] away [SEP]"
    assert flow.targets == {3: "barked", 7: "ran"}
    assert flow.segments == [0] * 5 + [1] * 5
    assert flow.shapes["sum"] == flow.shapes["states"] == flow.shapes["word"] == (10, 128)
    assert flow.shapes["weights"] == (2, 10, 10)
    assert (flow.shapes["pooled"], flow.shapes["next"]) == ((1, 128), (1, 2))
    assert flow.shapes["scores"][0] == 2


def test_heads_add_up_to_one(figures):
    tokens, weights = figures.heads()
    assert len(weights) == 12
    for shares in weights.values():
        assert shares.shape == (len(tokens), len(tokens))
        np.testing.assert_allclose(shares.sum(-1), 1, atol=1e-5)
