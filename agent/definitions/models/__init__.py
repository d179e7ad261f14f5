"""What may be written, as pydantic models; the JSON Schema and the reference are made from them."""
