"""One module for each framework; each needs the extra of its name."""
