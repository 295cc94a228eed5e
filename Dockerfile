# One image for worker, beat and jobctl. Volumes: /data for inputs and outputs, /models for the model cache.
FROM python:3.11.11-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

WORKDIR /app
COPY constraints.txt pyproject.toml README.md ./
COPY schemas schemas
COPY jobs jobs
COPY workers workers
# torch is the CPU build, as constraints.txt has it: where pip does not see it, name PyTorch's index of CPU wheels.
ARG PIP_EXTRA_INDEX_URL
RUN pip install --constraint constraints.txt ".[worker]"

# New named volumes take their owner from these folders.
RUN useradd --uid 10001 --no-create-home --home-dir /data --shell /usr/sbin/nologin jobctl \
    && mkdir /data /models \
    && chown jobctl:jobctl /data /models

USER 10001:10001
WORKDIR /data
CMD ["jobctl", "--help"]
