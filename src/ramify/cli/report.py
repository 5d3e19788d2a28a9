"""`ramify report`: draw the report of a run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ramify.cli.progress import bar
from ramify.cli.shared import Device, check_out, tell


def report(
    run: Annotated[Path, typer.Argument(help="Folder of a run, finished or not.")],
    data: Annotated[Path | None, typer.Option("--data", help="Data set to evaluate on. Default: the run's own.")] = None,
    split: Annotated[Literal["train", "dev", "test", "all"], typer.Option(help="Split to evaluate on.")] = "dev",
    draws: Annotated[int, typer.Option(min=1, help="Number of mask draws per comment.")] = 8,
    comments: Annotated[int, typer.Option(min=0, help="Evaluate only the first trees, up to this many comments (0: all).")] = 0,
    evaluate: Annotated[
        bool,
        typer.Option("--evaluate/--no-evaluate", help="Evaluate the model and fill masks, or draw only the training curves."),
    ] = True,
    out: Annotated[Path | None, typer.Option("--out", help="HTML page to write. Default: report.html in the run.")] = None,
    device: Device = "auto",
) -> None:
    """Write the report of a run: curves, scores, examples, data and settings.

    Example: ramify report runs/reddit --data data/reddit --split test --out test.html
    """
    from ramify.report import write_report

    if out is not None:
        check_out(out)
    with bar("evaluating", None) as advance:
        page = write_report(
            run, data, out=out, split=split, draws=draws, comments=comments, evaluate=evaluate, device=device, progress=advance
        )
    tell(f"page: {page}")
