"""What registries and hubs answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.published import image_bytes, image_digest, model_bytes, model_commit


def manifest(architecture: str | None, *sizes: int, kind: str = "OCIManifest") -> dict[str, Any]:
    platform = {"architecture": architecture, "os": "linux"} if architecture else None
    layers = [{"size": size} for size in sizes]
    descriptor = {"platform": platform, "digest": f"sha256:{sum(sizes)}"}
    return {"Descriptor": descriptor, kind: {"config": {"size": 1}, "layers": layers}}


@pytest.mark.parametrize("kind", ["OCIManifest", "SchemaV2Manifest"])
def test_of_several_platforms_the_nodes_own_counts(kind: str) -> None:
    both = [manifest("amd64", 5, kind=kind), manifest("arm64", 10, 20, kind=kind)]
    assert image_bytes(json.dumps(both), "arm64") == 31
    assert image_digest(json.dumps(both), "arm64") == "sha256:30"


def test_an_image_for_one_platform_alone_counts() -> None:
    assert image_bytes(json.dumps(manifest(None, 10)), "arm64") == 11
    assert image_digest(json.dumps(manifest(None, 10)), "arm64") == "sha256:10"


@pytest.mark.parametrize("answer", ["", "no such manifest", "[]", "{}", json.dumps(manifest("amd64", 5))])
def test_what_no_registry_says_is_not_known(answer: str) -> None:
    assert image_bytes(answer, "arm64") is None
    assert image_digest(answer, "arm64") is None


def test_a_models_files_are_added_up() -> None:
    answer = {
        "sha": "ab" * 20,
        "siblings": [{"rfilename": "a", "size": 10}, {"rfilename": "b", "size": 5}, {"rfilename": "c"}],
    }
    assert model_bytes(json.dumps(answer)) == 15
    assert model_commit(json.dumps(answer)) == "ab" * 20
    assert model_bytes("") is None
    assert model_commit("") is None
    assert model_bytes("not found") is None
