"""Train models of label tasks and compare them: sentiment, acceptability, inference, ad hominem, relations, tags and answers.

    python benchmarks/downstream.py prepare --sets SETS --out DATA
    python benchmarks/running_text.py prepare --data DATA --books BOOKS --forum POSTS.jsonl.zst --reddit RS.zst RC.zst
    python benchmarks/downstream.py plan
    python benchmarks/downstream.py run --data DATA --out OUT bert sst2-bert-0
    python benchmarks/downstream.py windows --data DATA --out OUT
    python benchmarks/downstream.py examples --out OUT
    python benchmarks/downstream.py cost --data DATA --out OUT
    python benchmarks/downstream.py keep --out OUT --to SCORES
    python benchmarks/downstream.py table --out SCORES --rows benchmarks/results/downstream.jsonl
    python benchmarks/downstream.py picture --out SCORES --svg benchmarks/pictures/downstream.svg

SCORES is benchmarks/scores/downstream.parquet, and SETS holds sst2, cola, snli, cmv-adhominem, molweni, cmv-modes and squad as
they are published. `prepare` builds the data sets. The test split of SST-2 is GLUE's dev split, and its dev split is 2 % of the
training rows, by hash; those of CoLA and SNLI are a tenth each, by the hash of the sentence and of the premise. Own models are
pretrained on DATA/text with DATA/tokenizer.json, which `running_text.py prepare` makes. OUT/minilm is a copy of
all-MiniLM-L6-v2. Its training data hold SNLI, MultiNLI, SQuAD, Flickr30k and Reddit, so its rows on these are unfair.

`run` carries out the commands of the plan and skips those whose results are already there; the same command continues an
interrupted run. The learning rate of a model is that of its runs of group R with the best score on SNLI's dev split. `windows`
scores the model of questions with other windows of the passages, with and without maximum context. `examples` asks the models
of sentiment and inference about a few texts. `cost` times the training of a frozen and of a fine-tuned model.
"""

import argparse
import hashlib
import json
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import binomtest

from experiments import Figures, Item, carry_out, copy_curve, found_in, print_plan, score_command, train_command
from ramify.files import write_text
from raw_scores import add_figures, add_keep, adding_runs, reads_runs
from rows import current_commit, replace_rows
from tables import in_full

SEEDS = (0, 1, 2)
FOLDS = (1, 2, 3, 4, 5)
TASKS = {"sst2-10000": "SST-2", "cola": "CoLA", "snli": "SNLI", "adhominem-1": "ad hominem"}
"""The data set and the title of each task of experiment A."""
FIELDS = {"adhominem": "--label ad_hominem", "molweni": "--label 0.type"}
"""The field of the labels, by the beginning of a data set's name."""
SIZES = (100, 300, 1_000, 3_000)
"""Labelled texts of experiment C."""
RATES = {
    "bert": ("3e-5", "1e-4", "3e-4"),
    "xlnet": ("3e-5", "1e-4", "3e-4"),
    "elmo": ("3e-4", "1e-3", "3e-3"),
    "minilm-features": ("3e-4", "1e-3", "3e-3"),
    "minilm": ("3e-5", "1e-4", "2e-4"),
    "cnn": ("3e-4", "1e-3", "3e-3"),
    "bilstm": ("3e-4", "1e-3", "3e-3"),
}
PRETRAINED = {
    "bert": (
        "bert --data DATA/text --tokenizer DATA/tokenizer.json --set train.budget=512 --steps 3900 --set train.lr=1e-3",
        0.3,
    ),
    "xlnet": (
        "xlnet-lm --data DATA/text --tokenizer DATA/tokenizer.json --set model.memory=128 --steps 976 --set train.lr=1e-3",
        0.4,
    ),
    "elmo": ("elmo --input words --data DATA/text --tokenizer DATA/tokenizer.json --target-tokens 4000000", 0.3),
}
"""The recipe and the core-hours of each own model. All read 2 M tokens; ELMo reads them in both directions."""
SEVERAL = ("cnn", "elmo", "minilm-features")
"""Models of experiment A whose runs take less than five minutes, and are repeated with other seeds."""
MODELS = {
    "majority": ("--model majority", "majority", 0.0),
    "tfidf": ("--model tfidf", "TF-IDF, logistic regression", 0.005),
    "cnn": ("--model cnn", "CNN from scratch", 0.03),
    "bilstm": ("--model bilstm", "BiLSTM from scratch", 0.05),
    "bert": ("--init OUT/bert", "own BERT, fine-tuned", 0.08),
    "xlnet": ("--init OUT/xlnet", "own XLNet, fine-tuned", 0.12),
    "elmo": ("--init OUT/elmo --mode features", "own ELMo, features", 0.05),
    "minilm-features": ("--init OUT/minilm --mode features", "MiniLM*, features", 0.03),
    "minilm": ("--init OUT/minilm --epochs 2", "MiniLM*, fine-tuned", 0.12),
}
"""The options, the title and the core-hours of a run on each model."""

CONTEXTS = {"none": "", "parent": "--context parent", "mismatched": "--context mismatched"}
VECTORS = {
    "none": "",
    "vectors": "--context tree --context-as vectors",
    "mismatched vectors": "--context mismatched --context-as vectors",
}
ABOVE = {
    "tfidf": ("--model tfidf", "TF-IDF, logistic regression", CONTEXTS, 0.002),
    "minilm": ("--init OUT/minilm --epochs 3", "MiniLM*, fine-tuned", CONTEXTS, 0.03),
    "tree-mlm": ("--init tree-mlm-small", "shipped tree model, fine-tuned", VECTORS, 0.02),
    "minilm-features": ("--init OUT/minilm --mode features", "MiniLM*, features", CONTEXTS, 0.02),
}
"""Experiment E: the options and the title of each model, its contexts, and the core-hours of a run. Vectors are compared with
none on the model that reads them."""
TREES = {
    "molweni": ("relations of Molweni", ("tfidf", "minilm", "tree-mlm"), ("none", "parent", "mismatched", *VECTORS)),
    "adhominem": ("ad hominem in change-my-view", ("tfidf", "minilm-features"), ("none", "parent")),
}
"""The title, the models and the contexts of the data sets of experiment E. Chains of change-my-view are long, so MiniLM stays
as it is there."""
TAGGED = "--init OUT/minilm --epochs 8 --lr 1e-4 --set train.budget=4 --decoder"
TAGGERS = {
    "majority": ("--model majority", "most frequent tag of each word", 0.0),
    "tfidf": ("--model tfidf", "words, logistic regression", 0.005),
    "linear": (f"{TAGGED} linear --seed 0", "MiniLM*, linear layer", 0.07),
    "crf": (f"{TAGGED} crf --seed 0", "MiniLM*, CRF", 0.07),
}
"""The options, the title and the core-hours of a run on claims and premises."""
SCARCE = {
    "tfidf": "--model tfidf",
    "cnn": "--model cnn",
    "bert": "--init OUT/bert --epochs 5",
    "minilm": "--init OUT/minilm --epochs 5",
}
"""Experiment C: the options of each model."""
WHOLE, ANSWERS = "B-sst2", "B-squad"
WINDOWS = {
    "windows of 128 tokens, every 64": (128, 64),
    "windows of 128 tokens, side by side": (128, 128),
    "windows of 384 tokens, every 128": (384, 128),
}
"""Rows of passages on which the model of questions is scored: their tokens and their stride."""
FILMS = {
    "a long film with a good end": "the film is slow and far too long , but its last half hour is wonderful",
    "a film for nobody": "a film for nobody in particular",
}
"""Texts about films."""
DIET = "a lacto-vegetarian eats milk and cheese , but neither meat nor fish nor eggs"
DIETS = {
    "a lacto-vegetarian eats cheese": (DIET, "a lacto-vegetarian eats cheese"),
    "a lacto-vegetarian eats fish": (DIET, "a lacto-vegetarian eats fish"),
    "a lacto-vegetarian lives in the city": (DIET, "a lacto-vegetarian lives in the city"),
}
"""Pairs of a premise and a hypothesis."""
WAYS = ("minilm-features", "minilm")
"""Two ways to use one model: frozen, with its layers mixed, and fine-tuned."""
BESIDE = ("windows", "examples", "cost")
"""Results that lie beside the scores of a run."""
CONTEXTS_OF_TOKENS = {"maximum context": True, "all windows": False}
"""Whether a token is read in the window of its maximum context alone."""


def classifier(
    name: str, data: str, options: str, hours: float, *, seed: int = 0, rate_of: str = "", learns: bool = True
) -> Item:
    """A model of texts with its scores on dev and test. Floors have no seed."""
    words = f"classify --data DATA/{data} {options} {FIELDS.get(data.partition('-')[0], '')}"
    words += " --lr RATE" if rate_of else ""
    words += f" --seed {seed}" if learns else ""
    test = f"ramify evaluate RUN --data DATA/{data} --split test --json"
    return Item(name, words, hours, rate_of=rate_of, scores={"dev": test.replace("test", "dev"), "test": test})


def rate_of(model: str) -> str:
    return model if model in RATES else ""


def items() -> list[Item]:
    """All runs, in the order in which they are to be carried out."""
    pretrained = [Item(name, f"{recipe} --seed 0", hours) for name, (recipe, hours) in PRETRAINED.items()]
    snli = "ramify evaluate RUN --data DATA/snli --split dev --json"
    rates = [
        Item(
            f"R-{model}-{rate}",
            f"classify --data DATA/snli {MODELS[model][0]} --lr {rate} --seed 0",
            MODELS[model][2],
            scores={"dev": snli},
        )
        for model, rates in RATES.items()
        for rate in rates
    ]
    first, further = (
        [
            classifier(
                f"A-{data}-{model}-{seed}", data, options, hours, seed=seed, rate_of=rate_of(model), learns=model in RATES
            )
            for seed in seeds
            for data in TASKS
            for model, (options, _, hours) in MODELS.items()
            if seed == 0 or model in SEVERAL
        ]
        for seeds in (SEEDS[:1], SEEDS[1:])
    )
    # The best run of group R is that of its model on SNLI.
    first = [
        replace(item, trained=f"R-{item.rate_of}-RATE", hours=0.005) if item.rate_of and "-snli-" in item.name else item
        for item in first
    ]
    whole = classifier(WHOLE, "sst2", "--init OUT/minilm --epochs 2", 0.5, rate_of="minilm")
    answers = Item(
        ANSWERS,
        "answer --data DATA/squad --init OUT/minilm --epochs 1 --lr 1e-4 --set input.max_tokens=128 --set input.stride=64",
        0.8,
        scores={"test": "ramify evaluate RUN --data DATA/squad --split test --json"},
    )
    scarce = [
        classifier(
            f"C-{data}-{size}-{model}-{seed}",
            f"{data}-{size}",
            options,
            0.01,
            seed=seed,
            rate_of=rate_of(model),
            learns=model in RATES,
        )
        for data, seeds in (("sst2", SEEDS), ("snli", (0,)))
        for size in SIZES
        for model, options in SCARCE.items()
        for seed in (seeds if model in RATES else (0,))
    ]
    above = [
        classifier(
            f"E-{data}-{model}-{context.replace(' ', '-')}-{fold}",
            f"{data}-{fold}",
            f"{options} {words}",
            hours,
            rate_of=rate_of(model),
            learns=model != "tfidf",
        )
        for data, (_, models, chosen) in TREES.items()
        for model in models
        for options, _, contexts, hours in (ABOVE[model],)
        for context, words in contexts.items()
        if context in chosen
        for fold in FOLDS
    ]
    tags = [
        Item(
            f"E-modes-{decoder}-{fold}",
            f"tag --data DATA/modes-{fold} {options}",
            hours,
            scores={"test": f"ramify evaluate RUN --data DATA/modes-{fold} --split test --json"},
        )
        for decoder, (options, _, hours) in TAGGERS.items()
        for fold in FOLDS
    ]
    return [*pretrained, *rates, *first, whole, answers, *above, *tags, *scarce, *further]


# --- data ------------------------------------------------------------------------------------------------------------------


Splits = dict[str, list[list[str]]]


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def split_of(text: str, dev: float, test: float) -> str:
    """The split of all rows with this text, by its hash."""
    share = hash_of(text) / 2**64
    return "dev" if share < dev else "test" if share < dev + test else "train"


def prepare(arguments: argparse.Namespace) -> None:
    """Write the splits as tables, and build all data sets."""
    sets, out = arguments.sets, arguments.out
    sst2: Splits = {"train": [], "dev": [], "test": rows_of(sets / "sst2" / "dev.tsv")[1:]}
    for row in rows_of(sets / "sst2" / "train.tsv")[1:]:
        sst2[split_of(row[0].strip(), 0.02, 0.0)].append(row)
    write_set(out, "sst2", sst2, ["sentence", "label"], (*SIZES, 10_000))
    cola: Splits = {"train": [], "dev": [], "test": []}
    snli: Splits = {"train": [], "dev": [], "test": []}
    for row in rows_of(sets / "cola" / "train.tsv"):
        cola[split_of(row[3], 0.1, 0.1)].append([row[3], row[1]])
    write_set(out, "cola", cola, ["sentence", "label"], ())
    for row in rows_of(sets / "snli" / "pairs.tsv"):
        snli[split_of(row[0], 0.1, 0.1)].append(row)
    write_set(out, "snli", snli, ["premise", "hypothesis", "label"], SIZES)
    for fold in FOLDS:
        part = ("--fold", f"{fold}/{len(FOLDS)}")
        build(out / f"adhominem-{fold}", [sets / "cmv-adhominem" / "threads.tar.bz2"], *part, "--policy", "deleted=keep")
        molweni = [sets / "molweni" / "dev.json"]
        build(out / f"molweni-{fold}", molweni, "--format", "molweni", *part, "--option", "repeated=drop")
        build(out / f"modes-{fold}", [sets / "cmv-modes"], "--format", "cmv-modes", *part)
    titles = squad_titles(sets / "squad" / "dev-v1.1.part.json")
    write_text(out / "titles.json", json.dumps({"dev": titles[:3], "test": titles[3:9], "*": "train"}))
    squad = [sets / "squad" / "dev-v1.1.part.json", sets / "squad" / "v1.1-train-part"]
    build(out / "squad", squad, "--split-by", str(out / "titles.json"))


def rows_of(table: Path) -> list[list[str]]:
    return [line.split("\t") for line in table.read_text("utf-8").split("\n") if line]


def write_set(out: Path, name: str, splits: Splits, columns: list[str], sizes: Sequence[int]) -> None:
    """The tables of a set, whole and with so many training rows, nested by hash, and the data sets built from them."""
    splits["train"].sort(key=lambda row: hash_of("\t".join(row)))
    for size in (*sizes, None):
        folder = out / "tables" / (name if size is None else f"{name}-{size}")
        folder.mkdir(parents=True, exist_ok=True)
        files = []
        for split, rows in splits.items():
            files.append(folder / f"{split}.tsv")
            kept = rows[:size] if split == "train" else rows
            write_text(files[-1], "".join("\t".join(row) + "\n" for row in [columns, *kept]))
        layout = "snli-pairs" if name == "snli" else name
        build(out / folder.name, files, "--format", "labelled", "--option", f"dataset={layout}")


def squad_titles(file: Path) -> list[str]:
    """The titles of the articles, by their hash."""
    return sorted((article["title"] for article in json.loads(file.read_text("utf-8"))["data"]), key=hash_of)


def build(out: Path, files: Sequence[Path], *options: str) -> None:
    if not out.exists():
        subprocess.run(["ramify", "data", "build", *map(str, files), *options, "--out", str(out)], check=True)


# --- runs ------------------------------------------------------------------------------------------------------------------


def plan(arguments: argparse.Namespace) -> None:
    print_plan(items())


def best_rate(out: Path, model: str) -> str:
    """The rate with the best score on SNLI's dev split."""
    found = {rate: found_in(out / f"R-{model}-{rate}", "dev") for rate in RATES[model]}
    if missing := [rate for rate, scores in found.items() if scores is None]:
        sys.exit(f"The rate of {model} is not chosen yet: run {', '.join(f'R-{model}-{rate}' for rate in missing)}.")
    return max(RATES[model], key=lambda rate: (found[rate] or {})["value"])


def run(arguments: argparse.Namespace) -> None:
    carry_out(items(), arguments.names, arguments.data, arguments.out, lambda model: best_rate(arguments.out, model))


def keep(arguments: argparse.Namespace) -> None:
    """Add the scores of finished runs, and the seconds of their training, to a table, without the models."""
    with adding_runs(arguments.to) as to:
        for item in items():
            source = arguments.out / item.name
            scores = [source / f"{label}.json" for label in item.scores]
            if not scores or not all(file.exists() for file in scores):
                continue
            copy_curve(source, to / item.name, ("step", "seconds", "loss", "dev_loss", "accuracy"))
            (to / item.name).mkdir(exist_ok=True)
            for file in [*scores, *(source / f"{name}.json" for name in BESIDE if (source / f"{name}.json").exists())]:
                shutil.copyfile(file, to / item.name / file.name)


def windows(arguments: argparse.Namespace) -> None:
    """Score the model of questions with other windows of the passages."""
    import ramify
    from ramify.batching import question_windows
    from ramify.dataset.store import Store
    from ramify.runs.labelled.answer_scores import score_questions

    store, found = Store.open(arguments.data / "squad"), {}
    widest = question_windows.widest_context
    for name, (tokens, stride) in WINDOWS.items():
        for context, is_maximum in CONTEXTS_OF_TOKENS.items():
            model = ramify.load(arguments.out / ANSWERS)
            task = model.task
            task.input = replace(task.input, max_tokens=tokens, stride=stride)
            task.collator = replace(task.collator, input=task.input)
            question_windows.widest_context = widest if is_maximum else every_place
            try:
                found[f"{name}, {context}"] = score_questions(model, store, "test", {}).predictions.scores()
            finally:
                question_windows.widest_context = widest
            print(name, context, found[f"{name}, {context}"], flush=True)
    write_text(arguments.out / ANSWERS / "windows.json", json.dumps(found))


def every_place(rows: Any, which: int = 0) -> Any:
    """The places of the tokens of the divided texts in all windows, in place of `widest_context`."""
    from ramify.batching.forest import ranges

    begin, stop = rows.spans[:, which].T
    starts = rows.rows.host_lengths.cumsum() - rows.rows.host_lengths
    return ranges(starts + begin, starts + stop)


def cost(arguments: argparse.Namespace) -> None:
    """Train both ways to use a model again, and store the time of the processor, which is much the same on a busy machine."""
    known = {item.name: item for item in items()}
    for model in WAYS:
        item = known[f"A-sst2-10000-{model}-0"]
        with tempfile.TemporaryDirectory() as folder:
            rate = best_rate(arguments.out, model)
            command = train_command(item, arguments.data, arguments.out, rate, Path(folder) / "run")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(shlex.split(command), check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(item.name, f"{seconds:.0f} s", flush=True)
        write_text(arguments.out / item.name / "cost.json", json.dumps({"seconds": seconds}))


def examples(arguments: argparse.Namespace) -> None:
    """Predict the labels of the example texts."""
    import ramify

    for folder, texts in {WHOLE: FILMS, f"R-minilm-{best_rate(arguments.out, 'minilm')}": DIETS}.items():
        answers = ramify.load(arguments.out / folder).predict([*texts.values()])
        found = {name: dict(answer.probabilities) for name, answer in zip(texts, answers, strict=True)}
        print(json.dumps(found, indent=1))
        write_text(arguments.out / folder / "examples.json", json.dumps(found))


# --- results ---------------------------------------------------------------------------------------------------------------

DATA, OUT = Path("DATA"), Path("OUT")


def _add(
    figures: Figures,
    out: Path,
    table: str,
    row: str,
    names: Sequence[str],
    columns: dict[str, str],
    *,
    seeds: Sequence[int] = (),
    label: str = "test",
) -> list[float]:
    """Add the mean scores of some runs, if all are there, with standard deviations. Columns are titles of metrics. Returns the
    main score of each run."""
    known = {item.name: item for item in items()}
    found = [scores for name in names if (scores := found_in(out / name, label))]
    if len(found) < len(names) or not found:
        return []
    command = score_command(known[names[0]], label, DATA, OUT)
    for title, metric in columns.items():
        values = [scores["value"] if metric == "value" else scores["metrics"][metric] for scores in found]
        spread = 100 * stdev(values) if len(values) > 1 else None
        figures.add(table, row, title, 100 * mean(values), command, unit="%", seeds=seeds, spread=spread, digits=1)
    return [scores["value"] for scores in found]


def _add_tasks(figures: Figures, out: Path) -> None:
    for model, (_, title, _) in MODELS.items():
        asked = SEEDS if model in SEVERAL else (0,)
        seeds = [seed for seed in asked if all(found_in(out / f"A-{data}-{model}-{seed}", "test") for data in TASKS)]
        of_tasks = [
            _add(
                figures,
                out,
                "label-tasks",
                title,
                [f"A-{data}-{model}-{seed}" for seed in seeds],
                {name: "value"},
                seeds=seeds if model in RATES else (),
            )
            for data, name in TASKS.items()
        ]
        if all(of_tasks):
            command = score_command(
                next(item for item in items() if item.name == f"A-{next(iter(TASKS))}-{model}-0"), "test", DATA, OUT
            )
            average = mean(mean(values) for values in of_tasks)
            figures.add("label-tasks", title, "mean", 100 * average, command, unit="%", seeds=seeds, digits=1)


def _add_ways(figures: Figures, out: Path) -> None:
    """Two ways to use one model: their scores, and the time that they cost."""
    for model in WAYS:
        name = f"A-sst2-10000-{model}-0"
        _add(figures, out, "label-ways", MODELS[model][1], [name], {"SST-2": "value"}, seeds=(0,))
        if cost := found_in(out / name, "cost"):
            command = "python benchmarks/downstream.py cost --data DATA --out OUT"
            minutes = cost["seconds"] / 60
            figures.add("label-ways", MODELS[model][1], "minutes of training", minutes, command, unit="min", digits=1)


def _add_whole(figures: Figures, out: Path) -> None:
    if scores := found_in(out / WHOLE, "test"):
        item = next(item for item in items() if item.name == WHOLE)
        right = round(scores["value"] * scores["count"])
        bounds = binomtest(right, scores["count"]).proportion_ci(method="wilson")
        figures.add(
            "label-whole",
            "SST-2, all training rows",
            "accuracy",
            100 * scores["value"],
            score_command(item, "test", DATA, OUT),
            unit="%",
            interval={"low": 100 * bounds.low, "high": 100 * bounds.high},
            digits=1,
        )
    columns = {"F1": "f1", "exact match": "exact_match"}
    _add(figures, out, "label-answers", "SQuAD 1.1, six articles held out", [ANSWERS], columns, seeds=(0,))
    if compared := found_in(out / ANSWERS, "windows"):
        command = "python benchmarks/downstream.py windows --data DATA --out OUT"
        for row, scores in compared.items():
            for title, metric in columns.items():
                figures.add("label-windows", row, title, 100 * scores[metric], command, unit="%", digits=1)


def _add_examples(figures: Figures, out: Path) -> None:
    titles = {"0": "negative", "1": "positive"}
    for folder in (WHOLE, *(f"R-minilm-{rate}" for rate in RATES["minilm"])):
        for row, shares in (found_in(out / folder, "examples") or {}).items():
            for label, share in shares.items():
                command = "python benchmarks/downstream.py examples --out OUT"
                figures.add("label-examples", row, titles.get(label, label), 100 * share, command, unit="%", digits=0)


def _add_scarce(figures: Figures, out: Path) -> None:
    for data, seeds in (("sst2", SEEDS), ("snli", (0,))):
        for model in SCARCE:
            for size in SIZES:
                used = seeds if model in RATES else (0,)
                names = [f"C-{data}-{size}-{model}-{seed}" for seed in used]
                title = f"{ {'sst2': 'SST-2', 'snli': 'SNLI'}[data] }, {MODELS[model][1]}"
                _add(figures, out, "label-scarce", title, names, {f"{size:,}": "accuracy"}, seeds=used)


def _add_above(figures: Figures, out: Path) -> None:
    for data, (name, models, chosen) in TREES.items():
        for model in models:
            _, title, contexts, _ = ABOVE[model]
            for context in [context for context in contexts if context in chosen]:
                names = [f"E-{data}-{model}-{context.replace(' ', '-')}-{fold}" for fold in FOLDS]
                columns = {"accuracy": "accuracy", "macro-F1": "macro_f1"}
                _add(figures, out, "label-above", f"{name}, {title}: {context}", names, columns, seeds=(0,))
    columns = {"span F1": "span_f1", "precision": "precision", "recall": "recall", "accuracy of words": "accuracy"}
    for decoder, (_, title, _) in TAGGERS.items():
        names = [f"E-modes-{decoder}-{fold}" for fold in FOLDS]
        _add(figures, out, "label-tags", title, names, columns, seeds=(0,))


@reads_runs
def table(arguments: argparse.Namespace) -> None:
    """Compute the figures of all results that are there, print them, and write them to the rows of a page."""
    figures = Figures(arguments.commit or current_commit()[0], "", arguments.machine)
    for add in (_add_tasks, _add_ways, _add_whole, _add_examples, _add_scarce, _add_above):
        add(figures, arguments.out)
    for row in figures.rows:
        print(f"{row.table:<16} {row.row:<60} {row.column:<28} {in_full(row)}")
    if arguments.rows is not None:
        replace_rows(arguments.rows, figures.rows)


@reads_runs
def picture(arguments: argparse.Namespace) -> None:
    """Plot the scores of scarce labels, pretrained and from scratch."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = "ramify"
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for panel, (data, title, seeds) in zip(axes, (("sst2", "SST-2", SEEDS), ("snli", "SNLI", (0,))), strict=True):
        for number, model in enumerate(SCARCE):
            points = [
                (
                    size,
                    [
                        scores["value"]
                        for seed in seeds
                        if (scores := found_in(arguments.out / run_name(data, size, model, seed), "test"))
                    ],
                )
                for size in SIZES
            ]
            sizes = [size for size, values in points if values]
            means = [mean(values) for _, values in points if values]
            panel.plot(sizes, means, "o-", color=f"C{number}", label=MODELS[model][1])
        panel.set(xscale="log", xlabel="labelled texts", ylabel="accuracy", title=title)
    axes[0].legend(fontsize=8)
    arguments.svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(arguments.svg, metadata={"Date": None})


def run_name(data: str, size: int, model: str, seed: int) -> str:
    return f"C-{data}-{size}-{model}-{seed}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    prepare_ = commands.add_parser("prepare", help="write the splits and build the data sets")
    prepare_.set_defaults(call=prepare)
    prepare_.add_argument("--sets", type=Path, required=True)
    prepare_.add_argument("--out", type=Path, required=True)
    commands.add_parser("plan", help="print all runs").set_defaults(call=plan)
    run_ = commands.add_parser("run", help="carry out runs")
    run_.set_defaults(call=run)
    run_.add_argument("--data", type=Path, required=True)
    run_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    run_.add_argument("names", nargs="+")
    examples_ = commands.add_parser("examples", help="predict the labels of a few texts")
    examples_.set_defaults(call=examples)
    examples_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    cost_ = commands.add_parser("cost", help="time the training of a frozen and of a fine-tuned model")
    cost_.set_defaults(call=cost)
    cost_.add_argument("--data", type=Path, required=True)
    cost_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    windows_ = commands.add_parser("windows", help="score the model of questions with other windows")
    windows_.set_defaults(call=windows)
    windows_.add_argument("--data", type=Path, required=True)
    windows_.add_argument("--out", type=Path, required=True, help="folder of the runs")
    add_keep(commands, keep)
    add_figures(commands, table, picture, rows="downstream.jsonl", machine="F")
    arguments = parser.parse_args(words)
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())
