"""What it costs to bring an image and a model to a worker, against the tools that do only that."""

from __future__ import annotations

import functools
import os
import random
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from components.peers import key_name
from components.remote import compose, text
from components.settings import digest
from lab.bench.figures import Figure, alternately, seconds
from lab.bench.pair import STACK, instance, settings, stub_pair
from lab.deployment import MODEL, Deployment
from lab.shell import LabError, run
from lab.topology import USER

GROUP = "transfers"
MB = 1_000_000
LAYER_MB = 48
LAYERS = 5
SHARD_MB = 60
SHARDS = 4
NAME = "spark-lab/layers"
OLD, NEW = f"{NAME}:old", f"{NAME}:new"


def measure(rounds: int) -> Iterator[Figure]:
    """Measure between the nodes of a pair that is deployed, so that the head has its way to the worker."""
    with instance("transfer") as lab:
        pair = stub_pair(lab)
        # nothing is copied below a running server
        lab.docker("head", "rm", "-f", "vllm", "ray-head")
        lab.docker("worker", "rm", "-f", "ray-worker")
        yield from _Transfers(pair, rounds).figures()


class _Transfers:
    """The ways to bring something from the head to the worker."""

    def __init__(self, pair: Deployment, rounds: int) -> None:
        self._pair = pair
        self._lab = pair.lab
        self._rounds = rounds
        self._config = self._lab.status()["sshConfig"]
        head, worker = settings(pair)["nodes"]
        self._rails = [rail["interface"] for rail in head["rails"]]
        self._address = worker["rails"][0]["address"].partition("/")[0]
        self._host_key = worker["ssh"]["hostKey"]

    def figures(self) -> Iterator[Figure]:
        self._make_image()
        yield from self._changed_layer()
        self._lab.docker("worker", "image", "rm", "-f", OLD)
        yield self._first_copy("image", self._send_image, self._pipe_image, self._without_image)
        self._make_shards()
        yield self._first_copy("model", self._send_model, self._rsync, self._without_model)
        yield self._link()
        yield self._both()

    def _make_image(self) -> None:
        """Two images of five layers, of which the last differs."""
        for name in (OLD, NEW):
            with tempfile.TemporaryDirectory(prefix="spark-lab-") as scratch:
                lines = ["FROM scratch"]
                for number in range(LAYERS):
                    seed = f"{number} {name if number == LAYERS - 1 else 'same'}"
                    (Path(scratch) / f"layer{number}").write_bytes(
                        random.Random(seed).randbytes(LAYER_MB * MB)  # noqa: S311 - content, no secret
                    )
                    lines.append(f"COPY layer{number} /")
                (Path(scratch) / "Dockerfile").write_text("\n".join([*lines, 'CMD ["none"]', ""]))
                self._lab.outer.docker("build", "--quiet", f"--tag={name}", scratch)
            self._lab.load("head", name)
        self._lab.load("worker", OLD)

    def _make_shards(self) -> None:
        words = (
            'for n in $(seq "$2"); do head -c "$3" /dev/urandom >"$1/part-$n.bin"; done; chown -R "$4:" "$1"'
        )
        self._lab.root(
            "head", "bash", "-c", words, "bash", MODEL, str(SHARDS), str(SHARD_MB * MB), USER, timeout=120
        )
        inputs = {"NODE": "head", "DIRECTORY": MODEL, "MANIFEST": self._manifest}
        self._on_head(compose("model-check.sh", inputs, ["model.sh"]))

    @property
    def _manifest(self) -> str:
        return f".cache/spark-vllm/model-{digest(MODEL)}"

    def _changed_layer(self) -> Iterator[Figure]:
        sent: list[float] = []

        def ours() -> float:
            before = self._bytes()
            took = self._timed(self._send_image, self._without_image)
            sent.append((self._bytes() - before) / MB)
            return took

        samples = alternately(
            self._rounds,
            {"ours": ours, "pipe": lambda: self._timed(self._pipe_image, self._without_image)},
        )
        what = f"an image of which one of {LAYERS} layers changed, to the worker"
        yield Figure(
            name="changed layer, bytes",
            group=GROUP,
            what=f"{what}: bytes on the rails",
            against="the layer",
            unit="MB",
            measured=tuple(sent),
            reference=(LAYER_MB,),
            reach=1.05,
            real_pair="carries over",
        )
        yield Figure(
            name="changed layer, time",
            group=GROUP,
            what=what,
            against="docker save | ssh | docker load",
            measured=samples["ours"],
            reference=samples["pipe"],
            reach=0.4,
            real_pair="the bytes carry over; docker save reads all layers on the head all the same",
        )

    def _first_copy(
        self,
        name: str,
        ours: Callable[[], None],
        bare: Callable[[], None],
        remove: Callable[[], None],
    ) -> Figure:
        used: list[float] = []

        def sample() -> float:
            before = _processor_seconds()
            took = self._timed(ours, remove)
            used.append(_processor_seconds() - before)
            return took

        samples = alternately(self._rounds, {"ours": sample, "bare": lambda: self._timed(bare, remove)})
        size = (LAYERS * LAYER_MB if name == "image" else SHARDS * SHARD_MB) / 1000
        tool = "docker save | ssh | docker load" if name == "image" else "one rsync over ssh"
        cost = median(used) / size
        return Figure(
            name=f"first copy of a {name}" if name == "model" else "first copy of an image",
            group=GROUP,
            what=f"first copy of {size * 1000:.0f} MB of {name} to the worker",
            against=tool,
            measured=samples["ours"],
            reference=samples["bare"],
            reach=1.25,
            real_pair="does not: the link of a real pair is not what limits here",
            note=f"{cost:.0f} processor seconds for a GB, both ends together"
            + ("; every file is hashed where it arrives" if name == "model" else ""),
        )

    def _link(self) -> Figure:
        size = SHARDS * SHARD_MB
        server = f"exec 3<>/dev/tcp/{self._address}/5999; cat /dev/zero | head -c {size * MB} >&3"
        listen = (
            "import socket; s = socket.create_server(('', 5999)); c, _ = s.accept()\n"
            "while c.recv(1 << 20): pass"
        )

        def plain() -> float:
            with subprocess.Popen(
                self._lab.outer.command("exec", self._lab.container("worker"), "python3", "-c", listen)
            ) as sink:
                self._lab.root(
                    "worker", "bash", "-c", "until ss -Hltn sport = :5999 | grep -c .; do sleep 0.05; done"
                )
                took = seconds(lambda: self._lab.root("head", "bash", "-c", server))
                sink.wait()
            return took

        samples = alternately(
            self._rounds, {"rsync": lambda: self._timed(self._rsync, self._without_model), "tcp": plain}
        )
        return Figure(
            name="rsync on this link",
            group=GROUP,
            what=f"one rsync over ssh of {size} MB",
            against="the same bytes through plain TCP",
            measured=samples["rsync"],
            reference=samples["tcp"],
            real_pair="does not: both ends share two cores here, and a real link has 200 Gb/s",
            note="what the tools could reach if they cost nothing: the rest is ciphers, disks and copies",
        )

    def _both(self) -> Figure:
        def together() -> float:
            def both() -> None:
                with ThreadPoolExecutor() as pool:
                    sent = [pool.submit(each) for each in (self._send_image, self._send_model)]
                for each in sent:
                    each.result()

            self._without_image()
            return self._timed(both, self._without_model)

        samples = alternately(
            self._rounds,
            {
                "together": together,
                "image": lambda: self._timed(self._send_image, self._without_image),
                "model": lambda: self._timed(self._send_model, self._without_model),
            },
        )
        longer = max((samples["image"], samples["model"]), key=median)
        return Figure(
            name="image and model together",
            group=GROUP,
            what="model and image to the worker, side by side",
            against="the longer of the two alone",
            measured=samples["together"],
            reference=longer,
            reach=1.1,
            real_pair="the order does; the ratio not: each of the two takes all processors of this machine",
        )

    def _timed(self, what: Callable[[], None], remove: Callable[[], object]) -> float:
        remove()
        return seconds(what)

    def _send_image(self) -> None:
        inputs = {"NODE": "head", "TAG": NEW, "LAYERS_PROGRAM": text("image_layers.py"), **self._peer}
        self._on_head(compose("image-send.sh", inputs, ["fabric.sh"]))

    def _pipe_image(self) -> None:
        self._on_head(f"docker save {NEW} | {self._ssh} docker load -q", forward=True)

    def _without_image(self) -> None:
        self._lab.root("worker", "sh", "-c", f"docker image rm -f {NEW} >/dev/null 2>&1 || true; sync")

    def _send_model(self) -> None:
        inputs = {
            "NODE": "head", "DIRECTORY": MODEL, "FOLDER": ".", "MANIFEST": self._manifest, "OURS": "no",
            "RESERVE_MIB": "1", **self._peer,
        }  # fmt: skip
        self._on_head(compose("model-send.sh", inputs, ["fabric.sh", "model.sh"]))

    def _rsync(self) -> None:
        ssh = shlex.quote(self._ssh.removesuffix(f" {USER}@{self._address}"))
        self._on_head(f"rsync -a -e {ssh} {MODEL}/part-* {USER}@{self._address}:{MODEL}/", forward=True)

    def _without_model(self) -> None:
        self._lab.root("worker", "bash", "-c", f"rm -f {MODEL}/part-*; sync")

    @property
    def _peer(self) -> dict[str, str]:
        return {
            "KEY": key_name(STACK), "PEER": "worker", "PEER_ADDRESS": self._address, "PEER_USER": USER,
            "PEER_HOST_KEY": self._host_key, "PEER_PORT": "22",
        }  # fmt: skip

    @functools.cached_property
    def _ssh(self) -> str:
        """The barest way from the head to the worker: the operator's agent, the worker's key pinned."""
        options = [
            "ssh", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=/dev/null", "-o", "HostKeyAlias=worker",
            "-o", f"KnownHostsCommand=/bin/echo worker {self._host_key}", "-o", "LogLevel=ERROR",
            f"{USER}@{self._address}",
        ]  # fmt: skip
        return shlex.join(options)

    def _on_head(self, script: str, *, forward: bool = False) -> None:
        argv = ["ssh", "-F", self._config, *(["-A"] if forward else []), "head", "--", "bash -s"]
        environment = os.environ | {"SSH_AUTH_SOCK": str(self._lab.agent_socket)}
        done = subprocess.run(
            argv, input=script, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        if done.returncode:
            raise LabError(f"a transfer failed: {done.stderr[-400:]}")

    def _bytes(self) -> int:
        paths = [f"/sys/class/net/{rail}/statistics/tx_bytes" for rail in self._rails]
        return sum(map(int, self._lab.root("head", "cat", *paths).split()))


def _processor_seconds() -> float:
    """What the machine's processors have worked so far."""
    ticks = [int(field) for field in run(["head", "-n1", "/proc/stat"]).split()[1:]]
    idle = ticks[3] + ticks[4]
    return (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK")
