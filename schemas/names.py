"""Names of files in an output directory, as plans and receipts hold them. What is read from a disk is not trusted.

None begins with `/`, `.` or `_`, or has `..` in it: below an output they can only mean its own files.
"""

from typing import Annotated

from pydantic import Field

_DIRECTORY = r"(?:=|[^/._=\x00][^/=\x00]*=)[^/\x00]*"  # of Hive: key=value
_PART = r"part-[0-9]{5}\.parquet"

HivePath = Annotated[str, Field(pattern=rf"^(?:{_DIRECTORY}(?:/{_DIRECTORY})*)?$")]
PartPath = Annotated[str, Field(pattern=rf"^(?:{_DIRECTORY}/)*{_PART}$")]
StagedName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*\.parquet$")]
