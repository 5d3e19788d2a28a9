"""Properties that hold on CPU hold on a CUDA device: logits, masks, gradients, scores, and the bits of a resumed run."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fixtures import (
    bert_task,
    discussion,
    discussions,
    distance,
    forest,
    gradient,
    masked,
    nested,
    running,
    tree_task,
    uniform,
    view_of,
    whole,
    with_text,
    words_task,
)
from fixtures.label_tasks import LABEL_TASKS
from fixtures.parallel import SEQ2SEQ, TRANSFORMER, translations
from ramify.batching.stream_batch import collate_streams
from ramify.batching.text_input import TextInput
from ramify.inference.evaluation import evaluate
from ramify.inference.fill_mask import MaskFiller
from ramify.inference.held_out import discussions as read_trees
from ramify.inference.search import Beam
from ramify.inference.translate import Translator
from ramify.inference.word_classes import AncestorWords
from ramify.models.name_memory import NameMemoryConfig
from ramify.tasks.base import MAIN
from ramify.training.config import TrainConfig
from ramify.training.stage import stream
from ramify.training.trainer import Stage, Trainer

pytestmark = pytest.mark.cuda

TASKS = {
    "tree": lambda **options: tree_task(context_position="distance", **options),
    "null": lambda **options: tree_task(input=TextInput(max_tokens=32, context="null"), **options),
    "attn": lambda **options: tree_task(pooling="attn", context_position="depth", **options),
    "max": lambda **options: tree_task(pooling="max", **options),
    "additions": lambda **options: words_task(context_position="distance", **options),
    "bert": bert_task,
}


@pytest.fixture(scope="module")
def data():
    return forest(discussions(6, 12))


@pytest.mark.parametrize("two_phase", ["never", "always"])
@pytest.mark.parametrize("name", TASKS)
def test_gradients_equal_those_of_the_cpu(data, name, two_phase):
    here, there = (TASKS[name](task={"two_phase": two_phase, "chunk_tokens": 60}) for _ in range(2))
    there.cuda()
    batch = whole(here, data)
    mine, its = masked(here, data, batch), masked(there, data, batch.to("cuda"))
    assert torch.equal(mine.target_ids, its.target_ids.cpu())
    expected = gradient(here, [mine])
    found = {key: value.cpu() for key, value in gradient(there, [its]).items()}
    assert distance(found, expected) < 1e-10


@pytest.mark.parametrize("config", [SEQ2SEQ, replace(SEQ2SEQ, attention="none", cell="gru"), TRANSFORMER])
def test_translators_equal_those_of_the_cpu(config):
    """Gradients, and the results of a beam search."""
    here, there = (translations(config)[0].double().eval() for _ in range(2))
    there.cuda()
    (batch,) = translations(config)[1]
    expected = gradient(here, [batch])
    found = {key: value.cpu() for key, value in gradient(there, [batch.to("cuda")]).items()}
    assert distance(found, expected) < 1e-10
    sources = [np.arange(9, 13), np.arange(11, 20)]
    for (its,), (mine,) in zip(*(Translator(task).translations(sources, Beam(3)) for task in (there, here)), strict=True):
        assert its.text == mine.text
        assert its.score == pytest.approx(mine.score, rel=1e-10)


@pytest.mark.parametrize("name", LABEL_TASKS)
def test_tasks_on_labels_equal_those_of_the_cpu(name):
    (here, batches), (there, _) = LABEL_TASKS[name](), LABEL_TASKS[name]()
    there.double().eval().cuda()
    expected = gradient(here.double().eval(), batches)
    found = {key: value.cpu() for key, value in gradient(there, [batch.to("cuda") for batch in batches]).items()}
    assert distance(found, expected) < 1e-10


AGENTS = {
    "autoencoder": {},
    "names of sentences": {"model": {"names": NameMemoryConfig(3, filters=8)}},
    "names of tokens": {"model": {"names": NameMemoryConfig(3, filters=8, average="tokens")}},
}


@pytest.mark.parametrize("name", AGENTS)
def test_nested_documents_equal_those_of_the_cpu(name):
    here, there = (nested.task(**AGENTS[name]) for _ in range(2))
    there.cuda()
    batch = nested.batch_of(here, nested.MIXED)
    mine, its = (
        own.corrupt(each, torch.Generator().manual_seed(0)) for own, each in ((here, batch), (there, batch.to("cuda")))
    )
    expected = nested.gradients(here, mine)
    found = {key: value.cpu() for key, value in nested.gradients(there, its).items()}
    assert distance(found, expected) < 1e-9


STREAMS = {
    "xlnet": lambda: (running.task(torch.float64, dropout=0.0), running.streams()),
    "elmo": lambda: (running.elmo_task(torch.float64, dropout=0.0), running.streams(input=running.UNROLLED)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_train_as_on_the_cpu(tmp_path, name):
    """Steps that carry a state have the same losses, which are summed in single precision."""
    config = TrainConfig(steps=4, lr=1e-2, log_every=1, evaluate_every=0, checkpoint_every=0)

    def losses(cpu: bool) -> list[float]:
        task, rows = STREAMS[name]()
        stage = Stage(config, rows, lambda read: collate_streams(read, rows.input), make_sampler=stream(2))
        found: list[float] = []
        Trainer(
            task, [stage], tmp_path / f"cpu {cpu}", seed=3, cpu=cpu, report=lambda record: found.append(record["loss"])
        ).run()
        return found

    assert losses(False) == pytest.approx(losses(True), rel=1e-6)


def test_two_phases_draw_the_same_dropout_twice():
    """The encoder's gradient is taken at the vectors that the decoder read: the loss falls along it as predicted."""
    task = tree_task(task={"two_phase": "always", "chunk_tokens": 40}, dropout=0.3).train().cuda()
    data = forest([discussion(uniform(25, 1), seed=1)])
    batch = masked(task, data, whole(task, data).to("cuda"))

    def loss() -> float:
        torch.manual_seed(3)
        with torch.no_grad():
            passes = task.losses(batch, {"masked_lm": 1.0}, MAIN, None, None)
            return sum(float(named["masked_lm"]) for named, _ in passes if "masked_lm" in named)

    torch.manual_seed(3)
    own = gradient(task, [batch])
    encoder = {name: value for name, value in own.items() if name.startswith("backbone.encoder.")}
    slope = sum(float(value.square().sum()) for value in encoder.values())
    step = 1e-5 / slope**0.5
    ends = []
    for sign in (1, -1):
        with torch.no_grad():
            for name, parameter in task.named_parameters():
                if name in encoder:
                    parameter.add_(encoder[name], alpha=sign * step)
        ends.append(loss())
        with torch.no_grad():
            for name, parameter in task.named_parameters():
                if name in encoder:
                    parameter.add_(encoder[name], alpha=-sign * step)
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("dim", [64, 50])
def test_half_precision_is_close(data, dim):
    """bf16 uses the variable-length kernel, except for unsupported head sizes such as 25; single precision uses groups of
    rows."""
    sizes = {"dim": dim, "num_heads": 2, "ffn_dim": 128, "context_position": "distance"}
    task = tree_task(dtype=torch.float32, **sizes).cuda()
    with torch.no_grad():
        for parameter in task.parameters():
            if parameter.ndim > 1:
                parameter.mul_(0.3)
    batch = masked(task, data, whole(task, data).to("cuda"))
    expected = gradient(task, [batch])
    with torch.autocast("cuda", torch.bfloat16):
        found = gradient(task, [batch])
    apart = sum(float((found[name] - value).square().sum()) for name, value in expected.items()) ** 0.5
    assert 0 < apart < 0.05 * sum(float(value.square().sum()) for value in expected.values()) ** 0.5


@pytest.mark.parametrize("context", ["tree", "none", "mismatched", "sibling-branch"])
def test_scores_equal_those_of_the_cpu(data, context):
    task = tree_task(context_position="distance")
    trees = np.arange(data.num_trees)
    view, collator = read_trees(task, data, trees, context=context)
    words = AncestorWords.of(data, task.input, task.tokenizer.vocab_size, 15)
    here = evaluate(task, view, collator, trees, draws=2, words=words)
    there = evaluate(task.cuda(), view, collator, trees, draws=2, words=words)
    np.testing.assert_allclose(there.loss, here.loss, atol=1e-9)
    np.testing.assert_array_equal(there.count, here.count)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_killed_run_resumes_to_the_same_bits(tmp_path, data, precision):
    config = TrainConfig(steps=8, budget=150, lr=1e-2, evaluate_every=0, checkpoint_every=2, precision=precision)

    def run(out, until=None):
        task = tree_task(dtype=torch.float32, dropout=0.1, dim=16)
        trainer = Trainer(task, [Stage(config, *view_of(task, data))], out, seed=3)
        trainer.run(resume=True, until=until)
        return {name: parameter.detach().cpu() for name, parameter in task.named_parameters()}

    straight = run(tmp_path / "straight")
    run(tmp_path / "killed", until=5)
    resumed = run(tmp_path / "killed")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_models_answer_from_the_gpu(data):
    """`embed` and `fill_mask` give the same results as on CPU."""
    model = MaskFiller(tree_task(context_position="distance", dtype=torch.float32).eval())
    tree = discussions(1, 12)[0]
    asked = with_text(tree, 5, f"[MASK] {tree.nodes[5].text}")
    node = asked.nodes[5].id
    vectors, answer, score = model.embed([tree]), model.fill_mask(asked, node, joint=True), model.score(tree, node)
    model.to("cuda")
    np.testing.assert_allclose(model.embed([tree]), vectors, atol=1e-4)
    again = model.fill_mask(asked, node, joint=True)
    assert [guess.token for guess in again.masks[0].tokens] == [guess.token for guess in answer.masks[0].tokens]
    assert model.score(tree, node).pseudo_log_likelihood == pytest.approx(score.pseudo_log_likelihood, abs=1e-3)
