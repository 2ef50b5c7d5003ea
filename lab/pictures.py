"""`make pictures`: what the commands show of the deployment of `make demo`, as the README shows it."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from ruamel.yaml import YAML

from lab.engine.errors import EngineError
from lab.environment import ROOT, environment
from lab.shell import LabError, say

FOLDER = ROOT / "docs" / "pictures"
COLUMNS = 118
STACK = "lab"
SWEEP = ("--concurrency=1,2,4", "--input-len=32,128", "--output-len=48", "--rounds=6")


def main() -> None:
    """Run the commands on the deployment of the demo, and draw what they print."""
    if not (ROOT / f"Pulumi.{STACK}.yaml").exists():
        raise LabError("There is no deployment to show: run `make demo` first.")
    variables = {
        **os.environ, **environment(), "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color",
    }  # fmt: skip
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        changed = _changed(Path(scratch))
        for name, options in {
            "status": [],
            "doctor": [],
            "plan": [f"--config-file={changed}"],
        }.items():
            say(f"spark-vllm {name}")
            _draw(name, _run(name, options, variables))
        say("spark-vllm bench")
        _run("bench", [*SWEEP, f"--out={scratch}"], variables)
        (report,) = Path(scratch).glob("*.html")
        _photograph(report)


def _changed(folder: Path) -> Path:
    """The stack's file with another flag."""
    yaml = YAML()
    document = yaml.load(ROOT / f"Pulumi.{STACK}.yaml")
    document["config"]["spark-vllm:vllm"]["args"]["max-num-seqs"] += 4
    path = folder / f"Pulumi.{STACK}.yaml"
    yaml.dump(document, path)
    return path


def _run(name: str, options: Sequence[str], variables: Mapping[str, str]) -> str:
    argv = [str(ROOT / "bin" / "spark-vllm"), name, f"--stack={STACK}", *options]
    done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LabError(f"spark-vllm {name} failed: {done.stderr.strip()}")
    return done.stdout


def _draw(name: str, ansi: str) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(ansi.rstrip()), soft_wrap=True)
    svg = console.export_svg(title=f"spark-vllm {name}", theme=MONOKAI, unique_id=name)
    # no font from elsewhere
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")


def _photograph(report: Path) -> None:
    """The report as a browser shows it, in both schemes."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise LabError(
            "The report's pictures need a browser: install chromium, and run `make pictures` again."
        )
    for scheme, number in (("dark", 0), ("light", 1)):
        say(f"the report, {scheme}")
        subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                f"--blink-settings=preferredColorScheme={number}", "--window-size=1100,900",
                f"--screenshot={FOLDER / f'report-{scheme}.png'}", report.as_uri(),
            ],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        main()
    except (LabError, EngineError) as error:
        sys.exit(f"error: {error}")
