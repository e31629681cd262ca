"""Where buckets live: each store runs `take`, `give_back` and `peek` of a bucket atomically."""
