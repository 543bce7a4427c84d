"""Django's record of the versions of jmsql's schema, for migrations of other apps to depend on."""
