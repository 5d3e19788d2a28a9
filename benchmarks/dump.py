"""Measure speed and memory of `ramify data build` on a Reddit dump.

The benchmark writes a dump of invented comments in Reddit's full schema (about 1.1 KB per line, natural lengths, threads
scattered) and builds it in a fresh process. It prints comments per CPU second (user + system, including process start) and the
peak resident memory.

    python benchmarks/dump.py --comments 2_000_000
"""

import argparse
import json
import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import zstandard

from rows import add_options, append_rows

COMMENTS_PER_THREAD = 17
START = 1_546_300_800
SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvwz" for vowel in "aeiou"]
# JSON text that follows a word: ends of sentences and paragraphs, quotations, entities, letters beyond ASCII.
ENDS = [" ", ". ", ", ", r".\n\n", r"\" ", " &amp; ", r"\u2019s ", "é "]
END_SHARES = [0.845, 0.07, 0.05, 0.01, 0.01, 0.002, 0.01, 0.003]

COMMENT = (
    '{"all_awardings":[],"approved_at_utc":null,"archived":false,"associated_award":null,"author":"%s",'
    '"author_created_utc":%d,"author_flair_background_color":null,"author_flair_css_class":null,'
    '"author_flair_richtext":[],"author_flair_template_id":null,"author_flair_text":null,'
    '"author_flair_text_color":null,"author_flair_type":"text","author_fullname":"t2_%s",'
    '"author_patreon_flair":false,"body":"%s","can_gild":true,"can_mod_post":false,"collapsed":false,'
    '"collapsed_reason":null,"controversiality":0,"created_utc":%d,"distinguished":null,"edited":false,'
    '"gilded":0,"gildings":{},"id":"%s","is_submitter":false,"link_id":"t3_%s","locked":false,"no_follow":true,'
    '"parent_id":"%s","permalink":"/r/benchmark/comments/%s/made_up_for_the_benchmark/%s/",'
    '"quarantined":false,"removal_reason":null,"retrieved_on":%d,"score":%d,"send_replies":true,"stickied":false,'
    '"subreddit":"benchmark","subreddit_id":"t5_2qh0u","subreddit_name_prefixed":"r/benchmark",'
    '"subreddit_type":"public","total_awards_received":0}\n'
)
SUBMISSION = (
    '{"author":"%s","created_utc":%d,"domain":"self.benchmark","id":"%s","is_self":true,"num_comments":0,'
    '"over_18":false,"permalink":"/r/benchmark/comments/%s/","score":1,"selftext":"%s","subreddit":"benchmark",'
    '"subreddit_id":"t5_2qh0u","title":"%s"}\n'
)


def base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


class Words:
    """Texts of invented words with Zipf-like frequencies, sliced from one long stream."""

    def __init__(self, rng: np.random.Generator, vocabulary: int = 20_000, length: int = 2_000_000) -> None:
        words = ["".join(rng.choice(SYLLABLES, size=1 + rank.bit_length() // 6)) for rank in range(vocabulary)]
        ranks = (vocabulary ** rng.random(length)).astype(int) - 1
        ends = rng.choice(ENDS, size=length, p=END_SHARES)
        stream = [words[rank] + end for rank, end in zip(ranks.tolist(), ends.tolist())]
        self.starts = np.cumsum([0, *map(len, stream)])
        self.stream = "".join(stream)

    def texts(self, rng: np.random.Generator, count: int, median: int, spread: float) -> Iterator[str]:
        """Yield texts whose length in words is log-normal."""
        words = np.clip(rng.lognormal(np.log(median), spread, count), 1, 1_800).astype(int)
        first = rng.integers(0, len(self.starts) - 2_000, count)
        for start, end in zip(self.starts[first].tolist(), self.starts[first + words].tolist()):
            yield self.stream[start:end].rstrip()


def write_dump(folder: Path, comments: int, seed: int = 0) -> None:
    """Write RS_made_up.zst and RC_made_up.zst, and their decompressed size to the file `bytes`."""
    rng = np.random.default_rng(seed)
    words = Words(rng)
    threads = max(1, comments // COMMENTS_PER_THREAD)
    size = 0
    with zstandard.open(folder / "RS_made_up.zst", "wb") as file:
        for thread, (title, text) in enumerate(zip(words.texts(rng, threads, 9, 0.5), words.texts(rng, threads, 60, 1.1))):
            name = base36(1_000_000 + thread)
            line = SUBMISSION % (f"author_{thread % 5_000}", START, name, name, text, title)
            size += file.write(line.encode())
    # Thread sizes follow a power law; the comments of a thread are scattered over the whole file.
    popularity = (1 + np.arange(threads)) ** -0.6
    where = rng.choice(threads, size=comments, p=popularity / popularity.sum())
    authors = rng.zipf(1.3, comments) % 400_000
    to_post, back = rng.random(comments) < 0.4, rng.geometric(0.2, comments)
    scores = rng.integers(-5, 200, comments)
    posted: list[list[str]] = [[] for _ in range(threads)]
    with zstandard.open(folder / "RC_made_up.zst", "wb") as file:
        drawn = zip(where.tolist(), authors.tolist(), to_post.tolist(), back.tolist(), scores.tolist())
        texts = words.texts(rng, comments, 21, 1.15)
        for number, ((thread, author, top, steps, score), text) in enumerate(zip(drawn, texts)):
            name, link = base36(30_000_000_000 + number), base36(1_000_000 + thread)
            earlier = posted[thread]
            parent = f"t3_{link}" if top or not earlier else f"t1_{earlier[-min(steps, len(earlier))]}"
            earlier.append(name)
            seconds = START + number // 4
            line = COMMENT % (
                f"author_{author}", START, base36(9_000_000 + author), text, seconds,
                name, link, parent, link, name, seconds, score,
            )  # fmt: skip
            size += file.write(line.encode())
    (folder / "bytes").write_text(str(size))


def build(dump: Path, out: Path, options: list[str]) -> dict:
    """Run `ramify data build` in a fresh process and measure it from the parent."""
    inputs = [str(dump / "RS_made_up.zst"), str(dump / "RC_made_up.zst")]
    command = [sys.executable, "-c", "from ramify.cli import main; main()", "data", "build", *inputs]
    process = subprocess.Popen([*command, "--format", "pushshift", "--out", str(out), "--overwrite", *options])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"`ramify data build` failed with wait status {status}; see its output above.")
    return {"user_s": usage.ru_utime, "system_s": usage.ru_stime, "peak_rss_mib": usage.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comments", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help="folder that keeps the dump and the store (default: a temporary folder)")
    parser.add_argument("options", nargs="*", help="further options of `ramify data build`, after --")
    add_options(parser)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="ramify-dump-"))
    folder.mkdir(parents=True, exist_ok=True)
    # A separate process writes the dump, because a child's peak memory starts from its parent's memory.
    writer = multiprocessing.get_context("spawn").Process(target=write_dump, args=(folder, arguments.comments))
    writer.start()
    writer.join()
    size = int((folder / "bytes").read_text())
    result = {"comments": arguments.comments, "dump_mib": size / 2**20, "bytes_per_comment": size / arguments.comments}
    result |= build(folder, folder / "store", arguments.options)
    result["comments_per_cpu_s"] = arguments.comments / (result["user_s"] + result["system_s"])
    result["store_mib"] = sum(file.stat().st_size for file in (folder / "store").iterdir()) / 2**20
    result |= {"machine": platform.processor() or platform.machine(), "python": platform.python_version()}
    for name, value in result.items():
        print(f"{name:>20}  {value:,.1f}" if isinstance(value, float) else f"{name:>20}  {value}")
    print(json.dumps(result))
    append_rows(arguments, "data-build", f"{arguments.comments} comments", result)
    if arguments.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
