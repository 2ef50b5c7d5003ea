"""`vllm`."""

import json
import os
import sys
from pathlib import Path

import vllm
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    """Record how this was called, then run the command."""
    folder = Path(os.environ.get("STUB_DIR", "/tmp/stub"))  # noqa: S108
    folder.mkdir(parents=True, exist_ok=True)
    record = {"argv": sys.argv[1:], "env": dict(os.environ)}
    (folder / "vllm-serve.json").write_text(json.dumps(record, indent=1))

    parser = FlexibleArgumentParser(prog="vllm")
    parser.add_argument("-v", "--version", action="version", version=vllm.__version__)
    command = cmd_init()[0]
    command.subparser_init(parser.add_subparsers(dest="subparser", required=True))
    args = parser.parse_args()
    command.validate(args)
    if args.model_tag is not None:
        args.model = args.model_tag
    command.cmd(args)


if __name__ == "__main__":
    main()
