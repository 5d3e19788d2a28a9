"""`ramify train RECIPE`: one subcommand a recipe, whose parameters are its options."""

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramify.cli.shared import settings_of

if TYPE_CHECKING:
    from ramify.runs import Run

app = typer.Typer(help="Train a model by a recipe.", no_args_is_help=True)

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change any setting of the run, e.g. model.dim=128.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint.")]
Data = Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")]
Steps = Annotated[int, typer.Option(help="Updates.")]
TargetTokens = Annotated[int, typer.Option(help="Stop after so many tokens of predicted comments instead (0 = after --steps).")]
Init = Annotated[
    str, typer.Option(help="Start from a BERT-family checkpoint or a saved model of the same kind: directory or hub id.")
]
TokenizerPath = Annotated[str, typer.Option("--tokenizer", help="tokenizer.json or a directory with one; else one is trained.")]
MaxTokens = Annotated[int, typer.Option(help="Longest text, with CLS and SEP.")]
Pack = Annotated[Path | None, typer.Option(help="Also write the packed checkpoint, in half precision with its card.")]
EncoderInit = Annotated[
    str,
    typer.Option(
        "--init",
        help="What encodes the messages: a BERT-family checkpoint (directory or hub id), or a bert or tree-mlm run. "
        "There must be one.",
    ),
]
Features = Annotated[
    Literal["none", "head"], typer.Option(help="Read the features of message pairs, too, beside what their words come to.")
]
Window = Annotated[int, typer.Option(help="Messages back that one may answer.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]


@app.command("tree-mlm")
def tree_mlm(
    data: Data,
    out: Out,
    steps: Steps = 2000,
    target_tokens: TargetTokens = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: MaxTokens = 128,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Masked language model on comment trees, conditioned on everything said above a comment.

    Example: ramify train tree-mlm --data data/reddit --out runs/reddit --set train.steps=2000 --set model.encoder_layers=2
    """
    from ramify.recipes import RECIPES

    run = RECIPES["tree-mlm"](
        str(data), steps=steps, target_tokens=target_tokens, init=init, tokenizer=tokenizer, max_tokens=max_tokens, seed=seed
    )
    train(run, out, settings, resume)


@app.command("bert")
def bert(
    data: Data,
    out: Out,
    steps: Steps = 2000,
    target_tokens: TargetTokens = 0,
    init: Init = "",
    tokenizer: TokenizerPath = "",
    max_tokens: MaxTokens = 128,
    concatenate: Annotated[int, typer.Option(help="Put the ancestors' texts into the row, up to so many tokens (0 = no).")] = 0,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """BERT-style masked language model on single comments: the baseline.

    Example: ramify train bert --data data/reddit --out runs/bert --steps 1000
    """
    from ramify.recipes import RECIPES

    run = RECIPES["bert"](
        str(data),
        steps=steps,
        target_tokens=target_tokens,
        init=init,
        tokenizer=tokenizer,
        max_tokens=max_tokens,
        concatenate=concatenate,
        seed=seed,
    )
    train(run, out, settings, resume)


@app.command("feature-model")
def feature_model(
    data: Data,
    out: Out,
    steps: Steps = 5600,
    init: Init = "",
    causal: Annotated[bool, typer.Option(help="Look at nothing that is said later, as a live channel needs it.")] = False,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: features of pairs of messages, and their words.

    Example: ramify train feature-model --data data/irc --out runs/irc
    """
    from ramify.recipes import RECIPES

    train(RECIPES["feature-model"](str(data), steps=steps, init=init, causal=causal, seed=seed), out, settings, resume)


@app.command("links")
def links(
    data: Data,
    out: Out,
    steps: Steps = 4800,
    init: Init = "",
    pack: Pack = None,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: Ramify's own model. `first-look` makes it the one that comes with Ramify.

    Example: ramify train links --data data/irc --out runs/links --pack runs/links/packed
    """
    from ramify.recipes import RECIPES
    from ramify.recipes.chats import pack as write_packed

    _check_packed(pack, out)
    done = train(RECIPES["links"](str(data), steps=steps, init=init, seed=seed), out, settings, resume)
    if done and pack is not None:
        write_packed(out, data, pack)


@app.command("mht")
def mht(
    data: Data,
    out: Out,
    init: EncoderInit = "",
    features: Annotated[
        Literal["none", "head", "input"],
        typer.Option(help="Read the features of message pairs, too: beside the last states, or with the messages' vectors."),
    ] = "none",
    window: Window = 100,
    steps: Annotated[int, typer.Option(help="Updates of the first stage, with the encoder frozen.")] = 3000,
    fine_steps: Annotated[int, typer.Option(help="Updates of the second stage, of all parameters (0 = none).")] = 1000,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: a Transformer over messages that read what stands above them.

    Example: ramify train mht --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --features head --out runs/mht
    """
    from ramify.recipes import RECIPES

    run = RECIPES["mht"](str(data), init=init, features=features, window=window, steps=steps, fine_steps=fine_steps, seed=seed)
    train(run, out, settings, resume)


@app.command("decatt")
def decatt(
    data: Data,
    out: Out,
    features: Features = "none",
    window: Window = 100,
    steps: Steps = 3000,
    init: Init = "",
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: decomposable attention between the words of two messages.

    Example: ramify train decatt --data data/irc --features head --out runs/decatt
    """
    from ramify.recipes import RECIPES

    run = RECIPES["decatt"](str(data), features=features, window=window, steps=steps, init=init, seed=seed)
    train(run, out, settings, resume)


@app.command("esim")
def esim(
    data: Data,
    out: Out,
    features: Features = "none",
    window: Window = 20,
    steps: Steps = 3000,
    init: Init = "",
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: ESIM, which reads and aligns two messages with LSTMs.

    Example: ramify train esim --data data/irc --features head --out runs/esim
    """
    from ramify.recipes import RECIPES

    run = RECIPES["esim"](str(data), features=features, window=window, steps=steps, init=init, seed=seed)
    train(run, out, settings, resume)


@app.command("bert-pair")
def bert_pair(
    data: Data,
    out: Out,
    init: EncoderInit = "",
    features: Features = "none",
    window: Window = 20,
    steps: Steps = 3000,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """Who replied to whom in a chat log: two messages as one text for BERT.

    Example: ramify train bert-pair --data data/irc --init sentence-transformers/all-MiniLM-L6-v2 --out runs/bert-pair
    """
    from ramify.recipes import RECIPES

    run = RECIPES["bert-pair"](str(data), init=init, features=features, window=window, steps=steps, seed=seed)
    train(run, out, settings, resume)


@app.command("first-look")
def first_look(
    model: Annotated[str, typer.Argument(help="The model that is to read less: a run or a saved model.")],
    data: Data,
    out: Out,
    among: Annotated[int, typer.Option(min=2, help="Candidates of a message that it is to read, itself among them.")] = 16,
    pack: Pack = None,
    seed: Seed = 0,
) -> None:
    """Who replied to whom in a chat log: let a trained model read the likeliest candidates alone, which is faster.

    Example: ramify train first-look runs/links --data data/irc --out runs/quick
    """
    from ramify import hub
    from ramify.recipes import chats
    from ramify.runs import check_fresh

    check_fresh(out)
    _check_packed(pack, out)
    hub.save(chats.first_look(model, str(data), among=among, seed=seed), out)
    if pack is not None:
        chats.pack(out, data, pack)
    print(f"next: ramify disentangle LOG --to html --out LOG.html --model {out}", file=sys.stderr)


@app.command("second-look")
def second_look(
    model: Annotated[str, typer.Argument(help="The model that is to look twice: a run or a saved model.")],
    unseen: Annotated[
        list[str],
        typer.Option(metavar="RUN=DATA", help="A model, and data of whose dev logs it has seen nothing; may be repeated."),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder of the model to write.")],
    hindsight: Annotated[
        bool,
        typer.Option("--hindsight", help="Look at what is said later, too; live channels then have the first sight alone."),
    ] = False,
    pack: Pack = None,
    data: Annotated[
        Path | None, typer.Option("--data", help="With --pack: built logs, whose dev split the card is to give scores of.")
    ] = None,
    shipped: Annotated[
        bool, typer.Option("--shipped", help="With --pack: the card of the model that comes with Ramify, made again.")
    ] = False,
    seed: Seed = 0,
    settings: Settings = None,
) -> None:
    """Who replied to whom in a chat log: let a trained model look twice, the second time at conversations.

    Example: ramify train second-look runs/links --unseen runs/links=data/irc --hindsight --out runs/twice
    """
    from ramify import hub
    from ramify.cli.shared import parted
    from ramify.errors import RamifyError
    from ramify.recipes import chats
    from ramify.runs import check_fresh

    if pack is None and (shipped or data):
        raise RamifyError(f"{'--shipped' if shipped else '--data'} is for --pack: name a folder for what is packed.")
    if pack is not None and data is None:
        raise RamifyError("--pack writes a card with what the model finds on dev logs: say with --data in which.")
    check_fresh(out)
    _check_packed(pack, out)
    sources, decided = parted(unseen, "--unseen"), settings_of(settings)
    hub.save(chats.second_look(model, sources, hindsight=hindsight, decided=decided, seed=seed), out)
    if pack is not None and data is not None:
        chats.pack(out, data, pack, shipped=shipped)
    print(f"next: ramify disentangle LOG --to html --out LOG.html --model {out}", file=sys.stderr)


@app.command("shipped")
def shipped(
    data: Data,
    out: Out,
    target_tokens: TargetTokens = 8_000_000,
    pack: Pack = None,
    seed: Seed = 0,
    settings: Settings = None,
    resume: Resume = False,
) -> None:
    """The small checkpoint that `ramify demo` uses, trained again.

    Example: ramify train shipped --data data/open --out runs/shipped --pack runs/shipped/packed
    """
    from ramify.recipes import RECIPES
    from ramify.recipes.shipped import pack as write_packed

    _check_packed(pack, out)
    done = train(RECIPES["shipped"](str(data), target_tokens=target_tokens, seed=seed), out, settings, resume)
    if done and pack is not None:
        write_packed(out, data, pack)


def _check_packed(pack: Path | None, out: Path) -> None:
    """Raise before anything begins where what is packed would be written over a model."""
    from ramify.errors import RamifyError
    from ramify.runs import check_fresh

    if pack is None:
        return
    if pack.exists() and not pack.is_dir():
        raise RamifyError(f"--pack {pack} is a file: name a folder for what is packed.")
    if pack.resolve() == out.resolve():
        raise RamifyError(f"--pack {pack} is --out, too: choose another folder for what is packed.")
    check_fresh(pack, "--pack")


def train(run: "Run", out: Path, settings: list[str] | None, resume: bool) -> bool:
    """Change the run as `--set` says, execute it with a progress display, and say what to do next; of several processes one
    finds it done, when the model is saved."""
    import os
    import shlex

    from ramify.dataset.store import Store
    from ramify.disentangle.inference.evaluation import HISTORY_TEXT, find_history
    from ramify.disentangle.task import ReplyLinking
    from ramify.errors import RamifyError
    from ramify.inference.evaluation import COLLAPSED
    from ramify.report import write_report
    from ramify.runs import execute, fitting
    from ramify.runs.config import LinkDevConfig
    from ramify.tasks.masked_lm import MaskedLMConfig
    from ramify.training.trainer import read_metrics

    changes = settings_of(settings)
    if "model.features" in changes and hasattr(run.model, "features"):
        raise RamifyError("--set model.features=…: say --features instead, which sets at what rate they are learned, too.")
    run = fitting(run).changed(changes)
    main = int(os.environ.get("RANK", "0")) == 0
    store = Store.open(run.data)
    if main and isinstance(run.task, MaskedLMConfig) and not store.holds_reply_trees:
        share = float((store.depth == 0).mean())
        print(
            f"warning: {run.data} holds chat logs: {share:.0%} of the messages answer none, or nobody said which, and these "
            "are read, but not predicted. Replies can be found first (ramify disentangle … --to jsonl); see docs/training.md.",
            file=sys.stderr,
        )
    with progress_display(enabled=main) as report:
        prepared, progress = execute(run, out, resume=resume, report=report)
    if not main:
        return False
    if not (out / "config.json").exists():
        write_report(out, evaluate=False)
        print(f"stopped at step {progress.step}; go on with the same command and --resume", file=sys.stderr)
        raise typer.Exit(130)
    spreads = [record["context_spread"] for record in read_metrics(out) if "context_spread" in record]
    if spreads and spreads[-1] < COLLAPSED:
        print(
            f"warning: the encoder's vectors differ by {spreads[-1]:.2%} of their energy from text to text, so no ancestor can "
            "help. A lower learning rate for the encoder keeps them apart, such as "
            "--set 'train.lr_scale=[[\"encoder\", 0.1]]'; see docs/training.md.",
            file=sys.stderr,
        )
    # What is to be low for models of who replied to whom mostly is how much of F, or of the replies, is missed.
    by = getattr(run.dev, "by", "loss")
    what = "dev loss" if by == "loss" else f"of what dev.by={by} measures"
    best = progress.best if by == "loss" else 100 - progress.best
    measured = f"best {what} {best:.4f} at step {progress.best_step}"
    if (
        isinstance(run.dev, LinkDevConfig)
        and isinstance(prepared.task, ReplyLinking)
        and prepared.task.backbone.reads_structure
    ):
        measured += f", where {HISTORY_TEXT[find_history(prepared.task, run.dev.history)]}"
    if progress.best_step < 0:
        measured = "not measured: the dev split holds nothing to measure it by"
    print(f"{out}: {progress.step} steps, {measured}", file=sys.stderr)
    print(f"report: {write_report(out, device='auto')}", file=sys.stderr)
    logs = isinstance(prepared.task, ReplyLinking) and not prepared.store.holds_reply_trees
    model, data = shlex.quote(str(out)), shlex.quote(run.data)
    following = f"disentangle LOG --to html --out LOG.html --model {model}" if logs else f"evaluate {model} --data {data}"
    print(f"next: ramify {following}", file=sys.stderr)
    return True


@contextmanager
def progress_display(*, enabled: bool = True) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A bar with tokens per second and time left on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    recent: deque[tuple[float, float]] = deque(maxlen=20)

    def speed(record: dict[str, Any]) -> float:
        """Over the last steps."""
        recent.append((record["target_tokens"], record["seconds"]))
        tokens, seconds = (end - start for start, end in zip(recent[0], recent[-1]))
        return tokens / max(1e-9, seconds) if len(recent) > 1 else record["target_tokens"] / max(1e-9, record["seconds"])

    def line(record: dict[str, Any]) -> str:
        dev = f"  dev {record['dev_loss']:.4f}" if "dev_loss" in record else ""
        return f"loss {record['loss']:.4f}{dev}  {speed(record):,.0f} tokens/s"

    if not enabled:
        yield lambda record: None
    elif not console.is_terminal:
        shown = [-1]

        def report(record: dict[str, Any]) -> None:
            tenth = int(record["progress"] * 10)
            if tenth > shown[0] or "dev_loss" in record:
                shown[0] = tenth
                print(f"step {record['step']:>7}  {record['progress']:>4.0%}  {line(record)}", file=sys.stderr, flush=True)

        yield report
    else:
        columns = (TextColumn("step {task.fields[step]}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
        with Progress(
            *columns, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"), console=console
        ) as bar:
            row = bar.add_task("", total=1.0, step=0)
            yield lambda record: bar.update(row, completed=record["progress"], description=line(record), step=record["step"])
