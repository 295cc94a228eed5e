"""Engine `generate`: transformers' own `model.generate` in batches, for families that ours cannot run."""
