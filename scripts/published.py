"""What a registry and a hub say of an image and a model: asked on the head, which is what fetches them."""

from __future__ import annotations

import json
from typing import Any

import asyncssh

from components.remote import pairs
from components.settings import HubModel, Image
from scripts import ssh


async def ask(  # noqa: PLR0913 - what may be asked
    link: asyncssh.SSHClientConnection,
    node: str,
    *,
    image: Image | None,
    model: HubModel | None,
    registry_password: str | None,
    hub_token: str | None,
    only_missing: bool,
) -> dict[str, str]:
    """Ask on a node.

    Args:
        link: To the node.
        node: Its name.
        image: To ask for, or None.
        model: To ask for, or None.
        registry_password: Of a private registry.
        hub_token: For a model that asks for one.
        only_missing: Whether what the node has already is not asked for.

    Returns:
        `arch` of the node as Docker names it, `image` and `model` as they were answered, or `image_fault` and
        `model_fault` with the reason why not.

    Raises:
        UnreachableError: The node could not be asked.
    """
    inputs = {
        "NODE": node,
        "REF": image.ref if image else "",
        "TAG": image.local_tag if image and only_missing else "",
        "REGISTRY": image.registry if image else "",
        "REGISTRY_USER": (image.registry_user or "") if image else "",
        "REGISTRY_PASSWORD": registry_password or "",
        "HUB": f"{model.endpoint}/api/models/{model.repo}/revision/{model.revision}?blobs=true"
        if model
        else "",
        "PRESENT": model.present if model and only_missing else "",
        "HUB_TOKEN": hub_token or "",
    }
    out = await ssh.run(link, "published.sh", inputs, libraries=["registry.sh"])
    return dict(pairs(out))


def image_bytes(manifests: str, architecture: str) -> int | None:
    """The size of an image's layers and configuration, compressed.

    Args:
        manifests: What `docker manifest inspect -v` prints: an object, or one for each platform.
        architecture: Of the node, as Docker names it.
    """
    entry = _of(manifests, architecture)
    manifest = entry.get("OCIManifest") or entry.get("SchemaV2Manifest")
    if manifest is None:
        return None
    return sum(int(part["size"]) for part in [manifest["config"], *manifest["layers"]])


def image_digest(manifests: str, architecture: str) -> str | None:
    """The digest, `sha256:...`, of an image for one architecture; arguments as for `image_bytes`."""
    digest: str | None = _of(manifests, architecture).get("Descriptor", {}).get("digest")
    return digest


def model_bytes(answer: str) -> int | None:
    """The size of a model's files, of what the hub answers about a revision with `blobs=true`."""
    files = _json(answer).get("siblings")
    return sum(int(file.get("size") or 0) for file in files) if files else None


def model_commit(answer: str) -> str | None:
    """The commit of a revision, 40 hex digits; argument as for `model_bytes`."""
    commit: str | None = _json(answer).get("sha")
    return commit


def _of(manifests: str, architecture: str) -> dict[str, Any]:
    found = _json(manifests)
    for entry in found if isinstance(found, list) else [found]:
        platform = entry.get("Descriptor", {}).get("platform") or {}
        if platform.get("architecture") in (None, architecture):
            return dict(entry)
    return {}


def _json(text: str) -> Any:  # noqa: ANN401
    try:
        return json.loads(text)
    except ValueError:
        return {}
