"""Names among the words of documents, hidden words with each bank, and what gates and questions choose."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures.letters import letter
from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import Store
from ramify.inference.documents.document_banks import units_of_nodes
from ramify.inference.documents.evaluation import evaluate_documents
from ramify.inference.documents.measures import HeldOut
from ramify.inference.documents.name_measures import (
    example_of,
    filters_of,
    gate_measures,
    gated_tokens,
    hidden_words,
    word_measures,
)
from ramify.inference.documents.node_reconstruction import reconstruct
from ramify.inference.documents.vectors import encode_documents, read_documents
from ramify.inference.documents.words import CLASSES, words_of
from ramify.models.agent import AgentConfig
from ramify.models.name_memory import NameMemoryConfig
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.task import NestedAutoencoder
from ramify.tokenizer import Tokenizer

NAMES = ("sentence", "paragraph", "document")
MANY = (
    (
        ("We saw Ann Lee there.", "Then Ann Lee sang.", "Old Tom waited."),
        ("A dog met Ann and Tom.", "The dog ran, and Ann ran.", "I and Tom sat.", ""),
    ),
    (("Here Tom and Ann talked.", "Ann's cat and Tom slept.", "I saw Bob, I think, and I left.", "I am. So I was."),),
)
FEW = (
    (("The Sea was calm.", "A sea gull cried to Max.", "We heard Max, Max and Max."), ("Max slept on.", "Nobody woke Max.")),
)
TREES = [letter("a", MANY), letter("b", FEW)]


def model(*, leave: bool = True, memory: bool = True, overflow="cut", vocab_size: int = 120) -> NestedAutoencoder:
    """A little model whose memory is open."""
    texts = [node.text for tree in TREES for node in tree.nodes]
    tokenizer = Tokenizer.train(texts, vocab_size=vocab_size, lowercase=False)
    torch.manual_seed(0)
    config = AgentConfig(
        vocab_size=tokenizer.vocab_size,
        levels=NAMES,
        dims=(8, 12, 16, 16),
        max_children=(16, 4, 4),
        encoder_cells=(1, 1, 1),
        decoder_cells=(1, 1, 1),
        num_heads=2,
        names=NameMemoryConfig(questions=3, filters=8, leave_one_out=leave) if memory else None,
    )
    own = NestedAutoencoder(config.build(), tokenizer, LevelInput(overflow=overflow), NestedAutoencoderConfig(queue=0)).eval()
    if own.name_memory is not None:
        torch.nn.init.constant_(own.name_memory.update_gate.out.bias, 2.0)
    return own


def held_out(own: NestedAutoencoder):
    store = Store.from_trees(TREES)
    view, collator = read_documents(own.backbone, own.tokenizer, own.input, store, np.arange(store.num_trees))
    held = HeldOut(own, collator, encode_documents(own.backbone, view, collator))
    return held, words_of(store, own.tokenizer, view.rows, common=2)


@pytest.fixture(scope="module")
def own():
    return model()


@pytest.fixture(scope="module")
def held_and_words(own):
    return held_out(own)


def spelled(words, number: int) -> str:
    return words.spellings[words.type[number]]


def test_words_are_their_tokens(held_and_words, own):
    held, words = held_and_words
    assert words.not_read == 0
    texts = [node.text for tree in TREES for node in tree.nodes if node.text]
    expected = [word for text in texts for word in "".join(each if each.isalpha() else " " for each in text).split()]
    found = []
    for word in range(len(words)):
        tokens = held.rows.ids[words.tokens(np.array([word]))]
        found.append(own.tokenizer.decode(tokens.tolist()).replace(" ", ""))
        assert found[-1].casefold() == spelled(words, word)
        assert set(words.tokens(np.array([word]))) <= set(held.children_of(0, int(words.row[word])))
    # Rows of sixteen places hold all words but those that they cut.
    assert len(expected) - len(found) <= 1
    assert [word for word in found if word in ("Ann", "Max")] == [word for word in expected if word in ("Ann", "Max")]


def test_names(held_and_words):
    """`The Sea` and `sea` are one type, half of which is capitalised; `I` is a word of one letter; Bob and Lee are rare."""
    _, words = held_and_words
    assert {spelled(words, word) for word in np.flatnonzero(words.is_name)} == {"ann", "tom", "max"}
    named = [CLASSES[number] for number in words.classes]
    by_word = {(int(words.tree[word]), spelled(words, word)): named[word] for word in range(len(words))}
    assert by_word[0, "ann"] == by_word[1, "max"] == "names"
    assert by_word[0, "dog"] == "recurring"
    assert by_word[0, "bob"] == "new"
    assert set(named) == set(CLASSES)
    # A type of one document says nothing about the other.
    assert by_word[1, "sea"] == "recurring"


def test_hidden_words_are_predicted_with_each_bank(held_and_words, own):
    """Row by row: all tokens of one word hidden, and the bank of the other sentences, none, or the other document's."""
    held, words = held_and_words
    chosen = np.flatnonzero(words.classes == 0)[::3]
    found = hidden_words(held, words, chosen)
    memory, encoder = own.name_memory, own.backbone.encoder(0)
    level = held.level(0)
    everything = held.collator.level(0, np.arange(len(level)), np.zeros(0, np.int64), np.zeros(0, np.int64))
    with torch.no_grad():
        states = encoder.states(encoder.items(None), everything.slots, everything.rows)
        answers = memory.write(states, everything.rows, everything.is_child)
        for place, word in enumerate(chosen.tolist()):
            row = int(words.row[word])
            batch = held.collator.level(0, np.array([row]), np.zeros(0, np.int64), np.zeros(0, np.int64))
            children = held.children_of(0, row)
            at = np.searchsorted(children, words.first[word]) + np.arange(words.count[word])
            slots = batch.slots.clone()
            slots[at] = NUM_MARKS + own.tokenizer.mask_id
            hidden = encoder.states(encoder.items(None), slots, batch.rows)
            for which, tree in ((0, int(words.tree[word])), (2, 1 - int(words.tree[word]))):
                read = (everything.document == tree) & (everything.counts > 0)
                read &= (everything.node != words.node[word]) | (which == 2)
                # Some sentences have several rows, whose tokens are one set.
                sentences = [np.flatnonzero(read & (everything.node == node)) for node in np.unique(everything.node[read])]
                pieces = [answers.at(torch.from_numpy(rows)).summed(torch.tensor([len(rows)])) for rows in sentences]
                bank = torch.cat([piece.means for piece in pieces]).mean(0)
                keys = hidden @ memory.read_keys.weight.T
                asked = torch.softmax(keys @ memory.questions.T / math.sqrt(8), 1) @ bank
                gate = memory.update_gate(hidden)[:, None]
                after = gate * asked + (1 - gate) * hidden
                nats = _nats(own, after[at], batch.slots[at])
                assert found.nats[which, place] == pytest.approx(nats, abs=1e-4)
            assert found.nats[1, place] == pytest.approx(_nats(own, hidden[at], batch.slots[at]), abs=1e-4)
    measures = word_measures(words, found)
    assert measures["hidden_word_loss.names"].value == pytest.approx(found.nats[0].mean())
    assert measures["hidden_word_loss.names"].baseline == pytest.approx(found.nats[1].mean())
    assert measures["hidden_word_loss.names"].others["other_document"] == pytest.approx(found.nats[2].mean())
    assert measures["hidden_word_loss.names"].count == len(chosen)
    assert measures["hidden_word_accuracy.new"].count == 0
    names = [spelled(words, word) for word in chosen]
    assert measures["hidden_word_accuracy.names"].chance == pytest.approx(np.mean([each in ("ann", "max") for each in names]))


def _nats(own, states, labels) -> float:
    scores = own.mlm_heads[0](states) @ own.mlm_head.weight.T + own.mlm_head.bias
    return float(F.cross_entropy(scores, labels))


def test_a_memory_that_was_not_asked_for_measures_nothing():
    held, words = held_out(model(memory=False))
    assert held.banks is None
    found = hidden_words(held, words, np.flatnonzero(words.classes == 0))
    assert np.isfinite(found.nats[1]).all()
    assert np.isnan(found.nats[[0, 2]]).all()


def test_banks_of_whole_documents_leave_out_nodes(held_and_words, own):
    held, _ = held_and_words
    rows = held.rows
    for level in range(3):
        units = units_of_nodes(rows, level)
        wanted, trees = np.arange(len(rows.levels[level].num_rows)), rows.levels[level].level.tree
        banks = held.banks.of_units(units, wanted, trees)
        for unit in wanted.tolist():
            one = held.banks.of_units(units, np.array([unit]), trees[[unit]])
            assert torch.equal(one.answers[0], banks.answers[unit])
        # Nothing is left of a document without itself.
        assert banks.known.all() == (level < 2)
    every = held.banks.of_whole_documents(np.array([0, 1]))
    assert every.known.all()
    plain = model(leave=False)
    plain.load_state_dict(own.state_dict())
    other, _ = held_out(plain)
    of_rows = other.banks.of_rows(np.arange(len(rows.levels[0])))
    first = every.answers[torch.from_numpy(rows.levels[0].tree)]
    torch.testing.assert_close(of_rows.answers, first)


@pytest.mark.parametrize("overflow", ["cut", "pack"])
def test_text_is_decoded_with_the_names_of_the_other_sentences(overflow):
    own = model(overflow=overflow)
    store = Store.from_trees(TREES[:1])
    for level in (0, 1, 2):
        found = reconstruct(own, store, np.array([0]), level)
        assert len(found.decoded) == len(found.nodes.node)
    torch.nn.init.constant_(own.name_memory.update_gate.out.bias, -math.inf)
    without = reconstruct(own, store, np.array([0]), 0)
    plain = model(memory=False, overflow=overflow)
    plain.load_state_dict(own.state_dict(), strict=False)
    expected = reconstruct(plain, store, np.array([0]), 0)
    assert [each.ids.tolist() for each in without.decoded] == [each.ids.tolist() for each in expected.decoded]


def test_gates_filters_and_questions(held_and_words, own):
    held, words = held_and_words
    memory = own.name_memory
    gated = gated_tokens(held, memory, np.unique(words.row))
    measure = gate_measures(words, words.is_name, gated)["name_gate_auroc"]
    value = np.concatenate(gated.value)
    name = np.isin(gated.tokens, words.tokens(words.is_name))
    other = np.isin(gated.tokens, words.tokens(~words.is_name))
    pairs = value[name][:, None] - value[other][None]
    assert measure.value == pytest.approx(((pairs > 0) + 0.5 * (pairs == 0)).mean())
    filters = filters_of(held, gated)
    assert len(filters.groups) == 1
    assert len(filters.groups[0]) == 8
    for tokens in filters.groups[0]:
        shares = [share for _, share in tokens]
        assert shares == sorted(shares, reverse=True)
        assert 0 < len(tokens) <= 5
    example = example_of(held, memory, words)
    assert example.names == ("Ann", "Tom")
    assert example.found.shape == (2, 3)
    assert ((example.found > 0) & (example.found < 1)).all()
    assert len(example.tokens) == len(example.ignore) == len(example.update)
    assert ((example.update > 0) & (example.update < 1)).all()


def test_evaluation_has_the_measures_of_names(own):
    store = Store.from_trees(TREES)
    scores = evaluate_documents(own, store, "all", rows=20)
    assert {f"hidden_word_loss.{name}" for name in CLASSES} < set(scores.levels["token"])
    assert scores.names.example.names == ("Ann", "Tom")
    assert evaluate_documents(model(memory=False), store, "all", rows=20).names is None
