"""Which address this machine has."""

import os
import socket


def get_ip() -> str:
    """VLLM_HOST_IP, else the address of the default route: not the fabric's."""
    if named := os.environ.get("VLLM_HOST_IP"):
        return named
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("8.8.8.8", 80))  # a datagram socket sends nothing here
        except OSError:
            return "0.0.0.0"  # noqa: S104
        return str(probe.getsockname()[0])
