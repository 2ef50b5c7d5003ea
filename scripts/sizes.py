"""How much an `up` will fetch: asked on the head, which is what fetches it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from components.settings import Distribution, HubModel
from scripts import ssh
from scripts.nodes import connected, must
from scripts.stack import Stack

GB = 10**9


@dataclass(frozen=True)
class Download:
    """Something that is fetched; `bytes` is None where the size is not known."""

    what: str
    source: str
    bytes: int | None

    def __str__(self) -> str:
        """Say it."""
        size = "size not known" if self.bytes is None else f"at most {self.bytes / GB:.2f} GB"
        return f"{self.what}, {size}, from {self.source}"


async def sizes(stack: Stack, steps: Collection[str]) -> tuple[list[Download], str]:
    """What the steps of a plan fetch.

    Args:
        stack: The stack.
        steps: Names of the steps that will run.

    Returns:
        The downloads, and a sentence where the head could not be asked.
    """
    settings, head = stack.settings, stack.settings.head
    image, model = settings.image, settings.model
    pulls = f"image-{head.name}" in steps
    fetches = isinstance(model, HubModel) and f"model-{head.name}" in steps
    if not pulls and not fetches:
        return [], ""
    inputs = {
        "NODE": head.name,
        "REF": image.ref if pulls else "",
        "TAG": image.local_tag,
        "HUB": _hub_url(model) if isinstance(model, HubModel) and fetches else "",
        "PRESENT": model.present,
        "HUB_TOKEN": (stack.secret("hubToken") or "") if fetches else "",
    }
    try:
        async with connected([head]) as links:
            out = await ssh.run(must(links, head.name), "sizes.sh", inputs)
    except ssh.UnreachableError as error:
        return [], f"How much is fetched is not known: {error}"
    facts = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    found = []
    if "image" in facts:
        on = "every node" if image.distribution is Distribution.REGISTRY else "the head"
        size = image_bytes(facts["image"], facts["arch"])
        found.append(Download(f"the image, on {on}", image.registry, size))
    if "model" in facts and isinstance(model, HubModel):
        found.append(Download("the model, on the head", model.endpoint, model_bytes(facts["model"])))
    return found, ""


def image_bytes(manifests: str, architecture: str) -> int | None:
    """The size of an image's layers and configuration, compressed.

    Args:
        manifests: What `docker manifest inspect -v` prints: an object, or one for each platform.
        architecture: Of the node, as Docker names it.
    """
    found = _json(manifests)
    entries = found if isinstance(found, list) else [found]
    for entry in entries:
        platform = entry.get("Descriptor", {}).get("platform") or {}
        manifest = entry.get("OCIManifest") or entry.get("SchemaV2Manifest")
        if manifest and platform.get("architecture") in (None, architecture):
            parts = [manifest["config"], *manifest["layers"]]
            return sum(int(part["size"]) for part in parts)
    return None


def model_bytes(answer: str) -> int | None:
    """The size of a model's files, of what the hub answers about a revision with `blobs=true`."""
    files = _json(answer).get("siblings")
    return sum(int(file.get("size") or 0) for file in files) if files else None


def _hub_url(model: HubModel) -> str:
    return f"{model.endpoint}/api/models/{model.repo}/revision/{model.revision}?blobs=true"


def _json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return {}
