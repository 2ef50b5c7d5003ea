"""The images that the lab deploys, and the models that they serve.

- `stub`: Ray and vLLM as small programs, for tests where seconds count
- `real`: Ray and vLLM's CPU build, with `tiny_model`
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.build import build_image
from lab.images.fake_model import fake_model
from lab.shell import LabError

if TYPE_CHECKING:
    from lab.outer import Outer

__all__ = ["fake_model", "real", "stub", "tiny_model"]

_HERE = Path(__file__).parent
_WHEELS = _HERE.parents[2] / "shared" / "wheels"
_INDEX_VARIABLES = ("PIP_INDEX_URL",)


def stub(outer: Outer, variant: str = "v1", *, ray: bool = True) -> str:
    """Build the stub image unless the engine has it.

    Args:
        outer: The engine, running.
        variant: Any word: two words are two images of equal behaviour.
        ray: Whether it has Ray, which newer images of vLLM lack.

    Returns:
        The image's tag.
    """
    arguments = {**_index(), "VARIANT": variant, "RAY": "yes" if ray else "no"}
    return build_image(outer, _HERE / "stub", "spark-lab/stub", build_args=arguments)


def real(outer: Outer) -> str:
    """Build the image of vLLM on CPU unless the engine has it: minutes, and gigabytes from the index.

    Wheels in SPARK_VLLM_WHEELS, or in the folder `shared/wheels` beside the project, come before the index.

    Returns:
        The image's tag.
    """
    wheels = Path(os.environ.get("SPARK_VLLM_WHEELS", _WHEELS))
    with tempfile.TemporaryDirectory(prefix="spark-lab-") as scratch:
        context = Path(scratch) / "context"
        shutil.copytree(_HERE / "real", context, ignore=shutil.ignore_patterns("__pycache__"))
        (context / "wheels").mkdir()
        for wheel in wheels.glob("*.whl"):
            shutil.copy(wheel, context / "wheels")
        return build_image(outer, context, "spark-lab/real", build_args=_index())


def _index() -> dict[str, str]:
    return {name: os.environ[name] for name in _INDEX_VARIABLES if os.environ.get(name)}


def tiny_model(outer: Outer) -> dict[str, bytes]:
    """The files of the tiny model with random weights that the real image holds, by name.

    Raises:
        LabError: The image does not give them.
    """
    done = outer.attempt(
        "run", "--rm", "--network=none", "--entrypoint=tar", real(outer), "-C", "/opt/tiny-qwen3", "-c", "."
    )
    if done.returncode:
        raise LabError(f"The real image does not give its model: {done.stderr.decode(errors='replace')}")
    files = {}
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        for member in archive.getmembers():
            if content := archive.extractfile(member):
                files[member.name.removeprefix("./")] = content.read()
    return files
