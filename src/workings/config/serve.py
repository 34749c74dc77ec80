"""An inference server for a training run on another device or host."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from workings.config.section import RunSection
from workings.config.sections import EngineConfig, ModelConfig
from workings.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServeConfig(RunSection):
    """An engine behind an address, for one trainer at a time."""

    kind: Literal["serve"] = "serve"
    seed: int = Field(0, ge=0, description="Of what is random before the trainer's weights come.")
    num_threads: int = Field(0, ge=0, description="CPU threads for torch; 0 leaves it alone.")
    model: ModelConfig
    engine: EngineConfig = EngineConfig()
    host: str = Field("127.0.0.1", description="Address to listen on; this host alone by default.")
    port: int = Field(8650, ge=0, le=65535, description="0 takes a free one.")
    allow_remote: bool = Field(
        False, description="Listen on another address; needs WORKINGS_SERVER_TOKEN on both sides."
    )
    lease_seconds: float = Field(
        30.0, gt=0, description="Silence after which a trainer has lost the server."
    )
    sync_seconds: float = Field(
        120.0, gt=0, description="Longest wait for the next part of a set of weights."
    )

    @model_validator(mode="after")
    def _engine_is_here(self) -> ServeConfig:
        if self.engine.name == "server" or self.engine.own_process:
            which = "engine.name=server" if self.engine.name == "server" else "engine.own_process"
            raise ConfigError(
                f"{which} in the configuration of a server, which has to have an engine of its own",
                hint="set engine.name=auto",
            )
        return self

    @model_validator(mode="after")
    def _others_are_let_in_on_purpose(self) -> ServeConfig:
        if self.host not in LOOPBACK and not self.allow_remote:
            raise ConfigError(
                f"host={self.host} lets other hosts in; expected one of {', '.join(LOOPBACK)}",
                hint="set allow_remote=true and WORKINGS_SERVER_TOKEN, in a network that you trust",
            )
        return self
