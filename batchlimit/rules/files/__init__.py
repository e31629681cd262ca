"""Rules from a text in TOML or YAML, with the place of whatever is wrong in it."""
