"""What the tasks of one worker process share: its connections, and the model, kept between shards."""

import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from jobs.control.store import Store
from jobs.settings import Settings
from schemas.errors import InvalidJob, QueueUnavailable
from schemas.generation import Completion, InputRow, Request, SampleKey
from schemas.job import DeviceKind, JobSpec
from schemas.plan import Plan
from schemas.values import Value
from workers.stopping import StopRequest

# In the configuration of the Celery app that a worker process gets: its WorkerOptions, and its node's process id.
OPTIONS_KEY = "specbatch_worker"
NODE_PID_KEY = "specbatch_node_pid"
ENGINE_SESSION = "workers.engine.session:load_session"
ENGINE_PACKAGES = ("torch", "transformers")


class WorkerOptions(Value):
    """What `python -m workers` was given.

    session: `module:function` of the SessionFactory, for engines other than our own.
    """

    name: str
    device: DeviceKind = "auto"
    threads: int | None = None
    session: str = ENGINE_SESSION


OnAdmit = Callable[[Sequence[SampleKey]], None]


class Session(Protocol):
    """A loaded model that generates rows."""

    load_seconds: float

    def serves(self, spec: JobSpec) -> bool:
        """Whether the job can use this session as it is loaded: same model, revision, dtype and device."""

    def configure(self, spec: JobSpec) -> None:
        """Prepares for a job that `serves` accepts. Raises InvalidJob."""

    def encode(self, row: InputRow, plan: Plan) -> Sequence[Request]:
        """The row's samples, 0 to n - 1; the same whoever encodes it. Raises RowFailed."""

    def generate(
        self, requests: Sequence[Request], on_round: Callable[[], None], on_admit: OnAdmit
    ) -> Iterator[Completion]:
        """In any order. on_round is called between rounds, on_admit with what is about to enter the batch; what they
        raise ends the generation. Raises OutOfMemory, after which it can be used anew."""

    def decode(self, token_ids: Sequence[int]) -> str: ...

    def versions(self) -> dict[str, str]:
        """What made the outputs: kept in every part's metadata."""

    def speculation(self) -> Mapping[str, Any]:
        """What drafting did in the last `generate`, for the shard's receipt: JSON, finite numbers; empty where nothing.

        `rounds_by_k`: source -> k, as text -> rounds.
        """

    def shapes(self) -> Mapping[str, Any]:
        """The shapes of forwards up to the last `generate`, for the receipt likewise."""


SessionFactory = Callable[[JobSpec, int | None], Session]


class WorkerContext:
    """One for each worker process."""

    def __init__(
        self, settings: Settings, store: Store, options: WorkerOptions, load_session: SessionFactory | None = None
    ) -> None:
        self.settings, self.store, self.options = settings, store, options
        self.stop = StopRequest()
        self._load_session = load_session
        self._session: Session | None = None

    def session_for(self, spec: JobSpec) -> Session:
        """The session at hand if it serves the job, else a new one. Raises InvalidJob where the model is refused."""
        if spec.device == "auto":
            spec = spec.model_copy(update={"device": self.options.device})
        if self._session is None or not self._session.serves(spec):
            self._session = None  # two models may not fit
            self._session = self._factory()(spec, self.options.threads)
        self._session.configure(spec)
        return self._session

    def _factory(self) -> SessionFactory:
        # Imported with the first shard: torch takes seconds, and the message of a stopped job needs none.
        if self._load_session is None:
            self._load_session = find_session_factory(self.options.session)
        return self._load_session


def check_session_name(name: str) -> None:
    """Without importing it. Raises InvalidJob for what is not `module:function`, or lacks a package."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise InvalidJob(f"--session {name}: it must be module:function")
    needed = (*ENGINE_PACKAGES, module) if name == ENGINE_SESSION else (module,)
    missing = next((package for package in needed if not _can_find(package)), None)
    if missing in ENGINE_PACKAGES:
        raise InvalidJob(f'a worker needs {missing}: pip install "specbatch[worker]"')
    if missing is not None:
        raise InvalidJob(f"--session {name}: no module {missing}")


def _can_find(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


def find_session_factory(name: str) -> SessionFactory:
    module, _, function = name.partition(":")
    return cast(SessionFactory, getattr(importlib.import_module(module), function))


def make_context(options: WorkerOptions) -> WorkerContext:
    """From the environment. Raises InvalidJob, and QueueUnavailable where no broker is named."""
    settings = Settings.from_environ()
    return WorkerContext(settings, Store(settings, broker_url(settings)), options)


def broker_url(settings: Settings) -> str:
    """Raises QueueUnavailable: a worker starts no broker of its own."""
    if settings.redis_url is None:
        raise QueueUnavailable("JOBCTL_REDIS_URL is not set; a worker needs the broker's URL, or start `jobctl up`")
    return settings.redis_url
