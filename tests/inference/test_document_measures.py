"""Measures of nested documents: known values of constructed cases, and naive references."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import roc_auc_score

from fixtures import tokenizer
from fixtures.nested import EVERY_OPTION, FOUR_SIZES, novels, part, task, tree_of
from ramify.batching.document_batch import CONT, EOS, MASK, NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.dataset.store import Store
from ramify.errors import RamifyError
from ramify.inference.documents import coherence, decoded_text, evaluation, masked_children, measures, reconstruction
from ramify.inference.documents.coherence import JudgedRows, intruder_measures, probing_measures
from ramify.inference.documents.decoded_text import decoded_sentence_measures
from ramify.inference.documents.decoding import DecodedRow, decode_children
from ramify.inference.documents.evaluation import counts_of, document_batch, drawn_measures, evaluate_documents, num_steps
from ramify.inference.documents.floors import Floors, NGrams, fitted_on_others
from ramify.inference.documents.masked_children import hidden_children, masked_child_measures
from ramify.inference.documents.measures import HeldOut, copies, probes, spread, term_counts
from ramify.inference.documents.members import member_measures
from ramify.inference.documents.ranks import Ranks
from ramify.inference.documents.reconstruction import Written, sentence_measures, upper_measures
from ramify.inference.documents.vectors import encode_documents, read_documents

LEVELS = FOUR_SIZES["levels"]


def held_out(trees=None, more=None, input=None, **settings):
    own = task(FOUR_SIZES, input=input, dtype=torch.float32, **settings)
    store = Store.from_trees(trees or novels())
    view, collator = read_documents(own.backbone, own.tokenizer, own.input, store, np.arange(store.num_trees))
    encoded = encode_documents(own.backbone, view, collator)
    others = None
    if more is not None:
        second = Store.from_trees(more)
        others = encode_documents(
            own.backbone, *read_documents(own.backbone, own.tokenizer, own.input, second, np.arange(second.num_trees))
        )
    own.eval()
    for centre in own.centres or ():
        centre.mean.normal_(generator=torch.Generator().manual_seed(5))
    return HeldOut(own, collator, encoded, others), view


def floors_of(held):
    return fitted_on_others(held.rows, held.task.tokenizer.vocab_size)


def ignore(count):
    pass


# --- shared parts ---------------------------------------------------------------------------------------------------------


def test_spread_takes_all_or_evenly_spaced_places():
    assert spread(3, 5).tolist() == [0, 1, 2]
    assert spread(10, 4).tolist() == [0, 2, 5, 7]


def test_probes_are_all_children_of_rows_with_at_least_two():
    held, _ = held_out()
    for number in range(4):
        rows, children = probes(held, number, 10**6)
        counts = held.level(number).children
        expected = [(row, child) for row, count in enumerate(counts.tolist()) if count >= 2 for child in range(count)]
        assert list(zip(rows.tolist(), children.tolist())) == expected
        some, _ = probes(held, number, 3)
        assert len(some) == min(3, len(expected))


def test_probes_of_long_rows_are_fewer(monkeypatch):
    held, _ = held_out()
    rows, _ = probes(held, 1, 10**6)
    slots = (held.level(1).children + held.level(1).parts)[rows].sum()
    monkeypatch.setattr(measures, "PROBED_SLOTS", int(slots) // 3)
    assert len(probes(held, 1, 10**6)[0]) == pytest.approx(len(rows) / 3, abs=1)


@pytest.mark.parametrize("padding", ["packed", "full"])
def test_copies_of_rows_hold_the_probed_child_at_its_slot(padding):
    own = task(FOUR_SIZES | {"padding": padding}, dtype=torch.float32)
    store = Store.from_trees(novels())
    view, collator = read_documents(own.backbone, own.tokenizer, own.input, store, np.arange(3))
    held = HeldOut(own, collator, encode_documents(own.backbone, view, collator))
    for number in range(4):
        rows, children = probes(held, number, 10**6)
        seen = 0
        for each in copies(held, number, rows, children):
            own_rows, own_children = rows[each.start : each.stop], children[each.start : each.stop]
            family = [held.children_of(number, row)[child] for row, child in zip(own_rows.tolist(), own_children.tolist())]
            wanted = held.rows.ids[family] if number == 0 else np.array(family)
            assert (each.batch.slots[each.slot].numpy() - NUM_MARKS).tolist() == wanted.tolist()
            assert each.batch.source[each.row.numpy()].tolist() == own_rows.tolist()
            seen += len(own_rows)
        assert seen == len(rows)


def test_terms_of_a_row_are_the_tokens_below_it_and_tfidf_is_that_of_scikit_learn():
    held, _ = held_out()
    size = tokenizer().vocab_size
    found = term_counts(held.rows, size)
    for number, level in enumerate(held.rows.levels):
        start = 0
        for row, count in enumerate(level.tokens.tolist()):
            own = held.rows.ids[start : start + count].astype(np.int64)
            assert np.bincount(own, minlength=size).tolist() == found[number][[row]].toarray()[0].tolist()
            start += count
        reference = TfidfTransformer().fit_transform(found[number]).toarray()
        assert np.allclose(held.pools[number].tfidf.toarray(), reference)


def test_nodes_above_a_row():
    held, _ = held_out()
    paragraph, chapter = held.node_above(0, 1), held.node_above(0, 2)
    for number, (row, above) in enumerate(zip(paragraph.tolist(), chapter.tolist())):
        rows, tops = (np.flatnonzero(held.nodes[level] == node).tolist() for level, node in ((1, row), (2, above)))
        assert any(number in held.children_of(1, each) for each in rows)
        assert any(each in held.children_of(2, top) for each in rows for top in tops)
    assert held.node_above(3, 1) is None


# --- baselines without vectors --------------------------------------------------------------------------------------------


def test_ngrams_take_the_commonest_successor():
    contexts, slots = np.array([1, 1, 1, 2, 2]), np.array([5, 6, 6, 7, 4])
    found = NGrams.of(contexts, slots, 10)
    assert found.predict(np.array([1, 2, 3]), np.array([9, 9, 9])).tolist() == [6, 4, 9]


def test_floors_against_counts_in_plain_python():
    held, _ = held_out()
    rows = np.arange(len(held.level(0)))
    true = [slots.tolist() for slots in held.true_slots(0, rows)]
    floors = Floors.of(held.rows, rows, held.task.tokenizer.vocab_size)

    def best(values):
        return min(set(values), key=lambda value: (-values.count(value), value))

    assert floors.commonest == best([slot for row in true for slot in row])
    assert floors.commonest_token == best([slot for row in true for slot in row if slot >= NUM_MARKS])
    for place in range(max(map(len, true))):
        assert floors.by_place[place] == best([row[place] for row in true if len(row) > place])
    triples = {}
    for row in true:
        for place, slot in enumerate(row):
            one, two = (row[place - distance] if place >= distance else 4 for distance in (1, 2))
            triples.setdefault((two, one), []).append(slot)
    for row in true[:20]:
        expected = [
            best(triples[tuple(row[max(0, place - 2) : place]) if place > 1 else (4, row[0] if place else 4)])
            for place in range(len(row))
        ]
        assert floors.trigram(np.array(row)).tolist() == expected
    assert floors.pair_count(4, true[0][0]) == sum(row[0] == true[0][0] for row in true)
    assert floors.pair_count(4, NUM_MARKS + 10**6) == 0


def test_floors_without_training_documents_are_fitted_on_the_other_half():
    held, _ = held_out(novels(4))
    found = floors_of(held)
    tree = held.level(0).tree
    assert set(found.fold[tree % 2 == 0]) == {0}
    assert found.floors[0].pair_counts.sum() == sum(len(slots) for slots in held.true_slots(0, np.flatnonzero(tree % 2 == 1)))
    alone, _ = held_out(novels(1))
    assert len(set(floors_of(alone).fold.tolist())) == 2


# --- reconstruction -------------------------------------------------------------------------------------------------------


def test_written_rows_are_compared_place_by_place_and_end_where_they_say():
    true = [np.array([7, 8, EOS]), np.array([7, CONT]), np.array([9, 9, 9, EOS])]
    predicted = [np.array([7, 8, EOS]), np.array([7, EOS]), np.array([9, EOS])]
    found = Written(true, predicted)
    assert found.right.tolist() == [3, 1, 1]
    assert found.accuracy() == 5 / 9
    assert found.exact.tolist() == [True, False, False]
    assert found.ends.tolist() == [True, True, False]


def perfect(held, number, rows):
    """Decoded rows that equal the true ones, as `decode_children` would return them: children are numbered in the document."""
    vectors = held.pools[number - 1].vectors if number else None
    tree = held.level(number).tree[rows]
    first = np.searchsorted(held.level(number - 1).tree, tree) if number else np.zeros(len(rows), dtype=np.int64)

    def decoded(slots, first):
        is_child = slots[:-1] >= NUM_MARKS
        states = np.zeros((len(slots), held.task.backbone.config.dims[number]), dtype=np.float32)
        if vectors is not None:
            states[:-1][is_child] = vectors[slots[:-1][is_child] - NUM_MARKS]
        return DecodedRow(np.where(is_child, slots[:-1] - first, slots[:-1]), bool(slots[-1] == CONT), True, states, states)

    return [decoded(slots, start) for slots, start in zip(held.true_slots(number, rows), first.tolist())]


@pytest.mark.parametrize("overflow", ["cut", "pack", "truncate"])
def test_a_perfect_decoder_scores_one(monkeypatch, overflow):
    held, _ = held_out(input=LevelInput(overflow=overflow))
    waiting = []
    monkeypatch.setattr(reconstruction, "decode_children", lambda *given: [waiting.pop(0) for _ in given[2]])
    waiting += perfect(held, 0, np.arange(len(held.level(0))))
    found, notes = sentence_measures(held, floors_of(held), 10**6, ignore)
    assert notes == []
    for name, measure in found.items():
        expected = 100.0 if name.startswith("bleu") else 1.0
        # BLEU of a row without four words is 0.
        if not name.startswith("bleu") or name == "bleu":
            assert measure.value == pytest.approx(expected), name
        assert not measure.baseline > expected
    assert found["token_accuracy"].count == sum(map(len, held.true_slots(0, np.arange(len(held.level(0))))))
    assert sum(found[name].count for name in found if name.startswith("exact_match.")) == found["exact_match"].count
    for number in (1, 2, 3):
        level = held.level(number)
        rows = np.flatnonzero(level.children)
        waiting += perfect(held, number, rows)
        found = upper_measures(held, number, floors_of(held), 10**6, ignore)
        assert found["child_accuracy"].value == found["right_ends"].value == 1
        assert found["child_accuracy"].count == level.children.sum()
        assert found["child_accuracy"].chance <= 0.5
        assert found["retrieval_auroc"].chance == 0.5


def test_a_decoder_of_the_vectors_themselves_retrieves_them(monkeypatch):
    held, _ = held_out()
    level = held.level(1)
    for pool in held.pools:
        # Of vectors of length 1, the nearest by dot product is the vector itself.
        pool.vectors[:] /= np.linalg.norm(pool.vectors, axis=1, keepdims=True)
    waiting = perfect(held, 1, np.flatnonzero(level.children))
    monkeypatch.setattr(reconstruction, "decode_children", lambda *given: [waiting.pop(0) for _ in given[2]])
    found = upper_measures(held, 1, floors_of(held), 10**6, ignore)
    assert found["retrieval_recall_at_10"].value == found["retrieval_auroc"].value == 1
    assert found["retrieval_recall_at_10"].p < 0.01


def test_a_decoder_that_ends_at_once_has_no_child_right(monkeypatch):
    held, _ = held_out()
    states = np.zeros((1, 12), dtype=np.float32)
    none = DecodedRow(np.zeros(0, dtype=np.int64), False, True, states, states)
    monkeypatch.setattr(reconstruction, "decode_children", lambda *given: [none for _ in given[2]])
    found, _ = sentence_measures(held, floors_of(held), 10**6, ignore)
    assert found["token_accuracy"].value == found["exact_match"].value == found["right_ends"].value == found["bleu"].value == 0
    found = upper_measures(held, 1, floors_of(held), 10**6, ignore)
    assert found["child_accuracy"].value == found["right_ends"].value == 0
    assert found["retrieval_recall_at_10"].value == 0


def test_bleu_is_left_out_without_sacrebleu(monkeypatch):
    def missing(*texts):
        raise ImportError

    monkeypatch.setattr(reconstruction, "corpus_bleu", missing)
    held, _ = held_out(novels(2))
    found, notes = sentence_measures(held, floors_of(held), 20, ignore)
    assert not [name for name in found if name.startswith("bleu")]
    assert "sacrebleu is not installed" in notes[0]


# --- masked children ------------------------------------------------------------------------------------------------------


def test_hidden_children_are_predicted_from_their_row_alone():
    held, _ = held_out()
    with torch.no_grad():
        for number in (1, 2, 3):
            targets = hidden_children(held, number, 10**6, ignore)
            rows, places = probes(held, number, 10**6)
            encoder = held.task.backbone.encoder(number)
            items = encoder.items(torch.from_numpy(held.encoded.vectors[number - 1]))
            below = np.arange(held.level(number).num_below)
            for each in spread(len(rows), 6).tolist():
                batch = held.collator.level(number, rows[each : each + 1], below, below)
                slots = batch.slots.clone()
                slot = int(batch.child_slot[places[each]])
                slots[slot] = MASK
                query = held.task.mlm_heads[number](encoder.states(items, slots, batch.rows)[slot][None])[0]
                assert np.allclose(query.numpy(), targets.queries[each], atol=1e-5)
                family = held.children_of(number, int(rows[each]))
                siblings = [child for child in family.tolist() if child != family[places[each]]]
                assert np.allclose(targets.means[each], held.encoded.vectors[number - 1][siblings].mean(0), atol=1e-6)


@torch.no_grad()
def test_hidden_children_are_predicted_and_compared_as_in_training():
    """With every option: the visible siblings are added, and candidates are compared by the cosines of their class map."""
    held, _ = held_out(**EVERY_OPTION)
    own = held.task
    for number in (1, 2, 3):
        targets = hidden_children(held, number, 10**6, ignore)
        rows, places = probes(held, number, 10**6)
        vectors, centre = torch.from_numpy(held.encoded.vectors[number - 1]), own.centre(number).mean
        items, below = own.backbone.encoder(number).items(vectors), np.arange(held.level(number).num_below)
        space = own.mlm_spaces[number - 1]
        keys = held.keys(own.masked_similarity(number), number - 1)
        tfidf = masked_children._sibling_terms(held, number, targets)
        ranks = masked_children._ranks(held, number, targets, keys, tfidf, 10**6, 1, None)
        assert len(ranks.unit) == len(rows)
        parents = held.node_above(number - 1, 1)
        for target in spread(len(rows), 6).tolist():
            batch = held.collator.level(number, rows[target : target + 1], below, below)
            slot = int(batch.child_slot[places[target]])
            slots = batch.slots.clone().index_fill_(0, torch.tensor([slot]), MASK)
            family = held.children_of(number, int(rows[target]))
            siblings = vectors[np.delete(family, places[target])] - centre
            state = own.backbone.encoder(number).states(items, slots, batch.rows)[[slot]]
            path = siblings.sum(0, keepdim=True) / math.sqrt(len(siblings))
            prediction = own.mlm_heads[number](state) + own.sibling_paths[number - 1](path)
            cosines = torch.cosine_similarity(prediction, space.classes(vectors - centre)).numpy()
            chosen = masked_children.candidates_of(
                held.pools[number - 1], targets.children[target], parents, 10**6, None, np.random.default_rng(0)
            )
            assert len(chosen) == ranks.candidates[target] - 1 > 0
            right = cosines[targets.children[target]]
            rank = 1 + (cosines[chosen] > right + 1e-6).sum()
            assert ranks.systems["model"][target] == pytest.approx(rank, abs=0.5)


@torch.no_grad()
def test_children_are_looked_for_by_the_scores_of_training():
    """Decoded vectors are the way back from the decoder's states, which are compared by cosines."""
    held, _ = held_out(**EVERY_OPTION)
    own, number = held.task, 1
    level, pool, space = held.level(number), held.pools[number - 1], own.reconstruction_spaces[number - 1]
    rows = np.flatnonzero(level.children)
    found = upper_measures(held, number, floors_of(held), 10**6, ignore)
    classes = space.classes(torch.from_numpy(pool.vectors) - own.centre(number).mean)
    hits, written_children, decoder = [], 0, own.decoder.level(number)
    laid = decoder.all_places(1, torch.device("cpu"))
    for row in rows.tolist():
        vector = torch.from_numpy(held.encoded.vectors[number][[row]])
        states = decoder.parallel(decoder.decompress(vector, laid), laid)
        (decoded,) = decode_children(own, number, vector.numpy(), pool.vectors)
        assert np.allclose(decoded.states, space.restore(states)[: len(decoded.states)].numpy(), atol=1e-5)
        scores = torch.cosine_similarity(states[:, None], classes[None], dim=2)
        is_child = decoded.slots >= NUM_MARKS
        written_children += is_child.sum()
        best = scores.argmax(1)[: len(decoded.slots)].numpy()[is_child]
        assert (pool.content[best] == pool.content[decoded.slots[is_child] - NUM_MARKS]).all()
        for place, child in enumerate(held.children_of(number, row).tolist()):
            others = pool.content != pool.content[child]
            written = place < len(decoded.queries)
            above = (scores[place] > scores[place, child]).numpy() & others
            hits.append(written and above.sum() < 10)
    assert found["retrieval_recall_at_10"].value == pytest.approx(np.mean(hits), abs=1.5 / len(hits))
    assert 0 < np.mean(hits) < 1
    assert written_children > len(rows)


def test_terms_of_siblings_are_added_up():
    held, _ = held_out(more=novels(1, seed=4))
    for number in (1, 2, 3):
        targets = hidden_children(held, number, 10**6, ignore)
        found = masked_children._sibling_terms(held, number, targets)
        own = held.pools[number - 1].tfidf.toarray()
        for item, (row, child) in enumerate(zip(targets.rows.tolist(), targets.children.tolist())):
            siblings = [each for each in held.children_of(number, row).tolist() if each != child]
            assert np.allclose(found[[item]].toarray()[0], own[siblings].sum(0))


def given(held, number, queries):
    targets = hidden_children(held, number, 10**6, ignore)
    return replace(targets, queries=queries(targets))


@pytest.mark.parametrize("number", [1, 2])
def test_the_vectors_themselves_are_found_and_random_ones_by_chance(monkeypatch, number):
    held, _ = held_out(novels(6, paragraphs=8, chapters=3))
    for pool in held.pools:
        pool.vectors[:] /= np.linalg.norm(pool.vectors, axis=1, keepdims=True)
    vectors = held.pools[number - 1].vectors
    own = given(held, number, lambda targets: vectors[targets.children])
    monkeypatch.setattr(masked_children, "hidden_children", lambda *arguments: own)
    sizes = {"others": 60, "nearby": 12, "fewest": 12}
    found = masked_child_measures(held, number, 10**6, ignore, **sizes)
    assert {name for name in found if "." not in name} == {"mlm_recall_at_10", "mlm_accuracy", "mlm_auroc"}
    for name, measure in found.items():
        assert measure.value == 1
        assert 0 <= measure.baseline <= 1
        size = 13 if "nearby" in name else 61
        assert measure.chance == pytest.approx(0.5 if "auroc" in name else (10 if "recall" in name else 1) / size)
    several = (own.siblings >= 3).sum()
    assert found["mlm_accuracy"].count == len(own.rows) > several == found["mlm_accuracy.three_or_more"].count
    random = np.random.default_rng(0)
    blind = replace(own, queries=random.normal(size=own.queries.shape).astype(np.float32))
    monkeypatch.setattr(masked_children, "hidden_children", lambda *arguments: blind)
    found = masked_child_measures(held, number, 10**6, ignore, **sizes)
    for name in ("mlm_recall_at_10", "mlm_recall_at_10.nearby"):
        measure = found[name]
        assert abs(measure.value - measure.chance) < 4 * math.sqrt(0.25 / measure.count)


def test_candidates_are_no_siblings_and_differ_in_content():
    held, _ = held_out(novels(3), more=novels(2, seed=5))
    pool, random = held.pools[0], np.random.default_rng(0)
    parents, chapters = held.node_above(0, 1), held.node_above(0, 2)
    for child in range(0, len(held.level(0)), 5):
        away = masked_children.candidates_of(pool, child, parents, 1000, None, random)
        expected = [
            row
            for row in range(len(pool.tree))
            if pool.tree[row] != pool.tree[child] and pool.content[row] != pool.content[child]
        ]
        assert away.tolist() == expected
        near = masked_children.candidates_of(pool, child, parents, 1000, chapters, random)
        assert near.tolist() == [
            row
            for row in range(len(chapters))
            if chapters[row] == chapters[child] and parents[row] != parents[child] and pool.content[row] != pool.content[child]
        ]
        few = masked_children.candidates_of(pool, child, parents, 7, None, random)
        assert len(set(few.tolist())) == 7
        assert set(few.tolist()) <= set(expected)


def test_a_child_below_a_node_that_is_left_out_has_no_near_candidates():
    held, _ = held_out(novels(3, paragraphs=12), input=LevelInput(overflow="truncate"))
    parents, chapters = held.node_above(0, 1), held.node_above(0, 2)
    left_out = np.flatnonzero((chapters < 0) & (parents >= 0))
    assert len(left_out) > 10
    random = np.random.default_rng(0)
    for child in left_out.tolist():
        assert not len(masked_children.candidates_of(held.pools[0], child, parents, 1000, chapters, random))
    near = np.flatnonzero(chapters >= 0)
    drawn = coherence._replacements(held, 1, np.arange(len(chapters)), chapters, 0)
    assert (drawn[left_out] == -1).all()
    assert (chapters[drawn[near]] == chapters[near])[drawn[near] >= 0].all()
    assert (drawn[near] >= 0).any()


def test_siblings_are_compared_less_the_mean_of_the_level():
    held, _ = held_out(novels(6))
    targets, pool = hidden_children(held, 1, 10**6, ignore), held.pools[0]
    tfidf = masked_children._sibling_terms(held, 1, targets)
    ranks = masked_children._ranks(held, 1, targets, pool.vectors, tfidf, 10**6, 1, None)
    middle, parents = pool.vectors.mean(0), held.node_above(0, 1)
    for target in range(0, len(targets.rows), 7):
        child = targets.children[target]
        chosen = masked_children.candidates_of(pool, child, parents, 10**6, None, np.random.default_rng(0))
        vectors = torch.from_numpy(pool.vectors[[child, *chosen]] - middle)
        cosines = torch.cosine_similarity(torch.from_numpy(targets.means[target] - middle), vectors).numpy()
        rank = 1 + (cosines[1:] > cosines[0]).sum()
        assert ranks.systems["centred"][target] == pytest.approx(rank, abs=1)
    found = ranks.measures("mlm")["mlm_auroc"]
    assert found.others.keys() == {"centred", "tfidf"}
    assert found.others["centred"] != found.baseline


def test_ranks_against_scikit_learn_and_plain_python():
    held, _ = held_out(novels(6))
    targets = hidden_children(held, 1, 10**6, ignore)
    tfidf = masked_children._sibling_terms(held, 1, targets)
    ranks = masked_children._ranks(held, 1, targets, held.pools[0].vectors, tfidf, 60, 20, None)
    found = ranks.measures("mlm")
    pool, random = held.pools[0], measures.generator(0, 1, 0)
    vectors, parents = pool.vectors, held.node_above(0, 1)
    areas, hits = [], []
    for child, query, siblings in zip(targets.children.tolist(), targets.queries, targets.siblings.tolist()):
        others = masked_children.candidates_of(pool, child, parents, 60, None, random)
        scores = vectors[[child, *others]] @ query
        areas.append(roc_auc_score([1] + [0] * len(others), scores))
        hits.append((siblings, (scores[1:] > scores[0]).sum() + (scores[1:] == scores[0]).sum() / 2 < 10))
    assert found["mlm_auroc"].value == pytest.approx(np.mean(areas))
    assert found["mlm_recall_at_10"].value == np.mean([hit for _, hit in hits])
    assert found["mlm_recall_at_10.three_or_more"].value == np.mean([hit for siblings, hit in hits if siblings >= 3])
    assert found["mlm_auroc"].chance == 0.5
    # Two models: the queries of a row stay one unit, so equal models give no smaller p than one.
    again = Ranks.of(found["mlm_auroc"].items)
    twice = Ranks.pooled([ranks, again]).first(10)
    assert twice.value == ranks.first(10).value
    assert twice.count == 2 * len(ranks.unit)
    assert twice.p == ranks.first(10).p


def test_targets_with_few_candidates_are_left_out():
    held, _ = held_out(novels(1))
    found = masked_child_measures(held, 1, 100, ignore)
    assert found["mlm_recall_at_10"].count == 0
    assert found["mlm_recall_at_10"].to_json() == {
        "value": None,
        "baseline": None,
        "chance": None,
        "count": 0,
        "others": {"centred": None, "tfidf": None},
    }


# --- members --------------------------------------------------------------------------------------------------------------


def true_children(held, number):
    rows = np.flatnonzero(held.level(number).children)
    return {row: held.pools[number - 1].vectors[held.children_of(number, row)] for row in rows.tolist()}


@pytest.mark.parametrize("number", [1, 2])
def test_members_are_found_by_their_vectors_at_any_place_and_by_chance_otherwise(number):
    held, _ = held_out(novels(6))
    for pool in held.pools:
        pool.vectors[:] /= np.linalg.norm(pool.vectors, axis=1, keepdims=True)
    sizes = {"others": 60, "nearby": 12, "fewest": 4}
    right = {row: vectors[::-1].copy() for row, vectors in true_children(held, number).items()}
    for name, measure in member_measures(held, number, right, 10**6, **sizes).items():
        assert measure.value == 1, name
        assert measure.value >= measure.baseline >= measure.chance - 0.2
    nothing = {row: vectors[:0] for row, vectors in right.items()}
    found = member_measures(held, number, nothing, 10**6, **sizes)
    assert found["member_auroc"].value == 0.5
    assert found["member_recall_at_10"].value == 0
    several = sum(len(vectors) for vectors in right.values() if len(vectors) > 1)
    assert found["member_auroc"].count == several
    assert member_measures(held, number, right, 7, **sizes)["member_auroc"].count == 7


def test_a_candidate_of_a_node_has_its_best_reconstruction_score():
    held, _ = held_out(novels(6))
    pool, parents = held.pools[0], held.node_above(0, 1)
    rows = np.flatnonzero(held.level(1).children)
    made = decode_children(held.task, 1, held.encoded.vectors[1][rows], pool.vectors)
    decoded = {
        row: each.queries[: len(each.slots)][each.slots >= NUM_MARKS] for row, each in zip(rows.tolist(), made, strict=True)
    }
    found = member_measures(held, 1, decoded, 10**6, others=60, fewest=20)["member_auroc"]
    random, areas = measures.generator(0, 1, 0, 3), []
    for row in rows.tolist():
        family = held.children_of(1, row).tolist()
        for child in family if len(family) > 1 else []:
            others = masked_children.candidates_of(pool, child, parents, 60, None, random)
            others = [each for each in others.tolist() if pool.content[each] not in pool.content[family]]
            best = [max((state @ pool.vectors[each] for state in decoded[row]), default=0) for each in (child, *others)]
            areas.append(roc_auc_score([1] + [0] * len(others), best))
    assert found.value == pytest.approx(np.mean(areas), abs=1e-6)


# --- sentences through all levels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2, 3])
def test_perfect_vectors_on_the_way_give_what_own_vectors_give(monkeypatch, number):
    held, _ = held_out()
    by_vector = {tuple(vector): row for level in held.encoded.vectors[1:] for row, vector in enumerate(level.tolist())}

    def decoded(task, level, vectors, known=None, banks=None):
        if level == 0:
            return decode_children(task, level, vectors, known, banks)
        rows = np.array([by_vector[tuple(vector)] for vector in vectors.tolist()])
        return perfect(held, level, rows)

    monkeypatch.setattr(decoded_text, "decode_children", decoded)
    found = decoded_sentence_measures(held, number, floors_of(held), 30, ignore)
    assert set(found) == {f"decoded_{name}" for name in ("token_accuracy", "exact_match", "right_ends", "bleu")}
    for measure in found.values():
        assert measure.value == measure.others["own_vector"]
    assert found["decoded_exact_match"].count == 30


def test_sentences_are_decoded_once_from_their_own_vectors(monkeypatch):
    held, _ = held_out()
    decoded = []

    def counted(task, level, vectors, *bank):
        decoded.append(len(vectors))
        return decode_children(task, level, vectors, *bank)

    monkeypatch.setattr(reconstruction, "decode_children", counted)
    floors = floors_of(held)
    found, _ = sentence_measures(held, floors, 30, ignore)
    for number in (1, 2, 3):
        own_vector = decoded_sentence_measures(held, number, floors, 30, ignore)["decoded_token_accuracy"].others["own_vector"]
        assert own_vector == found["token_accuracy"].value
    assert decoded == [30]
    # Other sentences are added.
    sentence_measures(held, floors, 10**6, ignore)
    assert decoded == [30, len(held.level(0)) - 30]


def test_sentences_are_decoded_step_by_step():
    held, _ = held_out()
    rows = np.arange(len(held.level(0)))
    found = decoded_text.decoded_vectors(held, 2, rows)
    above, level = held.parents, held.encoded.vectors
    written = 0
    for row in rows.tolist():
        paragraph, chapter = above[0][row], above[1][above[0][row]]
        vector = level[2][chapter]
        for number, top, child in ((2, chapter, paragraph), (1, paragraph, row)):
            (true,) = held.true_slots(number, np.array([top]))
            place = true.tolist().index(NUM_MARKS + child)
            (made,) = decode_children(held.task, number, vector[None], level[number - 1])
            vector = made.states[place] if place < len(made.slots) and made.slots[place] >= NUM_MARKS else None
            if vector is None:
                break
        assert (vector is None) == (found[row] is None)
        if vector is not None:
            written += 1
            assert np.allclose(vector, found[row], atol=1e-5)
    assert written > 0


# --- coherence ------------------------------------------------------------------------------------------------------------


def test_the_error_of_marks_alone_and_of_the_constant():
    rows = JudgedRows()
    rows.add(np.array([0.5, 0.1, 0.9]), np.array([0.5, 0.25, 0.0]), np.array([2.0, 2.0, 1.0]), np.array([4, 4, 3]))
    found = rows.measure()
    assert found.count == 2
    assert found.value == pytest.approx((0 + 0.15**2) / 2)
    assert found.baseline == pytest.approx((0.25**2 + 0) / 2)
    assert found.chance == pytest.approx((0.375**2 + 0.125**2) / 2)
    assert JudgedRows().measure().count == 0


def test_the_marks_baseline_has_the_error_that_the_law_of_draws_gives():
    """Given the marks, each marked child is replaced with probability 1/2: the error is P n / (4 n²), on average 1 / (16 n)."""
    random = np.random.default_rng(0)
    rows, count = JudgedRows(), 8
    probability = np.where(random.random(6_000) < 0.5, 0.0, random.random(6_000))
    marked = random.random((6_000, count)) < probability[:, None]
    replaced = marked & (random.random((6_000, count)) < 0.5)
    counts = np.full(6_000, count)
    rows.add(np.full(6_000, 0.125), replaced.mean(1), marked.sum(1).astype(float), counts)
    found = rows.measure()
    assert found.baseline == pytest.approx(1 / (16 * count), rel=0.1)
    assert found.value == found.chance == pytest.approx(5 / 192 + 1 / (12 * count), rel=0.1)


@pytest.mark.parametrize("marks", ["seed", "none"])
def test_intruders_come_from_other_documents(monkeypatch, marks):
    held, _ = held_out(novels(3, sentences=8), more=novels(1, seed=9), marks=marks)
    pool, seen = held.pools[0], []
    judge = held.task.replaced_children

    def judged(level, items, slots, rows, segments):
        seen.append((slots, segments))
        return judge(level, items, slots, rows, segments)

    monkeypatch.setattr(held.task, "replaced_children", judged)
    found = intruder_measures(held, 1, 10**6, ignore)["coherence_mse.other_documents"]
    level = held.level(1)
    rows = np.flatnonzero(level.children >= coherence.LONG)
    assert found.count == len(rows) > 0
    below = np.arange(level.num_below)
    batch = held.collator.level(1, rows, below, below)
    ((slots, segments),) = seen
    shown, own = ((each[batch.child_slot] - NUM_MARKS).numpy() for each in (slots, batch.slots))
    replaced = shown != own
    assert replaced.any()
    assert (pool.tree[shown] != pool.tree[own])[replaced].all()
    share = np.bincount(batch.child_row, replaced, minlength=len(rows)) / batch.counts
    with torch.no_grad():
        guess = judge(1, held.items[1], slots, batch.rows, segments)[0].numpy()
    assert found.value == pytest.approx(np.mean((guess - share) ** 2))
    by_marks = np.full(len(rows), 0.125)
    if marks == "seed":
        marked = segments[batch.child_slot].numpy()
        assert (marked >= replaced).all()
        by_marks = np.bincount(batch.child_row, marked, minlength=len(rows)) / (2 * batch.counts)
    assert found.baseline == pytest.approx(np.mean((by_marks - share) ** 2))


@pytest.mark.parametrize("marks", ["seed", "none"])
def test_probed_children_are_judged_as_one_row_alone(marks):
    held, _ = held_out(marks=marks)
    own = held.task
    with torch.no_grad():
        for number in range(4):
            rows, children = probes(held, number, 7)
            numbers = coherence._numbers(held, number, rows, children)
            chosen = coherence._replacements(held, number, numbers, None, 0)
            assert (chosen >= 0).all()
            whole = [coherence.scores_of(held, number, rows, children, each, ignore)[""] for each in (None, chosen)]
            encoder = own.backbone.encoder(number)
            below = np.arange(held.level(number).num_below if number else 0)
            for item, (row, child) in enumerate(zip(rows.tolist(), children.tolist())):
                batch = held.collator.level(number, np.array([row]), below, below)
                slot = int(batch.child_slot[child])
                for number_, slots in enumerate((batch.slots, batch.slots.clone())):
                    if number_:
                        slots[slot] = NUM_MARKS + int(chosen[item])
                    segments = torch.zeros_like(slots)
                    segments[slot] = 1
                    states = encoder.states(held.items[number], slots, batch.rows, None if marks == "none" else segments)
                    share = float(own.checkers[number](encoder.row_vectors(states, slots, batch.rows))[0])
                    assert whole[number_][item] == pytest.approx(share * int(batch.counts[0]), abs=1e-5)


@torch.no_grad()
def test_probed_children_are_judged_by_the_head_of_foreign_children():
    held, _ = held_out(foreign=1.0)
    own = held.task
    for number in (1, 2, 3):
        rows, children = probes(held, number, 7)
        found = coherence.scores_of(held, number, rows, children, None, ignore)
        below = np.arange(held.level(number).num_below)
        for item, (row, child) in enumerate(zip(rows.tolist(), children.tolist())):
            batch = held.collator.level(number, np.array([row]), below, below)
            slot = int(batch.child_slot[child])
            segments = torch.zeros_like(batch.slots).index_fill_(0, torch.tensor([slot]), 1)
            states = own.backbone.encoder(number).states(held.items[number], batch.slots, batch.rows, segments)
            assert found[".foreign"][item] == pytest.approx(float(own.foreign_heads[number - 1](states[[slot]])), abs=1e-5)
        names = set(probing_measures(held, number, floors_of(held), 50, ignore))
        checked = {f"probing_auroc{choice}" for choice in coherence.sources(held, number)}
        assert len(checked) == 4 - number
        assert names == checked | {f"{name}.foreign" for name in checked}
    assert set(coherence.scores_of(held, 0, *probes(held, 0, 7), None, ignore)) == {""}


@torch.no_grad()
@pytest.mark.parametrize(("split", "share"), [((0.0, 0.0, 1.0), 0.0), ((0.5, 0.0, 0.5), 0.5), ((1.0, 0.0, 0.0), 1.0)])
def test_tokens_that_are_shown_unchanged_do_not_count_as_predicted(split, share):
    held, view = held_out(mask_rate=0.5, mask_split=split)
    found = drawn_measures(held, view, floors_of(held), ignore)["token"]
    counted, drawn = found["mlm_accuracy"].count, found["mlm_loss"].count
    assert counted == pytest.approx(share * drawn, abs=0.12 * drawn * (0 < share < 1))
    assert drawn > 50


def test_replacements_come_from_the_right_place():
    held, _ = held_out(novels(3), more=novels(1, seed=9))
    for number in (1, 2):
        pool = held.pools[number - 1]
        rows, children = probes(held, number, 10**6)
        own = coherence._numbers(held, number, rows, children)
        away = coherence._replacements(held, number, own, None, 0)
        known = away >= 0
        assert known.mean() > 0.95
        assert (pool.tree[away] != pool.tree[own])[known].all()
        assert (pool.content[away] != pool.content[own])[known].all()
        nodes, parents = held.node_above(number - 1, 2), held.node_above(number - 1, 1)
        for place, shared in enumerate((nodes, held.level(number - 1).tree), 1):
            near = coherence._replacements(held, number, own, shared, place)
            known = near >= 0
            assert known.any()
            assert (shared[near] == shared[own])[known].all()
            assert (parents[near] != parents[own])[known].all()


@pytest.mark.parametrize(("sharp", "expected"), [(True, 1.0), (False, 0.5)])
def test_a_checker_that_knows_scores_one_and_one_that_does_not_one_half(monkeypatch, sharp, expected):
    held, _ = held_out()

    def scores(held, number, rows, children, chosen, advance):
        return {"": np.full(len(rows), float(sharp and chosen is not None))}

    monkeypatch.setattr(coherence, "scores_of", scores)
    for number in range(4):
        found = probing_measures(held, number, floors_of(held), 50, ignore)
        choices = {1: ["", ".nearby", ".same_document"], 2: ["", ".nearby"]}.get(number, [""])
        assert list(found) == [f"probing_auroc{choice}" for choice in choices]
        for measure in found.values():
            assert measure.value == expected
            assert measure.count > 0
            assert 0 <= measure.baseline <= 1


# --- the whole ------------------------------------------------------------------------------------------------------------


def test_losses_in_their_own_terms_do_not_depend_on_the_weights():
    held, view = held_out()
    other = HeldOut(
        task(FOUR_SIZES, dtype=torch.float32, mlm=0.0, coherence=7.0, vector_distance=3.0, per_class=True),
        held.collator,
        held.encoded,
    )
    other.task.eval()
    with torch.no_grad():
        one, two = (drawn_measures(each, view, floors_of(each), ignore) for each in (held, other))
    assert {name: set(each) for name, each in one.items()} == {name: set(each) for name, each in two.items()}
    for level, by_name in one.items():
        for name, measure in by_name.items():
            assert measure.value == pytest.approx(two[level][name].value, nan_ok=True), (level, name)
    assert one["sentence"]["coherence_loss"].value > 0
    assert other.task.config.coherence == 7.0


def test_a_document_longer_than_a_batch_has_its_chapters_in_place():
    held, view = held_out(novels(2, chapters=4))
    rows = held.level(3)
    start, stop = int(rows.spans[1]), int(rows.spans[2])
    batch, below = document_batch(held, view.unit, start, stop, 1, 2)
    own = task(FOUR_SIZES, dtype=torch.float32).eval()
    drawn = own.draw(batch, 3)
    with torch.no_grad():
        encoded = own.encode(drawn, 0, torch.from_numpy(held.encoded.vectors[view.unit][below]))
        assert len(encoded.parents) == evaluation.COPIES
        assert np.allclose(encoded.parents.numpy(), held.encoded.vectors[3][1], atol=1e-5)


def test_counts_of_a_level():
    same = "one two three"
    trees = [tree_of(part("chapter", part("paragraph", same, "four"), part("paragraph", same), part("paragraph")))]
    held, _ = held_out(trees)
    found = {name: (int(each.value), each.count) for name, each in counts_of(held.level(0)).items()}
    assert found["duplicates"] == (2, 3)
    found = {name: (int(each.value), each.count) for name, each in counts_of(held.level(1)).items()}
    assert found["only_children"] == (1, 3)
    assert found["empty"] == (1, 3)


@pytest.mark.parametrize(
    "trees",
    [
        pytest.param(novels(3), id="three documents"),
        pytest.param(novels(1), id="one document"),
        pytest.param([tree_of("one")], id="one word"),
        pytest.param([tree_of(part("chapter", part("paragraph", "one two"))) for _ in range(2)], id="only children, all equal"),
        pytest.param(
            [tree_of(part("chapter", part("paragraph", "one two")), part("paragraph")), tree_of("three", name="e")],
            id="missing levels and empty paragraphs",
        ),
    ],
)
@pytest.mark.parametrize(
    ("settings", "objective"),
    [
        ({}, {}),
        ({"decoder_length": "predicted", "padding": "full"}, {"marks": "none"}),
        ({"decoder": "autoregressive"}, {**EVERY_OPTION, "ends": "logistic", "top": "collection"}),
    ],
    ids=str,
)
def test_every_measure_of_every_store_is_a_number_or_unknown(trees, settings, objective):
    own = task(FOUR_SIZES | settings, dtype=torch.float32, **objective)
    done = []
    found = evaluate_documents(own, Store.from_trees(trees), "all", rows=30, advance=done.append)
    assert sum(done) == num_steps(own)
    assert list(found.levels) == ["token", *LEVELS]
    assert found.documents == len(trees)
    for level, by_name in found.levels.items():
        for name, measure in by_name.items():
            own_json = measure.to_json()
            assert set(own_json) >= {"value", "baseline", "chance", "count"}
            assert measure.count or own_json["value"] in (None, 0), (level, name)
            assert not [value for value in own_json.values() if isinstance(value, float) and not math.isfinite(value)]
    assert found.levels["sentence"]["token_accuracy"].count > 0


def test_an_evaluation_is_the_same_twice():
    own = task(FOUR_SIZES, dtype=torch.float32)
    store = Store.from_trees(novels(3))
    one, two = (evaluate_documents(own, store, "all", rows=20) for _ in range(2))
    assert {level: {name: each.to_json() for name, each in own.items()} for level, own in one.levels.items()} == {
        level: {name: each.to_json() for name, each in own.items()} for level, own in two.levels.items()
    }


def test_chosen_levels_have_the_same_measures_as_all():
    own = task(FOUR_SIZES, dtype=torch.float32)
    store = Store.from_trees(novels(3))
    whole = evaluate_documents(own, store, "all", rows=20).levels
    done = []
    some = evaluate_documents(own, store, "all", rows=20, levels=["paragraph"], advance=done.append).levels
    assert sum(done) == num_steps(own)
    assert [level for level, by_name in some.items() if by_name] == ["sentence", "paragraph"]
    assert {name.partition("_")[0] for name in some["sentence"]} == {"mlm"}
    assert {"member_auroc", "decoded_bleu", "probing_auroc", "coherence_mse.other_documents", "effective_rank"} <= set(
        some["paragraph"]
    )
    for level, by_name in some.items():
        for name, measure in by_name.items():
            assert measure.to_json() == whole[level][name].to_json(), (level, name)
    with pytest.raises(RamifyError, match="levels=page names page, which the model does not have"):
        evaluate_documents(own, store, "all", levels=["page"])


def test_the_vectors_of_each_level_are_measured_as_they_are():
    own = task(FOUR_SIZES, dtype=torch.float32)
    store = Store.from_trees(novels(3))
    found = evaluate_documents(own, store, "all", rows=5, levels=["chapter"]).levels["chapter"]
    view, collator = read_documents(own.backbone, own.tokenizer, own.input, store, np.arange(3))
    vectors = encode_documents(own.backbone, view, collator).vectors[2]
    squares = np.linalg.svd(vectors - vectors.mean(0), compute_uv=False).astype(float) ** 2
    shares = squares[squares > 1e-9] / squares.sum()
    assert found["effective_rank"].value == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-3)
    assert found["effective_rank"].count == found["spread"].count == len(vectors)


def test_an_encoder_alone_is_refused():
    with pytest.raises(Exception, match="nothing to evaluate"):
        evaluate_documents(task(FOUR_SIZES, encoder_only=True), Store.from_trees(novels(1)), "all")
