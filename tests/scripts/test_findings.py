"""The doctor's judgement: what is fine says so, and what is not names the node and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from components.settings import Settings
from scripts.containers import Container
from scripts.findings import Facts, Finding, Level, judge
from tests import samples

GIB_IN_KIB = 1024**2
GOOD = {
    "user": "aurora",
    "kernel": "6.17.0-1014-nvidia",
    "arch": "aarch64",
    "driver": "580.95.05",
    "docker": "29.1.3",
    "image_store": "overlay2 Backing Filesystem=extfs",
    "runtime": "nvidia",
    "sudo": "yes",
    "ntp": "yes",
    "memory_total_kib": str(120 * GIB_IN_KIB),
    "memory_available_kib": str(115 * GIB_IN_KIB),
    "page_cache_kib": str(90 * GIB_IN_KIB),
    "image_there": "yes",
    "image": "abcdef012345",
    "model": "012345abcdef",
    "speed_enp1s0f0np0": "200",
}
RUNNING = Container(
    id="ab" * 32,
    name="ray-worker",
    state="running",
    exit_code=0,
    restarts=0,
    out_of_memory=False,
    started="2026-01-01T00:00:00Z",
    finished="0001-01-01T00:00:00Z",
)


@pytest.fixture
def settings() -> Settings:
    return samples.settings()


def pair(worker: Facts | None = None, changed: Mapping[str, str | None] | None = None) -> list[Facts]:
    """Facts of two good nodes, of which the worker's may differ; None takes a value away."""
    values = {key: value for key, value in {**GOOD, **(changed or {})}.items() if value is not None}
    return [Facts("head", values=GOOD), replace(worker or Facts("worker"), values=values)]


def faults(settings: Settings, facts: list[Facts]) -> list[Finding]:
    return [each for each in judge(settings, facts) if each.level is not Level.OK]


def test_nothing_is_wrong_with_two_good_nodes(settings: Settings) -> None:
    found = judge(settings, pair())
    assert {each.level for each in found} == {Level.OK}
    assert {"SSH", "sudo", "Docker", "NVIDIA runtime", "rails", "clock", "memory", "kernel", "driver"} <= {
        each.check for each in found
    }


@pytest.mark.parametrize(
    ("changed", "check", "level", "words"),
    [
        ({"sudo": None}, "sudo", Level.WARNING, "asks for a password"),
        ({"docker_fault": "permission denied"}, "Docker", Level.PROBLEM, "permission denied"),
        ({"runtime": None}, "NVIDIA runtime", Level.PROBLEM, "no container gets the GPU"),
        ({"kernel": "6.17.0-1021-nvidia"}, "kernel", Level.WARNING, "worker 6.17.0-1021-nvidia"),
        ({"driver": "590.1"}, "driver", Level.WARNING, "head 580.95.05, worker 590.1"),
        ({"memory_available_kib": str(50 * GIB_IN_KIB)}, "memory", Level.PROBLEM, "50 of 120 GiB free"),
        ({"image": "another"}, "image", Level.PROBLEM, "not the same on all nodes"),
        ({"image_there": None}, "image", Level.PROBLEM, "not on worker"),
        ({"model": "another"}, "model", Level.PROBLEM, "not the same on all nodes"),
        ({"model": None}, "model", Level.PROBLEM, "not on worker"),
        ({"speed_enp1s0f0np0": "100"}, "link speed", Level.WARNING, "enp1s0f0np0 runs at 100 Gb/s"),
    ],
)
def test_one_thing_that_is_wrong_is_the_one_that_is_told(
    settings: Settings, changed: dict[str, str | None], check: str, level: Level, words: str
) -> None:
    (found,) = faults(settings, pair(changed=changed))
    assert (found.check, found.level) == (check, level)
    assert words in found.words
    assert found.remedy


@pytest.mark.report("F13")
def test_a_kernel_that_is_known_to_be_bad_is_named_where_it_runs(settings: Settings) -> None:
    bad = {**GOOD, "kernel": "7.0.0-1019-nvidia"}
    found = faults(settings, [Facts("head", values=bad), Facts("worker", values=bad)])
    assert [(each.node, each.check) for each in found] == [("head", "kernel"), ("worker", "kernel")]


@pytest.mark.parametrize(
    ("worker", "check", "words"),
    [
        (Facts("worker", fault="worker does not answer"), "SSH", "worker does not answer"),
        (Facts("worker", link_fault="worker: enp1s0f0np0 is down"), "rails", "enp1s0f0np0 is down"),
        (Facts("worker", skew=-31.0), "clock", "31 s behind"),
        (Facts("worker", skew=31.0), "clock", "31 s ahead"),
        (Facts("worker", strangers=["comfyui"]), "GPU", "comfyui"),
        (Facts("worker", ports=[6380]), "ports", "6380"),
        (
            Facts("worker", disks=[("model", 1024**3, 1000 * 1024**3, "/models")]),
            "disk (model)",
            "/models: 1 of 1000",
        ),
    ],
)
def test_what_is_wrong_on_one_node_names_it(
    settings: Settings, worker: Facts, check: str, words: str
) -> None:
    (found,) = faults(settings, pair(worker))
    assert (found.node, found.check) == ("worker", check)
    assert words in found.words
    assert found.remedy


def test_memory_and_ports_that_ours_hold_are_fine(settings: Settings) -> None:
    facts = pair(
        Facts("worker", ports=[6380], containers=[RUNNING]), {"memory_available_kib": str(5 * GIB_IN_KIB)}
    )
    assert faults(settings, facts) == []


def test_before_the_first_deployment_image_and_model_are_only_not_there_yet(settings: Settings) -> None:
    values = {key: value for key, value in GOOD.items() if key not in ("image_there", "model")}
    found = faults(settings, [Facts("head", values=values), Facts("worker", values=values)])
    assert [(each.check, each.level) for each in found] == [
        ("image", Level.WARNING),
        ("model", Level.WARNING),
    ]


def test_what_the_script_prints_is_read() -> None:
    out = (
        "user=aurora\nclock=1.5\ndisk=model 10 100 /with a space\nport_taken=8000\ngpu_stranger=comfyui\n"
        f"container={'ab' * 32} vllm exited 137 2 true 2026-01-01T00:00:00Z 2026-01-01T00:01:00Z\n"
    )
    facts = Facts.parse("head", out, link_fault="", skew=0)
    assert facts.values == {"user": "aurora", "clock": "1.5"}
    assert list(facts.disks) == [("model", 10, 100, "/with a space")]
    assert (list(facts.ports), list(facts.strangers)) == ([8000], ["comfyui"])
    (container,) = facts.containers
    assert (container.name, container.exit_code, container.restarts, container.out_of_memory) == (
        "vllm",
        137,
        2,
        True,
    )
