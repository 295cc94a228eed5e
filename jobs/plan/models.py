"""What a job's model is, settled at submit without loading it: a hub commit, or a hash of a local model's files."""

import fnmatch
import hashlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from jobs.texts import one_line, shortened
from schemas.errors import InvalidJob

# Whatever decides tokens beside the weights: config, generation defaults, tokenizer, chat template.
_DECIDING_FILES = (
    "config.json",
    "generation_config.json",
    "*.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.tiktoken",
    "chat_template*",
    "chat_templates/*",
    "*.py",
)
_PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack")
_PICKLED_WEIGHTS = "pytorch_model*.bin"  # the names that transformers looks for
_PICKLE_END_BYTES = 2**20  # holds the names and checksums of what is in it
_GGUF_HEADER_BYTES = 8 * 2**20  # holds the metadata of common vocabularies
_HUB_TIMEOUT_SECONDS = 20


def resolve_draft_model(model: str, revision: str | None = None, allow_pickle: bool = False) -> str:
    """`resolve_model` of the model that drafts; what is wrong with it names its own options."""
    try:
        return resolve_model(model, revision, allow_pickle)
    except InvalidJob as error:
        raise InvalidJob(f"--draft-model: {str(error).replace('--revision', '--draft-revision')}") from error


def resolve_model(model: str, revision: str | None = None, allow_pickle: bool = False) -> str:
    """The revision that a job pins: the hub commit, or `sha256:…` of a local folder or .gguf file.

    revision: a hub branch, tag or commit, or the hash that a local model had when its job was submitted.
    allow_pickle: its weights may be pickles. Raises InvalidJob where there is no such model, where it has no weights
    that may be loaded, or where it has changed.
    """
    if not is_local_model(model):
        return _hub_commit(model, revision, allow_pickle)
    found = local_revision(Path(model).expanduser(), allow_pickle)
    if revision not in (None, found):
        raise InvalidJob(
            f"model {model}: its files are at {found}, not at revision {revision}; submit a new job, "
            "without --revision where the model is local"
        )
    return found


def locate_model(model: str) -> str:
    """A local model's absolute path, so that a worker elsewhere on this file system finds it; a hub id as it is."""
    return os.path.abspath(Path(model).expanduser()) if is_local_model(model) else model


def is_local_model(model: str) -> bool:
    """Whether the name means a path: it exists, or it cannot be a hub id (`name` or `owner/name`)."""
    return _exists(model) or model.startswith(("/", ".", "~")) or model.endswith(".gguf") or model.count("/") > 1


def _exists(model: str) -> bool:
    """Raises InvalidJob for what can be no path."""
    try:
        return Path(model).expanduser().exists()
    except (OSError, RuntimeError) as error:  # too long a name, a closed directory; no such home
        raise InvalidJob(
            f"model {shortened(model)}: {one_line(error)}; name a folder, a .gguf file or a hub id"
        ) from error


def local_revision(path: Path, allow_pickle: bool = False) -> str:
    """`sha256:…` over a local model: its small files whole, of its weights the headers and sizes."""
    if not path.exists():
        raise InvalidJob(f"model {path}: no such folder or file; name a model folder, a .gguf file or a hub id")
    digest = hashlib.sha256()
    for name, content in _gguf_facts(path) if path.is_file() else _folder_facts(path, allow_pickle):
        digest.update(struct.pack("<QQ", len(name.encode()), len(content)) + name.encode() + content)
    return f"sha256:{digest.hexdigest()}"


def has_chat_template(model: str) -> bool | None:
    """Whether a local folder's tokenizer has a chat template; None for models whose files are not at hand as such."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return None
    if any((folder / name).exists() for name in ("chat_template.jinja", "chat_template.json", "chat_templates")):
        return True
    tokenizer_config = folder / "tokenizer_config.json"
    return tokenizer_config.is_file() and bool(json.loads(tokenizer_config.read_bytes()).get("chat_template"))


def _folder_facts(folder: Path, allow_pickle: bool) -> Iterator[tuple[str, bytes]]:
    if not (folder / "config.json").is_file():
        raise InvalidJob(f"model {folder}: no config.json in it; name the folder that holds the model's files")
    weights = sorted(folder.glob("*.safetensors"))
    pickles = sorted(folder.glob(_PICKLED_WEIGHTS)) if allow_pickle and not weights else []
    if not weights and not pickles:
        raise _no_safetensors(str(folder), [path.name for path in folder.iterdir()])
    deciding = {path for pattern in _DECIDING_FILES for path in folder.glob(pattern) if path.is_file()}
    for path in sorted(deciding):
        yield str(path.relative_to(folder)), path.read_bytes()
    for path in weights:
        yield path.name, struct.pack("<Q", path.stat().st_size) + _safetensors_header(path)
    for path in pickles:
        yield path.name, struct.pack("<Q", path.stat().st_size) + _pickle_end(path)


def _pickle_end(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _PICKLE_END_BYTES))
        return file.read()


def _safetensors_header(path: Path) -> bytes:
    with path.open("rb") as file:
        size_bytes = int.from_bytes(file.read(8), "little")
        header = file.read(size_bytes) if size_bytes < path.stat().st_size else b""
    if not header.startswith(b"{"):
        raise InvalidJob(f"model file {path}: not a safetensors file (a Git LFS pointer?); download it again")
    return header


def _gguf_facts(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        if not _is_gguf(file):
            raise InvalidJob(f"model {path}: not a GGUF file; name a model folder, a .gguf file or a hub id")
        yield "gguf", struct.pack("<Q", path.stat().st_size) + file.read(_GGUF_HEADER_BYTES)


def _is_gguf(file: BinaryIO) -> bool:
    return file.read(4) == b"GGUF"


def _no_safetensors(model: str, names: list[str]) -> InvalidJob:
    if ggufs := sorted(name for name in names if name.endswith(".gguf")):
        return InvalidJob(f"model {model}: it holds GGUF files; name one of them, such as {ggufs[0]}")
    if any(name.endswith(_PICKLE_SUFFIXES) for name in names):
        return InvalidJob(
            f"model {model}: its weights are pickles, which can run code; convert them to safetensors, or give "
            "--allow-pickle, which the worker has to allow too"
        )
    return InvalidJob(f"model {model}: no .safetensors weights in it; download the model again")


def _hub_commit(model: str, revision: str | None, allow_pickle: bool) -> str:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(model, revision=revision, timeout=_HUB_TIMEOUT_SECONDS)
    except HFValidationError as error:
        raise InvalidJob(f"model {model}: neither a folder here nor a hub id (owner/name)") from error
    except GatedRepoError as error:
        raise InvalidJob(f"model {model}: gated; accept its terms on the hub, then run `hf auth login`") from error
    except RevisionNotFoundError as error:
        raise InvalidJob(f"model {model}: the hub has no revision {revision} of it") from error
    except RepositoryNotFoundError as error:
        raise InvalidJob(f"model {model}: no such folder here, and no such model on the hub") from error
    except Exception as error:  # requests or httpx, by the hub client's version
        return _cached_commit(model, revision, error)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    pickles = fnmatch.filter(names, _PICKLED_WEIGHTS) if allow_pickle else []
    if not pickles and not any(name.endswith(".safetensors") for name in names):
        raise _no_safetensors(model, names)
    return str(info.sha)


def _cached_commit(model: str, revision: str | None, cause: Exception) -> str:
    """The commit whose files are in this machine's hub cache, for when the hub does not answer."""
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(model, "config.json", revision=revision)
    if not isinstance(cached, str):
        raise InvalidJob(
            f"model {model}: the hub does not answer ({type(cause).__name__}) and this machine has no copy; "
            "a local folder works without it"
        ) from cause
    return Path(cached).parent.name
