"""Errors, named by what to do next. Foreign errors are translated into these at one edge."""


class SpecbatchError(Exception):
    """The base of every error that a user may see: one line that says what is wrong and what to do."""

    exit_code = 1


class InvalidJob(SpecbatchError):
    """The request is wrong. The user changes the file, column or option that the message names."""

    exit_code = 2


class DamagedRecord(InvalidJob):
    """A file that says what the job is, or has done, is damaged. The user restores it, or removes it where told so."""

    exit_code = 1


class NotFound(SpecbatchError):
    """No such job, schedule or file."""

    exit_code = 3


class QueueUnavailable(SpecbatchError):
    """The broker does not answer. The user starts one, or names another."""

    exit_code = 7


class RowFailed(SpecbatchError):
    """One row cannot be generated; it becomes the row's status and the shard goes on.

    `kind` is a short stable word (`null_prompt`, `prompt_too_long`, …) for the column `error_kind`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ShardRetryable(SpecbatchError):
    """This attempt at a shard ended early (worker lost, out of memory, I/O); another one may succeed."""


class OutOfMemory(ShardRetryable):
    """The batch does not fit into memory; a smaller one may."""


class DeviceUnavailable(ShardRetryable):
    """The card that this worker is to use cannot be had. Another worker may have one; this one can do nothing."""

    exit_code = 8


class LeaseLost(ShardRetryable):
    """Another attempt holds the shard now, or the broker could not confirm that we still do."""


class JobCancelled(SpecbatchError):
    """The user cancelled the job; the attempt stops after the running round and keeps nothing back."""

    exit_code = 5


class ShardFailed(SpecbatchError):
    """All attempts at a shard are used up; it goes to the dead letters."""


class MessageRefused(SpecbatchError):
    """No task can do what the message says; it is kept for people to look at and not tried again."""


class CommitConflict(SpecbatchError):
    """Another attempt has committed this shard: roll its commit forward, drop ours; a success."""


class CommitUnknown(SpecbatchError):
    """Our commit may have landed: look for our attempt in the receipt, then decide."""
