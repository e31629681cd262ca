"""Requests as no client would write them: of two lengths, of two requests, with fields and paths far too long."""

_END = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Face: %face\r\n"
_POST = b"POST /login" + _END


def get(target: bytes, fields: bytes = b"") -> bytes:
    return b"GET " + target + _END + fields + b"\r\n"


PLAIN = get(b"/login")
REQUESTS = {
    "HTTP/1.0": b"GET /login HTTP/1.0\r\nX-Face: %face\r\n\r\n",
    "path of 10 kB": get(b"/items/" + b"x" * 10_000),
    "path of 60 kB": get(b"/items/" + b"x" * 60_000),
    "no UTF-8": get(b"/items/%ff%fe"),
    "no UTF-8, bare": get(b"/items/\xff\xfe"),
    "line separator": get(b"/items/%e2%80%a8"),
    "length and chunks": _POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + PLAIN,
    "two lengths": _POST + b"Content-Length: 5\r\nContent-Length: 0\r\n\r\n" + PLAIN,
    "space before the colon": _POST + b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "unknown coding": _POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "folded field": get(b"/login", b"X-A: a\r\n b\r\n"),
    "bare line feeds": PLAIN.replace(b"\r", b""),
    "three at once": PLAIN.replace(b"Connection: close\r\n", b"") * 2 + PLAIN,
    "a request behind a body": _POST.replace(b"Connection: close\r\n", b"Content-Length: 2\r\n") + b"\r\nhi" + PLAIN,
    "field of 60 kB": get(b"/login", b"X-A: " + b"a" * 60_000 + b"\r\n"),
    "150 fields": get(b"/login", b"".join(b"X-%d: a\r\n" % number for number in range(150))),
}
_FROM = b"X-Forwarded-For: "
HOPS = {
    "others further left": [_FROM + b"192.0.2.%d, 198.51.100.1" % number for number in range(4)],
    "others in a field before": [_FROM + b"192.0.2.%d\r\n" % number + _FROM + b"198.51.100.2" for number in range(4)],
    "a field of the other spelling": [
        b"X_Forwarded_For: 192.0.2.%d\r\n" % number + _FROM + b"198.51.100.3" for number in range(4)
    ],
    "100 trusted ones": [_FROM + b"198.51.100.4" + b", 10.0.0.1" * 100] * 4,
    "100 others": [
        _FROM + b", ".join(b"192.%d.2.%d" % (number, hop) for hop in range(100)) + b", 198.51.100.5"
        for number in range(4)
    ],
}
NO_ADDRESSES = [b",", b"unknown", b"\xff\xfe", b"2001:db8::1%eth0", b"999.1.1.1", b"a" * 5000]
