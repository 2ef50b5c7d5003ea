"""The life of a server: checks, the other ranks, the load, the API, the end.

STUB_LOAD_S: seconds that the load takes. STUB_EXIT_AFTER_S: seconds until it fails, from its start.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from vllm import __version__
from vllm.engine.arg_utils import AsyncEngineArgs, EngineConfig
from vllm.entrypoints.openai.api import Api, Served
from vllm.entrypoints.openai.api_server import validate_api_server_args
from vllm.group import Group, LocalGroup, RayGroup, TcpGroup

if TYPE_CHECKING:
    import argparse

_SHARDS = 4
_EXIT_DELAY_SECONDS = 3.0


def serve(args: argparse.Namespace) -> NoReturn:
    """Serve until a signal, a lost rank or the environment ends it."""
    signal.signal(signal.SIGTERM, lambda *_: _end(0, "Shutting down"))
    if after := os.environ.get("STUB_EXIT_AFTER_S"):
        failure = threading.Timer(float(after), _end, (1, "RuntimeError: Engine core initialization failed."))
        failure.daemon = True
        failure.start()
    _log(f"vLLM API server version {__version__}")
    validate_api_server_args(args)
    config = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    served = Served(
        names=args.served_model_name or [args.model],
        root=args.model,
        max_model_len=config.max_model_len,
        keys=args.api_key or [key for key in [os.environ.get("VLLM_API_KEY")] if key],
        tools=args.enable_auto_tool_choice,
        reasoning=bool(args.reasoning_parser),
    )
    api = None if args.headless else Api(args.host, args.port, served)
    group = _meet(args, config)
    _load()
    group.finish_load()
    if api is not None:
        api.start()
        _log(f"Starting vLLM API server on http://{args.host or '0.0.0.0'}:{args.port}")  # noqa: S104
        _log("Application startup complete.")
    reason = group.wait_for_loss()
    if isinstance(group, TcpGroup):
        # As with the real one: /health goes on answering 200, and no completion ends.
        served.stuck = True
        threading.Event().wait()
    served.healthy = False
    _log(f"EngineCore encountered a fatal error: {reason}")
    time.sleep(_EXIT_DELAY_SECONDS)
    _end(0, "Shutting down")


def _meet(args: argparse.Namespace, config: EngineConfig) -> Group:
    if config.backend == "ray":
        return RayGroup(config.world_size)
    return TcpGroup(args) if args.nnodes > 1 else LocalGroup()


def _load() -> None:
    seconds = float(os.environ.get("STUB_LOAD_S", "1"))
    for shard in range(_SHARDS + 1):
        share = shard * 100 // _SHARDS
        _log(f"Loading safetensors checkpoint shards: {share:3}% Completed | {shard}/{_SHARDS}")
        if shard < _SHARDS:
            time.sleep(seconds / _SHARDS)


def _log(words: str) -> None:
    print(f"INFO {time.strftime('%m-%d %H:%M:%S')} [stub] {words}", flush=True)


def _end(status: int, words: str) -> NoReturn:
    _log(words)
    sys.stdout.flush()
    os._exit(status)
