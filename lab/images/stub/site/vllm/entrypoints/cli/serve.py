"""`vllm serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.entrypoints.openai.cli_args import make_arg_parser, validate_parsed_serve_args

if TYPE_CHECKING:
    import argparse

    from vllm.utils.argparse_utils import FlexibleArgumentParser


class ServeSubcommand:
    """The `serve` subcommand."""

    name = "serve"

    @staticmethod
    def cmd(args: argparse.Namespace) -> None:
        """Serve."""
        from vllm.entrypoints.openai.server import serve  # noqa: PLC0415

        serve(args)

    def validate(self, args: argparse.Namespace) -> None:
        """Check what the parser can't."""
        validate_parsed_serve_args(args)

    def subparser_init(
        self, subparsers: argparse._SubParsersAction[FlexibleArgumentParser]
    ) -> FlexibleArgumentParser:
        """Add the flags."""
        return make_arg_parser(subparsers.add_parser(self.name, usage="vllm serve [model_tag] [options]"))


def cmd_init() -> list[Any]:
    """The commands of this module."""
    return [ServeSubcommand()]
