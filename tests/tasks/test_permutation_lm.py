"""Permutation language modelling: the published order rule by brute force, targets, losses, and clean content."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from fixtures.streams import letters, pieces, rows_of, xlnet
from ramify.batching.views.streams import StreamInput
from ramify.errors import RamifyError
from ramify.models.xlnet import Memory, content_parts, query_parts
from ramify.tasks.base import MAIN
from ramify.tasks.permutation_lm import PermutationLM, PermutationLMConfig, factorization_order

EXACT = {"rtol": 0, "atol": 1e-10}
TOKENS, REUSED = 20, 9
SEPARATORS = (14, 18, 19)
INPUT = StreamInput(row_tokens=TOKENS, reused_tokens=REUSED)


def exactly(batch):
    """The same batch with weights, and so losses, in double precision."""
    return replace(batch, targets=replace(batch.targets, weight=batch.targets.weight.double()))


def generator(seed):
    return np.random.Generator(np.random.Philox(key=seed))


def pairs(seed=0, rows=2, **options):
    """Rows of two segments, with their separators."""
    ids = letters(np.random.default_rng(seed), (rows, TOKENS))
    functional = np.zeros((rows, TOKENS), dtype=bool)
    functional[:, SEPARATORS] = True
    ids[functional] = np.tile([3, 3, 2], rows)
    segments = np.repeat([0, 1, 2], [15, 4, 1])
    rest = {"segments": segments, "functional": functional, "reused": REUSED, "is_next": [1, 0][:rows]}
    return rows_of(ids, **(rest | options))


def task(model=None, **changes):
    torch.manual_seed(0)
    own = PermutationLM(xlnet(**(model or {})), pieces(), INPUT, PermutationLMConfig(**({"k": 3.0} | changes)))
    with torch.no_grad():
        for name, parameter in own.named_parameters():
            if not name.startswith("backbone"):
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return own.double()


# --- the order rule -----------------------------------------------------------------------------------------------------------


def published(kinds, parts, block, random):
    """The tokens that each content state and query state sees, pair by pair, by the published code's two numbers per token."""
    length = len(kinds)
    content, query = np.zeros((2, length, length), dtype=bool)
    for start, stop in parts:
        size = min(block or stop - start, stop - start)
        permutation = random.permutation(size)
        for i in range(start, stop):
            content[i, :start] = query[i, :start] = True
            for j in range(start, stop):
                if kinds[j] == "context":
                    content[i, j] = query[i, j] = True
                    continue
                own, other = (
                    -1 if kinds[each] == "context" else each - (each - start) % size + int(permutation[(each - start) % size])
                    for each in (i, j)
                )
                # Targets do not see themselves; separators do, since they predict nothing.
                own = own if kinds[i] == "target" else own + 1
                content[i, j] = query[i, j] = own > other if kinds[i] != "context" else False
            content[i, i] = True
    return content, query


@given(
    kinds=st.lists(st.sampled_from(["context", "context", "target", "separator"]), min_size=1, max_size=14),
    cut=st.integers(0, 13),
    block=st.none() | st.integers(1, 15),
    remembered=st.integers(0, 2),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=300)
def test_order_rule_of_the_published_code(kinds, cut, block, remembered, seed):
    """For all kinds of tokens, one part or two of any lengths, and blocks of any length, a short last one included."""
    length = len(kinds)
    parts = ((0, cut), (cut, length)) if 0 < cut < length else ((0, length),)
    order = factorization_order(np.array([kind != "context" for kind in kinds]), parts, generator(seed), block)
    content, query = published(kinds, parts, block, generator(seed))
    targets = [place for place, kind in enumerate(kinds) if kind == "target"]
    counts = tuple(sum(start <= place < stop for place in targets) for start, stop in parts)
    batch = rows_of(
        np.zeros((1, length), dtype=np.int64),
        order=order,
        positions=np.array([targets], dtype=np.int64),
        parts=parts,
        counts=counts,
    )
    memory = Memory(torch.zeros(1, 1, 2, 4), torch.tensor([remembered]))
    before = np.arange(2) >= 2 - remembered
    for part in content_parts(batch, memory):
        assert not content[part.start : part.stop, part.num_keys - 2 :].any(), "no key that is left out may be visible"
        expected = content[part.start : part.stop, : part.num_keys - 2]
        assert np.array_equal(part.mask[0, 0].numpy()[:, 2:], expected)
        assert (part.mask[0, 0].numpy()[:, :2] == before).all()
    seen = 0
    for part in query_parts(batch, memory):
        chosen = part.positions[0].tolist()
        assert not query[chosen, part.num_keys - 2 :].any()
        assert np.array_equal(part.mask[0, 0].numpy()[:, 2:], query[chosen, : part.num_keys - 2])
        assert (part.mask[0, 0].numpy()[:, :2] == before).all()
        seen += len(chosen)
    assert seen == len(targets)


def test_every_order_is_equally_likely():
    late = np.array([False, True, False, True, True])
    counts = Counter(tuple(np.argsort(factorization_order(late, ((0, 5),), generator(seed))[late])) for seed in range(6000))
    assert len(counts) == 6
    assert all(abs(count - 1000) < 4.5 * np.sqrt(1000 * 5 / 6) for count in counts.values())


def test_blocks_keep_their_order():
    order = factorization_order(np.ones(10, dtype=bool), ((0, 10),), generator(0), 4)
    assert order[:4].max() < order[4:8].min()
    assert order[4:8].max() < order[8:].min()
    first, second = (np.argsort(order[start : start + 4]).tolist() for start in (0, 4))
    assert first == second
    # A short last block has the ranks of its tokens in the same permutation.
    assert np.argsort(order[8:]).tolist() == np.argsort(order[:2]).tolist()


# --- targets ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["word", "piece", "token"])
@pytest.mark.parametrize("order", ["permutation", "forward"])
def test_content_stream_never_holds_the_mask_token(unit, order):
    own, batch = task(span_unit=unit, order=order), pairs(rows=3, is_next=[1, 0, 1])
    before = batch.input_ids.clone()
    for seed in range(5):
        drawn = own.corrupt(batch, torch.Generator().manual_seed(seed))
        assert torch.equal(drawn.input_ids, before)
        assert not (drawn.input_ids == pieces().mask_id).any()
        changed = {name for name, value in vars(drawn).items() if value is not getattr(batch, name)}
        assert changed == {"order", "parts", "targets"}
        targets = drawn.targets
        assert targets.positions.shape == (3, 7)
        assert torch.equal(targets.labels, before.gather(1, targets.positions))
        assert not batch.functional[np.arange(3)[:, None], targets.positions.numpy()].any()
        assert (targets.weight == 1).all()
        assert targets.total == own.counts(drawn, MAIN)["permutation_lm"] == 21
        assert targets.counts == (4, 3)
        assert ((targets.positions < REUSED).sum(1) == 4).all()
    again = own.corrupt(batch, torch.Generator().manual_seed(4))
    assert torch.equal(again.targets.positions, drawn.targets.positions)
    assert torch.equal(again.order, drawn.order)
    other = own.corrupt(batch, torch.Generator().manual_seed(5))
    assert not torch.equal(other.targets.positions, drawn.targets.positions)


def test_draws_of_a_row_do_not_depend_on_its_batch_mates():
    own, batch = task(), pairs(rows=2)
    together = own.draw(batch, np.array([11, 12]))
    for row, seed in enumerate((11, 12)):
        cut = slice(row, row + 1)
        alone = own.draw(rows_of(batch.host_ids[cut], functional=batch.functional[cut], reused=REUSED), np.array([seed]))
        assert torch.equal(alone.order[0], together.order[row])
        assert torch.equal(alone.targets.positions[0], together.targets.positions[row])


def test_all_tokens_are_targets_if_k_is_one():
    own, batch = task(k=1.0), pairs()
    drawn = own.draw(batch, np.array([1, 2]))
    text = np.flatnonzero(~batch.functional[0])
    assert drawn.targets.positions.tolist() == [text.tolist()] * 2
    assert drawn.targets.counts == (9, 8)
    assert all(len(set(row)) == TOKENS for row in drawn.order.tolist())


def test_separators_come_late():
    """Context reads no separator, and no separator is read by the part before it."""
    drawn = task().draw(pairs(), np.array([1, 2]))
    for row in range(2):
        order, late = drawn.order[row], set(SEPARATORS) | set(drawn.targets.positions[row].tolist())
        first, second = (
            {int(order[place]) for place in range(*part) if place not in late} for part in ((0, REUSED), (REUSED, TOKENS))
        )
        assert first == {0}
        assert second == {REUSED + 1}
        assert all(order[place] > REUSED + 1 for place in SEPARATORS)
        assert all(0 < order[place] <= REUSED for place in late if place < REUSED)


def test_order_of_one_direction():
    """A target reads the tokens on one side, and no others."""
    own, batch = task({"memory": 0}, order="forward"), pairs(reused=0)
    drawn = own.draw(batch, np.array([1, 2]))
    assert (drawn.order.diff(dim=1) == 1).all()
    base = own.backbone(drawn)
    for place in range(TOKENS):
        ids = drawn.input_ids.clone()
        ids[:, place] = 5 + (ids[:, place] - 4) % 32
        same = (own.backbone(replace(drawn, input_ids=ids)).queries == base.queries).all(-1)
        assert torch.equal(same, drawn.targets.positions <= place)


# --- losses -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_loss_is_the_mean_over_targets(tied):
    own = task(tie_weights=tied)
    assert (own.head.weight is own.backbone.embedding.weight) == tied
    state = own.backbone(pairs(1)).state
    batch = exactly(own.draw(pairs(), np.array([1, 2])))
    ((losses, after),) = own.losses(batch, own.counts(batch, MAIN), MAIN, state, None)
    hidden = own.backbone(batch, state)
    logits = hidden.queries @ own.head.weight.t() + own.head.bias
    expected = F.cross_entropy(logits.flatten(0, 1), batch.targets.labels.flatten())
    assert losses.keys() == {"permutation_lm"}
    torch.testing.assert_close(losses["permutation_lm"], expected, **EXACT)
    torch.testing.assert_close(after["memory"], hidden.state["memory"], **EXACT)
    losses["permutation_lm"].backward()
    found = {name: parameter.grad for name, parameter in own.named_parameters()}
    own.zero_grad(set_to_none=True)
    expected.backward()
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, **EXACT, msg=name)


def test_next_segment_loss():
    own = task(next_segment=0.5)
    batch = exactly(own.draw(pairs(), np.array([1, 2])))
    divisors = own.counts(batch, MAIN)
    assert divisors == {"permutation_lm": 14.0, "next_segment": 2.0}
    ((losses, _),) = own.losses(batch, divisors, MAIN, None, None)
    cls = own.backbone(batch).tokens[:, -1]
    head = own.next_segment
    logits = (cls @ head.dense.weight.t() + head.dense.bias).tanh() @ head.out.weight.t() + head.out.bias
    expected = 0.5 * F.cross_entropy(logits, torch.tensor([1, 0]))
    torch.testing.assert_close(losses["next_segment"], expected, **EXACT)
    without = task()
    without.load_state_dict(own.state_dict(), strict=False)
    ((plain, _),) = without.losses(batch, {"permutation_lm": 14.0}, MAIN, None, None)
    torch.testing.assert_close(losses["permutation_lm"], plain["permutation_lm"], **EXACT)


@pytest.mark.parametrize("order", ["permutation", "forward"])
def test_memory_shows_nothing_of_the_next_row(order):
    """Segment A of a row is where the next row begins, so it must not reach the memory of the reused tokens."""
    own, batch = task(order=order), pairs()
    drawn = own.draw(batch, np.array([1, 2]))
    ids = drawn.input_ids.clone()
    ids[:, REUSED:] = 5 + (ids[:, REUSED:] - 4) % 32
    before, after = (own.backbone(each).state["memory"] for each in (drawn, replace(drawn, input_ids=ids)))
    assert torch.equal(before, after)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 0.5}, "task.k=0.5 must be at least 1"),
        ({"longest_span": 0}, "task.longest_span must be at least 1"),
        ({"permutation_block": 0}, "task.permutation_block must be at least 1"),
        ({"next_segment": -1.0}, "task.next_segment must be at least 0"),
        pytest.param({"span_unit": "sentence"}, "task.span_unit", marks=pytest.mark.ill_typed),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(RamifyError, match=message):
        PermutationLMConfig(**changes)


def test_next_segment_needs_two_segments():
    with pytest.raises(RamifyError, match="needs rows of two segments"):
        PermutationLM(xlnet(), pieces(), replace(INPUT, segments="none"), PermutationLMConfig(next_segment=1.0))
