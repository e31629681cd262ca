"""The asyncio API: drives the core with tasks, one timer and no lock, on one event loop at a time."""
