"""`ramify data`: build, show, count and split data sets of trees."""

import typer

app = typer.Typer(help="Build, show, count and split data sets of trees.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass
