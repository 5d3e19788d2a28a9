"""`ramify evaluate RUN` scores a model; `ramify evaluate links` scores predicted reply links."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup

from ramify import sample
from ramify.cli.progress import bar
from ramify.cli.shared import Deciding, Device, Json, Precision, check_beside, settings_of

Run = Annotated[Path, typer.Argument(help="A run, a saved model, or a shipped model: links, tree-mlm-small.")]
Data = Annotated[Path, typer.Option("--data", help="A data set built by `ramify data build`.")]
Kind = Annotated[
    str | None,
    typer.Option(
        help="Masked language models: score single comments, each in its context (comment-trees), or rows of running text "
        "(packed-text). Default: as in training; packed-text for models of other libraries."
    ),
]
Context = Annotated[
    Literal["tree", "parent", "root", "none", "null", "mismatched", "sibling-branch"] | None,
    typer.Option(
        help="Context of a comment: its ancestors (tree), its parent, the post (root), nothing (none), the null row, "
        "another tree's ancestors (mismatched), or those of another branch of its own tree. Default: as in training."
    ),
]
Split = Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="Split to evaluate on.")]
Draws = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of mask draws per comment, seeded by the hash of its id (default: 8), or of draws per row of running text "
        "(default: 1).",
    ),
]
MaskRate = Annotated[float | None, typer.Option(help="Share of masked tokens. Default: as in training.")]
Comments = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Masked language models: only the first trees that hold so many comments. Models that translate: so many pairs, "
        "evenly spaced. Default: all.",
    ),
]
Rows = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Models of running text that have memory or predict the next token: so many rows only (default: all). Models of "
        "documents: rows per level and measure (default: 2,000).",
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        help="Models of documents: only these levels, separated by commas, such as paragraph,chapter, with their hidden "
        "children. Default: all."
    ),
]
CarriedMemory = Annotated[
    int | None, typer.Option(min=0, help="Models of running text: states per layer to remember. Default: as in training.")
]
Against = Annotated[
    Path | None,
    typer.Option(
        help="A second model to score on the same examples. Masked language models: on the same masks, in its own context or "
        "--context. Models that were trained on labels: the difference of the main metric, by a paired bootstrap."
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Masked language models: also mix in a cache of the ancestors' words. The dev split chooses its weight.",
    ),
]
Starts = Annotated[
    bool, typer.Option("--starts/--no-starts", help="Disentanglement: also score messages that start a conversation.")
]
History = Annotated[
    Literal["predicted", "gold"] | None,
    typer.Option(
        help="Reply history of disentanglement models that read it: the model's own predictions (default for chat logs), "
        "or gold links (default for reply trees)."
    ),
]
Beam = Annotated[
    int | None,
    typer.Option(min=1, help="Beam width of models that read their own decisions (default: 1) or translate (default: 4)."),
]
Protocol = Annotated[
    Literal["official", "chunk50"] | None,
    typer.Option(
        help="Disentanglement: sums over all logs (official, the default), or the mean over chunks of fifty messages "
        "(chunk50). The two are not comparable."
    ),
]
Save = Annotated[Path | None, typer.Option(help="Also write the sums per tree to this .npz file, for paired comparisons.")]


class RunOrCommand(TyperGroup):
    """A group whose command `run` may be left out: a first word that names no command is the argument of `run`."""

    def named(self, words: list[str], options: Sequence[str] = ()) -> list[str]:
        """The words, with the name of a command first. `options` are the group's own."""
        if not words or words[0] in options:
            return words
        is_command = words[0] in self.commands
        is_model = words[0] in sample.MODELS or Path(words[0]).is_dir()
        if is_command and is_model and any(word.partition("=")[0] == "--data" for word in words):
            # Only `run` has --data. Without a further argument, this word is a model that is called like a command.
            is_command = words[0] == "run" and self._names_a_run(words[1:])
        return words if is_command else ["run", *words]

    def _names_a_run(self, words: list[str]) -> bool:
        """Whether one of these words is an argument, not an option or the value of one."""
        with_value = [option for option in self.commands["run"].params if not getattr(option, "is_flag", False)]
        valued = {flag for option in with_value for flag in option.opts}
        before = ["", *words]
        return any(not word.startswith("-") and last not in valued for last, word in zip(before, words))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.named(args, ctx.help_option_names))


class SeveralFiles(TyperCommand):
    """A command whose repeatable options take several values after one flag: `--gold a.txt b.txt`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {flag for option in self.params if getattr(option, "multiple", False) for flag in option.opts}
        repeated: list[str] = []
        flag = ""
        for word in args:
            if word.startswith("-") and word != "-":
                flag = word if word in repeatable else ""
                repeated.append(word)
            elif flag and repeated[-1] != flag:
                repeated += [flag, word]
            else:
                repeated.append(word)
        return super().parse_args(ctx, repeated)


app = typer.Typer(cls=RunOrCommand, no_args_is_help=True)


@app.callback()
def evaluate() -> None:
    """Evaluate a model (`ramify evaluate RUN`; options: `ramify evaluate run --help`), or score predicted reply links.

    Example: ramify evaluate runs/reddit --data data/reddit --context none --json

    Example: ramify evaluate links --data data/irc --split dev
    """


@app.command()
def run(
    run: Run,
    data: Data,
    kind: Kind = None,
    context: Context = None,
    split: Split = "test",
    draws: Draws = None,
    mask_rate: MaskRate = None,
    comments: Comments = None,
    rows: Rows = None,
    levels: Levels = None,
    memory: CarriedMemory = None,
    against: Against = None,
    cache: Cache = False,
    starts: Starts = True,
    history: History = None,
    beam: Beam = None,
    settings: Deciding = None,
    protocol: Protocol = None,
    save: Save = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    as_json: Json = False,
) -> None:
    """Evaluate a model on held-out data.

    Masked language models: loss in nats per masked token, perplexity and accuracy, also by depth and by word class
    (recoverable: content words that stand in an ancestor and not in the visible comment). The masks are the same for every
    model. With another context than in training, or with --against, the output also holds both losses and what is saved, with
    95 % intervals over trees. Disentanglement models: the scores of `ramify evaluate links`; on reply trees, graph and
    conversation accuracy. Models of nested documents: reconstruction, hidden nodes, coherence and losses of every level, each
    beside its baseline and chance. Models that predict texts token by token: loss in nats per token and perplexity, and of
    those that translate, BLEU beside that of the copied sources (pip install "ramify[translate]").

    Example: ramify evaluate runs/reddit --data data/reddit --context none --json

    Example: ramify evaluate google-bert/bert-base-cased --data data/reddit --kind comment-trees
    """
    import ramify
    from ramify.dataset.store import Store
    from ramify.hub import RUN_FILE
    from ramify.runs import kind_for

    check_beside(save, "--save")
    of_kinds: dict[str, Any] = {
        "context": context,
        "draws": draws,
        "mask_rate": mask_rate,
        "comments": comments,
        "rows": rows,
        "levels": None if levels is None else tuple(name.strip() for name in levels.split(",")),
        "memory": memory,
        "save": save,
        "against": against,
        "cache": cache or None,
        "no_starts": None if starts else True,
        "history": history,
        "beam": beam,
        "protocol": protocol,
        "set": settings_of(settings) if settings else None,
    }
    # An option that is not given is left out, because a kind refuses those that it does not have.
    given = {name: value for name, value in of_kinds.items() if value is not None}
    model = ramify.load(run, device=device)
    store = Store.open(data)
    shared = {"precision": precision, "progress": partial(bar, "evaluating")}
    scored_as = kind_for(model, str(run), kind)
    if kind is None and not (run / RUN_FILE).exists():
        print(f"kind: {scored_as.name}", file=sys.stderr)
    scores = scored_as.evaluate(model, str(run), store, split, given | shared)
    unknown = scores.unknown_pieces.notes(f"the split {split}") if scores.unknown_pieces else ()
    for note in (*scores.left_out, *unknown):
        print(f"warning: {note}", file=sys.stderr)
    print(json.dumps(scores.to_json()) if as_json else "\n".join(scores.lines()))


@app.command(cls=SeveralFiles)
def links(
    gold: Annotated[
        list[Path],
        typer.Option(
            "--gold", metavar="FILE…", help="Gold annotation files, or folders with files *.annotation.txt; - reads stdin."
        ),
    ],
    predicted: Annotated[
        list[Path],
        typer.Option(
            "--predicted", metavar="FILE…", help="Predicted annotation files, or folders with such files; - reads stdin."
        ),
    ],
    protocol: Annotated[
        Literal["official", "chunk50"],
        typer.Option(help="Sums over all logs, or the mean over chunks of fifty messages. The two are not comparable."),
    ] = "official",
    missing: Annotated[
        Literal["error", "self"],
        typer.Option(help="A message without a predicted link raises an error, or starts a conversation (self)."),
    ] = "error",
    resamples: Annotated[
        int | None, typer.Option(min=0, help="Bootstrap resamples of logs for 95 % intervals (0: no intervals). Default: 1000.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score predicted reply links and their conversations against gold ones, in percent.

    Each line of an annotation file is a link, [LOG:]PARENT CHILD -.

    Example: ramify evaluate links --gold dev/*.annotation.txt --predicted predicted.txt --json
    """
    from ramify.errors import RamifyError
    from ramify.files import STANDARD
    from ramify.metrics.conversations import match
    from ramify.readers.annotation import read_links
    from ramify.runs.disentanglement.scores import LinkScores

    if [*gold, *predicted].count(STANDARD) > 1:
        raise RamifyError("- is given twice, but standard input can be read only once. Name files in place of the others.")
    matched = match(read_links(gold), read_links(predicted), missing=missing)
    scores = LinkScores(matched, protocol) if resamples is None else LinkScores(matched, protocol, resamples=resamples)
    print(json.dumps(scores.to_json()) if as_json else "\n".join(scores.lines()))
