def to_091(message, sections):
    raise NotImplementedError


def to_10(properties, body, address):
    raise NotImplementedError
