"""Start and end scores against BertForQuestionAnswering and XLNetForQuestionAnswering with the same weights."""

from itertools import pairwise

import pytest
import torch

from fixtures import tokenizer
from fixtures.questions import INPUT, batch_for, questions, xlnet_qa
from ramify.batching.labelled_batch import LabelledBatch
from ramify.batching.question_windows import Windows
from ramify.models import bert
from ramify.models.xlnet import tensors_from_hf
from ramify.tasks.span_qa import SpanQA, SpanQAConfig

transformers = pytest.importorskip("transformers", reason="parity needs transformers: pip install 'ramify[hf]'")

ASKED = questions(("ha hi", "ca ce"), ("he", "ga"), ("hi ba da ae be", None))


def spread(model):
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.eval()


def rows_of(batch: LabelledBatch):
    """Each row as transformers takes it, with its number."""
    offsets = batch.input.rows.offsets.tolist()
    for row, (start, stop) in enumerate(pairwise(offsets)):
        types = batch.input.token_types
        assert types is not None
        yield row, {"input_ids": batch.input.ids[None, start:stop], "token_type_ids": types[None, start:stop]}


def test_scores_of_bert_equal_those_of_transformers(tmp_path) -> None:
    sizes = {"vocab_size": tokenizer().vocab_size, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=24, max_position_embeddings=40)
    theirs = spread(transformers.BertForQuestionAnswering(config))
    theirs.bert.save_pretrained(tmp_path)
    task = SpanQA(bert.from_pretrained(tmp_path), tokenizer(), INPUT, SpanQAConfig(null="none")).eval()
    task.output.load_state_dict(theirs.qa_outputs.state_dict())
    batch = batch_for(task, ASKED)
    assert batch.targets is not None
    states = task.states(batch)
    starts, ends = task.start_table(batch, states), task.end_table(batch, states, batch.targets[:, 0])
    losses = []
    for row, inputs in rows_of(batch):
        first, last = batch.targets[row]
        with torch.no_grad():
            output = theirs(**inputs, start_positions=first[None], end_positions=last[None])
        length = inputs["input_ids"].shape[1]
        torch.testing.assert_close(starts[row, :length], output.start_logits[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(ends[row, :length], output.end_logits[0], atol=1e-5, rtol=1e-5)
        losses.append(output.loss.item())
    assert sum(loss.item() for loss in task.loss_sums(batch, task.states(batch)).values()) == pytest.approx(
        sum(losses), rel=1e-4
    )


def test_scores_of_xlnet_equal_those_of_transformers() -> None:
    task = xlnet_qa(start_beam=3, end_beam=4)
    config = transformers.XLNetConfig(
        vocab_size=tokenizer().vocab_size, d_model=16, n_layer=2, n_head=4, d_inner=24, dropout=0.0, start_n_top=3, end_n_top=4
    )
    theirs = spread(transformers.XLNetForQuestionAnswering(config))
    tensors, _ = tensors_from_hf(theirs.transformer.state_dict(), task.backbone.config, "theirs")
    task.backbone.load_state_dict(tensors)
    assert task.end is not None
    assert task.answerability is not None
    task.output.load_state_dict(theirs.start_logits.dense.state_dict())
    pairs = (
        (task.end.hidden, theirs.end_logits.dense_0),
        (task.end.norm, theirs.end_logits.LayerNorm),
        (task.end.output, theirs.end_logits.dense_1),
        (task.answerability.hidden, theirs.answer_class.dense_0),
        (task.answerability.output, theirs.answer_class.dense_1),
    )
    for own, other in pairs:
        own.load_state_dict(other.state_dict())
    batch = batch_for(task, ASKED)
    assert batch.targets is not None
    windows, states = Windows.of(batch), task.states(batch)
    spans = task.spans(batch, task.states(batch), 12)
    starts = task.start_table(batch, states).log_softmax(1)
    # The published beam, which holds invalid spans, too.
    of_start, first = starts.topk(3, dim=1)
    of_end, last = zip(*(task.end_table(batch, states, place).log_softmax(1).topk(4, dim=1) for place in first.unbind(1)))
    scores, last = of_start[:, :, None] + torch.stack(of_end, 1), torch.stack(last, 1)
    offsets = batch.input.rows.offsets.tolist()
    losses = []
    for row, inputs in rows_of(batch):
        start, end = batch.targets[row]
        place = windows.null[row : row + 1]
        hidden = (~windows.passage[offsets[row] : offsets[row + 1]]).float()[None]
        hidden[0, place] = 0.0
        given = inputs | {"p_mask": hidden, "cls_index": place, "use_mems": False}
        with torch.no_grad():
            losses.append(theirs(**given, start_positions=start[None], end_positions=end[None]).loss.item())
            output = theirs(**given)
        # Theirs lists the ends of all starts first: end-major.
        assert first[row].tolist() == output.start_top_index[0].tolist()
        assert last[row].tolist() == output.end_top_index[0].view(4, 3).t().tolist()
        expected = output.start_top_log_probs[0].log()[:, None] + output.end_top_log_probs[0].view(4, 3).t().log()
        torch.testing.assert_close(scores[row], expected, atol=1e-4, rtol=1e-4)
        assert spans.null is not None
        torch.testing.assert_close(spans.null[row], output.cls_logits[0], atol=1e-5, rtol=1e-5)
    sums = task.loss_sums(batch, task.states(batch))
    assert (sums["start"] + sums["end"]).item() == pytest.approx(sum(losses), rel=1e-4)
