"""A real tokenizer that has nothing to do with the demo model's: 65,000 tokens of byte-level BPE, text brought to NFKC.

It comes out of a wheel (MIT licence) of less than a megabyte.
"""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

REQUIREMENT, MEMBER = "anthropic==0.38.0", "anthropic/tokenizer.json"


def fetch_second_tokenizer(directory: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(directory), REQUIREMENT]
    subprocess.run(pip, check=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        path = archive.extract(MEMBER, directory)
    return PreTrainedTokenizerFast(tokenizer_file=path, eos_token="<EOT>")
