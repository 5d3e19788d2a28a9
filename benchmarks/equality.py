"""Show that a change leaves every result as it was: record all commands and recipes on two commits, and compare.

    git worktree add ../before COMMIT
    python benchmarks/equality.py record --out /tmp/before --source ../before/src
    python benchmarks/equality.py record --out /tmp/after
    python benchmarks/equality.py compare /tmp/before /tmp/after

`record` carries out the `CASES`, or those of `--only` with the cases that they need, on one thread and with fixed seeds, in
about five minutes. Each case is a folder of OUT with its exit status, stdout, stderr, and all files that it writes. Inputs are
the sample that ships with the source, and small files that this script makes. `compare` lists every difference beside times and
commits: numbers with their greatest difference, other values as short diffs. It exits with status 1 if a difference is neither
within `--tolerance` nor `CHANGED_ON_PURPOSE`. Record on one machine, because kernels differ between processors.
"""

import argparse
import csv
import difflib
import importlib
import json
import os
import pkgutil
import random
import re
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]


class Change(NamedTuple):
    """A difference that is wanted."""

    reason: str
    limit: float = float("inf")
    """Numbers that differ by more are reported nevertheless."""


METERS = Change("training shows meters of learning")
OPTIONS = Change("settings with defaults that act as before")
PUBLISHED = Change("the command asks for the setting that was the default")
BLANK = Change("a text that a model wrote and that is blank is said")
DRAWN = Change("pages and plots are named by --out, and printed by one rule")
PIECES = Change("the shipped tree model reads texts of 256 pieces")

CHANGED_ON_PURPOSE: dict[str, Change] = {
    **{
        f"*/metrics.jsonl:*.{name}": METERS
        for name in ("value_*", "constant_*", "gradient_*", "rank_*", "spread_*", "auroc_*", "stage_updates")
    },
    **{f"{command}/*stderr*": METERS for command in ("train", "tokenizer", "demo")},
    **{f"{command}/*report.html*": METERS for command in ("train", "report", "demo")},
    "attention/*.html*": Change("the pages' common style has colours for constants"),
    "coherence/page.html*": Change("the pages' common style has colours for constants"),
    "disentangle/kinds/html*": Change("the pages' common style has colours for constants"),
    "embed/*.parquet:schema ramify": Change(
        "files of vectors name their model, whose hash covers new settings, and its context"
    ),
    **{
        f"*.json:{place}{name}": OPTIONS
        for place in ("task.", "run.task.", "model.", "run.model.", "view.", "run.view.", "run.dev.", "run.stages.*.")
        for name in (
            *("vector_loss_schedule", "mask_rate_schedule", "mask_rate", "max_predictions", "units", "units_factor"),
            *("undecayed", "token_skip", "compressor_skip", "decompressor_skip", "children_norm", "mark_scale"),
            *("position_scale", "decoder_position_scale", "sibling_product", "frozen", "above", "scores", "head"),
            *("classes", "foreign", "sibling_path", "without", "names", "neighbours", "head_dim"),
        )
    },
    **{f"*.json:{place}begin": OPTIONS for place in ("input.", "run.input.")},
    "*/tokenizer.json:added_tokens.*.lstrip": Change("masks and sentinels in a text take the space before them along"),
    "*/README.md:*": OPTIONS,
    "*/run.json:environment.command": PUBLISHED,
    "*/run.json:parts*": Change("facts of documents name the levels of each stage"),
    "train/shipped/*": PIECES,
    "score/mlm/stdout*": Change("another tree model ships"),
    "fill-mask/text/stdout*": Change("another tree model ships"),
    "evaluate/agent/stdout*": Change("AGENT has more measures, and more nodes per measure"),
    "help/stdout*": Change("`nearest` finds comments, too"),
    "score/refused/stderr*": Change("`nearest` finds comments, too"),
    "demo/stdout*": Change("another tree model ships"),
    "*/config.json:format": Change("the memory of names and the CNN compute other values from the same weights"),
    "*/run.json:format": Change("the memory of names and the CNN compute other values from the same weights"),
    **{
        f"{command}/agent-gan/*": Change("discriminators read windows beyond the ends of a row")
        for command in ("train", "evaluate", "generate", "report")
    },
    "*/checkpoints/config.json*": Change("unfinished runs can be loaded"),
    "train/*/metrics.jsonl:*.most_frequent": Change("the share of the most frequent prediction is measured"),
    "evaluate/labels/stdout*": Change("the most frequent prediction is named"),
    **{f"{command}/*": BLANK for command in ("reconstruct", "translate")},
    "data/books/set/vectors-known-*": DRAWN,
    **{f"{case}/*": DRAWN for case in ("copyedit", "generate/agent-gan", "backprop", "stats/words")},
    **{f"{case}/*stderr*": DRAWN for case in ("attention", "coherence", "report")},
    "coherence/top.html*": DRAWN,
}
"""Pattern of CASE/FILE:KEY -> the change and its reason."""

VOLATILE_KEYS = {
    *("seconds", "wall_seconds", "cpu_seconds", "comments_per_cpu_second"),
    *("commit", "hardware", "ramify", "ramify_version", "sha256", "best_checksum"),
}
"""Keys of JSON objects whose values differ from run to run, or are hashes of files that are compared themselves."""

VOLATILE_FILES = ("*/tensorboard/*", "*/set/tokens-*")
"""The numbers of metrics.jsonl with times, and caches in a data set, which depend on the cases that were carried out."""

SECONDS = r"(?:\d+ h \d+ min|\d+ min(?: \d+ s)?|\d+ s)"
VOLATILE = {
    r"[\d,]+ tokens/s": "N tokens/s",
    r"view\.rows=": "view.streams=",
    rf"(?:  |, ){SECONDS}(?: of this stage)? left": "",
    rf"{SECONDS}, [\d,]+ tokens of [\w ]+ per second": "N tokens per second",
    r"\S*/src/ramify/sample/": "",
    r"The demo took \d+ seconds": "The demo took N seconds",
    r"Written by Ramify \S+ on .* UTC": "Written by Ramify",
    r"<dt>(?:commit|versions|resumed)</dt><dd>[^<]*": "",
    # These are the settings in run.json, which is compared key by key.
    r"(?s)<summary>All settings</summary>.*?</details>": "",
}
"""Regular expressions of texts that differ from run to run -> their replacement."""

# --- cases --------------------------------------------------------------------------------------------------------------------


def settings(**values: Any) -> str:
    """`--set` for each value. An underscore pair stands for the dot."""
    return " ".join(f"--set {name.replace('__', '.')}={value}" for name, value in values.items())


BRIEF = settings(train__log_every=1, train__evaluate_every=2, train__checkpoint_every=2)
WORDS = "--tokenizer tokenizer/wordpiece/tokenizer.json"
SIZES = {"model__dim": 16, "model__num_heads": 2, "model__ffn_dim": 32}
TREES = f"{WORDS} {BRIEF} {settings(**SIZES, model__encoder_layers=1, model__decoder_layers=2, train__budget=300)}"
BERTS = (
    f"{WORDS} {BRIEF} {settings(**SIZES, model__num_layers=2, model__position='learned', train__budget=300)} "
    f"{settings(task__mask_rate=0.15, task__max_predictions=20)}"
)
STREAMS = (
    f"--tokenizer tokenizer/capitals/tokenizer.json {BRIEF} "
    f"{settings(**SIZES, model__num_layers=2, model__memory=10, view__streams=2, dev__rows=8)} "
    # Fast learning, so that different prompts are continued by different tokens.
    f"{settings(input__row_tokens=24, input__reused_tokens=12, train__lr=0.03)}"
)
AGENTS = (
    f"--tokenizer tokenizer/capitals/tokenizer.json {BRIEF} "
    f"{settings(model__num_heads=2, task__queue=16, train__budget=128, train__target_tokens=0)}"
)
GENERATORS = (
    f"--tokenizer tokenizer/capitals/tokenizer.json {BRIEF} "
    f"{settings(model__dim=16, train__budget=300, train__lr=0.03, input__long='truncate')}"
)
READS = f"{settings(**SIZES, model__num_layers=1, train__log_every=1, tokenizer__vocab_size=120)}"
LABELS = f"{READS} {settings(input__max_tokens=24)}"
LEVELS = settings(model__dims="[8,12,16,20,20]", model__max_children="[12,6,6,6]", model__encoder_cells="[1,1,1,1]")
LINKS = f"{BRIEF} {settings(train__budget=16, tokenizer__min_count=2)}"
# Few dimensions, because those beyond the rank of the words' co-occurrences differ from run to run.
VECTORS = settings(model__dim=6)
NARROW = f"{VECTORS} {settings(model__hidden=24)}"
PAIRS = f"--window 6 {LINKS}"

CASES: dict[str, str] = {
    # --- data
    "data/replies": "data build inputs/discussions.jsonl --format jsonl --split 0.5,0.25,0.25 --out @/set",
    "data/guessed": "data build inputs/discussions.jsonl --out @/set --min-nodes 4 --max-nodes 40 --anonymise --salt s",
    "data/rooms": "data build inputs/rooms --format irc --split 0.5,0.25,0.25 --policy empty=keep --out @/set",
    "data/chat-log": "data build inputs/talk.txt --format chat-log --out @/set",
    "data/pattern": "data build inputs/talk.txt --pattern '{date} {time} | {author}: {text}' --out @/set",
    "data/books": "data build inputs/novels --format book --split 0.5,0.25,0.25 --out @/set",
    "data/parts": "data build inputs/novels --format book --split-by none --levels chapter,paragraph --out @/set",
    "data/paragraphs": "data build inputs/novels/mill.md --format text --unit paragraph --split-by none --out @/set",
    "data/lines": "data build inputs/notes.txt --format text --unit line --clean space --out @/set",
    "data/table": "data build inputs/posts.csv --format table --text body --column tree=thread --column id=number "
    "--column parent=answers --column author=thread --out @/set",
    "data/labelled": "data build inputs/reviews.tsv --format labelled --text sentence --label stars --out @/set",
    "data/opinions": "data build inputs/opinions.csv --format labelled --out @/set",
    "data/names": "data build inputs/names.conll --format conll --split 0.5,0.25,0.25 --out @/set",
    "data/questions": "data build inputs/questions.json --format labelled --split 0.5,0.25,0.25 --out @/set",
    "data/copa": "data build inputs/copa --format labelled --out @/set",
    "data/pushshift": "data build inputs/dump.jsonl --format pushshift --drop-bots --policy deleted=keep --out @/set",
    "data/parallel": "data build inputs/train.en inputs/train.de inputs/val.en inputs/val.de --format parallel --out @/set",
    "data/discord": "data build inputs/garden.json --format discord --out @/set",
    "data/refused": "data build inputs/novels --format discord --out @/set",
    "show/tree": "data show data/replies/set --tree soft-crust --max-nodes 12",
    "show/any": "data show data/books/set",
    "stats/words": "data stats data/replies/set\ndata stats data/books/set --json --out @/shape.png",
    "stats/tokens": f"data stats data/replies/set {WORDS} --max-tokens 16 --json",
    "split/strict": "data split data/replies/set --max-tree-size 6\ndata split data/replies/set --max-tree-size 6 --json",
    "split/soft": "data split inputs/discussions.jsonl --max-tree-size 5 --bound soft --weighting share --no-pack --json",
    "export/files": "data export data/replies/set --out @/trees.jsonl\n"
    "data export data/replies/set data/rooms/set --out @/nodes.csv\n"
    "data export data/books/set --out @/nodes.parquet\ndata export data/labelled/set --out -",
    "export/folders": "data export data/replies/set --format convokit --out @/corpus\n"
    "data export data/labelled/set --format datasets --out @/datasets\ndata build @/corpus --format convokit --out @/set",
    # --- tokenizers. A unigram tokenizer differs from training to training, so none is recorded.
    "tokenizer/wordpiece": "tokenizer train data/replies/set --vocab-size 500 --out @/tokenizer.json",
    "tokenizer/capitals": "tokenizer train data/replies/set --vocab-size 500 --no-lowercase --out @/tokenizer.json",
    "tokenizer/bpe": "tokenizer train data/replies/set --kind bpe --vocab-size 400 --out @/tokenizer.json",
    # --- recipes
    "train/tree-mlm": f"train tree-mlm --data data/replies/set --out @/run --steps 4 {TREES}",
    "train/paper": f"train tree-mlm --data data/replies/set --out @/run --paper --steps 2 {TREES}",
    "train/two-phase": f"train tree-mlm --data data/replies/set --out @/run --steps 2 {TREES} {settings(view__regime='tree')}",
    "train/null": "train tree-mlm --data data/replies/set --out @/run --paper --steps 2 "
    f"{TREES} {settings(input__context='null')}",
    "train/second-run": "train tree-mlm --data data/replies/set --out @/run --steps 2 --init train/tree-mlm/run "
    f"{BRIEF} {settings(train__budget=300, train__optimizer='sgd', train__schedule='cosine')}",
    "train/resumed": "copy train/tree-mlm/run @/run\n"
    f"train tree-mlm --data data/replies/set --out @/run --steps 4 --resume {TREES}",
    "train/shipped": "train shipped --data data/replies/set --out @/run --pack @/packed "
    f"{BRIEF} {settings(**SIZES, model__encoder_layers=1, model__decoder_layers=1, tokenizer__vocab_size=400)} "
    f"{settings(train__steps=2, train__target_tokens=0, train__budget=300)}",
    "train/bert": f"train bert --data data/books/set --out @/run --steps 4 {BERTS}",
    "train/comments": "train bert --rows comments --concatenate 80 --max-tokens 64 --data data/replies/set --out @/run "
    f"--steps 2 {BERTS}",
    "train/shared": f"train bert --data data/paragraphs/set --out @/run --steps 2 {BERTS} "
    f"{settings(model__shared_layers='true', model__embedding_dim=8)}",
    "train/roberta": f"train roberta --data data/replies/set --out @/run --steps 3 {BERTS}",
    "train/documents": "train roberta --rows documents --data data/books/set --out @/run --steps 2 "
    f"--init train/roberta/run {BRIEF} {settings(train__budget=300, task__mask_rate=0.15)}",
    "train/xlnet": f"train xlnet --data data/books/set --out @/run --steps 4 {STREAMS}",
    "train/next-segment": f"train xlnet --data data/books/set --out @/run --steps 2 {STREAMS} {settings(task__next_segment=1)}",
    "train/denoising": f"train xlnet --objective denoising --data data/books/set --out @/run --steps 3 {STREAMS}",
    "train/backward": f"train xlnet --order backward --data data/books/set --out @/run --steps 2 {STREAMS}",
    "train/xlnet-lm": f"train xlnet-lm --data data/books/set --out @/run --steps 3 {STREAMS}",
    "train/transformer": "train transformer --data data/parallel/set --out @/run --steps 4 "
    f"{GENERATORS} {settings(model__num_heads=2, model__ffn_dim=32, model__encoder_layers=1, model__decoder_layers=1)}",
    "train/seq2seq": f"train seq2seq --data data/replies/set --out @/run --steps 3 {GENERATORS} {settings(model__hidden=16)}",
    "train/gpt": "train gpt --data data/books/set --out @/run --steps 4 "
    f"{GENERATORS} {settings(model__num_heads=2, model__ffn_dim=32, model__decoder_layers=1)}",
    "train/t5": "train t5 --data data/books/set --out @/run --steps 3 "
    f"{BRIEF} {settings(model__dim=16, model__num_heads=2, model__ffn_dim=32, model__encoder_layers=1)} "
    f"{settings(model__decoder_layers=1, train__budget=300, tokenizer__kind='bpe', tokenizer__vocab_size=400)}",
    "train/elmo": "train elmo --data data/books/set --out @/run --steps 3 "
    f"{BRIEF} {settings(model__dim=16, model__hidden=24, tokenizer__vocab_size=60, view__streams=2, dev__rows=8)}",
    "train/classify": f"train classify --data data/opinions/set --model bert --seeds 2 --epochs 2 --out @/run {LABELS}",
    "train/features": "train classify --data data/opinions/set --init train/bert/run --mode features --epochs 2 --out @/run "
    f"{settings(train__log_every=1, input__max_tokens=24)}",
    "train/majority": "train classify --data data/opinions/set --model majority --out @/run",
    "train/tag": f"train tag --data data/names/set --model bert --decoder crf --epochs 2 --out @/run {LABELS}",
    "train/answer": f"train answer --data data/questions/set --model bert --max-tokens 24 --epochs 2 --out @/run {READS}",
    "train/choose": f"train choose --data data/copa/set --model bert --epochs 2 --out @/run {LABELS}",
    "train/agent": f"train agent --joint --data data/books/set --out @/run --steps 3 {AGENTS} {LEVELS}",
    "train/agent-sentence": f"train agent-sentence --data data/books/set --out @/run --steps 2 {AGENTS} "
    f"{settings(model__dims='[8,12]', model__max_children='[12]', model__encoder_cells='[1]')}",
    "train/agent-gan": "train agent-gan --data data/books/set --init train/agent/run --levels sentence,paragraph --out @/run "
    f"--steps 2 {settings(task__maps=4, task__vectors=8, train__budget=8, train__log_every=1, dev__vectors=8, dev__texts=2)}",
    "train/feature-model": f"train feature-model --data data/rooms/set --out @/run --steps 4 {LINKS} {NARROW}",
    "train/links": f"train links --data data/rooms/set --out @/run --pack @/packed --steps 3 {LINKS} {NARROW}",
    "train/mht": "train mht --data data/rooms/set --out @/run --init train/bert/run --features head --steps 2 --fine-steps 2 "
    f"{PAIRS} {settings(model__dim=16, model__ffn_dim=32)}",
    "train/mht-trees": "train mht --data data/replies/set --out @/run --init train/tree-mlm/run --steps 2 --fine-steps 1 "
    f"--window 6 {BRIEF} {settings(train__budget=16, model__dim=16, model__ffn_dim=32)}",
    "train/decatt": f"train decatt --data data/rooms/set --out @/run --features head --steps 2 {PAIRS} {VECTORS}",
    "train/esim": f"train esim --data data/rooms/set --out @/run --steps 2 {PAIRS} {VECTORS} {settings(model__hidden=16)}",
    "train/bert-pair": f"train bert-pair --data data/rooms/set --out @/run --init python/export-bert/hf --steps 2 {PAIRS}",
    "train/candidate-pruner": "train candidate-pruner train/links/run --data data/rooms/set --num-candidates 4 --out @/model",
    "train/reranker": "train reranker train/links/run --unseen train/links/run=data/rooms/set --lookahead --hidden 8 "
    "--set decoding.threshold=0.36 --data data/rooms/set --pack @/packed --shipped --out @/model",
    "demo": "demo --out @/demo --steps 4 --draws 1",
    # --- evaluation
    "evaluate/tree": "evaluate train/tree-mlm/run --data data/replies/set --save @/sums.npz --json\n"
    "evaluate train/tree-mlm/run --data data/replies/set --cache --draws 2 --mask-rate 0.2 --split dev",
    "evaluate/contexts": "\n".join(
        f"evaluate train/tree-mlm/run --data data/replies/set --context {context} --draws 1 --comments 90 --json"
        for context in ("tree", "parent", "root", "none", "mismatched", "sibling-branch")
    ),
    "evaluate/null": "evaluate train/null/run --data data/replies/set --draws 1 --json\n"
    "embed train/null/run --data data/replies/set --out @/v.npy\n"
    "attention train/null/run --data inputs/masked.jsonl --node 2 --json",
    "evaluate/against": "evaluate train/tree-mlm/run --data data/replies/set --against train/paper/run --draws 2\n"
    "evaluate train/tree-mlm/run --data data/replies/set --against train/comments/run --draws 1 --comments 60 --json",
    "evaluate/bf16": "evaluate train/tree-mlm/run --data data/replies/set --draws 1 --precision bf16 --json",
    "evaluate/rows": "evaluate train/bert/run --data data/books/set --draws 2 --mask-rate 0.3 --json\n"
    "evaluate train/roberta/run --data data/replies/set",
    "evaluate/xlnet": "evaluate train/xlnet/run --data data/books/set --rows 12 --draws 2 --json\n"
    "evaluate train/xlnet/run --data data/books/set --rows 8 --memory 0",
    "evaluate/denoising": "evaluate train/denoising/run --data data/books/set --split dev --json",
    "evaluate/backward": "evaluate train/backward/run --data data/books/set --json",
    "evaluate/xlnet-lm": "evaluate train/xlnet-lm/run --data data/books/set --json",
    "evaluate/elmo": "evaluate train/elmo/run --data data/books/set --rows 8 --json\n"
    "embed train/elmo/run --data data/replies/set --out @/v.npy",
    "evaluate/gpt": "evaluate train/gpt/run --data data/books/set --split all --json",
    "evaluate/labels": "\n".join(
        f"evaluate train/{name}/run --data data/{data}/set --split dev --json"
        for name, data in (
            *((name, "opinions") for name in ("classify", "features", "majority")),
            ("tag", "names"),
            ("answer", "questions"),
            ("choose", "copa"),
        )
    ),
    "predict": "predict train/classify/run --text 'a fine book' --json\n"
    "predict train/classify/run inputs/opinions.csv --out @/labelled.csv\n"
    "predict train/tag/run --text 'Ann lives in Bern' --json",
    "answer": "answer train/answer/run --question 'Where is the mill?' --passage inputs/notes.txt --json",
    "evaluate/agent": "evaluate train/agent/run --data data/books/set --rows 60 --json\n"
    "evaluate train/agent-sentence/run --data data/books/set --split all --rows 40",
    "evaluate/agent-gan": "evaluate train/agent-gan/run --data data/books/set --rows 20 --json",
    "evaluate/links": "evaluate train/feature-model/run --data data/rooms/set --no-starts --json\n"
    "evaluate links --data data/rooms/set --split dev --protocol chunk50 --set decoding.threshold=0\n"
    "evaluate train/reranker/model --data data/rooms/set --json",
    "evaluate/pairs": "\n".join(
        f"evaluate train/{name}/run --data data/rooms/set --json"
        for name in ("decatt", "esim", "bert-pair", "candidate-pruner")
    ).replace("candidate-pruner/run", "candidate-pruner/model"),
    "evaluate/mht": "evaluate train/mht/run --data data/rooms/set --history predicted --beam 2 --json\n"
    "evaluate train/mht/run --data data/rooms/set --history gold",
    "evaluate/mht-trees": "evaluate train/mht-trees/run --data data/replies/set --json\n"
    "evaluate train/mht-trees/run --data data/replies/set --history predicted",
    "evaluate/annotations": "disentangle inputs/rooms --format irc --to annotation --out @/links.txt\n"
    "evaluate links --gold inputs/rooms --predicted @/links.txt --json\n"
    "evaluate links --gold inputs/rooms --predicted @/links.txt --protocol chunk50 --missing self --resamples 0",
    "evaluate/refused": "evaluate train/bert/run --data data/books/set --memory 4",
    "report/tree": "copy train/tree-mlm/run @/run\nreport @/run --data data/replies/set --split test --draws 1 --comments 60",
    "report/curves": "copy train/bert/run @/run\nreport @/run --no-evaluate",
    "report/agent": "copy train/agent/run @/run\nreport @/run",
    # --- verbs
    "embed/tree-mlm": "embed train/tree-mlm/run --data data/replies/set --out @/v.parquet --with split,parent,author,text\n"
    "embed train/tree-mlm/run --data inputs/discussions.jsonl --out @/v.npy --context none",
    "embed/paper": "embed train/paper/run --data data/replies/set --out @/v.npy --context tree --precision bf16",
    "embed/bert": "embed train/bert/run --data data/replies/set --out @/v.parquet\n"
    "embed python/export-bert/hf --data data/books/set --out @/hf.npy",
    "embed/roberta": "embed train/roberta/run --data data/replies/set --out @/v.npy\n"
    "embed train/comments/run --data data/replies/set --out @/comments.npy",
    "embed/xlnet": "embed train/xlnet/run --data data/replies/set --out @/v.npy\n"
    "embed train/denoising/run --data data/books/set --out @/denoising.parquet --with text",
    "embed/agent": "\n".join(
        f"embed train/agent/run --data data/books/set --level {level} --out @/{level}.{ending}"
        for level, ending in (("sentence", "npy"), ("paragraph", "parquet"), ("chapter", "parquet"), ("document", "npy"))
    ),
    "embed/refused": "embed train/agent/run --data data/books/set --out @/v.npy",
    "fill-mask/text": "fill-mask tree-mlm-small --text 'the man [MASK] to the [MASK]' --joint --json\n"
    "fill-mask train/bert/run --text 'the mill [MASK] slow' --top-k 3\n"
    "fill-mask train/bert/run --text 'the [MASK] was slow' --candidates mill,river,'old miller' --json\n"
    "fill-mask train/roberta/run --text 'Why does [MASK] go soft?' --json",
    "fill-mask/node": "fill-mask train/tree-mlm/run --data inputs/masked.jsonl --node 2 --joint --json\n"
    "fill-mask tree-mlm-small --data inputs/masked.jsonl --node 2 --context none --candidates bread,oven",
    "fill-mask/xlnet": "fill-mask train/xlnet/run --text 'The mill [MASK] and [MASK] slow.' --joint --json\n"
    "fill-mask train/denoising/run --text 'The [MASK] was slow.' --candidates mill,river",
    "score/mlm": "score tree-mlm-small --text 'The tea is too hot.' --json\nscore train/bert/run --text 'The mill was slow.'",
    "score/xlnet": "\n".join(
        f"score train/xlnet/run --text 'The mill was slow, and nobody knew.' --json --order {order}"
        for order in ("forward", "backward", "random:4 --seed 3")
    ),
    "score/xlnet-lm": "score train/xlnet-lm/run --text 'The mill was slow.'\n"
    "score train/xlnet-lm/run --text 'The mill was slow.' --order random:3 --json",
    "score/unknown": "score train/xlnet/run --text 'The ☃ was slow.' --json\n"
    "score train/bert/run --text 'The ☃ was slow.' --json\n"
    "generate train/xlnet/run --prompt '☃' --tokens 3 --temperature 0 --json",
    "score/refused": "score train/denoising/run --text 'The mill.'",
    "generate/greedy": "generate train/xlnet/run --prompt 'The mill' --tokens 12 --temperature 0 --json\n"
    "generate train/backward/run --tokens 6 --top-k 1",
    "generate/sampled": "generate train/xlnet/run --prompt 'The mill' --tokens 12 --seed 1\n"
    "generate train/xlnet/run --prompt 'The mill' --tokens 12 --top-p 0.8 --temperature 0.7 --json\n"
    "generate train/xlnet/run --tokens 8 --top-k 5 --seed 2 --json",
    "generate/xlnet-lm": "generate train/xlnet-lm/run --prompt 'The mill' --tokens 12 --temperature 0",
    "generate/gpt": "generate train/gpt/run --prompt 'The mill' --tokens 8 --seed 1\n"
    "generate train/gpt/run --prompt 'The mill' --tokens 8 --temperature 0 --json",
    "translate": "translate train/transformer/run inputs/val.en --json\n"
    "translate train/seq2seq/run --text 'The mill was slow.' --beam 2 --n-best 2 --json\n"
    "translate train/transformer/run --text 'The mill was slow.' --beam 0",
    "attention/tree-mlm": "attention tree-mlm-small --text 'The tea is too [MASK].' --out @/heads.html\n"
    "attention train/tree-mlm/run --data inputs/masked.jsonl --node 2 --json --out @/node.html\n"
    "attention train/paper/run --data data/replies/set --node soft-crust.8 --layer 1 --head 2 --json",
    "attention/bert": "attention train/bert/run --text 'The mill was slow.' --json --out @/heads.html\n"
    "attention train/roberta/run --text 'The mill was slow.' --layer 2 --json",
    "attention/xlnet": "attention train/xlnet/run --text 'The mill was slow.' --json --out @/heads.html\n"
    "attention train/xlnet/run --text 'The mill [MASK] slow.' --json\n"
    "attention train/xlnet/run --text 'The mill was slow.' --order random --seed 2 --json\n"
    "attention train/denoising/run --text 'The mill [MASK] slow.' --json",
    "attention/refused": "attention train/agent/run --text 'The mill was slow.' --json",
    "reconstruct": "reconstruct train/agent/run inputs/notes.txt --level paragraph --json\n"
    "reconstruct train/agent/run --data data/books/set --tree mill --level chapter\n"
    "reconstruct train/agent-sentence/run - < inputs/notes.txt",
    "coherence": "coherence train/agent/run inputs/notes.txt --json --out @/page.html\n"
    "coherence train/agent/run --data data/books/set --tree mill --level paragraph,chapter --top 5 --out @/top.html",
    "copyedit": "copyedit train/agent/run inputs/notes.txt --epsilon 0.5 --passes 2 --json --out @/page.html\n"
    "copyedit train/agent/run --data data/books/set --tree mill --towards noise --lowest token --judge train/gpt/run "
    "--out @/noise.html\n"
    "copyedit train/agent/run inputs/notes.txt --towards random_vector --out @/random.html",
    "generate/agent-gan": "generate train/agent-gan/run --level paragraph --count 2 --seed 3 --json --out @/page.html\n"
    "generate train/agent-gan/run --level chapter --out @/chapter.html\n"
    "generate train/agent/run --level paragraph",
    "nearest": "nearest train/agent/run --data data/books/set --query 'The mill was slow.' -k 5\n"
    "nearest train/agent/run --data data/books/set --level paragraph --query 'A river.' --json "
    "--vectors embed/agent/paragraph.parquet\n"
    "nearest train/agent/run --data data/books/set --level chapter --node 2 --tree mill -k 3",
    "disentangle/kinds": "\n".join(
        f"disentangle inputs/channel.log --to {kind} --out @/{kind}"
        for kind in ("html", "text", "jsonl", "annotation", "csv", "parquet")
    ),
    "disentangle/models": "\n".join(
        f"disentangle inputs/rooms/room-1.ascii.txt --format irc --to annotation --out - --model train/{name}"
        for name in ("links/run", "mht/run --beam 2", "decatt/run", "esim/run", "bert-pair/run", "candidate-pruner/model")
    ),
    "disentangle/ensembles": "\n".join(
        "disentangle inputs/rooms/room-1.ascii.txt --format irc --to annotation --out - --model links --model train/links/run "
        f"--model train/feature-model/run --ensemble {ensemble}"
        for ensemble in ("vote", "unanimous", "union", "union-most", "intersect")
    )
    + "\ndisentangle inputs/rooms --format irc --to annotation --out - --model train/links/run "
    "--model train/candidate-pruner/model --ensemble mean",
    "disentangle/live": "disentangle - --format irc --live --to jsonl --out - < inputs/rooms/room-2.ascii.txt\n"
    "disentangle inputs/rooms/room-2.ascii.txt --format irc --live --every 7 --to annotation --out -",
    "disentangle/options": "disentangle inputs/garden.json --to text --out -\n"
    "disentangle inputs/garden.json --to text --out - --ignore-replies --set decoding.answers=others\n"
    "disentangle inputs/talk.txt --pattern '{date} {time} | {author}: {text}' --to csv --out -",
    "backprop": "backprop '(x + y) * x * y**2' x=1 y=2 --orders --out @/graph.svg --out @/passes.html\n"
    "backprop 'log(exp(2*x**3 + 10))' x=42 --decimal 18 --json\n"
    "backprop 'sum(softmax(w @ x) * t)' x=[1,2] w=[[1,0],[0,1]] t=[0,1] --json",
    "version": "--version",
    "help": "--help",
    # --- Python
    **{
        f"python/embed-{family}-{dtype}": f"call embed train/{family}/run {dtype} @/vectors.npz"
        for family in ("tree-mlm", "bert", "roberta", "xlnet")
        for dtype in ("float32", "float64")
    },
    **{
        f"python/embed-agent-{dtype}": f"call embed_levels train/agent/run {dtype} @/vectors.npz"
        for dtype in ("float32", "float64")
    },
    **{f"python/score-{family}": f"call score_text train/{family}/run" for family in ("tree-mlm", "xlnet")},
    "python/export-bert": "call export train/bert/run @/hf\nfill-mask @/hf --text 'the mill [MASK] slow' --json",
    "python/export-xlnet": "call export train/xlnet/run @/hf\nscore @/hf --text 'The mill was slow.' --json",
    **{
        f"python/saved-{family}": f"call save_again train/{family}/run @/saved"
        for family in ("tree-mlm", "bert", "xlnet", "denoising", "agent", "links", "mht")
    },
    "python/saved-half": "call save_half train/bert/run @/saved\nfill-mask @/saved --text 'the mill [MASK] slow' --json",
    "python/disentangle": "call disentangle links inputs/channel.log",
}
"""Name -> commands of `ramify`, one per line, carried out in the folder of the recording. `@/` is the folder of the case.
`copy` copies a folder, and `call` calls one of `CALLS`. A case is carried out after those whose folders it names."""


def embed(source: str, dtype: str, out: str) -> None:
    import ramify

    model = _loaded(source, dtype)
    texts = ["The mill was slow.", "", "Nobody knew why the river had turned, and nobody asked. " * 4, "Ann."]
    trees = list(ramify.read_jsonl("inputs/discussions.jsonl"))[:6]
    np.savez(out, texts=model.embed(texts), text=model.embed(texts[0]), trees=model.embed(trees), tree=model.embed(trees[0]))


def embed_levels(source: str, dtype: str, out: str) -> None:
    from ramify import Store

    model = _loaded(source, dtype)
    trees = list(Store.open("data/books/set").trees())
    vectors = {level: model.embed(trees, level=level) for level in model.levels}
    np.savez(out, texts=model.embed(["The mill was slow.", "Ann came. Bob left."]), **vectors)


def score_text(source: str) -> None:
    import ramify

    _print_answer(ramify.load(source).score("The mill was slow."))


def export(source: str, out: str) -> None:
    import ramify
    from ramify import hub

    hub.export_hugging_face(ramify.load(source), out)


def save_again(source: str, out: str) -> None:
    import ramify

    ramify.save(ramify.load(source), out)
    ramify.save(ramify.load(out), f"{out}-again")


def save_half(source: str, out: str) -> None:
    import torch

    import ramify

    ramify.save(ramify.load(source), out, dtype=torch.float16)


def disentangle(source: str, log: str) -> None:
    import ramify

    for tree in ramify.read_logs(log):
        for conversation in ramify.load(source).disentangle(tree).conversations():
            print(conversation)


CALLS: dict[str, Callable[..., None]] = {
    each.__name__: each for each in (embed, embed_levels, score_text, export, save_again, save_half, disentangle)
}


def _loaded(source: str, dtype: str) -> Any:
    import torch

    import ramify

    model = ramify.load(source)
    model.module.to(getattr(torch, dtype))
    return model


def _print_answer(answer: Any) -> None:
    print(json.dumps(answer if isinstance(answer, dict) else answer.to_json()))


# --- inputs -------------------------------------------------------------------------------------------------------------------


def _write_labels(folder: Path) -> None:
    """Labelled texts, tagged tokens, questions about passages, and choices."""
    words = ("fine", "good", "dull", "bad")
    answers = ("yes", "no")
    opinions = [f"{number},a {words[number % 4]} book of {number} pages,{answers[number % 4 // 2]}" for number in range(40)]
    (folder / "opinions.csv").write_text("\n".join(["id,text,label", *opinions]) + "\n")
    people = ("Ann", "Bob", "Cy", "Dora")
    named = [f"{person} B-PER\nlives O\nin O\nBern B-LOC\n" for person in people for _ in range(5)]
    (folder / "names.conll").write_text("\n".join(named))
    articles = []
    for number in range(12):
        place = ("river", "wood", "town")[number % 3]
        text = f"Mill {number} is old. It stands by the {place}."
        answer = {"text": place, "answer_start": text.index(place)}
        asked = [{"id": f"q{number}", "question": "Where is the mill?", "answers": [answer]}]
        articles.append({"title": f"t{number}", "paragraphs": [{"context": text, "qas": asked}]})
    (folder / "questions.json").write_text(json.dumps({"version": "1.1", "data": articles}))
    (folder / "copa").mkdir()
    for split, count in (("train", 12), ("val", 6)):
        rows = [
            {
                "premise": "The bread was dry.",
                "choice1": "It was old." if number % 2 else "It rained.",
                "choice2": "It rained." if number % 2 else "It was old.",
                "question": "cause",
                "label": (number + 1) % 2,
                "idx": number,
            }
            for number in range(count)
        ]
        (folder / "copa" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_inputs(folder: Path, sample: Path) -> None:
    (folder / "rooms").mkdir(parents=True)
    (folder / "novels").mkdir()
    for name in ("discussions.jsonl", "channel.log"):
        shutil.copy(sample / name, folder / name)
    for number in range(8):
        _write_room(folder / "rooms", number)
    for number, name in enumerate(("mill", "river", "harbour", "garden", "kiln", "bell", "road", "moon")):
        _write_novel(folder / "novels" / f"{name}.md", name, number)
    (folder / "notes.txt").write_text("The mill was slow. Nobody knew why.\n\nAt night the river rose, and Ann went home.\n")
    things, places = (("mill", "Mühle"), ("oar", "Ruder"), ("bell", "Glocke")), (("here", "hier"), ("slow", "langsam"))
    for name, count in (("train", 6), ("val", 2)):
        pairs = [(f"The {thing[0]} is {place[0]}.", f"{thing[1]} ist {place[1]}.") for thing in things for place in places]
        for side, language in enumerate(("en", "de")):
            (folder / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in pairs[:count]))
    talk = [
        "2024-03-01 10:00 | ann: is the mill open?",
        "2024-03-01 10:01 | bob: ann: at noon",
        "2024-03-01 10:01 | cy: my oar broke",
    ]
    (folder / "talk.txt").write_text(
        "\n".join([*talk, "2024-03-01 10:02 | dee: cy: which one?", "2024-03-01 10:04 | ann: thanks bob"])
    )
    nodes = [("Why is my bread [MASK]?", None), ("Bake it longer, then it dries.", 0), ("My [MASK] is too [MASK] for that.", 1)]
    tree = [{"id": str(number), "parent": parent, "text": text} for number, (text, parent) in enumerate(nodes)]
    (folder / "masked.jsonl").write_text(json.dumps({"id": "bread", "nodes": tree}) + "\n")
    with (folder / "posts.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [
                ("thread", "number", "answers", "body"),
                *(
                    (f"t{n // 7}", f"p{n}", f"p{n - n % 7 + (n % 7) // 3}" if n % 7 else "", f"post {n} on bread")
                    for n in range(35)
                ),
            ]
        )
    reviews = [f"{word} book\t{stars}" for stars, word in enumerate(("bad", "dull", "fair", "good", "fine"), 1)] * 6
    (folder / "reviews.tsv").write_text("\n".join(["sentence\tstars", *reviews]) + "\n")
    _write_labels(folder)
    posts: list[dict[str, Any]] = [
        {"id": "s1", "title": "Bread", "selftext": "Why?", "author": "ann", "created_utc": 90, "subreddit": "talk"}
    ]
    for number, (author, body) in enumerate(
        (("bob", "Longer &amp; hotter."), ("[deleted]", "[deleted]"), ("XBot", "I am a bot."), ("cy", "No."))
    ):
        parent = f"t1_c{number - 1}" if number else "t3_s1"
        posts.append(
            {"id": f"c{number}", "link_id": "t3_s1", "parent_id": parent, "author": author, "created_utc": 100, "body": body}
        )
    (folder / "dump.jsonl").write_text("".join(json.dumps(post) + "\n" for post in posts))
    messages = [
        {
            "id": str(number),
            "type": "Reply" if reply else "Default",
            "timestamp": f"2024-03-01T10:{number:02}:00+00:00",
            "content": text,
            "author": {"id": author, "name": author},
            **({"reference": {"messageId": reply}} if reply else {}),
        }
        for number, (author, text, reply) in enumerate(
            [("ann", "slugs again", None), ("bob", "beer traps work", "0"), ("cy", "who has beans?", None), ("dee", "me", None)]
        )
    ]
    (folder / "garden.json").write_text(
        json.dumps({"guild": {"name": "Allotment"}, "channel": {"id": "9", "name": "garden"}, "messages": messages})
    )


TOPICS = {
    ("ann", "bob"): ("disk", "mount", "usb"),
    ("cy", "dee"): ("sound", "alsa", "mute"),
    ("eve", "fay"): ("wifi", "driver", "card"),
}


def _write_room(folder: Path, number: int) -> None:
    """Three simultaneous conversations with their links."""
    draw = random.Random(number)
    lines, links = [], []
    latest: dict[tuple[str, str], tuple[int, str]] = {}
    for index in range(40):
        pair = draw.choice(list(TOPICS))
        author = draw.choice(pair)
        words = " ".join(draw.choice((*TOPICS[pair], "the", "is", "please", "ok")) for _ in range(5))
        parent, called = latest.get(pair, (index, ""))
        if draw.random() < 0.1:
            parent, called = index, ""
        lines.append(f"[10:{index:02}] <{author}> {f'{called}: ' if called else ''}{words}")
        links.append(f"{parent} {index} -")
        latest[pair] = index, author
    (folder / f"room-{number}.ascii.txt").write_text("\n".join(lines) + "\n")
    (folder / f"room-{number}.annotation.txt").write_text("\n".join(links) + "\n")


SUBJECTS = ("The mill", "The river", "Nobody", "Ann", "The old miller", "A bell", "The boat")
VERBS = ("was slow", "rose at night", "knew why", "went home", "came in at noon", "had not risen", "began to turn")
ENDINGS = ("", " over the hill", " by the road", ", and we waited", " before the rain")


def _write_novel(file: Path, name: str, seed: int) -> None:
    """Chapters of paragraphs of sentences."""
    draw = random.Random(seed)
    lines = [f"# The {name.title()}"]
    for chapter in range(1, draw.randint(2, 4) + 1):
        lines.append(f"## Chapter {chapter}")
        for _ in range(draw.randint(2, 4)):
            pieces = (f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)}{draw.choice(ENDINGS)}." for _ in range(draw.randint(1, 5)))
            lines.append(" ".join(pieces))
    file.write_text("\n\n".join(lines) + "\n")


# --- record -------------------------------------------------------------------------------------------------------------------


def record(out: Path, source: Path, patterns: Sequence[str]) -> None:
    """Carry out cases with the package of `source`, each command in a process of its own."""
    fixed = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
    fixed |= {
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1",
        "SOURCE_DATE_EPOCH": "0",
    }
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "inputs").exists():
        write_inputs(out / "inputs", source / "ramify" / "sample")
    measure = [sys.executable, str(Path(__file__).resolve()), "measure", str(source), *chosen(out, patterns)]
    subprocess.run(measure, cwd=out, env=os.environ | fixed | {"PYTHONPATH": str(source)}, check=True)


def chosen(out: Path, patterns: Sequence[str]) -> list[str]:
    """The cases of the patterns, after those that they need and that OUT does not hold yet."""
    wanted = {name for name in CASES if any(fnmatchcase(name, pattern) for pattern in patterns)}
    if not wanted:
        raise SystemExit(f"--only {' '.join(patterns)} names no case. Choose from: {', '.join(CASES)}.")
    open_cases = list(wanted)
    while open_cases:
        commands = CASES[open_cases.pop()]
        needed = {name for name in CASES if f"{name}/" in commands and not (out / name / "status").exists()} - wanted
        wanted |= needed
        open_cases += needed
    return in_order(wanted)


def in_order(names: set[str]) -> list[str]:
    """The cases, each after those that it needs."""
    ordered: list[str] = []
    while left := [name for name in CASES if name in names and name not in ordered]:
        ready = [name for name in left if not any(f"{other}/" in CASES[name] for other in left if other != name)]
        ordered += ready
    return ordered


def measure(source: str, names: Sequence[str]) -> None:
    """The process that imports the heavy packages once, and starts each command as a copy of itself."""
    import ramify

    assert Path(ramify.__file__).is_relative_to(source), f"{ramify.__file__} is not in {source}"
    own = [module.name for module in pkgutil.walk_packages(ramify.__path__, "ramify.")]
    heavy = ("torch._dynamo", "torch.utils.tensorboard", "accelerate", "matplotlib.pyplot", "pandas", "pydantic.type_adapter")
    for module in (*heavy, *own):
        importlib.import_module(module)
    streams = f"view.{fields(importlib.import_module('ramify.batching.views.streams').StreamConfig)[0].name}"  # once view.rows
    for number, name in enumerate(names, 1):
        case = Path(name)
        began = time.perf_counter()
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir(parents=True)
        lines = CASES[name].replace("@/", f"{name}/").replace("view.streams=", f"{streams}=").splitlines()
        statuses = [perform(shlex.split(line), case) for line in lines]
        (case / "status").write_text("".join(f"{status}\n" for status in statuses))
        failed = "" if name.endswith("refused") or not any(statuses) else f"  exit status {statuses}: see {case / 'stderr'}"
        print(f"{number}/{len(names)} {name}: {time.perf_counter() - began:.1f} s{failed}", flush=True)


def perform(words: list[str], case: Path) -> int:
    """Carry out a command in a process of its own; its exit status."""
    if (process := os.fork()) == 0:
        status = 70
        try:
            stdin = words.pop() if words[-2:-1] == ["<"] else os.devnull
            words = words[:-1] if words[-1] == "<" else words
            for number, file in enumerate((stdin, case / "stdout", case / "stderr")):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY
                os.dup2(os.open(file, flags, 0o644), number)
            status = _command(words)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _command(words: list[str]) -> int:
    from ramify.cli import main

    if words[0] == "copy":
        shutil.copytree(*words[1:])
    elif words[0] == "call":
        CALLS[words[1]](*words[2:])
    else:
        sys.argv = ["ramify", *words]
        try:
            main()
        except SystemExit as left:
            return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


# --- compare ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    place: str
    """CASE/FILE:KEY"""
    description: str
    size: float = float("inf")
    """The lesser of the absolute and the relative difference of numbers."""

    def reason(self) -> str | None:
        """The reason why it is wanted."""
        changes = (change for pattern, change in CHANGED_ON_PURPOSE.items() if fnmatchcase(self.place, pattern))
        return next((change.reason for change in changes if self.size <= change.limit), None)


def compare(before: Path, after: Path, tolerance: float, patterns: Sequence[str] = ("*",)) -> int:
    """Print all differences of two recordings; the exit status."""
    names = sorted({str(file.parent.relative_to(folder)) for folder in (before, after) for file in folder.rglob("status")})
    names = [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
    unexpected, rounding, wanted, counts = [], [], [], Counter()
    for name in names:
        if missing := [folder for folder in (before, after) if not (folder / name / "status").exists()]:
            unexpected.append(Difference(name, f"not in {missing[0]}"))
            continue
        left, right = contents(before / name), contents(after / name)
        differences = [] if left == right else list(differences_of(name, before, after))
        counts["equal to the byte" if left == right else "different" if differences else "equal beside times and commits"] += 1
        for difference in differences:
            if difference.size <= tolerance:
                rounding.append(difference)
            else:
                (unexpected if difference.reason() is None else wanted).append(difference)
    print(f"{len(names)} cases: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    _list(f"within {tolerance:g}", rounding)
    for reason in sorted({str(difference.reason()) for difference in wanted}):
        _list(f"changed on purpose: {reason}", [difference for difference in wanted if difference.reason() == reason])
    _list("NOT EXPECTED", unexpected)
    return int(bool(unexpected))


def _list(title: str, differences: Sequence[Difference]) -> None:
    if differences:
        print(f"\n{title}: {len(differences)}")
    # Numbers first, the greatest at the top; then texts.
    for each in sorted(differences, key=lambda each: (each.size == float("inf"), -each.size)):
        print(f"  {each.place}: {each.description}")


def contents(case: Path) -> dict[str, bytes]:
    """The files of a case."""
    files = [file for file in sorted(case.rglob("*")) if file.is_file()]
    kept = [file for file in files if not any(fnmatchcase(str(file), pattern) for pattern in VOLATILE_FILES)]
    return {str(file.relative_to(case)): file.read_bytes() for file in kept}


def differences_of(name: str, before: Path, after: Path) -> Iterator[Difference]:
    left, right = ({path: values_of(folder / name / path) for path in contents(folder / name)} for folder in (before, after))
    for path in sorted(left.keys() | right.keys()):
        if path not in left or path not in right:
            yield Difference(f"{name}/{path}", f"only {'after' if path in right else 'before'}")
            continue
        for key in sorted(left[path].keys() | right[path].keys()):
            place = f"{name}/{path}:{key}"
            if key not in left[path] or key not in right[path]:
                side, values = ("after", right[path]) if key in right[path] else ("before", left[path])
                yield Difference(place, f"only {side}: {_short(values[key])}")
            elif (found := difference(place, left[path][key], right[path][key])) is not None:
                yield found


Value = np.ndarray | str


def values_of(file: Path) -> dict[str, Value]:
    """The content of a file as arrays and texts by key."""
    if file.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return dict(load_file(file))
    if file.suffix == ".npy":
        return {"": np.load(file)}
    if file.suffix == ".npz":
        with np.load(file) as arrays:
            return dict(arrays)
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(file)
        metadata = {
            f"schema {key.decode()}": value.decode()
            for key, value in (table.schema.metadata or {}).items()
            if key != b"ARROW:schema"
        }
        return metadata | {name: _of_json(table[name].to_pylist()) for name in table.column_names}
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError:
        return {"": np.frombuffer(file.read_bytes(), dtype=np.uint8)}
    values: dict[str, Value] = {}
    plain = []
    for number, line in enumerate([text] if file.suffix == ".json" else text.splitlines()):
        try:
            parsed = json.loads(line) if line.startswith(("{", "[")) else None
        except ValueError:
            parsed = None
        if parsed is None:
            plain.append(line)
            continue
        values |= dict(_leaves(parsed, "" if file.suffix == ".json" else f"{number}"))
    return values | {"": "\n".join(plain)}


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Value]]:
    """The values in parsed JSON by dotted keys. A list of numbers, or of such lists, is one array."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if name not in VOLATILE_KEYS:
                yield from _leaves(inner, f"{key}.{name}".strip("."))
    elif isinstance(value, list) and isinstance(_of_json(value), str):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{key}.{number}".strip("."))
    else:
        yield key, _of_json(value)


def _of_json(value: Any) -> Value:
    """An array if the value is a number or a regular list of numbers, otherwise its text."""
    if isinstance(value, str):
        return value
    try:
        array = np.array(value)
    except ValueError:
        return json.dumps(value, default=str)
    return array if array.size and array.dtype.kind in "if" else json.dumps(value, default=str)


def difference(place: str, left: Value, right: Value) -> Difference | None:
    """The difference of two values, if there is one beside those of `VOLATILE`."""
    if isinstance(left, str) and isinstance(right, str):
        return _of_texts(place, left, right)
    if isinstance(left, str) or isinstance(right, str) or left.shape != right.shape or left.dtype.kind != right.dtype.kind:
        return Difference(place, f"{_short(left)} → {_short(right)}")
    if left.dtype.kind not in "iufb":
        return None if (left == right).all() else Difference(place, f"{_short(left)} → {_short(right)}")
    if np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
        same = left.dtype == right.dtype
        return None if same else Difference(place, f"{left.dtype} → {right.dtype}")
    return _of_numbers(place, left.astype(np.float64), right.astype(np.float64))


def _of_numbers(place: str, left: np.ndarray, right: np.ndarray) -> Difference:
    if (np.isfinite(left) != np.isfinite(right)).any():
        return Difference(place, f"{_short(left)} → {_short(right)}")
    finite = np.isfinite(left)
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return Difference(place, f"{_short(left)} → {_short(right)}")
    absolute = float(np.abs(left[finite] - right[finite]).max())
    relative = absolute / max(float(np.abs(left[finite]).max()), 1e-300)
    which = f" of {left.size:,} numbers" if left.size > 1 else f" ({left.item():.9g} → {right.item():.9g})"
    return Difference(place, f"maximum difference {absolute:.2g}, relative {relative:.2g}{which}", min(absolute, relative))


NUMBER = re.compile(r"(?<![\w.])-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)")


def _of_texts(place: str, left: str, right: str) -> Difference | None:
    for pattern, replacement in VOLATILE.items():
        left, right = (re.sub(pattern, replacement, text) for text in (left, right))
    if left == right:
        return None
    if NUMBER.sub("#", left) == NUMBER.sub("#", right):
        numbers = [np.array([float(each.replace(",", "")) for each in NUMBER.findall(text)]) for text in (left, right)]
        found = _of_numbers(place, *numbers)
        where = list(NUMBER.finditer(left))[int(np.abs(numbers[0] - numbers[1]).argmax())]
        around = left[max(0, where.start() - 30) : where.end() + 20].replace("\n", " ")
        return replace(found, description=f"{found.description}: …{around}…")
    lines = list(difflib.unified_diff(left.splitlines(), right.splitlines(), lineterm="", n=0))[2:]
    changed = [_short(line) for line in lines if not line.startswith("@@")]
    return Difference(
        place, "\n      ".join(["", *changed[:6], *([f"… {len(changed) - 6} more lines"] if len(changed) > 6 else [])])
    )


def _short(value: Value) -> str:
    if not isinstance(value, str):
        value = f"{value.dtype}{list(value.shape)} {value.flatten()[:4].tolist()}" if value.size != 1 else str(value.item())
    return value if len(value) <= 160 else value[:157] + "…"


# ------------------------------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="carry out the cases")
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds the package to measure")
    measuring = commands.add_parser("measure", help="used by record")
    measuring.add_argument("source")
    measuring.add_argument("names", nargs="+")
    comparing = commands.add_parser("compare", help="list the differences of two recordings")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--tolerance", type=float, default=1e-6, help="greatest difference that counts as rounding")
    for command in (recording, comparing):
        command.add_argument("--only", nargs="+", metavar="NAME", default=["*"], help="cases, or patterns such as 'train/*'")
    given = parser.parse_args()
    if given.command == "record":
        record(given.out.resolve(), given.source.resolve(), given.only)
    elif given.command == "measure":
        measure(given.source, given.names)
    else:
        sys.exit(compare(given.before, given.after, given.tolerance, given.only))


if __name__ == "__main__":
    main()
