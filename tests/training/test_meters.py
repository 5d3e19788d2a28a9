"""Meters of learning: constants against naive computations, ranks, gradients, warnings; a run is equal without them."""

import math
from collections import Counter
from contextlib import nullcontext
from dataclasses import fields, is_dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from short_runs import SHORT, equal, records, weights

from fixtures import (
    bert_task,
    channel,
    discussions,
    forest,
    masked,
    mht_task,
    running,
    tokenizer,
    tree_task,
    view_of,
    whole,
    words_task,
)
from fixtures import nested as documents
from fixtures.label_tasks import LABEL_TASKS
from fixtures.parallel import SEQ2SEQ, translations
from fixtures.running import streams
from fixtures.running import task as xlnet_task
from fixtures.toys import Forger, NextLetter, Texts
from ramify.batching.adversary_batch import AdversaryBatch
from ramify.batching.document_batch import DocumentCollator, Role
from ramify.batching.row_batch import RowCollator
from ramify.batching.views.documents import Documents, LevelInput
from ramify.batching.views.packed import TextRow
from ramify.disentangle.batch import LinkCollator
from ramify.disentangle.config import ChatInput
from ramify.disentangle.data.blocks import Blocks
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.data.pieces import format_message
from ramify.disentangle.data.structure import ReplyStructure
from ramify.disentangle.data.words import learn_vocabulary
from ramify.inference import row_evaluation
from ramify.inference.evaluation import masked_targets
from ramify.inference.row_evaluation import evaluate_rows
from ramify.inference.stream_evaluation import drawn_rows, evaluate_streams
from ramify.nn.modes import generator_state
from ramify.registry import TASKS
from ramify.tasks.base import MAIN
from ramify.tasks.constants import Bernoulli, Frequencies, NoConstant, Several, SquaredError
from ramify.tasks.denoising_lm import DenoisingLM, DenoisingLMConfig
from ramify.tasks.nested_adversary import NestedAdversary, NestedAdversaryConfig
from ramify.training.config import TrainConfig
from ramify.training.meters import (
    MeterSums,
    TrainingBatch,
    gradients_due,
    lines,
    part_of,
    problems,
    read_gradients,
    read_meters,
    separability,
)
from ramify.training.phases import phase_optimizers
from ramify.training.trainer import Stage, Trainer

# --- constants ----------------------------------------------------------------------------------------------------------


def entropy(labels):
    counts = np.array(list(Counter(labels).values()))
    return float(-(counts * np.log(counts / counts.sum())).sum())


def test_frequencies_of_batches_add_up():
    labels = torch.tensor([3, 1, 3, 3, 0, 1])
    parts = [Frequencies.of(part, torch.full(part.shape, 0.5), 5) for part in labels.split([2, 4])]
    # Three classes of six labels: half a nat more for each but one (Miller and Madow).
    assert (parts[0] + parts[1]).total == pytest.approx(0.5 * (entropy(labels.tolist()) + 1.0))
    assert Frequencies.of(labels[:0], torch.zeros(0), 5).total == 0.0


def test_smoothed_frequencies_are_the_least_smoothed_loss():
    labels, smoothing = torch.tensor([0, 0, 0, 1, 2, 2]), 0.1
    scores = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scores], max_iter=200)

    def loss():
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(scores.expand(6, 4), labels, reduction="sum", label_smoothing=smoothing)
        value.backward()
        return value

    optimizer.step(loss)
    constant = Frequencies.of(labels, torch.ones(6), 4, smoothing)
    assert constant.total - 1.0 == pytest.approx(float(loss().detach()), abs=1e-6)


def test_squared_errors_and_decisions():
    numbers = torch.tensor([0.0, 0.25, 1.0, 0.5])
    parts = [SquaredError.of(part, 3.0) for part in numbers.split(1)]
    assert reduce(add, parts).total == pytest.approx(3 * float((numbers - numbers.mean()).square().sum()))
    assert (Bernoulli(1.0, 2.0) + Bernoulli(0.0, 1.0)).total == pytest.approx(4 * (0.25 * math.log(4) + 0.75 * math.log(4 / 3)))
    assert Several((NoConstant(), SquaredError.of(numbers, 1.0))).total is None


def test_candidates_are_chosen_alike_and_marks_by_frequency():
    own = documents.task()
    batch = own.draw(documents.batch_of(own, documents.books(4)), 0)
    with own.evaluating(), torch.no_grad():
        readings = own.readings(batch, MAIN, None, None)
    rows, below = batch.levels[1], batch.levels[0]
    content = below.content.tolist()
    children = rows.children.tolist()
    labels = rows.slots[rows.true_slots].tolist()
    marks = [slot if slot < 6 else "child" for slot in labels]
    correction = (len(set(marks)) - 1) / 2
    nats = sum(math.log(len(content) / content.count(content[child])) for child in children)
    distance = readings.constants["reconstruction_paragraph"].parts[1].total
    assert readings.constants["reconstruction_paragraph"].total == pytest.approx(
        entropy(marks) + correction + nats + distance, rel=1e-5
    )
    hidden = [slot - 6 for slot in rows.slots[batch.draws[1].masked].tolist()]
    nats = sum(math.log(len(content) / content.count(content[child])) for child in hidden)
    assert readings.constants["mlm_sentence"].total == pytest.approx(nats, rel=1e-6)


def test_constants_have_the_weights_of_losses():
    plain, light = documents.task(balanced=False), documents.task(balanced=True, mlm=0.5)
    totals = []
    for own in (plain, light):
        batch = own.draw(documents.batch_of(own, documents.books(4)), 0)
        with own.evaluating(), torch.no_grad():
            totals.append(own.readings(batch, MAIN, None, None).constants["mlm_sentence"].total)
    assert totals[1] == pytest.approx(totals[0] * 0.5 / math.sqrt(plain.backbone.config.dims[1]))


@pytest.mark.parametrize("share", [0.0, 5 / 6])
def test_constants_follow_scheduled_weights(share):
    """The weights of the losses of vectors fall to half in five sixths of the training."""
    task = words_task(task={"vector_loss_schedule": "last_third"})
    assert "own_words" in task.annealed
    (batch,) = comments(task)[1]
    task.share_done = share
    with task.evaluating(), torch.no_grad():
        readings = task.readings(batch, MAIN, None, None)
    task.share_done = 0.0
    with task.evaluating(), torch.no_grad():
        first = task.readings(batch, MAIN, None, None)
    factor = 1.0 if share == 0 else 0.5
    assert float(readings.losses["own_words"]) == pytest.approx(factor * float(first.losses["own_words"]))
    assert readings.constants["own_words"].total == pytest.approx(factor * first.constants["own_words"].total)


# --- every task ---------------------------------------------------------------------------------------------------------


def comments(task):
    data = forest(discussions(3, 8))
    return task, [masked(task, data, whole(task, data))]


def rows_of_documents(**changes):
    own = documents.task(**changes)
    return own, [own.draw(documents.batch_of(own, documents.books(3)), 0)]


def units(role, *, queue, chunked=False, given=0):
    """A batch from which a part of a model of documents learns. Given vectors are drawn."""
    own = documents.task(queue=queue)
    levels, sizes = documents.levels_of(documents.books(6)), own.backbone.config.max_children
    if role in (Role.LOWEST, Role.DECODER):
        levels, sizes = replace(levels, levels=levels.levels[:1]), sizes[:1]
    view = Documents(levels, sizes, own.input, budget=30, divided=chunked)
    vectors = np.random.default_rng(0).normal(size=(len(view.rows.levels[0]), own.backbone.config.dims[1]))
    collate = DocumentCollator(view.rows, view.unit, 30, chunked=chunked, role=role, given=given)
    collate = replace(collate, vectors=lambda rows: vectors[rows]) if given else collate
    examples = [view.example(number) for number in range(len(view))]
    batch = own.draw(collate([example for example in examples if not example.apart]), 0)
    assert bool(batch.parts) == chunked
    return own, [batch]


def generators(when):
    """Generators of documents, their discriminators, and the autoencoder that may learn beside them."""
    torch.manual_seed(0)
    settings = NestedAdversaryConfig(when=when, maps=4)
    task = NestedAdversary(documents.config().build(), tokenizer(), LevelInput(), settings)
    batch = AdversaryBatch(documents.batch_of(task.autoencoder, documents.books(3)))
    return task, [task.corrupt(batch, torch.Generator().manual_seed(0))]


def pieces_of_streams(task):
    return task, list(drawn_rows(task, streams(input=task.input)))


def pairs():
    """Rows of two segments, and whether the second follows the first."""
    words = tokenizer()
    task = bert_task(task={"next_sentence": 0.5, "comment_loss": "token", "loss_norm": "tokens"}, pooling="pooler")
    frame, random = words.layout("bert").frame, np.random.default_rng(0)
    rows = []
    for number in range(6):
        ids = words.layout("bert").wrap_pair(random.integers(9, 20, 5), random.integers(9, 20, 4 + number))
        special = np.isin(ids, words.special_ids)
        rows.append(TextRow(number, ids, special, np.zeros(len(ids), dtype=np.int64), number % 2))
    batch = RowCollator(frame, pairs=True)(rows)
    return task, [task.mask(batch, torch.arange(6))]


def links(objective):
    """Messages with known links, and their candidates."""
    read = ChatInput(window=5, texts="pieces", max_tokens=12)
    tree = channel(12, 0)
    words = learn_vocabulary((format_message(node, author=True).lower().split() for node in tree.nodes), min_count=1)
    logs = Logs.build([tree], read).tokenize(words)
    logs = logs.drop_starts() if objective == "ranking" else logs
    collate = LinkCollator(logs, structure=ReplyStructure.from_gold(logs), same_conversation=objective == "listwise")
    view = Blocks(logs, logs.linked, block=4)
    return mht_task(words, read, 0, objective), [collate([view.example(number) for number in range(len(view))])]


CASES = {
    "tree": lambda: comments(tree_task()),
    "tree in parts": lambda: comments(tree_task(task={"two_phase": "always", "chunk_tokens": 40})),
    "words": lambda: comments(words_task()),
    "bert": lambda: comments(bert_task()),
    "agent": rows_of_documents,
    "agent, logistic ends": lambda: rows_of_documents(ends="logistic", label_smoothing=0.1, per_class=True),
    "agent, collection": lambda: rows_of_documents(top="collection"),
    "agent, lengths": lambda: rows_of_documents(model={"decoder_length": "predicted"}),
    "agent, cosines and foreign children": lambda: rows_of_documents(
        scores="cosine", classes="children", sibling_path=True, foreign=0.5
    ),
    "agent, chunks": lambda: units(Role.ALL, queue=0, chunked=True),
    "agent, given vectors": lambda: units(Role.ABOVE, queue=16, given=1),
    "agent, lowest level": lambda: units(Role.LOWEST, queue=16),
    "agent, decoder": lambda: units(Role.DECODER, queue=0),
    "generators": lambda: generators("with"),
    "generators against checkers": lambda: generators("checker"),
    "pairs": pairs,
    "translations": lambda: translations(SEQ2SEQ),
    "translations without attention": lambda: translations(replace(SEQ2SEQ, attention="none")),
    "links": lambda: links("listwise"),
    "links, binary": lambda: links("binary"),
    "links, ranking": lambda: links("ranking"),
    "dae": lambda: pieces_of_streams(
        DenoisingLM(xlnet_task().backbone, running.tokenizer(), running.INPUT, DenoisingLMConfig(k=3))
    ),
    "xlnet": lambda: pieces_of_streams(xlnet_task()),
    "elmo": lambda: pieces_of_streams(running.elmo_task()),
    **LABEL_TASKS,
    "letters": lambda: (NextLetter(), [Texts(4, 2, 5).collate([Texts(4, 2, 5).example(n) for n in (0, 2)])]),
}


def tensors_in(part):
    """All tensors of a batch, with the parts that hold them."""
    if isinstance(part, torch.Tensor):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from tensors_in(getattr(part, field.name))
    elif isinstance(part, list | tuple):
        for item in part:
            yield from tensors_in(item)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_moves_whole_to_another_device(case):
    for batch in CASES[case]()[1]:
        moved = [tensor.device.type for tensor in tensors_in(batch.to("meta"))]
        assert len(moved) == len(list(tensors_in(batch))) > 0
        assert set(moved) == {"meta"}


@pytest.mark.parametrize("case", CASES)
def test_each_loss_is_read_as_in_training_and_has_a_constant(case):
    task, batches = CASES[case]()
    with task.evaluating(), torch.no_grad():
        for batch in batches:
            shared = task.shared(batch, None)
            for phase in task.phases:
                counts = task.counts(batch, phase.name)
                sums = {}
                for named, _ in task.losses(batch, dict.fromkeys(counts, 1.0), phase.name, None, shared):
                    for name, loss in named.items():
                        sums[name] = sums.get(name, 0.0) + float(loss)
                readings = task.readings(batch, phase.name, None, shared)
                assert readings.losses.keys() == sums.keys()
                assert {name for name, count in counts.items() if count} <= set(readings.constants)
                for name, total in sums.items():
                    assert float(readings.losses[name]) == pytest.approx(total, rel=1e-5)


def test_all_registered_tasks_are_among_them():
    assert {kind.task for kind in TASKS.values()} <= {type(make()[0]) for make in CASES.values()}


# --- vectors and gradients ----------------------------------------------------------------------------------------------


def test_separability():
    torch.manual_seed(0)
    one, other = torch.randn(400, 8), torch.randn(400, 8)
    assert separability(one, other) == pytest.approx(0.5, abs=0.1)
    assert separability(one + 4, other) > 0.99


@pytest.mark.parametrize(
    "case",
    [
        "words",
        "tree in parts",
        "agent",
        "agent, chunks",
        "agent, given vectors",
        "agent, lowest level",
        "agent, decoder",
        "translations",
        "xlnet",
    ],
)
def test_gradient_norms_are_those_of_each_loss_alone(case):
    task, (batch, *_) = CASES[case]()
    config = TrainConfig(steps=1)
    names = [name for name, _ in task.named_parameters()]
    phases = phase_optimizers(config, task.phases, names, dict(task.named_parameters()))
    counts = task.counts(batch, MAIN)
    kept = {name: torch.ones_like(parameter) for name, parameter in task.named_parameters()}
    for name, parameter in task.named_parameters():
        parameter.grad = kept[name]
    state = generator_state(torch.device("cpu"))
    buffers = {name: buffer.clone() for name, buffer in task.named_buffers()}
    training = TrainingBatch(batch, None, 0, lambda counts: {n: max(c, 1.0) for n, c in counts.items()}, nullcontext)
    found = read_gradients(task, phases, training)
    assert all(parameter.grad is kept[name] for name, parameter in task.named_parameters())
    assert torch.equal(generator_state(torch.device("cpu")), state)
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in task.named_buffers())
    for name in counts:
        task.zero_grad(set_to_none=True)
        torch.manual_seed(0)
        for named, _ in task.train().losses(batch, {n: max(c, 1.0) for n, c in counts.items()}, MAIN, None, None):
            for other, loss in named.items():
                if (other == name or other not in counts) and loss.requires_grad:
                    loss.backward(retain_graph=True)
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in task.parameters() if p.grad is not None))
        expected = 0.0 if name in task.annealed else norm
        assert found.get(f"gradient_{name}", 0.0) == pytest.approx(expected, rel=1e-5)
        for buffer_name, buffer in task.named_buffers():
            buffer.copy_(buffers[buffer_name])


@pytest.mark.parametrize(
    ("evaluations", "read"),
    [([50, 100, 150, 200, 250, 300, 350, 400], [50, 100, 200, 400]), ([50, 100, 150, 190], [50, 100, 190]), ([20, 49], [20])],
)
def test_gradients_are_read_at_growing_distance(evaluations, read):
    # The last evaluation of the last two is at the end of a stage alone.
    every, last = evaluations[0], evaluations[-1]
    due = [
        updates
        for updates in evaluations
        if gradients_due(updates // every, updates, is_regular=updates % every == 0, is_last=updates == last)
    ]
    assert due == read


def test_gradients_are_read_at_the_end_of_a_stage_that_is_long_enough():
    assert gradients_due(0, 200, is_regular=False, is_last=True)
    assert gradients_due(3, 200, is_regular=True, is_last=True)
    assert not gradients_due(3, 200, is_regular=True, is_last=False)
    assert not gradients_due(1, 200, is_regular=False, is_last=False)


@pytest.mark.parametrize(("number", "kept"), [(0, 0), (1, 1), (2, 2), (3, 3), (5, 3), (8, 2), (9, 3), (40, 10)])
def test_a_part_of_a_micro_batch(number, kept):
    numbers = np.arange(number)
    part = part_of(numbers)
    assert len(part) == kept
    assert set(part) <= set(numbers)


def test_streams_are_read_in_the_pass_that_scores_them(monkeypatch):
    task, view, passes = xlnet_task(), streams(), []
    expected, plain = read_meters(task, drawn_rows(task, view)), evaluate_streams(task, view, draws=2)
    predict = task.predict
    monkeypatch.setattr(task, "predict", lambda *given: passes.append(given) or predict(*given))
    sums = MeterSums(task)
    assert evaluate_streams(task, view, draws=2, read=sums.add) == plain
    assert len(passes) == 2 * view.per_stream
    assert sums.meters() == pytest.approx(expected)


def test_rows_are_read_in_the_pass_that_scores_them(monkeypatch):
    task, (batch,) = pairs()
    rows = np.arange(len(batch.targets))
    monkeypatch.setattr(row_evaluation, "_batches", lambda *given: [replace(batch, output_positions=None, labels=None)])
    monkeypatch.setattr(task, "mask", lambda *given: batch)
    sums, view = MeterSums(task), object()
    plain = evaluate_rows(task, view, None, rows, draws=2)
    assert evaluate_rows(task, view, None, rows, draws=2, read=sums.add) == plain
    assert sums.meters() == pytest.approx(read_meters(task, [batch]))


# --- runs ---------------------------------------------------------------------------------------------------------------


def trained(out, data, metered, *, until=None, resume=False):
    task = words_task(dtype=torch.float32, dropout=0.1)
    view, collate = view_of(task, data)

    def measure():
        loss = {"dev_loss": float(sum(p.detach().abs().sum() for p in task.parameters()))}
        return loss | (read_meters(task, masked_targets(task, view, collate)) if metered else {})

    trainer = Trainer(task, [Stage(SHORT, view, collate, measure)], out, seed=3, cpu=True)
    if not metered:
        trainer._read_gradients = lambda *given: {}
    trainer.run(resume=resume, until=until)
    return trainer


def test_meters_change_nothing(tmp_path):
    data = forest(discussions(4, 10))
    with_, without = (trained(tmp_path / name, data, name == "with") for name in ("with", "without"))
    assert equal(weights(with_), weights(without))
    read, plain = records(tmp_path / "with"), records(tmp_path / "without")
    assert [{key: record[key] for key in expected} for record, expected in zip(read, plain, strict=True)] == plain
    last, names = read[-1], ("masked_lm", "own_words", "reply_words")
    for kind in ("value", "constant"):
        assert {f"{kind}_{name}" for name in names} <= last.keys()
    assert {f"gradient_{name}" for name in names} <= read[2].keys()
    assert last["rank_context"] >= 1
    assert lines(last)[-1].startswith("vectors: masked token rank")


def test_killed_run_reads_the_same_meters(tmp_path):
    data = forest(discussions(4, 10))
    trained(tmp_path / "straight", data, True)
    trained(tmp_path / "killed", data, True, until=4)
    trained(tmp_path / "killed", data, True, resume=True)
    assert records(tmp_path / "killed") == records(tmp_path / "straight")


def test_phases_have_their_own_meters(tmp_path):
    texts = Texts(24, 1, 5)
    task = Forger(5)
    batch = task.corrupt(texts.collate([texts.example(number) for number in range(20)]), torch.Generator())

    def measure():
        return {"dev_loss": 1.0} | read_meters(task, [batch])

    config = TrainConfig(steps=2, budget=50, evaluate_every=2, log_every=1)
    Trainer(task, [Stage(config, texts, texts.collate, measure)], tmp_path, seed=0, cpu=True).run()
    last = records(tmp_path)[-1]
    names = ("fooled", "forged_critic", "real_critic")
    assert {f"{kind}_{name}" for kind in ("value", "constant", "gradient") for name in names} <= last.keys()


# --- warnings -----------------------------------------------------------------------------------------------------------

LEARNS = {
    "stage_updates": 300,
    "progress": 0.5,
    "value_a": 2.0,
    "constant_a": 3.0,
    "gradient_a": 1.0,
    "value_b": 0.5,
    "gradient_b": 0.5,
    "rank_node": 20.0,
    "spread_node": 0.7,
}


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({}, set()),
        ({"value_a": 3.1}, {"constant_a"}),
        ({"value_a": 2.99}, {"constant_a"}),
        ({"value_a": 0.1, "constant_a": 0.0}, set()),
        ({"rank_node": 1.4, "spread_node": 0.02}, {"rank_node"}),
        ({"gradient_b": 0.001}, {"gradient_b"}),
        ({"gradient_b": 0.001, "value_b": 0.0}, set()),
        ({"value_a": 3.1, "stage_updates": 199}, set()),
        ({"value_a": 3.1, "stage_updates": 199, "progress": 1.0}, {"constant_a"}),
        ({"value_a": 3.1, "stage_updates": 49, "progress": 1.0}, set()),
        ({"value_a": 3.1, "progress": 0.09}, set()),
    ],
    ids=str,
)
def test_problems(changes, causes):
    assert set(problems(LEARNS | changes)) == causes


def test_causes_are_those_of_the_losses_own_vectors():
    """A level that collapsed is no cause of what another level does not learn."""
    level = {"value_mlm_page": 3.1, "constant_mlm_page": 3.0, "gradient_mlm_page": 1.0, "rank_page": 20.0, "spread_page": 0.7}
    texts = problems(LEARNS | level | {"value_a": 3.1, "rank_page": 1.2})
    assert "effective rank 1.2" in texts["constant_mlm_page"]
    assert "effective rank" not in texts["constant_a"]
    assert "Change train.lr" in texts["constant_a"]


def test_losses_that_teach_nothing_are_not_judged():
    record = {name: value for name, value in LEARNS.items() if name != "gradient_a"} | {"value_a": 3.1}
    assert not problems(record)


def test_warnings_name_loss_constant_cause_and_remedy():
    text = problems(LEARNS | {"value_a": 3.1, "rank_node": 1.4, "spread_node": 0.02})["constant_a"]
    for part in ("a is 3.1 on dev after 300 updates", "has 3", "effective rank 1.4", "2%", "Lower train.lr"):
        assert part in text
    assert "AUROC 0.95" in problems(LEARNS | {"value_a": 3.1, "auroc_node": 0.95})["constant_a"]


@pytest.mark.parametrize("collapsed", [True, False])
def test_warnings_of_runs(tmp_path, capfd, collapsed):
    """Also of a short one, at its end."""
    texts = Texts(32, 1, 6)
    # Texts of one letter each can be learned.
    texts.letters[:] = texts.letters[:, :1]
    task = NextLetter(dim=16, dropout=0.0)
    if collapsed:
        with torch.no_grad():
            task.backbone.embedding.weight.zero_()
        task.frozen = ("backbone",)
    dev = [texts.collate([texts.example(number) for number in range(32)])]

    def measure():
        found = read_meters(task, dev)
        return {"dev_loss": found["value_next"]} | found

    config = TrainConfig(steps=60, budget=96, lr=2e-2, evaluate_every=30, log_every=30)
    Trainer(task, [Stage(config, texts, texts.collate, measure)], tmp_path, seed=0, cpu=True).run()
    warned = [line for line in capfd.readouterr().err.splitlines() if line.startswith("warning")]
    assert any("effective rank 0.0" in line for line in warned) == collapsed, warned
    assert collapsed or not warned
