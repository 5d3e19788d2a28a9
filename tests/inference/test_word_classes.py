"""Word classes of masked tokens and shares of pieces in ancestors, against slow references over sets."""

from collections import Counter
from itertools import chain as joined

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import W, bert_task, chain, discussion, forest, parent_arrays, tokenizer, tree_task, view_of
from ramify.batching.forest import node_seeds
from ramify.batching.text_input import TextInput
from ramify.inference import word_classes
from ramify.inference.word_classes import WORD_CLASSES, AncestorWords
from ramify.nn import counter_rng


def texts(data, limit):
    """The pieces that a model reads of each node."""
    room = limit - data.layout.num_special
    return [data.gather(np.array([n]), np.array([min(data.length[n], room)])).tolist() for n in range(len(data.length))]


def read_by(data, node, input):
    """The ancestors that a target reads, by the definition of the rule."""
    path = []
    while (node := int(data.parent[node])) >= 0:
        path.insert(0, node)
    comments, limit = path[1:], input.context_length
    if not path:
        return []
    if input.rule == "post_nearest":
        return [path[0], *comments[max(0, len(comments) - (limit - 1)) :]]
    return path[max(0, len(path) - limit) :]


def test_content_is_all_but_the_most_frequent_pieces():
    data = forest([discussion(W, lengths=[9] * len(W)), discussion(W, seed=3, name="u")])
    counts = Counter(dict.fromkeys(range(tokenizer().vocab_size), 0))
    counts.update(data.ids.tolist())
    ranked = sorted(counts, key=lambda piece: (-counts[piece], piece))
    for common in (0, 7, 30):
        content = AncestorWords.of(data, TextInput(), tokenizer().vocab_size, common).content
        assert np.flatnonzero(~content).tolist() == sorted(ranked[:common])
    assert not AncestorWords.of(data, TextInput(), tokenizer().vocab_size).content.any()


@given(
    parent=parent_arrays(max_comments=20),
    limit=st.sampled_from([6, 12]),
    max_context=st.sampled_from([1, 2, 50]),
    rule=st.sampled_from(["post_nearest", "nearest"]),
    overflow=st.sampled_from(["truncate", "chain"]),
    common=st.sampled_from([0, 12, 30]),
    lookups=st.sampled_from([1, 1 << 20]),
    seed=st.integers(0, 1000),
    concatenate=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_classes_and_shares(parent, limit, max_context, rule, overflow, common, lookups, seed, concatenate):
    random = np.random.default_rng(seed)
    lengths = random.integers(0, 15, len(parent)).tolist()
    data = forest([discussion(W, name="w"), discussion(parent, lengths=lengths, seed=seed)], limit, overflow)
    read = {"max_tokens": limit, "max_context": max_context, "rule": rule, "overflow": overflow}
    rate = {"mask_rate": 0.5, "mask_split": (0.4, 0.3, 0.3)}
    if concatenate:
        task = bert_task(input=TextInput(**read, concatenate=limit + 9), task=rate)
    else:
        task = tree_task(input=TextInput(**read), task=rate)
    view, collate = view_of(task, data, regime="tree", predict_post=True)
    batch = collate([view.example(number) for number in range(len(view))])
    words = AncestorWords.of(data, task.input, tokenizer().vocab_size, common)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_classes, "_LOOKUPS", lookups)
        found = words.read(batch.source)
    own = texts(data, limit)
    for draw in range(2):
        seeds = torch.from_numpy(node_seeds(data.store, data.node[batch.source]))
        masked = task.mask(batch, counter_rng.random_bits(seeds, draw))
        owner = np.repeat(np.arange(len(batch.source)), masked.output_positions.rows.host_lengths)
        labels, shown = masked.labels.numpy(), masked.target_ids[masked.output_positions.index].numpy()
        classes, shares = found.classes(owner, labels, shown), found.share_of(owner, labels)
        rows = torch.split(masked.target_ids, masked.targets.host_lengths.tolist())
        for place, (target, label) in enumerate(zip(owner.tolist(), labels.tolist())):
            above = list(joined.from_iterable(own[n] for n in read_by(data, int(batch.source[target]), task.input)))
            count = int(masked.num_maskable[target])
            visible = set(rows[target].tolist()[len(rows[target]) - 1 - count : -1])
            if not words.content[label]:
                expected = "function words"
            elif label in set(above) - visible:
                expected = "recoverable"
            else:
                expected = "other content"
            assert WORD_CLASSES[classes[place]] == expected
            if above:
                assert shares[place] == pytest.approx(above.count(label) / len(above), abs=1e-12)
            else:
                assert np.isnan(shares[place])


def test_deep_chains_are_read_in_bounded_parts(monkeypatch):
    """The parts of the look-up change nothing, also where one target reads more than a part holds."""
    data = forest([discussion(chain(60), lengths=[5] * 61)])
    words = AncestorWords.of(data, TextInput(max_tokens=32, max_context=50), tokenizer().vocab_size, 10)
    whole = words.read(np.arange(61))
    monkeypatch.setattr(word_classes, "_LOOKUPS", 20)
    assert words.read(np.arange(61)).share.tolist() == whole.share.tolist()
    assert whole.has_ancestors.tolist() == [False] + [True] * 60


def test_no_targets():
    data = forest([discussion(W)])
    found = AncestorWords.of(data, TextInput(), tokenizer().vocab_size).read(np.zeros(0, np.int64))
    nothing = np.zeros(0, np.int64)
    assert len(found.classes(nothing, nothing, nothing)) == len(found.share_of(nothing, nothing)) == 0


def test_ancestors_without_text():
    """Only the leaf has text, as in a document, in which chapters and paragraphs have none."""
    data = forest([discussion(chain(2), lengths=[0, 0, 5])])
    found = AncestorWords.of(data, TextInput(), tokenizer().vocab_size).read(np.array([2]))
    assert found.share.tolist() == [0] * len(found.keys)
    assert not found.has_ancestors.any()
