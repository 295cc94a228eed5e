"""Where drafted tokens come from."""
