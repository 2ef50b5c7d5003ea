"""vLLM's argument parser."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class FlexibleArgumentParser(argparse.ArgumentParser):
    """Takes `--max_model_len` for `--max-model-len`."""

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> Any:  # noqa: ANN401
        """Parse with dashes in all names."""
        given = sys.argv[1:] if args is None else args
        return super().parse_args([re.sub(r"^--[^=.]+", _dashes, word) for word in given], namespace)


def _dashes(match: re.Match[str]) -> str:
    return match.group().replace("_", "-")
