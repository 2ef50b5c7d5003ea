"""A revision of the hub, by the image's own huggingface_hub: list its files, or get those that are wanted.

    python3 hub.py list REPO REVISION DIRECTORY    prints "<hash> <size> <path>" a file
    python3 hub.py get REPO REVISION DIRECTORY     reads "<have> <hash> <size> <path>" a file

The first line of stdin is the token, or empty. A hash of 64 digits is a SHA-256, which the hub gives for what
it keeps as large files; one of 40 digits is that of a Git blob. A file on its way is in `.incoming/<hash>/`,
and a later call goes on where it ended: the client's own `snapshot_download` does not in every version.
Status 1 with one sentence on stderr: the hub refuses, or cannot be reached.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from huggingface_hub import HfApi, constants, hf_hub_url
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

PARALLEL = 4
TRIES = 5
"""Attempts in a row without a byte of progress."""
SAY_SECONDS = 3
SKIPPED = ("original/*", "metal/*")
"""The same weights once more, for other programs than vLLM."""
_PASSING = (408, 425, 429)
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_SET_TOKEN = "`pulumi config set --secret hubToken`"  # noqa: S105 - the command that sets it
Result = TypeVar("Result")


class RefusedError(Exception):
    """What the hub says is nothing that can be fetched."""


class File(NamedTuple):
    """One line of what is wanted."""

    have: int
    digest: str
    size: int
    path: str

    @classmethod
    def parse(cls, line: str) -> File:
        """Read a line."""
        have, digest, size, path = line.rstrip("\n").split(" ", 3)
        return cls(int(have), digest, int(size), path)

    def part(self, directory: Path) -> Path:
        """Where it is while it is on its way."""
        return directory / ".incoming" / self.digest / self.path


def files(repo: str, revision: str, token: str | bool) -> list[str]:
    """List a revision's files, as a manifest's lines.

    Raises:
        RefusedError: there are none, or one has a name or lacks a hash as in no honest repository.
    """
    info = _patiently(
        lambda: HfApi().model_info(repo, revision=revision, files_metadata=True, token=token), progress=int
    )
    lines = []
    for each in info.siblings or []:
        path = PurePosixPath(each.rfilename)
        if path.is_absolute() or ".." in path.parts or not str(path).isprintable():
            raise RefusedError(f"{repo} holds a file with the name {each.rfilename!r}")
        if any(part.startswith(".") for part in path.parts) or any(
            fnmatch(str(path), skip) for skip in SKIPPED
        ):
            continue
        digest = each.lfs.sha256 if each.lfs else each.blob_id
        if digest is None or each.size is None:
            raise RefusedError(f"{constants.ENDPOINT} gives neither hash nor size for {each.rfilename}")
        lines.append(f"{digest} {each.size} {path}")
    if not lines:
        raise RefusedError(f"{repo} holds no files at {revision}: mend model.repo or model.revision.")
    return sorted(lines)


def get(repo: str, revision: str, token: str | bool, directory: Path, wanted: list[File]) -> None:
    """Get files, some at a time, each from where it ended last time."""
    lacking = sum(file.size - file.have for file in wanted)
    there: set[File] = set()

    def arrived() -> int:
        return sum(
            (file.size if file in there else _size(file.part(directory))) - file.have for file in wanted
        )

    def one(file: File) -> None:
        _get_one(hf_hub_url(repo, file.path, revision=revision), headers, directory, file)
        there.add(file)

    headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}
    _every(
        SAY_SECONDS, lambda: _say(f"{arrived() // 10**6} of {lacking // 10**6} MB from {constants.ENDPOINT}")
    )
    with ThreadPoolExecutor(PARALLEL) as pool:
        work = [pool.submit(one, file) for file in wanted]
        done, rest = wait(work, return_when=FIRST_EXCEPTION)
        for future in rest:
            future.cancel()
        for future in done:
            error = future.exception()
            if error is not None:
                _end(explain(error, repo, revision))
    _say(f"{lacking // 10**6} MB from {constants.ENDPOINT}: all there")


def _get_one(url: str, headers: dict[str, str], directory: Path, file: File) -> None:
    part, place = file.part(directory), directory / file.path
    part.parent.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)

    def attempt() -> None:
        if _size(part) > file.size:
            part.unlink()
        with part.open("ab") as stream:
            http_get(url, stream, resume_size=_size(part), headers=headers, expected_size=file.size)

    _patiently(attempt, progress=lambda: _size(part))
    part.replace(place)


def _patiently(call: Callable[[], Result], *, progress: Callable[[], int]) -> Result:
    failures = 0
    while True:
        before = progress()
        try:
            return call()
        except Exception as error:
            failures = 1 if progress() > before else failures + 1
            if failures == TRIES or not _may_pass(error):
                raise
            _say(f"{_line(error)}: once more")
            time.sleep(2**failures - 1)


def _may_pass(error: Exception) -> bool:
    status = _status(error)
    if status:
        return status in _PASSING or status >= 500  # noqa: PLR2004 - HTTP: the server's own errors
    return not (isinstance(error, RefusedError) or (isinstance(error, OSError) and error.errno in _DISK))


def explain(error: BaseException, repo: str, revision: str) -> str:
    """Say in one sentence what is wrong and what to do."""
    hub = constants.ENDPOINT
    # The first that fits: a gated repository counts as one that is not found.
    known: tuple[tuple[type[Exception], str], ...] = (
        (RefusedError, str(error)),
        (GatedRepoError, f"{repo} is gated: ask for access at {hub}/{repo}, and {_SET_TOKEN}."),
        (RevisionNotFoundError, f"{repo} on {hub} has no revision {revision}: mend model.revision."),
        (
            RepositoryNotFoundError,
            f"there is no {repo} on {hub}, or only for others: mend model.repo, or {_SET_TOKEN}.",
        ),
    )
    for kind, sentence in known:
        if isinstance(error, kind):
            return sentence
    if _status(error) in (401, 403):
        return f"{hub} refuses the token: give a valid one, {_SET_TOKEN}."
    if isinstance(error, OSError) and error.errno in _DISK:
        return f"the files of {repo} cannot be written: {_line(error)}"
    return f"{hub} does not give {repo} to this node: {_line(error)}"


def _status(error: BaseException) -> int:
    response = getattr(error, "response", None)
    return response.status_code if isinstance(error, HfHubHTTPError) and response is not None else 0


def _line(error: BaseException) -> str:
    words = str(error).strip() or type(error).__name__
    return words.splitlines()[0][:300]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _say(words: str) -> None:
    print(f"{os.environ.get('NODE', '')}: {words}", file=sys.stderr, flush=True)


def _every(seconds: float, call: Callable[[], None]) -> None:
    def run() -> None:
        while True:
            time.sleep(seconds)
            call()

    threading.Thread(target=run, daemon=True).start()


def _end(words: str) -> None:
    """Leave at once: other files may be on their way for a long time, and what they have stays."""
    _say(words)
    os._exit(1)


def main() -> None:
    """Do what the command line says."""
    action, repo, revision, directory = sys.argv[1:]
    token: str | bool = sys.stdin.readline().strip() or False
    try:
        if action == "list":
            print("\n".join(files(repo, revision, token)))
        else:
            get(repo, revision, token, Path(directory), [File.parse(line) for line in sys.stdin])
    except Exception as error:  # noqa: BLE001 - whatever it is, the operator reads one sentence
        _end(explain(error, repo, revision))


if __name__ == "__main__":
    main()
