"""`ramify evaluate RUN`, and `ramify evaluate links` for who replied to whom."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from ramify.cli.shared import Deciding, Device, Json, Precision, bar, mask_filler, redecide

if TYPE_CHECKING:
    from ramify.disentangle.inference.reply_trees import ReplyEvaluation
    from ramify.metrics.conversations import Match


RESAMPLES = 1000
DRAWS = 8

Protocol = Annotated[
    Literal["official", "chunk50"],
    typer.Option(help="Links: sums over all logs, or the mean over parts of fifty messages. The two are not comparable."),
]


class RunOrCommand(TyperGroup):
    """A group whose first word may also be the first argument of its command `run`, even if it is called as a command is."""

    def named(self, words: list[str], options: Sequence[str] = ()) -> list[str]:
        """The words with the name of a command at their head; `options` are the group's own."""
        if not words or words[0] in options:
            return words
        is_command = words[0] in self.commands
        if is_command and any(word.partition("=")[0] == "--data" for word in words) and Path(words[0]).is_dir():
            # `run` needs an argument of its own, and no other command knows the option.
            is_command = words[0] == "run" and self._names_a_run(words[1:])
        return words if is_command else ["run", *words]

    def _names_a_run(self, words: list[str]) -> bool:
        """Is any of these words no option, nor the value of one?"""
        own = [option for option in self.commands["run"].params if not getattr(option, "is_flag", False)]
        valued = {flag for option in own for flag in option.opts}
        before = ["", *words]
        return any(not word.startswith("-") and last not in valued for last, word in zip(before, words))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.named(args, ctx.help_option_names))


class SeveralFiles(TyperCommand):
    """A command whose repeatable options take several values after one flag: `--gold a.txt b.txt`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        spelled: list[str] = []
        flag = ""
        for word in args:
            if word.startswith("-") and word != "-":
                flag = word if word in repeatable else ""
                spelled.append(word)
            elif flag and spelled[-1] != flag:
                spelled += [flag, word]
            else:
                spelled.append(word)
        return super().parse_args(ctx, spelled)


app = typer.Typer(cls=RunOrCommand, no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Held-out loss of a model (`ramify evaluate RUN`, options: `ramify evaluate run --help`), or scores of reply links.

    Example: ramify evaluate runs/reddit --data data/reddit --context none --json
    """


@app.command()
def run(
    run: Annotated[Path, typer.Argument(help="A run or a saved model.")],
    data: Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")],
    context: Annotated[
        Literal["tree", "none", "parent", "wrong", "null"] | None,
        typer.Option(
            help="What a comment reads: its ancestors, nothing, its parent, another tree's ancestors, or the learned "
            "null row. Default: as the model was trained."
        ),
    ] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="The trees to evaluate on.")] = "test",
    draws: Annotated[
        int | None, typer.Option(min=1, help=f"Masks drawn for every comment, by the hash of its id. Default: {DRAWS}.")
    ] = None,
    mask_rate: Annotated[float | None, typer.Option(help="Share of tokens that is masked. Default: as in training.")] = None,
    starts: Annotated[
        bool, typer.Option("--starts/--no-starts", help="Models of links: score messages that start a conversation, too.")
    ] = True,
    history: Annotated[
        Literal["predicted", "gold"] | None,
        typer.Option(
            help="Models of links that read what earlier messages answer: their own decisions (default for chat logs), or the "
            "truth (default for reply trees)."
        ),
    ] = None,
    beam: Annotated[int, typer.Option(min=1, help="The same models: structures kept side by side while deciding.")] = 1,
    settings: Deciding = None,
    protocol: Protocol = "official",
    save: Annotated[Path | None, typer.Option(help="Keep the sums by tree (.npz), for paired comparisons.")] = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: Json = False,
) -> None:
    """Held-out loss in nats per masked token, perplexity and accuracy, also by depth. The masks are the same for every model.
    Of a model of who replied to whom, the scores of `ramify evaluate links`; on reply trees, graph and conversation accuracy.

    Example: ramify evaluate runs/reddit --data data/reddit --context none --json
    """
    import ramify
    from ramify.dataset.store import Store
    from ramify.disentangle.inference.disentangler import Disentangler
    from ramify.disentangle.inference.evaluation import evaluate_links
    from ramify.disentangle.inference.reply_trees import evaluate_replies
    from ramify.errors import RamifyError
    from ramify.inference.evaluation import evaluate as score
    from ramify.nn.precision import autocast
    from ramify.runs import discussions

    model = ramify.load(run, device=device)
    store = Store.open(data)
    of_links = isinstance(model, Disentangler)
    kinds = {True: "models of who replied to whom", False: "masked language models"}
    for_links = {"--no-starts": not starts, "--history": history, "--beam": beam > 1, "--set": settings}
    for_links |= {"--protocol": protocol != "official"}
    for_masks = {"--context": context, "--mask-rate": mask_rate is not None, "--draws": draws is not None, "--save": save}
    for option, given in (for_masks if of_links else for_links).items():
        if given:
            raise RamifyError(
                f"{option} is for {kinds[not of_links]}, but {run} holds one of the {kinds[of_links]}: leave it out."
            )
    if isinstance(model, Disentangler):
        model = redecide(model, settings)
    if isinstance(model, Disentangler) and store.holds_reply_trees:
        for option, given in {"--protocol": protocol != "official", "--no-starts": not starts}.items():
            if given:
                raise RamifyError(f"{option} is for chat logs, but {data} holds reply trees: leave it out.")
        with autocast(model.device, precision):
            replies = evaluate_replies(model, store, split, history=history or ("predicted" if beam > 1 else "gold"), beam=beam)
        _print_replies(replies, RESAMPLES, as_json)
        return
    if isinstance(model, Disentangler):
        with autocast(model.device, precision):
            measured = evaluate_links(model, store, split, starts=starts, history=history or "predicted", beam=beam)
        told = {"history": measured.history, "into_context": measured.into_context, "starts": measured.starts}
        _print_links(measured.match, protocol, RESAMPLES, as_json, told, measured.unknown)
        if not as_json:
            print(measured.describe())
        return
    task = mask_filler(model, str(run)).task
    trees = store.held(split)
    forest = task.reading.forest(store, task.tokenizer)
    view, collator = discussions(task, forest, trees, seen=context)
    with bar("evaluating", int(view.sizes.sum())) as advance, autocast(task.device, precision):
        scores = score(task, view, collator, trees, draws=draws or DRAWS, mask_rate=mask_rate, progress=advance)
    if save is not None:
        scores.save(save)
    summary = scores.summary()
    if not summary["count"]:
        raise RamifyError(f"no comment of {data} ({split}) has a token that could be masked.")
    if as_json:
        print(json.dumps(summary))
        return
    print(f"{'depth':>6} {'loss':>8} {'accuracy':>9} {'masked tokens':>14}")
    for depth, row in [("all", summary), *summary["by_depth"].items()]:
        print(f"{depth:>6} {row['loss']:>8.4f} {row['accuracy']:>9.2%} {row['count']:>14,}")
    rate = mask_rate or task.config.mask_rate
    print(f"perplexity {summary['perplexity']:.2f}; {rate:.0%} of the tokens masked, {draws or DRAWS} draw(s)")


@app.command(cls=SeveralFiles)
def links(
    gold: Annotated[
        list[Path], typer.Option("--gold", metavar="FILE…", help="Annotation files, or folders with *.annotation.txt in them.")
    ],
    predicted: Annotated[list[Path], typer.Option("--predicted", metavar="FILE…", help="The same, predicted.")],
    protocol: Protocol = "official",
    missing: Annotated[
        Literal["error", "self"], typer.Option(help="A message without a predicted link: an error, or a start.")
    ] = "error",
    resamples: Annotated[int, typer.Option(min=0, help="Bootstrap over logs for 95 % intervals (0 = none).")] = RESAMPLES,
    as_json: Json = False,
) -> None:
    """Compare predicted reply links, and the conversations they make, with gold ones. Percentages; lines [LOG:]PARENT CHILD -.

    Example: ramify evaluate links --gold dev/*.annotation.txt --predicted predicted.txt --json
    """
    from ramify.metrics.conversations import match
    from ramify.readers.annotation import read_links

    _print_links(match(read_links(gold), read_links(predicted), missing=missing), protocol, resamples, as_json)


def _print_links(
    matched: "Match",
    protocol: Literal["official", "chunk50"],
    resamples: int,
    as_json: bool,
    told: Mapping[str, Any] | None = None,
    unknown: Sequence[str] = (),
) -> None:
    """`told`: what else JSON says; `unknown`: scores of what the data do not say."""
    from ramify.metrics.conversations import bootstrap, score

    scores = score(matched.logs, protocol)
    dropped = {reason: count for reason, count in matched.dropped.items() if count}
    intervals = bootstrap(matched.logs, protocol, resamples=resamples) if resamples and len(matched.logs) > 1 else {}
    intervals = {name: each for name, each in intervals.items() if name not in unknown}
    if as_json:
        told = {"protocol": protocol, "dropped": dropped, "missing": matched.missing, **(told or {})}
        told["intervals"] = {name: [each.low, each.high] for name, each in _flat(intervals).items()}
        print(json.dumps(scores | dict.fromkeys(unknown) | told))
        return
    print(f"protocol {protocol}, {len(matched.logs)} logs, {sum(len(log.messages) for log in matched.logs):,} messages")
    low_high = {name: f"  ({each.low:.2f} to {each.high:.2f})" for name, each in _flat(intervals).items()}
    for name, value in _flat({name: each for name, each in scores.items() if name not in unknown}).items():
        print(f"{name:>18} {value:>7.2f}{low_high.get(name, '')}")
    for reason, count in dropped.items():
        print(f"{count:,} predicted links left out: {reason.replace('_', ' ')}")
    if matched.missing:
        print(f"{matched.missing:,} messages had no predicted link and start a conversation (--missing self)")


def _print_replies(measured: "ReplyEvaluation", resamples: int, as_json: bool) -> None:
    from ramify.disentangle.inference.evaluation import HISTORY_TEXT

    found = measured.model
    if as_json:
        intervals = found.intervals(resamples=resamples)
        told = {
            "history": measured.history,
            "conversations": len(found.comments),
            "comments": int(found.comments.sum()),
            "beyond_window": measured.beyond_window,
            "intervals": {name: [each.low, each.high] for name, each in intervals.items()},
            "baselines": {name: each.scores() for name, each in measured.baselines.items()},
        }
        print(json.dumps(found.scores() | told))
        return
    print(f"{len(found.comments):,} conversations, {found.comments.sum():,} comments; 95 % intervals over conversations")
    for system, replies in ({"model": found} | measured.baselines).items():
        for name, each in replies.intervals(resamples=resamples).items():
            print(f"{system:>9} {name.replace('_', ' '):<29} {each.value:>6.2f}  ({each.low:.2f} to {each.high:.2f})")
    if measured.beyond_window:
        print(f"{measured.beyond_window:,} comments answer one that is further back than the model looks: they count as wrong")
    print(HISTORY_TEXT[measured.history])


def _flat(scores: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{name} {part}".strip(): value
        for name, inner in scores.items()
        for part, value in (inner if isinstance(inner, dict) else {"": inner}).items()
    }
