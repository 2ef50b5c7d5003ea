"""What of an image is sent: archives of old and new engines, run through the program as the head does."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "scripts" / "remote" / "image_layers.py"
LOWEST, MIDDLE, TOP, FOREIGN = (f"sha256:{digit * 64}" for digit in "1234")
IMAGE = [LOWEST, MIDDLE, TOP]


def blob(layer: str) -> str:
    return f"blobs/{layer.replace(':', '/')}"


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 1000
            tar.addfile(entry, io.BytesIO(bytes(1000)))
        link = tarfile.TarInfo("link/layer.tar")
        link.type, link.linkname = tarfile.SYMTYPE, f"../{names[0]}"
        tar.addfile(link)
    return stream.getvalue()


def sent(
    stdin: bytes, layers: list[str], others: list[list[str] | None], scratch: Path
) -> tuple[list[str], str]:
    """The names in the archive that goes out, and the words about it."""
    file = scratch / "others"
    file.write_text("".join(f"{json.dumps(other)}\n" for other in others))
    argv = [sys.executable, "-c", PROGRAM.read_text(), json.dumps(layers), str(file)]
    done = subprocess.run(argv, input=stdin, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        return tar.getnames(), done.stderr.decode()


@pytest.mark.parametrize(
    ("others", "left_out"),
    [
        pytest.param([], [], id="nothing there"),
        pytest.param([[LOWEST, MIDDLE, FOREIGN]], [LOWEST, MIDDLE], id="same base"),
        pytest.param([[LOWEST], [LOWEST, MIDDLE, TOP, FOREIGN], None], IMAGE, id="all of it, under another"),
        pytest.param([[MIDDLE, TOP]], [], id="same layers on another base"),
        pytest.param([[FOREIGN, LOWEST, MIDDLE]], [], id="same layers one higher"),
    ],
)
def test_a_layer_stays_behind_only_where_its_whole_stack_is_there(
    others: list[list[str] | None], left_out: list[str], tmp_path: Path
) -> None:
    names = [*map(blob, IMAGE), "manifest.json"]
    out, words = sent(archive(*names), IMAGE, others, tmp_path)
    assert [name for name in names if name not in out] == list(map(blob, left_out))
    assert "link/layer.tar" in out
    assert f"{len(left_out)} of 3 layers are there already" in words


def test_a_layer_that_stands_in_the_image_twice_is_sent_if_one_of_them_is_missing(tmp_path: Path) -> None:
    out, _ = sent(archive(blob(LOWEST), blob(TOP)), [LOWEST, TOP, LOWEST], [[LOWEST]], tmp_path)
    assert out == [blob(LOWEST), blob(TOP), "link/layer.tar"]


def test_the_names_of_older_engines_are_known(tmp_path: Path) -> None:
    # Seen with Docker 20.10: a Debian base image of one layer, and the layer upon it.
    layers = json.loads((Path(__file__).parent / "saved-by-docker-20.10.json").read_text())
    names = [f"{name}/layer.tar" for name in layers["names"]]
    out, _ = sent(archive(*names, "unknown/layer.tar"), layers["layers"], [layers["layers"][:-1]], tmp_path)
    assert out == [names[-1], "unknown/layer.tar", "link/layer.tar"]
