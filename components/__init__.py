"""The components of a deployment, one a file, in the order in which data flows."""
