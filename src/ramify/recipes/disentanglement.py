"""Who replied to whom: models for chat logs and reply trees, and the parts that a trained one may be given afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ramify.errors import RamifyError
from ramify.recipes.base import Positional
from ramify.recipes.options import Data, EncoderInit, Features, Init, Seed, Steps, Window

if TYPE_CHECKING:
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.task import ReplyTo
    from ramify.runs import Run
    from ramify.training.config import TrainConfig

FEATURES_LR = 1e-3
"""The feature model's learning rate. At the rate of the states that they are joined to, hidden layers on features are far from
trained when the rest is."""

FROZEN = r"^backbone\.encoder\."
"""The parameters of a message encoder."""


def _run(recipe: str, data: str, model: Any, *stages: "TrainConfig", init: str, seed: int, **parts: Any) -> "Run":
    """`parts`: what differs from the defaults of the run."""
    from ramify.runs.disentanglement import DisentanglementRun

    run = DisentanglementRun(recipe=recipe, data=data, model=model, stages=stages, init=init, seed=seed, **parts)
    return run.sized(init)


def _joining(stage: "TrainConfig", features: str) -> "TrainConfig":
    """With the layers that join features to states (`features=head`) at the feature model's rate; a change of `train.lr`
    changes both."""
    scale = ((r"^(backbone\.join|head)\.", FEATURES_LR / stage.lr),)
    return replace(stage, lr_scale=scale) if features == "head" else stage


def _pair_stage(steps: int, lr: float, budget: int = 64) -> "TrainConfig":
    """How encoders of message pairs are trained."""
    from ramify.training.config import TrainConfig

    return TrainConfig(
        steps=steps,
        lr=lr,
        budget=budget,
        budget_unit="targets",
        weight_decay=0.01,
        betas=(0.9, 0.98),
        evaluate_every=500,
        checkpoint_every=250,
        patience=4,
    )


def feature_model(
    data: Data,
    *,
    steps: Steps = 5600,
    init: Init = "",
    causal: Annotated[bool, "Use nothing that is said later, as a live channel requires."] = False,
    seed: Seed = 0,
) -> "Run":
    """Who replied to whom in a chat log: 77 features of message pairs, and their words (Kummerfeld et al. 2019).

    1.7 M parameters; six epochs of the 60,000 messages of the Ubuntu logs, a quarter of an hour of a core. The paper trains on
    single messages with SGD, this on 64 at a time with Adam.

    Example: ramify train feature-model --data data/irc --out runs/irc
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.feature_model import FeatureModelConfig
    from ramify.disentangle.task import ReplyToConfig
    from ramify.training.config import TrainConfig

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
    task, input = ReplyToConfig(score="sum"), History(causal=causal)
    return _run("feature-model", data, FeatureModelConfig(), stage, task=task, input=input, init=init, seed=seed)


def links(data: Data, *, steps: Steps = 4800, init: Init = "", seed: Seed = 0) -> "Run":
    """Who replied to whom in a chat log: Ramify's own model, the feature model with more to read.

    It also reads features of the messages around a pair, and the likeliest candidates of a message attend to each other before
    they are scored. It learns which conversation a message belongs to, beside which message it answers. It uses nothing that is
    said later, so it can follow a live channel, and knows no years. Ten minutes of a core.

    Example: ramify train links --data data/irc --out runs/links --pack runs/links/packed
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.feature_model import FeatureModelConfig
    from ramify.disentangle.task import ReplyToConfig

    stages = feature_model(data, steps=steps).stages
    model = FeatureModelConfig(hidden=256, dropout=0.1, years=False, surroundings=True, context_layers=2, context_among=16)
    task = ReplyToConfig(score="sum", conversation_weight=1.0, decide="conversation", threshold=0.33)
    return _run("links", data, model, *stages, task=task, input=History(window=50, causal=True), init=init, seed=seed)


def mht(
    data: Data,
    *,
    init: EncoderInit = "",
    features: Annotated[
        Literal["none", "head", "input"],
        "Also read the features of message pairs: beside the last states, or with the vectors.",
    ] = "none",
    window: Window = 100,
    steps: Annotated[int, "Updates of the first stage, with the encoder frozen."] = 3000,
    fine_steps: Annotated[int, "Updates of the second stage, of all parameters (0: no second stage)."] = 1000,
    seed: Seed = 0,
) -> "Run":
    """Who replied to whom in a chat log: the Masked Hierarchical Transformer (Zhu et al. 2020), in two stages.

    The encoder is frozen at first, then everything learns. `--features` is the paper's + F. A run without --init is refused:
    links alone do not teach a model to read. At the paper's first learning rate, 1e-5, a thousand updates teach it half of what
    they teach it at 3e-4.

    Example: ramify train mht --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --features head --out runs/mht
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.mht import MHTConfig
    from ramify.training.config import TrainConfig

    first = TrainConfig(
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
    stages = [_joining(first, features)]
    if fine_steps:
        stages.append(replace(stages[0], steps=fine_steps, lr=3e-5, freeze=(), evaluate_every=250))
    input = History(window=window, texts="pieces")
    return _run("mht", data, MHTConfig(features=features), *stages, input=input, init=init, seed=seed)


def decatt(
    data: Data,
    *,
    features: Features = "none",
    window: Window = 100,
    steps: Steps = 3000,
    init: Init = "",
    seed: Seed = 0,
) -> "Run":
    """Who replied to whom in a chat log: decomposable attention between two messages (Parikh et al. 2016).

    A baseline of Zhu et al. (2020); `--features head` is the paper's + F. Without features expect little: two messages alone
    seldom say whether one answers the other.

    Example: ramify train decatt --data data/irc --features head --out runs/decatt
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig

    stage = _joining(_pair_stage(steps, lr=5e-4), features)
    model = DecomposableAttentionConfig(features=features)
    return _run("decatt", data, model, stage, input=History(window=window), init=init, seed=seed)


def esim(
    data: Data,
    *,
    features: Features = "none",
    window: Window = 20,
    steps: Steps = 3000,
    init: Init = "",
    seed: Seed = 0,
) -> "Run":
    """Who replied to whom in a chat log: ESIM, which reads and aligns two messages with LSTMs (Chen et al. 2017).

    A baseline of Zhu et al. (2020); `--features head` is the paper's + F. The LSTMs read every pair anew, so the window is
    short (links that reach farther are missed, and count as such), and they are smaller than the paper's 300 (`--set
    model.hidden=300`, three times as long). Without features expect little: two messages alone seldom say whether one answers
    the other.

    Example: ramify train esim --data data/irc --features head --out runs/esim
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.esim import ESIMConfig

    stage = _joining(_pair_stage(steps, lr=4e-4), features)
    model = ESIMConfig(features=features, hidden=128)
    return _run("esim", data, model, stage, input=History(window=window), init=init, seed=seed)


def bert_pair(
    data: Data,
    *,
    init: EncoderInit = "",
    features: Features = "none",
    window: Window = 20,
    steps: Steps = 3000,
    seed: Seed = 0,
) -> "Run":
    """Who replied to whom in a chat log: two messages as one text for BERT, a baseline of Zhu et al. (2020).

    `--features head` is the paper's + F. A run without --init is refused: links alone do not teach a model to read. Every pair
    is a row of the encoder, where the Masked Hierarchical Transformer has one for every message. So updates are of few
    messages, the window is short (links that reach farther are missed, and count as such), and a GPU is needed.

    Example: ramify train bert-pair --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --out runs/bert-pair
    """
    from ramify.disentangle.config import History
    from ramify.disentangle.models.bert_pair import BertPairConfig
    from ramify.runs.disentanglement import BlockConfig

    return _run(
        "bert-pair",
        data,
        BertPairConfig(features=features),
        _joining(_pair_stage(steps, lr=5e-5, budget=16), features),
        input=History(window=window, texts="pieces"),
        view=BlockConfig(encoded_block=16),
        init=init,
        seed=seed,
    )


def candidate_pruner(
    model: Annotated[str, Positional("A trained model that is to read fewer candidates: a run or a saved model.")],
    data: Data,
    *,
    num_candidates: Annotated[int, "Candidates of a message that it is to read, the message itself included."] = 16,
    seed: Seed = 0,
) -> "Disentangler":
    """Add a candidate pruner to a model of who replied to whom: it then reads the likeliest candidates only, and is faster.

    A linear map of features, fitted to the model's own probabilities on the training logs. A minute.

    Example: ramify train candidate-pruner runs/links --data data/irc --out runs/pruned
    """
    from ramify.dataset.store import Store
    from ramify.disentangle.candidate_pruner import learn
    from ramify.disentangle.data.logs import Logs
    from ramify.disentangle.inference.disentangler import Disentangler

    if num_candidates < 2:
        raise RamifyError(f"--num-candidates {num_candidates} would leave the message itself alone. Choose 2 or more.")
    task = _reply_to(model)
    if task.first is not None or task.config.objective != "listwise" or not task.backbone.reads_features:
        raise RamifyError(
            f"{model} cannot take a candidate pruner, which is for models of task.objective=listwise that read features "
            "and have no pruner yet."
        )
    if task.second is not None:
        raise RamifyError(
            f"{model} has a reranker, which was fitted to the candidates that it reads now. Add the pruner before the reranker."
        )
    if task.backbone.reads_history:
        raise RamifyError(f"{model} reads all candidates as a history, so none may be pruned.")
    store = Store.open(data)
    logs = Logs.of(store.trees(store.split("train")), task.input).read_with(task.tokenizer)
    pruner = learn(task, logs, num_candidates, seed)
    task.config, task.first = replace(task.config, first_look=num_candidates), pruner
    return Disentangler(task)


def reranker(
    model: Annotated[str, Positional("A trained model that is to get a reranker: a run or a saved model.")],
    *,
    unseen: Annotated[Sequence[str], "RUN=DATA: a model, and data whose dev logs it was not trained on; may be repeated."],
    lookahead: Annotated[bool, "Also use the messages that follow. Live channels then go without the reranker."] = False,
    hidden: Annotated[int, "Size of its hidden layers."] = 64,
    settings: Mapping[str, str] | None = None,
    seed: Seed = 0,
) -> "Disentangler":
    """Add a reranker that uses conversation features to a model of who replied to whom.

    It weighs the likeliest candidates of a message again, in the conversations they belong to. It is learned from probabilities
    on logs that a model has not seen, since a model is too sure of its training logs; those models may be others of the same
    recipe, each trained without a part of the logs. `--set` changes how the model decides from now on. A minute.

    Example: ramify train reranker runs/links --unseen runs/links=data/irc --lookahead --out runs/reranked
    """
    from ramify.dataset.store import Store
    from ramify.disentangle.data.logs import Logs
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.reranker import learn
    from ramify.runs.disentanglement import redecided

    task = _reply_to(model)
    if task.backbone.reads_structure:
        raise RamifyError(f"{model} reads its own decisions already; a reranker is for models that read none.")
    task.config = redecided(replace(task.config, second_look=hidden, hindsight=lookahead), settings or {})
    pairs = []
    for each in unseen:
        source, is_pair, data = each.partition("=")
        if not is_pair:
            raise RamifyError(f"--unseen {each}: expected RUN=DATA.")
        pairs.append((_reply_to(source.strip()), Store.open(data)))
    if any(each.second is not None or each.config.objective != "listwise" for each, _ in pairs):
        raise RamifyError("--unseen takes models of task.objective=listwise without a reranker.")
    seen = ((each, Logs.of(store.trees(store.split("dev")), each.input).read_with(each.tokenizer)) for each, store in pairs)
    weight = task.config.conversation_weight
    task.second = learn(seen, hidden, seed, hindsight=lookahead, conversation_weight=weight)
    return Disentangler(task)


def _reply_to(source: str | Path) -> "ReplyTo":
    from ramify import hub
    from ramify.disentangle.inference.disentangler import Disentangler

    pipeline = hub.load(source)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"{source} holds no model of who replied to whom.")
    return pipeline.task


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

The official test logs were scored once, independently. The ten official dev logs (2,500 messages) were looked at while the
model was made, so their figures are the hopeful ones. F of links, and of conversations found to the last message:

<!-- block: links-card -->
| Ubuntu IRC | links F | conversations F | 1 − VI | one-to-one |
| --- | --- | --- | --- | --- |
| official test logs, measured once | 74.59 | 42.65 | 93.33 | 81.10 |
| ten official dev logs, looked at many times: hopeful | 75.08 | 48.11 | 94.02 | 84.64 |
| dev at first sight, as on a live channel | 74.59 | 45.32 | 92.93 | 81.60 |
<!-- /block -->

Out of its domain, where it may have to be told that nobody answers himself:

<!-- block: links-domain -->
| out of its domain | score | value |
| --- | --- | --- |
| Molweni | links F | 63.99 |
| Molweni, each message answers the one before (a rule) | links F | 65.39 |
| Molweni, told that nobody answers himself (`--set task.answers=others`) | links F | 75.25 |
| a Slack channel of software engineers | 1 − VI | 93.10 |
<!-- /block -->

It reads <!-- row: whole-logs.idle.fp32 -->5,944<!-- /row --> messages a second on two cores.

The commands, in a checkout of the source, for `benchmarks` is not installed (those that train `links` with
`--set train.precision=bf16`, the first four of them with `--set task.decide=link --set task.threshold=0`; with
`--fold 0` to `--fold 3`):

    ramify data build ubuntu-irc/train --format irc --split 0.9,0.1,0 --policy empty=keep --out data/irc
    ramify train links --data data/irc --out runs/one
    ramify train links --data data/irc --out runs/two --seed 1
    ramify train links --data data/irc --out runs/three --seed 2
    ramify train links --data data/irc --out runs/four --seed 3 --set model.hidden=384 --set input.causal=false
    ramify train links --data data/irc --out runs/links --steps 10000 --seed 5 --set model.dropout=0.05 \\
        --set view.conversations=0.2 --set 'view.teachers=["runs/one","runs/two","runs/three","runs/four"]'
    ramify train candidate-pruner runs/links --data data/irc --num-candidates 8 --out runs/pruned
    python benchmarks/decisions.py train --logs ubuntu-irc/train --fold 0 --precision bf16 --out runs/folds
    ramify train reranker runs/pruned --lookahead --set task.threshold=0.36 --out runs/reranked \\
        --unseen runs/folds/fold-0=runs/folds/unseen-0 --unseen runs/folds/fold-1=runs/folds/unseen-1 \\
        --unseen runs/folds/fold-2=runs/folds/unseen-2 --unseen runs/folds/fold-3=runs/folds/unseen-3 \\
        --data data/irc --pack runs/packed --shipped
"""


def pack(run: Path, data: str, out: Path) -> None:
    """Write a trained model in half precision, with a card that holds its scores on the dev logs of its data."""
    _pack(run, data, out, title="Who replied to whom")


def pack_with_card(
    run: Path,
    data: Annotated[str, "Built logs, whose dev split the card gives scores of."],
    out: Path,
    *,
    shipped: Annotated[bool, "Write the card of the model that comes with Ramify."] = False,
) -> None:
    """Like `pack`; the model that comes with Ramify has a card that says how it was made."""
    if shipped:
        _pack(run, data, out, title=TITLE, license=LICENSE, notes=NOTES)
    else:
        pack(run, data, out)


def _pack(run: Path, data: str, out: Path, **card: str) -> None:
    import torch

    from ramify import hub
    from ramify.dataset.store import Store
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.inference.links import measure
    from ramify.files import write_text
    from ramify.metrics.conversations import score

    hub.save(Disentangler(_reply_to(run)), out, dtype=torch.float16)
    packed = _reply_to(out)
    found = measure(packed, Store.open(data), "dev").match
    scores = score(found.logs)
    results = {
        "logs, messages whose link is known": f"{len(found.logs)}, {sum(len(log.messages) for log in found.logs):,}",
        "links: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["link"].values()),
        "conversations found exactly: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["cluster"].values()),
        "1 − variation of information": f"{scores['vi']:.2f}",
        "one-to-one": f"{scores['one_to_one']:.2f}",
    }
    write_text(out / hub.CARD, hub.model_card(Disentangler(packed), results=results, **card))
