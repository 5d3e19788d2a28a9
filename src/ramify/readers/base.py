"""What all readers share: the post schema, the report of what was left out, the policies, and opening of archives.

A reader is a module with two functions, `refuses` and one of the others:

    refuses(path, head) -> str                why this file (its first decompressed 64 KiB; b"" for a folder) is not in my
                                              format, in a few words; "" where it is
    read(paths, report, **options)            "posts" formats yield record batches of `POSTS`, in any order;
                                              "trees" formats yield `Tree`s; `policy` among the parameters is given
    logs(paths, report, **options)            "logs" formats yield `chat.Log`s, whose messages stream: a log of a million
                                              need never be held as a whole

Readers stream, never import torch, and never stop at a bad record: they `skip` it in the report and go on. They raise
`RamifyError` for what no user would want skipped: an unreadable file, an unknown option.
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute

from ramify.errors import RamifyError
from ramify.tree import FIRST_TIME, LAST_TIME

pc: Any = pyarrow.compute
"""Its functions are made when it is imported: type checkers cannot see them."""

POSTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        # The id of the post that this one answers, within the same tree; null = a root.
        pa.field("parent", pa.string()),
        pa.field("tree", pa.string(), nullable=False),
        pa.field("author", pa.string()),
        pa.field("time", pa.float64()),
        pa.field("kind", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        # A JSON object, on a root only: what is said about the tree as a whole (title, topic, subreddit).
        pa.field("meta", pa.string()),
    ]
)

EITHER = POSTS.append(pa.field("or_parent", pa.string()))
"""`POSTS` of a format that leaves open which of two ids a parent's is: `or_parent`, where there is no `parent` in the tree."""

MUTE_TEXTS = {
    "[deleted]": "deleted",
    "[deleted by user]": "deleted",
    "[removed]": "removed",
    "[ Removed by Reddit ]": "removed",
}
"""Texts that stand for a post which is gone, and why. A reader of posts whose format says so otherwise puts one of them in."""

A_FOLDER = "a folder"
"""Why formats of single files refuse it."""

EXAMPLES = 10
BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 64 << 20
MAX_HELD_BYTES = 1 << 30


@dataclass
class Report:
    """What a build read, left out and mended: `read` = nodes kept + the sum of `skipped`.

    `read` counts posts seen in the input; a line that is no post at all counts too, and is skipped. `kept` counts posts that
    stayed but were changed, and nodes that were made up. `bytes` is how far the input files were read, compressed.
    """

    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    bytes: int = 0

    def skip(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count posts that are left out. `where`: file and line, or tree and post."""
        self._count(self.skipped, reason, where, count)

    def mend(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count posts that are kept after a repair."""
        self._count(self.kept, reason, where, count)

    def example(self, reason: str, where: str) -> None:
        """Remember where it happened, the first few times."""
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(where)

    def _count(self, counter: Counter[str], reason: str, where: str, count: int) -> None:
        if count:
            counter[reason] += count
            if where:
                self.example(reason, where)


@dataclass(frozen=True)
class Policy:
    """What happens to posts that do not fit into a tree; the first value of each is the default.

    deleted, empty   `reattach`: left out, its children hang on its nearest living ancestor (a root with children stays, as
                     an empty placeholder); `keep`: stays as it is; `drop`: left out with everything below it; `tree`: left out
                     with the whole tree
    orphan           its parent is not in its tree. `root`: hangs on the root; `drop`: left out with everything below it
    missing_parent   a comment of a Reddit format names no parent. `root`: it hangs on its submission; `drop`: left out
    cycle            its ancestors form a ring. `drop`: left out with everything below it; `root`: the ring's first post hangs
                     on the root
    duplicate_id     two posts of a tree have the same id, or two whole trees have: the `first` or the `last` in the input stays
    two_roots        `split`: a tree for each root; `first`: the tree of the first root stays; `forest`: a tree of many roots
    missing_root     `placeholder`: an empty root is made up; `drop`: the posts are left out
    """

    deleted: Literal["reattach", "keep", "drop", "tree"] = "reattach"
    empty: Literal["reattach", "keep", "drop", "tree"] = "reattach"
    orphan: Literal["root", "drop"] = "root"
    missing_parent: Literal["root", "drop"] = "root"
    cycle: Literal["drop", "root"] = "drop"
    duplicate_id: Literal["first", "last"] = "first"
    two_roots: Literal["split", "first", "forest"] = "split"
    missing_root: Literal["placeholder", "drop"] = "placeholder"

    @classmethod
    def named(cls, values: Mapping[str, str]) -> "Policy":
        """From the names that users write; raises with what there is to choose from."""
        choices = {name: get_args(kind) for name, kind in get_type_hints(cls).items()}
        for case, what in values.items():
            if case not in choices:
                raise RamifyError(f"there is no policy for {case!r}; the cases are {', '.join(choices)}.")
            if what not in choices[case]:
                raise RamifyError(f"the policy for {case} is {' or '.join(choices[case])}, not {what!r}.")
        return cls(**values)  # pyright: ignore[reportArgumentType]


def bad_option(name: str, takes: str, value: object) -> RamifyError:
    """What a reader raises where it cannot use the value of one of its options."""
    return RamifyError(f"the option {name!r} takes {takes}, not {value!r:.80}.")


def lacks(path: Path, head: bytes, *marks: bytes) -> str:
    """For `refuses`: the first of the marks that is not among a file's first bytes; "" where all are."""
    if path.is_dir():
        return A_FOLDER
    return next((f"no {mark.decode()} among its first bytes" for mark in marks if mark not in head), "")


def in_seconds(times: pa.Array) -> pa.Array:
    """Since 1970, from numbers: those that would be after the year 9999 are milliseconds."""
    return on_calendar(pc.if_else(pc.greater(pc.abs(times), LAST_TIME), pc.divide(times, 1000.0), times))


def on_calendar(times: pa.Array) -> pa.Array:
    """Null for what no calendar has: seconds before the year 1 or after 9999, infinity, no number at all."""
    return pc.if_else(pc.and_(pc.greater_equal(times, FIRST_TIME), pc.less_equal(times, LAST_TIME)), times, None)


def free_id(name: str, taken: Container[str]) -> str:
    """An id for a root that is made up: its tree's, unless some post has that."""
    while name in taken:
        name += "/root"
    return name


class Held:
    """Counts the decompressed bytes that a reader must hold as a whole, for no memory bound covers them.

    Raises `RamifyError` past MAX_HELD_BYTES; `what` says between the file's name and the limit what is too much.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy = what, remedy
        self._bytes = 0

    def add(self, path: Path, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_HELD_BYTES:
            raise RamifyError(
                f"{path} {self._what} more than {MAX_HELD_BYTES >> 30} GiB, which would have to be held as a whole. "
                f"{self._remedy}"
            )

    def read(self, stream: io.BufferedReader, path: Path) -> bytes:
        """The rest of a file; where it is too much, no more than the limit is read."""
        data = bytearray()
        while block := stream.read(BLOCK_BYTES):
            self.add(path, len(block))
            data += block
        return bytes(data)


INTO_A_FILE = "Write what comes from it into a file first."


def read_twice(path: Path, remedy: str) -> None:
    """Raise where a file cannot be opened a second time to the same bytes: what the first look took from a pipe is gone."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise RamifyError(f"{path} is a pipe, of which nothing can be read twice. {remedy}")


# --- opening files ----------------------------------------------------------------------------------------------------


def open_bytes(path: Path, report: Report | None = None) -> io.BufferedReader:
    """The decompressed bytes of a file: zstd (windows up to 2 GiB, many frames), bzip2, gzip, xz or plain, told by content.

    Raises `RamifyError` for an empty file, and while reading for a damaged or truncated archive. `report.bytes` follows.
    """
    raw: io.BufferedReader = io.BufferedReader(_File(path, report), buffer_size=1 << 18)
    magic = raw.peek(6)
    if magic.startswith(_ZSTD_MAGIC):
        inner = _Zstd(raw)
    elif magic.startswith(b"BZh"):
        inner = _Streams(raw, bz2.BZ2Decompressor)
    elif magic.startswith(b"\x1f\x8b"):
        inner = gzip.GzipFile(fileobj=raw)
    elif magic.startswith(b"\xfd7zXZ\x00"):
        inner = _Streams(raw, lzma.LZMADecompressor)
    else:
        inner = raw
    stream: io.BufferedReader = io.BufferedReader(_Checked(inner, path), buffer_size=1 << 20)
    if not stream.peek(1):
        raise RamifyError(f"{path} is empty. Check that it was written or downloaded completely.")
    return stream


_WIDE = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, where the first bytes are the mark of one of them."""
    return next((name for mark, name in _WIDE.items() if head.startswith(mark)), None)


def blocks(
    stream: io.BufferedReader,
    report: Report,
    path: Path,
    *,
    size: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[tuple[range, bytes]]:
    """Blocks of whole lines, each with their numbers. Lines end with b"\\n" only; a byte order mark is dropped.

    A longer line is never held as a whole: an empty one stands in its place, and it is counted as read and `too_long`.
    """
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    number = 1
    # What has come, not all that would fill a block: a pipe may go on for days.
    while block := stream.read1(size):
        if not block.endswith(b"\n"):
            block += stream.readline(max_line_bytes)
        too_long = not block.endswith(b"\n") and bool(stream.peek(1))
        if too_long:
            block = block[: block.rfind(b"\n") + 1] + b"\n"
            _skip_line(stream)
        numbers = range(number, number + block.count(b"\n") + (not block.endswith(b"\n")))
        if too_long:
            report.read += 1
            report.skip("too_long", f"{path}, line {numbers[-1]}: longer than {max_line_bytes:,} bytes")
        yield numbers, block
        number = numbers.stop


def _skip_line(stream: io.BufferedReader) -> None:
    while (rest := stream.readline(BLOCK_BYTES)) and not rest.endswith(b"\n"):
        pass


def lines(
    stream: io.BufferedReader, report: Report, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[list[bytes]]:
    """Blocks of lines without their ends. Blank lines are there, so that the line number can be counted along."""
    for _, block in blocks(stream, report, path, max_line_bytes=max_line_bytes):
        yield block.removesuffix(b"\n").split(b"\n")


_SLICE = 1 << 16

_ZSTD_MAGIC = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16)))
_ZSTD_WINDOW = 2**31
# Small slices of input, because one slice is decompressed as a whole: 4 KiB may stand for 128 MiB of equal bytes.
_ZSTD_SLICE = 4 << 10


class _File(io.FileIO):
    """A file that tells the report how far it was read."""

    def __init__(self, path: Path, report: Report | None) -> None:
        super().__init__(path)
        self._report = report

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            size = super().readinto(buffer)
        except OSError as error:
            raise RamifyError(f"cannot read {self.name}: {error.strerror or error}.") from None
        if self._report is not None:
            self._report.bytes += size or 0
        return size


class _Zstd(io.RawIOBase):
    """Decompressed zstd frames. The library's own stream reader takes a truncated frame for the end of the file."""

    def __init__(self, raw: io.BufferedReader) -> None:
        import zstandard

        self._raw = raw
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._error = zstandard.ZstdError
        self._frame = None
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while not self._ready:
            data = self._raw.read(_ZSTD_SLICE)
            if not data:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a zstd frame")
                return 0
            self._ready = memoryview(self._decompress(data))
        target = memoryview(buffer).cast("B")
        size = min(len(target), len(self._ready))
        target[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _decompress(self, data: bytes) -> bytes:
        output = []
        while data:
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                output.append(self._frame.decompress(data))
            except self._error as error:
                raise OSError(str(error)) from None
            data = b""
            if self._frame.eof:
                data, self._frame = self._frame.unused_data, None
        return b"".join(output)


class _Streams(io.RawIOBase):
    """A bzip2 or xz file of one or more streams, decompressed. The library's own readers take a later stream that is damaged
    for the end of the file."""

    def __init__(self, raw: io.BufferedReader, begin: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor]) -> None:
        self._raw, self._begin = raw, begin
        self._stream = begin()
        self._begun = False
        self._data = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        target = memoryview(buffer).cast("B")
        while True:
            if self._stream.eof:
                # Zeros may fill a stream of xz up.
                self._data = self._stream.unused_data.lstrip(b"\0")
                self._stream, self._begun = self._begin(), False
            if self._stream.needs_input and not self._data:
                self._data = self._raw.read(_SLICE)
                if not self._data:
                    if self._begun:
                        raise EOFError("it ends in the middle of a stream")
                    return 0
                self._data = self._data if self._begun else self._data.lstrip(b"\0")
                if not self._data:
                    continue
            found, self._data = self._stream.decompress(self._data, len(target)), b""
            self._begun = True
            if found:
                target[: len(found)] = found
                return len(found)


class _Checked(io.RawIOBase):
    """Turns what decompressors raise on damaged and truncated archives into a message that names the file."""

    def __init__(self, inner: io.RawIOBase | io.BufferedIOBase, path: Path) -> None:
        self._inner = inner
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            if not isinstance(self._inner, io.BufferedReader):
                return self._inner.readinto(buffer)
            # What is not compressed may be a pipe, which is not waited for until the buffer is full (as readinto1 does when
            # it has something).
            came = self._inner.read1(len(buffer))
            buffer[: len(came)] = came
            return len(came)
        except EOFError as error:
            raise RamifyError(
                f"{self._path} is truncated ({error}). Download or copy it again and compare its size with the source's."
            ) from None
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise RamifyError(f"{self._path} cannot be read ({error}). Is the archive damaged? Download it again.") from None

    def close(self) -> None:
        self._inner.close()
        super().close()
