"""How far away an upstream is that is not near."""

from typing import Final

FAR: Final = 0.1  # seconds there and back
