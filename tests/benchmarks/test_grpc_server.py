"""What the benchmark of a gRPC server makes of its calls."""

from benchmarks.grpc_server import Run
from benchmarks.poisson import Called, End


def test_a_refusal_is_no_good_and_takes_no_time() -> None:
    answered = [Called(at=0.0, lag=0.001, took=n / 1000, end=End.ANSWERED) for n in range(1, 101)]
    others = [Called(0.0, 0.0, 0.0, End.REFUSED), Called(0.0, 0.0, 0.2, End.LATE)]
    run = Run(answered + others, seconds=10.0, limit=7)
    assert (run.goodput, run.p99) == (10.0, 0.1)
    assert str(run).startswith("100 answered, 1 refused, 1 late; the limit is 7 at the end")
