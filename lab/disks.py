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


@dataclass(frozen=True)
class Disks:
    """The disks that an outer engine's cache keeps, each named after the image, `name:key`, that it has."""

    outer: Outer

    def has(self, image: str) -> bool:
        """Whether a disk with the image is kept."""
        return self._path(image).is_dir()

    def keep(self, image: str, volume: str) -> None:
        """Keep the volume of a node whose engine is stopped, in place of those with other keys of the image.

        Raises:
            LabError: It could not be copied.
        """
        kept = self._path(image)
        self._copy(self._volume(volume), kept)
        for other in kept.parent.glob(f"{self._path(image.partition(':')[0]).name}-*"):
            if other != kept:
                # whoever is ended in between leaves no half of a disk under its name
                shutil.rmtree(other.rename(f"{other}.old"))

    def give(self, image: str, volume: str) -> None:
        """Fill the new volume of a node that has not booted yet.

        Raises:
            LabError: It could not be copied.
        """
        self._copy(self._path(image), self._volume(volume))

    def _copy(self, source: Path, target: Path) -> None:
        # one mount of one file system holds both: links do not reach from volume to volume inside a container
        self.outer.inside("bash", "-euc", _COPY, "copy", str(source), str(target))

    def _path(self, image: str) -> Path:
        return self.outer.cache / "disks" / re.sub(r"[^a-z0-9]+", "-", image)

    def _volume(self, name: str) -> Path:
        return self.outer.cache / "docker" / "volumes" / name / "_data"
