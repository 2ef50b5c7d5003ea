"""A stack on a lab: the stack file by way of `discover`, the model's files, and `pulumi` with its events."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ruamel.yaml import YAML

from components.settings import PROJECT
from lab.instance import Lab
from lab.shell import LabError
from lab.topology import USER

ROOT = Path(__file__).resolve().parent.parent
MODEL = f"/home/{USER}/models/tiny"
# What the nodes of the lab cannot give: a GPU, /dev/infiniband, unlimited locked memory.
LAB_SETTINGS = (
    "container.gpus=none",
    "container.devices=[]",
    "container.memlock=8388608",
    f"model.directory={MODEL}",
)


@dataclass(frozen=True)
class Event:
    """One step of the engine on one resource."""

    op: str
    name: str
    type: str


@dataclass(frozen=True)
class Run:
    """What one call of `pulumi` did; `log` is the stream of its events as it was written."""

    status: int
    output: str
    events: tuple[Event, ...]
    log: str = ""


@dataclass(frozen=True)
class Deployment:
    """A stack, where its configuration stands, and the environment of its `pulumi`.

    Attributes:
        lab: its nodes.
        stack: its name.
        environment: of every process.
        config_file: its stack file.
        scratch: where the events of a run are kept while it lasts.
        root: the program.
        agent: socket of the SSH agent; the lab's if None.
    """

    lab: Lab
    stack: str
    environment: Mapping[str, str]
    config_file: Path
    scratch: Path = field(default=ROOT / ".local")
    root: Path = ROOT
    agent: Path | None = None

    def configure(self, image: str, *settings: str) -> None:
        """Create the stack if it is new, and let `discover` write its file.

        Args:
            image: reference by which the head pulls, with its digest.
            settings: further `key.path=YAML` for a new stack; what a person has changed since stays.

        Raises:
            LabError: a command failed; the message is what it said.
        """
        new = not self.config_file.exists()
        if self.pulumi("stack", "select", self.stack).status:
            self._init()
        status = self.lab.status()
        head = status["nodes"]["head"]
        workers = [node for name, node in status["nodes"].items() if name != "head"]
        values = (
            f"image.ref={image}",
            f"vllm.port={status['apiPort']}",
            *(("vllm.servedModelName=tiny", *LAB_SETTINGS, *settings) if new else ()),
        )
        argv = [
            str(self.root / "bin" / "spark-vllm"),
            "discover",
            "--yes",
            f"--stack={self.stack}",
            f"--config-file={self.config_file}",
            f"--sysfs={status['sysfs']}",
            f"--head={head['user']}@{head['host']}:{head['port']}",
            *(f"--worker={node['user']}@{node['host']}" for node in workers),
            *(f"--set={value}" for value in values),
        ]
        result = subprocess.run(
            argv, env=self.process_environment(), capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise LabError(f"discover failed: {result.stderr.strip()}")

    def forget_other_nodes(self) -> bool:
        """Begin anew if the stack is of nodes that were taken down: these have other host keys.

        Returns:
            Whether it was.
        """
        if not self.config_file.exists():
            return False
        config = YAML(typ="safe").load(self.config_file)["config"]
        pinned = {node["ssh"].get("hostKey") for node in config.get(f"{PROJECT}:nodes") or []}
        if all(node["hostKey"] in pinned for node in self.lab.status()["nodes"].values()):
            return False
        self.pulumi("stack", "rm", "--yes", "--force", f"--stack={self.stack}")
        self.config_file.unlink(missing_ok=True)
        return True

    def _init(self) -> None:
        """Create the stack; `stack init` knows no --config-file, and puts its salt beside the Pulumi.yaml."""
        place = self.config_file.parent
        if place != self.root:
            shutil.copy(self.root / "Pulumi.yaml", place)
        self.must("stack", "init", self.stack, f"--cwd={place}")

    def put_model(self, files: Mapping[str, bytes]) -> None:
        """Put a model's files on every node, for the operator's user."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.mode = 0o644
                tar.addfile(entry, io.BytesIO(content))
        for name in self.lab.status()["nodes"]:
            self.lab.root(
                name, "install", "-d", "-o", USER, "-g", USER, str(PurePosixPath(MODEL).parent), MODEL
            )
            self.lab.root(name, "tar", "-x", "--no-same-owner", "-C", MODEL, stdin=archive.getvalue())

    def pulumi(self, *argv: str, timeout: float = 1800, show: bool = False, stdin: str | None = None) -> Run:
        """Run `pulumi` on the stack, without questions.

        Args:
            argv: command and options.
            timeout: seconds.
            show: whether its output goes to the terminal instead of into the result.
            stdin: what it reads.
        """
        log = self.scratch / f"events-{os.getpid()}-{id(argv)}.json"
        options = [f"--stack={self.stack}"] if argv[0] != "stack" else []
        if argv[0] in ("up", "preview", "refresh", "destroy"):
            options += [f"--event-log={log}", "--non-interactive", f"--config-file={self.config_file}"]
            options += ["--yes", "--skip-preview"] if argv[0] != "preview" else []
        result = subprocess.run(
            ["pulumi", *argv, *options],
            cwd=self.root,
            env=self.process_environment() | {"PULUMI_DEBUG_COMMANDS": "true"},
            stdout=None if show else subprocess.PIPE,
            stderr=None if show else subprocess.STDOUT,
            input=stdin,
            text=True,
            timeout=timeout,
            check=False,
        )
        text = log.read_text(encoding="utf-8") if log.exists() else ""
        log.unlink(missing_ok=True)
        return Run(result.returncode, result.stdout or "", _events(text), text)

    def must(self, *argv: str, timeout: float = 1800) -> Run:
        """Run `pulumi`, which must succeed.

        Raises:
            LabError: it did not; the message is what it said.
        """
        run = self.pulumi(*argv, timeout=timeout)
        if run.status:
            raise LabError(f"pulumi {' '.join(argv)} failed:\n{run.output}")
        return run

    def outputs(self) -> dict[str, Any]:
        """The outputs of the stack."""
        run = self.must("stack", "output", "--json", f"--stack={self.stack}")
        found: dict[str, Any] = json.loads(run.output)
        return found

    def output(self, name: str) -> Any:  # noqa: ANN401 - JSON
        """An output of the stack."""
        return self.outputs()[name]

    def api_key(self) -> str:
        """The stack's API key."""
        run = self.must("config", "get", "apiKey", f"--config-file={self.config_file}")
        return run.output.strip()

    def set_secret(self, key: str, value: str) -> None:
        """Give a secret of the stack another value.

        Raises:
            LabError: `pulumi` did not take it.
        """
        options = ("--secret", f"--config-file={self.config_file}")
        run = self.pulumi("config", "set", key, *options, stdin=value)
        if run.status:
            raise LabError(f"{key} was not set: {run.output}")

    def process_environment(self) -> dict[str, str]:
        """The variables of a process that works on the stack."""
        agent = self.agent or self.lab.agent_socket
        return {**os.environ, **self.environment, "SSH_AUTH_SOCK": str(agent)}


def _events(log: str) -> tuple[Event, ...]:
    found = []
    for line in log.splitlines():
        event = json.loads(line)
        done = event.get("resOutputsEvent") or event.get("resOpFailedEvent")
        if done:
            step = done["metadata"]
            urn: str = step["urn"]
            op = f"{step['op']}-failed" if "resOpFailedEvent" in event else step["op"]
            found.append(Event(op=op, name=urn.rpartition("::")[2], type=step["type"]))
    return tuple(found)
