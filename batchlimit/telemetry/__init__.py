"""Metrics of limiters and web fronts, for Prometheus and OpenTelemetry. A call pays nothing for them.

`batchlimit.telemetry.prometheus.export(limiter)` and `batchlimit.telemetry.otel.export(limiter)` switch them on. Both
read `statistics()` when somebody looks. `reading` turns what it says into the series of `metrics`; its `Sources` are
what is read. With several workers prometheus-client adds up counters of all of them, to which a thread adds.

No label holds a key: there may be any number of keys, and they may be secret.
"""
