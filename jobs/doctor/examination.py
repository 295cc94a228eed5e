"""All checks in order: each finding as soon as it is there."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from jobs.control.broker_facts import read_facts
from jobs.control.store import Store
from jobs.doctor.broker import check_broker
from jobs.doctor.disk import check_data_dir, check_output_dir
from jobs.doctor.finding import Finding, fail
from jobs.doctor.services import check_services
from jobs.local.broker import open_broker
from jobs.settings import Settings
from schemas.errors import QueueUnavailable


def examine(settings: Settings, output: Path | None) -> Iterator[Finding]:
    """A broker that does not answer is a finding, and does not hinder the other checks."""
    try:
        yield from _examine_broker(settings)
    except QueueUnavailable as error:
        yield fail("broker", str(error))
    yield from check_data_dir(settings.data_dir)
    if output is not None:
        yield from check_output_dir(output)


def _examine_broker(settings: Settings) -> Iterator[Finding]:
    with open_broker(settings.redis_url, settings.data_dir) as broker, closing(Store(settings, broker.url)) as store:
        facts = read_facts(settings, broker.url)
        yield from check_broker(facts, settings, broker.url, is_embedded=settings.redis_url is None)
        if facts.refused_command is None:
            yield from check_services(settings, broker.url, store)
