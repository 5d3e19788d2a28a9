"""Spans of answers: losses, searches and scores by their definitions."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures import tokenizer
from fixtures.questions import batch_for, bert_qa, questions, xlnet_qa
from ramify.batching.question_windows import Windows
from ramify.batching.views.questions import QuestionInput
from ramify.errors import RamifyError
from ramify.models.bert import BertConfig
from ramify.models.transformer import TransformerConfig
from ramify.tasks.span_qa import SpanQA, SpanQAConfig, best_spans

ASKED = questions(("ha hi", "ca ce"), ("he", "ga"), ("hi ba da ae be", None))


@given(
    rows=st.integers(1, 3),
    places=st.integers(1, 7),
    n_best=st.integers(1, 9),
    longest=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_best_spans_equal_enumeration(rows, places, n_best, longest, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    starts, ends = (torch.randn(rows, places, generator=generator, dtype=torch.float64) for _ in range(2))
    starts[torch.rand(rows, places, generator=generator) < 0.3] = -math.inf
    first, last, scores = best_spans(starts, ends, n_best, longest)
    for row in range(rows):
        expected = sorted(
            (
                (float(starts[row, one] + ends[row, other]), one, other)
                for one, other in itertools.product(range(places), repeat=2)
                if one <= other < one + longest and starts[row, one] > -math.inf
            ),
            reverse=True,
        )[:n_best]
        valid = [
            (score, one, other)
            for score, one, other in zip(scores[row].tolist(), first[row].tolist(), last[row].tolist(), strict=True)
            if score > -math.inf
        ]
        assert valid == expected


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
@pytest.mark.parametrize("candidates", ["row", "passage"])
def test_losses_are_the_mean_of_two_cross_entropies(make, candidates) -> None:
    task = make(candidates=candidates)
    batch = batch_for(task, ASKED)
    assert batch.targets is not None
    windows, states = Windows.of(batch), task.states(batch)
    starts = task.start_table(batch, states)
    ends = task.end_table(batch, states, batch.targets[:, 0])
    offsets = batch.input.rows.offsets.tolist()
    start_loss = end_loss = 0.0
    for row, (first, last) in enumerate(batch.targets.tolist()):
        length = offsets[row + 1] - offsets[row]
        allowed = torch.ones(length, dtype=torch.bool)
        if candidates == "passage":
            allowed = windows.passage[offsets[row] : offsets[row + 1]].clone()
            allowed[windows.null[row]] = True
        start_loss -= starts[row, :length][allowed].logsumexp(0).neg().item() + starts[row, first].item()
        end_loss -= ends[row, :length][allowed].logsumexp(0).neg().item() + ends[row, last].item()
        assert (starts[row, :length][~allowed] == -math.inf).all()
        assert (starts[row, length:] == -math.inf).all()
    sums = task.loss_sums(batch, task.states(batch))
    assert sums["start"].item() == pytest.approx(start_loss / 2, rel=1e-5)
    assert sums["end"].item() == pytest.approx(end_loss / 2, rel=1e-5)
    assert task.counts(batch, "main") == dict.fromkeys(sums, float(len(windows.null)))
    ((named, _),) = task.losses(batch, task.counts(batch, "main"), "main", None, None)
    assert {name: loss.item() * len(windows.null) for name, loss in named.items()} == pytest.approx(
        {name: loss.item() for name, loss in sums.items()}
    )
    assert all(math.isfinite(loss.item()) for loss in sums.values())
    sum(sums.values()).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in task.parameters() if parameter.grad is not None)


def test_spans_lie_in_the_passage_and_begin_where_they_are_read() -> None:
    task = bert_qa(answer_tokens=3)
    batch = batch_for(task, ASKED)
    windows, offsets = Windows.of(batch), batch.input.rows.offsets.tolist()
    states = task.states(batch)
    starts, ends = task.start_table(batch, states), task.end_table(batch, states, windows.null)
    spans = task.spans(batch, task.states(batch), 500)
    assert spans.null is None
    for row in range(len(windows.null)):
        passage, here = (flags[offsets[row] : offsets[row + 1]].tolist() for flags in (windows.passage, windows.read_here))
        expected = {
            (one, other)
            for one, other in itertools.product(range(len(here)), repeat=2)
            if here[one] and passage[other] and one <= other < one + 3
        }
        valid = spans.scores[row] > -math.inf
        found = list(zip(spans.starts[row][valid].tolist(), spans.ends[row][valid].tolist(), strict=True))
        assert set(found) == expected
        assert len(found) == len(expected)
        sums = [(starts[row, one] + ends[row, other]).item() for one, other in found]
        assert sums == pytest.approx(spans.scores[row][valid].tolist())
        assert sums == sorted(sums, reverse=True)


def test_the_special_token_scores_no_answer() -> None:
    task = bert_qa(null="token")
    batch = batch_for(task, ASKED)
    states = task.states(batch)
    spans = task.spans(batch, task.states(batch), 1)
    first = batch.input.rows.offsets[:-1].to(torch.int64)
    assert spans.null is not None
    torch.testing.assert_close(spans.null, task.output(states)[first].sum(1))


def test_a_beam_as_wide_as_the_row_finds_the_best_spans() -> None:
    task = xlnet_qa(start_beam=20, end_beam=20, answer_tokens=4)
    batch = batch_for(task, ASKED)
    windows, offsets = Windows.of(batch), batch.input.rows.offsets.tolist()
    states = task.states(batch)
    spans = task.spans(batch, task.states(batch), 10)
    starts = task.start_table(batch, states).log_softmax(1)
    of_start = [
        task.end_table(batch, states, torch.full_like(windows.null, place).minimum(batch.input.rows.lengths - 1)).log_softmax(1)
        for place in range(starts.shape[1])
    ]
    for row in range(len(windows.null)):
        passage, here = (flags[offsets[row] : offsets[row + 1]].tolist() for flags in (windows.passage, windows.read_here))
        scores = sorted(
            (
                ((starts[row, one] + of_start[one][row, other]).item(), one, other)
                for one, other in itertools.product(range(len(here)), repeat=2)
                if here[one] and passage[other] and one <= other < one + 4
            ),
            reverse=True,
        )[:10]
        valid = spans.scores[row] > -math.inf
        assert spans.scores[row][valid].tolist() == pytest.approx([score for score, _, _ in scores], rel=1e-4)
        assert list(zip(spans.starts[row][valid].tolist(), spans.ends[row][valid].tolist(), strict=True)) == [
            (one, other) for _, one, other in scores
        ]


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
def test_features_leave_the_model_as_it_is(make) -> None:
    task = make(mode="features").train()
    before = {name: tensor.clone() for name, tensor in task.backbone.state_dict().items()}
    learned = [parameter for parameter in task.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(learned, 0.1)
    for _ in range(2):
        batch = batch_for(task, ASKED)
        sum(task.loss_sums(batch, task.states(batch)).values()).backward()
        optimizer.step()
    assert task.mix is not None
    assert task.mix.logits.detach().abs().sum() > 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in task.backbone.state_dict().items())


def test_constants_are_the_losses_of_equal_scores() -> None:
    for candidates in ("row", "passage"):
        task = xlnet_qa(candidates=candidates)
        batch = batch_for(task, ASKED)
        with torch.no_grad():
            for parameter in (*task.output.parameters(), *task.end.parameters(), *task.answerability.parameters()):
                parameter.zero_()
        sums, constants = task.loss_sums(batch, task.states(batch)), task.constants(batch)
        assert sums["start"].item() == pytest.approx(constants["start"].total, rel=1e-5)
        assert sums["end"].item() == pytest.approx(constants["end"].total, rel=1e-5)
        assert constants["answerable"].total < sums["answerable"].item()


def test_settings_are_checked() -> None:
    with pytest.raises(RamifyError, match=r"task.answer_tokens must be at least 1, but is 0"):
        SpanQAConfig(answer_tokens=0)
    with pytest.raises(RamifyError, match=r"task.classifier_dropout"):
        SpanQAConfig(classifier_dropout=1.0)


def test_the_data_and_the_end_choose_the_null_score() -> None:
    for end, impossible, expected in (
        ("independent", False, "none"),
        ("independent", True, "token"),
        ("conditional", False, "none"),
        ("conditional", True, "classifier"),
    ):
        assert SpanQAConfig(end=end).for_data(impossible=impossible).null == expected
    assert SpanQAConfig(null="none").for_data(impossible=True).null == "none"


def test_the_last_token_stands_for_no_answer_where_the_first_knows_nothing() -> None:
    def null_places(config, layout: str) -> set[bool]:
        input = QuestionInput(max_tokens=20, stride=5, question_tokens=4, layout=layout)
        task = SpanQA(config.build(), tokenizer(), input, SpanQAConfig(null="token"))
        batch = batch_for(task, ASKED)
        return {place == 0 for place in Windows.of(batch).null.tolist()} | {
            place != length - 1 for place, length in zip(Windows.of(batch).null.tolist(), batch.input.rows.host_lengths)
        }

    sizes = {"vocab_size": tokenizer().vocab_size, "dim": 16, "num_heads": 2, "ffn_dim": 24}
    gpt = TransformerConfig(encoder_layers=0, decoder_layers=1, **sizes)
    assert null_places(BertConfig(num_layers=1, max_tokens=40, **sizes), "bert") == {True}
    assert null_places(gpt, "bert") == {False}
    assert null_places(BertConfig(num_layers=1, max_tokens=40, **sizes), "t5") == {False}


def test_the_classifier_never_sees_the_gold_start() -> None:
    task = xlnet_qa()
    batch = batch_for(task, ASKED)
    states = task.states(batch)
    before = task.loss_sums(batch, states)
    assert batch.targets is not None
    # The other places of the answer change its two losses, but not that of the classifier.
    moved = replace(batch, targets=torch.stack([Windows.of(batch).null, Windows.of(batch).null], 1))
    after = task.loss_sums(moved, states)
    assert not torch.equal(before["start"], after["start"])
    assert torch.equal(before["answerable"], after["answerable"])
