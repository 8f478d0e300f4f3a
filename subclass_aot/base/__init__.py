"""The ground: torch's private names by subject, operators and their schemas, generated code, what is put back."""
