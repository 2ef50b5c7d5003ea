"""Sizes, in bytes."""

KIB = 1024
GIB = 1024**3
GB = 10**9
