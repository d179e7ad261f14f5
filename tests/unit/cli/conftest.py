from tests.unit.status.conftest import serve

__all__ = ["serve"]
