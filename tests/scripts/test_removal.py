"""What `destroy` removes if the settings say so, and what it leaves even then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remote import on_a_node

DOCKER = """
echo "$*" >>'{scratch}/docker.log'
case "$1 $2" in
  "image inspect") echo sha256:1 ;;
  "ps -aq" | "ps -q") [ -z "{user}" ] || echo 0123 ;;
  "inspect --format")
    case "$3" in
      *Mounts*) printf '%s\t/models\n' '{scratch}' ;;
      *) printf '/vllm\n/models/revision\n' ;;
    esac
    ;;
esac
"""


def remove(scratch: Path, verb: str, *, asked: bool, user: str = "") -> tuple[int, str, str]:
    """Run the step on a node that has all, which a container uses or none does."""
    model = scratch / "revision"
    model.mkdir(exist_ok=True)
    (model / ".complete").touch()
    inputs = {
        "NODE": "head",
        "TAG": "spark-vllm/x:1" if asked else "",
        "CACHE_VOLUME": "cache" if asked else "",
        "MODEL": str(model) if asked else "",
    }
    docker = DOCKER.format(scratch=scratch, user=user)
    return on_a_node("removal.sh", inputs, scratch, verb=verb, libraries=["model.sh"], docker=docker)


def test_what_was_asked_for_goes(tmp_path: Path) -> None:
    status, out, _ = remove(tmp_path, "remove", asked=True)
    assert (status, out.split()) == (0, ["removed=spark-vllm/x:1", f"removed={tmp_path}/revision"])
    assert not (tmp_path / "revision").exists()
    log = (tmp_path / "docker.log").read_text()
    assert "image rm -f sha256:1\n" in log
    assert "volume rm -f cache\n" in log


@pytest.mark.parametrize(("verb", "asked"), [("remove", False), ("apply", True)])
def test_nothing_else_goes(tmp_path: Path, verb: str, *, asked: bool) -> None:
    assert remove(tmp_path, verb, asked=asked)[:2] == (0, "")
    assert (tmp_path / "revision" / ".complete").exists()
    assert not (tmp_path / "docker.log").exists()


def test_what_another_deployment_uses_stays(tmp_path: Path) -> None:
    status, out, words = remove(tmp_path, "remove", asked=True, user="vllm")
    assert (status, out) == (0, "")
    assert "spark-vllm/x:1 stays: another container uses it." in words
    assert f"{tmp_path}/revision stays: vllm uses it." in words
    assert (tmp_path / "revision" / ".complete").exists()
    assert " rm -f sha256" not in (tmp_path / "docker.log").read_text()
