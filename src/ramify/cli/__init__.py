"""The command line: `ramify`. Each module holds one command or a group of commands, and imports heavy packages inside them."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ramify.cli import (
    answer,
    attention,
    backprop,
    coherence,
    copyedit,
    data,
    demo,
    disentangle,
    embed,
    evaluate,
    fill_mask,
    generate,
    nearest,
    predict,
    reconstruct,
    report,
    score,
    tokenizer,
    train,
    translate,
    verbs,
)
from ramify.cli.verbs import Form
from ramify.errors import RamifyError
from ramify.inference.verbs import VERBS
from ramify.memory import keep_pages
from ramify.version import __version__


def _version(requested: bool) -> None:
    if requested:
        print(f"ramify {__version__}")
        raise typer.Exit


def ramify(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Language models for text that branches: comment trees, chat logs, nested documents.

    Two models ship with Ramify: links (who replies to whom in a chat log) and tree-mlm-small (masked words of English comments,
    given their ancestors). Their names stand for models in every command.

    Example: ramify demo --out runs/demo
    """


FORMS: dict[str, Form] = {
    "fill_mask": fill_mask.FORM,
    "score": score.FORM,
    "generate": generate.FORM,
    "translate": translate.FORM,
    "answer": answer.FORM,
    "attention": attention.FORM,
    "reconstruct": reconstruct.FORM,
    "coherence": coherence.FORM,
}
"""The form of the command of each verb. Commands of other verbs print JSON."""

COMMANDS: dict[str, Callable[..., None]] = {
    "embed": embed.embed,
    "copyedit": copyedit.copyedit,
    "nearest": nearest.nearest,
    "predict": predict.predict,
    "disentangle": disentangle.disentangle,
    "follow": disentangle.disentangle,
}
"""The commands of verbs that read and write files of their own."""


def build() -> typer.Typer:
    """The program: a command for each verb, and all others."""
    app = typer.Typer(
        name="ramify",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(ramify)
    app.add_typer(data.app, name="data")
    app.add_typer(train.app, name="train")
    app.add_typer(tokenizer.app, name="tokenizer")
    app.add_typer(evaluate.app, name="evaluate")
    for name in VERBS:
        if name not in COMMANDS:
            app.command(name.replace("_", "-"))(verbs.command(name, FORMS.get(name)))
    for function in dict.fromkeys(COMMANDS.values()):
        app.command()(function)
    app.command(context_settings={"ignore_unknown_options": True})(backprop.backprop)
    app.command()(report.report)
    app.command()(demo.demo)
    return app


app = build()


ClickError: Any = typer.BadParameter.__mro__[2]
"""The base of errors in the words of a command. Newer versions of typer have a click of their own."""


def main() -> None:
    """Run a command. An error that the user can fix is one message on stderr and exit status 2, never a traceback. Of several
    processes that torchrun started, the first one with this message prints it."""
    # SIGTERM unwinds the stack as an exception does, so that partly written files are removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if sys.argv[1:2] != ["data"]:  # builds have a memory bound, so they return freed pages
        keep_pages()
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    try:
        sys.exit(app(standalone_mode=alone))
    except ClickError as error:
        if _is_first(error.format_message()):
            error.show()
        sys.exit(error.exit_code)
    except (RamifyError, OSError) as error:
        if alone or _is_first(_message(error)):
            print(f"error: {_message(error)}", file=sys.stderr)
        sys.exit(2)
    except RuntimeError as error:
        # The other process has said why it ended, and torchrun lists the exit status of each.
        if alone or "by peer" not in str(error):
            raise
        sys.exit(1)


def _is_first(message: str) -> bool:
    """Whether no other process of a training has this message yet, as far as torchrun's store is there to tell."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    from datetime import timedelta

    from torch.distributed import TCPStore

    key = f"ramify/{os.environ.get('TORCHELASTIC_RESTART_COUNT')}/{message}"
    try:
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        return TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5)).add(key, 1) == 1
    except RuntimeError:  # torchrun is about to end
        return True


def _message(error: RamifyError | OSError) -> str:
    """The message of an error. Those of files have a remedy, and no number and quotes, which Python gives them."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}. Check its path and permissions."
    return str(error)
