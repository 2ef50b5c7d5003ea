"""Ask whether a dependency of requirements.lock is known to be vulnerable: `python -m scripts.audit`.

Without the service one line says so, and that is no failure; a known vulnerability is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parent.parent / "requirements.lock"
SECONDS = 120


def verdict(out: str, words: str) -> tuple[bool, list[str]]:
    """Judge what pip-audit printed.

    Args:
        out: its report, as JSON; not that where it could not ask.
        words: its other words.

    Returns:
        Whether nothing is known to be wrong, and what to say.
    """
    try:
        found: list[dict[str, Any]] = json.loads(out)["dependencies"]
    except ValueError:
        last = (words.strip().splitlines() or ["no answer"])[-1]
        return True, [f"audit: not done, the service of known vulnerabilities is out of reach ({last[:160]})"]
    wrong = [
        f"audit: {each['name']} {each['version']}: {fault['id']}, "
        f"mended in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for each in found
        for fault in each.get("vulns", ())
    ]
    unknown = [each["name"] for each in found if "skip_reason" in each]
    if not unknown:
        return not wrong, wrong
    return not wrong, [*wrong, f"audit: the service knows nothing of {len(unknown)} of {len(found)} packages"]


def main() -> None:
    """Audit, and end with status 1 if something is known to be vulnerable."""
    argv = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(LOCK),
        "--disable-pip",
        "--require-hashes",
    ]
    argv += ["--format=json", "--progress-spinner=off", "--timeout=5"]
    try:
        done = subprocess.run(
            argv,
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        right, lines = verdict(done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        right, lines = verdict("", f"no answer within {SECONDS} s")
    print("\n".join(lines) or "audit: nothing is known to be wrong", file=sys.stdout if right else sys.stderr)
    sys.exit(not right)


if __name__ == "__main__":
    main()
