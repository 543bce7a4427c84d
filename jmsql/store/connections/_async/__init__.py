"""Opening connections of psycopg, with the server settings that jmsql needs."""
