"""The checks of what runs beside the broker: workers, beat, and what nobody could do."""

from collections import Counter
from collections.abc import Iterator

from jobs.control.dead_letters import list_letters
from jobs.control.store import Store
from jobs.doctor.finding import Finding, ok, warn
from jobs.schedules.beat import has_leader
from jobs.settings import Settings
from jobs.texts import counted


def check_services(settings: Settings, redis_url: str, store: Store) -> Iterator[Finding]:
    """Raises QueueUnavailable."""
    yield _workers(store)
    yield _beat(has_leader(settings, redis_url))
    yield _letters(store)


def _workers(store: Store) -> Finding:
    devices = Counter(worker.device for worker in store.workers())
    if not devices:
        return warn("workers", "no worker is running; start one: jobctl up, or jobctl worker")
    shown = ", ".join(f"{counted(num, 'worker')} for {device}" for device, num in sorted(devices.items()))
    return ok("workers", shown)


def _beat(is_running: bool) -> Finding:
    if is_running:
        return ok("beat", "a beat is running")
    return warn(
        "beat",
        "no beat is running: schedules do not fire, and nobody looks after jobs that no run or wait follows; "
        "start jobctl beat, or jobctl up",
    )


def _letters(store: Store) -> Finding:
    kinds = Counter(letter.kind for letter in list_letters(store))
    what = f"{counted(kinds['shard'], 'dead shard')}, {counted(kinds['message'], 'refused message')}"
    return warn("dead letters", f"{what}; see jobctl dlq list") if kinds else ok("dead letters", what)
