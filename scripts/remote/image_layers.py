"""Copy what `docker save` writes from stdin to stdout, without the layers that the other side has.

Usage: image_layers.py LAYERS OTHERS, where LAYERS is the image's list of layers (JSON) and OTHERS a file with
the list of each image of the other side, one a line. `docker load` does not open a layer that it has.

What a layer is called in the archive: its digest (Docker 25 and later), before that an identifier made of the
layers up to it, https://github.com/moby/moby/blob/v24.0.9/image/v1/imagev1.go. A name that is not recognised
is copied, so a change of Docker's costs time and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

# What Docker before 25 says of a layer that is not the last: nothing, in the order of its fields.
_CONFIG: dict[str, object] = {
    "Hostname": "", "Domainname": "", "User": "", "AttachStdin": False, "AttachStdout": False,
    "AttachStderr": False, "Tty": False, "OpenStdin": False, "StdinOnce": False, "Env": None, "Cmd": None,
    "Image": "", "Volumes": None, "WorkingDir": "", "Entrypoint": None, "OnBuild": None, "Labels": None,
}  # fmt: skip


def shared(layers: list[str], others: Iterable[list[str]]) -> list[str]:
    """The layers, from the lowest up, that one of the other images stands on too: a layer is its stack."""
    longest = 0
    for other in others:
        count = 0
        for mine, theirs in zip(layers, other, strict=False):
            if mine != theirs:
                break
            count += 1
        longest = max(longest, count)
    return layers[:longest]


def archive_names(layers: list[str]) -> Iterator[tuple[str, str]]:
    """Each layer with the names under which an archive may hold it."""
    chain = parent = ""
    for layer in layers:
        yield layer, f"blobs/{layer.replace(':', '/')}"
        chain = f"sha256:{_sha256(f'{chain} {layer}')}" if chain else layer
        described: dict[str, object] = {
            "container_config": _CONFIG, "created": "1970-01-01T00:00:00Z", "layer_id": chain,
        }  # fmt: skip
        if parent:
            described["parent"] = f"sha256:{parent}"
        parent = _sha256(json.dumps(described, separators=(",", ":")))
        yield layer, f"{parent}/layer.tar"


def main(layers: list[str], others: Path) -> None:
    """Copy the archive."""
    lists = [json.loads(line) or [] for line in others.read_text(encoding="utf-8").splitlines()]
    known = shared(layers, lists)
    # an archive holds a layer once, also where it stands in the image twice
    needed = layers[len(known) :]
    absent = {name for layer, name in archive_names(known) if layer not in needed}
    left_out = 0
    with (
        tarfile.open(fileobj=sys.stdin.buffer, mode="r|", bufsize=1 << 20) as source,
        tarfile.open(fileobj=sys.stdout.buffer, mode="w|", bufsize=1 << 20) as target,
    ):
        for member in source:
            if member.name in absent:
                left_out += member.size
            else:
                target.addfile(member, source.extractfile(member) if member.isreg() else None)
    print(
        f"{len(known)} of {len(layers)} layers are there already, {left_out / 1e6:.0f} MB were left out",
        file=sys.stderr,
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]))
