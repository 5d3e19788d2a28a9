"""The options of losses above the tokens: formulas against plain computations, exact gradients, and what they leave alone."""

import math

import pytest
import torch
from torch.nn import functional as F

from fixtures import tokenizer
from fixtures.nested import EVERY_OPTION, batch_of, book, books, config, gradients, losses, part, task, tree_of
from ramify.batching.document_batch import NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.hub import load_own_tensors, own_tensors
from ramify.tasks.base import MAIN
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested.masked_child import SMALL, MaskedChildHead
from ramify.tasks.nested.similarity import MOMENTUM, Centre
from ramify.tasks.nested.task import NestedAutoencoder

EXACT = {"rtol": 0, "atol": 1e-10}
TREES = [
    *books(3),
    # A sentence that occurs three times, an only child, an empty paragraph, and a sentence that is cut.
    tree_of(part("paragraph", "aa ae", "ai", "aa ae"), part("paragraph", "aa ae"), part("paragraph"), name="e"),
    book([[9, 2], [1]], seed=8, name="f"),
]
MODULES = ("centres", "reconstruction_spaces", "mlm_spaces", "sibling_paths", "foreign_heads")


def drawn(own, trees=TREES, seed=6):
    return own.draw(batch_of(own, trees), seed)


def filled(own, seed=77):
    """The same task with other vectors in its queues and other centres."""
    batch, generator = batch_of(own, TREES), torch.Generator().manual_seed(seed)
    for level in range(1, own.backbone.depth):
        rows = batch.levels[level - 1]
        vectors = torch.randn(len(rows.rows), own.backbone.config.dims[level], generator=generator, dtype=torch.float64)
        own.queue(level).add(vectors, rows)
    for centre in own.centres or ():
        centre.mean.copy_(torch.randn(centre.mean.shape, generator=generator, dtype=torch.float64))
        centre.batches.fill_(1)
    return own


def encoded_levels(own, batch):
    encoded, vectors = [], None
    for number in range(len(batch.levels)):
        encoded.append(own.encode(batch, number, vectors))
        vectors = encoded[-1].parents
    return encoded


def mapped(linear, x):
    """A map that is the identity and a matrix."""
    dim = x.shape[-1]
    return x @ (torch.eye(dim, dtype=x.dtype) + linear.weight).T + (0 if linear.bias is None else linear.bias)


def cosine(one, other):
    return float((one @ other / (one.norm() * other.norm())).detach())


def log_of_right(scores, is_right):
    probabilities = [math.exp(score) for score in scores]
    return -math.log(sum(p for p, right in zip(probabilities, is_right, strict=True) if right) / sum(probabilities))


def naive_cross_entropy(space, centre, states, candidates, content, labels):
    """The sum over states, by loops. `labels` are contents."""
    temperature = math.exp(float(space.log_temperature.detach()))
    total = 0.0
    for state, label in zip(states, labels, strict=True):
        scores = [cosine(state, mapped(space.classes, vector - centre)) / temperature for vector in candidates]
        total += log_of_right(scores, [each == label for each in content])
    return total


# --- cosine scores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("queue", "classes", "ends"), [(0, "children", "class"), (64, "all_marks", "logistic")])
def test_losses_of_cosines(queue, classes, ends, training):
    """cos(u, M (x - c)) / temperature, with a map for each loss. c is the batch's mean in training, else the running mean."""
    changes = {"queue": queue, "classes": classes, "ends": ends}
    own = filled(task(scores="cosine", mask_rate=0.5, vector_distance=0.0, **changes)).train(training)
    batch = drawn(own)
    levels, vectors = encoded_levels(own, batch), own.backbone(batch).nodes
    queued = [(q.vectors[: len(q) * training].clone(), q.content[: len(q) * training].tolist()) for q in own.queues]
    running = [centre.mean.clone() for centre in own.centres]
    found = {name: float(loss.detach()) for name, loss in losses(own, batch).items()}
    for number in (1, 2):
        encoded, rows, draws = levels[number], batch.levels[number], batch.draws[number]
        candidates = torch.cat([own.backbone.encoder(number).table.weight, vectors[number - 1], queued[number - 1][0]]).detach()
        content = [*range(NUM_MARKS), *batch.levels[number - 1].content.tolist(), *queued[number - 1][1]]
        assert len(candidates) == len(content)
        centre = vectors[number - 1].detach().mean(0) if training else running[number - 1]
        states = own.decode(encoded).states.detach()
        first, places, expected = 0, torch.arange(len(states)), 0.0
        if ends == "logistic":
            first, places = NUM_MARKS, torch.nonzero(rows.is_child)[:, 0]
            logits = own.ends[number - 1](states, encoded.items)
            wanted = torch.stack([rows.slots == 0, rows.slots == 1], 1).double()
            expected = float(F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum").detach()) / 2
        labels = [content[slot] for slot in rows.slots[places].tolist()]
        space = own.reconstruction_spaces[number - 1]
        expected += naive_cross_entropy(space, centre, states[places], candidates[first:], content[first:], labels)
        assert found[f"reconstruction_{own.names[number + 1]}"] == pytest.approx(expected, abs=1e-9)
        first = NUM_MARKS if classes == "children" else 0
        labels = [content[slot] for slot in rows.slots[draws.masked].tolist()]
        states, space = own.masked_states(encoded, draws).detach(), own.mlm_spaces[number - 1]
        expected = naive_cross_entropy(space, centre, states, candidates[first:], content[first:], labels)
        assert found[f"mlm_{own.names[number]}"] == pytest.approx(expected, abs=1e-9)


def test_a_fresh_space_has_identities_and_a_temperature_of_a_tenth():
    own = built(**EVERY_OPTION)
    x = torch.randn(5, 12)
    for space in (own.reconstruction_spaces[0], own.mlm_spaces[0]):
        assert float(space.log_temperature.exp()) == pytest.approx(0.1)
        assert torch.equal(space.classes(x), x)
        assert torch.equal(space.restore(x), x)
    assert torch.equal(own.sibling_paths[0](x), x)
    assert torch.equal(own.restored_children(1, x), x)
    similarity = own.child_similarity(1)
    expected = 10 * F.cosine_similarity(x[:, None], x[None], dim=2)
    torch.testing.assert_close(similarity.scores(x, x), expected)


def test_the_way_back_learns_from_the_distance_of_vectors_and_changes_nothing_else():
    """2 mean |x - R u| / (mean |x| + mean |R u|), with a map for decoded and one for predicted states."""
    with_it, without = (filled(task(vector_distance=weight, **EVERY_OPTION)).eval() for weight in (0.3, 0.0))
    batch = drawn(with_it)
    found, fewer = losses(with_it, batch), losses(without, batch)
    for number, encoded in list(enumerate(encoded_levels(with_it, batch)))[1:]:
        rows, draws = batch.levels[number], batch.draws[number]
        for name, slots, states, space, count in (
            (
                f"reconstruction_{with_it.names[number + 1]}",
                rows.slots[rows.is_child],
                with_it.decode(encoded).states[rows.is_child],
                with_it.reconstruction_spaces[number - 1],
                len(rows.slots),
            ),
            (
                f"mlm_{with_it.names[number]}",
                rows.slots[draws.masked],
                with_it.masked_states(encoded, draws),
                with_it.mlm_spaces[number - 1],
                len(draws.masked),
            ),
        ):
            one, other = encoded.items[slots], mapped(space.restore, states)
            norms = one.norm(dim=1).mean() + other.norm(dim=1).mean()
            expected = 0.3 * count * 2 * (one - other).norm(dim=1).mean() / norms
            torch.testing.assert_close(found[name] - fewer[name], expected, **EXACT)
    one, other = gradients(with_it, batch), gradients(without, batch)
    restored = {name for name in one if ".restore." in name}
    assert len(restored) == 2 * 2 * 2
    assert all(one[name].abs().max() > 1e-3 for name in restored)
    assert not any(name in other for name in restored)
    for name in one.keys() - restored:
        assert torch.equal(one[name], other[name]), name
    plain = task()
    x = torch.randn(3, 12)
    assert plain.restored_children(1, x) is x
    assert plain.restored_masked(1, x) is x
    changed = with_it.restored_masked(1, x.double())
    torch.testing.assert_close(changed, mapped(with_it.mlm_spaces[0].restore, x.double()), **EXACT)


# --- masked children ----------------------------------------------------------------------------------------------------------


def naive_siblings(own, encoded, rows, draws, centre):
    """For each masked child, Σ (x - c) / √n over the children of its row that were not chosen."""
    owner = [row for row, length in enumerate(rows.rows.host_lengths.tolist()) for _ in range(length)]
    chosen, sums = draws.masked.tolist(), []
    for slot in chosen:
        visible = [
            encoded.items[int(rows.slots[other])] - centre
            for other in range(len(owner))
            if owner[other] == owner[slot] and other not in chosen and rows.slots[other] >= NUM_MARKS
        ]
        sums.append(sum(visible, torch.zeros_like(centre)) / math.sqrt(max(1, len(visible))))
    return torch.stack(sums)


@pytest.mark.parametrize("padding", ["packed", "full"])
@pytest.mark.parametrize("scores", ["plain", "cosine"])
@pytest.mark.parametrize("training", [True, False])
def test_the_sibling_path_adds_the_visible_siblings(padding, scores, training):
    """Chosen children that show another child or themselves are not visible."""
    split = (0.3, 0.4, 0.3)
    model = {"padding": padding}
    own = filled(task(model, sibling_path=True, scores=scores, mask_rate=0.5, mask_split=split, head="deep")).train(training)
    batch = drawn(own)
    shown = set()
    for number, encoded in list(enumerate(encoded_levels(own, batch)))[1:]:
        rows, draws = batch.levels[number], batch.draws[number]
        vectors = own.backbone(batch).nodes[number - 1]
        centre = vectors.mean(0) if training else own.centre(number).mean
        states = own.backbone.encoder(number).states(encoded.items, draws.masked_slots, rows.rows)[draws.masked]
        siblings = mapped(own.sibling_paths[number - 1], naive_siblings(own, encoded, rows, draws, centre))
        expected = own.mlm_heads[number](states) + siblings
        torch.testing.assert_close(own.masked_states(encoded, draws), expected, **EXACT)
        if not training:
            slots = draws.masked_slots
            again = own.masked_predictions(number, encoded.items, slots, rows.rows, draws.masked)
            torch.testing.assert_close(again, expected, **EXACT)
        shown |= {
            "itself" if slot == rows.slots[place] else "mask" if slot < NUM_MARKS else "another"
            for place, slot in zip(draws.masked.tolist(), draws.masked_slots[draws.masked].tolist(), strict=True)
        }
    assert shown == {"itself", "mask", "another"}


def test_forms_of_heads():
    x = torch.randn(7, 6)
    gelu, devlin, deep = MaskedChildHead(6), MaskedChildHead(6, "devlin"), MaskedChildHead(6, "deep")

    def norm(x):
        return (x - x.mean(1, keepdim=True)) / (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()

    def dense(layer, x):
        return x @ layer.weight.T + layer.bias

    torch.testing.assert_close(gelu(x), F.gelu(dense(gelu.dense, x)))
    torch.testing.assert_close(devlin(x), norm(F.gelu(dense(devlin.dense, x))))
    torch.testing.assert_close(deep(x), dense(deep.out, norm(F.gelu(dense(deep.dense, x)))))
    assert [tuple(each.dense.weight.shape) for each in (gelu, devlin, deep)] == [(6, 6), (6, 6), (12, 6)]
    small = MaskedChildHead(200, "deep", small=True)
    assert float(small.out.weight.std()) == pytest.approx(SMALL / math.sqrt(400), rel=0.05)
    assert not small.out.bias.any()


@pytest.mark.parametrize("head", ["devlin", "deep"])
def test_tokens_keep_their_head(head):
    """Their scores have BERT's form by the tied embedding and its bias."""
    own, plain = task(head=head), task()
    names = {name for name in own.state_dict() if name.startswith("mlm_heads.0.")}
    assert names == {name for name in plain.state_dict() if name.startswith("mlm_heads.0.")}
    assert all(own.mlm_heads[level].norm is not None for level in (1, 2))
    assert own.mlm_heads[0].norm is None


def test_unchanged_children_are_not_hidden():
    own = task(mask_rate=0.5, mask_split=(0.4, 0.3, 0.3))
    batch = drawn(own)
    for rows, draws in zip(batch.levels, batch.draws, strict=True):
        expected = [bool(draws.masked_slots[slot] != rows.slots[slot]) for slot in draws.masked.tolist()]
        assert draws.hides(rows).tolist() == expected
        assert len(set(expected)) == 2


# --- foreign children ---------------------------------------------------------------------------------------------------------


def test_foreign_children_are_judged_one_by_one():
    """The cross-entropy of each marked child, from its state in the checker's pass, above the tokens."""
    own = task(foreign=3.0).eval()
    batch = drawn(own)
    found, counts = losses(own, batch), own.counts(batch, MAIN)
    assert {name for name in found if name.startswith("foreign")} == {"foreign_sentence", "foreign_paragraph"}
    both = set()
    for number, encoded in list(enumerate(encoded_levels(own, batch)))[1:]:
        rows, draws, name = batch.levels[number], batch.draws[number], f"foreign_{own.names[number]}"
        states = own.backbone.encoder(number).states(encoded.items, draws.replaced_slots, rows.rows, draws.segments)
        total, count, head = 0.0, 0, own.foreign_heads[number - 1]
        for slot in range(len(rows.slots)):
            if not draws.segments[slot]:
                assert draws.replaced_slots[slot] == rows.slots[slot]
                continue
            hidden = F.gelu(states[slot] @ head.dense.weight.T + head.dense.bias)
            chance = float(torch.sigmoid(hidden @ head.out.weight[0] + head.out.bias[0]))
            replaced = bool(draws.replaced_slots[slot] != rows.slots[slot])
            total -= math.log(chance if replaced else 1 - chance)
            count += 1
            both.add(replaced)
        assert counts[name] == count > 0
        assert float(found[name]) == pytest.approx(3 * total, abs=1e-9)
        shares, logits = own.replaced_children(
            number, encoded.items, draws.replaced_slots, rows.rows, draws.segments, draws.marked
        )
        torch.testing.assert_close(logits, head(states[draws.marked]), **EXACT)
        again = own.replaced_share(number, encoded.items, draws.replaced_slots, rows.rows, draws.segments)
        assert torch.equal(shares, again)
    assert both == {True, False}
    assert not built(foreign=1.0).foreign_heads[0].out.bias.any()


def test_foreign_children_and_the_checker_share_a_pass():
    own = task(foreign=3.0).train()
    batch = drawn(own)
    calls = []
    for number in range(own.backbone.depth):
        own.backbone.encoder(number).states.register_forward_hook(lambda *given, number=number: calls.append(number))
    losses(own, batch)
    # Rows as they are, with masks, and with replaced children.
    assert [calls.count(number) for number in range(own.backbone.depth)] == [3, 3, 3]
    only = task(foreign=3.0, without=("coherence_sentence", "coherence_paragraph", "coherence_document"))
    assert float(losses(only, batch)["foreign_sentence"]) > 0


# --- the whole ----------------------------------------------------------------------------------------------------------------


def built(**changes):
    """A fresh task in single precision."""
    torch.manual_seed(0)
    return NestedAutoencoder(config().build(), tokenizer(), LevelInput(), NestedAutoencoderConfig(**changes))


def test_options_that_are_off_build_nothing_and_move_no_weight():
    plain = built()
    assert not any(name.startswith(MODULES) for name in plain.state_dict())
    assert list(plain.state_dict()) == list(built(**dict.fromkeys(("sibling_path",), False)).state_dict())
    every = built(**{**EVERY_OPTION, "head": "gelu"})
    names = list(every.state_dict())
    assert names[: len(plain.state_dict())] == list(plain.state_dict())
    assert all(name.startswith(MODULES) for name in names[len(plain.state_dict()) :])
    assert all(torch.equal(every.state_dict()[name], tensor) for name, tensor in plain.state_dict().items())


@pytest.mark.parametrize("scores", ["plain", "cosine"])
def test_gradients_through_the_mean_of_the_batch_equal_finite_differences(scores):
    """In training, the centre moves with the vectors."""
    own = filled(task({"cells": "transformer"}, **{**EVERY_OPTION, "scores": scores}, queue=0, vector_distance=0.0)).train()
    batch = drawn(own, TREES[2:])
    parameters = list(own.parameters())
    generator = torch.Generator().manual_seed(1)
    ways = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in parameters]
    step = 1e-7
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            for parameter, way in zip(parameters, ways, strict=True):
                parameter.add_(way, alpha=sign * step)
            ends.append(losses(own, batch))
            for parameter, way in zip(parameters, ways, strict=True):
                parameter.sub_(way, alpha=sign * step)
    for name, loss in losses(own, batch).items():
        exact = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
        along = sum(float((each * way).sum()) for each, way in zip(exact, ways, strict=True) if each is not None)
        assert float(ends[0][name] - ends[1][name]) / (2 * step) == pytest.approx(along, rel=1e-5), name


def test_the_way_back_has_exact_gradients():
    own = filled(task({"cells": "transformer"}, **EVERY_OPTION, vector_distance=0.7)).eval()
    batch = drawn(own, TREES[2:])
    parameters = [parameter for name, parameter in own.named_parameters() if ".restore." in name]
    total = torch.stack(list(losses(own, batch).values())).sum()
    exact = torch.autograd.grad(total, parameters)
    for parameter, gradient in zip(parameters, exact, strict=True):
        way, ends = torch.randn(parameter.shape, dtype=torch.float64), []
        for sign in (1e-6, -2e-6):
            with torch.no_grad():
                parameter.add_(way, alpha=sign)
                ends.append(float(torch.stack(list(losses(own, batch).values())).sum()))
        with torch.no_grad():
            parameter.add_(way, alpha=1e-6)
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float((gradient * way).sum()), rel=1e-5, abs=1e-7)


def test_the_centre_is_a_running_mean():
    centre = Centre(3).double()
    batches = [torch.randn(count, 3, dtype=torch.float64) + 2 for count in (4, 1, 0, 5)]
    expected = torch.zeros(3, dtype=torch.float64)
    assert torch.equal(centre.eval()(batches[0]), expected)
    for number, vectors in enumerate(batches):
        centre.observe(vectors)
        if number == 0:
            expected = vectors.mean(0)
        elif len(vectors):
            expected = MOMENTUM * expected + (1 - MOMENTUM) * vectors.mean(0)
        torch.testing.assert_close(centre.mean, expected, **EXACT)
    # A single vector less its own mean would have no direction.
    for vectors in batches:
        torch.testing.assert_close(centre.train()(vectors), vectors.mean(0) if len(vectors) > 1 else expected, **EXACT)
        torch.testing.assert_close(centre.eval()(vectors), expected, **EXACT)


def test_centres_take_a_batch_in_training_and_are_saved():
    own = task(**EVERY_OPTION)
    batch = drawn(own)
    losses(own.eval(), batch)
    assert not any(int(centre.batches) for centre in own.centres)
    losses(own.train(), batch)
    for level, centre in enumerate(own.centres, 1):
        torch.testing.assert_close(centre.mean, own.backbone(batch).nodes[level - 1].mean(0), **EXACT)
    saved = {name: tensor.clone() for name, tensor in own_tensors(own).items()}
    assert {"centres.0.mean", "centres.0.batches", "centres.1.mean"} <= set(saved)
    other = task(**EVERY_OPTION)
    load_own_tensors(other, saved, "here")
    one, two = (losses(each.eval(), drawn(own, seed=8)) for each in (own, other))
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_detached_classes_leave_vectors_to_the_sibling_path():
    """Candidates and their centre have no gradient; the siblings that a prediction reads have."""
    moved = {}
    for path in (False, True):
        own = filled(task(**{**EVERY_OPTION, "sibling_path": path, "classes_detached": True}, vector_distance=0.0)).train()
        batch = drawn(own)
        vectors = own.backbone(batch).nodes[0].detach().requires_grad_()
        encoded = own.encode(batch, 1, vectors)
        assert encoded.classes is not None
        keys = encoded.classes.similarity(own.mlm_spaces[0]).keys(encoded.classes.vectors)
        moved[path] = torch.autograd.grad(keys.square().sum(), vectors, allow_unused=True)[0]
        assert not encoded.classes.vectors.requires_grad
        assert encoded.centre is not None
        assert encoded.centre.requires_grad
    assert moved == {False: None, True: None}


def test_levels_begin_one_after_the_other_with_every_option():
    own = task(schedule="staged", unlock_steps=10, freeze_below=True, **EVERY_OPTION).train()
    for updates, level in ((0, 0), (10, 1), (20, 2)):
        own.updates = updates
        batch = drawn(own)
        learnt = gradients(own, batch)
        for module in MODULES[1:]:
            assert {int(name.split(".")[1]) for name in learnt if name.startswith(module)} == ({level - 1} if level else set())
        assert [int(centre.batches) for centre in own.centres] == [int(updates >= 10 * number) for number in (1, 2)]


def test_a_long_document_learns_with_every_option():
    """Its chapters come from the queue and the parts."""
    long = [book([[3], [2, 1], [4, 2], [2, 2, 8], [5]], seed=1), book([[1, 1], [6], [2]], seed=2, name="e")]
    own = filled(task(upper="two_phase", **EVERY_OPTION)).train()
    batch = own.draw(batch_of(own, long, budget=9, document_draws=2), 3)
    assert len(batch.parts) > 3
    found = gradients(own, batch)
    assert all(torch.isfinite(gradient).all() for gradient in found.values())
    assert found["backbone.encoders.0.states.table.weight"].abs().max() > 1e-6
    assert [int(centre.batches) for centre in own.centres] == [1, 2]
