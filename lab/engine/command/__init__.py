"""A stand-in for the command plugin, for machines that cannot have the official one, and for those only.

It serves `command:remote:Command` as pulumi-resource-command 1.2.1 does, its weaknesses included: any change
but one of `triggers` runs `update`, else `create`, again; a cancelled run leaves the remote command running;
there is no keep-alive; a failed command's whole text and output stand in the error. Every other type is
refused.
"""
