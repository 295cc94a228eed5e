"""`python -m jobs.cli` is jobctl."""

from jobs.cli import main

main()
