"""Generators and discriminators of nested documents: isolated gradients, equal paths of real and generated vectors."""

import math
from dataclasses import replace

import pytest
import torch

from fixtures import tokenizer
from fixtures.nested import books, config, read
from ramify.batching.adversary_batch import AdversaryBatch
from ramify.batching.document_batch import EOS, NUM_MARKS
from ramify.batching.views.documents import LevelInput
from ramify.errors import RamifyError
from ramify.models.name_memory import NameMemoryConfig
from ramify.nn.modes import evaluating
from ramify.nn.ragged import Rows
from ramify.tasks.adversarial import DISCRIMINATOR, GENERATOR, fooled, told_apart
from ramify.tasks.base import MAIN
from ramify.tasks.nested.config import NestedAutoencoderConfig
from ramify.tasks.nested_adversary import NestedAdversary, NestedAdversaryConfig
from ramify.tensors import owned

COSINES = {"scores": "cosine", "balanced": False}


def adversary(model=None, autoencoder=None, **settings):
    """Larger weights than fresh ones, so that every path has a visible signal."""
    torch.manual_seed(0)
    own = NestedAdversaryConfig(autoencoder=NestedAutoencoderConfig(**(autoencoder or {})), maps=4, **settings)
    task = NestedAdversary(config(**(model or {})).build(), tokenizer(), LevelInput(), own).double()
    with torch.no_grad():
        for parameter in task.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return task.train()


def batch_of(task, trees=None):
    view, collator = read(task.autoencoder, books(5) if trees is None else trees)
    batch = AdversaryBatch(collator([view.example(number) for number in range(len(view))]))
    return task.corrupt(batch, torch.Generator().manual_seed(0))


def losses_of(task, batch, phase, shared):
    counts = task.counts(batch, phase)
    found = {}
    for named, _ in task.losses(batch, counts, phase, None, shared):
        total = torch.stack(list(named.values())).sum()
        if total.requires_grad:
            total.backward()
        found |= {name: float(value.detach()) for name, value in named.items()}
    return found


def taught(task):
    """The modules whose parameters have a gradient."""
    return {name.split(".")[0] for name, own in task.named_parameters() if own.grad is not None and own.grad.abs().sum() > 0}


@pytest.mark.parametrize("scores", [{}, COSINES], ids=["products", "cosines"])
@pytest.mark.parametrize("loss", ["non_saturating", "minimax"])
@pytest.mark.parametrize("when", ["with", "after", "checker"])
def test_each_phase_teaches_its_own_player_alone(when, loss, scores):
    """After the phase of a player, no encoder and no decoder has a gradient, even if all parameters could take one."""
    task = adversary(autoencoder=scores, when=when, loss=loss)
    assert all(parameter.requires_grad for parameter in task.parameters())
    batch = batch_of(task)
    shared = task.shared(batch, None)
    names = [phase.name for phase in task.phases]
    assert (
        names
        == {
            "with": [MAIN, DISCRIMINATOR, GENERATOR],
            "after": [DISCRIMINATOR, GENERATOR],
            "checker": [GENERATOR],
        }[when]
    )
    for name in names:
        task.zero_grad(set_to_none=True)
        found = losses_of(task, batch, name, shared)
        assert all(map(math.isfinite, found.values()))
        expected = {MAIN: {"backbone", "autoencoder"}, DISCRIMINATOR: {"discriminators"}, GENERATOR: {"generators"}}[name]
        assert taught(task) == expected
    assert all(parameter.requires_grad for parameter in task.parameters())
    assert ("backbone" in task.frozen) == ("autoencoder" in task.frozen) == (when != "with")


def test_a_saved_task_names_every_tensor_once():
    task = adversary()
    names = owned(task)
    assert {name.split(".")[0] for name in names} == {"backbone", "autoencoder", "generators", "discriminators"}
    assert not any(name.startswith("autoencoder.backbone") for name in names)


def test_players_start_at_the_prior():
    torch.manual_seed(0)
    task = NestedAdversary(config().build(), tokenizer(), LevelInput(), NestedAdversaryConfig())
    batch = batch_of(task)
    shared = task.shared(batch, None)
    for phase in (DISCRIMINATOR, GENERATOR):
        found = losses_of(task, batch, phase, shared)
        readings = task.readings(batch, phase, None, shared)
        counts = task.counts(batch, phase)
        assert found.keys() == counts.keys() == readings.constants.keys() == readings.losses.keys()
        for name, value in found.items():
            assert value == pytest.approx(math.log(2))
            assert readings.constants[name].total / counts[name] == pytest.approx(math.log(2))


def test_the_losses_are_those_of_goodfellow():
    real, generated = torch.randn(5, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    p, q = torch.sigmoid(real), torch.sigmoid(generated)
    assert torch.allclose(told_apart(real, generated), -(p.log().sum() + (1 - q).log().sum()))
    assert torch.allclose(fooled(generated, "minimax"), (1 - q).log().sum())
    assert torch.allclose(fooled(generated, "non_saturating"), -q.log().sum())


def test_real_and_generated_vectors_take_the_same_path():
    """A generator that gives back the real vectors leaves the discriminator the same children."""
    task = adversary(autoencoder=COSINES).eval()
    batch = batch_of(task)
    drawn = task.shared(batch, None)
    for level in task.learning:
        match = task.matches(drawn)[task.names[level]]
        task.generators[level - 1].forward = lambda z, level=level: drawn.real[level]
        assert torch.equal(match.real(), match.generate())
        sizes = task.backbone.config
        assert match.real().shape[1:] == (sizes.max_children[level - 1], sizes.dims[level - 1])


def test_children_above_the_tokens_pass_the_way_back():
    task = adversary(autoencoder=COSINES).eval()
    vectors = torch.randn(3, task.backbone.config.dims[2], dtype=torch.float64)
    decoder = task.autoencoder.decoder.level(1)
    rows = decoder.all_places(3, vectors.device)
    states = decoder.parallel(decoder.decompress(vectors, rows), rows)
    children = task.decoded(2, vectors).flatten(0, 1)
    assert torch.allclose(children, task.autoencoder.restored_children(1, states))
    assert not torch.allclose(children, states)


def test_the_autoencoder_has_no_dropout_and_the_discriminator_has():
    task = adversary(model={"dropout": 0.4})
    batch = batch_of(task)
    shared = task.shared(batch, None)
    again = task.shared(batch, None)
    assert all(torch.equal(shared.real[level], again.real[level]) for level in task.learning)
    assert not any(torch.equal(shared.noise[level], again.noise[level]) for level in task.learning)
    match = task.matches(shared)["paragraph"]
    with evaluating(task.autoencoder):
        assert torch.equal(match.real(), match.real())
    one, other = (losses_of(task, batch, DISCRIMINATOR, shared) for _ in range(2))
    assert one != other


def test_real_vectors_are_those_of_the_encoder():
    task = adversary().eval()
    batch = batch_of(task)
    nodes = task.backbone(batch.documents).nodes
    real = task.real_vectors(batch)
    assert torch.equal(real[1], nodes[0])
    assert torch.equal(real[2], nodes[1])
    # A document is a paragraph alone.
    assert len(real[3]) == len(nodes[1])
    encoder = task.backbone.encoder(2)
    for child, vector in zip(nodes[1], real[3], strict=True):
        slots, rows = torch.tensor([NUM_MARKS, EOS]), Rows.build([2])
        states = encoder.states(encoder.items(child[None]), slots, rows)
        assert torch.allclose(encoder.row_vectors(states, slots, rows)[0], vector)
    whole = adversary(alone=()).eval()
    assert torch.equal(whole.real_vectors(batch)[3], whole.backbone(batch.documents).nodes[2])


def test_a_batch_in_parts_has_the_vectors_of_the_whole():
    task = adversary(alone=()).eval()
    view, collator = read(task.autoencoder, books(2), budget=20)
    examples = [view.example(number) for number in range(len(view))]
    apart = [example for example in examples if example.apart]
    assert apart
    parted = AdversaryBatch(collator(apart[:1]))
    whole = AdversaryBatch(collator([replace(apart[0], apart=False)]))
    assert parted.documents.parts
    one, other = task.real_vectors(parted), task.real_vectors(whole)
    for level in (1, 2):
        assert torch.allclose(one[level].sum(0), other[level].sum(0))
    assert torch.allclose(one[3], other[3])
    for batch in (parted, whole):
        counts = task.counts(batch, GENERATOR)
        assert list(counts.values()) == [len(rows) for rows in task.shared(batch, None).real.values()]


def test_no_more_vectors_are_read_than_asked_for():
    task = adversary(vectors=4)
    batch = batch_of(task)
    assert set(task.counts(batch, GENERATOR).values()) == {4.0}
    assert set(task.counts(batch, DISCRIMINATOR).values()) == {8.0}
    shared = task.shared(batch, None)
    assert all(len(rows) == 4 for rows in (*shared.real.values(), *shared.noise.values()))


def test_levels_that_do_not_learn_are_frozen():
    task = adversary(levels=("paragraph",))
    assert task.learning == (2,)
    assert set(task.frozen) == {
        *("backbone", "autoencoder", "generators.0", "generators.2", "discriminators.0", "discriminators.2")
    }
    batch = batch_of(task)
    assert list(task.counts(batch, GENERATOR)) == ["generator_paragraph"]


def test_norms_are_bounded_after_the_discriminators_phase():
    task = adversary(max_norm=0.5)
    with torch.no_grad():
        for discriminator in task.discriminators:
            discriminator.out.weight.fill_(1.0)
        task.after_update(GENERATOR)
        assert all(float(each.out.weight.norm()) > 1 for each in task.discriminators)
        task.after_update(DISCRIMINATOR)
        assert all(float(each.out.weight.norm()) == pytest.approx(0.5, rel=1e-4) for each in task.discriminators)


def test_a_checker_reads_vectors_and_likes_few_replaced_children():
    task = adversary(when="checker")
    batch = batch_of(task)
    shared = task.shared(batch, None)
    made = task.generator(1)(shared.noise[1])
    shares = task.checker(1)(made)
    found = losses_of(task, batch, GENERATOR, shared)["generator_sentence"]
    assert found == pytest.approx(float(-(1 - shares.detach()).log().mean()))
    assert len(task.discriminators) == 0


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ({"decoder": "autoregressive"}, {}, "decoder=autoregressive.*no gradient.*decoder=parallel"),
        ({}, {"autoencoder": NestedAutoencoderConfig(encoder_only=True)}, "no decoder and no checker.*ramify train agent"),
        ({}, {"autoencoder": NestedAutoencoderConfig(reconstruction=0.0)}, "decoders.*learned nothing"),
        (
            {},
            {"autoencoder": NestedAutoencoderConfig(coherence=0.0), "when": "checker"},
            "checkers.*learned nothing",
        ),
        ({}, {"levels": ("verse",)}, "verse, which the model does not have"),
    ],
)
def test_models_without_the_parts_are_refused(model, settings, message):
    with pytest.raises(RamifyError, match=message):
        NestedAdversary(config(**model).build(), tokenizer(), LevelInput(), NestedAdversaryConfig(**settings))


@pytest.mark.parametrize(
    "settings",
    [{"layers": 0}, {"vectors": 0}, {"widths": ()}, {"width": 0.0}, {"dropout": 1.0}, {"max_norm": 0.0}, {"levels": ()}],
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(RamifyError, match=f"task.{next(iter(settings))}"):
        NestedAdversaryConfig(**settings)


# --- names ----------------------------------------------------------------------------------------------------------------

NAMES = {"names": NameMemoryConfig(questions=3, filters=8)}


@pytest.mark.parametrize("noise", ["document", "answer"])
@pytest.mark.parametrize("when", ["with", "after"])
def test_names_are_generated_in_the_generators_phase(when, noise):
    task = adversary(model=NAMES, when=when, names_noise=noise)
    batch = batch_of(task)
    shared = task.shared(batch, None)
    assert shared.names.answers.shape == (len(shared.real[1]), 3 if noise == "answer" else 1, 8)
    for name in (DISCRIMINATOR, GENERATOR):
        task.zero_grad(set_to_none=True)
        losses_of(task, batch, name, shared)
        expected = {DISCRIMINATOR: {"discriminators"}, GENERATOR: {"generators", "names_generator"}}[name]
        assert taught(task) == expected
    assert task.phases[-1].parameters == ("generators", "names_generator")


def test_names_of_real_documents():
    """Each generated sentence belongs to a document of the batch."""
    task = adversary(model=NAMES, names_document="real")
    batch = batch_of(task)
    drawn = task.shared(batch, None)
    real = drawn.real[task.backbone.depth]
    assert all(any(torch.equal(row, own) for own in real) for row in drawn.names.documents)
    losses_of(task, batch, GENERATOR, drawn)
    assert taught(task) == {"generators", "names_generator"}
    with pytest.raises(RamifyError, match=r"task\.names_document=real needs a document in each batch"):
        task._drawn_names(drawn.names.real, {})


def test_the_generator_of_documents_learns_nothing_from_names():
    task = adversary(model=NAMES, levels=("sentence",))
    batch = batch_of(task)
    losses_of(task, batch, GENERATOR, task.shared(batch, None))
    assert all(own.grad is None for own in task.generators[2].parameters())
    assert all(own.grad is not None for own in task.names_generator.parameters())


def test_real_sentences_read_the_names_of_their_documents():
    """The mean of all sentences of a document, one after the other, empty ones left out."""
    task = adversary(model=NAMES).eval()
    batch = batch_of(task)
    rows = batch.documents.levels[0]
    memory, encoder = task.autoencoder.name_memory, task.backbone.encoder(0)
    answers = memory.write(encoder.states(encoder.items(None), rows.slots, rows.rows), rows.rows, rows.is_child)
    banks = task.real_names(batch)
    for number, document in enumerate(rows.document.tolist()):
        own = [row for row in range(len(rows.rows)) if rows.document[row] == document and rows.counts[row] > 0]
        assert torch.allclose(banks.answers[number], answers.means[own].mean(0))
    assert bool(banks.known.all())


def test_names_change_the_tokens_alone():
    task = adversary(model=NAMES).eval()
    batch = batch_of(task)
    shared = task.shared(batch, None)
    banks = task.real_names(batch)
    vectors = shared.real[1]
    assert not torch.allclose(task.decoded(1, vectors, banks), task.decoded(1, vectors, banks.without_answers()))
    assert torch.equal(task.decoded(2, shared.real[2]), task.matches(shared)["paragraph"].real())


def test_a_checker_needs_no_names():
    task = adversary(model=NAMES, when="checker")
    assert task.names_generator is None
    assert not bool(task.names_of(2, torch.Generator()).known.any())
    batch = batch_of(task)
    losses_of(task, batch, GENERATOR, task.shared(batch, None))
    assert taught(task) == {"generators"}
