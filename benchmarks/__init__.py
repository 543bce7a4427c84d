"""How fast jmsql is, as ratios: against a bare psycopg loop with the same SQL, and against its peers.

``python -m benchmarks --help`` says how to run it; ``docs/benchmarks.md`` says what is measured and why.
"""
