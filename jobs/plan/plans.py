"""Plans by job, read once: a saved plan never changes."""

from functools import lru_cache
from pathlib import Path

from jobs.control.state import JobRecord
from jobs.plan.planning import load_plan
from schemas.errors import InvalidJob
from schemas.plan import Plan


def plan_of(record: JobRecord) -> Plan:
    """Raises NotFound where the output directory is gone, InvalidJob where it holds another job."""
    return _plan(record.job_id, record.output)


@lru_cache(maxsize=16)
def _plan(job_id: str, output: str) -> Plan:
    plan = load_plan(Path(output))
    if plan.job_id != job_id:
        raise InvalidJob(f"{output} holds {plan.job_id}, not {job_id}; its own files are gone")
    return plan
