"""An answer depends on its question and its passage, and on nothing else, to the bit."""

import pytest
import torch

from fixtures.questions import PASSAGE, batch_for, bert_qa, questions, xlnet_qa
from ramify.dataset.questions import Questions
from ramify.inference.answer import Answerer, find_spans


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
@pytest.mark.parametrize("mode", ["finetune", "features"])
def test_gold_answers_do_not_reach_the_scores(make, mode) -> None:
    task = make(mode=mode)
    batches = [
        batch_for(task, questions(("ha hi", first), ("he", second)))
        for first, second in (("ca ce", "ga"), ("ea", "aa ae"), (None, None))
    ]
    states = [task.states(batch) for batch in batches]
    spans = [task.spans(batch, each, 9) for batch, each in zip(batches, states, strict=True)]
    for other in spans[1:]:
        assert torch.equal(spans[0].starts, other.starts)
        assert torch.equal(spans[0].ends, other.ends)
        assert torch.equal(spans[0].scores, other.scores)
        assert (spans[0].null is None) == (other.null is None)
        assert spans[0].null is None or torch.equal(spans[0].null, other.null)


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
def test_other_questions_and_passages_do_not_matter(make) -> None:
    """The same rows, beside other rows of the same lengths."""
    task = make().double()
    passages = [PASSAGE, " ".join(reversed(PASSAGE.split(" ")))]

    def found(other: str, passage: str):
        model = Answerer(task)
        return find_spans(task, model.view(Questions.about(["ha hi", other], [PASSAGE, passage])))[0]

    first = found("he he", passages[0])
    assert found("ge ba", passages[0]) == first
    assert found("he he", passages[1]) == first
    assert found("ge ba", passages[1]) == first


@pytest.mark.parametrize("make", [bert_qa, xlnet_qa])
def test_the_question_and_the_passage_matter(make) -> None:
    task = make()
    model = Answerer(task)

    def scores(question: str, passage: str) -> tuple[float, ...]:
        return find_spans(task, model.view(Questions.about([question], [passage])))[0].scores

    assert scores("ha hi", PASSAGE) != scores("ha he", PASSAGE)
    assert scores("ha hi", PASSAGE) != scores("ha hi", PASSAGE.replace("ea", "ba"))
