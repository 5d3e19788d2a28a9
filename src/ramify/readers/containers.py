"""ZIP and tar archives of any reader's files, unpacked into a temporary folder."""

import shutil
import tarfile
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO

from ramify.errors import RamifyError, counted
from ramify.readers.archives import FREE_BYTES, MAX_RATIO, Archive, leads_out
from ramify.readers.base import TAR, ZIP, archive_kind, check_not_standard, open_bytes, read_twice
from ramify.readers.listing import is_foreign
from ramify.readers.names import unpacked as without_compression

_PICTURES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".heic", ".bmp", ".svg")
_SOUNDS = (".opus", ".ogg", ".oga", ".mp3", ".m4a", ".aac", ".amr", ".wav")
_FILMS = (".mp4", ".mov", ".3gp", ".avi", ".mkv", ".webm")
MEDIA = (*_PICTURES, *_SOUNDS, *_FILMS, ".vcf", ".pdf", ".css", ".js", ".woff", ".woff2")
"""Endings of files that accompany texts in exports. They are left out if there are other files."""

_ENDINGS = (".zip", ".tar", ".tgz", ".tbz2", ".txz")
_BLOCK = 1 << 20


_Members = Callable[[Path, ExitStack], Iterator[tuple[str, IO[bytes]]]]
"""Yields the names of an archive's files, and open streams."""


class Unpacked:
    """The files of an archive in a temporary folder, which is removed with this object.

    `path` is the folder without folders around it, or the only file. Raises `RamifyError` for an archive that is damaged,
    encrypted or a bomb, or that holds names which lead out of it.
    """

    def __init__(self, archive: Path, kind: str) -> None:
        self.archive = archive
        self.left_out: list[str] = []
        self.doubled: Counter[str] = Counter()
        """Name of a file -> the number of earlier files of the same name, which the last one replaces."""
        read_twice(archive, "Unpack it and name the folder.")
        check_not_standard(archive, kind, "it holds several files")
        place = Path(tempfile.mkdtemp(prefix="ramify-"))
        weakref.finalize(self, shutil.rmtree, place, ignore_errors=True)
        stem = without_compression(archive.name)
        self.root = place / next((stem.removesuffix(ending) for ending in _ENDINGS if stem.endswith(ending)), stem)
        self.root.mkdir()
        self._write(_MEMBERS[kind])
        self.path = self.root
        while len(inside := list(self.path.iterdir())) == 1:
            self.path = inside[0]
            if self.path.is_file():
                break

    def _write(self, members: _Members) -> None:
        free = max(FREE_BYTES, MAX_RATIO * self.archive.stat().st_size)
        media: list[str] = []
        with ExitStack() as opened:
            for name, stream in members(self.archive, opened):
                parts = PurePosixPath(name.replace("\\", "/")).parts
                if leads_out(name):
                    raise RamifyError(
                        f"{self.archive} holds {name!r}, a path that leaves the archive. Download it again, or leave it out."
                    )
                if not parts or any(map(is_foreign, parts)):
                    continue
                if parts[-1].casefold().endswith(MEDIA):
                    media.append("/".join(parts))
                    continue
                target = self.root.joinpath(*parts)
                self.doubled["/".join(parts)] += target.is_file()
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with open(target, "wb") as file:
                        while block := stream.read(_BLOCK):
                            free -= len(block)
                            if free < 0:
                                raise RamifyError(
                                    f"{self.archive} unpacks to more than {MAX_RATIO} times its size, as a bomb does. If you "
                                    "trust it, unpack it and name the folder."
                                )
                            file.write(block)
                except (OSError, tarfile.TarError) as error:
                    raise RamifyError(
                        f"{self.archive} cannot be unpacked: {'/'.join(parts)}: {error}. Download it again, or unpack it and "
                        "name the folder."
                    ) from None
        self.left_out = media
        if not any(self.root.iterdir()):
            holds = f"only pictures, recordings and the like ({counted(len(media), 'file')})" if media else "no files"
            raise RamifyError(f"{self.archive} holds {holds}. Check that it was written or downloaded completely.")


def _zip_members(path: Path, opened: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    archive = Archive(path)
    opened.callback(archive.close)
    for name, times in archive.times.items():
        # Each time, it is the last file of this name that is opened.
        for _ in range(times):
            with archive.open(name) as stream:
                yield name, stream


def _tar_members(path: Path, opened: ExitStack) -> Iterator[tuple[str, IO[bytes]]]:
    stream = opened.enter_context(open_bytes(path, archives=True))
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if (content := archive.extractfile(member) if member.isfile() else None) is not None:
                    yield member.name, content
    except (tarfile.TarError, UnicodeDecodeError, ValueError) as error:
        raise RamifyError(f"{path} is not a readable tar archive ({error}). Download it again.") from None


_MEMBERS: dict[str, _Members] = {ZIP: _zip_members, TAR: _tar_members}


def kind_of(path: Path) -> str:
    """The kind of archive that a file is; "" if it is none, or if it is empty."""
    if path.is_dir() or not path.is_file() or not path.stat().st_size:
        return ""
    with open_bytes(path, archives=True) as stream:
        return archive_kind(stream.peek())
