"""How a server behaves: from the command line, from FLIDE_… variables, or as they are here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

_Positive = Annotated[int, Field(gt=0)]
_Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Limits(BaseModel):
    """What one tenant may do. A key of the keys file may have other ones.

    Attributes:
        body_bytes: of a request's body, on the wire and unpacked.
        questions: in one request.
        tokens: in one request, questions included; None for what the model can read.
        requests: that wait or run at the same time.
        sessions: that are held; of more, the one unused for longest goes.
        watches: streams of standing answers at the same time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    body_bytes: _Positive = 8 << 20
    questions: _Positive = 400
    tokens: _Positive | None = None
    requests: _Positive = 64
    sessions: _Positive = 2_000
    watches: _Positive = 64


class Settings(BaseSettings):
    """The server's settings; `FLIDE_PORT` sets `port`, `FLIDE_LIMITS__QUESTIONS` a limit.

    Attributes:
        host, port: where to listen.
        keys: the file of API keys; None lets everybody in.
        no_auth: lets everybody in also where other machines can reach the server.
        limits: of a tenant, unless its key says otherwise.
        requests: of all tenants that wait or run at the same time; beyond it the server is busy.
        timeout: seconds to answer in, where a request does not say. System One's clients give up
            after 10.
        longest_timeout: seconds that a request may ask for.
        drain: seconds to answer what is in hand, once told to stop.
        access_log: a line of JSON on stderr for every request.
        audit: a file that gets a line of JSON for every decision made here; without texts.
        traces: the name of an OpenTelemetry exporter, such as otlp_proto_http or console, that gets
            a span of every request with questions; without texts.
        threads: that read requests and turn text into tokens.
    """

    model_config = SettingsConfigDict(
        env_prefix="FLIDE_", env_nested_delimiter="__", frozen=True, extra="ignore"
    )

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    keys: Path | None = None
    no_auth: bool = False
    limits: Limits = Limits()
    requests: _Positive = 256
    timeout: _Seconds = 9.5
    longest_timeout: _Seconds = 600.0
    drain: _Seconds = 30.0
    access_log: bool = True
    audit: Path | None = None
    traces: str | None = None
    threads: _Positive = 4


class ServeSettings(Settings):
    """What `flide-agent serve` needs besides: an engine.

    Attributes:
        model: a model directory, or a name such as "smollm2".
        device, dtype: as in `Engine.from_pretrained`.
        redis: a server that checkpoints and sessions' records are shared through.
        secret: shared by all replicas that share it.
        host_cache: bytes of this machine's memory for checkpoints, under a GPU.
    """

    model: str
    device: str | None = None
    dtype: Literal["float32", "float64", "bfloat16"] | None = None
    redis: str | None = None
    secret: SecretStr | None = None
    host_cache: Annotated[int, Field(ge=0)] = 0
