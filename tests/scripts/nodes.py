"""A head and a worker in a folder: the model's scripts run as they are, on stand-ins for `docker` and `ssh`.

`docker run` runs the container's command here, with this Python's huggingface_hub; `ssh` runs the worker's
receiver. Both are found first on the PATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.remote import compose, text
from tests import samples

DOCKER = r"""#!/bin/bash
printf '%s\n' "$*" >>"$FAKE/docker.log"
case $1 in
  ps) [[ ! -e $FAKE/served/id ]] || cat "$FAKE/served/id" ;;
  inspect) [[ $3 == *Mounts* ]] && cat "$FAKE/served/mounts" || cat "$FAKE/served/facts" ;;
  run)
    while [[ $1 != stub:tag ]]; do
      [[ $1 != -e ]] || export "$2"
      shift
    done
    shift
    exec "$FAKE_PYTHON" "$@"
    ;;
esac
"""
SSH = r"""#!/bin/bash
while [[ $1 != *@* ]]; do shift; done
shift
export HOME=$FAKE/worker SSH_ORIGINAL_COMMAND="$*"
if [[ $1 == model-complete && -e $FAKE/cut-list ]]; then
  head -c "$(cat "$FAKE/cut-list")" | bash "$FAKE/receiver"
  exit
fi
if [[ $1 == model-put ]]; then
  limit=$(cat "$FAKE/cut" 2>/dev/null || echo 100000000)
  head -c "$limit" | tee >(wc -c >"$FAKE/put.bytes") | bash "$FAKE/receiver"
  exit "${PIPESTATUS[2]}"
fi
exec bash "$FAKE/receiver"
"""


@dataclass(frozen=True)
class Nodes:
    """The folder.

    Attributes:
        place: Where everything is.
        endpoint: The hub.
    """

    place: Path
    endpoint: str = ""

    @property
    def head(self) -> Path:
        """The head's models."""
        return self.place / "head" / "models"

    @property
    def worker(self) -> Path:
        """The worker's models."""
        return self.place / "worker" / "models"

    def make(self) -> Nodes:
        """Write the stand-ins."""
        for name, script in (("docker", DOCKER), ("ssh", SSH)):
            path = self.place / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(script)
            path.chmod(0o755)
        for models in (self.head, self.worker):
            models.mkdir(parents=True)
        return self

    def receiver(self, folder: Path) -> None:
        """Let the worker's receiver write below a folder."""
        inputs = {"NODE": "worker", "MODELS": str(folder)}
        (self.place / "receiver").write_text(compose("receiver.sh", inputs, ["model.sh"]))

    def fetch(self, repo: str, revision: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run the head's fetch."""
        return self.run(*self.fetch_command(repo, revision, **changes))

    def fetch_command(
        self, repo: str, revision: str, **changes: str
    ) -> tuple[str, list[str], dict[str, str]]:
        """Script, libraries and inputs of the head's fetch."""
        inputs = {
            "NODE": "head",
            "REPO": repo,
            "REVISION": revision,
            "ENDPOINT": self.endpoint,
            "ROOT": str(self.head),
            "DIRECTORY": str(self.directory(repo, revision)),
            "RESERVE_MIB": "1",
            "HUB": text("hub.py"),
            "NAME": "fetch",
            "LABELS": "",
            "TAG": "stub:tag",
            "TOKEN": "",
            **changes,
        }
        return "model-fetch.sh", ["model.sh"], inputs

    def directory(self, repo: str, revision: str) -> Path:
        """Where a revision is on the head."""
        return self.head / repo.replace("/", "--") / revision

    def send(self, directory: Path, manifest: Path, **changes: str) -> subprocess.CompletedProcess[str]:
        """Run the head's sending; a revision's folder is ours, any other is not."""
        ours = manifest.name == ".complete"
        self.receiver(self.worker if ours else self.worker / directory.name)
        inputs = {
            "NODE": "head",
            "DIRECTORY": str(directory),
            "FOLDER": str(directory.relative_to(self.head)) if ours else ".",
            "MANIFEST": str(manifest),
            "OURS": "yes" if ours else "no",
            "RESERVE_MIB": "1",
            "KEY": "key",
            "PEER": "worker",
            "PEER_ADDRESS": "192.168.200.13",
            "PEER_HOST_KEY": samples.host_key("worker"),
            "PEER_USER": "aurora",
            **changes,
        }
        return self.run("model-send.sh", ["fabric.sh", "model.sh"], inputs)

    def check(self, directory: Path, manifest: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run the head's look at a directory that is there already."""
        inputs = {"NODE": "head", "DIRECTORY": str(directory), "MANIFEST": str(manifest or "")}
        return self.run("model-check.sh", ["model.sh"], inputs)

    def run(
        self, script: str, libraries: list[str], inputs: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a script on the head to its end."""
        return subprocess.run(
            ["bash", "-s"],
            input=compose(script, inputs, libraries),
            env=self.environment(),
            cwd=self.place / "head",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """The environment of a session on the head."""
        return {
            "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            "HOME": str(self.place / "head"),
            "FAKE": str(self.place),
            "FAKE_PYTHON": sys.executable,
        }

    def serve(self, mount: Path, inside: str) -> None:
        """Let a container run that mounts a folder as /models and serves what is in it."""
        served = self.place / "served"
        served.mkdir()
        (served / "id").write_text("0123\n")
        (served / "facts").write_text(
            f"/vllm\n/spark/entry.sh\nserve\nvllm\nserve\n/models/{inside}\n--port=8000\n"
        )
        (served / "mounts").write_text(f"/var/lib/docker/volumes/x/_data\t/tmp\n{mount}\t/models\n")
