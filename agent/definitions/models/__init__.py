"""The configuration as pydantic models; the JSON Schema and the reference are generated from them."""
