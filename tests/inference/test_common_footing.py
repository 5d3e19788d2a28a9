"""The common footing: the same tokens for every model, and a masked model's probabilities of them."""

import numpy as np
import pytest
import torch

from fixtures import bert_task, discussions, tokenizer
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.running_text import RunningText
from ramify.batching.views.pairs import PairInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.common_footing import CommonFooting
from ramify.inference.next_token_evaluation import TokensBefore
from ramify.inference.row_evaluation import masked_log_probabilities, on_common_footing, readable_window
from ramify.models.transformer import TransformerConfig
from ramify.nn.ragged import Rows
from ramify.tasks.next_token import NextTokenConfig, NextTokenLM


@pytest.fixture(scope="module")
def text():
    return RunningText.open(Store.from_trees(discussions(30, 12)), tokenizer(), "all")


def test_positions_are_distinct_and_fixed(text):
    footing = CommonFooting.of(text, tokenizer(), window=20, count=300)
    again = CommonFooting.of(text, tokenizer(), window=20, count=300)
    assert np.array_equal(footing.rows, again.rows)
    assert np.array_equal(footing.positions, again.positions)
    assert footing.rows.shape == (300, 20)
    windows = text.ids[: text.num_tokens // 20 * 20].reshape(-1, 20)
    found = {(windows.tolist().index(row.tolist()), int(place)) for row, place in zip(footing.rows, footing.positions)}
    assert len(found) == 300
    assert footing.num_bytes.tolist() == [2] * 300
    # More positions than tokens are all tokens; a short text is one window.
    assert len(CommonFooting.of(text, tokenizer(), window=20, count=10**6).positions) == windows.size
    assert CommonFooting.of(text, tokenizer(), window=10**6).rows.shape[1] == text.num_tokens


def test_special_tokens_are_not_predicted(text):
    ids = text.ids.copy()
    ids[::3] = tokenizer().mask_id
    other = RunningText(ids, text.sentences, text.paragraphs, text.documents)
    footing = CommonFooting.of(other, tokenizer(), window=30)
    answers = footing.rows[np.arange(len(footing.rows)), footing.positions]
    assert not np.isin(answers, tokenizer().special_ids).any()
    nothing = RunningText(np.full_like(ids, 1), text.sentences, text.paragraphs, text.documents)
    with pytest.raises(RamifyError, match="no token with a text to predict"):
        CommonFooting.of(nothing, tokenizer())


def test_sums_are_per_byte_and_per_token(text):
    footing = CommonFooting.of(text, tokenizer(), window=20, count=300)
    found = footing.measure(lambda rows, positions: -positions.astype(np.float64), rows=7)
    assert found.per_token == pytest.approx(footing.positions.mean())
    assert found.per_byte == pytest.approx(footing.positions.mean() / 2)


@torch.no_grad()
def test_one_token_is_masked_and_all_others_are_read(text):
    task = bert_task()
    footing = CommonFooting.of(text, tokenizer(), window=readable_window(task), count=20)
    assert readable_window(task) == 30
    found = masked_log_probabilities(task)(footing.rows, footing.positions)
    for row, place, value in zip(footing.rows, footing.positions, found):
        ids = [tokenizer().cls_id, *row.tolist(), tokenizer().sep_id]
        ids[place + 1] = tokenizer().mask_id
        rows = Rows.build([len(ids)])
        states = task.backbone.stack(task.backbone.embeddings(torch.tensor(ids), rows.positions), rows)
        expected = task.head(states)[place + 1].float().log_softmax(-1)[row[place]]
        assert value == pytest.approx(float(expected), abs=1e-5)
    assert on_common_footing(task, footing).per_token == pytest.approx(-found.mean())


def test_the_answer_cannot_leak(text):
    """Another token at the predicted place changes no prediction there."""
    task = bert_task()
    footing = CommonFooting.of(text, tokenizer(), window=30, count=20)
    places = np.arange(20), footing.positions
    predict = masked_log_probabilities(task)
    changed = footing.rows.copy()
    changed[places] = 7
    totals = np.zeros(20)
    for token in range(tokenizer().vocab_size):
        rows = changed.copy()
        rows[places] = token
        totals += np.exp(predict(rows, footing.positions))
    # The probabilities of all tokens at one place come from one distribution.
    assert totals == pytest.approx(np.ones(20), abs=1e-5)


@torch.no_grad()
def test_a_decoder_is_given_the_tokens_before(text):
    torch.manual_seed(0)
    sizes = {"dim": 16, "num_heads": 2, "ffn_dim": 16, "encoder_layers": 0, "decoder_layers": 2, "max_tokens": 40}
    config = TransformerConfig(vocab_size=tokenizer().vocab_size, **sizes)
    task = NextTokenLM(config.build(), tokenizer(), PairInput(), NextTokenConfig())
    footing = CommonFooting.of(text, tokenizer(), window=20, count=15)
    scores = footing.measure(TokensBefore(task), 4, given="before")
    assert scores.to_json()["given"] == "before"
    task.eval()
    for row, position, nats in zip(footing.rows, footing.positions.tolist(), scores.nats, strict=True):
        ids = torch.tensor([task.collator.begin, *row[:position]])
        logits, _ = task.start(EncoderInput.of_rows(ids, Rows.build([position + 1])))
        assert nats == pytest.approx(-logits.log_softmax(1)[0, int(row[position])].item(), abs=1e-5)
