"""How many tokens to draft in each round, so that the most tokens come in a second."""

from workers.engine.draft_length.controller import Controller
from workers.engine.draft_length.facts import RoundFacts
from workers.engine.draft_length.tunables import Tunables

__all__ = ["Controller", "RoundFacts", "Tunables"]
