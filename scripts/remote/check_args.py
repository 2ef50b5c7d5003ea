"""Ask the vLLM of an image whether it takes a command line: runs inside that image.

Reads `{"args": [MODEL, "--flag", ...], "engine": bool}` on stdin: what follows `vllm serve`, and whether to
make the engine's configuration too, which needs the model's files. Loads no weights and takes no GPU memory.

Prints `vllm=`, `ray=` and `check=ok`. Status 2: refused, 3: the check itself failed; stderr has the reason.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

REFUSED = 2
BROKEN = 3
LIMIT_SECONDS = float(os.environ.get("CHECK_LIMIT_SECONDS", "300"))

# Where the versions of vLLM keep what the check needs, newest first.
PARSER_MODULES = ("vllm.utils.argparse_utils", "vllm.utils")
API_MODULES = ("vllm.entrypoints.launchers.launcher", "vllm.entrypoints.openai.api_server")


class Refusal(Exception):  # noqa: N818
    """vLLM does not take these arguments."""


class Breakage(Exception):  # noqa: N818
    """This vLLM is not built as the check expects."""


def home_of(name: str, modules: tuple[str, ...]) -> Any:  # noqa: ANN401
    """The first of the modules that has the name.

    Raises:
        Breakage: None has it.
    """
    for path in modules:
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(path)
            if hasattr(module, name):
                return module
    raise Breakage(f"{name} is in none of {', '.join(modules)}")


def ray_version() -> str:
    """The version of the Ray that vLLM would import."""
    try:
        return str(importlib.import_module("ray").__version__)
    except ModuleNotFoundError:
        return "none"


def require_one_ray() -> None:
    """Ray's containers start the `ray` of the PATH, and vLLM joins with the one that it imports.

    Raises:
        Refusal: They are not the same, or there is no command.
    """
    imported, command = ray_version(), shutil.which("ray")
    if imported == "none":
        return
    if command is None:
        raise Refusal(f"The image's Python has Ray {imported}, but there is no `ray` command on its PATH.")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=False)
    found = (done.stdout.split() or ["of an unknown version"])[-1]
    if found != imported:
        raise Refusal(
            f"The image's `ray` command ({command}) is Ray {found}, and its vLLM imports Ray {imported}: "
            "take an image with one Ray."
        )


def reason_of(error: Exception) -> str:
    """What an exception says, without what only a developer reads."""
    errors = getattr(error, "errors", None)
    if callable(errors):
        return "\n".join(
            ": ".join([*map(str, item["loc"]), str(item["msg"]).removeprefix("Value error, ")])
            for item in errors()
        )
    return str(error.args[0] if isinstance(error, KeyError) and error.args else error) or type(error).__name__


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn vLLM's many ways to refuse into one.

    Raises:
        Refusal: What ran inside refused.
    """
    words = io.StringIO()
    try:
        with contextlib.redirect_stderr(words):
            yield
    except SystemExit as stop:
        raise Refusal(words.getvalue().rpartition("error: ")[2].strip()) from stop
    except (AttributeError, NameError):
        raise
    except Exception as error:
        raise Refusal(reason_of(error)) from error


def suggestion(refusal: str, known: list[str]) -> str:
    """The flags that may have been meant, where a refusal names unknown ones."""
    found, _, words = refusal.partition("unrecognized arguments: ")
    flags = re.findall(r"--[\w-]+", words) if found != refusal else []
    meant = [close[0] for flag in flags if (close := difflib.get_close_matches(flag, known, n=1))]
    return f"; did you mean {', '.join(meant)}?" if meant else ""


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse and validate as `vllm serve` does.

    Raises:
        Refusal: An argument is wrong.
    """
    parser = home_of("FlexibleArgumentParser", PARSER_MODULES).FlexibleArgumentParser(prog="vllm")
    command = importlib.import_module("vllm.entrypoints.cli.serve").cmd_init()[0]
    commands = parser.add_subparsers(dest="subparser")
    command.subparser_init(commands)
    serve: argparse.ArgumentParser = commands.choices["serve"]
    # argparse takes the beginning of a name for the name: a typo would pass, or set what the program owns.
    serve.allow_abbrev = False
    try:
        with refusing():
            args: argparse.Namespace = parser.parse_args(["serve", *arguments])
            command.validate(args)
    except Refusal as refusal:
        known = list(serve._option_string_actions)  # noqa: SLF001 - argparse tells them nowhere else
        raise Refusal(f"{refusal}{suggestion(str(refusal), known)}") from refusal
    if getattr(args, "model_tag", None) is not None:
        args.model = args.model_tag
    return args


def check(arguments: list[str], *, engine: bool) -> None:
    """Take the arguments through each step that a server takes before it loads the model.

    Raises:
        Refusal: A step refused.
    """
    args = parse(arguments)
    if args.distributed_executor_backend == "ray":
        require_one_ray()
    api = home_of("validate_api_server_args", API_MODULES)
    with refusing():
        if getattr(args, "tool_parser_plugin", None):
            api.ToolParserManager.import_tool_parser(args.tool_parser_plugin)
        if getattr(args, "reasoning_parser_plugin", None):
            api.ReasoningParserManager.import_reasoning_parser(args.reasoning_parser_plugin)
        outputs: Any = getattr(args, "structured_outputs_config", None)
        if hasattr(outputs, "reasoning_parser") and args.reasoning_parser:
            # The server's start copies it to where the API's check looks.
            outputs.reasoning_parser = args.reasoning_parser
        api.validate_api_server_args(args)
    if engine:
        arg_utils = importlib.import_module("vllm.engine.arg_utils")
        with refusing():
            arg_utils.AsyncEngineArgs.from_cli_args(args).create_engine_config()


def quiet() -> tuple[TextIO, TextIO]:
    """Keep stdout and stderr for the result: vLLM and its child processes log to both.

    Returns:
        The two as they were.
    """
    kept = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(2), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return kept


def leave(status: int, words: str, stream: TextIO) -> NoReturn:
    """End at once, whatever threads vLLM has started."""
    print(words, file=stream, flush=True)
    os._exit(status)


def main() -> NoReturn:
    """Check what stands on stdin."""
    request = json.load(sys.stdin)
    out, err = quiet()
    late = f"The argument check did not end within {LIMIT_SECONDS:.0f} s."
    watch = threading.Timer(LIMIT_SECONDS, leave, (BROKEN, late, err))
    watch.daemon = True
    watch.start()
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        print(
            f"vllm={importlib.import_module('vllm').__version__}\nray={ray_version()}", file=out, flush=True
        )
        check(request["args"], engine=request["engine"])
    except Refusal as refusal:
        leave(REFUSED, str(refusal), err)
    except Exception as error:  # noqa: BLE001
        leave(BROKEN, f"The argument check does not know this vLLM: {type(error).__name__}: {error}", err)
    leave(0, "check=ok", out)


if __name__ == "__main__":
    main()
