"""Reports on models that predict texts token by token: curves, held-out scores, and examples of translations."""

import numpy as np

from ramify.batching.views.pairs import Pairs
from ramify.dataset.store import Split, Store
from ramify.errors import RamifyError, counted
from ramify.inference.next_token_evaluation import spread_examples
from ramify.inference.search import Beam
from ramify.inference.translate import NextTokenPipeline, Translator
from ramify.runs.base import ReportParts, ReportRequest
from ramify.runs.curves import TITLE, Metrics, loss_charts, no_curves, smoothing
from ramify.runs.generative.scores import LIMITS, GenerativeEvaluation, evaluate, held_out, unit_of
from ramify.runs.running_text_report import report_parts
from ramify.runs.sections import Cell, Charts, Section, Spans, Strong, Table, WeightMap, chosen_on_dev
from ramify.tasks.next_token import NextTokenLM

EXAMPLES = 10
"""Translations that a report shows."""

MAPS = 3
"""Translations whose attention it shows."""


def parts(request: ReportRequest) -> ReportParts:
    """The parts of a report."""
    sections: list[Section] = [curves(request.metrics)]
    headline: Spans = ()
    missing = ""
    model, store = request.pipeline, request.store
    if isinstance(model, NextTokenPipeline) and store is not None:
        try:
            limit = {LIMITS[unit_of(model)]: request.comments} if request.comments else {}
            evaluation = evaluate(model, str(store.path), store, request.split, limit)
            section, headline = scores(request.split, evaluation)
            sections.append(section)
            missing = " ".join(evaluation.left_out)
            if isinstance(model, Translator):
                sections += translated(model, store, request.split)
        except RamifyError as error:
            missing = str(error)
    purpose = "predicts texts token by token"
    return report_parts(purpose, request.record, sections, headline, missing)


def curves(metrics: Metrics) -> Section:
    """Loss against updates and tokens."""
    if not metrics:
        return no_curves()
    charts = loss_charts(metrics, NextTokenLM.main_loss, "nats per token", tokens="tokens predicted")
    legend = (("train", f"train, with label smoothing if any{smoothing(metrics)}"), ("dev", "dev, without"))
    return Section(TITLE, (Charts(charts, legend),))


def scores(split: str, evaluation: GenerativeEvaluation) -> tuple[Section, Spans]:
    """The held-out scores as a table, and the main one as a sentence."""
    loss, bleu = evaluation.loss, evaluation.bleu
    rows = [(Cell("loss, nats per token"), Cell(f"{loss:.3f}")), (Cell("perplexity"), Cell(f"{np.exp(loss):.2f}"))]
    headline: Spans = (f"On the {split} split, it predicts a token at ", Strong(f"{loss:.3f} nats"))
    if bleu is not None:
        low, high = bleu.bleu_interval
        rows.append((Cell("BLEU", bleu.signature), Cell(f"{bleu.bleu:.1f} (95 % interval {low:.1f} to {high:.1f})")))
        rows.append((Cell("signature of BLEU"), Cell(bleu.signature)))
        rows.append((Cell("BLEU of the copied sources"), Cell(f"{bleu.floor_copy:.1f}")))
        headline = (*headline, ", and its translations have BLEU ", Strong(f"{bleu.bleu:.1f}"))
    lead = f"On {counted(evaluation.examples, evaluation.unit)} of the {split} split."
    return Section("Held-out scores", (Table(("score", "value"), tuple(rows)),), (lead,)), (
        *headline,
        ".",
        *chosen_on_dev(split),
    )


def translated(model: Translator, store: Store, split: Split) -> list[Section]:
    """Translations of some sources, evenly spaced over the split, and the attention of the first of them to their sources."""
    view = held_out(model.task, store, split)
    numbers = spread_examples(view, EXAMPLES)
    if isinstance(view, Pairs):
        ids = view.sources(numbers)
        sources, references = (store.texts(nodes[numbers]) for nodes in (view.parent, view.child))
    else:
        examples = [view.example(int(number)) for number in numbers]
        ids = [example.source for example in examples if example.source is not None]
        spelled = ([example.target for example in examples], ids)
        references, sources = ([model.tokenizer.decode(text.tolist()) for text in texts] for texts in spelled)
    best = [hypotheses[0].text for hypotheses in model.translations(ids, Beam())]
    rows = tuple(tuple(map(Cell, texts)) for texts in zip(sources, best, references, strict=True))
    lead = f"{counted(len(rows), 'example')}, evenly spaced over the {split} split. The beam keeps {Beam.width} hypotheses."
    shown = Section("Examples", (Table(("source", "translation", "reference"), rows, "texts"),), (lead,))
    maps = [
        WeightMap(text, table.queries, table.keys, table.weights)
        for text, source in zip(best[:MAPS], ids)
        if (table := model.source_attention(source, text)) is not None
    ]
    if not maps:
        return [shown]
    lead = (
        "Each row is a predicted token. Its shades are the weights of the source's tokens in the last layer, averaged over the "
        "heads."
    )
    return [shown, Section("Attention to the source", tuple(maps), (lead,))]
