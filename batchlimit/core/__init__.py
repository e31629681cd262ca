"""The rules of batchlimit, pure: `now` comes in, a value goes out; no clock, thread, socket, random or store."""
