"""How much an `up` will fetch: asked on the head, which is what fetches it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from components.settings import Distribution, HubModel
from scripts import ssh
from scripts.nodes import connected, must
from scripts.published import ask, image_bytes, model_bytes
from scripts.stack import Stack
from scripts.units import GB


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
    try:
        async with connected([head]) as links:
            facts = await ask(
                must(links, head.name),
                head.name,
                image=image if pulls else None,
                model=model if isinstance(model, HubModel) and fetches else None,
                registry_password=stack.secret("registryPassword") if pulls else None,
                hub_token=stack.secret("hubToken") if fetches else None,
                only_missing=True,
            )
    except ssh.UnreachableError as error:
        return [], f"How much is fetched is not known: {error}"
    found = []
    if {"image", "image_fault"} & facts.keys():
        on = "every node" if image.distribution is Distribution.REGISTRY else "the head"
        size = image_bytes(facts.get("image", ""), facts["arch"])
        found.append(Download(f"the image, on {on}", image.registry, size))
    if {"model", "model_fault"} & facts.keys() and isinstance(model, HubModel):
        found.append(Download("the model, on the head", model.endpoint, model_bytes(facts.get("model", ""))))
    return found, ""
