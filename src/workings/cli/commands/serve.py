"""`workings serve`: an engine behind an address, for a trainer on another device or host."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import closing
from types import FrameType

import workings
from workings.cli.build import Policy, build_policy, set_threads
from workings.cli.console import write_data, write_note
from workings.cli.engines import engine_here, sampling_dtype
from workings.config.serve import LOOPBACK, ServeConfig
from workings.errors import ConfigError
from workings.rollout.engine import Engine
from workings.rollout.server.fingerprint import model_fingerprint, tokenizer_fingerprint
from workings.rollout.server.http import InferenceServer
from workings.rollout.server.service import Identity, LoadAdapter, Service
from workings.rollout.server.weight_group import whereabouts
from workings.rollout.server_engine import TOKEN_VARIABLE
from workings.rollout.vllm_engine import VLLMEngine

MIN_TOKEN_LENGTH = 16
ENDS = (signal.SIGINT, signal.SIGTERM)


def run(config: ServeConfig) -> int:
    """Serve until Ctrl-C or SIGTERM. The address goes to stdout, once it answers."""
    token = os.environ.get(TOKEN_VARIABLE) or None
    check_token(token, needed=config.host not in LOOPBACK)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    for number in ENDS:
        signal.signal(number, _interrupt)
    set_threads(config.num_threads)
    by_adapter = config.engine.lora_by_adapter
    policy = build_policy(config.model, seed=config.seed, trainable=by_adapter)
    engine = engine_here(config.engine, policy, alone=True)
    for line in policy.report:
        write_note(line)
    with closing(engine):
        service = Service(
            engine,
            identity_of(engine, policy, config),
            host=config.host,
            lease_seconds=config.lease_seconds,
            sync_seconds=config.sync_seconds,
            load_adapter=_load_adapter(engine) if by_adapter else None,
        )
        del policy
        server = InferenceServer(service, host=config.host, port=config.port, token=token)
        with server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            try:
                write_data(server.url)
                write_note(f"serving with {type(engine).__name__}; end it with Ctrl-C")
                service.serve_jobs()
            except KeyboardInterrupt:
                write_note("shutting down")
            finally:
                service.stop()
                server.shutdown()
    return 0


def identity_of(engine: Engine, policy: Policy, config: ServeConfig) -> Identity:
    """What the server says it is."""
    return Identity(
        engine=type(engine).__name__,
        model=model_fingerprint(policy.model),
        tokenizer=tokenizer_fingerprint(policy.tokenizer, policy.eos_token_ids),
        where=whereabouts(policy.device),
        weights_dtype=str(sampling_dtype(config.engine.dtype, policy)).removeprefix("torch."),
        takes="adapter" if config.engine.lora_by_adapter else "full",
        version=workings.__version__,
    )


def check_token(token: str | None, *, needed: bool) -> None:
    """Raise ConfigError for a server that others reach without a token worth the name."""
    if token is None and not needed:
        return
    if token is None or len(token) < MIN_TOKEN_LENGTH:
        came = "is not set" if token is None else f"has {len(token)} characters"
        raise ConfigError(
            f"{TOKEN_VARIABLE} {came}; expected {MIN_TOKEN_LENGTH} or more",
            hint="set it to the same text on both sides, e.g. export "
            f'{TOKEN_VARIABLE}="$(openssl rand -hex 16)"',
        )


def _load_adapter(engine: Engine) -> LoadAdapter:
    assert isinstance(engine, VLLMEngine)  # EngineConfig lets no other have lora_by_adapter
    return engine.load_adapter


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal ends the server in order, another one at once.

    Set for both, since a shell starts what is in the background with the first one ignored.
    """
    for each in ENDS:
        signal.signal(each, signal.SIG_DFL)
    raise KeyboardInterrupt
