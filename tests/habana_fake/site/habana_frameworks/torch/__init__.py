"""A stand-in for Gaudi's package: names and signatures of its releases 1.21 to 1.24, and no other name."""
