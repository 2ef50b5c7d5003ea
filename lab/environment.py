"""What a shell needs for plain `pulumi ... --stack lab`: `eval "$(make -s env)"`.

PATH, Pulumi's home, backend and passphrase, and the lab's SSH agent. What is set already stays, so that an
operator's own backend and agent win.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from lab.engine.errors import EngineError
from lab.engine.setup import ensure
from lab.instance import Lab

ROOT = Path(__file__).resolve().parent.parent
LOCAL = ROOT / ".local"


def environment(lab: Lab | None = None) -> dict[str, str]:
    """Make sure that there is an engine, and name what its processes need.

    Args:
        lab: whose SSH agent is used; by default the one of this clone, if it is up.

    Returns:
        Variables and their values, without those that are set already.
    """
    lab = lab or Lab()
    home = Path(os.environ.get("PULUMI_HOME", LOCAL / "pulumi-home"))
    engine = ensure(home)
    state = LOCAL / "state"
    state.mkdir(parents=True, exist_ok=True)
    own = engine.environment() | {
        "PULUMI_BACKEND_URL": f"file://{state}",
        "PULUMI_CONFIG_PASSPHRASE": _passphrase(),
    }
    result = {name: value for name, value in own.items() if name not in os.environ}
    path = [str(ROOT / "bin"), *own["PATH"].split(os.pathsep)]
    result["PATH"] = os.pathsep.join(dict.fromkeys(path))
    if lab.agent_socket.exists():
        result["SSH_AUTH_SOCK"] = str(lab.agent_socket)
    return result


def exports(variables: Mapping[str, str]) -> str:
    """Write variables as a shell reads them."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def _passphrase() -> str:
    file = LOCAL / "passphrase"
    if not file.exists():
        LOCAL.mkdir(exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(16), encoding="utf-8")
    return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    try:
        sys.stdout.write(exports(environment()))
    except EngineError as error:
        sys.exit(f"error: {error}")
