"""Bidirectional language modelling: targets, perplexity, sampled softmax, the published optimizer, leaks."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fixtures.running import UNROLLED, elmo_task, streams, tokenizer
from ramify.batching.encoder_input import EncoderInput
from ramify.batching.stream_batch import collate_streams
from ramify.batching.views.streams import StreamConfig
from ramify.errors import RamifyError
from ramify.inference.bidirectional import BidirectionalPipeline
from ramify.inference.common_footing import CommonFooting
from ramify.inference.stream_evaluation import evaluate_streams, on_common_footing
from ramify.nn.heads import VocabularyHead, log_uniform_sample
from ramify.nn.ragged import Rows
from ramify.tasks.base import MAIN
from ramify.tasks.bidirectional_lm import BidirectionalLMConfig
from ramify.training.config import TrainConfig
from ramify.training.stage import Stage, stream
from ramify.training.trainer import Trainer

NO_SEEDS = np.arange(0)


def view(directions="both"):
    return streams(input=UNROLLED, view=StreamConfig(2, directions))


def batch_of(made, place=0):
    rows = [made.example(stream * made.per_stream + place) for stream in range(made.config.num_rows)]
    return collate_streams(rows, UNROLLED)


def plain_nats(task, ids):
    """The losses of the tokens of a text but the first, by the forward and the backward half of the last layer."""
    rows = EncoderInput.of_rows(torch.as_tensor(ids), Rows.build([len(ids)]))
    forward, backward = task.backbone.encode_rows(rows).last.chunk(2, 1)
    labels = torch.as_tensor(ids)
    one = F.cross_entropy(task.head(forward[:-1]), labels[1:], reduction="none")
    other = F.cross_entropy(task.head(backward[1:]), labels[:-1], reduction="none")
    return one, other


@torch.no_grad()
def test_perplexity_is_the_exponential_of_half_the_sum_of_both_losses():
    task = elmo_task(torch.float64).eval()
    made = view()
    scores = evaluate_streams(task, made)
    nats = []
    for stream_number in range(2):
        begin = stream_number * made.length
        read = made.per_stream * UNROLLED.reused_tokens + 1
        forward, _ = plain_nats(task, made.text.ids[begin : begin + read].astype(np.int64))
        # A backward stream begins at the end.
        end = begin + made.length
        _, backward = plain_nats(task, made.text.ids[end - read : end].astype(np.int64))
        nats.append((forward.sum(), backward.sum()))
    forward, backward = (float(sum(part)) / (2 * (read - 1)) for part in zip(*nats, strict=True))
    assert scores.directions["forward"].summary()["loss"] == pytest.approx(forward, rel=1e-6)
    assert scores.directions["backward"].summary()["loss"] == pytest.approx(backward, rel=1e-6)
    assert math.exp(scores.summary()["loss"]) == pytest.approx(math.exp((forward + backward) / 2), rel=1e-6)
    assert scores.summary()["count"] == 2 * 2 * (read - 1)


def test_every_token_is_predicted_once():
    made, task = view(), elmo_task()
    places = [task.draw(batch_of(made, place), NO_SEEDS) for place in range(3)]
    for batch in places:
        assert batch.targets.labels.tolist() == batch.input_ids[:, 1:].tolist()
        assert task.counts(batch, MAIN) == {"bidirectional_lm": 4 * UNROLLED.reused_tokens}
    for before, after in itertools.pairwise(places):
        assert before.targets.labels[:, -1].tolist() == after.input_ids[:, 0].tolist()


def test_no_target_is_read():
    """To the bit: the prediction of a token does not depend on it, nor on those behind it in the direction of the row."""
    task = elmo_task().eval()
    batch = task.draw(batch_of(view()), NO_SEEDS)
    with torch.no_grad():
        before = task.predict(batch, None).states.unflatten(0, (4, -1))
        for place in range(1, UNROLLED.row_tokens):
            ids = batch.input_ids.clone()
            ids[:, place] = (ids[:, place] + 1) % tokenizer().vocab_size
            after = task.predict(replace(batch, input_ids=ids), None).states.unflatten(0, (4, -1))
            moved = (before != after).any(2)
            assert not moved[:, :place].any()
            assert moved[:, place:].all()


# --- sampled softmax --------------------------------------------------------------------------------------------------------


def head(sampled=None, vocab=40):
    torch.manual_seed(0)
    made = VocabularyHead(6, vocab, sampled=sampled).double()
    with torch.no_grad():
        made.weight.normal_()
        made.bias.normal_()
    return made


def test_sampled_loss_follows_the_formula():
    made = head(8)
    x, labels = torch.randn(30, 6, dtype=torch.float64), torch.arange(30)
    weights = torch.rand(30, dtype=torch.float64)
    torch.manual_seed(5)
    sample = log_uniform_sample(8, 40)
    torch.manual_seed(5)
    found = made.train().loss(x, labels, weights)
    chances = [math.log((k + 2) / (k + 1)) / math.log(41) for k in range(40)]
    expected_counts = [1 - (1 - chance) ** sample.draws for chance in chances]
    assert sum(chances) == pytest.approx(1)
    logits = made(x).detach()
    total = 0.0
    for row, label in enumerate(labels.tolist()):
        scores = {
            token: float(logits[row, token]) - math.log(expected_counts[token]) for token in {label, *sample.ids.tolist()}
        }
        total += float(weights[row]) * (math.log(sum(map(math.exp, scores.values()))) - scores[label])
    assert found.item() == pytest.approx(total, rel=1e-5)
    # Held-out losses are those of the whole vocabulary.
    full = (F.cross_entropy(logits, labels, reduction="none") * weights).sum()
    assert made.eval().loss(x, labels, weights).item() == pytest.approx(float(full), rel=1e-6)


def test_a_sample_has_different_tokens_and_is_replayable():
    torch.manual_seed(1)
    first = log_uniform_sample(25, 30)
    torch.manual_seed(1)
    again = log_uniform_sample(25, 30)
    assert torch.equal(first.ids, again.ids)
    assert len(set(first.ids.tolist())) == 25
    assert set(first.ids.tolist()) <= set(range(30))
    assert first.draws >= 25
    torch.manual_seed(2)
    counts = sum(F.one_hot(log_uniform_sample(1, 30).ids[0], 30) for _ in range(4000))
    shares = torch.tensor([math.log((k + 2) / (k + 1)) / math.log(31) for k in range(30)])
    assert (counts / 4000 - shares).abs().max() < 4 * (0.25 / 4000) ** 0.5


def test_a_sample_of_nearly_all_tokens_is_nearly_the_whole_vocabulary():
    """Accidental hits count once, so the loss differs by the tokens that are missing and by corrections near zero."""
    made, x, labels = head(39), torch.randn(50, 6, dtype=torch.float64), torch.randint(0, 40, (50,))
    weights = torch.full((50,), 1 / 50, dtype=torch.float64)
    assert made.train().loss(x, labels, weights).item() == pytest.approx(made.eval().loss(x, labels, weights).item(), rel=0.05)


def test_sampled_training_has_gradients_for_the_sample_alone():
    made = head(8)
    x, labels = torch.randn(4, 6, dtype=torch.float64, requires_grad=True), torch.tensor([1, 1, 2, 39])
    torch.manual_seed(5)
    sample = log_uniform_sample(8, 40)
    torch.manual_seed(5)
    made.train().loss(x, labels, torch.ones(4, dtype=torch.float64)).backward()
    touched = made.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == sorted({1, 2, 39, *sample.ids.tolist()})
    assert x.grad.any(1).all()


def test_sampled_training_evaluates_on_the_whole_vocabulary():
    plain, sampled = (elmo_task(config=BidirectionalLMConfig(sampled=number)) for number in (None, 5))
    assert evaluate_streams(plain, view()) == evaluate_streams(sampled, view())
    with pytest.raises(RamifyError, match=r"task.sampled=80 must be below the size of the vocabulary, 80"):
        elmo_task(config=BidirectionalLMConfig(sampled=80))
    with pytest.raises(RamifyError, match=r"task.sampled must be at least 1, but is 0"):
        BidirectionalLMConfig(sampled=0)


def test_shared_weights_need_a_table():
    tied = elmo_task(config=BidirectionalLMConfig(tie_weights=True), input="words")
    assert tied.head.weight is tied.backbone.embedding.weight
    with pytest.raises(RamifyError, match=r"task.tie_weights=true needs a table of token vectors, but model.input=characters"):
        elmo_task(config=BidirectionalLMConfig(tie_weights=True))


# --- the published optimizer --------------------------------------------------------------------------------------------------


def test_loss_scale_multiplies_the_gradient_before_the_clip(tmp_path, near):
    """One step of Adagrad whose sums start at 1, by hand: the logged loss is that without the factor."""
    made = view()
    results = {}
    for scale, clip in ((1.0, 0.0), (20.0, 0.0), (20.0, 0.5)):
        task = elmo_task(torch.float64, dropout=0.0)
        config = TrainConfig(
            steps=1,
            optimizer="adagrad",
            lr=0.2,
            accumulator_start=1.0,
            eps=1e-10,
            warmup=0.0,
            schedule="constant",
            weight_decay=0.0,
            loss_scale=scale,
            clip=clip,
        )
        stage = Stage(config, made, lambda rows: collate_streams(rows, UNROLLED), make_sampler=stream(4))
        records = []
        trainer = Trainer(task, [stage], tmp_path / f"{scale} {clip}", seed=3, cpu=True, report=records.append)
        before = task.head.bias.detach().clone()
        trainer.run()
        results[scale, clip] = records[0], before - task.head.bias.detach()
    plain, scaled, clipped = results.values()
    near(plain[0]["loss"], scaled[0]["loss"])
    assert scaled[0]["grad_norm"] == pytest.approx(20 * plain[0]["grad_norm"], rel=1e-6)
    task = elmo_task(torch.float64, dropout=0.0)
    batch = task.draw(batch_of(made), NO_SEEDS)
    ((named, _),) = task.train().losses(batch, task.counts(batch, MAIN), MAIN, None, None)
    named["bidirectional_lm"].backward()
    gradient = task.head.bias.grad
    for (_, step), factor in ((plain, 1.0), (scaled, 20.0), (clipped, 0.5 / plain[0]["grad_norm"])):
        own = factor * gradient
        torch.testing.assert_close(step, 0.2 * own / torch.sqrt(1 + own.square()), rtol=1e-4, atol=1e-6)


def test_loss_scale_is_positive():
    with pytest.raises(RamifyError, match=r"train.loss_scale must be above 0, but is 0"):
        TrainConfig(loss_scale=0.0)


# --- answers ----------------------------------------------------------------------------------------------------------------


def test_generation_continues_by_the_forward_layers():
    task = elmo_task(torch.float64).eval()
    model = BidirectionalPipeline(task)
    greedy = model.generate("the moon", tokens=3, temperature=0.0)
    ids = [tokenizer().eod_id, *tokenizer().encode("the moon")]
    allowed = torch.ones(tokenizer().vocab_size, dtype=torch.bool)
    allowed[tokenizer().special_ids] = False
    for _ in range(3):
        rows = EncoderInput.of_rows(torch.tensor(ids), Rows.build([len(ids)]))
        scores = task.head(task.backbone.encode_rows(rows).last[-1:, :8])[0].masked_fill(~allowed, -torch.inf)
        ids.append(int(scores.argmax()))
    assert tokenizer().decode(ids[1:]) == "the moon" + greedy.text
    with pytest.raises(RamifyError, match="this BidirectionalPipeline has no fill_mask; it can generate, embed, nearest"):
        model.fill_mask("the [MASK]")


@torch.no_grad()
@pytest.mark.parametrize("directions", ["both", "forward"])
def test_common_footing_gives_the_tokens_of_one_side(directions):
    task = elmo_task(torch.float64, directions=directions).eval()
    random = np.random.default_rng(0)
    rows = random.integers(7, tokenizer().vocab_size, size=(9, 12))
    footing = CommonFooting(rows, random.integers(12, size=9), np.ones(9, dtype=np.int64), 0)
    scores = on_common_footing(BidirectionalPipeline(task), footing)
    assert scores.given == ("before, or after" if directions == "both" else "before")
    begin = tokenizer().eod_id
    for row, position, nats in zip(footing.rows, footing.positions, scores.nats, strict=True):
        ids = torch.tensor([begin, *row, begin])
        last = task.backbone.encode_rows(EncoderInput.of_rows(ids, Rows.build([len(ids)]))).last
        expected = [F.cross_entropy(task.head(last[position, None, :8]), ids[position + 1][None])]
        if directions == "both":
            expected.append(F.cross_entropy(task.head(last[position + 2, None, 8:]), ids[position + 1][None]))
        assert nats == pytest.approx(float(sum(expected)) / len(expected), rel=1e-6)
    assert "one token given those before it" in scores.line()
    assert scores.to_json()["given"] == scores.given
