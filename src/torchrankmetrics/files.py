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

Source = str | os.PathLike[str]
MAX_BYTES = 1 << 30  # default limit of the memory of a loaded file of ranks: about 15 million rows


def write_whole(path: Source, content: bytes | Iterable[bytes | memoryview]) -> None:
    """Write a file, at once or in parts that are made as they are written, whole or not at all."""
    parts = (content,) if isinstance(content, bytes) else content
    number = _descriptor(os.fspath(path))
    if number is None and (os.path.isfile(path) or not os.path.exists(path)):
        _replace(Path(os.path.realpath(path)), parts, new=not os.path.exists(path))
    else:  # an open file is written to at its position
        if number is None and (stat.S_ISBLK(mode := os.stat(path).st_mode) or stat.S_ISSOCK(mode)):
            raise OSError(
                errno.EINVAL, "Neither a file, a pipe nor a character device", os.fspath(path)
            )
        with open(path if number is None else os.dup(number), "wb") as file:
            file.writelines(parts)


def natural(text: str) -> list[tuple[bool, int, str]]:
    """A key that sorts numbers in texts by their value."""
    parts = filter(None, re.split(r"(\d+)", text))
    return [_part_key(part) for part in parts]


def _part_key(part: str) -> tuple[bool, int, str]:
    if part.isdecimal():
        return False, int(part), part
    return True, 0, part


def _replace(target: Path, parts: Iterable[bytes | memoryview], new: bool) -> None:
    beside = target.with_name(f".{target.name[:50]}.{uuid.uuid4().hex}")
    if not new:
        # a file that must not be written to must not be replaced either
        os.close(os.open(target, os.O_WRONLY))
    try:
        # the new file is private until it has the mode of the old one
        with open(
            os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if new else 0o600), "wb"
        ) as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        if not new:
            # another user's file, or a system without owners
            with suppress(OSError, AttributeError):
                os.chown(beside, target.stat().st_uid, target.stat().st_gid)
            shutil.copymode(target, beside)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _descriptor(path: str) -> int | None:
    """Return the number of the open file that a path such as /dev/stdout names."""
    number = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d+)", path)
    return int(number[1]) if number else {"/dev/stdout": 1, "/dev/stderr": 2}.get(path)
