"""Settings: how this process reaches the queue and how patient it is. The only reader of the environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import SplitResult, parse_qsl, urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from schemas.errors import InvalidJob
from schemas.values import Value

PREFIX = "JOBCTL_"
URL_OPTIONS = {"redis": (), "rediss": ("ssl_ca_certs",), "unix": ("db",)}  # of each scheme
HOUR_SECONDS = 3600.0

Seconds = Annotated[float, Field(gt=0)]


def default_data_dir(environ: Mapping[str, str]) -> Path:
    """Where the embedded broker, logs and schedules live: one per user, so that every terminal finds it."""
    home = environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(home) / "specbatch"


class Settings(Value):
    """One field for each JOBCTL_… variable.

    redis_url: redis://, rediss:// or unix://; None is the embedded broker of data_dir. rediss:// is TLS, and always
        checks the server's certificate and name, by the system's authorities or those of ?ssl_ca_certs=FILE.
    lease_seconds: how long a shard stays with a worker that has gone silent.
    stall_seconds: how long a round may take before the worker is taken for hung; a model's load counts.
    reconcile_seconds: between two looks of the reconciler.
    grace_seconds: how long a message may be on its way (published, or received and not begun) before it is lost.
    retry_seconds: the wait after a shard's first failure; it doubles with each further one.
    max_attempts: attempts in a row that may add no finished row before the shard is a dead letter.
    bisect_attempts: attempts at a shard that may die beside these, while it is found out which row is to blame.
    checkpoint_seconds: finished rows are saved this often, so that a killed worker loses no more.
    visibility_timeout_seconds: after this Celery itself delivers an unacknowledged message again.
    key_prefix: in front of every Redis key, so that several installations share one server.
    allowed_outputs: directories that jobs may write to; empty is any whose files are this user's.
    allowed_models: directories, hub ids and patterns of hub ids that jobs may load; empty is any.
    allow_pickle, allow_remote_code: whether a job that asks for it may load pickles, or run code of its model.

    Lists have os.pathsep between.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    redis_url: Annotated[str | None, Field(repr=False)] = None
    data_dir: Path
    lease_seconds: Seconds = 15.0
    stall_seconds: Seconds = 600.0
    reconcile_seconds: Seconds = 2.0
    grace_seconds: Seconds = 30.0
    retry_seconds: Seconds = 2.0
    max_attempts: Annotated[int, Field(ge=1)] = 3
    bisect_attempts: Annotated[int, Field(ge=0)] = 24
    checkpoint_seconds: Seconds = 30.0
    visibility_timeout_seconds: Seconds = 6 * HOUR_SECONDS
    key_prefix: Annotated[str, Field(min_length=1)] = "specbatch:"
    allowed_outputs: tuple[Path, ...] = ()
    allowed_models: tuple[str, ...] = ()
    allow_pickle: bool = False
    allow_remote_code: bool = False

    @field_validator("allowed_outputs", "allowed_models", mode="before")
    @classmethod
    def _one_text(cls, values: Any) -> Any:
        return [part for part in values.split(os.pathsep) if part] if isinstance(values, str) else values

    @field_validator("allowed_outputs")
    @classmethod
    def _absolute_outputs(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.expanduser().absolute() for path in paths)

    @field_validator("redis_url", mode="before")
    @classmethod
    def _empty_is_unset(cls, url: Any) -> Any:
        # Compose files write JOBCTL_REDIS_URL=${...:-}.
        return url or None

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, url: str | None) -> str | None:
        complaint = _complaint_about_url(url) if url is not None else None
        if complaint is not None:
            raise ValueError(complaint)
        return url

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @model_validator(mode="after")
    def _patience_agrees(self) -> Self:
        if self.visibility_timeout_seconds <= self.lease_seconds:
            raise ValueError("JOBCTL_VISIBILITY_TIMEOUT_SECONDS must be above JOBCTL_LEASE_SECONDS")
        return self

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Raises InvalidJob, naming the JOBCTL_… variable that is unknown or has a bad value."""
        source = os.environ if environ is None else environ
        given = {name[len(PREFIX) :].lower(): value for name, value in source.items() if name.startswith(PREFIX)}
        given.setdefault("data_dir", str(default_data_dir(source)))
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise InvalidJob(_first_problem(error)) from error

    def to_environ(self) -> dict[str, str]:
        """The variables that give a child process these settings."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {PREFIX + name.upper(): _as_text(value) for name, value in values.items()}

    def child_environ(self) -> dict[str, str]:
        """This process's whole environment, with these settings in it."""
        return {**os.environ, **self.to_environ()}


def _as_text(value: Any) -> str:
    return os.pathsep.join(value) if isinstance(value, list) else str(value)


def _complaint_about_url(url: str) -> str | None:
    """It repeats nothing of the URL, any part of which may be a password that is not quoted."""
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        return "it is no URL; quote the password's own characters, such as %2F for /"
    if parts.scheme not in URL_OPTIONS:
        return "it must begin with redis://, rediss:// or unix://"
    if "@" in parts.path + parts.query or parts.fragment:
        return "quote / ? # and @ in its password: %2F %3F %23 %40"
    if not _has_port(parts):
        return "its port is not a number"
    allowed = URL_OPTIONS[parts.scheme]
    if not options.keys() <= set(allowed):
        known = f"only {allowed[0]}=…" if allowed else "nothing"
        return f"after ? it may have {known}; certificates are always checked"
    if "ssl_ca_certs" in options and not Path(options["ssl_ca_certs"]).is_file():
        return "what its ssl_ca_certs names is no file"
    return None


def _has_port(parts: SplitResult) -> bool:
    """Whether the port, if one is named, is one."""
    try:
        return parts.port != 0
    except ValueError:
        return False


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    name = PREFIX + "_".join(str(part) for part in problem["loc"]).upper()
    if problem["type"] == "extra_forbidden":
        return f"unknown variable {name}; known are {', '.join(_names())}"
    reason = str(problem["msg"]).removeprefix("Value error, ")
    # The value may be a URL with a password: it is not repeated.
    return f"{name}: {reason}" if problem["loc"] else reason


def _names() -> list[str]:
    return [PREFIX + name.upper() for name in Settings.model_fields]


def shown_url(url: str) -> str:
    """The URL as it may be printed: without user, password and options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
