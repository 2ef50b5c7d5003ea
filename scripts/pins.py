"""Pins: an image's tag becomes its digest, a model's branch its commit, without anything being pulled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import asyncssh
from pydantic import ValidationError

from components.settings import PROJECT, HubModel, Image
from scripts.errors import CommandError
from scripts.published import ask, image_digest, model_commit

IMAGE, MODEL = f"{PROJECT}:image", f"{PROJECT}:model"
Secret = Callable[[str], str | None]


class PinError(CommandError):
    """Something cannot be pinned; the message names it and says why."""


async def pins(
    link: asyncssh.SSHClientConnection, config: Mapping[str, Any], secret: Secret
) -> dict[tuple[str, str], str]:
    """What is not pinned in a stack file, as it would be if it were.

    Args:
        link: To the head, which asks.
        config: Of the stack file.
        secret: Opens a secret key of it; None where it is not set.

    Returns:
        By section and key: the pinned value. Empty where all is pinned.

    Raises:
        PinError: The file's value is not valid, or registry or hub do not know it.
        UnreachableError: The head could not be asked.
    """
    try:
        image = Image.model_validate(config[IMAGE]) if IMAGE in config else None
        described = config.get(MODEL) or {}
        model = HubModel.model_validate(described) if "repo" in described else None
    except ValidationError as error:
        first = error.errors()[0]
        raise PinError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None
    image = None if image and image.digest else image
    model = None if model and model.pinned else model
    if image is None and model is None:
        return {}
    facts = await ask(
        link,
        "head",
        image=image,
        model=model,
        registry_password=secret("registryPassword") if image else None,
        hub_token=secret("hubToken") if model else None,
        only_missing=False,
    )
    found: dict[tuple[str, str], str] = {}
    if image:
        digest = image_digest(facts.get("image", ""), facts["arch"])
        if digest is None:
            reason = facts.get("image_fault") or f"it has no image for {facts['arch']}"
            raise PinError(f"{image.registry} has no {image.ref} to pin: {reason}.")
        found[IMAGE, "ref"] = f"{image.ref}@{digest}"
    if model:
        commit = model_commit(facts.get("model", ""))
        if commit is None:
            reason = facts.get("model_fault") or "it told no commit"
            raise PinError(f"{model.endpoint} has no {model.repo} at {model.revision} to pin: {reason}.")
        found[MODEL, "revision"] = commit
    return found
