"""The lab's hub, as files: repositories to publish, how it behaves, what it was asked.

`hub_server` serves the folder; both sides see a change at once.

    <owner>/<name>/settings.json            what `configure` was told
    <owner>/<name>/requests.jsonl           one line a request for a file
    <owner>/<name>/revisions/<commit>/...   the files
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple


class Request(NamedTuple):
    """One request for a file's content.

    Attributes:
        path: The file, relative to the repository.
        start: The first byte that was asked for.
        sent: How many bytes were sent.
    """

    path: str
    start: int
    sent: int


@dataclass(frozen=True)
class Hub:
    """The folder of a hub."""

    root: Path

    def publish(self, repo: str, files: Mapping[str, bytes]) -> str:
        """Add a revision to a repository; `main` is the last one.

        Returns:
            The commit: 40 digits that follow from the content.
        """
        total = hashlib.sha1(usedforsecurity=False)
        for name, content in sorted(files.items()):
            total.update(f"{name}\0{len(content)}\0".encode() + content)
        commit = total.hexdigest()
        folder = self.root / repo / "revisions" / commit
        shutil.rmtree(folder, ignore_errors=True)
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.configure(repo, branches={"main": commit})
        return commit

    def configure(self, repo: str, **settings: Any) -> None:  # noqa: ANN401 - JSON
        """Set how the hub behaves for a repository.

        Args:
            repo: Its name.
            settings: `token`: without it the repository does not exist. `gated`: files are for no one.
                `bytes_per_second`: of one connection. `cut`: files whose first transfer ends in the middle.
                `lie`: files whose content is not the announced one.
        """
        file = self.root / repo / "settings.json"
        known = json.loads(file.read_text()) if file.exists() else {}
        written = file.with_suffix(".new")
        written.write_text(json.dumps({**known, **settings}))
        written.replace(file)

    def requests(self, repo: str) -> list[Request]:
        """What was asked of a repository's files since `forget`, in order."""
        file = self.root / repo / "requests.jsonl"
        return [Request(*json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    def forget(self, repo: str) -> None:
        """Forget what was asked so far."""
        (self.root / repo / "requests.jsonl").unlink(missing_ok=True)
