"""What a version promises, recorded in docs/: a change of it is a decision (docs/upgrade.md)."""
