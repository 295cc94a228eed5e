"""What a broker says of itself, and whether its user may do what we need."""

import time
from dataclasses import dataclass
from typing import Any

import redis

from jobs.control.connection import connect, translated
from jobs.settings import Settings
from jobs.storage.durable import unique_name

PROBE = "return {redis.call('TIME'), redis.call('GET', KEYS[1]), redis.call('PEXPIRE', KEYS[1], 10000)}"


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """clock_seconds: how far its clock is ahead of ours. info: the facts of INFO by name. None: they may not be asked.

    refused_command: what its user may not do with keys under our prefix, as the server says it; or None.
    """

    clock_seconds: float | None
    info: dict[str, Any] | None
    refused_command: str | None


def read_facts(settings: Settings, redis_url: str) -> BrokerFacts:
    """Raises QueueUnavailable."""
    with translated(redis_url), connect(redis_url) as client:
        return BrokerFacts(_clock_seconds(client), _info(client), _refused_command(client, settings.key_prefix))


def _clock_seconds(client: Any) -> float | None:
    asked_at = time.time()
    try:
        seconds, microseconds = client.time()
    except redis.exceptions.NoPermissionError:
        return None
    broker_time: float = seconds + microseconds / 1e6
    return broker_time - (asked_at + time.time()) / 2


def _info(client: Any) -> dict[str, Any] | None:
    try:
        return dict(client.info())
    except redis.exceptions.NoPermissionError:
        return None


def _refused_command(client: Any, prefix: str) -> str | None:
    """Tries on a key of its own what the store does with its keys."""
    key = f"{prefix}doctor:{unique_name()}"
    try:
        client.set(key, "written", px=10_000)
        if client.get(key) != "written":
            return "a key that was written is not read back"
        client.register_script(PROBE)(keys=[key])
        client.delete(key)
    except redis.exceptions.ResponseError as error:
        return str(error)
    return None
