"""`ramify evaluate RUN`, and `ramify evaluate links` for who replied to whom."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from ramify.cli.shared import Deciding, Device, Json, Precision, bar, settings_of


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
        Literal["tree", "none", "parent", "mismatched", "null"] | None,
        typer.Option(
            help="What a comment reads: its ancestors, nothing, its parent, another tree's ancestors, or the learned "
            "null row. Default: as the model was trained."
        ),
    ] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="The trees to evaluate on.")] = "test",
    draws: Annotated[
        int | None, typer.Option(min=1, help="Masks drawn for every comment, by the hash of its id. Default: 8.")
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
    beam: Annotated[
        int | None, typer.Option(min=1, help="The same models: structures kept side by side while deciding. Default: 1.")
    ] = None,
    settings: Deciding = None,
    protocol: Annotated[
        Literal["official", "chunk50"] | None,
        typer.Option(
            help="Models of links: sums over all logs (official, the default), or the mean over parts of fifty messages. The "
            "two are not comparable."
        ),
    ] = None,
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
    from ramify.runs import kind_for

    given: dict[str, Any] = {
        "context": context,
        "draws": draws,
        "mask_rate": mask_rate,
        "save": save,
        "no_starts": None if starts else True,
        "history": history,
        "beam": beam,
        "protocol": protocol,
        "set": settings_of(settings) if settings else None,
    }
    model = ramify.load(run, device=device)
    store = Store.open(data)
    options = {name: value for name, value in given.items() if value is not None}
    options |= {"precision": precision, "progress": partial(bar, "evaluating")}
    found = kind_for(model, str(run)).evaluate(model, str(run), store, split, options)
    print(json.dumps(found.to_json()) if as_json else "\n".join(found.lines()))


@app.command(cls=SeveralFiles)
def links(
    gold: Annotated[
        list[Path], typer.Option("--gold", metavar="FILE…", help="Annotation files, or folders with *.annotation.txt in them.")
    ],
    predicted: Annotated[list[Path], typer.Option("--predicted", metavar="FILE…", help="The same, predicted.")],
    protocol: Annotated[
        Literal["official", "chunk50"],
        typer.Option(help="Sums over all logs, or the mean over parts of fifty messages. The two are not comparable."),
    ] = "official",
    missing: Annotated[
        Literal["error", "self"], typer.Option(help="A message without a predicted link: an error, or a start.")
    ] = "error",
    resamples: Annotated[
        int | None, typer.Option(min=0, help="Bootstrap resamples over logs for 95 % intervals (0: none). Default: 1000.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare predicted reply links, and the conversations they make, with gold ones. Percentages; lines [LOG:]PARENT CHILD -.

    Example: ramify evaluate links --gold dev/*.annotation.txt --predicted predicted.txt --json
    """
    from ramify.metrics.conversations import match
    from ramify.readers.annotation import read_links
    from ramify.runs.disentanglement_scores import LinkScores

    matched = match(read_links(gold), read_links(predicted), missing=missing)
    found = LinkScores(matched, protocol) if resamples is None else LinkScores(matched, protocol, resamples=resamples)
    print(json.dumps(found.to_json()) if as_json else "\n".join(found.lines()))
