"""No secret stands in a preview, an output, a log, the state, `docker inspect` or a process list."""

from __future__ import annotations

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import edit

pytestmark = pytest.mark.lab


@pytest.mark.report("V4", "K8", "P9")
def test_secrets_are_nowhere_in_clear(deployed: Deployment) -> None:
    token = deployed.must("config", "get", "rayToken", f"--config-file={deployed.config_file}").output.strip()
    secrets = [deployed.api_key(), token]
    edit(deployed, lambda config: config["vllm"].setdefault("env", {}).update({"STUB_NOTE": "secrets"}))
    seen = {
        "preview": deployed.must("preview", "--diff").output,
        "up": deployed.must("up", "--diff").output,
        "refused up": _refused(deployed),
        "outputs": deployed.must("stack", "output", "--json", f"--stack={deployed.stack}").output,
        "stack file": deployed.config_file.read_text(encoding="utf-8"),
    }
    for file in deployed.scratch.rglob("*"):
        if file.is_file():
            seen[str(file)] = file.read_bytes().decode(errors="replace")
    for node in deployed.lab.status()["nodes"]:
        names = deployed.lab.docker(node, "ps", "-a", "--format", "{{.Names}}").split()
        seen[f"docker inspect on {node}"] = deployed.lab.docker(node, "inspect", *names)
        seen[f"processes of {node}"] = deployed.lab.root(node, "ps", "-e", "-o", "args")
        for name in names:
            seen[f"log of {name}"] = deployed.lab.root(node, "sh", "-c", 'docker logs "$1" 2>&1', "sh", name)
    assert [name for name, text in seen.items() if any(secret in text for secret in secrets)] == []
    assert any("stacks" in name for name in seen), "the state itself was not looked at"


def _refused(pair: Deployment) -> str:
    edit(pair, lambda config: config["vllm"].setdefault("args", {}).update({"max-modl-len": 1}))
    output = pair.pulumi("up").output
    edit(pair, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    return output
