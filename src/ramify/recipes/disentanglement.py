"""Disentanglement models for chat logs and reply trees, and the parts that are fitted to a trained model."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from ramify.config import check_choice, check_seed
from ramify.errors import RamifyError
from ramify.progress import track
from ramify.recipes.base import Positional
from ramify.recipes.options import Data, EncoderInit, Features, ModelInit, Seed, Steps, Window, check_of_checkpoint

if TYPE_CHECKING:
    from ramify.dataset.store import Split, Store
    from ramify.disentangle.config import Objective
    from ramify.disentangle.data.logs import Logs
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.runs import Run
    from ramify.runs.disentanglement.run import DisentanglementRun
    from ramify.training.config import TrainConfig

FEATURES_LR = 1e-3
"""The feature model's learning rate. At the lower rate of an encoder, the hidden layers on features would be undertrained when
the encoder is done."""

FROZEN = r"^backbone\.encoder\."
"""Pattern of the parameters of a message encoder."""


Setting = Literal["reddit", "ubuntu"]


class Published(NamedTuple):
    """The settings in which the published runs of the Masked Hierarchical Transformer differ: a stage with a frozen encoder,
    and a `fine` stage in which all parameters learn."""

    objective: "Objective"
    lr: float
    batch: int
    """Number of messages per update."""
    fine_lr: float
    fine_batch: int


PUBLISHED: dict[Setting, Published] = {
    "reddit": Published("ranking", lr=1e-4, batch=32, fine_lr=1e-5, fine_batch=8),
    "ubuntu": Published("binary", lr=1e-5, batch=32, fine_lr=1e-7, fine_batch=4),
}
"""Zhu et al. (2020), experiments on Reddit and on Ubuntu IRC."""

PUBLISHED_EPOCHS = 10.0
"""The length of a published stage, unless early stopping ends it before."""


NEXT_COMMAND = "disentangle LOG --to html --out LOG.html"
"""The command to suggest after a part was fitted."""


def _run(
    recipe: str, data: str, model: Any, *stages: "TrainConfig", init: str, seed: int, **parts: Any
) -> "DisentanglementRun":
    """`parts` are the fields of the run that differ from its defaults."""
    from ramify.runs.disentanglement.run import DisentanglementRun

    run = DisentanglementRun(recipe=recipe, data=data, model=model, stages=stages, init=init, seed=seed, **parts)
    return run.sized(init)


def _with_features(run: "DisentanglementRun", features: str | None, asked: Any) -> "DisentanglementRun":
    """The run with `FEATURES_LR`, in its first stage, for the layers that join features to states (`features=head`). A change
    of `train.lr` scales both rates. Raises `RamifyError` if the model of --init reads other features than `asked`."""
    check_of_checkpoint(run, "features", features, asked, "features")
    model: Any = run.model
    if model.features != "head":
        return run
    scale = ((r"^(backbone\.fusion|head)\.", FEATURES_LR / run.stages[0].lr),)
    return replace(run, stages=tuple(replace(stage, lr_scale=scale) for stage in run.stages))


def _pair_stage(steps: int, lr: float, budget: int = 64) -> "TrainConfig":
    """The training stage of encoders of message pairs."""
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
    init: ModelInit = "",
    causal: Annotated[bool, "Read no later messages, as a live channel requires."] = False,
    seed: Seed = 0,
) -> "Run":
    """Disentanglement with 77 features of message pairs, and their words (Kummerfeld et al. 2019).

    It has 1.7 M parameters. Six epochs over the 60,000 messages of the Ubuntu logs take a quarter of an hour on one core. The
    paper trains on single messages with SGD; this recipe trains on 64 at a time with Adam.

    Example: ramify train feature-model --data data/irc --out runs/irc
    """
    from ramify.disentangle.config import ChatInput, LinkConfig
    from ramify.disentangle.models.feature_model import FeatureModelConfig
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
    task, input = LinkConfig(score="sum"), ChatInput(causal=causal)
    return _run("feature-model", data, FeatureModelConfig(), stage, task=task, input=input, init=init, seed=seed)


def links(data: Data, *, steps: Steps = 4800, init: ModelInit = "", seed: Seed = 0) -> "Run":
    """Disentanglement with Ramify's own model, which extends the feature model.

    It also reads features of the messages around a pair, and the likeliest candidates of a message attend to each other before
    they are scored. It learns which conversation a message belongs to as well as which message it answers. It uses no later
    messages, so it can follow a live channel, and no years. Training takes ten minutes on one core.

    Example: ramify train links --data data/irc --out runs/links --pack runs/links/packed
    """
    from ramify.disentangle.config import ChatInput, DecodingConfig, LinkConfig
    from ramify.disentangle.models.feature_model import FeatureModelConfig

    stages = feature_model(data, steps=steps).stages
    model = FeatureModelConfig(
        hidden=256, dropout=0.1, years=False, context_features=True, attention_layers=2, attention_candidates=16
    )
    return _run(
        "links",
        data,
        model,
        *stages,
        task=LinkConfig(score="sum", conversation_weight=1.0),
        input=ChatInput(window=50, causal=True),
        decoding=DecodingConfig(decide="conversation", threshold=0.33),
        init=init,
        seed=seed,
    )


def mht(
    data: Data,
    *,
    init: EncoderInit = "",
    features: Annotated[
        Literal["none", "head", "input"] | None,
        "Also read the features of message pairs. head: joined to the last states; input: added to the messages' vectors. "
        "Default: none; with --init, that of a saved model of the same kind.",
    ] = None,
    window: Window = 100,
    setting: Annotated[
        Setting | None,
        "Rates, batches, epochs, early stopping, pooling and texts (without authors) as published for Reddit or for Ubuntu "
        "IRC. Default: Ramify's own.",
    ] = None,
    steps: Annotated[
        int | None,
        "Number of updates of the first stage, in which the encoder is frozen. Default: 3000, or ten epochs with --setting.",
    ] = None,
    fine_steps: Annotated[
        int | None,
        "Number of updates of the second stage, in which all parameters learn (0: none). Default: 1000, or ten epochs with "
        "--setting.",
    ] = None,
    seed: Seed = 0,
) -> "Run":
    """Disentanglement with the Masked Hierarchical Transformer (Zhu et al. 2020), in two stages.

    The encoder is frozen in the first stage; all parameters learn in the second. `--features` adds the 77 features of a pair
    (the paper's + F). The run needs --init, because links alone do not teach a model to read. At the paper's first learning
    rate, 1e-5, a thousand updates reach half of the gain that they reach at 3e-4. `--setting` trains as published; the paper's
    encoder is --init google-bert/bert-base-uncased, and its second stage needs a GPU.

    Example: ramify train mht --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --features head --out runs/mht
    """
    from ramify.disentangle.config import ChatInput
    from ramify.disentangle.models.mht import MHTConfig
    from ramify.training.config import TrainConfig

    first = TrainConfig(
        steps=3000 if steps is None else steps,
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
    stages = [first]
    if fine_steps != 0:
        fine = 1000 if fine_steps is None else fine_steps
        stages.append(replace(stages[0], steps=fine, lr=3e-5, freeze=(), evaluate_every=250))
    input = ChatInput(window=window, texts="pieces")
    model = MHTConfig(features=features or "none")
    run = _with_features(_run("mht", data, model, *stages, input=input, init=init, seed=seed), features, model)
    return run if setting is None else _as_published(run, setting, steps, fine_steps)


def _as_published(
    run: "DisentanglementRun", setting: Setting, steps: int | None, fine_steps: int | None
) -> "DisentanglementRun":
    """The run with the settings of `PUBLISHED`. docs/reconstructed.md lists those that the paper leaves open."""
    from ramify.disentangle.config import LinkConfig
    from ramify.runs.disentanglement.run import BlockConfig
    from ramify.training.config import TrainConfig

    check_choice("setting", setting, PUBLISHED)
    published = PUBLISHED[setting]
    first = TrainConfig(
        steps=steps or 0,
        epochs=PUBLISHED_EPOCHS if steps is None else None,
        budget=published.batch,
        budget_unit="targets",
        lr=published.lr,
        optimizer="adam",
        weight_decay=0.0,
        betas=(0.9, 0.999),
        freeze=(FROZEN,),
        evaluate_every=1,
        evaluate_unit="epochs",
        patience=3,
    )
    stages = [first]
    if fine_steps != 0:
        length = {"steps": 0, "epochs": PUBLISHED_EPOCHS} if fine_steps is None else {"steps": fine_steps, "epochs": None}
        stages.append(replace(first, **length, budget=published.fine_batch, lr=published.fine_lr, freeze=()))
    published_run = replace(
        run,
        stages=tuple(stages),
        task=LinkConfig(objective=published.objective),
        # The paper encodes "[CLS] utterance [SEP]".
        input=replace(run.input, author_in_text=False),
        view=BlockConfig(block=1, encoded_block=published.fine_batch),
    )
    # A checkpoint brings its own pooling.
    return published_run.changed({"model.encoder.pooling": "pooler"})


def decatt(
    data: Data,
    *,
    features: Features = None,
    window: Window = 100,
    steps: Steps = 3000,
    init: ModelInit = "",
    seed: Seed = 0,
) -> "Run":
    """Disentanglement with decomposable attention between two messages (Parikh et al. 2016).

    This is a baseline of Zhu et al. (2020); `--features head` adds the paper's + F. Scores without features are low, because
    the words of two messages seldom show whether one answers the other.

    Example: ramify train decatt --data data/irc --features head --out runs/decatt
    """
    from ramify.disentangle.config import ChatInput
    from ramify.disentangle.models.decomposable_attention import DecomposableAttentionConfig

    model = DecomposableAttentionConfig(features=features or "none")
    run = _run("decatt", data, model, _pair_stage(steps, lr=5e-4), input=ChatInput(window=window), init=init, seed=seed)
    return _with_features(run, features, model)


def esim(
    data: Data,
    *,
    features: Features = None,
    window: Window = 20,
    steps: Steps = 3000,
    init: ModelInit = "",
    seed: Seed = 0,
) -> "Run":
    """Disentanglement with ESIM, which reads and aligns two messages with LSTMs (Chen et al. 2017).

    This is a baseline of Zhu et al. (2020); `--features head` adds the paper's + F. The LSTMs read every pair anew, so the
    window is short (longer links count as errors), and the LSTMs are smaller than the paper's 300 (`--set model.hidden=300`
    takes three times as long). Scores without features are low, because the words of two messages seldom show whether one
    answers the other.

    Example: ramify train esim --data data/irc --features head --out runs/esim
    """
    from ramify.disentangle.config import ChatInput
    from ramify.disentangle.models.esim import ESIMConfig

    model = ESIMConfig(features=features or "none", hidden=128)
    run = _run("esim", data, model, _pair_stage(steps, lr=4e-4), input=ChatInput(window=window), init=init, seed=seed)
    return _with_features(run, features, model)


def bert_pair(
    data: Data,
    *,
    init: EncoderInit = "",
    features: Features = None,
    window: Window = 20,
    steps: Steps = 3000,
    seed: Seed = 0,
) -> "Run":
    """Disentanglement with BERT, which reads two messages as one text: a baseline of Zhu et al. (2020).

    `--features head` adds the paper's + F. The run needs --init, because links alone do not teach a model to read. The encoder
    reads every pair, while that of the Masked Hierarchical Transformer reads every message once. So updates hold few messages,
    the window is short (longer links count as errors), and training needs a GPU.

    Example: ramify train bert-pair --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --out runs/bert-pair
    """
    from ramify.disentangle.config import ChatInput
    from ramify.disentangle.models.bert_pair import BertPairConfig
    from ramify.runs.disentanglement.run import BlockConfig

    model = BertPairConfig(features=features or "none")
    run = _run(
        "bert-pair",
        data,
        model,
        _pair_stage(steps, lr=5e-5, budget=16),
        input=ChatInput(window=window, texts="pieces"),
        view=BlockConfig(encoded_block=16),
        init=init,
        seed=seed,
    )
    return _with_features(run, features, model)


def candidate_pruner(
    model: Annotated[str, Positional("A trained model: a run or a saved model.")],
    data: Data,
    *,
    num_candidates: Annotated[int, "Number of candidates that the model reads per message, counting the message itself."] = 16,
    seed: Seed = 0,
) -> "Disentangler":
    """Add a candidate pruner to a disentanglement model, which then reads only the likeliest candidates and is faster.

    The pruner is a linear map of features, fitted to the model's own probabilities on the training logs in about a minute.

    Example: ramify train candidate-pruner runs/links --data data/irc --out runs/pruned
    """
    from ramify.dataset.store import Store
    from ramify.disentangle.candidate_pruner import fit_candidate_pruner
    from ramify.disentangle.inference.predict import predict_shuffled

    check_seed(seed)
    if num_candidates < 2:
        raise RamifyError(f"--num-candidates {num_candidates} keeps no candidate but the message itself. Choose 2 or more.")
    disentangler = _load(model)
    task = disentangler.task
    if task.candidate_pruner is not None or task.config.objective != "listwise" or not task.backbone.reads_features:
        raise RamifyError(
            f"{model} cannot get a candidate pruner, which needs a model of task.objective=listwise that reads features "
            "and has no pruner yet."
        )
    if task.reranker is not None:
        raise RamifyError(
            f"{model} has a reranker, which is fitted to the candidates that the model reads. Add the pruner first."
        )
    if task.backbone.reads_history:
        raise RamifyError(f"{model} reads all candidates as a history, so it cannot get a candidate pruner.")
    store = Store.open(data)
    logs = _read_logs(disentangler, store, "train")
    examples = predict_shuffled(task, disentangler.decoding, logs, seed)
    task.candidate_pruner = fit_candidate_pruner(examples, num_candidates, task.backbone.reads_context_features)
    task.config = replace(task.config, num_candidates=num_candidates)
    return disentangler


def reranker(
    model: Annotated[str, Positional("A trained model: a run or a saved model.")],
    *,
    unseen: Annotated[
        Sequence[str], "RUN=DATA: a model, and a data set whose dev logs are not in its training data; repeatable."
    ],
    lookahead: Annotated[bool, "Also use the messages that follow. Live channels then skip the reranker."] = False,
    hidden: Annotated[int, "Size of the hidden layers."] = 64,
    settings: Annotated[
        Mapping[str, str] | None, "Change how the extended model decides, e.g. decoding.threshold=0.36; repeatable."
    ] = None,
    seed: Seed = 0,
) -> "Disentangler":
    """Add a reranker that uses conversation features.

    The reranker scores the likeliest candidates of a message again, given the conversations they belong to. It is fitted, in
    about a minute, to probabilities on logs outside a model's training data, because a model is overconfident on its training
    logs. The models of --unseen may be others of the same recipe, each trained without a part of the logs. `--set` changes how
    the model decides.

    Example: ramify train reranker runs/links --unseen runs/links=data/irc --lookahead --out runs/reranked
    """
    from ramify.dataset.store import Store
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.inference.predict import predict_posterior
    from ramify.disentangle.reranker import fit_reranker
    from ramify.runs.disentanglement.run import redecided

    check_seed(seed)
    disentangler = _load(model)
    task = disentangler.task
    if task.backbone.reads_structure:
        raise RamifyError(f"{model} reads its own decisions, and a reranker needs a model that does not.")
    config = replace(task.config, reranker_dim=hidden, lookahead=lookahead)
    decoding = redecided(disentangler.decoding, settings or {})
    pairs = []
    for pair in unseen:
        source, is_pair, data = pair.partition("=")
        if not is_pair:
            raise RamifyError(f"--unseen {pair} has no equals sign; expected RUN=DATA.")
        pairs.append((_load(source.strip()), Store.open(data)))
    if any(other.task.reranker is not None or other.task.config.objective != "listwise" for other, _ in pairs):
        raise RamifyError("--unseen names a model that has a reranker or another objective than task.objective=listwise.")
    read = ((other, _read_logs(other, store, "dev")) for other, store in pairs)
    examples = ((logs, predict_posterior(other.task, other.decoding, logs)) for other, logs in read)
    weight = config.conversation_weight
    task.reranker = fit_reranker(examples, hidden, seed, lookahead=lookahead, conversation_weight=weight)
    task.config = config
    extended = Disentangler(task, decoding)
    extended.kind = disentangler.kind
    return extended


def _read_logs(model: "Disentangler", store: "Store", split: "Split") -> "Logs":
    """The logs of a split, as the model reads them."""
    from ramify.disentangle.data.logs import Logs

    numbers = store.split(split)
    return Logs.build(track("reading logs", store.trees(numbers), len(numbers)), model.input).tokenize(model.tokenizer)


def _load(source: str | Path) -> "Disentangler":
    from ramify import hub
    from ramify.disentangle.inference.disentangler import Disentangler

    pipeline = hub.load(source)
    if not isinstance(pipeline, Disentangler):
        raise RamifyError(f"{source} is not a disentanglement model.")
    return pipeline


LICENSE = "cc-by-4.0"
TITLE = "Who replied to whom: the model that ships with Ramify"
NOTES = """\
The model was trained on the training logs of the Ubuntu IRC disentanglement data (Kummerfeld et al. 2019, CC BY 4.0). One
log in ten, chosen by a hash of its name, was held out; the best weights, the number of candidates and the threshold were chosen
on these logs. The model reads no later messages and no years. In a whole log, a reranker then scores each message again, given
the thirty messages that follow; on a live channel it is skipped.

Four models of the same kind were its teachers on all messages, annotated or not. It also learned from single conversations
without times. A message has fifty-one candidates, itself and the fifty before it. A candidate pruner, a linear map of features,
keeps eight, always the message itself. A message joins the conversation with the highest probability, and answers every message
there with a probability of at least .36. The reranker was fitted to the probabilities of four models on logs that were not in
their training data: each was trained without a fourth of the training logs.

The official test logs were scored once, independently. The ten official dev logs (2,500 messages) were used during development,
so their scores are optimistic. The table gives F of links, and F of conversations found exactly:

<!-- block: links-card -->
| Ubuntu IRC | links F | conversations F | 1 − VI | one-to-one |
| --- | --- | --- | --- | --- |
| official test logs, scored once | 74.6 | 42.6 | 93.3 | 81.1 |
| ten official dev logs, used in development: optimistic | 75.1 | 48.1 | 94.0 | 84.6 |
| dev without lookahead, as on a live channel | 74.6 | 45.3 | 92.9 | 81.6 |
<!-- /block -->

Scores on other domains, with and without the setting that authors do not answer themselves:

<!-- block: links-domain -->
| other domain | score | value |
| --- | --- | --- |
| Molweni | links F | 64.0 |
| Molweni, each message answers the one before (a rule) | links F | 65.4 |
| Molweni, authors do not answer themselves (`--set decoding.answers=others`) | links F | 75.2 |
| a Slack channel of software engineers | 1 − VI | 93.1 |
<!-- /block -->

The model reads <!-- row: whole-logs.idle.fp32 -->5,944<!-- /row --> messages per second on two cores.

The following commands, in a checkout of the source (`benchmarks` is not installed), made the model. The commands that train
`links` also had `--set train.precision=bf16`; the first four of these also had `--set decoding.decide=link --set
decoding.threshold=0`. The command with `--fold 0` was repeated with `--fold 1` to `--fold 3`.

    ramify data build ubuntu-irc/train --format irc --split 0.9,0.1,0 --policy empty=keep --out data/irc
    ramify train links --data data/irc --out runs/one
    ramify train links --data data/irc --out runs/two --seed 1
    ramify train links --data data/irc --out runs/three --seed 2
    ramify train links --data data/irc --out runs/four --seed 3 --set model.hidden=384 --set input.causal=false
    ramify train links --data data/irc --out runs/links --steps 10000 --seed 5 --set model.dropout=0.05 \\
        --set view.conversations=0.2 --set 'view.teachers=["runs/one","runs/two","runs/three","runs/four"]'
    ramify train candidate-pruner runs/links --data data/irc --num-candidates 8 --out runs/pruned
    python benchmarks/decisions.py train --logs ubuntu-irc/train --fold 0 --precision bf16 --out runs/folds
    ramify train reranker runs/pruned --lookahead --set decoding.threshold=0.36 --out runs/reranked \\
        --unseen runs/folds/fold-0=runs/folds/unseen-0 --unseen runs/folds/fold-1=runs/folds/unseen-1 \\
        --unseen runs/folds/fold-2=runs/folds/unseen-2 --unseen runs/folds/fold-3=runs/folds/unseen-3 \\
        --data data/irc --pack runs/packed --shipped
"""


def pack(run: Path, data: str, out: Path) -> None:
    """Write a trained model in half precision, with a card that gives its scores on the dev logs of its data."""
    _pack(run, data, out, title="Who replied to whom")


def pack_with_card(
    run: Path,
    data: Annotated[str, "Data set whose dev split gives the scores on the model card."],
    out: Path,
    *,
    shipped: Annotated[bool, "Write the model card of the model that ships with Ramify."] = False,
) -> None:
    """`pack`; with `shipped`, the card describes how the model that ships with Ramify was made."""
    if shipped:
        _pack(run, data, out, title=TITLE, license=LICENSE, notes=NOTES)
    else:
        pack(run, data, out)


def _pack(run: Path, data: str, out: Path, **card: str) -> None:
    import torch

    from ramify import hub
    from ramify.dataset.store import Store
    from ramify.disentangle.inference.evaluation import evaluate_links
    from ramify.files import write_text
    from ramify.metrics.conversations import score

    hub.save(_load(run), out, dtype=torch.float16)
    packed = _load(out)
    match = evaluate_links(packed, Store.open(data), "dev").match
    scores = score(match.logs)
    results = {
        "logs, messages whose link is known": f"{len(match.logs)}, {sum(len(log.messages) for log in match.logs):,}",
        "links: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["link"].values()),
        "conversations found exactly: precision, recall, F": " / ".join(f"{value:.2f}" for value in scores["cluster"].values()),
        "1 − variation of information": f"{scores['vi']:.2f}",
        "one-to-one": f"{scores['one_to_one']:.2f}",
    }
    write_text(out / hub.CARD, hub.model_card(packed, results=results, **card))
