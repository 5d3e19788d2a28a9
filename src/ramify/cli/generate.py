"""`ramify generate`: continue a text with a language model."""

import json
from typing import Annotated

import typer

from ramify.cli.score import warn_of_full_orders
from ramify.cli.shared import Device, Json


def generate(
    run: Annotated[str, typer.Argument(help="An XLNet: a run or a saved model.")],
    prompt: Annotated[str, typer.Option("--prompt", help="The text that is continued.")] = "",
    tokens: Annotated[int, typer.Option(min=1, help="Greatest number of tokens.")] = 50,
    temperature: Annotated[float, typer.Option(help="Below 1: likelier tokens. 0: always the likeliest.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Sample from so many of the likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample from the likeliest tokens of this probability together.")] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal texts.")] = 0,
    stop: Annotated[
        list[str] | None, typer.Option(metavar="PIECE", help="A piece of the vocabulary that ends the text. May be repeated.")
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Search for the likeliest text with a beam of this width.")] = None,
    n_best: Annotated[int, typer.Option(help="With --beam: number of texts to print, best first, each behind its score.")] = 1,
    length_penalty: Annotated[
        float, typer.Option(help="With --beam: α of the score log p / ((5 + length) / 6)^α. 0: log p.")
    ] = 0.6,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Continue a text token by token, from left to right, and print the continuation.

    Example: ramify generate runs/lm --prompt "The moon" --tokens 40 --top-p 0.9 --seed 1
    """
    import ramify
    from ramify.errors import RamifyError
    from ramify.inference.permutation import PermutationPipeline

    model = ramify.load(run, device=device)
    if not isinstance(model, PermutationPipeline):
        raise RamifyError(f"{run} cannot generate text; it supports {', '.join(model.verbs)}.")
    warn_of_full_orders(model, run)
    answer = model.generate(
        prompt,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
        stop=stop or (),
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
    )
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))
    elif n_best > 1:
        for each in answer["hypotheses"]:
            print(f"{each['score']:.4f} {each['text']}")
    else:
        print(answer["text"])
