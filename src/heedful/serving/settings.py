"""Settings of `heedful serve`; each field is an option of the command line."""

from ipaddress import ip_address
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from heedful.config import BaseConfig
from heedful.errors import check

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class ServerSettings(BaseConfig):
    """Address, limits and access of a server."""

    host: str = "127.0.0.1"
    """address to listen on; any but this computer's own needs --token"""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """port to listen on; 0: any free one"""
    token: Annotated[str | None, Field(json_schema_extra={"variable": "HEEDFUL_TOKEN"})] = None
    """secret that clients send as `Authorization: Bearer TOKEN`"""
    allow_anonymous: bool = False
    """answer on other addresses without a token"""
    allowed_host: tuple[str, ...] = ()
    """a further name by which clients may call this server; repeatable"""
    allowed_origin: tuple[str, ...] = ()
    """a web site whose pages may use this server, as https://example.org; repeatable"""
    ui: bool = False
    """show the inspector at the address: a page on which attention can be edited"""
    timeout: PositiveFloat = 30.0
    """seconds until a request is given up; X-Request-Timeout may shorten it"""
    shutdown_timeout: NonNegativeFloat = 30.0
    """seconds for requests to finish after SIGTERM"""
    hang_timeout: PositiveFloat = 30.0
    """seconds until a worker that goes on with canceled work is restarted"""
    max_restarts: Annotated[int, Field(ge=0)] = 0
    """exit after this many restarts of a worker without an answer; 0: never"""
    max_batch: PositiveInt = 64
    """inputs of a batch"""
    max_batch_characters: PositiveInt = 65_536
    """characters of a batch, padded to its longest input"""
    max_wait_ms: NonNegativeFloat = 5.0
    """milliseconds that an input waits for others, unless they come in a row"""
    max_queue: PositiveInt = 4096
    """inputs that wait for a worker"""
    max_streams: PositiveInt = 16
    """answers that are streamed at a time by a worker"""
    max_body: PositiveInt = 2_000_000
    """bytes of a request"""
    max_inputs: PositiveInt = 512
    """inputs of a request"""
    max_characters: PositiveInt = 5000
    """characters of a text"""
    max_outputs: PositiveInt = 100
    """hypotheses, outputs or samples of an input"""
    max_new_tokens: PositiveInt = 8192
    """tokens that a language model adds to a prompt"""
    max_connections: PositiveInt = 1024
    """connections at a time"""
    header_timeout: PositiveFloat = 10.0
    """seconds for the first line and the headers of a request"""
    keep_alive: PositiveFloat = 5.0
    """seconds until a connection without requests is closed"""

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of this computer can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def check_access(self) -> None:
        """Raise ConfigError if others could use the server without a token."""
        is_closed = self.is_loopback or self.token or self.allow_anonymous
        message = f"other computers could use the server at {self.host} without a token"
        hint = "add --token TOKEN (or set HEEDFUL_TOKEN), or --allow-anonymous"
        check(is_closed, "--host", message, hint)
