"""How long the service is gone at a change, as a client sees it, with the real image."""

from __future__ import annotations

import itertools
import json
import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, Self

import httpx

from lab.bench.figures import Figure, Kind, alternately, seconds
from lab.bench.pair import change, instance, stack_on
from lab.demo import REAL_SETTINGS
from lab.deployment import Deployment
from lab.images import real, tiny_model
from lab.instance import Lab
from lab.shell import LabError

GROUP = "service"
PERIOD = 0.1
BACK_SECONDS = 600
REAL_PAIR = "the ratio does not: there the weights take most of a start; the seconds saved do"


class Client:
    """Asks for a completion ten times a second, and knows when it got one."""

    def __init__(self, url: str, key: str) -> None:
        """Take the API's address and key."""
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self._answers: list[float] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        """Begin, and wait for an answer."""
        self._thread.start()
        self.wait_for(1)
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._ended.set()
        self._thread.join()

    def wait_for(self, more: int) -> None:
        """Wait until that many more answers have come.

        Raises:
            LabError: They did not come in time.
        """
        wanted, began = len(self._answers) + more, time.monotonic()
        while len(self._answers) < wanted:
            if time.monotonic() - began > BACK_SECONDS:
                raise LabError(f"the service did not come back within {BACK_SECONDS} s.")
            time.sleep(PERIOD)

    def longest_gap(self) -> float:
        """The longest time between two answers, in seconds, beyond what is usual."""
        gaps = [after - before for before, after in itertools.pairwise(self._answers)]
        return max(gaps) - median(gaps)

    def _ask(self) -> None:
        body = {"model": "tiny", "prompt": "Hello", "max_tokens": 1}
        while not self._ended.wait(PERIOD):
            try:
                answer = httpx.post(f"{self._url}/completions", json=body, headers=self._headers, timeout=5)
            except httpx.HTTPError:
                continue
            if answer.status_code == httpx.codes.OK:
                self._answers.append(time.monotonic())


def measure(rounds: int) -> Iterator[Figure]:
    """Measure; a sample takes a minute, so there are fewer of them."""
    rounds = max(2, (rounds + 1) // 2)
    with instance("service", image=real) as lab:
        image = real(lab.outer)
        pair = stack_on(lab)
        pair.put_model(tiny_model(lab.outer))
        pair.configure(lab.push(image), *REAL_SETTINGS)
        pair.must("up")
        yield from _Changes(pair, image, rounds).figures()


class _Changes:
    """The changes, by the program and by bare docker."""

    def __init__(self, pair: Deployment, image: str, rounds: int) -> None:
        self._pair = pair
        self._lab = pair.lab
        self._image = image
        self._rounds = rounds
        self._client: Client
        self._number = itertools.count(2)
        self._took: list[float] = []

    def figures(self) -> Iterator[Figure]:
        yield self._refused()
        samples = alternately(
            self._rounds,
            {"ours": self._flag_by_pulumi, "bare": self._flag_by_docker, "hand": self._all_by_hand},
        )
        yield Figure(
            name="flag change, without service",
            group=GROUP,
            what="time without service at a change of a flag",
            against="docker rm -f and docker run of the server, nothing kept",
            measured=samples["ours"],
            reference=samples["bare"],
            reach=0.6,
            real_pair=REAL_PAIR,
            note="the caches of the image stay on the node",
        )
        yield Figure(
            name="flag change, all of up",
            group=GROUP,
            what="`pulumi up` of a change of a flag, to the end of its smoke test",
            against="the bare change's time without service",
            measured=tuple(self._took),
            reference=samples["bare"],
            reach=1.0,
            real_pair=REAL_PAIR,
            note="the gates ask vLLM itself about the arguments while the old server answers",
        )
        yield Figure(
            name="flag change, by hand",
            group=GROUP,
            what="time without service at a change of a flag",
            against="the hand script's way: stop all, Ray head, Ray worker, serve",
            measured=samples["ours"],
            reference=samples["hand"],
            reach=0.5,
            real_pair=REAL_PAIR,
        )
        images = alternately(
            max(2, self._rounds - 1), {"ours": self._image_by_pulumi, "bare": self._image_by_docker}
        )
        yield Figure(
            name="image change, without service",
            group=GROUP,
            what="time without service at a change of the image",
            against="the same by bare docker, the image on both nodes already",
            measured=images["ours"],
            reference=images["bare"],
            reach=0.7,
            real_pair=REAL_PAIR,
            note="the argument check has filled those of the new image's caches that it can",
        )

    def _refused(self) -> Figure:
        with self._asking() as client:
            change(self._pair, vllm={"args": {"max-modl-len": 1}})
            refused = self._pair.pulumi("up")
            client.wait_for(3)
            gap = client.longest_gap()
        self._set_flag(next(self._number))
        if refused.status == 0:
            raise LabError("a flag that does not exist was not refused.")
        return Figure(
            name="refused change",
            group=GROUP,
            what="longest time without an answer while a change is refused, beyond the usual",
            kind=Kind.VALUE,
            measured=(gap,),
            reach=1.5,
            real_pair="carries over: nothing is stopped",
            note="the check shares the lab's two cores with the server",
        )

    def _flag_by_pulumi(self) -> float:
        self._set_flag(next(self._number))
        return self._gap(lambda: self._took.append(self._up()))

    def _flag_by_docker(self) -> float:
        bare = _Bare(self._lab, self._pair.api_key())
        start = bare.server(flag=next(self._number))
        gap = self._gap(lambda: (self._lab.docker("head", "rm", "-f", "vllm"), start()))
        self._restore("vllm-bare")
        return gap

    def _all_by_hand(self) -> float:
        bare = _Bare(self._lab, self._pair.api_key())
        start = bare.everything()
        gap = self._gap(start)
        self._restore("vllm-bare", "ray-head-bare", "ray-worker-bare")
        return gap

    def _image_by_pulumi(self) -> float:
        reference = self._lab.push(self._variant(next(self._number)))
        change(self._pair, image={"ref": reference})
        return self._gap(self._up)

    def _image_by_docker(self) -> float:
        image = self._variant(next(self._number))
        for node in ("head", "worker"):
            self._lab.load(node, image)
        start = _Bare(self._lab, self._pair.api_key()).everything(image)
        gap = self._gap(start)
        self._restore("vllm-bare", "ray-head-bare", "ray-worker-bare")
        return gap

    def _variant(self, number: int) -> str:
        """The image with one more layer."""
        tag = f"spark-lab/real-bench:{number}"
        with tempfile.TemporaryDirectory(prefix="spark-lab-") as scratch:
            Path(scratch, "Dockerfile").write_text(f"FROM {self._image}\nRUN echo {number} >/etc/variant\n")
            self._lab.outer.docker("build", "--quiet", f"--tag={tag}", scratch)
        return tag

    def _gap(self, what: Callable[[], object]) -> float:
        with self._asking() as client:
            what()
            client.wait_for(5)
            return client.longest_gap()

    def _asking(self) -> Client:
        return Client(self._pair.output("endpoint"), self._pair.api_key())

    def _set_flag(self, number: int) -> None:
        change(self._pair, vllm={"args": {"max-model-len": 512, "max-num-seqs": number}})

    def _up(self) -> float:
        return seconds(lambda: self._pair.must("up"))

    def _restore(self, *names: str) -> None:
        """Let the program's own containers come back."""
        for name in names:
            node = "worker" if "worker" in name else "head"
            self._lab.docker(node, "rm", "-f", name)
        self._pair.must("up", "--refresh")


class _Bare:
    """The same containers as the program's, by `docker run`, with nothing kept between them."""

    def __init__(self, lab: Lab, key: str) -> None:
        self._lab = lab
        self._key = key

    def server(self, *, flag: int = 0, image: str = "") -> Callable[[], object]:
        """What starts the server."""
        words = self._words("head", "vllm", image)
        if flag:
            words = [
                f"--max-num-seqs={flag}" if word.startswith("--max-num-seqs=") else word for word in words
            ]
        return lambda: self._lab.docker("head", *words)

    def everything(self, image: str = "") -> Callable[[], None]:
        """What stops all, and starts the Ray head, the worker and the server."""
        head, worker = self._words("head", "ray-head", image), self._words("worker", "ray-worker", image)
        serve = self.server(image=image)

        def start() -> None:
            self._lab.docker("head", "rm", "-f", "vllm", "ray-head")
            self._lab.docker("worker", "rm", "-f", "ray-worker")
            self._lab.docker("head", *head)
            self._lab.root(
                "head",
                "bash",
                "-c",
                "until ss -Hltn sport = :6379 | grep -c . >/dev/null; do sleep 0.2; done",
            )
            self._lab.docker("worker", *worker)
            serve()

        return start

    def _words(self, node: str, name: str, image: str) -> list[str]:
        """`docker run` of a container like one that runs, under a name of its own."""
        facts: dict[str, Any] = json.loads(self._lab.docker(node, "inspect", name))[0]
        kept = f"/home/aurora/bare-{name}"
        self._lab.root(node, "bash", "-c", f"rm -rf {kept}; docker cp {name}:/spark {kept} >/dev/null")
        words = ["run", "-d", f"--name={name}-bare", "--network=host", "--ipc=host", "--pid=host"]
        words += [f"--volume={kept}:/spark"]
        for mount in facts["Mounts"]:
            source = mount.get("Name") or mount["Source"]
            if mount["Destination"] != "/cache":
                words.append(f"--volume={source}:{mount['Destination']}")
        words += [f"--env={each}" for each in facts["Config"]["Env"] if "=/cache" not in each]
        command = shlex.join(facts["Args"][2:])
        serve = 'export VLLM_API_KEY="$(</spark/api-key)"; ' if name == "vllm" else ""
        return [*words, "--entrypoint=/bin/bash", image or facts["Image"], "-c", f"{serve}exec {command}"]
