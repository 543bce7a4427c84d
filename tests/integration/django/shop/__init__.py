"""An app of Django's, as tests need it."""
