"""BERT on pairs against BERT on each pair's row alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from chat_pairs import PIECES, WORDS, batch_of, bert, bert_pair, chat, plainly, read
from torch import Tensor

from ramify.batching.encoder_input import EncoderInput
from ramify.disentangle.models.bert_pair import BertPair, BertPairConfig, fit_texts
from ramify.errors import RamifyError
from ramify.nn.ragged import Rows


def state(own: BertPair, target: Tensor, candidate: Tensor) -> Tensor:
    """`[CLS] candidate [SEP] target [SEP]`. The longer text loses its end, token by token, until the row fits."""
    texts = [candidate[1:-1].tolist(), target[1:-1].tolist()]
    while len(texts[0]) + len(texts[1]) + 3 > own.config.encoder.max_tokens:
        texts[0 if len(texts[0]) > len(texts[1]) else 1].pop()
    opening, end = int(target[0]), int(target[-1])
    ids = [opening, *texts[0], end, *texts[1], end]
    types = [0] * (len(texts[0]) + 2) + [1] * (len(texts[1]) + 1)
    return own.encoder.vectors(EncoderInput.of_rows(torch.tensor(ids), Rows.build([len(ids)]), torch.tensor(types)))[0]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"encoder": bert(pooling="pooler"), "chunk_tokens": 90},
        {"encoder": bert(pooling="mean", max_tokens=22)},
        {"encoder": bert(max_tokens=9)},
        {"features": "head"},
        {"features": "head", "feature_layers": 1},
        {"features": "head", "years": False},
        {"features": "head", "context_features": True},
    ],
    ids=lambda config: ", ".join(config) or "plain",
)
@torch.no_grad()
def test_states_equal_those_of_each_pair_alone(config: dict[str, Any]) -> None:
    own, tree = bert_pair(**config), chat(13, 5)
    expected = plainly(own, tree, PIECES, lambda target, candidate: state(own, target, candidate))
    found = own(batch_of(read(tree, input=PIECES), context_features=own.reads_context_features))
    assert found.shape[1] == own.out_dim
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_long_pairs_are_cut_to_fit() -> None:
    lengths = np.array([(one, other) for one in range(12) for other in range(12)])
    for room in range(2, 24):
        one, other = fit_texts(lengths[:, 0], lengths[:, 1], room)
        assert (one + other == np.minimum(lengths.sum(1), room)).all()
        # Only the longer text is cut; if both are cut, their lengths differ by at most one token.
        cut = np.stack([one, other], axis=1) < lengths
        assert (abs(one - other)[cut.all(1)] <= 1).all()
        assert (one >= other)[cut[:, 0] & ~cut[:, 1]].all()
        assert (other >= one - 1)[cut[:, 1] & ~cut[:, 0]].all()


def test_encoders_too_small_for_pairs_are_refused() -> None:
    with pytest.raises(RamifyError, match="type_vocab_size=1 is too small"):
        BertPairConfig(encoder=bert(type_vocab_size=1))
    with pytest.raises(RamifyError, match="max_tokens=4 is too small"):
        BertPairConfig(encoder=bert(max_tokens=4))


def test_whole_words_are_refused() -> None:
    own = bert_pair()
    own.check_input(PIECES)
    with pytest.raises(RamifyError, match=r"input\.texts=pieces"):
        own.check_input(WORDS)
    with pytest.raises(RamifyError, match=r"input\.texts=pieces"):
        own.check_input(replace(PIECES, texts="words"))
