"""Who replied to whom in chat logs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from ramify import hub
from ramify.dataset.store import Store
from ramify.disentangle.candidate_pruner import fit_candidate_pruner
from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
from ramify.disentangle.data.logs import Logs
from ramify.disentangle.inference.disentangler import Disentangler
from ramify.disentangle.inference.evaluation import evaluate_links
from ramify.disentangle.inference.predict import predict_posterior, predict_shuffled
from ramify.disentangle.models.bert_pair import BertPairConfig
from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig
from ramify.disentangle.models.esim import ESIMConfig
from ramify.disentangle.models.feature_model import FeatureModelConfig
from ramify.disentangle.models.mht import MHTConfig
from ramify.disentangle.reranker import fit_reranker
from ramify.errors import RamifyError
from ramify.files import write_text
from ramify.metrics.conversations import score
from ramify.runs import BlockConfig, LinkDevConfig, ModelConfig, Run, WordsConfig, redecided, sized
from ramify.training.trainer import TrainConfig


def _on_chats(recipe: str, data: str, model: ModelConfig, *stages: TrainConfig, init: str, seed: int, **parts: Any) -> Run:
    """`parts`: what is not as usual."""
    usual = {
        "task": LinkConfig(),
        "reading": ChatInput(),
        "view": BlockConfig(),
        "tokenizer": WordsConfig(),
        "dev": LinkDevConfig(),
    }
    return Run(recipe=recipe, data=data, model=sized(model, init), stages=stages, init=init, seed=seed, **(usual | parts))


def feature_model(data: str, *, steps: int = 5600, init: str = "", causal: bool = False, seed: int = 0) -> Run:
    """The feed-forward model of Kummerfeld et al. (2019): 77 features of a pair of messages, and the words of both.

    `ramify train feature-model --data DIR --out RUN`: 1.7 M parameters; six epochs of the 60,000 messages of the Ubuntu
    logs, a quarter of an hour of a core. On their dev logs expect 71 to 72 % F of links (benchmarks/results.md). The paper
    trains by single messages with SGD, this by 64 with Adam (compared in benchmarks/results.md).
    """
    stage = TrainConfig(
        steps=steps,
        budget=64,
        budget_unit="targets",
        lr=1e-3,
        warmup=0.03,
        weight_decay=1e-4,
        betas=(0.9, 0.99),
        evaluate_every=900,
        checkpoint_every=900,
    )
    return _on_chats(
        "feature-model",
        data,
        FeatureModelConfig(),
        stage,
        task=LinkConfig(score="sum"),
        reading=ChatInput(causal=causal),
        init=init,
        seed=seed,
    )


def links(data: str, *, steps: int = 4800, init: str = "", seed: int = 0) -> Run:
    """Ramify's own model of who replied to whom, the one that comes with it: the feature model with more to read.

    `ramify train links --data DIR --out RUN`: it knows what is said around a pair of messages (`features.context`), and the
    likeliest candidates of a message read each other before they are scored. It learns which conversation a message belongs
    to, beside which message it answers; so a message joins the conversation that is likeliest as a whole, and may answer
    several of its messages. It looks at nothing that is said later, so it can follow a
    live channel, and knows no years. Ten minutes of a core; what it finds beside the feature model is in benchmarks/results.md.
    """
    plain = feature_model(data, steps=steps, init=init, causal=True, seed=seed)
    model = FeatureModelConfig(
        hidden=256, dropout=0.1, years=False, context_features=True, attention_layers=2, attention_candidates=16
    )
    return replace(
        plain,
        recipe="links",
        model=sized(model, init),
        task=LinkConfig(score="sum", conversation_weight=1.0),
        reading=ChatInput(window=50, causal=True),
        decoding=DecodingConfig(decide="conversation", threshold=0.33),
    )


FEATURES_LR = 1e-3
"""Of the feature model. At the rate of what they are joined to, hidden layers on features are far from done when that is."""


def _joining(stage: TrainConfig, features: str) -> TrainConfig:
    """With layers that join features to states (`features=head`), and the scores of what they give, at the feature model's rate
    (and faster than the rest by as much where `train.lr` is changed)."""
    return replace(stage, lr_scale=((r"^(backbone\.fusion|head)\.", FEATURES_LR / stage.lr),)) if features == "head" else stage


FROZEN = r"^backbone\.encoder\."


def mht(
    data: str,
    *,
    init: str = "",
    features: Literal["none", "head", "input"] = "none",
    window: int = 100,
    steps: int = 3000,
    fine_steps: int = 1000,
    seed: int = 0,
) -> Run:
    """The Masked Hierarchical Transformer of Zhu et al. (2020) on chat logs, in two stages: its encoder frozen, then all of it.

    `ramify train mht --data DIR --init BERT --out RUN`; with `features` (the paper's + F) it reads what the feature model
    reads of a pair of messages, too. Without `init` a run is refused: nobody learns to read from links alone. At the
    paper's first learning rate, 1e-5, a thousand updates teach it half of what they teach it at 3e-4
    (benchmarks/results.md).
    """
    common = TrainConfig(
        steps=steps,
        budget=64,
        budget_unit="targets",
        lr=3e-4,
        weight_decay=0.01,
        betas=(0.9, 0.98),
        freeze=(FROZEN,),
        evaluate_every=500,
        checkpoint_every=250,
        patience=4,
    )
    common = _joining(common, features)
    stages = [common]
    if fine_steps:
        stages.append(replace(common, steps=fine_steps, lr=3e-5, freeze=(), evaluate_every=250))
    return _on_chats(
        "mht",
        data,
        MHTConfig(features=features),
        *stages,
        reading=ChatInput(window=window, texts="pieces"),
        init=init,
        seed=seed,
    )


BY_PAIRS = TrainConfig(
    budget=64,
    budget_unit="targets",
    weight_decay=0.01,
    betas=(0.9, 0.98),
    evaluate_every=500,
    checkpoint_every=250,
    patience=4,
)


def decatt(
    data: str,
    *,
    features: Literal["none", "head"] = "none",
    window: int = 100,
    steps: int = 3000,
    init: str = "",
    seed: int = 0,
) -> Run:
    """Decomposable attention (Parikh et al. 2016) on pairs of messages, a baseline of Zhu et al. (2020).

    `ramify train decatt --data DIR --out RUN`; with `features=head` (the paper's + F) it reads what the feature model reads
    of a pair, too. Without them expect little: two messages alone seldom say whether one answers the other.
    """
    return _on_chats(
        "decatt",
        data,
        DecomposableAttentionConfig(features=features),
        _joining(replace(BY_PAIRS, steps=steps, lr=5e-4), features),
        reading=ChatInput(window=window),
        init=init,
        seed=seed,
    )


def esim(
    data: str,
    *,
    features: Literal["none", "head"] = "none",
    window: int = 20,
    steps: int = 3000,
    init: str = "",
    seed: int = 0,
) -> Run:
    """ESIM (Chen et al. 2017) on pairs of messages, a baseline of Zhu et al. (2020).

    `ramify train esim --data DIR --out RUN`; with `features=head` (the paper's + F) it reads what the feature model reads of
    a pair, too. LSTMs read every pair anew, so the window is short (links that reach farther are missed, and count as such),
    and they are smaller than the paper's 300 (`--set model.hidden=300`, three times as long). Without features expect little:
    two messages alone seldom say whether one answers the other.
    """
    return _on_chats(
        "esim",
        data,
        ESIMConfig(features=features, hidden=128),
        _joining(replace(BY_PAIRS, steps=steps, lr=4e-4), features),
        reading=ChatInput(window=window),
        init=init,
        seed=seed,
    )


def bert_pair(
    data: str,
    *,
    init: str = "",
    features: Literal["none", "head"] = "none",
    window: int = 20,
    steps: int = 3000,
    seed: int = 0,
) -> Run:
    """A BERT-family checkpoint on pairs of messages, a baseline of Zhu et al. (2020).

    `ramify train bert-pair --data DIR --init BERT --out RUN`; with `features=head` (the paper's + F) it reads what the feature
    model reads of a pair, too. Without `init` a run is refused: nobody learns to read from links alone. Every pair is a row of
    the encoder, where the Masked Hierarchical Transformer has one for every message; so updates are of few messages, the window
    is short (links that reach farther are missed, and count as such), and a GPU is called for.
    """
    return _on_chats(
        "bert-pair",
        data,
        BertPairConfig(features=features),
        _joining(replace(BY_PAIRS, steps=steps, budget=16, lr=5e-5), features),
        reading=ChatInput(window=window, texts="pieces"),
        view=BlockConfig(encoded_block=16),
        init=init,
        seed=seed,
    )


def first_look(model: str, data: str, *, among: int = 16, seed: int = 0) -> Disentangler:
    """A trained model that reads the likeliest candidates alone, by a linear map of features that has learned from what it
    believes of the training logs of `data`. A minute."""
    found = _disentangler(model)
    task = found.task
    if task.candidate_pruner is not None or task.config.objective != "listwise" or not task.backbone.reads_features:
        raise RamifyError(
            f"{model}: a first look is for models of task.objective=listwise that read features, and take none yet."
        )
    if task.reranker is not None:
        raise RamifyError(f"{model} looks twice already, and the second look was fitted to what is read now: first look first.")
    if task.backbone.reads_history:
        raise RamifyError(f"{model} reads all candidates as a history, out of which a first look would take some.")
    store = Store.open(data)
    logs = Logs.build(store.trees(store.split("train")), task.input).tokenize(task.tokenizer)
    examples = predict_shuffled(task, found.decoding, logs, seed)
    task.candidate_pruner = fit_candidate_pruner(examples, among, task.backbone.reads_context_features)
    task.config = replace(task.config, num_candidates=among)
    return found


def second_look(
    model: str,
    unseen: Sequence[tuple[str, str]],
    *,
    hindsight: bool = False,
    decided: Mapping[str, str] | None = None,
    hidden: int = 64,
    seed: int = 0,
) -> Disentangler:
    """A trained model with a second look at the likeliest candidates, in the conversations that they belong to; with
    `hindsight`, beside what is said later.

    `unseen`: models, each with data of whose dev logs it has seen nothing; a second look learned from what a model believes
    of its training logs would believe it too readily. They may be others than the model that gets it, such as models of
    the same recipe that were each trained without a part of the logs. `decided`: how the model is to decide from now on
    (`redecided`). A minute.
    """
    found = _disentangler(model)
    task = found.task
    if task.backbone.reads_structure:
        raise RamifyError(f"{model} reads its own decisions already: a second look is for models that read none.")
    config = replace(task.config, reranker_dim=hidden, lookahead=hindsight)
    decoding = redecided(found.decoding, decided or {})
    pairs = [(_disentangler(source), Store.open(data)) for source, data in unseen]
    if any(each.task.reranker is not None or each.task.config.objective != "listwise" for each, _ in pairs):
        raise RamifyError("a second look is learned from models of task.objective=listwise that take none.")
    logs = ((each, Logs.build(store.trees(store.split("dev")), each.input).tokenize(each.tokenizer)) for each, store in pairs)
    examples = ((own, predict_posterior(each.task, each.decoding, own)) for each, own in logs)
    task.reranker = fit_reranker(examples, hidden, seed, lookahead=hindsight, conversation_weight=config.conversation_weight)
    task.config = config
    return Disentangler(task, decoding)


def _disentangler(source: str | Path) -> Disentangler:
    pipeline = hub.load(source)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"{source} holds no model of who replied to whom.")
    return pipeline


LICENSE = "cc-by-4.0"
TITLE = "Who replied to whom: the model that comes with Ramify"
NOTES = """Trained on the training logs of the Ubuntu IRC disentanglement data (Kummerfeld et al. 2019, CC BY 4.0), all but
one in ten, held out by a hash of their names, on which the best weights, the number of candidates that it reads and the
threshold were chosen. It looks at nothing that is said later, and is told no years, until it has read a whole log: then it
looks at each message again, beside the thirty that follow (on a live channel it does not). Four models like it taught it what
they believe of all messages, of the unannotated ones too; and it learned from conversations on their own, without times. Of
a message's fifty-one candidates (itself and fifty before it) it reads eight, itself and the others that a linear map of their
features finds likeliest. A message joins the conversation that is likeliest all told, and answers every message of it that is
at least .36 likely. The second look was learned from four models, each of which was trained without a fourth of the training
logs, and what they believe of that.

On the ten official dev logs (2,500 messages) it finds 75.08 % of the links and 48.11 % of the conversations to the last message
(F, official protocol; 1 − variation of information 94.02, one-to-one 84.64); at first sight, as on a live channel, 74.59 % and
45.32 % (92.93, 81.60). These logs were looked at while it was made, so the figures are the hopeful ones. Out of its domain: of
the links of Molweni 63.99 %, where to answer the message before is right in 65.39 %, and told that nobody answers himself there
(`--set decoding.answers=others`) 75.25 %; on a Slack channel of software engineers 1 − variation of information is 93.10. About
5,900 messages a second on two cores.

The commands, in a checkout of the source, for `benchmarks` is not installed (those that train `links` with
`--set train.precision=bf16`, the first four of them with `--set decoding.decide=link --set decoding.threshold=0`; with
`--fold 0` to `--fold 3`):

    ramify data build ubuntu-irc/train --format irc --split 0.9,0.1,0 --policy empty=keep --out data/irc
    ramify train links --data data/irc --out runs/one
    ramify train links --data data/irc --out runs/two --seed 1
    ramify train links --data data/irc --out runs/three --seed 2
    ramify train links --data data/irc --out runs/four --seed 3 --set model.hidden=384 --set reading.causal=false
    ramify train links --data data/irc --out runs/links --steps 10000 --seed 5 --set model.dropout=0.05 \\
        --set view.conversations=0.2 --set 'view.teachers=["runs/one","runs/two","runs/three","runs/four"]'
    ramify train first-look runs/links --data data/irc --among 8 --out runs/quick
    python benchmarks/decisions.py train --logs ubuntu-irc/train --fold 0 --precision bf16 --out runs/folds
    ramify train second-look runs/quick --hindsight --set decoding.threshold=0.36 --out runs/twice \\
        --unseen runs/folds/fold-0=runs/folds/unseen-0 --unseen runs/folds/fold-1=runs/folds/unseen-1 \\
        --unseen runs/folds/fold-2=runs/folds/unseen-2 --unseen runs/folds/fold-3=runs/folds/unseen-3 \\
        --data data/irc --pack runs/packed --shipped
"""


def pack(run: Path, data: Path, out: Path, *, shipped: bool = False) -> None:
    """Write a trained model in half precision, with a card that holds what it reaches on the dev logs of its data. `shipped`:
    it is the one that comes with Ramify, whose card says how it was made."""
    hub.save(_disentangler(run), out, dtype=torch.float16)
    packed = _disentangler(out)
    found = evaluate_links(packed, Store.open(data), "dev").match
    scores = score(found.logs)
    results = {
        "logs, messages whose link is known": f"{len(found.logs)}, {sum(len(log.messages) for log in found.logs):,}",
        "links: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["link"].values()),
        "conversations found exactly: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["cluster"].values()),
        "1 − variation of information": f"{scores['vi']:.2f}",
        "one-to-one": f"{scores['one_to_one']:.2f}",
    }
    said = {"title": TITLE, "license": LICENSE, "notes": NOTES} if shipped else {"title": "Who replied to whom"}
    write_text(out / hub.CARD, hub.model_card(packed, **said, results=results))
