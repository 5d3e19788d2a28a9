"""Commands on ELMo: train, evaluate, embed, generate, report; and what it cannot do."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

from fixtures import built
from fixtures.commands import call, refusal
from fixtures.running import WORDS, documents

SETTINGS = {
    "train.steps": 4,
    "train.log_every": 1,
    "model.dim": 8,
    "model.hidden": 12,
    "model.filters": "[[1, 4], [2, 4]]",
    "view.streams": 2,
    "tokenizer.vocab_size": 16,
    "dev.rows": 8,
}


def settings(**changes):
    return [f"--set={key}={value}" for key, value in (SETTINGS | changes).items()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return built(documents(40), tmp_path_factory.mktemp("data"), (0.6, 0.2, 0.2)).path


@pytest.fixture(scope="module")
def elmo(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("elmo") / "run"
    call("train", "elmo", "--data", data, "--out", out, *settings())
    return out


def test_training_says_how_many_words_are_read_by_their_characters_alone(elmo):
    record = json.loads((elmo / "run.json").read_text())
    assert record["kind"] == "streams"
    assert record["text"]["words_by_characters"] > 0
    assert record["text"]["words_cut"] == 0
    page = (elmo / "report.html").read_text()
    assert "The perplexity is" in page
    assert "rows that read backwards" in page


def test_evaluate(elmo, data):
    scores = json.loads(call("evaluate", elmo, "--data", data, "--split", "test", "--json").stdout)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))
    assert scores["loss"] == pytest.approx(np.mean([*scores["directions"].values()]), rel=1e-6)
    assert scores["count"] == 20 * scores["rows"]
    assert scores["unknown_tokens"] > 0
    assert scores["given"] == "before, or after"
    done = call("evaluate", elmo, "--data", data, "--split", "test")
    assert "perplexity" in done.stdout
    # Every window holds a word that the small vocabulary lacks.
    assert "windows with unknown tokens left out" in done.stdout
    assert "The model predicts all unknown tokens as the same token, although it reads their characters." in done.stderr
    forgetful = json.loads(call("evaluate", elmo, "--data", data, "--split", "test", "--memory", 0, "--json").stdout)
    assert forgetful["loss"] != scores["loss"]
    assert "memory=3 counts states of earlier tokens" in refusal("evaluate", elmo, "--data", data, "--memory", 3)


def test_forward_words_and_a_decoder_on_one_footing(data, tmp_path):
    """Models of one tokenizer predict the same tokens, each from those before it."""
    tokenizer = tmp_path / "tokenizer.json"
    call("tokenizer", "train", data, "--out", tokenizer, "--kind", "bpe", "--vocab-size", 300)
    call(
        *("train", "elmo", "--data", data, "--out", tmp_path / "elmo", "--directions", "forward", "--input", "words"),
        *("--tokenizer", tokenizer, *settings(**{"tokenizer.vocab_size": 300})),
    )
    small = [f"--set={key}={value}" for key, value in {"model.dim": 16, "model.num_heads": 2, "model.ffn_dim": 16}.items()]
    call("train", "gpt", "--data", data, "--out", tmp_path / "gpt", "--steps", 2, "--tokenizer", tokenizer, *small)
    one, other = (
        json.loads(call("evaluate", tmp_path / name, "--data", data, "--split", "test", "--json").stdout)
        for name in ("elmo", "gpt")
    )
    assert one["directions"].keys() == {"forward"}
    for key in ("given", "positions", "window", "windows_with_unknown_tokens"):
        assert one[key] == other[key]
    assert one["given"] == "before"
    assert one["per_byte"] > 0
    assert other["per_byte"] > 0
    assert "one token given those before it" in call("evaluate", tmp_path / "gpt", "--data", data).stdout


def test_verbs(elmo, data, tmp_path):
    generated = json.loads(call("generate", elmo, "--prompt", "the", "--tokens", 4, "--json").stdout)
    assert generated["tokens"] == 4
    call("embed", elmo, "--data", data, "--out", tmp_path / "vectors.parquet")
    assert len(pq.read_table(tmp_path / "vectors.parquet")["vector"][0]) == 16
    message = refusal("fill-mask", elmo, "--text", f"{WORDS[0]} [MASK]")
    assert "cannot fill masks; it supports generate, embed, nearest. Choose a masked language model or an XLNet" in message


def test_nearest_reads_the_characters_of_a_query(elmo, data):
    """No word of it looks like another, so there is no note on unknown words."""
    found = call("nearest", elmo, "--data", data, "--query", "xyzzy quux", "--json")
    assert json.loads(found.stdout)
    assert "unknown" not in found.stderr


def test_the_published_training(data, tmp_path):
    """Adagrad, the factor of the loss, sampled softmax, and rows without a state."""
    extra = {"task.sampled": 5, "model.stateful": "false", "model.input": "words"}
    call("train", "elmo", "--data", data, "--out", tmp_path / "run", "--published", *settings(**extra))
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    (stage,) = record["run"]["stages"]
    assert (stage["optimizer"], stage["loss_scale"], stage["accumulator_start"], stage["clip"]) == ("adagrad", 20.0, 1.0, 10.0)
    assert (stage["lr"], stage["schedule"]) == (0.2, "constant")
    scores = json.loads(call("evaluate", tmp_path / "run", "--data", data, "--split", "dev", "--json").stdout)
    whole = json.loads(call("evaluate", tmp_path / "run", "--data", data, "--split", "dev", "--memory", 0, "--json").stdout)
    assert scores == whole
    # All losses are those of the whole vocabulary but the ones that are trained.
    assert 1 < scores["loss"] < 4


def test_directions_of_streams_and_model_agree(data, tmp_path):
    message = refusal("train", "elmo", "--data", data, "--out", tmp_path / "run", *settings(**{"view.directions": "forward"}))
    assert "view.directions=forward reads rows in other directions than a model with model.directions=both" in message
    message = refusal(
        "train", "elmo", "--data", data, "--out", tmp_path / "run", *settings(**{"input.memory_reset": "document"})
    )
    assert "input.memory_reset=document forgets a part of a row" in message
