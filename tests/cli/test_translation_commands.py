"""Commands on models that translate: build pairs, train, translate, evaluate."""

import gzip
import json
import sys
from dataclasses import replace

import pytest

from fixtures.parallel import TINY, pairs, write_files
from ramify.cli.translate import lines
from ramify.cli.verbs import Asked
from ramify.inference.answers import Translation, TranslationHypothesis

TEXTS = pairs(90, lambda words: words[::-1])


@pytest.fixture(scope="module")
def data(ramify_once, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    files = []
    for name, texts in (("train", TEXTS[:70]), ("val", TEXTS[70:80]), ("test", TEXTS[80:])):
        for file in write_files(folder, name, texts):
            packed = file.with_suffix(file.suffix + ".gz")
            packed.write_bytes(gzip.compress(file.read_bytes()))
            files.append(packed)
    code, _, err = ramify_once("data", "build", *files, "--format", "parallel", "--out", folder / "data")
    assert code == 0, err
    return folder / "data"


@pytest.fixture(scope="module")
def run(ramify_once, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("translator") / "run"
    settings = [f"--set={key}={value}" for key, value in TINY.items()]
    code, _, err = ramify_once("train", "transformer", "--data", data, "--out", out, *settings)
    assert code == 0, err
    assert "data: 70 pairs, " in err
    assert f"next: ramify evaluate {out} --data {data}" in err
    return out


def test_a_text_in_json(ramify, run):
    code, out, err = ramify("translate", run, "--text", "ba be", "--n-best", 2, "--json")
    assert code == 0, err
    (answer,) = json.loads(out)
    assert answer.keys() == {"source", "translations"}
    assert answer["source"] == "ba be"
    assert len(answer["translations"]) == 2
    assert all(translation.keys() == {"text", "score"} for translation in answer["translations"])


def test_a_file_line_by_line(ramify, run, tmp_path):
    file = tmp_path / "sources.en.gz"
    file.write_bytes(gzip.compress(b"ba be\n\nce\n"))
    code, out, err = ramify("translate", run, file, "--json")
    assert code == 0, err
    answers = json.loads(out)
    assert [answer["source"] for answer in answers] == ["ba be", "", "ce"]
    code, out, _ = ramify("translate", run, file)
    assert out.split("\n") == [*(answer["translations"][0]["text"] if answer["translations"] else "" for answer in answers), ""]
    code, out, _ = ramify("translate", run, file, "--n-best", 2)
    assert [line == "" for line in out.split("\n")] == [False, False, True, True, False, False, True]


def test_lines_in_another_encoding_are_noted(ramify, run, tmp_path):
    file = tmp_path / "sources.txt"
    file.write_bytes(b"ba be\nb\xe4\r\nce")
    code, out, err = ramify("translate", run, file, "--json")
    assert code == 0, err
    assert [answer["source"] for answer in json.loads(out)] == ["ba be", "bä", "ce"]
    assert f"note: 1 line not in UTF-8, read as Windows-1252; the first is {file}, line 2" in err


def test_an_option_that_the_model_to_start_from_contradicts(ramify_once, data, tmp_path):
    small = [f"--set={key}={value}" for key, value in {"model.dim": 8, "model.hidden": 8}.items()]
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    command = ("train", "seq2seq", "--data", data, "--steps", 1)
    code, _, err = ramify_once(*command, "--attention", "none", "--out", first, *small)
    assert code == 0, err
    code, _, err = ramify_once(*command, "--init", first, "--out", second)
    assert code == 0, err
    assert json.loads((second / "config.json").read_text())["model"]["attention"] == "none"
    code, _, err = ramify_once(*command, "--init", first, "--attention", "dot", "--out", third)
    assert code == 2
    assert (
        f"--attention dot differs from --init {first}, whose model has attention=none, not dot. Leave out one of the two."
        in err
    )


def test_the_published_model_differs_from_that_of_a_run(ramify_once, data, run, tmp_path):
    code, _, err = ramify_once("train", "transformer", "--data", data, "--published", "--init", run, "--out", tmp_path / "run")
    assert code == 2
    assert f"--published differs from --init {run}, whose model has dim=16, not 512. Leave out one of the two." in err


def test_a_translation_of_several_lines_is_printed_on_one():
    """A reply may have several, but every source has one line of output."""
    hypotheses = TranslationHypothesis("one\ntwo", -1.0), TranslationHypothesis("\x1b[31mred", -2.0)
    asked = Asked({"n_best": 1}, None, (), [Translation("a", hypotheses), Translation("", ())])
    assert [*lines(asked)] == ["one two", ""]
    assert [*lines(replace(asked, given={"n_best": 2}))] == ["-1.0000 one two", "-2.0000 [31mred", ""]


def test_scores_in_json_and_as_text(ramify, run, data):
    code, out, err = ramify("evaluate", run, "--data", data, "--split", "test", "--json")
    assert code == 0, err
    scores = json.loads(out)
    assert {"loss", "perplexity", "bleu", "signature", "floor_copy", "count"} <= scores.keys()
    assert scores["count"] == 10
    code, out, _ = ramify("evaluate", run, "--data", data, "--beam", 1)
    assert "nats per token, perplexity" in out
    assert "of the copied sources" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Missing argument 'FILE'. Name a file with one text per line, or give a text with --text."),
        (("none.txt", "--text", "ba"), "both give texts"),
        (("--text", "ba", "--text", "be"), "--text is given 2 times, as 'ba' and as 'be', but is one text"),
        (("/",), "/ is a folder, but a file is needed. Name a file in it."),
        (("--text", "ba", "--beam", "10000"), "beam=10000 must be below the size of the vocabulary"),
        (("--text", "ba " * 600), "source 1 has 600 tokens, but this model reads at most 511 and the end."),
    ],
)
def test_refusals_of_translate(ramify, run, words, message):
    code, _, err = ramify("translate", run, *words)
    assert code == 2
    assert message in err


def test_sources_longer_than_those_of_training_are_counted(ramify, run, tmp_path):
    file = tmp_path / "sources.txt"
    file.write_text(f"{'ba ' * 130}\n{'ba ' * 127}\nce\n")
    code, _, err = ramify("translate", run, file, "--beam", 1)
    assert code == 0, err
    assert "note: 1 of 3 sources has 130 tokens, but the model was trained on at most 127 (input.max_source_tokens)." in err
    _, _, err = ramify("translate", run, "--text", "ba " * 128, "--beam", 1)
    assert "note: the source has 128 tokens, but the model was trained on at most 127 (input.max_source_tokens)." in err


def test_a_beam_of_0_and_a_model_asked_to_fill_masks(ramify, run):
    code, _, err = ramify("translate", run, "--text", "ba", "--beam", 0)
    assert code == 2
    assert "--beam" in err
    code, _, err = ramify("fill-mask", run, "--text", "ba [MASK]")
    assert code == 2
    assert f"{run} cannot fill masks; it supports translate, embed, attention, nearest" in err


def test_a_model_that_cannot_translate(ramify, trained):
    code, _, err = ramify("translate", trained, "--text", "ba")
    assert code == 2
    assert "cannot translate; it supports" in err


def test_scores_without_sacrebleu(ramify, run, data, monkeypatch):
    """The loss is printed, and one line names the extra."""
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    code, out, err = ramify("evaluate", run, "--data", data, "--split", "test", "--json")
    assert code == 0, err
    scores = json.loads(out)
    assert scores["loss"] > 0
    assert scores["perplexity"] > 1
    assert [scores[name] for name in ("bleu", "signature", "floor_copy")] == [None] * 3
    assert [line for line in err.splitlines() if "BLEU" in line] == [
        'warning: BLEU is left out, because sacrebleu is not installed. Install it: pip install "ramify[translate]"'
    ]
    code, out, _ = ramify("evaluate", run, "--data", data)
    assert "nats per token, perplexity" in out
    assert "BLEU" not in out


@pytest.mark.parametrize(
    ("sources", "targets", "message"),
    [
        ("a\nb\n", "x\n", "all.en has 2 lines, but all.de has 1. Line by line, each file must translate the other"),
        ("\n\n", "x\ny\n", "left out: empty_side 4. For example all.en, line 1: no source"),
    ],
)
def test_pairs_that_are_none(ramify, tmp_path, monkeypatch, sources, targets, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.en").write_text(sources)
    (tmp_path / "all.de").write_text(targets)
    code, _, err = ramify("data", "build", "all.en", "all.de", "--format", "parallel", "--out", "data")
    assert code == 2
    assert message in err


def test_pairs_with_an_empty_side_are_counted(ramify, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.en").write_text("a b\n\nc\n")
    (tmp_path / "all.de").write_text("x y\nz\n\n")
    code, out, err = ramify("data", "build", "all.en", "all.de", "--format", "parallel", "--out", "data", "--split", "1,0,0")
    assert code == 0, err
    assert "left out: empty_side 4" in out + err


def test_a_source_longer_than_the_model_reads_is_refused_before_training(ramify, data, tmp_path):
    settings = [f"--set={key}={value}" for key, value in (TINY | {"model.max_tokens": "64"}).items()]
    code, _, err = ramify("train", "transformer", "--data", data, "--out", tmp_path / "run", *settings)
    assert code == 2
    assert "input.max_tokens=128 is more than the 64 tokens that the model reads. Lower input.max_tokens" in err


@pytest.fixture(scope="module")
def texts_runs(ramify_once, data, tmp_path_factory):
    """Runs of running text: a causal model, and a T5."""
    out = tmp_path_factory.mktemp("texts")
    for recipe, vocabulary in (("gpt", "60"), ("t5", "160")):
        fitting = {key: value for key, value in TINY.items() if recipe == "t5" or key != "model.encoder_layers"}
        settings = [f"--set={key}={value}" for key, value in (fitting | {"tokenizer.vocab_size": vocabulary}).items()]
        code, _, err = ramify_once("train", recipe, "--data", data, "--out", out / recipe, *settings)
        assert code == 0, err
    assert "rows of running text with spans of 15% of their tokens; " in err
    return out


def test_a_causal_model_fills_no_masks(ramify, texts_runs):
    code, _, err = ramify("fill-mask", texts_runs / "gpt", "--text", "ba [MASK]")
    assert code == 2
    assert "gpt cannot fill masks; it supports score, generate, embed, attention, nearest" in err


def test_attention_to_the_source(ramify, run, tmp_path):
    out = tmp_path / "heads.html"
    words = ("attention", run, "--text", "ba be", "--target", "be <b> ba", "--out", out, "--json")
    code, printed, err = ramify(*words)
    assert code == 0, err
    answer = json.loads(printed)
    assert answer["target"] == "be <b> ba"
    assert [(table["stack"], table["kind"]) for table in answer["attention"]] == [
        ("encoder", "self"),
        ("decoder", "self"),
        ("decoder", "cross"),
    ]
    page = out.read_text()
    assert "reads this text as the source of this target: “be &lt;b&gt; ba”" in page
    titles = ("Encoder: self-attention", "Decoder: self-attention", "Decoder: attention to the source")
    assert all(f"{title}</h2>" in page for title in titles)
    # The right column has tokens, not the texts of ancestors.
    assert '<div class="links ancestors-read">' not in page


def test_attention_of_models_of_running_text(ramify, texts_runs, tmp_path):
    code, printed, err = ramify("attention", texts_runs / "gpt", "--text", "ba be", "--json", "--out", tmp_path / "heads.html")
    assert code == 0, err
    answer = json.loads(printed)
    assert "target" not in answer
    assert [(table["stack"], table["kind"]) for table in answer["attention"]] == [("decoder", "self")]
    code, _, err = ramify("attention", texts_runs / "gpt", "--text", "ba", "--target", "be", "--json")
    assert code == 2
    assert "--target be needs a model that predicts texts from sources, and" in err
    code, printed, err = ramify("attention", texts_runs / "t5", "--text", "ba <extra_id_0> be", "--json")
    assert code == 0, err
    assert "<extra_id_0>" in json.loads(printed)["attention"][0]["keys"]
    code, _, err = ramify("attention", texts_runs / "t5", "--text", "ba be", "--json")
    assert code == 2
    assert "source 1 has no <extra_id_0>" in err


def test_a_text_longer_than_those_of_training_is_noted(ramify, texts_runs):
    for repeats, is_noted in ((128, True), (40, False)):
        code, _, err = ramify("generate", texts_runs / "gpt", "--prompt", "ba " * repeats, "--tokens", 1, "--temperature", 0)
        assert code == 0, err
        assert ("but the model was trained on at most 128 (input.max_tokens)" in err) is is_noted


def test_a_repeated_prompt_is_refused(ramify, texts_runs):
    code, _, err = ramify("generate", texts_runs / "gpt", "--prompt", "ba", "--prompt", "be")
    assert code == 2
    assert "--prompt is given 2 times, as 'ba' and as 'be', but is one text" in err


@pytest.mark.parametrize("beam", [0, 10_000])
def test_a_beam_of_no_width_or_as_wide_as_the_vocabulary(ramify, run, data, texts_runs, beam):
    for words in (
        ("generate", texts_runs / "gpt", "--prompt", "ba", "--tokens", 3),
        ("translate", run, "--text", "ba"),
        ("evaluate", run, "--data", data),
    ):
        code, _, err = ramify(*words, "--beam", beam)
        assert code == 2
        assert ("beam" in err) if beam == 0 else ("beam=10000 must be below the size of the vocabulary" in err)


def test_a_t5_fills_gaps(ramify, texts_runs, data):
    code, out, err = ramify("translate", texts_runs / "t5", "--text", "ba <extra_id_0> be", "--json")
    assert code == 0, err
    (answer,) = json.loads(out)
    assert answer["source"] == "ba <extra_id_0> be"
    assert len(answer["translations"]) == 1
    code, _, err = ramify("translate", texts_runs / "t5", "--text", "ba be")
    assert code == 2
    assert "source 1 has no <extra_id_0>, but this model has learned to fill gaps alone (input.source=corrupted)" in err
    code, _, err = ramify("fill-mask", texts_runs / "t5", "--text", "ba [MASK]")
    assert code == 2
    assert "t5 cannot fill masks; it supports translate, embed, attention, nearest" in err
    code, out, err = ramify("evaluate", texts_runs / "t5", "--data", data, "--rows", 3, "--json")
    assert code == 0, err
    assert json.loads(out)["count"] == 3
