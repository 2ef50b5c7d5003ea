"""No secret stands in a preview, an output, a log, the state, `docker inspect` or a process list."""

from __future__ import annotations

import pytest

from lab.deployment import Deployment
from tests.deployment.stack import edit

pytestmark = pytest.mark.lab


def test_secrets_are_nowhere_in_clear(deployed: Deployment) -> None:
    pair = deployed
    token = pair.must("config", "get", "rayToken", f"--config-file={pair.config_file}").output.strip()
    secrets = [pair.api_key(), token]
    edit(pair, lambda config: config["vllm"].setdefault("env", {}).update({"STUB_NOTE": "secrets"}))
    seen = {
        "preview": pair.must("preview", "--diff").output,
        "up": pair.must("up", "--diff").output,
        "refused up": _refused(pair),
        "outputs": pair.must("stack", "output", "--json", f"--stack={pair.stack}").output,
        "stack file": pair.config_file.read_text(encoding="utf-8"),
    }
    for file in pair.scratch.rglob("*"):
        if file.is_file():
            seen[str(file)] = file.read_bytes().decode(errors="replace")
    for node in pair.lab.status()["nodes"]:
        names = pair.lab.docker(node, "ps", "-a", "--format", "{{.Names}}").split()
        seen[f"docker inspect on {node}"] = pair.lab.docker(node, "inspect", *names)
        seen[f"processes of {node}"] = pair.lab.root(node, "ps", "-e", "-o", "args")
        for name in names:
            seen[f"log of {name}"] = pair.lab.root(node, "sh", "-c", 'docker logs "$1" 2>&1', "sh", name)
    assert [name for name, text in seen.items() if any(secret in text for secret in secrets)] == []
    assert any("stacks" in name for name in seen), "the state itself was not looked at"


def _refused(pair: Deployment) -> str:
    edit(pair, lambda config: config["vllm"].setdefault("args", {}).update({"max-modl-len": 1}))
    output = pair.pulumi("up").output
    edit(pair, lambda config: config["vllm"]["args"].pop("max-modl-len"))
    return output
