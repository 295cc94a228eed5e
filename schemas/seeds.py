"""A row's own seed, so that its tokens depend on the job and the row alone."""

import hashlib
import struct


def derive_row_seed(job_seed: int, row_index: int, sample_index: int = 0) -> int:
    """63 bits from a hash of (job seed, row_index, sample_index): far-apart streams for close inputs."""
    packed = struct.pack("<QQQ", job_seed, row_index, sample_index)
    digest = hashlib.blake2b(packed, digest_size=8, person=b"specbatch-row").digest()
    return int.from_bytes(digest, "little") >> 1
