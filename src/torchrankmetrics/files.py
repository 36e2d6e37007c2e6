"""Write files atomically."""

import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 1 << 30
"""Default limit of the memory of a loaded file of ranks: about 15 million rows."""


def write_whole(path: str | os.PathLike[str], content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file, at once or in parts that are made as they are written, whole or not at all."""
    parts = (content,) if isinstance(content, bytes) else content
    descriptor = _descriptor(os.fspath(path))
    if descriptor is not None:
        with open(os.dup(descriptor), "wb") as file:
            file.writelines(parts)
        return
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    if mode is None or stat.S_ISREG(mode):
        _replace(Path(os.path.realpath(path)), parts, new=mode is None)
    elif stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with open(path, "wb") as file:
            file.writelines(parts)
    elif stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    else:
        raise OSError(errno.EINVAL, "Neither a file, a pipe nor a character device", os.fspath(path))


def natural(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts numbers in texts by their value."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", text) if part
    ]


def _replace(target: Path, parts: Iterable[bytes | memoryview], new: bool) -> None:
    neighbour = target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex}")
    if not new:
        os.close(os.open(target, os.O_WRONLY))  # a file that must not be written to must not be replaced either
    try:
        # the new file is private until it has the mode of the old one
        with open(os.open(neighbour, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if new else 0o600), "wb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        if not new:
            with suppress(OSError, AttributeError):  # another user's file, or a system without owners
                os.chown(neighbour, target.stat().st_uid, target.stat().st_gid)
            shutil.copymode(target, neighbour)
        neighbour.replace(target)
    finally:
        neighbour.unlink(missing_ok=True)


def _descriptor(path: str) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout names."""
    opened = os.path.realpath("/proc/self/fd")
    for _ in range(40):  # as many links as Linux follows
        folder, name = os.path.split(os.path.abspath(path))
        if name.isdecimal() and os.path.realpath(folder) == opened:
            return int(name)
        if not os.path.islink(path):
            break
        path = os.path.join(folder, os.readlink(path))
    return None
