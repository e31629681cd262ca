"""A fleet of processes that carry out a plan together on this machine: run, watched and audited."""
