"""The broker's checks: kind, memory, persistence, clock, keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.control.broker_facts import BrokerFacts
from jobs.doctor.finding import Finding, fail, ok, warn
from jobs.doctor.sizes import shown_size
from jobs.settings import Settings, shown_url

OLDEST_REDIS = (6, 2)
CLOCK_SECONDS = 2.0  # more than an answer takes, and less than any wait of ours
FULL_SHARE, NEARLY_FULL_SHARE = 0.95, 0.8


def check_broker(facts: BrokerFacts, settings: Settings, redis_url: str, is_embedded: bool) -> Iterator[Finding]:
    if facts.info is None:
        yield warn(
            "broker",
            f"answers at {shown_url(redis_url)}; its user may not ask INFO, so version, memory and persistence are "
            "not known; allow +info, or see to Redis >= 6.2, noeviction and appendonly yourself",
        )
    else:
        yield _version(facts.info, redis_url)
        yield _policy(facts.info)
        yield _memory(facts.info, is_embedded)
        yield _persistence(facts.info)
    if facts.clock_seconds is not None:
        yield _clock(facts.clock_seconds, settings)
    yield _keys(facts.refused_command, settings)


def _version(info: Mapping[str, Any], redis_url: str) -> Finding:
    is_valkey = "valkey_version" in info
    version = str(info["valkey_version"] if is_valkey else info.get("redis_version", "0"))
    what = f"{'Valkey' if is_valkey else 'Redis'} {version} at {shown_url(redis_url)}"
    if is_valkey or _numbers(version) >= OLDEST_REDIS:
        return ok("broker", what)
    return fail("broker", f"{what}: Redis 6.2 or newer, or Valkey, is needed; upgrade it")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _policy(info: Mapping[str, Any]) -> Finding:
    policy = str(info.get("maxmemory_policy", "unknown"))
    if policy == "noeviction":
        return ok("eviction", "maxmemory-policy is noeviction")
    return fail(
        "eviction",
        f"maxmemory-policy is {policy}: messages and leases may be thrown away; set maxmemory-policy noeviction",
    )


def _memory(info: Mapping[str, Any], is_embedded: bool) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        level = ok if is_embedded else warn
        advice = "" if is_embedded else "; set maxmemory, so that it cannot take all of its machine's"
        return level("memory", f"{shown_size(used)} used, without a limit{advice}")
    share = used / most
    what = f"{shown_size(used)} of {shown_size(most)} used ({100 * share:.0f} %)"
    if share < NEARLY_FULL_SHARE:
        return ok("memory", what)
    advice = "; raise maxmemory, or use --shard-rows that make fewer shards"
    return (fail if share >= FULL_SHARE else warn)("memory", what + advice)


def _persistence(info: Mapping[str, Any]) -> Finding:
    if not int(info.get("aof_enabled", 0)):
        return warn(
            "persistence",
            "no append-only file: a restart forgets jobs, and each needs jobctl resume; set appendonly yes",
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return fail("persistence", "it cannot write its append-only file; look at its disk and its log")
    return ok("persistence", "append-only file is on")


def _clock(seconds: float, settings: Settings) -> Finding:
    what = f"the broker's clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    if abs(seconds) < CLOCK_SECONDS:
        return ok("clock", what)
    level = fail if abs(seconds) >= settings.grace_seconds else warn
    return level("clock", f"{what}: messages may be sent again early or late; set both by NTP")


def _keys(refused_command: str | None, settings: Settings) -> Finding:
    if refused_command is None:
        return ok("keys", f"keys under {settings.key_prefix!r} can be written, read, deleted and used by scripts")
    return fail(
        "keys",
        f"the broker's user cannot use keys under {settings.key_prefix!r} ({refused_command}); give it "
        f"~{settings.key_prefix}* and the commands of docs/security.md, or set JOBCTL_KEY_PREFIX",
    )
