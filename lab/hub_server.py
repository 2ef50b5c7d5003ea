"""A small hub that speaks the protocol of the real one, as far as `huggingface_hub` uses it for downloads.

    python3 hub_server.py FOLDER ADDRESS PORT

What it serves, and how it behaves, stands in the folder (`hub.py`). Information on a revision with sizes and
hashes; files with ranges, large ones by a redirect; the error codes of the real hub: 401 and 404 for what is
not there or not for everyone, 403 for what is gated.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import threading
import time
from functools import lru_cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

_CHUNK = 64 * 1024
_INFO = re.compile(r"/api/models/([^/]+/[^/]+)/revision/(.+)")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_LARGE = re.compile(r"/large/([^/]+/[^/]+)/([^/]+)/(.+)")


@lru_cache
def _hashes(path: Path, _changed: int) -> tuple[str, str]:
    """SHA-256 and Git blob hash of a file."""
    content = path.read_bytes()
    blob = hashlib.sha1(f"blob {len(content)}\0".encode() + content, usedforsecurity=False)
    return hashlib.sha256(content).hexdigest(), blob.hexdigest()


def hashes(path: Path) -> tuple[str, str]:
    """SHA-256 and Git blob hash of a file, computed once as long as it stays the same."""
    return _hashes(path, path.stat().st_mtime_ns)


def is_large(path: Path) -> bool:
    """Whether the hub keeps a file as a large one, by its SHA-256."""
    return path.suffix == ".safetensors"


class Refusal(Exception):  # noqa: N818 - what the hub answers, not a fault of it
    """An error that the client knows by its code."""

    def __init__(self, status: HTTPStatus, code: str, words: str) -> None:
        """Name status, code and message."""
        super().__init__(words)
        self.status = status
        self.code = code


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    root: Path
    cut: set[tuple[str, str]]
    lock: threading.Lock

    def do_HEAD(self) -> None:
        """Answer without content."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer."""
        path = unquote(urlsplit(self.path).path)
        try:
            self._route(path)
        except Refusal as refusal:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": str(refusal)}
            self._answer(refusal.status, headers, json.dumps({"error": str(refusal)}).encode())

    def _route(self, path: str) -> None:
        for pattern, page in ((_INFO, self._information), (_LARGE, self._large), (_FILE, self._file)):
            if found := pattern.fullmatch(path):
                page(*found.groups())
                return
        raise Refusal(HTTPStatus.NOT_FOUND, "NotFound", "no such page")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the library's signature
        """Say nothing."""

    def _settings(self, repo: str) -> dict[str, Any]:
        file = self.root / repo / "settings.json"
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        settings: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        token = settings.get("token")
        if given and given not in self._tokens():
            raise Refusal(HTTPStatus.UNAUTHORIZED, "", "Invalid credentials in Authorization header")
        if not settings or (token and given != token):
            # What is private does not exist for strangers.
            status = HTTPStatus.NOT_FOUND if given else HTTPStatus.UNAUTHORIZED
            raise Refusal(status, "RepoNotFound", "Repository not found")
        return settings

    def _tokens(self) -> set[str]:
        return {json.loads(file.read_text()).get("token") for file in self.root.glob("*/*/settings.json")}

    def _revision(self, repo: str, revision: str, settings: dict[str, Any]) -> tuple[str, Path]:
        commit = settings["branches"].get(revision, revision)
        folder = self.root / repo / "revisions" / commit
        if not folder.is_dir():
            raise Refusal(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, folder

    def _information(self, repo: str, revision: str) -> None:
        commit, folder = self._revision(repo, revision, self._settings(repo))
        siblings = []
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            sha256, blob = hashes(path)
            size = path.stat().st_size
            entry = {"rfilename": str(path.relative_to(folder)), "size": size, "blobId": blob}
            if is_large(path):
                entry["lfs"] = {"sha256": sha256, "size": size, "pointerSize": 130}
            siblings.append(entry)
        content = {"id": repo, "modelId": repo, "sha": commit, "private": False, "siblings": siblings}
        self._answer(HTTPStatus.OK, {"Content-Type": "application/json"}, json.dumps(content).encode())

    def _file(self, repo: str, revision: str, name: str) -> None:
        settings = self._settings(repo)
        commit, folder = self._revision(repo, revision, settings)
        path = folder / name
        if settings.get("gated"):
            raise Refusal(HTTPStatus.FORBIDDEN, "GatedRepo", f"Access to model {repo} is restricted")
        if not path.is_file():
            raise Refusal(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found")
        sha256, blob = hashes(path)
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob}"', "Accept-Ranges": "bytes"}
        if is_large(path):
            headers |= {
                "X-Linked-ETag": f'"{sha256}"',
                "X-Linked-Size": str(path.stat().st_size),
                "Location": f"/large/{repo}/{commit}/{name}",
            }
            self._answer(HTTPStatus.FOUND, headers, b"")
        else:
            self._content(repo, name, path, headers, settings)

    def _large(self, repo: str, commit: str, name: str) -> None:
        path = self.root / repo / "revisions" / commit / name
        settings = json.loads((self.root / repo / "settings.json").read_text())
        self._content(repo, name, path, {"ETag": f'"{hashes(path)[0]}"', "Accept-Ranges": "bytes"}, settings)

    def _content(
        self, repo: str, name: str, path: Path, headers: dict[str, str], settings: dict[str, Any]
    ) -> None:
        content = path.read_bytes()
        if name in settings.get("lie", ()):
            content = bytes(len(content))
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        if asked and start >= len(content):
            headers |= {"Content-Range": f"bytes */{len(content)}"}
            self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, headers, b"")
            return
        if asked:
            headers |= {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        for header, value in {**headers, "Content-Length": str(len(content) - start)}.items():
            self.send_header(header, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        end = len(content)
        with self.lock:
            if name in settings.get("cut", ()) and (repo, name) not in self.cut:
                self.cut.add((repo, name))
                end = start + (end - start) // 2
                self.close_connection = True
        sent = 0
        try:
            sent = self._send(content[start:end], settings.get("bytes_per_second"))
        except OSError:
            self.close_connection = True
        with self.lock, (self.root / repo / "requests.jsonl").open("a") as log:
            log.write(json.dumps([name, start, sent]) + "\n")

    def _send(self, content: bytes, rate: int | None) -> int:
        for at in range(0, len(content), _CHUNK):
            chunk = content[at : at + _CHUNK]
            self.wfile.write(chunk)
            if rate:
                time.sleep(len(chunk) / rate)
        return len(content)

    def _answer(self, status: HTTPStatus, headers: dict[str, str], content: bytes) -> None:
        self.send_response(status)
        for header, value in {**headers, "Content-Length": str(len(content))}.items():
            if value:
                self.send_header(header, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def main() -> None:
    """Serve until the end."""
    folder, address, port = sys.argv[1:]
    Handler.root, Handler.cut, Handler.lock = Path(folder), set(), threading.Lock()
    ThreadingHTTPServer((address, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
