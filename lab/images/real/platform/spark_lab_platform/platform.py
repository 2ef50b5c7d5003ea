"""The CPU platform that the Ray executor accepts."""

# mypy: disable-error-code="import-not-found, misc, no-any-return"
# What it imports is in the image only.

from vllm.platforms.cpu import CpuPlatform


class RayCpuPlatform(CpuPlatform):
    """vLLM's CPU platform; Ray schedules it by the resource that stands for a Spark's GPU."""

    ray_device_key = "GPU"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        """Name the communicator's class."""
        return "spark_lab_platform.communicator.RemoteCpuCommunicator"
