"""A vLLM platform plugin: the CPU, with one `GPU` of Ray per machine and ranks that share no memory."""


def register() -> str:
    """Name the platform's class; it is imported by vLLM only where the platform is wanted."""
    return "spark_lab_platform.platform.RayCpuPlatform"
