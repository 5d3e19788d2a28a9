"""Shared parts of all readers: the post schema, the counts, the policies, and opening of archives.

A reader is a module with two functions, `refuses` and one of the others:

    refuses(path, head) -> str                the reason why a file is not in this format; "" if it is. `head` holds the
                                              first 64 KiB, decompressed (b"" for a folder)
                                              A reader of tables may take a third argument, the columns that the user names
    read(paths, counts, **options)            "posts" formats yield record batches of `POSTS`, in any order;
                                              "trees" formats yield `Tree`s. A parameter `policy` receives the policy
    logs(paths, counts, **options)            "logs" formats yield `chat.Log`s, whose messages stream, so that a long log
                                              is never held as a whole

Readers stream and never import torch. They skip a bad record, count it and continue (`guarded`). They raise `RamifyError` for
faults that the user has to correct: an unreadable file, an unknown option. An option whose type lists its values is checked
before the reader is called (`Format.check`).
"""

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import pyarrow as pa
import pyarrow.compute

from ramify.errors import RamifyError, shortened, shown
from ramify.files import STANDARD, StandardInput
from ramify.readers.listing import list_files
from ramify.readers.recoding import Recoded, wide_encoding
from ramify.tree import FIRST_TIME, LAST_TIME

pc: Any = pyarrow.compute
"""`pyarrow.compute`, typed as `Any` because its functions are generated at import, where type checkers cannot see them."""

POSTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        # The id of the parent in the same tree; null for a root.
        pa.field("parent", pa.string()),
        pa.field("tree", pa.string(), nullable=False),
        pa.field("author", pa.string()),
        pa.field("time", pa.float64()),
        pa.field("kind", pa.string()),
        pa.field("text", pa.large_string(), nullable=False),
        # A JSON object, on roots only: metadata of the tree (title, topic, subreddit).
        pa.field("meta", pa.string()),
    ]
)

EITHER = POSTS.append(pa.field("or_parent", pa.string()))
"""`POSTS` of a format with ambiguous parent ids. `or_parent` is the parent if `parent` is not in the tree. A
post that is its own `or_parent` is then a root."""

GROUPED = POSTS.append(pa.field("group", pa.string(), nullable=False))
"""`POSTS` of trees in groups. All posts of a tree have the same group, and the root's metadata repeat it."""

MUTE_TEXTS = {
    "[deleted]": "deleted",
    "[deleted by user]": "deleted",
    "[removed]": "removed",
    "[ Removed by Reddit ]": "removed",
}
"""Texts that stand for a lost post, and the reason. Readers of formats with another marker write one of these texts instead."""

A_FOLDER = "a folder"
"""The reason why a format of single files refuses a folder."""

EXAMPLES = 10
BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 64 << 20
MAX_HELD_BYTES = 1 << 30


@dataclass
class ReadCounts:
    """Counts of read, skipped and repaired posts: `read` = posts in the result + the sum of `skipped`.

    `read` counts the posts of the input, including lines that are skipped because they hold no post. `kept` counts posts that
    were repaired, and placeholder nodes. `bytes` counts the bytes read from the input files, before decompression.
    `unread_columns` names, by file, the columns that the reader does not use. `datasets` counts the labelled texts by data set;
    "" stands for texts of unknown data sets.
    """

    read: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    bytes: int = 0
    unread_columns: dict[str, list[str]] = field(default_factory=dict)
    datasets: Counter[str] = field(default_factory=Counter)
    spellings: dict[str, str] = field(default_factory=dict)
    """Folder into which an archive was unpacked -> the archive, which messages name instead."""

    def spelled(self, text: str) -> str:
        """The text with archives named in place of the folders into which they were unpacked."""
        for folder, archive in self.spellings.items():
            text = text.replace(folder, archive)
        return text

    def unread(self, path: Path, columns: Iterable[str]) -> None:
        """Record the columns of a file that the reader does not use."""
        if names := list(dict.fromkeys(columns)):
            self.unread_columns[self.spelled(str(path))] = names

    def skip(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count posts that are left out. `where` names file and line, or tree and post."""
        self._count(self.skipped, reason, where, count)

    def leave_out(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count posts that are left out and not in `read` yet."""
        self.read += count
        self.skip(reason, where, count)

    def repair(self, reason: str, where: str = "", count: int = 1) -> None:
        """Count posts that are kept after a repair."""
        self._count(self.kept, reason, where, count)

    def example(self, reason: str, where: str) -> None:
        """Record the place of one of the first cases."""
        examples = self.examples.setdefault(reason, [])
        if len(examples) < EXAMPLES:
            examples.append(shortened(self.spelled(where)))

    def _count(self, counter: Counter[str], reason: str, where: str, count: int) -> None:
        if count:
            counter[reason] += count
            if where:
                self.example(reason, where)


@dataclass(frozen=True)
class Policy:
    """Handling of posts that do not fit into a tree. The first value of each case is the default.

    deleted, empty   The post was deleted or has no text. `reattach`: remove it and attach its children to its nearest remaining
                     ancestor (a root with children becomes an empty placeholder); `keep`: keep it; `drop`: remove it with
                     its descendants; `tree`: remove the whole tree
    orphan           The parent is not in the tree. `root`: attach the post to the root; `drop`: remove it with its descendants
    missing_parent   A Reddit comment names no parent. `root`: attach it to its submission; `drop`: remove it
    cycle            The ancestors form a cycle. `drop`: remove the post with its descendants; `root`: attach the first post of
                     the cycle to the root
    duplicate_id     Two posts of a tree, or two trees, have the same id. Keep the `first` or the `last` in the input
    two_roots        `split`: one tree per root; `first`: keep the tree of the first root; `forest`: one tree with many roots
    missing_root     `placeholder`: add an empty root; `drop`: remove the posts
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
        """Build a policy from strings. Raises `RamifyError` with the choices for an unknown case or value."""
        choices = {name: get_args(kind) for name, kind in get_type_hints(cls).items()}
        for case, value in values.items():
            if case not in choices:
                raise RamifyError(f"there is no policy for {case!r}. The cases are {', '.join(choices)}.")
            if value not in choices[case]:
                raise RamifyError(f"the policy {case}={value!r} does not exist. Choose {' or '.join(choices[case])}.")
        return cls(**values)  # pyright: ignore[reportArgumentType]


def bad_option(name: str, takes: str, value: object) -> RamifyError:
    """The error for an invalid value of a reader's option."""
    return RamifyError(f"the option {name}={shown(value)} is invalid. Expected {takes}.")


def lacks(path: Path, head: bytes, *marks: bytes) -> str:
    """For `refuses`: name the first mark that is missing from the first bytes of a file; "" if none is."""
    if path.is_dir():
        return A_FOLDER
    return next((f"no {mark.decode()} among its first bytes" for mark in marks if mark not in head), "")


def in_seconds(times: pa.Array) -> pa.Array:
    """Seconds since 1970 from numbers. Numbers beyond the year 9999 are read as milliseconds."""
    return on_calendar(pc.if_else(pc.greater(pc.abs(times), LAST_TIME), pc.divide(times, 1000.0), times))


def on_calendar(times: pa.Array) -> pa.Array:
    """Replace times outside the years 1 to 9999, infinities and NaN with null."""
    return pc.if_else(pc.and_(pc.greater_equal(times, FIRST_TIME), pc.less_equal(times, LAST_TIME)), times, None)


Part = TypeVar("Part")


def guarded(read: Callable[..., Iterable[Part]], where: str, counts: ReadCounts, *arguments: Any) -> Iterator[Part]:
    """Yield what a function makes of one record. Whatever it raises ends the record (see `skip_record`)."""
    try:
        yield from read(*arguments)
    except Exception as error:
        skip_record(error, where, counts)


def skip_record(error: Exception, where: str, counts: ReadCounts) -> None:
    """Count a record that raised an error as `bad_row`, for loops in which `guarded` would take too much time."""
    counts.leave_out("bad_row", f"{where}: {fault_of(error)}")


def fault_of(error: Exception) -> str:
    """The description of an error about one record.

    A `RamifyError` is raised again, and so are errors of the system, because neither is about a single record.
    """
    if isinstance(error, RamifyError | OSError | MemoryError):
        raise error
    return f"{type(error).__name__}: {error}"


def free_id(name: str, taken: Container[str]) -> str:
    """An unused id for a placeholder root: the id of its tree, with "/root" appended while a post has that id."""
    while name in taken:
        name += "/root"
    return name


class Held:
    """Counts the decompressed bytes that a reader must hold in memory as a whole.

    Raises `RamifyError` above MAX_HELD_BYTES. `what` is the part of the message between the file's name and the limit.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy = what, remedy
        self._bytes = 0

    def add(self, path: Path, size: int) -> None:
        self._bytes += size
        if self._bytes > MAX_HELD_BYTES:
            raise RamifyError(
                f"{path} {self._what} more than {MAX_HELD_BYTES >> 30} GiB, which must fit in memory as a whole. {self._remedy}"
            )

    def read(self, stream: io.BufferedReader, path: Path) -> bytes:
        """Read the rest of a file, but no more than the limit."""
        data = bytearray()
        while block := stream.read(BLOCK_BYTES):
            self.add(path, len(block))
            data += block
        return bytes(data)


def fitting_files(
    paths: Sequence[Path], fits: Callable[[Path], bool], counts: ReadCounts, *, beside: Container[str] = ()
) -> Iterator[Path]:
    """The named files, and those in the named folders that fit. Other files in a folder are counted as `other_file`, unless
    their names are those of files that a reader reads `beside` them."""
    for path in paths:
        for file in list_files([path]):
            if not path.is_dir() or fits(file):
                yield file
            elif file.name not in beside:
                counts.leave_out("other_file", f"{file}")


INTO_A_FILE = "Write its content to a file first."


def read_twice(path: Path, remedy: str) -> None:
    """Raise `RamifyError` for a pipe, because bytes that were read from it cannot be read again.

    Standard input (`-`) passes: `open_bytes` keeps its beginning, and raises if more of it is read twice.
    """
    if path != STANDARD and path.exists() and not path.is_file() and not path.is_dir():
        raise RamifyError(f"{path} is a pipe, which can be read only once. {remedy}")


def read_before(path: Path) -> None:
    """Announce that a file is read once before it is read in earnest: standard input is copied to disk as it is read."""
    if path == STANDARD:
        StandardInput.keep()


def check_not_standard(path: Path, what: str, reason: str) -> None:
    """Raise `RamifyError` for standard input in a format that cannot be read from it."""
    if path == STANDARD:
        raise RamifyError(f"{what} cannot be read from standard input, because {reason}. {INTO_A_FILE}")


def file_name(path: Path) -> str:
    """The name of a file, from which a log without a name takes its own."""
    return "stdin" if path == STANDARD else path.name


# --- opening files ----------------------------------------------------------------------------------------------------


def open_packed(path: Path, counts: ReadCounts | None = None) -> io.BufferedReader:
    """Open a file, or standard input (`-`), without decompressing it. `counts.bytes` counts along. Raises `RamifyError` if the
    system refuses."""
    try:
        source = _Counted(StandardInput(), counts) if path == STANDARD else _File(path, counts)
    except IsADirectoryError:
        raise RamifyError(f"{path} is a folder, but a file is needed. Name a file in it.") from None
    except OSError as error:
        raise RamifyError(f"{path} cannot be read: {error.strerror}. Check its path and permissions.") from None
    return io.BufferedReader(source, buffer_size=1 << 18)


def open_bytes(path: Path, counts: ReadCounts | None = None, *, archives: bool = False) -> io.BufferedReader:
    """Open a file, or standard input (`-`), for reading, and decompress it: zstd (windows up to 2 GiB, many frames), bzip2,
    gzip, xz or plain. UTF-16 and UTF-32 become UTF-8.

    The compression and the encoding are detected from the content. `counts.bytes` counts along. Raises `RamifyError` for an
    empty file, for a pointer of Git LFS, for an archive of files (with `archives`, ZIP and tar pass) and, while reading, for
    damaged or truncated compressed data.
    """
    raw: io.BufferedReader = open_packed(path, counts)
    magic = raw.peek(6)
    if magic.startswith(_LFS_POINTER):
        raise RamifyError(f"{path} is a pointer of Git LFS, not the file itself. Fetch the file: git lfs pull")
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
        called = "standard input" if path == STANDARD else path
        raise RamifyError(f"{called} is empty. Check that it was written or downloaded completely.")
    head = stream.peek()
    kind = archive_kind(head)
    if kind in UNREAD_ARCHIVES or (kind and not archives):
        remedy = UNREAD_ARCHIVES.get(kind, "Name it as an input of its own, or unpack it.")
        raise RamifyError(f"{path} is {kind}, whose bytes are not text. {remedy}")
    if wide := wide_encoding(head):
        stream = io.BufferedReader(Recoded(stream, wide, "utf-8", by_returns=False), buffer_size=1 << 20)
    return stream


ZIP, TAR = "a ZIP archive", "a tar archive"
ARCHIVE_MARKS = {
    b"PK\x03\x04": ZIP,
    b"PK\x05\x06": ZIP,
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
}
UNREAD_ARCHIVES = {
    "a 7z archive": "Unpack it (7z x FILE) and name the folder.",
    "a RAR archive": "Unpack it (unrar x FILE) and name the folder.",
}
_TAR_MARK = slice(257, 262), b"ustar"


def archive_kind(head: bytes) -> str:
    """The kind of archive of files, from its first bytes, decompressed; "" for other files."""
    place, mark = _TAR_MARK
    return TAR if head[place] == mark else next((kind for mark, kind in ARCHIVE_MARKS.items() if head.startswith(mark)), "")


def blocks(
    stream: io.BufferedReader,
    counts: ReadCounts,
    path: Path,
    *,
    size: int = BLOCK_BYTES,
    max_line_bytes: int = MAX_LINE_BYTES,
) -> Iterator[tuple[range, bytes]]:
    """Yield blocks of whole lines with the numbers of their lines. Lines end with b"\\n"; a byte order mark is dropped.

    A line above `max_line_bytes` is never held as a whole. It is replaced with an empty line and counted as `too_long`.
    """
    if stream.peek(3).startswith(codecs.BOM_UTF8):
        stream.read(3)
    number = 1
    # `read1` returns the bytes that have arrived. `read` would wait for a full block, and a pipe may stay open for days.
    while block := stream.read1(size):
        if not block.endswith(b"\n"):
            block += stream.readline(max_line_bytes)
        too_long = not block.endswith(b"\n") and bool(stream.peek(1))
        if too_long:
            block = block[: block.rfind(b"\n") + 1] + b"\n"
            _skip_line(stream)
        numbers = range(number, number + block.count(b"\n") + (not block.endswith(b"\n")))
        if too_long:
            counts.leave_out("too_long", f"{path}, line {numbers[-1]}: longer than {max_line_bytes:,} bytes")
        yield numbers, block
        number = numbers.stop


def _skip_line(stream: io.BufferedReader) -> None:
    while (rest := stream.readline(BLOCK_BYTES)) and not rest.endswith(b"\n"):
        pass


def lines(
    stream: io.BufferedReader, counts: ReadCounts, path: Path, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Iterator[list[bytes]]:
    """Yield blocks of lines without line ends. Blank lines are included, so that callers can count line numbers."""
    for _, block in blocks(stream, counts, path, max_line_bytes=max_line_bytes):
        yield block.removesuffix(b"\n").split(b"\n")


_SLICE = 1 << 16

_ZSTD_MAGIC = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + n, 0x2A, 0x4D, 0x18]) for n in range(16)))
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_ZSTD_WINDOW = 2**31
# Small, because one slice is decompressed as a whole: 4 KiB may expand to 128 MiB of equal bytes.
_ZSTD_SLICE = 4 << 10


class _File(io.FileIO):
    """A file that counts the bytes read from it."""

    def __init__(self, path: Path, counts: ReadCounts | None) -> None:
        super().__init__(path)
        self._counts = counts

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            size = super().readinto(buffer)
        except OSError as error:
            raise RamifyError(f"cannot read {self.name}: {error.strerror or error}.") from None
        if self._counts is not None:
            self._counts.bytes += size or 0
        return size


class _Counted(io.RawIOBase):
    """A stream that counts the bytes read from it."""

    def __init__(self, stream: io.RawIOBase, counts: ReadCounts | None) -> None:
        self._stream, self._counts = stream, counts

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        size = self._stream.readinto(buffer) or 0
        if self._counts is not None:
            self._counts.bytes += size
        return size


class _Zstd(io.RawIOBase):
    """Decompressed zstd frames. The library's own stream reader mistakes a truncated frame for the end of the file."""

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
    """A decompressed bzip2 or xz file of one or more streams.

    The library's own readers mistake damage in a later stream for the end of the file.
    """

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
                # An xz stream may be padded with zeros.
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
            data, self._data = self._stream.decompress(self._data, len(target)), b""
            self._begun = True
            if data:
                target[: len(data)] = data
                return len(data)


class _Checked(io.RawIOBase):
    """Converts the errors of decompressors into `RamifyError`s that name the file."""

    def __init__(self, inner: io.RawIOBase | io.BufferedIOBase, path: Path) -> None:
        self._inner = inner
        self._path = path

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        try:
            if not isinstance(self._inner, io.BufferedReader):
                return self._inner.readinto(buffer)
            # An uncompressed stream may be a pipe. `read1` returns what has arrived; `readinto` would wait for a full buffer.
            data = self._inner.read1(len(buffer))
            buffer[: len(data)] = data
            return len(data)
        except EOFError as error:
            raise RamifyError(
                f"{self._path} is truncated ({error}). Download or copy it again and compare its size with the source's."
            ) from None
        except (zlib.error, lzma.LZMAError, OSError) as error:
            raise RamifyError(f"{self._path} cannot be read ({error}). If the archive is damaged, download it again.") from None

    def close(self) -> None:
        self._inner.close()
        super().close()
