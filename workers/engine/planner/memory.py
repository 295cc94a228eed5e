"""What fits into a device's memory: slots and cache length, beside weights, logits and graphs."""

from dataclasses import dataclass

from schemas.errors import InvalidJob

# Of the device's memory, for recorded graphs, which keep their intermediate tensors: as vllm-gaudi's default.
GRAPH_RESERVE = 0.1
# Logits in float32, the noise they are drawn with, and one result of as many numbers.
_LOGITS_BYTES = 3 * 4
# Arithmetic operations that a card does in bfloat16 while it reads a byte: 432 TFLOPS at 2.46 TB/s (Gaudi 2).
_MACHINE_BALANCE = 175.0
_KV_STEP = 256  # what is advised is this much below the limit at most: caches are rounded up


@dataclass(frozen=True, slots=True)
class ModelSize:
    """kv_bytes: keys and values of all layers at one position of one row."""

    num_parameters: int
    weight_bytes: int
    kv_bytes: int
    vocab_size: int
    context_length: int

    @property
    def kv_weight(self) -> float:
        """What reading a cache position costs, where computing a prompt's position costs 1.

        The former is bound by bandwidth, the latter by arithmetic (roofline, Williams et al. 2009).
        """
        return self.kv_bytes * _MACHINE_BALANCE / (2 * self.num_parameters)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes that a job takes on its device. models: the target's, then a draft's. num_logits: positions of a round."""

    models: tuple[ModelSize, ...]
    batch_size: int
    kv_length: int
    num_logits: int

    @property
    def weight_bytes(self) -> int:
        return sum(model.weight_bytes for model in self.models)

    @property
    def cache_bytes(self) -> int:
        return (self.batch_size + 1) * self.kv_length * self._kv_bytes

    @property
    def logits_bytes(self) -> int:
        return self.num_logits * self.models[0].vocab_size * _LOGITS_BYTES

    @property
    def total_bytes(self) -> int:
        """Without graphs."""
        return self.weight_bytes + self.cache_bytes + self.logits_bytes

    def max_batch_size(self, device_bytes: int) -> int:
        """Slots that fit at this cache length; 0 where none does."""
        slot_bytes = self.kv_length * self._kv_bytes + self.logits_bytes // self.batch_size
        room = _usable(device_bytes) - self.weight_bytes - self.kv_length * self._kv_bytes
        return max(0, room // slot_bytes)

    def max_kv_length(self, device_bytes: int) -> int:
        """Cache positions that fit with these slots; 0 where none does."""
        room = _usable(device_bytes) - self.weight_bytes - self.logits_bytes
        return max(0, room // ((self.batch_size + 1) * self._kv_bytes))

    def check(self, device_bytes: int) -> None:
        """Raises InvalidJob where it does not fit."""
        if self.total_bytes > _usable(device_bytes):
            size, advice = _gib(device_bytes), self._advice(device_bytes)
            raise InvalidJob(f"{self._sum()} do not fit into {size} of memory; {advice}")

    @property
    def _kv_bytes(self) -> int:
        return sum(model.kv_bytes for model in self.models)

    def _sum(self) -> str:
        return (
            f"weights {_gib(self.weight_bytes)}, cache {_gib(self.cache_bytes)} ({self.batch_size} slots of "
            f"{self.kv_length} positions), logits {_gib(self.logits_bytes)} and {GRAPH_RESERVE:.0%} for graphs"
        )

    def _advice(self, device_bytes: int) -> str:
        slots, positions = self.max_batch_size(device_bytes), self.max_kv_length(device_bytes)
        length = max(0, positions // _KV_STEP * _KV_STEP - self.num_logits // self.batch_size)
        if not slots and not length:
            return "use a smaller model or dtype"
        ways = [f"--batch-size {slots}"] * bool(slots) + [f"--kv-length {length}"] * bool(length)
        return f"at most {' or '.join(ways)} fits"


def _usable(device_bytes: int) -> int:
    return int(device_bytes * (1 - GRAPH_RESERVE))


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
