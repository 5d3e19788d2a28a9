"""`ramify score`: the likelihood of a text."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ramify.cli.shared import Device, Json

if TYPE_CHECKING:
    from ramify.inference.permutation import Order, PermutationPipeline


def score(
    run: Annotated[str, typer.Argument(help="A run or a saved model: XLNet under an order, or a masked language model.")],
    text: Annotated[str, typer.Option("--text", help="The text; - reads stdin.")],
    order: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="XLNet only: forward (default), backward, or random:N for N random orders."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random orders.")] = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Print the log-likelihood of a text in nats. Masked language models give the pseudo-log-likelihood.

    Example: ramify score runs/lm --text "The moon had not risen." --order random:16 --json
    """
    import ramify
    from ramify.errors import RamifyError, counted
    from ramify.inference.fill_mask import MaskFiller
    from ramify.inference.permutation import PermutationPipeline

    model = ramify.load(run, device=device)
    text = sys.stdin.read() if text == "-" else text
    if isinstance(model, MaskFiller):
        if order is not None:
            raise RamifyError(f"--order {order} needs an XLNet; {run} holds a masked language model. Leave --order out.")
        answer = model.score(text)
        if not answer["tokens"]:
            raise RamifyError(f"the text {text[:40]!r} has no tokens, so it has no likelihood. Pass another text.")
        said = f"pseudo-log-likelihood {answer['pseudo_log_likelihood']:.4f} nats, {counted(len(answer['tokens']), 'token')}"
        print(json.dumps(answer, ensure_ascii=False) if as_json else said)
        return
    if not isinstance(model, PermutationPipeline):
        raise RamifyError(f"{run} cannot score texts; it supports {', '.join(model.verbs)}.")
    answer = model.score(text, order=_order(order or "forward"), seed=seed)
    warn_of_full_orders(model, run)
    if answer["longer_than_row"]:
        print(
            f"note: the text has {counted(answer['tokens'], 'token')}, but {run} was trained on rows of "
            f"input.row_tokens={model.input.row_tokens}. Longer texts are off its distribution; score them in parts.",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
        return
    sizes = f"{counted(answer['tokens'], 'token')}, {counted(answer['bytes'], 'byte')}"
    print(f"log-likelihood {answer['log_likelihood']:.4f} nats, {sizes}, order {answer['order']}")
    if "orders" in answer:
        print(f"mean over orders {answer['mean']:.4f}, log of the mean likelihood {answer['log_mean_exp']:.4f}")


def _order(text: str) -> "Order":
    from ramify.errors import RamifyError

    kind, _, number = text.partition(":")
    if text == "forward":
        return "forward"
    if text == "backward":
        return "backward"
    if kind == "random" and number.isdecimal() and int(number):
        return int(number)
    raise RamifyError(f"--order {text} is not an order. Give forward, backward, or random:N with N of at least 1.")


def warn_of_full_orders(model: "PermutationPipeline", source: str) -> None:
    """Say on stderr if the model was trained to predict only the last tokens of an order, or orders of parts of rows."""
    if model.knows_full_orders:
        return
    settings, reason = f"task.k={model.task.config.k:g}", "it always saw most of a row"
    if model.task.config.k == 1:
        settings = f"input.reused_tokens={model.input.reused_tokens} of input.row_tokens={model.input.row_tokens}"
        reason = "the first part of a row never read the second"
    print(
        f"note: {source} was trained with {settings}, so {reason}. Full orders are off its distribution; ramify train xlnet-lm "
        "trains a model for them.",
        file=sys.stderr,
    )
