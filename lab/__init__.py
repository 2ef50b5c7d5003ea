"""Two simulated DGX Sparks on one machine, and a Pulumi engine for machines that cannot download one."""
