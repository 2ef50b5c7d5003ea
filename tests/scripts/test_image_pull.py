"""What makes two images equal, whatever the image store of each node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote import on_a_node

PROPERTIES = (
    "RootFS.Layers",
    "Config.Env",
    "Config.Entrypoint",
    "Config.Cmd",
    "Config.User",
    "Config.WorkingDir",
)
# Answers a format with the file of each property that it asks for.
DOCKER = """
for name in $PROPERTIES; do
  case "$*" in *".$name}}"*) cat "{scratch}/$name" ;; esac
done
case "$*" in
  *RepoDigests*) echo 'vllm@sha256:feed' ;;
  *Arch*) echo arm64 ;;
  *Size*) echo 1 ;;
esac
"""


def identity(scratch: Path, **different: str) -> str:
    """What image-pull.sh says of an image that is there."""
    for name in PROPERTIES:
        (scratch / name).write_text(different.get(name.rpartition(".")[2], "as everywhere"))
    inputs = {
        "NODE": "head", "REF": "vllm:v1@sha256:feed", "DIGEST": "sha256:feed", "TAG": "spark-vllm/vllm:feed",
        "REGISTRY": "docker.io", "REGISTRY_USER": "",
    }  # fmt: skip
    docker = DOCKER.replace("$PROPERTIES", " ".join(PROPERTIES)).replace("{scratch}", str(scratch))
    status, out, words = on_a_node("image-pull.sh", inputs, scratch, libraries=["registry.sh"], docker=docker)
    assert status == 0, words
    return out.partition("identity=")[2].splitlines()[0]


@pytest.mark.parametrize("name", [name.rpartition(".")[2] for name in PROPERTIES])
@pytest.mark.report("D7")
def test_layers_and_configuration_make_the_identity(tmp_path: Path, name: str) -> None:
    assert identity(tmp_path) == identity(tmp_path)
    assert identity(tmp_path, **{name: "another"}) != identity(tmp_path)
