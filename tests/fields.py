"""The fields of an object that has slots, those of its bases among them."""


def fields_of(kind: type) -> list[str]:
    """Return their names; none for a class without slots."""
    return [name for each in kind.__mro__ for name in vars(each).get("__slots__", ())]
