"""The version of the library; the package's metadata takes it from here."""

__version__ = "0.2.0"
