"""Options of leaf resources.

A component's depends_on and delete_before_replace do not reach its children, so every option that matters
stands on the leaf, and these two functions are the only places that make them.
https://www.pulumi.com/docs/iac/concepts/resources/options/
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi


def step(parent: pulumi.Resource, *, after: Sequence[pulumi.Resource] = ()) -> pulumi.ResourceOptions:
    """Options of a command, volume or image."""
    return pulumi.ResourceOptions(parent=parent, depends_on=list(after))


def on_docker(
    parent: pulumi.Resource, provider: pulumi.ProviderResource, *, after: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    """Options of a Docker resource that is not a container."""
    return pulumi.ResourceOptions(parent=parent, provider=provider, depends_on=list(after))


def container(
    parent: pulumi.Resource, provider: pulumi.ProviderResource, *, after: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    """Options of a container: its name is fixed, so the old one goes first; a dead one is replaced.

    `mustRun` turns to false when a refresh finds the container not running; without replace_on_changes it
    would be started in place, keep its id, and nothing that stands on it would follow. Other `mounts` count
    as an update too, and then the container runs on with the old ones (seen with the plugin's 5.2.0).
    """
    return pulumi.ResourceOptions(
        parent=parent,
        provider=provider,
        depends_on=list(after),
        delete_before_replace=True,
        replace_on_changes=["mustRun", "mounts"],
    )
