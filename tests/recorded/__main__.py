"""`python -m tests.recorded` writes both files anew."""

from tests.recorded import data_contract, promises

promises.FILE.write_text(promises.text(), encoding="utf-8")
data_contract.FILE.write_text(data_contract.text(), encoding="utf-8")
