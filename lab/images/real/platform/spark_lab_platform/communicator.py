"""Collective operations between CPUs of different machines."""

# mypy: disable-error-code="import-not-found, misc, no-any-return"
# What it imports is in the image only.

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class RemoteCpuCommunicator(CpuCommunicator):
    """vLLM's CPU communicator through gloo alone: equal shared-memory names of two machines mean nothing."""

    def _all_group_ranks_share_shm_group_name(self) -> bool:
        return False
