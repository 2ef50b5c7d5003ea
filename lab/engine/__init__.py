"""A Pulumi engine for machines that cannot download one."""
