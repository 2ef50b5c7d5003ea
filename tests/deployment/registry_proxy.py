"""A registry that asks for a user and a password, in front of one that does not.

Usage: registry_proxy.py PORT TARGET USER PASSWORD, on a node of the lab; serves 127.0.0.1.
"""

from __future__ import annotations

import base64
import shutil
import sys
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT, TARGET, USER, PASSWORD = sys.argv[1:]
RIGHT = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


class Proxy(BaseHTTPRequestHandler):
    """Passes reading requests on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer one request, or ask who it is."""
        if self.headers.get("Authorization") != RIGHT:
            self._reply(401, {"WWW-Authenticate": 'Basic realm="lab"', "Content-Length": "0"})
            return
        wanted = {name: value for name, value in self.headers.items() if name in ("Accept", "Range")}
        request = urllib.request.Request(TARGET + self.path, headers=wanted, method=self.command)  # noqa: S310 - TARGET is http
        try:
            answer = urllib.request.urlopen(request, timeout=60)  # noqa: S310
        except urllib.error.HTTPError as refused:
            answer = refused
        with answer:
            names = ("Content-Type", "Content-Length", "Docker-Content-Digest")
            self._reply(answer.status, {name: answer.headers[name] for name in names if answer.headers[name]})
            if self.command == "GET":
                shutil.copyfileobj(answer, self.wfile)

    do_HEAD = do_GET  # noqa: N815 - the library's name

    def _reply(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


ThreadingHTTPServer(("127.0.0.1", int(PORT)), Proxy).serve_forever()
