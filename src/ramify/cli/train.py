"""`ramify train RECIPE`: one subcommand per recipe, whose options are the recipe's parameters."""

import inspect
import shlex
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ramify.cli.progress import progress_display
from ramify.cli.shared import settings_of
from ramify.errors import RamifyError, counted, printable
from ramify.files import check_folder
from ramify.recipes import FITS, RECIPES
from ramify.recipes.base import Fit, Positional, Recipe, Training

if TYPE_CHECKING:
    from ramify.runs import Run
    from ramify.runs.base import Prepared
    from ramify.training.checkpoints import Progress

app = typer.Typer(
    help="Train a model by a recipe.\n\nExample: ramify train tree-mlm --data data/reddit --out runs/reddit",
    no_args_is_help=True,
)

SETTINGS = "settings"
"""The parameter through which a recipe receives `--set`."""

Out = Annotated[Path, typer.Option("--out", help="Folder of the run, with the trained model and its report.")]
FittedOut = Annotated[Path, typer.Option("--out", help="Folder for the extended model.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the run, e.g. model.dim=128; repeatable."),
]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=2,
        help="Train so many seeds, each in a folder seed-K of --out, which then holds the best one on dev; seeds.json has the "
        "mean and the spread.",
    ),
]
Examples = Annotated[
    str | None,
    typer.Option(
        "--examples",
        metavar="N,N,…",
        help="Train on so many labelled examples each, in folders examples-N of --out, which then holds the best one on dev; "
        "report.html draws the learning curve.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the newest checkpoint.")]
Pack = Annotated[
    Path | None, typer.Option("--pack", help="Also write the model to this folder, in half precision, with a model card.")
]


def command(recipe: Recipe) -> Callable[..., None]:
    """A function for typer, with the recipe's parameters and those common to recipes of its kind."""
    taken = inspect.signature(recipe.function).parameters
    packing = _packing(recipe)
    options = {name: _option(parameter) for name, parameter in taken.items() if name != SETTINGS}
    options |= {name: _option(_optional(parameter)) for name, parameter in packing.items()}
    trains = isinstance(recipe, Training)
    shared: dict[str, tuple[Any, Any]] = {"out": (Out if trains else FittedOut, inspect.Parameter.empty)}
    if recipe.pack is not None:
        shared["pack"] = (Pack, None)
    if trains or SETTINGS in taken:
        shared[SETTINGS] = (Settings if trains else _described(taken[SETTINGS]), None)
    if trains:
        shared["resume"] = (Resume, False)
    if trains and recipe.seeds:
        shared["seeds"] = (Seeds, None)
        shared["examples"] = (Examples, None)
    parameters = {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
        for name, (kind, default) in (options | shared).items()
    }

    def run(**given: Any) -> None:
        arguments = {name: given[name] for name in taken if name != SETTINGS}
        extra = {name: given[name] for name in packing}
        _carry_out(recipe, arguments, extra, given)

    run.__doc__ = recipe.function.__doc__
    # Typer reads both.
    run.__signature__ = inspect.Signature(list(parameters.values()))  # pyright: ignore[reportFunctionMemberAccess]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _described(parameter: inspect.Parameter) -> Any:
    """`--set` with the help text of the recipe's own parameter."""
    (text,) = parameter.annotation.__metadata__
    return Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=text)]


def _packing(recipe: Recipe) -> dict[str, inspect.Parameter]:
    """The parameters of the recipe's `pack` other than the run, the folder, and those that the recipe itself has."""
    if recipe.pack is None:
        return {}
    known = ("run", "out", *inspect.signature(recipe.function).parameters)
    return {name: parameter for name, parameter in inspect.signature(recipe.pack).parameters.items() if name not in known}


def _optional(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with a default: packing needs its value only if --pack is given."""
    if parameter.default is not inspect.Parameter.empty:
        return parameter
    kind, *described = typing.get_args(parameter.annotation)
    return parameter.replace(annotation=Annotated[kind | None, *described], default=None)


def _option(parameter: inspect.Parameter) -> tuple[Any, Any]:
    """(type for typer, default) of a recipe's parameter."""
    kind, default = parameter.annotation, parameter.default
    described = kind.__metadata__[0] if typing.get_origin(kind) is Annotated else ""
    kind = typing.get_args(kind)[0] if described else kind
    if typing.get_origin(kind) is Sequence:
        kind = list[str]
    if isinstance(described, Positional):
        return Annotated[kind, typer.Argument(help=described.help)], default
    flag = "--" + parameter.name.replace("_", "-")
    # A named flag keeps typer from adding --no-….
    return Annotated[kind, typer.Option(flag, help=described)], default


for _name, _recipe in (RECIPES | FITS).items():
    app.command(_name)(command(_recipe))


def _carry_out(recipe: Recipe, arguments: dict[str, Any], packing: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Train or fit, then pack if --pack is given."""
    from ramify import hub
    from ramify.runs import check_fresh

    out, pack = given["out"], given.get("pack")
    for folder in (out, pack):
        if folder is not None:
            check_folder(folder)
    _check_packing(recipe, pack, packing)
    if pack is not None:
        _check_pack(pack, out)
    if isinstance(recipe, Fit):
        check_fresh(out)
        if SETTINGS in given:
            arguments[SETTINGS] = settings_of(given[SETTINGS])
        with progress_display():
            fitted = recipe(**arguments)
        hub.save(fitted, out)
        print(f"next: ramify {recipe.next_command} --model {shlex.quote(str(out))}", file=sys.stderr)
        done = True
    else:
        _check_lengths(recipe, arguments, settings_of(given[SETTINGS]))
        done = train(recipe(**arguments), out, given[SETTINGS], given["resume"], given.get("seeds"), given.get("examples"))
    if done and pack is not None and recipe.pack is not None:
        common = {name: arguments[name] for name in inspect.signature(recipe.pack).parameters if name in arguments}
        recipe.pack(out, out=pack, **common, **packing)


def _check_lengths(recipe: Recipe, arguments: Mapping[str, Any], settings: Mapping[str, str]) -> None:
    """Raise if an option gives a length of training in updates and a setting one in epochs, or the other way round."""
    parameters = inspect.signature(recipe.function).parameters
    for option, other in (("steps", "epochs"), ("epochs", "steps")):
        if option not in arguments or (value := arguments[option]) == parameters[option].default:
            continue
        for key, text in settings.items():
            if key.startswith(("train.", "stages.")) and key.endswith(f".{other}") and text not in ("0", "null"):
                raise RamifyError(
                    f"--{option} {value} and --set {key}={text} both define the length of training. Leave out one of the two."
                )


def _check_packing(recipe: Recipe, pack: Path | None, packing: Mapping[str, Any]) -> None:
    """Raise if an option of packing is given without --pack, or --pack without an option that it needs."""
    for name, parameter in _packing(recipe).items():
        needed = parameter.default is inspect.Parameter.empty
        given = packing[name] != (None if needed else parameter.default)
        if given and pack is None:
            raise RamifyError(f"--{name} needs --pack. Name a folder for the packed model with --pack, or leave --{name} out.")
        if needed and pack is not None and not given:
            raise RamifyError(f"--pack {pack} needs --{name}: {typing.get_args(parameter.annotation)[1]}")


def _check_pack(pack: Path, out: Path) -> None:
    """Raise before training if packing would overwrite a model."""
    from ramify.runs import check_fresh

    if pack.exists() and not pack.is_dir():
        raise RamifyError(f"--pack {pack} is a file. Name a folder for the packed model.")
    if pack.resolve() == out.resolve():
        raise RamifyError(f"--pack {pack} is the same folder as --out. Choose another folder for the packed model.")
    check_fresh(pack, "--pack")


def train(
    run: "Run", out: Path, settings: list[str] | None, resume: bool, seeds: int | None = None, examples: str | None = None
) -> bool:
    """Apply `--set`, execute the run with a progress display, and print the next command. Returns whether this process finished
    the run: of several processes, only the first does."""
    import os

    from ramify.report import write_report
    from ramify.runs import execute
    from ramify.runs.seeds import CURVE, SEEDS, execute_curve, execute_seeds
    from ramify.training.metrics_log import read_metrics

    run = run.changed(settings_of(settings))
    main = int(os.environ.get("RANK", "0")) == 0
    if main:
        _warn(run.notes())
    if seeds is None and (out / SEEDS).exists():
        raise RamifyError(f"--out {out} holds several seeds of a run. Add --seeds, or choose another --out.")
    if examples is None and (out / CURVE).exists():
        raise RamifyError(f"--out {out} holds a run on several numbers of examples. Add --examples, or choose another --out.")
    if seeds is not None and examples is not None:
        raise RamifyError(f"--seeds {seeds} and --examples {examples} are both given. Leave out one of the two.")
    several = seeds is not None or examples is not None
    if not several:
        with progress_display(enabled=main) as report:
            prepared, progress = execute(run, out, resume=resume, begin=_say_what_is_read, report=report)
        measured = _measured(out, prepared, progress) if main and (out / "config.json").exists() else ""
        stopped = f"stopped at step {progress.step}"
    else:
        display = partial(progress_display, enabled=main)
        options: Any = {"resume": resume, "begin": _say_what_is_read, "display": display}
        numbers = [] if examples is None else _numbers(examples)
        if seeds is not None:
            trained = execute_seeds(run, out, seeds, **options)
        else:
            trained = execute_curve(run, out, numbers, **options)
        prepared, measured = (None, "") if trained is None else (trained[0], trained[1].line())
        done = len([*out.glob("*/config.json")])
        stopped = f"stopped after {done} of {counted(seeds or len(set(numbers)), 'run')}"
    if not main:
        return False
    if prepared is None or not (out / "config.json").exists():
        if not several:
            write_report(out, evaluate=False)
        print(f"{stopped}; continue with the same command and --resume", file=sys.stderr)
        raise typer.Exit(130)
    _warn(prepared.warnings(read_metrics(out)))
    print(f"{out}: {measured}", file=sys.stderr)
    print(f"report: {write_report(out, device='auto')}", file=sys.stderr)
    print(f"next: ramify {run.next_command(out, prepared.store)}", file=sys.stderr)
    return True


def _numbers(text: str) -> list[int]:
    """The numbers of `--examples`."""
    words = [word.strip() for word in text.split(",")]
    if wrong := [word for word in words if not word.isdecimal() or not int(word)]:
        raise RamifyError(f"--examples {text} holds {wrong[0]!r}, which is no number of examples. Write, say, 100,300,1000.")
    return [int(word) for word in words]


def _measured(out: Path, prepared: "Prepared", progress: "Progress") -> str:
    """The length of a finished run, and its dev scores."""
    from ramify.runs.base import NO_DEV_SCORE
    from ramify.training.metrics_log import AVERAGED, read_average

    if prepared.fitted is not None:
        return prepared.fitted.line()
    measured = NO_DEV_SCORE
    if progress.best is not None:
        measured = prepared.best_score(progress)
    mean = read_average(out)
    if mean is not None:
        scores = [f", {metric.label} {mean[metric.name]:.4f}" for metric in prepared.task.metrics if metric.name in mean]
        measured += f"; saved: the mean of {counted(len(mean[AVERAGED]), 'checkpoint')}{''.join(scores)}"
    return f"{progress.step} steps, {measured}"


def _say_what_is_read(prepared: "Prepared") -> None:
    for text in (f"data: {prepared.reads()}", *(f"note: {note}" for note in prepared.notes())):
        print(printable(text), file=sys.stderr, flush=True)


def _warn(texts: Sequence[str]) -> None:
    for text in texts:
        print(f"warning: {text}", file=sys.stderr)
