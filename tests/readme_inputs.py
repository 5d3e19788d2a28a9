"""The files that the README's commands read, written into the working directory."""

import json
from pathlib import Path

import zstandard

from ramify.readers.jsonl import read_jsonl

SAMPLE = Path(__file__).parents[1] / "src/ramify/sample/discussions.jsonl"


def write_dump(folder: Path) -> None:
    """Our sample as a Pushshift dump with the README's file names, and a tree with a masked comment."""
    submissions, comments = [], []
    for tree in read_jsonl(SAMPLE):
        names = [f"{'t3' if index == 0 else 't1'}_{node.id.replace('.', '')}" for index, node in enumerate(tree.nodes)]
        for index, node in enumerate(tree.nodes):
            post = {"id": names[index][3:], "author": node.author, "created_utc": int(node.time or 0), "subreddit": "sample"}
            if not node.parents:
                title, _, body = node.text.partition("\n\n")
                submissions.append(post | {"title": title, "selftext": body})
            else:
                comments.append(post | {"link_id": names[0], "parent_id": names[node.parents[0]], "body": node.text})
    for name, posts in (("RS_2019-04.zst", submissions), ("RC_2019-04.zst", comments)):
        lines = "".join(json.dumps(post) + "\n" for post in posts)
        (folder / name).write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    masked = {
        "id": "t",
        "nodes": [{"id": "p", "parent": None, "text": "Bread"}, {"id": "c42", "parent": "p", "text": "I [MASK] it."}],
    }
    (folder / "trees.jsonl").write_text(json.dumps(masked) + "\n")
    (folder / "channel.log").write_text("[10:00] <ann> where is the kernel log?\n[10:01] <bob> ann: dmesg shows it\n")


def write_books(folder: Path) -> None:
    """Twenty short books of the first comments of the sample's trees."""
    trees = list(read_jsonl(SAMPLE))
    (folder / "books").mkdir()
    for number, pair in enumerate(zip(trees[::2], trees[1::2])):
        chapters = ("\n\n".join(node.text for node in tree.nodes[:4]) for tree in pair)
        text = "\n\n".join(f"## Chapter {place}\n\n{chapter}" for place, chapter in enumerate(chapters, start=1))
        (folder / "books" / f"book-{number}.md").write_text(f"# Book {number}\n\n{text}\n", "utf-8")


def write_reviews(folder: Path) -> None:
    """Sixty labelled reviews, and two without a label."""
    words = {"positive": ("moving", "bright", "tender"), "negative": ("dull", "endless", "flat")}
    rows = [f"a {word} film my number {number},{label}" for number in range(10) for label in words for word in words[label]]
    (folder / "reviews.csv").write_text("\n".join(["review,stars", *rows]) + "\n")
    (folder / "new.csv").write_text("id,review\n1,a bright film\n2,a dull film\n")


if __name__ == "__main__":
    write_dump(Path())
    write_reviews(Path())
    write_books(Path())
