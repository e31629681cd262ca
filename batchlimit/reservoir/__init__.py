"""One key's leased tokens in this process: who is served, what is asked for, and when; `reservoir` says how."""
