"""Disks of nodes that had an image in an earlier life, so that not every lab begins with gigabytes to unpack.

A disk is kept once and given to new nodes as a copy. The files of layers are shared by hard links: an engine
never writes to a layer that it holds. All else is copied.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.outer import Outer

_COPY = """
rm -rf "$2.new"
mkdir -p "$2.new" "$2"
for entry in "$1"/*; do
  case ${entry##*/} in
    overlay2) cp -al "$entry" "$2.new/" ;;
    *) cp -a "$entry" "$2.new/" ;;
  esac
done
rm -rf "$2"
mv "$2.new" "$2"
"""


def disk_of(image: str) -> str:
    """The name of the disk that holds an image of the lab."""
    return re.sub(r"[^a-z0-9]+", "-", image)


@dataclass(frozen=True)
class Disks:
    """The disks that an outer engine's cache keeps, by name."""

    outer: Outer

    def has(self, name: str) -> bool:
        """Whether a disk of that name is kept."""
        return self._path(name).is_dir()

    def keep(self, name: str, volume: str) -> None:
        """Keep the volume of a node whose engine is stopped, in place of what was kept of older images.

        Raises:
            LabError: It could not be copied.
        """
        self._copy(self._volume(volume), self._path(name))
        kept = self._path(name)
        for other in kept.parent.glob(f"{name.rpartition('-')[0]}-*"):
            if other != kept:
                # whoever is ended in between leaves no half of a disk under its name
                shutil.rmtree(other.rename(f"{other}.old"))

    def give(self, name: str, volume: str) -> None:
        """Fill the new volume of a node that has not booted yet.

        Raises:
            LabError: It could not be copied.
        """
        self._copy(self._path(name), self._volume(volume))

    def _copy(self, source: Path, target: Path) -> None:
        # one mount of one file system holds both: links do not reach from volume to volume inside a container
        self.outer.inside("bash", "-euc", _COPY, "copy", str(source), str(target))

    def _path(self, name: str) -> Path:
        return self.outer.cache / "disks" / name

    def _volume(self, name: str) -> Path:
        return self.outer.cache / "docker" / "volumes" / name / "_data"
